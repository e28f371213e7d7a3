//! A base takes over what another one had that is dead: from tickets, from what their mobile has, and from what the fixed hosts
//! say.

use alloc::vec::Vec;
use core::fmt::Debug;

use lasthop_units::{Duration, Time};

use super::wired::Wired;
use super::{Due, NoteKind, Reclaimed, Station, Wires};
use crate::handoff::{Address, Authority, ConnectionState, Direction, Ended, Stage};
use crate::{Orphan, Orphans, Session, SessionId, SessionState};

/// How long a mobile may take to say what it has of each connection. What is not said by then is lost.
const PATIENCE: Duration = Duration::from_secs(1);

/// A session whose base is thought to be dead.
#[derive(Debug)]
pub(super) struct TakingOver<A> {
    mobile: A,
    attempt: u32,
    until: Time,
    /// What the mobile has said, once the fixed hosts are asked.
    orphans: Option<Orphans>,
}

impl<A, T, I, S> Station<A, T, I, S>
where
    A: Address + Ord,
    T: Authority<A>,
    I: Copy + Ord + Debug,
    S: Copy,
{
    pub(super) fn begin_take_over(
        &mut self,
        now: Time,
        session: SessionId,
        mobile: A,
        attempt: u32,
    ) {
        let until = now + PATIENCE;
        let taking = TakingOver { mobile, attempt, until, orphans: None };
        self.taking_over.insert(session, taking);
        self.due.set(Due::Orphans(session), Some(until));
    }

    /// Has those connections reclaimed of which their mobile has said what it has.
    pub(super) fn gather_orphans(&mut self, world: &mut impl Wires<A, I, S>, now: Time) {
        let waiting = self.taking_over.iter().filter(|(_, taking)| taking.orphans.is_none());
        let waiting: Vec<SessionId> = waiting.map(|(session, _)| *session).collect();
        for session in waiting {
            let Some(taking) = self.taking_over.get(&session) else { continue };
            let (mobile, attempt) = (taking.mobile, taking.attempt);
            let own = self.mobiles.at(mobile).and_then(|id| world.peek(id));
            let orphans = own.filter(|own| own.wanted_in(session) >= attempt);
            let orphans = orphans.map(|own| Session::orphans(own, session)).unwrap_or_default();
            if !orphans.complete && now < taking.until {
                continue;
            }
            // Without a ticket there is only the other base, which may still answer.
            if orphans.with_ticket.is_empty() && (!orphans.complete || !orphans.without.is_empty())
            {
                self.taking_over.remove(&session);
                self.machine.take_over(now, session, attempt, None);
                continue;
            }
            let reclaimed = world.reclaim(session, mobile, &orphans.with_ticket);
            if let Some(taking) = self.taking_over.get_mut(&session) {
                taking.orphans = Some(orphans);
            }
            if let Some(reclaimed) = reclaimed {
                self.handle_reclaimed(world, now, session, reclaimed);
            }
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
        let taking = self.taking_over.get_mut(&session);
        let Some((taking, orphans)) = taking.and_then(|t| t.orphans.take().map(|o| (t, o))) else {
            return;
        };
        let attempt = taking.attempt;
        self.taking_over.remove(&session);
        let (mut state, mut lost) = (SessionState::of(session, Vec::new()), orphans.without.len());
        // How others ended is not known: an opening that may have been carried out is not repeated.
        state.forgotten = orphans.newest;
        let all = orphans.with_ticket.len();
        let reclaimed = reclaimed.into_iter().chain(core::iter::repeat_with(|| None));
        for (orphan, reclaimed) in orphans.with_ticket.into_iter().zip(reclaimed).take(all) {
            match reclaimed.filter(|reclaimed| reclaimed.fits(&orphan)) {
                Some(reclaimed) if orphan.received_end && reclaimed.up_end => {
                    state.ended.push(Ended { id: orphan.conn.0, reset: None });
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
        id: orphan.conn.0,
        stage: Stage::Open,
        target: reclaimed.remote.into(),
        bound: Some(reclaimed.local),
        up: nothing(reclaimed.up, reclaimed.up_end),
        down: nothing(orphan.received, orphan.received_end),
        wired: Wired::<A>::Image(reclaimed.image).encode(session),
        source: None,
    }
}
