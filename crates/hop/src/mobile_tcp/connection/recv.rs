//! The receiving half: what has arrived, and what is missing before it.

use lasthop_stream::{RangeSet, Ring};
use lasthop_wire::mobile_tcp::Seq16;

/// Pieces held above the first gap, at most; a window of packets of a usual size has fewer. With so
/// many, only what the gap wants is taken.
const PIECES_MAX: usize = 256;

/// What a packet's data was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Arrival {
    /// The next in sequence, and nothing is held above.
    InOrder,
    /// It ended a gap, or a part of one.
    Filled,
    /// Something before it is missing.
    AboveGap,
    /// All of it was there before.
    Old,
    /// No room was offered for it, or it lies behind the end.
    Outside,
}

/// Bytes received and not consumed. Offsets count from the stream's first byte.
#[derive(Debug)]
pub(super) struct RecvHalf {
    ring: Ring,
    capacity: u64,
    /// What of it the peer is offered, if connections divide their windows.
    share: u64,
    /// The sequence number of offset 0.
    zero: Seq16,
    /// Everything before was received.
    next: u64,
    /// Everything before was received when the present flight began.
    flight: u64,
    /// What is held above the first gap.
    above: RangeSet,
    /// The end of the window as it was last advertised.
    told: u64,
    /// The window that was advertised with the opening.
    promised: u64,
    /// Where the peer's end is, once known.
    end: Option<u64>,
}

impl RecvHalf {
    pub(super) fn new(capacity: u16) -> Self {
        let mut ring = Ring::default();
        ring.reserve(u64::from(capacity));
        Self {
            ring,
            capacity: u64::from(capacity),
            share: u64::MAX,
            zero: Seq16(0),
            next: 0,
            flight: 0,
            above: RangeSet::default(),
            told: 0,
            promised: u64::from(capacity),
            end: None,
        }
    }

    /// The window to tell with the opening, if `reserved` bytes are kept for what comes with the
    /// peer's.
    pub(super) fn promise(&mut self, reserved: usize) -> u16 {
        self.promised = self.capacity.saturating_sub(reserved as u64);
        self.promised as u16
    }

    /// The stream begins with what came with the peer's opening; false if there is no room for it.
    pub(super) fn foresee(&mut self, head: &[u8]) -> bool {
        let len = head.len() as u64;
        let fits = self.next == 0 && len <= self.capacity;
        if fits {
            self.ring.write(0, head);
            self.next = len;
        }
        fits
    }

    /// The window shall be `share` bytes from here on; a smaller one comes about as what was offered
    /// is used up, for an edge that was advertised stays (RWC-9).
    pub(super) fn set_share(&mut self, share: u64) {
        // Real buffers must be large enough (RWC-6).
        if share > self.capacity {
            self.ring.reserve(self.ring.start() + share);
            self.capacity = share;
        }
        self.share = share;
    }

    /// The peer's next byte will have the number `seq`.
    pub(super) fn begin(&mut self, seq: Seq16) {
        self.zero = seq - self.next as u16;
        self.told = (self.next + self.promised).min(self.ring.start() + self.capacity);
    }

    fn number(&self, offset: u64) -> Seq16 {
        self.zero + offset as u16
    }

    /// The end of the window as it may be advertised: with what was read, but in steps that are worth a
    /// packet (RFC 1122 section 4.2.3.3), and never less than before.
    fn edge(&self, step: u64) -> u64 {
        let edge = self.ring.start() + self.capacity.min(self.share);
        if edge >= self.told + step.min(self.capacity / 2) { edge } else { self.told }
    }

    /// The number and the window to acknowledge with; they count as advertised.
    pub(super) fn advertise(&mut self, step: u64) -> (Seq16, u16) {
        self.told = self.edge(step);
        (self.expected(), (self.told - self.next.min(self.told)) as u16)
    }

    /// Whether the window has grown by so much that it is to be advertised at once: the peer may be
    /// waiting for it, or does not know of half the buffer or two steps.
    pub(super) fn has_opened(&self, step: u64) -> bool {
        let untold = self.edge(step) - self.told;
        let tight = self.told - self.next.min(self.told) < step;
        !self.is_ended() && untold > 0 && (tight || untold >= (2 * step).min(self.capacity / 2))
    }

    /// What came since this was last true is all that a window lets go in packets of `step` bytes:
    /// the peer sends the next only when it gets that.
    pub(super) fn ends_flight(&mut self, step: u64) -> bool {
        let ends = self.next - self.flight + step > self.capacity.min(self.share);
        if ends {
            self.flight = self.next;
        }
        ends
    }

    /// The number of the next byte expected; an end that was received counts as one.
    pub(super) fn expected(&self) -> Seq16 {
        self.number(self.next) + u16::from(self.is_ended())
    }

    /// The next in-order segment: the first number held above the first gap (MOB-26).
    pub(super) fn held_above(&self) -> Option<Seq16> {
        let end = self.end.filter(|end| *end > self.next);
        let held = self.above.first().map(|range| range.start).or(end)?;
        Some(self.number(held))
    }

    /// Whether a reset with number `seq` can be the peer's.
    pub(super) fn is_near(&self, seq: Seq16) -> bool {
        // Behind the largest window and an end the number is 2^15 ahead.
        let ahead = u64::from(seq.since(self.number(self.next)));
        ahead <= self.told - self.next.min(self.told) + 1
    }

    /// Takes in what came under `seq`; what it was, and how many bytes of it are new.
    pub(super) fn on_data(&mut self, seq: Seq16, data: &[u8], fin: bool) -> (Arrival, u64) {
        let ahead = i64::from(seq.ahead_of(self.number(self.next)));
        if ahead == 0 && self.above.is_empty() && self.end.is_none() && !fin {
            return self.append(data);
        }
        // Offsets are far below 2^63, and less than 2^15 away.
        let start = self.next as i64 + ahead;
        let end = start + data.len() as i64;
        if fin && !self.set_end(end) {
            return (Arrival::Outside, 0);
        }
        self.insert(start, end, data, fin)
    }

    /// The usual case: the next in sequence.
    fn append(&mut self, data: &[u8]) -> (Arrival, u64) {
        let room = self.told.saturating_sub(self.next).min(data.len() as u64);
        if room == 0 {
            return (Arrival::Outside, 0);
        }
        self.ring.write(self.next, &data[..room as usize]);
        self.next += room;
        (Arrival::InOrder, room)
    }

    /// Sets the offset of the peer's end; false if that cannot be.
    fn set_end(&mut self, end: i64) -> bool {
        let Ok(end) = u64::try_from(end) else { return false };
        let received = self.above.iter().next_back().map_or(self.next, |last| last.end);
        let possible = match self.end {
            Some(known) => known == end,
            None => end >= received && end <= self.told,
        };
        if possible {
            self.end = Some(end);
        }
        possible
    }

    fn insert(&mut self, start: i64, end: i64, data: &[u8], fin: bool) -> (Arrival, u64) {
        let next = self.next as i64;
        let limit = self.end.unwrap_or(self.told).min(self.told) as i64;
        let (from, to) = (start.max(next), end.min(limit));
        if from >= to {
            return (self.classify_empty(start, end, fin), 0);
        }
        let new = &data[(from - start) as usize..(to - start) as usize];
        let (from, to) = (from as u64, to as u64);
        if from > self.next && self.above.fragments() >= PIECES_MAX {
            return (Arrival::Outside, 0);
        }
        self.ring.write(from, new);
        let added = self.above.insert(from..to);
        let Some(contiguous) = self.above.take_prefix(self.next) else {
            return (Arrival::AboveGap, added);
        };
        let gap_before = contiguous > to || !self.above.is_empty() || from > self.next;
        self.next = contiguous;
        (if gap_before { Arrival::Filled } else { Arrival::InOrder }, added)
    }

    /// What a packet was that brought no new byte.
    fn classify_empty(&self, start: i64, end: i64, fin: bool) -> Arrival {
        let next = self.next as i64;
        if fin && end == next {
            // The end itself: news for whoever has not acknowledged it.
            return Arrival::Filled;
        }
        if fin && start > next {
            return Arrival::AboveGap;
        }
        if end <= next { Arrival::Old } else { Arrival::Outside }
    }

    pub(super) fn readable(&self) -> &[u8] {
        self.ring.slices(self.ring.start()..self.next).0
    }

    pub(super) fn unread(&self) -> (&[u8], &[u8]) {
        self.ring.slices(self.ring.start()..self.next)
    }

    pub(super) fn consume(&mut self, n: usize) {
        let read = (self.ring.start() + n as u64).min(self.next);
        self.ring.advance(read);
    }

    /// Everything was received, the end too.
    pub(super) fn is_ended(&self) -> bool {
        self.end == Some(self.next)
    }

    /// Offset of the next byte expected.
    pub(super) fn received(&self) -> u64 {
        self.next
    }

    /// Unread bytes are of no use any more.
    pub(super) fn release(&mut self) {
        self.ring.advance(self.next);
        self.above.clear();
        self.ring.release();
        self.capacity = 0;
        self.told = self.told.min(self.next);
    }

    pub(super) fn memory(&self) -> usize {
        self.ring.capacity()
    }
}
