//! An upload goes on from where the base before presumably got to.
//!
//! How far that was the mobile hears half a round trip later at the earliest. What its hop
//! [presumes](lasthop_hop::Streams::presumed) is right where nothing was lost. So a few bytes from there on go
//! out with Reopen, on a stream of their own; what comes of them changes nothing in what is sent later.

use alloc::vec::Vec;

use lasthop_hop::{StreamId, Streams};
use lasthop_wire::mhp::handoff::{PRESUMED_MAX, Presumed};
use lasthop_wire::mhp::{Message, ResetReason};

use super::Session;
use crate::ConnId;
use crate::table::{Conn, Phase};

/// Unread bytes of a connection behind which a base takes no more so.
const UNREAD_MAX: usize = 64 * 1024;

impl Session {
    /// Mobile: sends bytes of a connection that waits for Reopened, as many as may go out blindly.
    pub(super) fn send_presumed(&mut self, hop: &mut impl Streams, id: ConnId) {
        let (Some(session), Some(turn)) = (self.name, self.turn) else { return };
        let Some(conn) = self.table.get(id).filter(|conn| conn.phase() == Phase::Open) else {
            return;
        };
        let rest = conn.rest.as_ref().filter(|rest| rest.early.is_none());
        let Some(from) = rest.and_then(|rest| rest.presumed) else { return };
        let kept = conn.kept_from(from).unwrap_or_default();
        let bytes = &kept[..kept.len().min(self.moves.blind)];
        if bytes.is_empty() {
            return;
        }
        let (mut from, sent) = (from, bytes.len());
        let mut pieces = bytes.chunks(PRESUMED_MAX).peekable();
        let mut messages = Vec::new();
        while let Some(piece) = pieces.next() {
            let (connection, bytes, last) = (id.0, piece.to_vec(), pieces.peek().is_none());
            let presumed = Presumed { session, turn, connection, from, bytes, last };
            Message::Presumed(presumed).encode(&mut messages);
            from += piece.len() as u64;
        }
        let Ok(stream) = hop.open() else { return };
        if hop.write(stream, &messages) == Ok(messages.len()) {
            hop.finish(stream);
        } else {
            hop.reset(stream, ResetReason::Aborted.code());
        }
        self.moves.blind -= sent;
    }

    /// Base: takes those of the bytes that come next, if Continue has yet to say the same; whether another
    /// message follows.
    pub(super) fn on_presumed(
        &mut self,
        hop: &mut impl Streams,
        from: ConnId,
        stream: StreamId,
        presumed: &Presumed,
    ) -> bool {
        let id = ConnId(presumed.connection);
        let waits = |conn: &&mut Conn| {
            let room = conn.unread().len() < UNREAD_MAX && !conn.has_end();
            room && conn.phase() == Phase::Open && (conn.stream.is_none() || conn.resumes)
        };
        if let Some(conn) = self.table.get_mut(id).filter(waits)
            && let Some(known) = conn.recv_base.checked_sub(presumed.from)
            && let Some(new @ [_, ..]) =
                usize::try_from(known).ok().and_then(|known| presumed.bytes.get(known..))
        {
            conn.recv_base += new.len() as u64;
            conn.rest.get_or_insert_default().unread.push(new);
            self.announce_rest(id);
        }
        if presumed.last {
            hop.finish(stream);
            self.table.remove(from);
        }
        !presumed.last
    }
}
