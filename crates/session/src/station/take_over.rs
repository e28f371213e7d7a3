//! A base takes over what another one had that is dead: from tickets, from what their mobile has, and from what the fixed hosts
//! say.

use alloc::vec::Vec;
use core::fmt::Debug;

use lasthop_units::{Duration, Time};

use super::wired::Wired;
use super::{NoteKind, Reclaimed, Station, Wires};
use crate::handoff::{Address, Authority, ConnectionState, Direction, Ended, Stage};
use crate::{Orphan, SessionId, SessionState};

/// A session that goes on from what its mobile has, once its fixed hosts have said what they have.
#[derive(Debug)]
pub(super) struct TakingOver {
    attempt: u32,
    orphans: Vec<Orphan>,
    /// Connections that stood and of which no ticket was made.
    without: usize,
    /// The highest number of a connection.
    newest: u64,
}

impl<A, T, I, S> Station<A, T, I, S>
where
    A: Address + Ord,
    T: Authority<A>,
    I: Copy + Ord + Debug,
    S: Copy,
{
    /// Has connections reclaimed of which their mobile has said what it has.
    pub(super) fn begin_take_over(
        &mut self,
        world: &mut impl Wires<A, I, S>,
        now: Time,
        (session, mobile, attempt): (SessionId, A, u32),
        all: Vec<Orphan>,
        certain: bool,
        silent: Duration,
    ) {
        let newest = all.iter().map(|one| one.connection).max().unwrap_or(0);
        let without = all.iter().filter(|one| !one.asking && one.ticket.is_none()).count();
        let orphans = all.into_iter().filter(|one| !one.asking && one.ticket.is_some());
        let orphans: Vec<Orphan> = orphans.collect();
        // Without a ticket there is only the other base, which may still answer.
        if without > 0 && (!certain || orphans.is_empty()) {
            self.machine.take_over(now, session, attempt, None);
            return;
        }
        let reclaimed = world.reclaim(session, mobile, &orphans, silent);
        self.taking_over.insert(session, TakingOver { attempt, orphans, without, newest });
        if let Some(reclaimed) = reclaimed {
            self.handle_reclaimed(world, now, session, reclaimed);
        }
    }

    /// What is known of connections that were to be [reclaimed](Wires::reclaim).
    pub fn handle_reclaimed(
        &mut self,
        world: &mut impl Wires<A, I, S>,
        now: Time,
        session: SessionId,
        reclaimed: Vec<Option<Reclaimed>>,
    ) {
        let Some(taking) = self.taking_over.remove(&session) else { return };
        let TakingOver { attempt, orphans, without: mut lost, newest } = taking;
        let mut state = SessionState::of(session, Vec::new());
        // How others ended is not known: an opening that may have been carried out is not repeated.
        state.forgotten = newest;
        let reclaimed = reclaimed.into_iter().chain(core::iter::repeat_with(|| None));
        for (orphan, reclaimed) in orphans.into_iter().zip(reclaimed) {
            match reclaimed.filter(|reclaimed| reclaimed.fits(&orphan)) {
                Some(reclaimed) if orphan.received_end && reclaimed.up_end => {
                    state.ended.push(Ended { id: orphan.connection, reset: None });
                }
                Some(reclaimed) => {
                    state.connections.push(connection::<A>(session, &orphan, reclaimed));
                }
                None => lost += 1,
            }
        }
        let taken = state.connections.len() + state.ended.len();
        if self.machine.take_over(now, session, attempt, Some(state)) {
            self.counts.orphans_taken += taken as u64;
            self.counts.orphans_lost += lost as u64;
            self.note(session, NoteKind::Orphaned { taken, lost });
            self.handle_events(world, now);
        }
    }
}

impl Reclaimed {
    /// Whether the mobile can go on behind what the fixed host has.
    fn fits(&self, orphan: &Orphan) -> bool {
        (orphan.kept..=orphan.sent).contains(&self.up) && (orphan.sent_end || !self.up_end)
    }
}

/// The connection, as another base would have given it.
fn connection<A: Address>(
    session: SessionId,
    orphan: &Orphan,
    reclaimed: Reclaimed,
) -> ConnectionState {
    let nothing = |start, ended| Direction { start, bytes: Vec::new(), ended };
    ConnectionState {
        id: orphan.connection,
        stage: Stage::Open,
        target: reclaimed.remote.into(),
        bound: Some(reclaimed.local),
        up: nothing(reclaimed.up, reclaimed.up_end),
        down: nothing(orphan.received, orphan.received_end),
        wired: Wired::<A>::Image(reclaimed.image).encode(session),
        source: None,
    }
}
