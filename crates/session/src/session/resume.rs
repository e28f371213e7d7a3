//! The mobile's side of a handoff: connections leave one hop and go on over another.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use lasthop_hop::{StreamError, StreamId, Streams};
use lasthop_units::{Bytes, Duration, Time};
use lasthop_wire::mhp::handoff::{Asking, ROLL_MAX, Reopen, Reopened, Roll, SessionId};
use lasthop_wire::mhp::{Message, Opening, Refusal, ResetReason};

use super::{Role, Session};
use crate::backlog::Backlog;
use crate::carried::Origin;
use crate::table::{Conn, Phase, is_provisional};
use crate::{ConnId, Event};

/// Bytes of all connections that are sent so though they may have come over the hop before, at most: about
/// what a hop takes at its beginning.
const BLIND_MAX: Bytes = Bytes::from_kib(16);

/// Resumes are counted from so many times the handoff's number on: a base that receives one knows in
/// which handoff the mobile has come, before it knows of the handoff.
pub(super) const TURNS: u32 = 256;

/// A roll whose stream was lost is called again after so long at first, then after twice that each time, so
/// often at most. Behind that the base ends by itself what does not come.
const ROLL_AGAIN: Duration = Duration::from_millis(250);
const ROLL_TRIES: u32 = 8;

/// A mobile's handoff, as far as its streams are concerned.
#[derive(Debug, Default)]
pub(super) struct Moves {
    suspended: bool,
    /// The last handoff that the mobile has begun.
    handoff: u32,
    /// Connections that have yet to be asked for on the new hop.
    waiting: VecDeque<ConnId>,
    /// The stream that carries the roll, and what is not written of it.
    roll: Option<(StreamId, Backlog)>,
    /// The roll has changed since.
    recall: bool,
    /// When to call it again because its stream was lost, and how often it was.
    roll_again: Option<Time>,
    rolls_lost: u32,
    /// Bytes that may yet be sent though they may have come over the hop before.
    pub(super) blind: usize,
    /// The base uses the session's state: what it says is final.
    pub(super) resumed: bool,
}

impl Moves {
    pub(super) fn is_suspended(&self) -> bool {
        self.suspended
    }

    /// There is nothing to suspend.
    pub(super) fn begin_suspended(&mut self) {
        self.suspended = true;
    }

    /// A roll that is not written whole never will be.
    fn leave_roll(&mut self, hop: &mut impl Streams) {
        if let Some((stream, bytes)) = &self.roll
            && !bytes.is_empty()
        {
            hop.reset(*stream, ResetReason::Aborted.code());
        }
    }

    /// All connections are gone.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        (self.roll, self.roll_again) = (None, None);
    }

    /// When the roll is to be called again.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.roll_again
    }

    /// Whether the stream carries the roll.
    fn is_roll(&self, stream: StreamId) -> bool {
        self.roll.as_ref().is_some_and(|(roll, _)| *roll == stream)
    }

    /// The base does not get the roll as it was called.
    fn lose_roll(&mut self, now: Time) {
        (self.roll, self.recall) = (None, false);
        if self.rolls_lost < ROLL_TRIES {
            self.roll_again = Some(now + ROLL_AGAIN * (1 << self.rolls_lost));
            self.rolls_lost += 1;
        }
    }
}

impl Session {
    /// Mobile: takes every connection out of `hop`, which is not used any more (MHP-15). To be called
    /// for every hop that is left, one on which nothing was resumed included.
    ///
    /// Connections keep their names. Until [`resume`](Self::resume) nothing can be written; bytes
    /// that were received can be read, and connections may be opened, finished and reset. Whatever
    /// `hop` has to tell is taken in first. Connections that `hop` has lost already are reset.
    pub fn suspend(&mut self, now: Time, hop: &mut impl Streams) {
        self.advance(now);
        if self.role == Role::Base {
            return;
        }
        self.take_stream_events(hop);
        self.leave_channel(hop);
        self.moves.leave_roll(hop);
        let handoff = self.moves.handoff;
        self.moves = Moves { suspended: true, handoff, ..Moves::default() };
        for id in self.table.ids() {
            if is_provisional(id) {
                self.reset_unannounced(hop, id, ResetReason::AssociationLost);
            } else if self.park(hop, id) {
                self.announce_rest(id);
            }
        }
    }

    /// Mobile: carries all connections on over `hop`, a new association with the base that has
    /// taken the session over, or is about to (MHP-18, MHP-19). Idempotent until the next
    /// [`suspend`](Self::suspend), which may come before the base has answered anything.
    ///
    /// A session that never had a hop resumes, too: the base ends what it holds under that name.
    ///
    /// `session` is the name under which the bases know them. From here on every call must be given
    /// the new hop.
    pub fn resume(&mut self, now: Time, hop: &mut impl Streams, session: SessionId) {
        self.advance(now);
        let fresh = self.role == Role::Mobile && self.turn.is_none() && !self.is_carried();
        if !self.moves.suspended && !fresh {
            return;
        }
        let Moves { handoff, blind, .. } = self.moves;
        self.moves = Moves { waiting: self.living().into(), handoff, blind, ..Moves::default() };
        let least = self.moves.handoff.wrapping_mul(TURNS).max(1);
        // Under another name, handoffs are counted anew.
        let before = self.turn.filter(|_| self.resumed_as == Some(session));
        self.turn = Some(before.map_or(least, |turn| turn.wrapping_add(1).max(least)));
        (self.name, self.resumed_as) = (Some(session), Some(session));
        self.call_roll(hop);
        self.reopen_waiting(hop);
    }

    /// Mobile, between [`suspend`](Self::suspend) and [`resume`](Self::resume): the hop that was left carried
    /// so much in a round trip. No more than that, and 16 KiB, is sent at once of what the base may have
    /// already: to wait for its answer takes no longer. Nothing is if nobody says.
    pub fn expect(&mut self, in_round_trip: Bytes) {
        self.moves.blind = in_round_trip.min(BLIND_MAX).as_usize();
    }

    /// Mobile: what is [resumed](Self::resume) from here on belongs to that handoff
    /// ([`Mobile::attempt`](crate::handoff::Mobile::attempt)). Base: what was
    /// [adopted](Self::adopt) came in that handoff, and a mobile that resumes in a later one
    /// [wants](Self::poll_wanted) it anew. 0 if handoffs have no numbers.
    pub fn set_handoff(&mut self, attempt: u32) {
        self.moves.handoff = attempt;
    }

    /// Base: the handoff in which the mobile carries on the connections that wait for `session`
    /// ([`poll_wanted`](Self::poll_wanted)); 0 if none wait, or handoffs have no numbers.
    pub fn wanted_in(&self, session: SessionId) -> u32 {
        self.holds.turn_of(session).unwrap_or_default() / TURNS
    }

    /// Base: the mobile has resumed in a later handoff than the one in which its session came here.
    pub(super) fn is_of_later_handoff(&self, turn: u32) -> bool {
        self.moves.handoff != 0 && turn / TURNS > self.moves.handoff
    }

    /// Base: the handoff in which the session began here.
    pub(super) fn began_in(&self) -> u32 {
        self.moves.handoff
    }

    /// Base: the handoff in which the mobile has carried its connections on here; 0 if it has not.
    pub fn resumed_in(&self) -> u32 {
        self.turn.map_or(0, |turn| turn / TURNS)
    }

    /// Whether a stream carries anything of this session.
    pub(super) fn is_carried(&self) -> bool {
        self.table.parked() < self.table.len()
    }

    pub(super) fn take_stream_events(&mut self, hop: &mut impl Streams) {
        while let Some(event) = hop.poll_event() {
            self.handle_stream_event(hop, event);
        }
    }

    /// Takes a connection out of its transport; whether it is still there.
    pub(super) fn park(&mut self, hop: &mut impl Streams, id: ConnId) -> bool {
        let Some(stream) = self.table.stream(id) else {
            // What is known of the hop before the one that is left is of no use any more.
            let rest = self.table.get_mut(id).and_then(|conn| conn.rest.as_mut());
            rest.into_iter().for_each(|rest| (rest.left, rest.presumed) = (None, None));
            return true;
        };
        self.table.park(id);
        let presumed = (self.role == Role::Mobile).then(|| hop.presumed(stream)).flatten();
        let Some(state) = hop.detach(stream) else {
            self.abort(hop, id, ResetReason::AssociationLost);
            return false;
        };
        let retains = self.table.ticket(id).is_some();
        let Some(conn) = self.table.get_mut(id) else { return false };
        conn.unload(stream, state, presumed, retains);
        if conn.rest.as_ref().is_some_and(|rest| rest.len() as u64 > self.config.kept_max.get()) {
            self.abort(hop, id, ResetReason::Policy);
            return false;
        }
        true
    }

    /// Says again what can be read, for the edge may have passed.
    pub(super) fn announce_rest(&mut self, id: ConnId) {
        let Some(conn) = self.table.get(id) else { return };
        if conn.phase() == Phase::Open && (conn.has_end() || !conn.unread().is_empty()) {
            self.events.push_back(Event::Readable(id));
        }
    }

    /// Connections with anything left to carry.
    pub(super) fn living(&self) -> Vec<ConnId> {
        let mut ids = self.table.ids();
        ids.retain(|id| self.table.get(*id).is_some_and(|conn| !conn.is_over()));
        ids
    }

    /// Tells the base which connections live, so that it ends the others.
    fn call_roll(&mut self, hop: &mut impl Streams) {
        let (Some(session), Some(turn)) = (self.name, self.turn) else { return };
        self.moves.roll_again = None;
        let Ok(stream) = hop.open() else { return self.moves.lose_roll(self.now) };
        let ids = self.living();
        let mut bytes = Vec::new();
        let mut rest: Vec<u64> = ids.iter().map(|id| id.0).collect();
        loop {
            let later = rest.split_off(rest.len().min(ROLL_MAX));
            let last = later.is_empty();
            Message::Roll(Roll { session, connections: rest, last, turn }).encode(&mut bytes);
            rest = later;
            if last {
                break;
            }
        }
        self.moves.roll = Some((stream, Backlog::new(bytes)));
        self.write_roll(hop);
    }

    /// The stream that carries the roll.
    #[cfg(test)]
    pub(super) fn roll(&self) -> Option<StreamId> {
        self.moves.roll.as_ref().map(|(stream, _)| *stream)
    }

    /// Writes what is left of the roll.
    fn write_roll(&mut self, hop: &mut impl Streams) {
        let Some((stream, bytes)) = &mut self.moves.roll else { return };
        match hop.write(*stream, bytes.as_slice()) {
            Ok(n) => bytes.take(n),
            Err(_) => *bytes = Backlog::default(),
        }
        if bytes.is_empty() {
            hop.finish(*stream);
        }
    }

    /// Mobile: a connection is given up of which the base may not know that it came here. Rolls
    /// follow each other, for their streams could overtake each other.
    pub(super) fn recall(&mut self, hop: &mut impl Streams) {
        if self.role == Role::Base || self.moves.suspended {
            return;
        }
        match self.moves.roll {
            Some(_) => self.moves.recall = true,
            None => self.call_roll(hop),
        }
    }

    /// A stream has arrived to its end: the roll's, if any.
    pub(super) fn on_roll_finished(&mut self, hop: &mut impl Streams, stream: StreamId) {
        if self.moves.is_roll(stream) {
            self.moves.roll = None;
            if core::mem::take(&mut self.moves.recall) {
                self.call_roll(hop);
            }
        }
    }

    /// A stream is over that carries no connection: if it is the roll's, before the base has acknowledged
    /// that. A hop whose streams are connections of their own can lose one and keep the others.
    pub(super) fn on_roll_closed(&mut self, stream: StreamId) {
        if self.moves.is_roll(stream) {
            self.moves.lose_roll(self.now);
        }
    }

    /// Calls the roll again if it is time to.
    pub(super) fn call_roll_again(&mut self, hop: &mut impl Streams) {
        if self.moves.roll_again.is_some_and(|at| at <= self.now) {
            self.call_roll(hop);
        }
    }

    /// There is room on a stream that carries no connection: the roll's, if any.
    pub(super) fn on_roll_writable(&mut self, hop: &mut impl Streams, stream: StreamId) {
        let left = self.moves.roll.as_ref().is_some_and(|(_, bytes)| !bytes.is_empty());
        if left && self.moves.is_roll(stream) {
            self.write_roll(hop);
        }
    }

    /// Asks for connections for which the transport had no stream before.
    pub(super) fn reopen_waiting(&mut self, hop: &mut impl Streams) {
        while let Some(&id) = self.moves.waiting.front() {
            if self.table.get(id).is_some_and(|conn| conn.stream.is_none()) {
                let Ok(stream) = hop.open() else { return };
                self.table.attach(id, stream);
                if let Some(conn) = self.table.get(id) {
                    if let Some(priority) = conn.priority {
                        hop.set_priority(stream, priority);
                    }
                    hop.set_client(stream, conn.client);
                    hop.set_policy(stream, conn.policy());
                }
                self.reopen(hop, id);
            }
            self.moves.waiting.pop_front();
        }
    }

    fn reopen(&mut self, hop: &mut impl Streams, id: ConnId) {
        // The base may acknowledge what it has nowhere to bring yet, and die.
        let retains = self.table.ticket(id).is_some();
        let (Some(conn), Some(session)) = (self.table.get_mut(id), self.name) else { return };
        if retains && let Some(stream) = conn.stream {
            hop.retain(stream);
        }
        let said = if conn.moved {
            conn.awaits = true;
            let turn = self.turn.unwrap_or_default();
            let message = Message::Reopen(Reopen { retains, ..reopening(session, turn, id, conn) });
            self.write_message(hop, id, &message)
        } else {
            self.write_open(hop, id)
        };
        self.arm(id);
        let said = said.and_then(|()| self.send_blindly(hop, id));
        match said {
            Ok(()) => {
                self.send_presumed(hop, id);
                self.on_writable(hop, id);
            }
            Err(_) => self.abort(hop, id, ResetReason::AssociationLost),
        }
    }

    /// A connection that has kept nothing, or little, goes on at once.
    fn send_blindly(&mut self, hop: &mut impl Streams, id: ConnId) -> Result<(), StreamError> {
        let Some(conn) = self.table.get(id) else { return Ok(()) };
        let kept = conn.rest.as_ref().map_or(0, |rest| rest.resend.len());
        let from = conn.send_base;
        if kept > self.moves.blind {
            return Ok(());
        }
        self.moves.blind -= kept;
        self.send_early(hop, id, from)
    }

    /// Carries a connection on from the byte at `from` before the base has reported what it expects.
    pub(super) fn send_early(
        &mut self,
        hop: &mut impl Streams,
        id: ConnId,
        from: u64,
    ) -> Result<(), StreamError> {
        let Some(conn) = self.table.get_mut(id).filter(|conn| conn.phase() == Phase::Open) else {
            return Ok(());
        };
        let Some(early) = conn.take_early(from) else { return Ok(()) };
        self.write_message_with(hop, id, &Message::Continue { from }, &early)
    }

    /// Mobile: connections that wait for the base's answer with bytes for it, and the streams of the
    /// hop before that carried them: whoever still receives from the base before can ask
    /// [`Streams::arrived`] what that one has got, and say so with [`handle_arrived`](Self::handle_arrived).
    pub fn waiting(&self) -> Vec<(ConnId, StreamId)> {
        let left = |id: ConnId| {
            // Where the base before is dead, what it had got is lost with it.
            let conn = self.table.get(id).filter(|conn| conn.awaits)?;
            if self.table.ticket(id).is_some() {
                return None;
            }
            let rest = conn.rest.as_ref().filter(|r| r.early.is_none() && !r.resend.is_empty())?;
            rest.left.map(|left| (id, left.stream))
        };
        self.table.ids().into_iter().filter_map(left).collect()
    }

    /// Mobile: the base before had all bytes before `offset` of the stream that carried the connection
    /// there. What comes next is sent at once, before the new base has sent the same.
    pub fn handle_arrived(&mut self, now: Time, hop: &mut impl Streams, id: ConnId, offset: u64) {
        self.advance(now);
        let Some(conn) = self.table.get(id) else { return };
        let Some(left) = conn.rest.as_ref().and_then(|rest| rest.left) else { return };
        let from = left.offset(offset);
        match self.send_early(hop, id, from) {
            Ok(()) => self.on_writable(hop, id),
            Err(_) => self.abort(hop, id, ResetReason::AssociationLost),
        }
    }

    /// The base's answer to Reopen, or a part of it, is there.
    pub(super) fn read_reopened(&mut self, hop: &mut impl Streams, id: ConnId) {
        match self.take_message(hop, id) {
            Ok(None) => {}
            Ok(Some(Message::Reopened(reopened))) if reopened.over => self.on_over(hop, id),
            Ok(Some(Message::Reopened(reopened))) => self.on_reopened(hop, id, &reopened),
            Ok(Some(Message::Refused(refusal))) => match self.table.phase(id) {
                Some(Phase::Asking(opening)) => {
                    self.fail(hop, id, opening, refusal, ResetReason::Aborted);
                }
                _ => self.abort(hop, id, ResetReason::Refused(refusal)),
            },
            Ok(Some(_)) | Err(_) => self.fail_reopening(hop, id),
        }
    }

    pub(super) fn fail_reopening(&mut self, hop: &mut impl Streams, id: ConnId) {
        self.stats.malformed += 1;
        match self.table.phase(id) {
            Some(Phase::Asking(opening)) => {
                self.fail(hop, id, opening, Refusal::Protocol, ResetReason::Protocol);
            }
            _ => self.abort(hop, id, ResetReason::Protocol),
        }
    }

    pub(super) fn on_reopened(&mut self, hop: &mut impl Streams, id: ConnId, reopened: &Reopened) {
        if reopened.tentative && !self.moves.resumed {
            return self.on_tentative(hop, id, reopened.expected);
        }
        let Some(conn) = self.table.get_mut(id) else { return };
        let Some((resend, from)) = conn.reconcile(reopened.expected) else {
            return self.fail_reopening(hop, id);
        };
        conn.awaits = false;
        let phase = conn.phase();
        let said = match from {
            Some(from) => self.write_message_with(hop, id, &Message::Continue { from }, &resend),
            None => self.send(hop, id, &[&resend]),
        };
        if said.is_err() {
            return self.abort(hop, id, ResetReason::AssociationLost);
        }
        self.table.enter(id, Phase::Open);
        if let Phase::Asking(opening) = phase {
            self.stats.opened += 1;
            self.drop_origin(id);
            if opening == Opening::Faithful {
                self.events.push_back(Event::Opened { id, bound: reopened.bound });
            }
        }
        self.on_writable(hop, id);
        if self.table.get(id).is_some_and(|conn| conn.finishing) {
            self.finish(hop, id);
        }
        self.announce_bytes(hop, id);
    }

    /// The base had nothing more to do for the connection: all was delivered, and only its last
    /// word was lost.
    fn on_over(&mut self, hop: &mut impl Streams, id: ConnId) {
        let Some(conn) = self.table.get_mut(id) else { return };
        if !conn.finishing || !conn.has_end() || conn.phase() != Phase::Open {
            return self.abort(hop, id, ResetReason::Aborted);
        }
        if let Some(stream) = conn.stream {
            hop.finish(stream);
        }
        self.close_when_read(id);
    }

    /// Nothing more will come or go: the connection lasts until it is read.
    pub(super) fn close_when_read(&mut self, id: ConnId) {
        self.table.disarm(id);
        self.table.park(id);
        match self.table.get_mut(id).and_then(|conn| conn.rest.as_mut()) {
            Some(rest) if !rest.unread.is_empty() => {
                rest.resend = Vec::new();
                (rest.ended, rest.over) = (true, true);
            }
            _ => self.close_connection(id),
        }
    }

    /// Gives up a connection whose caller is not the one that wants it.
    pub(super) fn abort(&mut self, hop: &mut impl Streams, id: ConnId, reason: ResetReason) {
        match self.table.phase(id) {
            None => {}
            Some(Phase::Reading) => self.reset_unannounced(hop, id, reason),
            Some(Phase::Asking(opening)) => {
                self.stats.failed += 1;
                self.report_failure(id, opening, reason.as_refusal(), reason);
                self.reset_connection(hop, id, reason);
            }
            Some(Phase::Refusing(_)) => self.reset_connection(hop, id, reason),
            Some(Phase::Connecting(_) | Phase::Open) => {
                self.events.push_back(Event::Reset { id, reason });
                self.reset_connection(hop, id, reason);
            }
        }
    }
}

fn reopening(session: SessionId, turn: u32, id: ConnId, conn: &Conn) -> Reopen {
    let asking = match (conn.phase(), &conn.origin) {
        (Phase::Asking(opening), Some(origin)) => {
            let Origin { target, from: source, .. } = (**origin).clone();
            Some(Asking { opening, target, source })
        }
        _ => None,
    };
    Reopen {
        session,
        connection: id.0,
        expected: conn.recv_base,
        kept: conn.send_base,
        ended: conn.has_end(),
        retains: false,
        asking,
        turn,
    }
}
