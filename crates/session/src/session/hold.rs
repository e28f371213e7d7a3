//! Streams that carry connections of a session which is not at this base yet.
//!
//! A mobile that comes from another base does not wait until its state is here: it asks for its
//! connections at once (MHP-18). What it asks is held until the state has come, or will not come.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use lasthop_hop::{StreamId, Streams};
use lasthop_units::Time;
use lasthop_wire::mhp::handoff::{Reopen, SessionId};
use lasthop_wire::mhp::{Message, Refusal, ResetReason};

use super::resume::TURNS;
use super::{Role, Session};
use crate::ConnId;
use crate::table::{Phase, is_provisional, provisional};

/// Sessions that are waited for at once. A peer has one; the rest is room for what it leaves.
const SESSIONS_MAX: usize = 8;
/// Streams that are held beside those of connections: rolls.
const ROLLS_MAX: usize = 64;

/// Whether a stream's first message can be answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Claim {
    /// Its session is here.
    Ours,
    /// Its session is not here, or has to be taken out of the streams that carried it before.
    Wanted,
    /// The mobile has resumed since it was written.
    Stale,
}

/// A stream that waits for its session.
#[derive(Debug)]
struct Waiting {
    session: SessionId,
    message: Message,
    /// It was answered tentatively, or cannot be.
    tried: bool,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Holds {
    /// In the order in which they were opened.
    streams: BTreeMap<u64, Waiting>,
    /// Sessions that were reported to the caller, and of which resume.
    asked: Vec<(SessionId, u32)>,
    wanted: VecDeque<SessionId>,
    /// The session began on this hop: the mobile need not resume to have connections on it.
    begun: bool,
}

impl Holds {
    pub(super) fn len(&self) -> usize {
        self.streams.len()
    }

    /// Some session is waited for.
    pub(super) fn is_waiting(&self) -> bool {
        !self.streams.is_empty()
    }

    pub(super) fn contains(&self, stream: StreamId) -> bool {
        self.streams.contains_key(&stream.0)
    }

    pub(super) fn remove(&mut self, stream: StreamId) {
        self.streams.remove(&stream.0);
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The first stream of those that wait for `session`. What the mobile opens behind it belongs to
    /// the same resume.
    pub(super) fn first_of(&self, session: SessionId) -> Option<StreamId> {
        let mut streams = self.streams.iter();
        streams.find(|(_, held)| held.session == session).map(|(n, _)| StreamId(*n))
    }

    fn take_first_of(&mut self, session: SessionId) -> Option<(StreamId, Message)> {
        let stream = self.first_of(session)?;
        let held = self.streams.remove(&stream.0)?;
        Some((stream, held.message))
    }

    /// Connections of `session` that are requested, each but once, and the streams that are to carry them.
    pub(super) fn take_untried(&mut self, session: SessionId) -> Vec<(StreamId, Reopen)> {
        let untried = |(n, held): (&u64, &mut Waiting)| match &held.message {
            Message::Reopen(reopen) if held.session == session && !held.tried => {
                held.tried = true;
                Some((StreamId(*n), reopen.clone()))
            }
            _ => None,
        };
        self.streams.iter_mut().filter_map(untried).collect()
    }

    pub(super) fn turn_of(&self, session: SessionId) -> Option<u32> {
        self.asked.iter().find(|(known, _)| *known == session).map(|(_, turn)| *turn)
    }

    /// Records that the caller is to be notified; whether there is room.
    fn track_request(&mut self, session: SessionId, turn: u32) -> bool {
        if self.asked.len() >= SESSIONS_MAX {
            let Self { streams, asked, wanted, .. } = self;
            let waits = |of: SessionId| streams.values().any(|held| held.session == of);
            asked.retain(|(of, _)| waits(*of));
            wanted.retain(|of| waits(*of));
        }
        if self.asked.len() >= SESSIONS_MAX {
            return false;
        }
        self.asked.push((session, turn));
        self.wanted.push_back(session);
        true
    }

    fn remove_session(&mut self, session: SessionId) {
        self.asked.retain(|(other, _)| *other != session);
        self.wanted.retain(|other| *other != session);
    }
}

/// Whether `turn` comes after `known`; turns wrap.
pub(super) fn is_later(turn: u32, known: u32) -> bool {
    (turn.wrapping_sub(known) as i32) > 0
}

impl Session {
    /// Base: a session that the mobile asks for and that is not here, or that the mobile has left and
    /// comes back to. Said once for each time that the mobile resumes.
    ///
    /// What the mobile asks waits until the session is [adopted](Self::adopt) or
    /// [declined](Self::decline), for as long as an opening may take. It is for the caller to know
    /// whether this peer may have that session.
    pub fn poll_wanted(&mut self) -> Option<SessionId> {
        self.holds.wanted.pop_front()
    }

    /// Base: the state of `session` will not come. Its connections are unknown here: an opening that
    /// had no answer is requested anew if nothing can have been written behind it, the others are reset.
    pub fn decline(&mut self, now: Time, hop: &mut impl Streams, session: SessionId) {
        self.advance(now);
        if self.role == Role::Mobile {
            return;
        }
        if self.name.is_some_and(|name| name != session) {
            return self.reset_wanted(now, hop, session);
        }
        if self.name == Some(session) && self.holds.first_of(session).is_some() {
            self.abandon(hop);
        }
        self.name = Some(session);
        self.expect_no_more(session, 0);
        self.holds.begun = true;
        self.set_handoff(0);
        // What was sent to another base is not known here.
        self.ended.clear();
    }

    /// Base: the state of `session` does not come, and the mobile is not here to begin anew. What waits
    /// for it is reset, and no fixed host is connected to.
    pub fn reset_wanted(&mut self, now: Time, hop: &mut impl Streams, session: SessionId) {
        self.advance(now);
        while let Some((stream, _)) = self.holds.take_first_of(session) {
            self.reset_unannounced(hop, provisional(stream), ResetReason::AssociationLost);
        }
        self.holds.remove_session(session);
    }

    /// Gives up the connections on streams that the mobile has left.
    fn abandon(&mut self, hop: &mut impl Streams) {
        for id in self.table.ids() {
            if !is_provisional(id) && self.table.stream(id).is_some() {
                self.abort(hop, id, ResetReason::AssociationLost);
            }
        }
    }

    /// Whether a connection is on a stream.
    fn carries_connections(&self) -> bool {
        let carried = |id: &ConnId| !is_provisional(*id) && self.table.stream(*id).is_some();
        self.table.ids().iter().any(carried)
    }

    /// Whether a stream's message can be answered here.
    pub(super) fn claim(&mut self, (session, turn): (SessionId, u32)) -> Claim {
        if self.name != Some(session) {
            return Claim::Wanted;
        }
        match self.turn {
            None if is_later(self.since, turn) => Claim::Stale,
            // The mobile has left and come back, and its Greet is behind.
            None if self.is_of_later_handoff(turn) => Claim::Wanted,
            None if self.holds.begun && turn / TURNS > self.began_in() => Claim::Wanted,
            // The mobile comes back to connections that are where they began.
            None if self.holds.begun && self.carries_connections() => Claim::Wanted,
            None => {
                self.turn = Some(turn);
                Claim::Ours
            }
            Some(known) if known == turn => Claim::Ours,
            Some(known) if is_later(turn, known) => Claim::Wanted,
            Some(_) => Claim::Stale,
        }
    }

    /// A stream's message cannot be answered: it is kept until its session is here, or of no use.
    pub(super) fn put_off(
        &mut self,
        hop: &mut impl Streams,
        stream: StreamId,
        (session, turn): (SessionId, u32),
        message: Message,
    ) {
        let from = provisional(stream);
        if self.claim((session, turn)) == Claim::Stale {
            return self.reset_unannounced(hop, from, ResetReason::AssociationLost);
        }
        let known = self.holds.turn_of(session);
        if known.is_some_and(|known| is_later(known, turn)) {
            return self.reset_unannounced(hop, from, ResetReason::AssociationLost);
        }
        if known.is_some_and(|known| is_later(turn, known)) {
            // The mobile has left those, too.
            while let Some((old, _)) = self.holds.take_first_of(session) {
                self.reset_unannounced(hop, provisional(old), ResetReason::AssociationLost);
            }
            self.holds.remove_session(session);
        }
        let tracked = known == Some(turn) || self.holds.track_request(session, turn);
        if !tracked || self.holds.len() >= self.config.max_connections + ROLLS_MAX {
            self.stats.turned_away += 1;
            let reason = ResetReason::Refused(Refusal::TooMany);
            return self.reset_unannounced(hop, from, reason);
        }
        let waiting = Waiting { session, message, tried: false };
        self.holds.streams.insert(stream.0, waiting);
    }

    /// Answers a stream that was held for the session that is here; whether there was one.
    pub(super) fn release_held(&mut self, hop: &mut impl Streams) -> bool {
        if self.holds.len() == 0 {
            return false;
        }
        let Some(name) = self.name.filter(|name| self.holds.turn_of(*name).is_none()) else {
            return false;
        };
        let Some((stream, message)) = self.holds.take_first_of(name) else { return false };
        if self.table.phase(provisional(stream)) != Some(Phase::Reading) {
            return true;
        }
        if let Message::Open { connection, .. } = message
            && self.is_known(ConnId(connection.unwrap_or(stream.0)))
        {
            // The mobile has asked another base for it since.
            self.reset_unannounced(hop, provisional(stream), ResetReason::AssociationLost);
        } else if self.answer_first(hop, stream, message) {
            self.read_first(hop, stream);
        }
        true
    }

    fn is_known(&self, id: ConnId) -> bool {
        self.table.get(id).is_some() || self.ended.get(id).is_some()
    }

    /// The session is here: what waits for it can be answered, but for what the mobile asked before it
    /// asked another base, with its resume number `since`.
    pub(super) fn expect_no_more(&mut self, session: SessionId, since: u32) {
        let turn = self.holds.turn_of(session);
        self.turn = turn.filter(|turn| !is_later(since, *turn));
        self.since = since;
        self.holds.begun = false;
        self.holds.remove_session(session);
    }
}
