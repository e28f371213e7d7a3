//! The receiving half: what has arrived, and what the peer may send.
//!
//! Positions count from the peer's SYN: it has position 0, the stream's first byte 1.

use lasthop_stream::RangeSet;
use lasthop_wire::tcp::{SackBlocks, Seq};

/// Separate ranges above a gap that are kept at most. More would be a peer's whim.
const MAX_FRAGMENTS: usize = 256;

/// What became of a segment's payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SegmentFate {
    /// It came next.
    InOrder {
        /// Data above a gap was there, so that it fills all or part of a gap.
        fills: bool,
    },
    /// It was kept above a gap.
    AboveGap,
    /// All of it was there already.
    Duplicate,
    /// There is no room for it.
    Refused,
}

/// Which part of a payload was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TakenPayload {
    pub(crate) fate: SegmentFate,
    /// Position of the first byte taken.
    pub(crate) start: u64,
    /// Bytes of the payload before it.
    pub(crate) skip: u32,
    pub(crate) len: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Receiver {
    pub(crate) irs: Seq,
    /// RCV.NXT.
    pub(crate) nxt: u64,
    /// Everything before this was read.
    pub(crate) read: u64,
    /// The right edge of the window that was last advertised.
    pub(crate) edge: u64,
    /// The greatest edge that was ever advertised: what arrives below is taken.
    pub(crate) promised: u64,
    /// The peer's FIN, once it is known.
    pub(crate) fin: Option<u64>,
    buffer: u64,
    mss: u64,
    /// Shift of the windows that we send.
    pub(crate) shift: u8,
    /// The window is kept at or below this.
    limit: Option<u64>,
    /// What the limit is while the window is not shut.
    open_limit: Option<u64>,
    /// The window is kept at 0.
    shut: bool,
    /// So is it at or below this, but for what was advertised before.
    share: Option<u64>,
    pub(crate) ahead: RangeSet,
    /// A position in each of the ranges that arrived last, the latest first.
    recent: [u64; SackBlocks::MAX],
}

impl Receiver {
    pub(crate) fn new(buffer: u64, mss: u16) -> Self {
        Self {
            irs: Seq(0),
            nxt: 0,
            read: 1,
            edge: 0,
            promised: 0,
            fin: None,
            buffer: buffer.min(u64::from(u16::MAX) << 14),
            mss: u64::from(mss),
            shift: 0,
            limit: None,
            open_limit: None,
            shut: false,
            share: None,
            ahead: RangeSet::default(),
            recent: [0; SackBlocks::MAX],
        }
    }

    /// The shift that lets the window field express the whole buffer (RFC 7323 section 2.3).
    pub(crate) fn wanted_shift(&self) -> u8 {
        let mut shift = 0;
        while shift < 14 && self.buffer >> shift > u64::from(u16::MAX) {
            shift += 1;
        }
        shift
    }

    /// The peer's SYN arrived.
    pub(crate) fn begin(&mut self, irs: Seq) {
        self.irs = irs;
        self.nxt = 1;
        self.edge = 1;
        self.promised = 1;
    }

    #[inline]
    pub(crate) fn seq_at(&self, position: u64) -> Seq {
        // Sequence numbers are positions modulo 2^32.
        self.irs + position as u32
    }

    /// How far `seq` is ahead of RCV.NXT.
    #[inline]
    pub(crate) fn ahead_of_next(&self, seq: Seq) -> i64 {
        i64::from(seq.ahead_of(self.seq_at(self.nxt)))
    }

    /// What ends so far from RCV.NXT lies further back than any window that was open for it.
    pub(crate) fn is_outdated(&self, end: i64) -> bool {
        // A window field's rounding may lend a unit more than the buffer.
        let widest = self.buffer + (1 << self.shift);
        end < 0 && end.unsigned_abs() > widest
    }

    /// The end of the peer's stream was reached.
    #[inline]
    pub(crate) fn ended(&self) -> bool {
        self.fin.is_some_and(|fin| self.nxt > fin)
    }

    /// Bytes that can be read.
    #[inline]
    pub(crate) fn readable(&self) -> u64 {
        (self.nxt - u64::from(self.ended())).saturating_sub(self.read)
    }

    #[inline]
    pub(crate) fn consume(&mut self, n: u64) {
        self.read += n.min(self.readable());
    }

    /// Takes what is new and in the window of `len` bytes that begin `ahead` of RCV.NXT.
    #[inline]
    pub(crate) fn take(&mut self, ahead: i64, len: u32) -> TakenPayload {
        let behind = u32::try_from(-ahead.min(0)).unwrap_or(u32::MAX);
        let skip = behind.min(len);
        let start = self.nxt + u64::try_from(ahead).unwrap_or(0);
        let mut taken = TakenPayload { fate: SegmentFate::Duplicate, start, skip, len: len - skip };
        if taken.len == 0 {
            return taken;
        }
        let last = self.fin.map_or(self.promised, |fin| fin.min(self.promised));
        taken.len = u32::try_from(last.saturating_sub(start)).unwrap_or(u32::MAX).min(taken.len);
        let end = start + u64::from(taken.len);
        taken.fate = if taken.len == 0 {
            SegmentFate::Refused
        } else if start == self.nxt {
            self.advance(end)
        } else {
            self.keep(start, end)
        };
        if !matches!(taken.fate, SegmentFate::InOrder { .. } | SegmentFate::AboveGap) {
            taken.len = 0;
        }
        taken
    }

    #[inline]
    fn advance(&mut self, end: u64) -> SegmentFate {
        self.nxt = end;
        if self.ahead.is_empty() {
            return SegmentFate::InOrder { fills: false };
        }
        while let Some(end) = self.ahead.take_prefix(self.nxt) {
            self.nxt = self.nxt.max(end);
        }
        SegmentFate::InOrder { fills: true }
    }

    fn keep(&mut self, start: u64, end: u64) -> SegmentFate {
        if self.ahead.fragments() >= MAX_FRAGMENTS && self.ahead.containing(start).is_none() {
            return SegmentFate::Refused;
        }
        let added = self.ahead.insert(start..end);
        self.record_sack_block(start);
        if added == 0 { SegmentFate::Duplicate } else { SegmentFate::AboveGap }
    }

    /// Puts the range around `position` first among the recent ones.
    fn record_sack_block(&mut self, position: u64) {
        let range = self.ahead.containing(position);
        let same = |p: &u64| range.as_ref().is_some_and(|r| r.contains(p));
        let last = self.recent.len() - 1;
        let at = self.recent.iter().position(same).unwrap_or(last);
        self.recent.copy_within(0..at, 1);
        self.recent[0] = position;
    }

    /// The peer's FIN is at `position`.
    pub(crate) fn on_fin(&mut self, position: u64) {
        if self.fin.is_none() && position >= self.nxt && position <= self.promised {
            self.fin = Some(position);
            // Nothing follows a FIN, whatever a peer has sent before it.
            self.ahead.remove(position..u64::MAX);
        }
    }

    /// Steps over the FIN if all before it has arrived; true once.
    pub(crate) fn pass_fin(&mut self) -> bool {
        if self.fin == Some(self.nxt) {
            self.nxt += 1;
            // The FIN may follow the last byte that was promised.
            self.promised = self.promised.max(self.nxt);
            self.ahead.clear();
            return true;
        }
        false
    }

    /// What is held above the gap, the latest first (RFC 2018 section 4).
    pub(crate) fn blocks(&self, room: usize) -> SackBlocks {
        let mut blocks = SackBlocks::default();
        let mut seen = [0u64; SackBlocks::MAX];
        let mut n = 0;
        for &position in &self.recent {
            let Some(range) = self.ahead.containing(position) else { continue };
            if n < room && !seen[..n].contains(&range.start) {
                seen[n] = range.start;
                n += 1;
                blocks.push(self.seq_at(range.start), self.seq_at(range.end));
            }
        }
        blocks
    }

    /// Where a window begins: at RCV.NXT, or before the peer's SYN is known at its first byte.
    #[inline]
    fn first(&self) -> u64 {
        self.nxt.max(1)
    }

    /// The edge that the free buffer and the share allow (RWC-6).
    #[inline]
    fn candidate(&self) -> u64 {
        let free = self.read + self.buffer;
        let free = match self.share() {
            Some(share) => free.min(self.first().saturating_add(share)),
            None => free,
        };
        match self.limit {
            Some(limit) => free.min(self.nxt + limit),
            None => free,
        }
    }

    /// Keeps the window at or below `limit` from here on.
    pub(crate) fn set_limit(&mut self, limit: Option<u64>) {
        self.open_limit = limit;
        self.shut(self.shut);
    }

    /// Shuts the window, or opens it as far as the limit allows. What was promised is still taken.
    pub(crate) fn shut(&mut self, shut: bool) {
        self.shut = shut;
        self.limit = if shut { Some(0) } else { self.open_limit };
    }

    pub(crate) const fn is_shut(&self) -> bool {
        self.shut
    }

    /// Keeps the window at or below `share` from here on, without taking back what was promised.
    pub(crate) fn set_share(&mut self, share: Option<u64>) {
        self.share = share;
    }

    /// The share in whole units of the window field: rounded down, a share of so many segments would
    /// let through one less.
    #[inline]
    fn share(&self) -> Option<u64> {
        self.share.map(|share| share.min(self.buffer).next_multiple_of(1 << self.shift))
    }

    /// The widest window that can be advertised.
    #[inline]
    fn widest(&self) -> u64 {
        self.share().map_or(self.buffer, |share| share.min(self.buffer))
    }

    /// The window field to send, and the promise that it makes. The edge advances only by steps
    /// worth a segment (RFC 9293 section 3.8.6.2.2) and does not go back unless a limit asks for it.
    #[inline]
    pub(crate) fn advertise(&mut self, shift: u8) -> u16 {
        let candidate = self.candidate();
        let step = self.mss.min(self.buffer / 2).min(self.widest());
        let edge = if self.limit.is_some() || candidate >= self.edge + step {
            candidate
        } else {
            self.edge
        };
        let field = self.field(edge, shift);
        self.edge = self.first() + (u64::from(field) << shift);
        self.promised = self.promised.max(self.edge);
        field
    }

    #[inline]
    fn field(&self, edge: u64, shift: u8) -> u16 {
        let wanted = edge.saturating_sub(self.first());
        let mut field = wanted >> shift;
        // Rounding down would take back what was advertised; rounding up lends it less than one
        // unit of the field beyond the buffer.
        if self.limit.is_none() && field << shift < self.edge.saturating_sub(self.first()) {
            let up = (field + 1) << shift;
            let lendable = self.read + self.buffer + (1 << shift);
            field += u64::from(self.first() + up <= lendable);
        }
        u16::try_from(field).unwrap_or(u16::MAX)
    }

    /// The reader made so much room that a window update should be sent at once.
    pub(crate) fn needs_window_update(&self) -> bool {
        let gained = self.candidate().saturating_sub(self.edge);
        let open = self.edge.saturating_sub(self.nxt);
        let widest = self.widest();
        (gained > 0 && gained * 2 >= widest) || (gained >= 2 * self.mss && open < widest / 2)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn receiver(buffer: u64, mss: u16) -> Receiver {
        let mut r = Receiver::new(buffer, mss);
        r.begin(Seq(u32::MAX));
        r.shift = r.wanted_shift();
        r.advertise(r.shift);
        r
    }

    proptest! {
        /// RFC 9293 section 3.8.6, RWC-9: the right edge does not go back, and what is promised beyond
        /// the buffer is less than one unit of the window field, however the reader, the peer and the
        /// user act.
        #[test]
        fn the_edge_neither_retreats_nor_runs_away(
            buffer in 1000u64..5_000_000,
            mss in 48u16..2000,
            steps in prop::collection::vec((1u32..3000, 0u64..4000, 0i64..3), 1..200),
            shares in prop::collection::vec(prop::option::of(0u64..200_000), 1..20),
        ) {
            let mut r = receiver(buffer, mss);
            for (step, (len, read, gap)) in steps.into_iter().enumerate() {
                r.set_share(shares[step % shares.len()]);
                let before = r.edge;
                r.take(gap * 500, len);
                r.consume(read);
                r.advertise(r.shift);
                let unit = 1u64 << r.shift;
                prop_assert!(r.edge + unit > before, "retreats by {}", before - r.edge);
                prop_assert!(r.edge.max(r.promised) <= r.read + buffer + unit);
                prop_assert!(r.nxt <= r.promised && r.read <= r.nxt);
            }
        }
    }

    /// The window field, as the peer understands it.
    fn window(r: &mut Receiver) -> u64 {
        u64::from(r.advertise(r.shift)) << r.shift
    }

    fn read(r: &mut Receiver, len: u32) {
        r.take(0, len);
        r.consume(u64::from(len));
    }

    /// RWC-6: the window is the share, or the free buffer where that is less; RWC-12: in bytes,
    /// rounded up to what the field can express, so that so many segments pass.
    #[test]
    fn the_window_is_the_lesser_of_share_and_free_buffer() {
        let mut r = Receiver::new(100_000, 1000);
        r.shift = r.wanted_shift();
        r.begin(Seq(7));
        r.set_share(Some(21_000));
        assert_eq!((r.shift, window(&mut r)), (1, 21_000));
        r.take(0, 1000);
        assert_eq!(window(&mut r), 21_000, "what is unread takes room from the buffer only");
        let mut slow = Receiver::new(8000, 1000);
        slow.begin(Seq(7));
        slow.set_share(Some(5000));
        slow.advertise(0);
        (0..5).for_each(|_| assert_eq!(slow.take(0, 1000).len, 1000));
        assert_eq!(window(&mut slow), 3000);

        let mut rough = Receiver::new(4 << 20, 1000);
        rough.shift = rough.wanted_shift();
        rough.begin(Seq(7));
        rough.set_share(Some(21_000));
        assert_eq!((rough.shift, window(&mut rough)), (7, 165 << 7));
    }

    /// RWC-12: without window scaling no window is wider than the field.
    #[test]
    fn without_scaling_a_share_ends_at_65535() {
        let mut r = Receiver::new(1 << 20, 1000);
        r.begin(Seq(7));
        r.set_share(Some(100_000));
        assert_eq!(window(&mut r), 65_535);
    }

    /// RWC-9: a lesser share holds the right edge until what is in flight has used it up, then the
    /// window is as wide as the share; a greater one opens it at once.
    #[test]
    fn a_lesser_share_never_moves_the_edge_back() {
        let mut r = Receiver::new(60_000, 1000);
        r.begin(Seq(7));
        r.set_share(Some(16_000));
        assert_eq!(window(&mut r), 16_000);
        r.set_share(Some(11_000));
        let windows: Vec<u64> = (0..7)
            .map(|_| {
                read(&mut r, 1000);
                window(&mut r)
            })
            .collect();
        assert_eq!(windows, [15_000, 14_000, 13_000, 12_000, 11_000, 11_000, 11_000]);
        r.set_share(Some(21_000));
        assert_eq!(window(&mut r), 21_000);
        r.set_share(None);
        assert_eq!(window(&mut r), 60_000);
    }

    /// RWC-8: a share below a segment opens all the same, or its peer would wait for ever.
    #[test]
    fn a_share_below_a_segment_opens() {
        let mut r = Receiver::new(60_000, 1000);
        r.begin(Seq(7));
        r.set_share(Some(500));
        for _ in 0..3 {
            assert_eq!(window(&mut r), 500);
            read(&mut r, 500);
        }
    }

    /// FRZ-3: a window that a limit had narrowed before it was shut opens as far as that.
    #[test]
    fn a_limit_outlasts_a_shut_window() {
        let mut r = Receiver::new(60_000, 1000);
        r.begin(Seq(7));
        r.set_limit(Some(5000));
        assert_eq!(window(&mut r), 5000);
        r.shut(true);
        assert_eq!(window(&mut r), 0);
        r.shut(false);
        assert_eq!(window(&mut r), 5000);
        r.shut(true);
        r.set_limit(None);
        assert_eq!(window(&mut r), 0);
        r.shut(false);
        assert_eq!(window(&mut r), 60_000);
    }

    #[test]
    fn a_share_of_one_segment_is_renewed_with_each() {
        let mut r = Receiver::new(60_000, 1000);
        r.begin(Seq(7));
        r.set_share(Some(1000));
        assert_eq!(window(&mut r), 1000);
        for _ in 0..5 {
            read(&mut r, 1000);
            assert!(r.needs_window_update());
            assert_eq!(window(&mut r), 1000);
        }
        r.set_share(Some(0));
        read(&mut r, 1000);
        assert!(!r.needs_window_update());
        assert_eq!(window(&mut r), 0);
        r.set_share(Some(2000));
        assert!(r.needs_window_update());
    }

    #[test]
    fn what_is_there_already_is_skipped() {
        let mut r = receiver(10_000, 1000);
        r.take(0, 1000);
        let taken = r.take(-400, 1000);
        assert_eq!((taken.start, taken.skip, taken.len), (1001, 400, 600));
        assert_eq!(r.take(-1600, 1600).fate, SegmentFate::Duplicate);
        assert_eq!(r.readable(), 1600);
    }

    #[test]
    fn nothing_is_taken_beyond_the_promise_or_the_end() {
        let mut r = receiver(2000, 1000);
        let taken = r.take(1500, 1000);
        assert_eq!((taken.fate, taken.len), (SegmentFate::AboveGap, 500));
        r.on_fin(1201);
        assert_eq!(r.take(0, 1500).len, 1200);
        assert_eq!(r.nxt, 1201);
        assert!(r.pass_fin() && r.ended());
        assert_eq!((r.readable(), r.take(0, 10).fate), (1200, SegmentFate::Refused));
    }

    #[test]
    fn a_fin_may_follow_the_last_byte_of_the_window() {
        let mut r = receiver(2000, 1000);
        assert_eq!(r.take(0, 2000).len, 2000);
        r.on_fin(r.nxt);
        assert!(r.pass_fin());
        assert!(r.nxt <= r.promised);
    }

    #[test]
    fn a_peer_cannot_make_it_remember_without_bound() {
        let mut r = receiver(1_000_000, 1000);
        let kept = (1..2000).filter(|n| r.take(n * 10, 5).fate == SegmentFate::AboveGap).count();
        assert_eq!((kept, r.ahead.fragments()), (MAX_FRAGMENTS, MAX_FRAGMENTS));
    }
}
