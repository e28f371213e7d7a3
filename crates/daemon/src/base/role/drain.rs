//! Emptying this base: its mobiles are told, and go to other bases by themselves.

use std::collections::BTreeMap;
use std::time::Duration;

use lasthop_control::Drained;
use lasthop_units::Time;

use super::super::handoff::Handoffs;
use super::super::workers::Workers;
use super::BaseRole;
use crate::backhaul::BaseAssociationId;
use crate::driver::CoreOf;

/// How often it is looked who is left.
const PACE: Duration = Duration::from_millis(50);
/// A mobile that has its connections elsewhere leaves within a round trip; its goodbye may be lost.
const FAREWELL: Duration = Duration::from_secs(1);

/// How far a base that is being emptied is.
#[derive(Debug, Default)]
pub(super) struct Drain {
    /// When it is looked next.
    next: Time,
    /// Since when the connections of mobiles that are still here are elsewhere.
    away: BTreeMap<BaseAssociationId, Time>,
    /// For whom it is waited for here.
    left: usize,
    /// The process is to end.
    pub(super) stopping: bool,
}

impl BaseRole {
    /// The operator wants this base to be emptied, or no more.
    pub(super) fn handle_drain(
        &mut self,
        core: &mut CoreOf<Self>,
        undo: bool,
    ) -> Result<Drained, String> {
        if self.is_alone() && !(undo && self.news.is_draining()) {
            return Err(
                "this base has no [[peers]]: there is no other to which its mobiles could \
                        take their connections"
                    .to_owned(),
            );
        }
        if self.drain.stopping {
            return Err("this base is stopping".to_owned());
        }
        self.drain_all(core, !undo);
        Ok(Drained { draining: !undo })
    }

    /// Whether there is no other base at the moment.
    pub(super) fn is_alone(&self) -> bool {
        self.handoffs.as_ref().is_none_or(Handoffs::is_alone)
    }

    /// Has this worker and the others empty themselves, or no more.
    pub(super) fn drain_all(&mut self, core: &mut CoreOf<Self>, draining: bool) {
        if self.news.is_draining() != draining {
            match draining {
                true => tracing::info!(
                    mobiles = self.mobiles_here(),
                    "draining: mobiles are told to leave"
                ),
                false => tracing::info!("no longer draining"),
            }
        }
        self.workers.iter().for_each(|workers| workers.drain_others(draining));
        self.set_draining(core, draining);
    }

    /// This worker is to be emptied, or no more.
    pub(super) fn set_draining(&mut self, core: &mut CoreOf<Self>, draining: bool) {
        self.news.set_draining(core, draining);
        self.drain.next = core.now;
        self.drain.left = 1;
        self.look_who_is_left(core.now);
    }

    /// When [`look_who_is_left`](Self::look_who_is_left) has something to do.
    pub(super) fn drain_timeout(&self) -> Option<Time> {
        (self.news.is_draining() && self.drain.left > 0).then_some(self.drain.next)
    }

    /// Counts for whom a base that is being emptied waits.
    pub(super) fn look_who_is_left(&mut self, now: Time) {
        if !self.news.is_draining() || self.drain.next > now {
            return;
        }
        self.drain.next = now + PACE;
        let Self { news, drain, present, handoffs, workers, .. } = self;
        let mut away = BTreeMap::new();
        let mut left = handoffs.as_ref().map_or(0, Handoffs::anchored);
        for (id, key) in present.latest() {
            let waited = news.subscriber(id).is_some_and(|asked| asked.here && !asked.stays);
            let gone = handoffs.as_ref().zip(key).is_some_and(|(all, key)| all.is_away(key));
            let since = gone.then(|| drain.away.get(&id).copied().unwrap_or(now));
            away.extend(since.map(|since| (id, since)));
            let parted = since.is_some_and(|since| since + FAREWELL <= now);
            left += usize::from(waited && !parted);
        }
        (drain.away, drain.left) = (away, left);
        workers.iter().for_each(|workers| workers.set_left(left));
    }

    /// Whether nobody is left for whom it is waited.
    pub(super) fn is_empty(&self) -> bool {
        self.workers.as_ref().map_or(self.drain.left, Workers::left) == 0
    }

    /// Mobiles that have their connections here.
    pub(super) fn mobiles_here(&self) -> usize {
        let is_here = |(id, key): &(BaseAssociationId, _)| {
            let away = self.handoffs.as_ref().zip(*key).is_some_and(|(all, key)| all.is_away(key));
            // One that has come anew is counted once.
            let latest = key.is_none_or(|key| self.present.with(key) == Some(*id));
            latest && !away && self.news.subscriber(*id).is_none_or(|asked| asked.here)
        };
        self.present.latest().filter(is_here).count()
    }

    /// How much of what it may have this base has, of 255: of connections or of memory, whichever is more.
    pub(super) fn load(&self, connections: usize) -> u8 {
        let part = |some: u64, of: u64| (some.saturating_mul(255) / of.max(1)).min(255) as u8;
        let connections = self.workers.as_ref().map_or(connections, Workers::connections);
        let memory = self.memory.report();
        part(connections as u64, self.connections_max as u64)
            .max(part(memory.promised, memory.bound))
    }
}
