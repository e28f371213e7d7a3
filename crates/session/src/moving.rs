//! How far a connection is that came from an earlier hop, and taking it on to the next.

use alloc::vec::Vec;

use lasthop_hop::{StreamId, StreamState};

use crate::carried::Left;
use crate::table::Conn;

/// Bytes of one connection that are kept and sent before the peer has reported what it expects.
const EARLY_MAX: usize = 256 * 1024;

impl Conn {
    /// Bytes in order that came along and were not taken.
    pub(crate) fn unread(&self) -> &[u8] {
        self.rest.as_ref().map_or(&[], |rest| rest.unread.as_slice())
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

    /// What a tentative Reopened says.
    pub(crate) fn tentative(&self) -> Option<u64> {
        self.rest.as_ref()?.tentative
    }

    /// What a tentative Reopened says, if that is to be made final.
    pub(crate) fn take_tentative(&mut self) -> Option<u64> {
        self.rest.as_mut()?.tentative.take()
    }

    /// Takes in what the old stream held, of which the peer presumably had all before `presumed`. Stream
    /// offsets become the connection's: the messages at its start do not count. With `retains` some of it may
    /// be what the peer has and may lose.
    pub(crate) fn unload(
        &mut self,
        stream: StreamId,
        state: StreamState,
        presumed: Option<u64>,
        retains: bool,
    ) {
        let unsent = self.unsent.take();
        let (said, heard) = (u64::from(self.said), u64::from(self.heard));
        let rest = self.rest.get_or_insert_default();
        (rest.left, rest.presumed, rest.tentative) = (None, None, None);
        rest.retains |= retains;
        // Of what was sent early a base without the session takes nothing, whatever its transport says.
        if rest.early.take().is_none() {
            let mut kept = state.send;
            kept.extend_from_slice(unsent.as_ref().map_or(&[], |unsent| unsent.as_slice()));
            kept.drain(..(said.saturating_sub(state.send_start) as usize).min(kept.len()));
            self.send_base += state.send_start.saturating_sub(said);
            if !self.awaits {
                let left = Left::new(stream, state.send_start.max(said), self.send_base);
                rest.left = Some(left);
                rest.presumed = presumed.map(|n| left.offset(n));
            }
            // What came before is of use while nothing is missing between.
            let mut before = core::mem::take(&mut rest.retained);
            if state.send_start <= said && !before.is_empty() {
                self.send_base -= before.len() as u64;
                before.append(&mut kept);
                kept = before;
            }
            kept.append(&mut rest.resend);
            rest.resend = kept;
        }
        if heard > 0 && !self.resumes {
            let unskipped = state.received.saturating_sub(heard);
            self.recv_base += unskipped;
            let skipped = state.unread.len().saturating_sub(unskipped as usize);
            // What is in front of them was taken already, or is skipped.
            rest.unread.push(&state.unread[if self.skip > 0 { skipped } else { 0 }..]);
            rest.ended |= state.recv_ended && state.received >= heard;
        }
        (self.said, self.heard, self.skip) = (0, 0, 0);
        (self.awaits, self.listed, self.resumes) = (false, false, false);
        self.partial = Vec::new();
        self.moved = true;
    }

    /// Bytes that are kept for the peer, from the one at `from` on; `None` if that one is not kept, nor the
    /// next.
    pub(crate) fn kept_from(&self, from: u64) -> Option<&[u8]> {
        let kept = self.rest.as_ref().map_or(&[][..], |rest| &rest.resend);
        kept.get(usize::try_from(from.checked_sub(self.send_base)?).ok()?..)
    }

    /// Some of the bytes that are kept, from the one at `from` on, to be sent before the peer has reported what
    /// it expects; what the caller writes next follows. They stay until the peer has.
    pub(crate) fn take_early(&mut self, from: u64) -> Option<Vec<u8>> {
        let kept = self.kept_from(from).filter(|_| self.awaits)?;
        let early = kept[..kept.len().min(EARLY_MAX)].to_vec();
        let rest = self.rest.as_mut().filter(|rest| rest.early.is_none())?;
        rest.early = Some((from, from + early.len() as u64));
        Some(early)
    }

    /// How much more may be written before the peer has reported what it expects: nothing unless all that was
    /// kept is on the stream.
    pub(crate) fn early_room(&self) -> usize {
        let Some(rest) = self.rest.as_ref().filter(|_| self.awaits && !self.finishing) else {
            return 0;
        };
        let end = self.send_base + rest.resend.len() as u64;
        let all = rest.early.is_some_and(|(_, sent)| sent == end);
        if all { EARLY_MAX.saturating_sub(rest.resend.len()) } else { 0 }
    }

    /// Bytes were written: they are kept while it is not known whether the peer takes them.
    pub(crate) fn on_written(&mut self, bytes: &[u8]) {
        if self.awaits
            && let Some(rest) = &mut self.rest
            && let Some((_, end)) = &mut rest.early
        {
            rest.resend.extend_from_slice(bytes);
            *end += bytes.len() as u64;
        }
    }

    /// The peer says which byte it expects next (MHP-19): the bytes that the new stream is to carry on with,
    /// and the first of them, if none was sent early. `None` if the peer wants what is not kept, or what was
    /// never sent.
    pub(crate) fn reconcile(&mut self, expected: u64) -> Option<(Vec<u8>, Option<u64>)> {
        let early = self.rest.as_mut().and_then(|rest| rest.early.take());
        let (from, next) = early.unwrap_or((expected, expected));
        if expected < from {
            return None;
        }
        self.kept_from(expected)?;
        let left = self.kept_from(next)?.len();
        let mut resend = Vec::new();
        if let Some(rest) = &mut self.rest {
            resend = rest.resend.split_off(rest.resend.len() - left);
            rest.retained = core::mem::take(&mut rest.resend);
            rest.retained.truncate((from - self.send_base) as usize);
            if !core::mem::take(&mut rest.retains) {
                rest.retained = Vec::new();
            }
        }
        self.send_base = from;
        Some((resend, early.is_none().then_some(from)))
    }
}
