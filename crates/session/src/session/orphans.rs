//! Connections that go on though the base that carried them has died: what a mobile says of them.

use alloc::vec::Vec;

use lasthop_hop::Streams;
use lasthop_wire::mhp::Opening;
use lasthop_wire::mhp::handoff::{Orphan, Ticket};

use super::{Role, Session};
use crate::ConnId;
use crate::table::{Conn, Phase};

impl Session {
    /// Mobile: keeps what the base has made of a connection, in place of what it had made before, until another base has the
    /// session. By that any other base of the fleet can take the connection over.
    pub fn keep_ticket(&mut self, id: ConnId, ticket: Ticket) {
        if self.role == Role::Mobile {
            self.table.set_ticket(id, ticket, self.turn.unwrap_or_default());
        }
    }

    /// Base: of what was [consumed](Self::consume) of a connection the fixed host has all but the last `behind` bytes, and with
    /// `end` the mobile's end too (ACK-10). From the first call on the mobile keeps what is not released, and the connection is
    /// not over before its end is. False if it was over before: then its mobile has no use for a ticket.
    pub fn release(&mut self, hop: &mut impl Streams, id: ConnId, behind: u64, end: bool) -> bool {
        let conn = self.table.get_mut(id).filter(|conn| !conn.is_over());
        let Some(conn) = conn else { return false };
        conn.set_releases();
        let Some(stream) = conn.stream else { return true };
        // Of an earlier hop's bytes this one knows nothing.
        let is_counted = conn.unread().is_empty() && conn.hears();
        let (behind, end) = if is_counted { (behind, end) } else { (u64::MAX, false) };
        hop.release(stream, behind, end)
    }

    /// Base: the mobile keeps what it has sent of a connection until that is [released](Self::release), or all of it
    /// [ahead](Self::release_ahead): one of both has to come, or the connection is never over.
    pub fn is_retained(&self, id: ConnId) -> bool {
        self.table.get(id).is_some_and(Conn::releases)
    }

    /// Base: no other base could go on with a connection, or the fixed host has all of it, so that its mobile need
    /// not keep what it sends, as it may from the base before on.
    pub fn release_ahead(&mut self, hop: &mut impl Streams, id: ConnId) {
        let Some(conn) = self.table.get_mut(id) else { return };
        conn.set_releases_ahead();
        if let Some(stream) = conn.stream {
            hop.release_ahead(stream);
        }
    }

    /// Mobile, between [`resume`](Self::resume) and [`handle_resumed`](Self::handle_resumed): what it has of each connection, so
    /// that a base can go on with it that has nothing of it.
    pub fn orphans(&self, hop: &impl Streams) -> Vec<Orphan> {
        let living = self.living().into_iter().filter_map(|id| Some((id, self.table.get(id)?)));
        let orphan = |(id, conn): (ConnId, &Conn)| {
            // A base may have had the state, and died before it could use it.
            let tentative = conn.stream.filter(|_| conn.hears() && conn.heard > 0);
            let tentative = tentative.and_then(|stream| hop.snapshot(stream));
            let more =
                tentative.as_ref().map_or(0, |s| s.received.saturating_sub(conn.heard.into()));
            let kept = conn.rest.as_ref().map_or(0, |rest| rest.resend.len() as u64);
            Orphan {
                connection: id.0,
                received: conn.recv_base + more,
                received_end: conn.has_end() || tentative.is_some_and(|s| s.recv_ended),
                kept: conn.send_base,
                sent: conn.send_base + kept,
                sent_end: conn.finishing,
                asking: conn.phase() == Phase::Asking(Opening::Faithful),
                ticket: self.table.ticket(id).cloned(),
            }
        };
        living.map(orphan).collect()
    }

    /// Whether there is a ticket of a connection that is not over.
    #[cfg(test)]
    pub(crate) fn has_ticket(&self, id: ConnId) -> bool {
        self.table.ticket(id).is_some() && self.table.get(id).is_some_and(|conn| !conn.is_over())
    }

    #[cfg(test)]
    pub(crate) fn forget_ticket(&mut self, id: ConnId) {
        self.table.remove_ticket(id);
    }
}
