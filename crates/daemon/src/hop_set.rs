//! A mobile's hop: a set of hops, each to one base, added and removed while it runs.

use std::collections::{BTreeMap, BTreeSet};

use lasthop_control::AssociationReport;
use lasthop_control::past::Progress;
use lasthop_hop::PacketLane;
use lasthop_kernel::reactor::Readiness;
use lasthop_kernel::slab::Key;
use lasthop_kernel::turn::{Source, Turn};
use lasthop_units::{Deadlines, Duration, Time};

use crate::hop::{AnyStreams, Hop, HopEvent, MobileHop};

/// Any number of hops to a base each. Each is a *part* with a number of its own, which names its
/// association, which its descriptors carry ([`Source::Hop`]) and which is not used again while that
/// could be mistaken.
pub(crate) struct HopSet {
    parts: BTreeMap<u32, Box<dyn MobileHop>>,
    /// Parts have this number or a higher one: what is lower is somebody else's.
    first: u32,
    next: u32,
    /// Parts with which something was done, or that have more to do: only these are polled.
    touched: BTreeSet<u32>,
    /// When the others want to be called.
    deadlines: Deadlines<u32>,
    /// The part that was polled last; polling goes on with the next one.
    last_polled: u32,
    /// Refused datagrams of parts that are gone.
    garbage: u64,
}

impl HopSet {
    /// No parts yet. They will be numbered from `first` on: what shares the loop with these has the
    /// numbers below.
    pub(crate) fn new(first: u32) -> Self {
        Self {
            parts: BTreeMap::new(),
            first,
            next: first,
            touched: BTreeSet::new(),
            deadlines: Deadlines::new(),
            last_polled: first,
            garbage: 0,
        }
    }

    /// Adds a hop whose descriptors are not watched yet; its number. Start it with
    /// [`with`](Self::with).
    pub(crate) fn add(&mut self, hop: Box<dyn MobileHop>) -> u32 {
        while self.next < self.first || self.parts.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1).max(self.first);
        }
        let part = self.next;
        self.next = part.wrapping_add(1);
        self.parts.insert(part, hop);
        self.touched.insert(part);
        part
    }

    /// Removes a part and its descriptors, and sends its peers a close, a datagram at most. No event
    /// follows for its associations: the caller ends what it keeps of them.
    pub(crate) fn remove(&mut self, turn: &mut Turn<'_>, part: u32) {
        if let Some(hop) = self.parts.get_mut(&part) {
            hop.close(&mut turn.within(part));
        }
        self.discard(turn, part);
    }

    /// As [`remove`](Self::remove), but sends no close.
    pub(crate) fn discard(&mut self, turn: &mut Turn<'_>, part: u32) {
        if let Some(hop) = self.parts.remove(&part) {
            self.garbage += hop.garbage();
            self.touched.remove(&part);
            self.deadlines.set(part, None);
            turn.reactor.remove_where(|source| matches!(source, Source::Hop(n, _) if n == part));
        }
    }

    /// A part, read only.
    pub(crate) fn get(&self, part: u32) -> Option<&dyn MobileHop> {
        Some(&**self.parts.get(&part)?)
    }

    /// Does something with a part, with a turn that is for it.
    pub(crate) fn with<T>(
        &mut self,
        turn: &mut Turn<'_>,
        part: u32,
        act: impl FnOnce(&mut dyn MobileHop, &mut Turn<'_>) -> T,
    ) -> Option<T> {
        let hop = self.parts.get_mut(&part)?;
        self.touched.insert(part);
        Some(act(&mut **hop, &mut turn.within(part)))
    }

    /// Does something with every part that was touched, each with a turn that is for it.
    fn for_each_touched(
        &mut self,
        turn: &mut Turn<'_>,
        mut act: impl FnMut(&mut dyn MobileHop, &mut Turn<'_>),
    ) {
        for part in &self.touched {
            if let Some(hop) = self.parts.get_mut(part) {
                act(&mut **hop, &mut turn.within(*part));
            }
        }
    }
}

impl Hop for HopSet {
    type Id = u32;

    /// All have the same.
    fn name(&self) -> &'static str {
        self.parts.values().next().map_or("none", |hop| hop.name())
    }

    /// The turn is for the part whose descriptor it is.
    fn handle_ready(&mut self, turn: &mut Turn<'_>, key: Key, readiness: Readiness) {
        let part = turn.part;
        self.with(turn, part, |hop, turn| hop.handle_ready(turn, key, readiness));
    }

    fn next_timeout(&self) -> Option<Time> {
        self.deadlines.next()
    }

    fn handle_timeout(&mut self, turn: &mut Turn<'_>) {
        while let Some(part) = self.deadlines.pop_due(turn.now) {
            self.with(turn, part, |hop, turn| hop.handle_timeout(turn));
        }
    }

    fn pump(&mut self, turn: &mut Turn<'_>) {
        self.for_each_touched(turn, |hop, turn| hop.pump(turn));
    }

    /// What has nothing more to do is left alone until its next timer.
    fn flush(&mut self, turn: &mut Turn<'_>) {
        self.for_each_touched(turn, |hop, turn| hop.flush(turn));
        let Self { parts, touched, deadlines, .. } = self;
        touched.retain(|part| {
            let Some(hop) = parts.get(part) else { return false };
            deadlines.set(*part, hop.next_timeout());
            hop.is_active()
        });
    }

    fn patience(&self, part: u32) -> Duration {
        self.parts.get(&part).map_or(Duration::ZERO, |hop| hop.patience(()))
    }

    fn progress(&mut self, part: u32) -> Option<Progress> {
        self.parts.get_mut(&part)?.progress(())
    }

    fn poll_event(&mut self) -> Option<HopEvent<u32>> {
        let Self { parts, touched, .. } = self;
        touched.iter().find_map(|part| Some(parts.get_mut(part)?.poll_event()?.map(|()| *part)))
    }

    /// Parts take turns, so that a busy one does not starve the others.
    fn poll_active(&mut self) -> Option<u32> {
        let Self { parts, touched, last_polled, .. } = self;
        let after = last_polled.checked_add(1).map(|next| touched.range(next..));
        let mut turns = after.into_iter().flatten().chain(touched.range(..=*last_polled));
        let found = turns
            .find(|part| parts.get_mut(part).is_some_and(|hop| hop.poll_active().is_some()))?;
        *last_polled = *found;
        Some(*found)
    }

    fn is_active(&self) -> bool {
        self.touched.iter().any(|part| self.parts.get(part).is_some_and(|hop| hop.is_active()))
    }

    fn streams(&mut self, part: u32) -> Option<&mut AnyStreams> {
        self.touched.insert(part);
        self.parts.get_mut(&part)?.streams(())
    }

    fn packets(&mut self, part: u32) -> Option<&mut PacketLane> {
        self.touched.insert(part);
        self.parts.get_mut(&part)?.packets(())
    }

    fn packets_so_far(&mut self, part: u32) -> Option<&mut PacketLane> {
        self.parts.get_mut(&part)?.packets_so_far(())
    }

    fn remove_association(&mut self, turn: &mut Turn<'_>, part: u32) {
        self.with(turn, part, |hop, turn| hop.remove_association(turn, ()));
    }

    fn close(&mut self, turn: &mut Turn<'_>) {
        self.touched.extend(self.parts.keys());
        self.for_each_touched(turn, |hop, turn| hop.close(turn));
    }

    /// A part's number is added to its associations': a mobile's end has but one, of number zero.
    fn reports(&self, now: Time) -> Vec<AssociationReport> {
        let numbered = self.parts.iter().flat_map(|(part, hop)| {
            let part = u64::from(*part);
            let own = hop.reports(now).into_iter();
            own.map(move |report| AssociationReport { id: report.id + part, ..report })
        });
        numbered.collect()
    }

    fn garbage(&self) -> u64 {
        self.garbage + self.parts.values().map(|hop| hop.garbage()).sum::<u64>()
    }
}
