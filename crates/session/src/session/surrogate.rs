//! The base's side of a handoff: a session leaves one base and is rebuilt at another.

use alloc::boxed::Box;
use alloc::vec::Vec;

use lasthop_hop::{RecvState, StreamError, StreamId, StreamState, Streams};
use lasthop_units::{Bytes, Time};
use lasthop_wire::mhp::handoff::{
    Asking, ConnectionState, Direction, Reopen, Reopened, Roll, SessionId, SessionState, Stage,
};
use lasthop_wire::mhp::{Message, Opening, Refusal, ResetReason};

use super::hold::Claim;
use super::pack::{pack, stage};
use super::{Role, Session};
use crate::carried::{CarriedBytes, Origin};
use crate::table::{Conn, Phase, is_provisional, provisional};
use crate::{ConnId, Event};

impl Session {
    /// Base: takes all connections out of `hop` and of this session, to be given to another base
    /// (MHP-17). The caller adds the wired halves.
    ///
    /// These connections have no further events. Streams that were never reported to the caller are
    /// left where they are: the mobile asks for them again, or has just asked for them.
    pub fn freeze(
        &mut self,
        now: Time,
        hop: &mut impl Streams,
        session: SessionId,
    ) -> SessionState {
        self.advance(now);
        self.take_stream_events(hop);
        let mut connections = Vec::new();
        // The mobile may be back already, over the same association, with streams that have not named
        // yet what they are for.
        for id in self.table.ids().into_iter().filter(|id| !is_provisional(*id)) {
            if self.park(hop, id) {
                match self.table.get_mut(id).and_then(|conn| pack(self.role, id, conn)) {
                    Some(state) => connections.push(state),
                    // A fixed host asks again by itself; the number is used up.
                    None => self.ended.add(id, Some(ResetReason::AssociationLost.code())),
                }
                self.events.retain(|event| event.id() != id);
                self.table.remove(id);
            }
        }
        let turn = self.turn.unwrap_or(self.since);
        (self.name, self.turn, self.since) = (None, None, 0);
        let (ended, forgotten) = self.ended.take();
        SessionState { session, connections, ended, forgotten, turn, hop: Vec::new() }
    }

    /// What the connections hold at this moment, to be sent to another base ahead (MOB-39), up
    /// to `limit` bytes of it. The caller adds the wired halves. It is no state to go on from, but has
    /// most of the bytes of the one that [`freeze`](Self::freeze) will give.
    pub fn preview(&self, hop: &impl Streams, session: SessionId, limit: Bytes) -> SessionState {
        let mut left = limit.get();
        let mut connections = Vec::new();
        for id in self.table.ids().into_iter().filter(|id| !is_provisional(*id)) {
            let Some(conn) = self.table.get(id) else { continue };
            let stream = conn.stream.and_then(|stream| hop.snapshot(stream));
            let Some(state) = preview(id, conn, stream.unwrap_or_default()) else { continue };
            let len = (state.up.bytes.len() + state.down.bytes.len()) as u64;
            if len > left {
                break;
            }
            left -= len;
            connections.push(state);
        }
        SessionState::of(session, connections)
    }

    /// Base: takes the connections of another base, which wait for the mobile to reopen them (MHP-17,
    /// MHP-18). What the mobile sent can be read at once. There may be connections that the mobile has
    /// opened here since; what it has asked for in the meantime is answered with the next
    /// [`poll_event`](Self::poll_event).
    ///
    /// For each connection to a fixed host that had not answered, [`Event::Connect`] comes anew once the
    /// mobile asks for it here: where to, only the mobile says, and no other base. Connections that the
    /// mobile does not reopen are reset.
    pub fn adopt(&mut self, now: Time, state: SessionState) {
        self.advance(now);
        if self.role == Role::Mobile {
            return;
        }
        self.name = Some(state.session);
        self.expect_no_more(state.session, state.turn);
        let used = state.connections.iter().map(|c| c.id).chain(state.ended.iter().map(|e| e.id));
        let used = used.filter(|n| n % 2 == 1 && !is_provisional(ConnId(*n))).max();
        let after = used.map_or(1, |n| n + 2).max(state.forgotten | 1);
        self.next = self.next.max(after);
        self.ended.adopt(state.ended, state.forgotten);
        for connection in state.connections {
            let id = ConnId(connection.id);
            if is_provisional(id) || self.table.get(id).is_some() {
                continue;
            }
            let phase = match connection.stage {
                Stage::Connecting(opening) => Phase::Connecting(opening),
                Stage::Refusing(refusal) => Phase::Refusing(refusal),
                Stage::Open | Stage::Over => Phase::Open,
            };
            self.unpack(id, phase, connection);
        }
    }

    /// The first message of a stream that the peer opened, or a part of it, is there.
    pub(super) fn read_first(&mut self, hop: &mut impl Streams, stream: StreamId) {
        let from = provisional(stream);
        if !self.try_channel(hop, from, stream) {
            return;
        }
        loop {
            match self.take_message(hop, from) {
                Ok(None) => return,
                Ok(Some(message)) => {
                    if !self.answer_first(hop, stream, message) {
                        return;
                    }
                }
                Err(_) => {
                    self.stats.malformed += 1;
                    return self.reset_unannounced(hop, from, ResetReason::Protocol);
                }
            }
        }
    }

    /// Does what a stream's first message asks for; whether another one follows.
    pub(super) fn answer_first(
        &mut self,
        hop: &mut impl Streams,
        stream: StreamId,
        message: Message,
    ) -> bool {
        let from = provisional(stream);
        match (self.role, message) {
            (Role::Mobile, Message::Offer { to, from: caller, connection }) => {
                let id = ConnId(connection.unwrap_or(stream.0));
                self.on_offer(hop, from, id, Origin::new(to.into(), Some(caller)));
            }
            (Role::Base, message @ Message::Open { resumed: Some(whose), .. })
                if self.claim(whose) != Claim::Ours =>
            {
                self.put_off(hop, stream, whose, message);
            }
            (Role::Base, Message::Open { opening, target, connection, source, .. }) => {
                let id = ConnId(connection.unwrap_or(stream.0));
                self.on_open(hop, from, id, opening, Origin::new(target, source));
            }
            (Role::Base, Message::Reopen(reopen)) => {
                let whose = (reopen.session, reopen.turn);
                if reopen.retains {
                    self.release(hop, from, u64::MAX, false);
                }
                match self.claim(whose) {
                    Claim::Ours => self.on_reopen(hop, from, stream, reopen),
                    _ => self.put_off(hop, stream, whose, Message::Reopen(reopen)),
                }
            }
            (Role::Base, Message::Roll(roll)) => {
                let whose = (roll.session, roll.turn);
                match self.claim(whose) {
                    Claim::Ours if roll.last => self.on_last_roll(hop, from, stream, &roll),
                    Claim::Ours => {
                        self.on_roll(&roll);
                        return true;
                    }
                    _ => self.put_off(hop, stream, whose, Message::Roll(roll)),
                }
            }
            (Role::Base, Message::Presumed(presumed)) => {
                let whose = (presumed.session, presumed.turn);
                match self.claim(whose) {
                    Claim::Ours => return self.on_presumed(hop, from, stream, &presumed),
                    _ => self.put_off(hop, stream, whose, Message::Presumed(presumed)),
                }
            }
            _ => {
                self.stats.malformed += 1;
                self.reset_unannounced(hop, from, ResetReason::Protocol);
            }
        }
        false
    }

    fn on_open(
        &mut self,
        hop: &mut impl Streams,
        from: ConnId,
        id: ConnId,
        opening: Opening,
        origin: Origin,
    ) {
        if is_provisional(id) || self.table.get(id).is_some() {
            self.stats.malformed += 1;
            return self.reset_unannounced(hop, from, ResetReason::Protocol);
        }
        let full = self.table.len() > self.config.max_connections;
        if full || !self.connects {
            self.stats.turned_away += 1;
            let why = if full { Refusal::TooMany } else { Refusal::NotAllowed };
            return self.reset_unannounced(hop, from, ResetReason::Refused(why));
        }
        self.table.rename(from, id);
        self.table.enter(id, Phase::Connecting(opening));
        let target = origin.target.clone();
        self.events.push_back(Event::Connect { id, target, source: origin.from });
        if let Some(conn) = self.table.get_mut(id) {
            conn.origin = Some(Box::new(origin));
        }
    }

    fn on_reopen(
        &mut self,
        hop: &mut impl Streams,
        from: ConnId,
        stream: StreamId,
        reopen: Reopen,
    ) {
        let id = ConnId(reopen.connection);
        match self.table.get(id) {
            None => return self.reopen_unknown(hop, from, id, reopen),
            Some(conn) if conn.stream.is_some() || conn.phase() == Phase::Reading => {
                self.stats.malformed += 1;
                return self.reset_unannounced(hop, from, ResetReason::Protocol);
            }
            Some(conn) if conn.is_over() => return self.write_over(hop, from),
            Some(_) => {}
        }
        let Some(conn) = self.table.get_mut(from) else { return };
        let (heard, said, unsent) = (conn.heard, conn.said, conn.unsent.take());
        let (tentative, retained) = (conn.take_tentative(), conn.releases());
        self.table.remove(from);
        self.table.attach(id, stream);
        self.table.disarm(id);
        let Some(conn) = self.table.get_mut(id) else { return };
        (conn.heard, conn.said, conn.unsent) = (heard, said, unsent);
        conn.listed = true;
        match (retained, conn.releases_ahead()) {
            (true, true) => hop.release_ahead(stream),
            (true, false) => conn.set_releases(),
            _ => {}
        }
        conn.resumes = !matches!(conn.phase(), Phase::Refusing(_));
        let missing = reopen.kept > conn.recv_base;
        let follows = tentative.map_or(Some(0), |n| usize::try_from(n).ok());
        match conn.reconcile(reopen.expected).zip(follows) {
            Some(((mut resend, _), follows)) if !missing && follows <= resend.len() => {
                resend.drain(..follows);
                let rest = conn.rest.get_or_insert_default();
                (rest.resend, rest.tentative) = (resend, tentative);
            }
            // Bytes are lost for good; a hole is never papered over.
            _ => return self.abort(hop, id, ResetReason::Protocol),
        }
        if let Phase::Connecting(_) = conn.phase() {
            return match reopen.asking {
                Some(asking) if self.connects => self.connect_anew(id, asking),
                Some(_) => self.abort(hop, id, ResetReason::Refused(Refusal::NotAllowed)),
                None => self.abort(hop, id, ResetReason::Protocol),
            };
        }
        self.answer_reopen(hop, id);
    }

    /// The mobile asks for a connection that was being opened elsewhere.
    fn connect_anew(&mut self, id: ConnId, Asking { opening, target, source }: Asking) {
        self.table.enter(id, Phase::Connecting(opening));
        let Some(conn) = self.table.get_mut(id) else { return };
        conn.origin = Some(Box::new(Origin::new(target.clone(), source)));
        self.events.push_back(Event::Connect { id, target, source });
    }

    fn answer_reopen(&mut self, hop: &mut impl Streams, id: ConnId) {
        match self.table.phase(id) {
            Some(Phase::Open) => {
                if self.table.get(id).is_some_and(Conn::reports) {
                    self.report_acknowledged(hop, id);
                }
                if self.is_retained(id) {
                    self.release(hop, id, u64::MAX, false);
                }
                // An error here is a reset, which has its own event.
                let _ = self.write_reopened(hop, id);
                if self.table.get(id).is_some_and(|conn| conn.writable() && !conn.finishing) {
                    self.events.push_back(Event::Writable(id));
                }
                self.announce_bytes(hop, id);
            }
            Some(Phase::Refusing(refusal)) => {
                self.arm(id);
                self.write_refused(hop, id, refusal);
            }
            _ => {}
        }
    }

    /// Base: what was kept follows the message that was just sent.
    pub(super) fn send_rest(
        &mut self,
        hop: &mut impl Streams,
        id: ConnId,
    ) -> Result<(), StreamError> {
        let Some(conn) = self.table.get_mut(id) else { return Ok(()) };
        let resend = conn.rest.as_mut().map(|rest| core::mem::take(&mut rest.resend));
        self.send(hop, id, &[&resend.unwrap_or_default()])
    }

    /// Continue, or what it says to skip, or a part of it, is there.
    pub(super) fn read_continue(&mut self, hop: &mut impl Streams, id: ConnId) {
        if self.table.get(id).is_some_and(|conn| conn.resumes) {
            let from = match self.take_message(hop, id) {
                Ok(None) => return,
                Ok(Some(Message::Continue { from })) => Some(from),
                Ok(Some(_)) | Err(_) => None,
            };
            let Some(conn) = self.table.get_mut(id) else { return };
            // A hole is never papered over.
            let skip = from.and_then(|from| conn.recv_base.checked_sub(from));
            let Some(skip) = skip.and_then(|n| u32::try_from(n).ok()) else {
                self.stats.malformed += 1;
                return self.abort(hop, id, ResetReason::Protocol);
            };
            conn.resumes = false;
            conn.skip = skip;
            conn.heard = conn.heard.saturating_add(skip);
        }
        let Some(conn) = self.table.get_mut(id) else { return };
        let Some(stream) = conn.stream else { return };
        while conn.skip > 0 {
            let n = hop.received(stream).len().min(conn.skip as usize);
            if n == 0 {
                break;
            }
            hop.consume(stream, n);
            conn.skip -= n as u32;
        }
        if conn.skip == 0 {
            self.announce_bytes(hop, id);
        } else if hop.recv_state(stream) == RecvState::Finished {
            self.stats.malformed += 1;
            self.abort(hop, id, ResetReason::Protocol);
        }
    }

    /// A connection that is not here: it was never known, or is over.
    fn reopen_unknown(&mut self, hop: &mut impl Streams, from: ConnId, id: ConnId, reopen: Reopen) {
        match (self.ended.get(id), reopen.asking) {
            (Some(ended), asking) => match ended.reset {
                None if asking.is_none() => self.write_over(hop, from),
                reset => {
                    let code = reset.unwrap_or(ResetReason::Aborted.code());
                    self.reset_unannounced(hop, from, ResetReason::from_code(code));
                }
            },
            (None, Some(Asking { opening, target, source }))
                if reopen.kept == 0 && self.is_new(id, opening) =>
            {
                if let Some(conn) = self.table.get_mut(from) {
                    (conn.moved, conn.resumes) = (true, true);
                }
                self.on_open(hop, from, id, opening, Origin::new(target, source));
            }
            _ => self.reset_unannounced(hop, from, ResetReason::AssociationLost),
        }
    }

    /// Whether connecting for this opening cannot repeat what another base did for it. Nothing was
    /// ever written behind a faithful one.
    fn is_new(&self, id: ConnId, opening: Opening) -> bool {
        opening == Opening::Faithful || !self.ended.may_have_been(id)
    }

    /// Everything was delivered: the mobile's last word is all that is missing.
    fn write_over(&mut self, hop: &mut impl Streams, from: ConnId) {
        if self.table.get(from).is_some_and(|conn| conn.tentative().is_some()) {
            return self.reset_unannounced(hop, from, ResetReason::AssociationLost);
        }
        let reopened =
            Reopened { expected: 0, ended: true, over: true, tentative: false, bound: None };
        self.table.enter(from, Phase::Refusing(Refusal::Other(0)));
        self.arm(from);
        if self.is_retained(from) {
            self.release_ahead(hop, from);
        }
        match self.write_message(hop, from, &Message::Reopened(reopened)) {
            Ok(()) => {
                self.finish(hop, from);
                self.discard(hop, from);
            }
            Err(_) => self.reset_unannounced(hop, from, ResetReason::Aborted),
        }
    }

    fn on_roll(&mut self, roll: &Roll) {
        for id in &roll.connections {
            if let Some(conn) = self.table.get_mut(ConnId(*id)) {
                conn.listed = true;
            }
        }
    }

    /// The roll is complete: connections that are not on it are over for the mobile.
    fn on_last_roll(
        &mut self,
        hop: &mut impl Streams,
        from: ConnId,
        stream: StreamId,
        roll: &Roll,
    ) {
        self.on_roll(roll);
        hop.finish(stream);
        self.table.remove(from);
        for id in self.table.ids() {
            let Some(conn) = self.table.get_mut(id) else { continue };
            let listed = core::mem::take(&mut conn.listed);
            if listed || !conn.moved || conn.stream.is_some() {
                continue;
            }
            let whole = conn.phase() == Phase::Open && conn.has_end() && conn.finishing;
            if whole {
                self.close_when_read(id);
            } else {
                self.abort(hop, id, ResetReason::Aborted);
            }
        }
    }
}

fn preview(id: ConnId, conn: &Conn, stream: StreamState) -> Option<ConnectionState> {
    let stage = stage(Role::Base, conn)?;
    let Origin { target, bound, from: source } =
        conn.origin.as_deref().cloned().unwrap_or_else(Origin::nowhere);
    let rest =
        |bytes: &dyn Fn(&CarriedBytes) -> &[u8]| conn.rest.as_ref().map_or(&[][..], |r| bytes(r));
    let up = [rest(&|rest| rest.unread.as_slice()), &stream.unread].concat();
    let down = [&stream.send, rest(&|rest| &rest.resend)].concat();
    let direction = |bytes, ended| Direction { start: 0, bytes, ended };
    let (up, down) = (direction(up, stream.recv_ended), direction(down, conn.finishing));
    let (id, wired) = (id.0, Vec::new());
    Some(ConnectionState { id, stage, target, bound, up, down, wired, source })
}
