//! The data of a multipath connection: ours with what is given to subflows, and the peer's in its shared buffer.
//!
//! Positions count from the first byte, which has position 0 and the data sequence number after the key's.

use lasthop_stream::RangeSet;
use lasthop_wire::tcp::Seq;

/// The data sequence number of a position, with the key of whoever sends the data.
pub(super) fn seq_at(key: u64, position: u64) -> Seq {
    // Sequence numbers are positions modulo 2^32.
    Seq(key as u32) + (position as u32).wrapping_add(1)
}

/// Our data.
#[derive(Clone, Debug)]
pub(super) struct Outbox {
    /// All before this was written.
    pub(super) written: u64,
    /// All before this was given to a subflow.
    pub(super) next: u64,
    /// All before this is acknowledged.
    pub(super) una: u64,
    /// The right edge of the peer's window.
    pub(super) edge: u64,
    /// What was given to a subflow that does not bring it, and is to be given to another.
    pub(super) again: RangeSet,
    /// Nothing more will be written.
    pub(super) fin: bool,
    buffer: u64,
}

impl Outbox {
    pub(super) fn new(buffer: u64) -> Self {
        let again = RangeSet::default();
        Self { written: 0, next: 0, una: 0, edge: 0, again, fin: false, buffer }
    }

    /// Bytes that can be written. Positions stay far from the end of their type.
    pub(super) fn room(&self) -> u64 {
        let left = (1u64 << 62).saturating_sub(self.written);
        let open = if self.fin { 0 } else { left };
        self.buffer.saturating_sub(self.written - self.una).min(open)
    }

    /// Bytes that no subflow was given.
    pub(super) fn left(&self) -> u64 {
        self.written - self.next
    }

    /// All that was written is acknowledged, and nothing more comes.
    pub(super) fn is_done(&self) -> bool {
        self.fin && self.una == self.written
    }

    /// The peer acknowledges all before a position, and has room for so much from there on.
    pub(super) fn on_ack(&mut self, position: u64, window: u64) {
        if position < self.una || position > self.next {
            return;
        }
        self.una = position;
        self.again.remove(0..position);
        self.edge = self.edge.max(position + window);
    }

    /// The next bytes to give to a subflow, `most` of them at most, and whether they were given to one before;
    /// `None` if there are none, or the peer has no room for them.
    pub(super) fn next_piece(&self, most: u64) -> Option<(u64, u64, bool)> {
        if let Some(lost) = self.again.first() {
            return Some((lost.start, (lost.end - lost.start).min(most), true));
        }
        let len = self.left().min(most);
        (len > 0 && self.next + len <= self.edge).then_some((self.next, len, false))
    }

    /// Those bytes were given to a subflow.
    pub(super) fn give(&mut self, start: u64, len: u64) {
        self.again.remove(start..start + len);
        self.next = self.next.max(start + len);
    }

    /// Those bytes are to be given to another subflow, as far as they are not acknowledged.
    pub(super) fn give_again(&mut self, start: u64, len: u64) {
        let start = start.max(self.una);
        let end = (start + len).min(self.next);
        if start < end {
            self.again.insert(start..end);
        }
    }
}

/// The peer's data.
#[derive(Clone, Debug)]
pub(super) struct Inbox {
    /// The next byte in order.
    pub(super) nxt: u64,
    /// All before this was read.
    read: u64,
    /// What has arrived beyond.
    ahead: RangeSet,
    /// Where the data ends, once it is known.
    pub(super) fin: Option<u64>,
    /// What all subflows share.
    buffer: u64,
    /// The right edge of the window that was last stated.
    told: u64,
}

impl Inbox {
    pub(super) fn new(buffer: u64) -> Self {
        Self { nxt: 0, read: 0, ahead: RangeSet::default(), fin: None, buffer, told: 0 }
    }

    /// The position that a sequence number means: the nearest to what is expected. `None` before the first byte.
    pub(super) fn position(&self, key: u64, seq: Seq) -> Option<u64> {
        self.nxt.checked_add_signed(i64::from(seq.ahead_of(seq_at(key, self.nxt))))
    }

    /// Takes bytes that have arrived, as far as there is room for them.
    pub(super) fn take(&mut self, start: u64, len: u64) {
        let end = (start + len).min(self.read + self.buffer);
        let start = start.max(self.nxt);
        if start >= end {
            return;
        }
        if start > self.nxt {
            self.ahead.insert(start..end);
            return;
        }
        self.nxt = end;
        while let Some(end) = self.ahead.take_prefix(self.nxt) {
            self.nxt = self.nxt.max(end);
        }
    }

    pub(super) fn readable(&self) -> u64 {
        self.nxt - self.read
    }

    /// So much was read; whether the peer should be told of the room at once.
    pub(super) fn consume(&mut self, n: u64, mss: u64) -> bool {
        self.read += n.min(self.readable());
        let gained = (self.read + self.buffer).saturating_sub(self.told);
        gained >= self.buffer / 2 || (self.told < self.nxt + 2 * mss && gained >= 2 * mss)
    }

    /// All the peer's data has arrived.
    pub(super) fn has_ended(&self) -> bool {
        self.fin.is_some_and(|fin| self.nxt >= fin)
    }

    /// The window field to state, with this shift.
    pub(super) fn window(&mut self, shift: u8) -> u16 {
        let free = (self.read + self.buffer).saturating_sub(self.nxt) >> shift;
        let field = u16::try_from(free).unwrap_or(u16::MAX);
        self.told = self.told.max(self.nxt + (u64::from(field) << shift));
        field
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_arrives_in_any_order_and_within_the_buffer() {
        let mut inbox = Inbox::new(100);
        inbox.take(10, 10);
        assert_eq!((inbox.nxt, inbox.readable(), inbox.window(0)), (0, 0, 100));
        inbox.take(0, 15);
        assert_eq!((inbox.nxt, inbox.readable(), inbox.window(0)), (20, 20, 80));
        // What there is no room for is not there.
        inbox.take(20, 200);
        assert_eq!((inbox.nxt, inbox.window(0)), (100, 0));
        assert!(inbox.consume(60, 10));
        assert_eq!(inbox.window(0), 60);
        inbox.fin = Some(100);
        assert!(inbox.has_ended());
    }

    #[test]
    fn numbers_wrap() {
        let key = u64::from(u32::MAX) - 5;
        let mut inbox = Inbox::new(1 << 20);
        for position in [0, 3, 4, 5, 6, 100] {
            assert_eq!(inbox.position(key, seq_at(key, position)), Some(position));
        }
        inbox.take(0, 1000);
        assert_eq!(inbox.position(key, seq_at(key, 10)), Some(10));
        assert_eq!(inbox.position(key, Seq(key as u32)), None);
    }

    #[test]
    fn what_a_subflow_does_not_bring_is_given_to_another_first() {
        let mut outbox = Outbox::new(1000);
        outbox.written = 500;
        outbox.on_ack(0, 300);
        assert_eq!(outbox.next_piece(100), Some((0, 100, false)));
        outbox.give(0, 100);
        outbox.give(100, 100);
        outbox.give_again(0, 100);
        outbox.on_ack(40, 260);
        assert_eq!(outbox.next_piece(100), Some((40, 60, true)));
        outbox.give(40, 60);
        assert_eq!(outbox.next_piece(100), Some((200, 100, false)));
        outbox.give(200, 100);
        // The peer has no room for more.
        assert_eq!(outbox.next_piece(100), None);
        assert_eq!(outbox.room(), 1000 - 460);
    }
}
