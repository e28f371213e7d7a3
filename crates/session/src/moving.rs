//! How far a connection is that came from an earlier hop, and taking it on to the next.

use alloc::vec::Vec;

use lasthop_hop::StreamState;

use crate::table::{Conn, Held};

impl Conn {
    /// Bytes in order that came along and were not taken.
    pub(crate) fn unread(&self) -> &[u8] {
        self.rest.as_ref().map_or(&[], |rest| rest.unread())
    }

    /// The peer may not know yet that the connection has moved.
    pub(crate) fn is_unanswered(&self) -> bool {
        !self.is_over() && (self.awaits || self.stream.is_none())
    }

    /// Nothing more will come or go.
    pub(crate) fn is_over(&self) -> bool {
        self.rest.as_ref().is_some_and(|rest| rest.over)
    }

    /// All that the caller wrote is with the transport, or would be.
    pub(crate) fn is_emptied(&self) -> bool {
        !self.awaits && self.rest.as_ref().is_none_or(|rest| rest.resend.is_empty())
    }

    /// The peer's end came along.
    pub(crate) fn has_end(&self) -> bool {
        self.rest.as_ref().is_some_and(|rest| rest.ended)
    }

    /// Takes in what the old stream held. Stream offsets become the connection's: the messages at
    /// its start do not count.
    pub(crate) fn unload(&mut self, state: StreamState) {
        let mut kept = state.send;
        if let Held::Unsent(backlog) = core::mem::take(&mut self.held) {
            kept.extend_from_slice(backlog.as_slice());
        }
        let (said, heard) = (u64::from(self.said), u64::from(self.heard));
        let message = said.saturating_sub(state.send_start) as usize;
        kept.drain(..message.min(kept.len()));
        self.send_base += state.send_start.saturating_sub(said);
        let rest = self.rest.get_or_insert_default();
        kept.append(&mut rest.resend);
        rest.resend = kept;
        if heard > 0 {
            self.recv_base += state.received.saturating_sub(heard);
            rest.add_unread(&state.unread);
            rest.ended |= state.recv_ended;
        }
        (self.said, self.heard) = (0, 0);
        (self.awaits, self.listed) = (false, false);
        self.moved = true;
    }

    /// The peer says which byte it expects next: what it has is dropped, the rest is for the new
    /// stream (MHP-19). `None` if the peer wants what is not kept, or what was never sent.
    pub(crate) fn reconcile(&mut self, expected: u64) -> Option<Vec<u8>> {
        let had = usize::try_from(expected.checked_sub(self.send_base)?).ok()?;
        let resend = self.rest.as_mut().map(|rest| core::mem::take(&mut rest.resend));
        let mut resend = resend.unwrap_or_default();
        if had > resend.len() {
            return None;
        }
        resend.drain(..had);
        self.send_base = expected;
        Some(resend)
    }
}
