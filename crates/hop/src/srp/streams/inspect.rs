//! The state of streams, for tests.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::StreamSet;
use super::stream::Stream;
use super::turns::TURN;

/// One stream.
#[derive(Debug)]
pub(in crate::srp) struct StreamView {
    pub(in crate::srp) window: u64,
    pub(in crate::srp) limit: u64,
    pub(in crate::srp) waiting: u64,
    pub(in crate::srp) turn: u64,
    pub(in crate::srp) priority: u32,
    pub(in crate::srp) client: u32,
}

impl StreamSet {
    pub(in crate::srp) fn inspect(&self) -> BTreeMap<u64, StreamView> {
        let (division, window) = (&self.division, self.credit.window());
        let view = |s: &Stream| StreamView {
            window: match division.is_on() {
                true => division.share(s.priority, window),
                false => s.recv.window(),
            },
            limit: s.recv.limit(),
            waiting: s.recv.waiting(),
            turn: if division.is_on() { division.turn(s.priority) } else { TURN },
            priority: s.priority,
            client: s.client,
        };
        self.streams.iter().map(|(id, stream)| (id, view(stream))).collect()
    }

    /// Streams that take part in the division, once there is one.
    pub(in crate::srp) fn sharing(&self) -> Option<Vec<u64>> {
        let open = || self.streams.iter().filter(|(_, s)| !s.closed).map(|(id, _)| id).collect();
        self.division.is_on().then(open)
    }

    /// How many streams were looked at so far.
    pub(in crate::srp) fn visits(&self) -> u64 {
        self.streams.visits()
    }

    /// Bytes written and not acknowledged; bytes received, and consumed.
    pub(in crate::srp) fn accounts(&self) -> (u64, u64, u64) {
        let (received, consumed) = self.credit.received_and_consumed();
        (self.buffered, received, consumed)
    }
}
