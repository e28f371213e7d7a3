//! The state of streams, for tests.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::StreamSet;
use super::stream::Stream;

/// One stream.
#[derive(Debug)]
pub(in crate::srp) struct StreamView {
    pub(in crate::srp) window: u64,
    pub(in crate::srp) limit: u64,
    pub(in crate::srp) waiting: u64,
    pub(in crate::srp) turn: u64,
    pub(in crate::srp) priority: u32,
}

impl StreamSet {
    pub(in crate::srp) fn inspect(&self) -> BTreeMap<u64, StreamView> {
        let view = |s: &Stream| StreamView {
            window: s.recv.window(),
            limit: s.recv.limit(),
            waiting: s.recv.waiting(),
            turn: s.turn_state.turn(),
            priority: s.priority,
        };
        self.streams.iter().map(|(id, stream)| (*id, view(stream))).collect()
    }

    /// Streams that take part in the division, once there is one.
    pub(in crate::srp) fn sharing(&self) -> Option<Vec<u64>> {
        self.division.is_on().then(|| self.division.windows(0).map(|(id, _)| id).collect())
    }

    /// Bytes written and not acknowledged; bytes received, and consumed.
    pub(in crate::srp) fn accounts(&self) -> (u64, u64, u64) {
        let (received, consumed) = self.credit.received_and_consumed();
        (self.buffered, received, consumed)
    }
}
