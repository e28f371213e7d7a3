//! The receiving half of a stream.

use alloc::vec::Vec;

use lasthop_stream::{RangeSet, Ring};

use crate::srp::Violation;
use crate::streams::RecvState;

/// Holes that a stream may have: bounds the memory that describes them. The largest window in
/// ordinary datagrams, every other one lost, makes a tenth of it.
const FRAGMENTS_MAX: usize = 256 * 1024;

/// What a window is multiplied by when it proves too small.
pub(super) const GROWTH: u64 = 4;

/// Bytes from the peer that the application has not yet taken.
#[derive(Debug)]
pub(super) struct RecvHalf {
    ring: Ring,
    /// What arrived beyond `ready` (SRP-10).
    ahead: RangeSet,
    /// Everything before arrived.
    ready: u64,
    /// The highest offset that arrived, or that a reset has.
    highest: u64,
    size: Option<u64>,
    reset: Option<u64>,
    window: u64,
    window_max: u64,
    /// The window is a share of the association's: it does not grow by itself.
    shared: bool,
    /// What the peer was promised.
    limit: u64,
    /// The application met the end of what is there and waits for more.
    pub(super) wants_data: bool,
    /// Both ends gave the stream up: arriving bytes only count.
    discarding: bool,
}

impl RecvHalf {
    pub(super) fn new(window: u64, window_max: u64) -> Self {
        Self {
            ring: Ring::default(),
            ahead: RangeSet::default(),
            ready: 0,
            highest: 0,
            size: None,
            reset: None,
            window,
            window_max,
            shared: false,
            limit: window,
            wants_data: true,
            discarding: false,
        }
    }

    /// Takes bytes in; by how much the highest offset rose, which is what the credit of all streams
    /// pays for.
    pub(super) fn on_data(
        &mut self,
        offset: u64,
        data: &[u8],
        fin: bool,
    ) -> Result<u64, Violation> {
        let end = offset.checked_add(data.len() as u64).ok_or(Violation)?;
        if end > self.limit || self.size.is_some_and(|size| end > size || (fin && end != size)) {
            return Err(Violation);
        }
        if fin && self.highest > end {
            return Err(Violation);
        }
        if fin {
            self.size = Some(end);
        }
        let rise = end.saturating_sub(self.highest);
        if self.discarding {
            self.highest += rise;
            return Ok(rise);
        }
        if offset > self.ready && self.ahead.fragments() >= FRAGMENTS_MAX {
            return Err(Violation);
        }
        self.highest += rise;
        if end > self.ready && !data.is_empty() {
            self.store(offset, data, end);
        }
        Ok(rise)
    }

    fn store(&mut self, offset: u64, data: &[u8], end: u64) {
        let start = offset.max(self.ready);
        let fresh = &data[(start - offset) as usize..];
        self.ring.reserve(end);
        self.ring.write(start, fresh);
        if start == self.ready && self.ahead.is_empty() {
            self.ready = end;
            return;
        }
        self.ahead.insert(start..end);
        if let Some(contiguous) = self.ahead.take_prefix(self.ready) {
            self.ready = contiguous;
        }
    }

    /// The peer gave the stream up after sending `size` bytes; by how much the highest offset rose.
    pub(super) fn on_reset(&mut self, code: u64, size: u64) -> Result<u64, Violation> {
        if size > self.limit || size < self.highest || self.size.is_some_and(|s| s != size) {
            return Err(Violation);
        }
        let rise = size - self.highest;
        self.highest = size;
        self.size = Some(size);
        if self.reset.is_none() {
            self.reset = Some(code);
            self.discard();
        }
        Ok(rise)
    }

    /// The association is gone: whatever had not ended is reset.
    pub(super) fn terminate(&mut self, code: u64) {
        if self.state() == RecvState::Open {
            self.reset = Some(code);
            self.discard();
        }
    }

    /// The application wants no more.
    pub(super) fn discard(&mut self) {
        self.discarding = true;
        self.ahead.clear();
        self.ring.release();
    }

    /// Bytes that are in order and not yet taken, up to the ring's seam.
    pub(super) fn readable(&self) -> &[u8] {
        if self.discarding {
            return &[];
        }
        self.ring.slices(self.ring.start()..self.ready).0
    }

    /// The application took `n` bytes. True if new credit should be sent.
    pub(super) fn consume(&mut self, n: usize) -> bool {
        if self.discarding {
            return false;
        }
        let n = (n as u64).min(self.ready - self.ring.start());
        self.ring.advance(self.ring.start() + n);
        if self.ring.start() == self.ready && self.ahead.is_empty() {
            self.ring.rewind();
            if self.size == Some(self.ready) || self.ring.is_idle_waste() {
                self.ring.release();
            }
        }
        if self.size == Some(self.ring.start()) {
            return false;
        }
        self.renew_limit(false)
    }

    /// The peer has used up its credit: a larger window, if what arrives is taken promptly, but no larger
    /// than `most`.
    pub(super) fn on_blocked(&mut self, most: u64) -> bool {
        if self.is_prompt() && !self.shared {
            self.window = self.window.max((self.window * GROWTH).min(self.window_max).min(most));
        }
        self.renew_limit(true)
    }

    /// Bytes that the peer may have sent and the application has not taken.
    pub(super) fn promised(&self) -> u64 {
        match (self.discarding, self.size) {
            (true, _) => 0,
            (false, size) => size.unwrap_or(self.limit) - self.ring.start(),
        }
    }

    /// What arrives is taken before much of it waits.
    pub(super) fn is_prompt(&self) -> bool {
        self.waiting() <= self.window / 4
    }

    /// The window is this much of the association's from here on; what the peer was promised before
    /// stays promised (RWC-9).
    pub(super) fn set_share(&mut self, share: u64) {
        self.shared = true;
        self.window = share.min(self.window_max);
    }

    fn renew_limit(&mut self, at_once: bool) -> bool {
        if self.size.is_some() {
            return false;
        }
        let limit = self.ring.start() + self.window;
        if limit <= self.limit || (!at_once && limit - self.limit < self.window / 4) {
            return false;
        }
        self.limit = limit;
        true
    }

    #[cfg(test)]
    pub(super) fn window(&self) -> u64 {
        self.window
    }

    /// How many bytes the application has taken.
    pub(super) fn consumed(&self) -> u64 {
        self.ring.start()
    }

    /// Bytes that are in order and that the application has not taken.
    pub(super) fn waiting(&self) -> u64 {
        if self.discarding { 0 } else { self.ready - self.ring.start() }
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// What of the credit of all streams this one holds and will never return by being read.
    pub(super) fn unconsumed(&self) -> u64 {
        self.highest - self.ring.start()
    }

    pub(super) fn state(&self) -> RecvState {
        match (self.reset, self.size) {
            (Some(code), _) => RecvState::Reset(code),
            (None, Some(size)) if size == self.ring.start() => RecvState::Finished,
            _ => RecvState::Open,
        }
    }

    /// There is something to read: bytes, the end, or a reset.
    pub(super) fn is_readable(&self) -> bool {
        self.ready > self.ring.start() || self.state() != RecvState::Open
    }

    /// Nothing more will come or be taken.
    pub(super) fn is_done(&self) -> bool {
        self.state() != RecvState::Open || (self.discarding && self.size.is_some())
    }

    /// The offset up to which everything arrived, and what of it was not taken.
    pub(super) fn in_order(&self) -> (u64, Vec<u8>) {
        let (head, tail) = self.ring.slices(self.ring.start()..self.ready);
        (self.ready, [head, tail].concat())
    }

    /// The peer has ended the stream at `offset`.
    pub(super) fn ends_at(&self, offset: u64) -> bool {
        self.size == Some(offset)
    }

    pub(super) fn memory(&self) -> usize {
        self.ring.capacity()
    }

    /// Ranges that arrived beyond a hole.
    pub(super) fn fragments(&self) -> usize {
        self.ahead.fragments()
    }

    /// The buffer is larger than it needs to be.
    pub(super) fn has_slack(&self) -> bool {
        !self.discarding && self.ring.capacity() > Ring::tight(self.unconsumed())
    }

    /// Gives back what the buffer does not need.
    pub(super) fn tighten(&mut self) {
        if !self.discarding {
            self.ring.shrink(self.highest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take_all(r: &mut RecvHalf) -> Vec<u8> {
        let mut all = Vec::new();
        while !r.readable().is_empty() {
            let piece = r.readable().to_vec();
            r.consume(piece.len());
            all.extend(piece);
        }
        all
    }

    /// SRP-10: what is out of order is kept and delivered in order.
    #[test]
    fn out_of_order_bytes_wait_for_the_hole_to_fill() {
        let mut r = RecvHalf::new(1000, 1000);
        assert_eq!(r.on_data(4, b"efgh", true), Ok(8));
        assert!(r.readable().is_empty() && !r.is_readable());
        assert_eq!(r.on_data(0, b"abcdef", false), Ok(0));
        assert_eq!(take_all(&mut r), b"abcdefgh");
        assert_eq!(r.state(), RecvState::Finished);
    }

    #[test]
    fn credit_and_size_may_not_be_broken() {
        let mut r = RecvHalf::new(10, 10);
        assert_eq!(r.on_data(5, b"123456", false), Err(Violation));
        assert_eq!(r.on_data(0, b"12345", true), Ok(5));
        assert_eq!(r.on_data(3, b"456", false), Err(Violation));
        assert_eq!(r.on_data(0, b"1234", true), Err(Violation));
        assert_eq!(r.on_reset(1, 4), Err(Violation));
        assert_eq!(r.on_reset(1, 5), Ok(0));
    }

    #[test]
    fn reading_renews_credit_and_a_blocked_peer_gets_a_larger_window() {
        let mut r = RecvHalf::new(8, 64);
        assert_eq!(r.on_data(0, b"12345678", false), Ok(8));
        assert!(!r.on_blocked(u64::MAX) || r.limit() <= 16, "unread bytes leave the window alone");
        assert!(r.consume(8));
        assert!(r.limit() >= 16);
        assert!(r.on_blocked(u64::MAX));
        assert_eq!(r.limit(), 8 + 32);
    }

    /// RWC-9: a lesser share takes back no credit; the peer gets more once it has used it up.
    #[test]
    fn a_lesser_share_takes_no_credit_back() {
        let mut r = RecvHalf::new(16, 64);
        r.set_share(8);
        assert_eq!(r.limit(), 16);
        for taken in 1..=16 {
            r.on_data(taken - 1, b"x", false).unwrap();
            r.consume(1);
            assert_eq!(r.limit(), if taken < 10 { 16 } else { (taken + 8) & !1 });
        }
        assert!(!r.on_blocked(u64::MAX), "a share grows with the association's window only");
        r.set_share(32);
        assert!(r.on_blocked(u64::MAX));
        assert_eq!(r.limit(), 48);
    }

    #[test]
    fn an_overlap_changes_nothing() {
        let mut r = RecvHalf::new(100, 100);
        r.on_data(0, b"abc", false).unwrap();
        r.on_data(1, b"bcde", false).unwrap();
        r.on_data(0, b"ab", false).unwrap();
        assert_eq!(take_all(&mut r), b"abcde");
    }
}
