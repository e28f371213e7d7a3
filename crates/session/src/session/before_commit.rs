//! Answers before the session's state may be used.
//!
//! A base that has the whole state needs the confirmation that it alone has it before it uses it. Bytes for the mobile
//! are the same bytes wherever they come from: they need not wait for that.

use alloc::collections::BTreeMap;

use lasthop_hop::{StreamId, Streams};
use lasthop_units::{Time, gather};
use lasthop_wire::mhp::handoff::{ConnectionState, Reopen, Reopened, SessionState, Stage};
use lasthop_wire::mhp::{Message, ResetReason};

use super::hold::is_later;
use super::{Role, Session};
use crate::ConnId;
use crate::table::{Conn, Phase, provisional};

impl Session {
    /// Base: the state of a session has come that the mobile carries on here, and may not be used yet. The
    /// mobile is sent how far its connections are, and gets what was kept for it. All else waits until the
    /// state is [adopted](Self::adopt), or [declined](Self::decline).
    ///
    /// `handoff` is the one in which the state was fetched ([`set_handoff`](Self::set_handoff)): a mobile that
    /// carries on in another may have gone on elsewhere since. To be called again when the mobile has asked for
    /// more: each connection is answered once. Whether there was one to answer.
    pub fn answer_tentatively(
        &mut self,
        now: Time,
        hop: &mut impl Streams,
        state: &SessionState,
        handoff: u32,
    ) -> bool {
        self.advance(now);
        if self.wanted_in(state.session) != handoff {
            return false;
        }
        let untried = self.holds.take_untried(state.session);
        if untried.is_empty() {
            return false;
        }
        let known: BTreeMap<u64, &ConnectionState> =
            gather(state.connections.iter().map(|connection| (connection.id, connection)));
        for (stream, reopen) in untried {
            if !is_later(state.turn, reopen.turn)
                && let Some(connection) = known.get(&reopen.connection)
            {
                self.reopen_tentatively(hop, stream, &reopen, connection);
            }
        }
        true
    }

    fn reopen_tentatively(
        &mut self,
        hop: &mut impl Streams,
        stream: StreamId,
        reopen: &Reopen,
        connection: &ConnectionState,
    ) {
        let ConnectionState { stage: Stage::Open, up, down, bound, .. } = connection else {
            return;
        };
        let follows = reopen.expected.checked_sub(down.start);
        let follows = follows.and_then(|n| down.bytes.get(usize::try_from(n).ok()?..));
        let from = provisional(stream);
        let (Some(follows), Some(Phase::Reading)) = (follows, self.table.phase(from)) else {
            return;
        };
        if reopen.asking.is_some() || reopen.kept > up.end() {
            return;
        }
        let (expected, ended, bound) = (up.end(), up.ended, *bound);
        let reopened = Reopened { expected, ended, over: false, tentative: true, bound };
        // An error here is a reset, which has its own event.
        if self.write_message(hop, from, &Message::Reopened(reopened)).is_err() {
            return;
        }
        let Some(conn) = self.table.get_mut(from) else { return };
        // Only what the transport takes at once: the state has the bytes.
        let taken = if conn.unsent.is_none() { hop.write(stream, follows) } else { Ok(0) };
        conn.rest.get_or_insert_default().tentative = Some(taken.unwrap_or(0) as u64);
    }

    /// Mobile: the base has the connection's state. It may not use it yet, so what is sent to it is kept.
    pub(super) fn on_tentative(&mut self, hop: &mut impl Streams, id: ConnId, expected: u64) {
        let open = self.table.get_mut(id).filter(|conn| conn.phase() == Phase::Open);
        let Some(conn) = open.filter(|conn| conn.kept_from(expected).is_some()) else {
            return self.fail_reopening(hop, id);
        };
        conn.rest.get_or_insert_default().tentative = Some(expected);
        if self.send_early(hop, id, expected).is_err() {
            return self.abort(hop, id, ResetReason::AssociationLost);
        }
        self.on_writable(hop, id);
        self.announce_bytes(hop, id);
    }

    /// Mobile: the base has the session ([`MobileEvent::Resumed`](crate::handoff::MobileEvent::Resumed)).
    /// To be called after [`resume`](Self::resume). What it sent tentatively holds.
    pub fn handle_resumed(&mut self, now: Time, hop: &mut impl Streams) {
        self.advance(now);
        if self.role == Role::Base {
            return;
        }
        self.moves.resumed = true;
        // What is acknowledged from here on, and by whom, this base says, or has said already.
        self.table.keep_tickets_of(self.turn.unwrap_or_default());
        for id in self.table.ids() {
            let conn = self.table.get_mut(id);
            if let Some(expected) = conn.and_then(Conn::take_tentative) {
                let reopened =
                    Reopened { expected, ended: false, over: false, tentative: false, bound: None };
                self.on_reopened(hop, id, &reopened);
            }
        }
    }
}
