//! Copies of the segments that one end has sent and the other has not acknowledged.

use alloc::collections::VecDeque;

use lasthop_wire::tcp::Seq;

/// How far apart the first bytes of the segments in one cache may lie, and how long a segment may
/// be: the largest window that TCP knows (RFC 7323 section 2.3). Twice this is half the sequence
/// space, so whatever is kept has one order.
pub const SPAN: u32 = 1 << 30;

/// A segment that is kept.
#[derive(Clone, Debug)]
pub struct CachedSegment<P, M> {
    /// Of its first byte.
    pub seq: Seq,
    /// After its last byte; a FIN counts.
    pub end: Seq,
    /// The packet.
    pub packet: P,
    /// What the agent notes about it.
    pub note: M,
    /// No segment up to this one ends after it. Too far at worst: those that were dropped may count.
    reach: Seq,
}

impl<P, M> CachedSegment<P, M> {
    /// The byte at `seq` is in it.
    fn covers(&self, seq: Seq) -> bool {
        seq.ahead_of(self.seq) >= 0 && self.end.ahead_of(seq) > 0
    }
}

/// Segments in the order of their sequence numbers, which wrap; no two begin with the same byte.
/// Segments that were cut differently when they were sent again may overlap.
#[derive(Clone, Debug)]
pub struct Cache<P, M> {
    kept: VecDeque<CachedSegment<P, M>>,
    limit: usize,
    /// From the first to the last byte of each.
    bytes: u64,
}

/// What became of a segment that was offered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stored {
    /// It is kept.
    New,
    /// One with the same first byte was kept; this one replaced it, and the note stayed.
    Again,
    /// There is no room, it is empty, or it lies further than [`SPAN`] from one that is kept.
    Refused,
}

impl<P, M> Cache<P, M> {
    /// A cache of at most `limit` segments.
    pub const fn new(limit: usize) -> Self {
        Self { kept: VecDeque::new(), limit, bytes: 0 }
    }

    /// Segments that are kept.
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// None is kept.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// There is no room for another.
    pub fn is_full(&self) -> bool {
        self.kept.len() >= self.limit
    }

    /// Their lengths together, headers left out; a FIN counts as a byte.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Offers a segment that begins at `seq` and ends before `end`.
    pub fn store(&mut self, seq: Seq, end: Seq, packet: P, note: M) -> Stored {
        if end == seq || apart(seq, end) > SPAN || !self.is_near(seq) {
            return Stored::Refused;
        }
        let at = self.place(seq);
        if let Some(there) = self.kept.get_mut(at).filter(|kept| kept.seq == seq) {
            self.bytes = self.bytes - u64::from(apart(seq, there.end)) + u64::from(apart(seq, end));
            there.end = end;
            there.packet = packet;
            self.renew_reach(at);
            return Stored::Again;
        }
        if self.is_full() {
            return Stored::Refused;
        }
        self.bytes += u64::from(apart(seq, end));
        self.kept.insert(at, CachedSegment { seq, end, packet, note, reach: end });
        self.renew_reach(at);
        Stored::New
    }

    /// Drops the lowest ones that end at or before `ack`; how many went. A segment that lies within
    /// a longer one before it goes with that one.
    ///
    /// What `ack` means is for the caller to judge: one that is half the sequence space away counts
    /// as before or after, whichever is nearer.
    pub fn acknowledge(&mut self, ack: Seq) -> usize {
        let before = self.kept.len();
        while self.pop_acknowledged(ack).is_some() {}
        before - self.kept.len()
    }

    /// Takes the lowest one out, if it ends at or before `ack`.
    pub fn pop_acknowledged(&mut self, ack: Seq) -> Option<CachedSegment<P, M>> {
        if self.kept.front()?.end.ahead_of(ack) > 0 {
            return None;
        }
        self.pop_front()
    }

    /// The segment that holds the byte at `seq`: of several, the one that begins last.
    pub fn covering(&mut self, seq: Seq) -> Option<&mut CachedSegment<P, M>> {
        // Of those that begin at or before it the last one, unless an earlier one reaches further.
        let at = (0..self.place(seq + 1))
            .rev()
            .take_while(|&at| self.kept[at].reach.ahead_of(seq) > 0)
            .find(|&at| self.kept[at].covers(seq))?;
        self.kept.get_mut(at)
    }

    /// The segment that begins with the byte at `seq`.
    pub fn starting(&mut self, seq: Seq) -> Option<&mut CachedSegment<P, M>> {
        let at = self.place(seq);
        self.kept.get_mut(at).filter(|kept| kept.seq == seq)
    }

    /// All segments, lowest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &CachedSegment<P, M>> {
        self.kept.iter()
    }

    /// All segments, lowest first.
    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut CachedSegment<P, M>> {
        self.kept.iter_mut()
    }

    /// The lowest.
    pub fn front(&self) -> Option<&CachedSegment<P, M>> {
        self.kept.front()
    }

    /// The lowest.
    pub fn front_mut(&mut self) -> Option<&mut CachedSegment<P, M>> {
        self.kept.front_mut()
    }

    /// Drops the lowest.
    pub fn pop_front(&mut self) -> Option<CachedSegment<P, M>> {
        let kept = self.kept.pop_front()?;
        self.bytes -= u64::from(apart(kept.seq, kept.end));
        Some(kept)
    }

    /// Drops all.
    pub fn clear(&mut self) {
        self.kept.clear();
        self.bytes = 0;
    }

    /// All that are kept begin within [`SPAN`] of `seq`. The outermost two tell.
    fn is_near(&self, seq: Seq) -> bool {
        [self.kept.front(), self.kept.back()]
            .into_iter()
            .flatten()
            .all(|kept| seq.ahead_of(kept.seq).unsigned_abs() <= SPAN)
    }

    /// The segment at `from` is new or ends elsewhere than before.
    fn renew_reach(&mut self, from: usize) {
        let mut before =
            from.checked_sub(1).and_then(|at| self.kept.get(at)).map(|kept| kept.reach);
        for (n, kept) in self.kept.range_mut(from..).enumerate() {
            let reach = before.filter(|before| before.ahead_of(kept.end) > 0).unwrap_or(kept.end);
            if n > 0 && kept.reach == reach {
                return;
            }
            kept.reach = reach;
            before = Some(reach);
        }
    }

    /// Index of the first segment that begins at or after `seq`. What comes is mostly new, so the
    /// end is looked at first.
    fn place(&self, seq: Seq) -> usize {
        match self.kept.back() {
            Some(last) if last.seq.ahead_of(seq) >= 0 => {
                self.kept.partition_point(|kept| kept.seq.ahead_of(seq) < 0)
            }
            _ => self.kept.len(),
        }
    }
}

/// From `from` forward to `to`.
const fn apart(from: Seq, to: Seq) -> u32 {
    to.0.wrapping_sub(from.0)
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn cache(limit: usize, segments: &[(u32, u32)]) -> Cache<char, u32> {
        let mut cache = Cache::new(limit);
        for (n, (seq, end)) in (0..).zip(segments) {
            assert_eq!(cache.store(Seq(*seq), Seq(*end), 'a', n), Stored::New);
        }
        cache
    }

    fn starts(cache: &Cache<char, u32>) -> Vec<u32> {
        cache.iter().map(|kept| kept.seq.0).collect()
    }

    #[test]
    fn segments_are_in_order_across_the_wrap() {
        let end = u32::MAX - 9;
        let mut cache = cache(8, &[(end, 0), (10, 20), (end - 10, end), (0, 10)]);
        assert_eq!(starts(&cache), [end - 10, end, 0, 10]);
        assert_eq!(cache.covering(Seq(u32::MAX)).map(|kept| kept.seq), Some(Seq(end)));
        assert_eq!(cache.covering(Seq(19)).map(|kept| kept.seq), Some(Seq(10)));
        assert!(cache.covering(Seq(20)).is_none());
        assert_eq!(cache.acknowledge(Seq(5)), 2);
        assert_eq!(starts(&cache), [0, 10]);
    }

    #[test]
    fn the_same_first_byte_again_replaces_the_packet_and_keeps_the_note() {
        let mut cache = cache(1, &[(100, 200)]);
        assert_eq!(cache.store(Seq(100), Seq(150), 'b', 9), Stored::Again);
        let kept = cache.front().unwrap();
        assert_eq!((kept.end, kept.packet, kept.note), (Seq(150), 'b', 0));
    }

    #[test]
    fn a_full_cache_takes_no_more() {
        let mut cache = cache(2, &[(0, 10), (10, 20)]);
        assert!(cache.is_full());
        assert_eq!(cache.store(Seq(20), Seq(30), 'a', 0), Stored::Refused);
        assert!(cache.pop_front().is_some());
        assert_eq!(cache.store(Seq(20), Seq(30), 'a', 0), Stored::New);
    }

    #[test]
    fn what_is_too_far_away_too_long_or_empty_is_refused() {
        let mut cache = cache(8, &[(0, 10), (SPAN, SPAN + 10)]);
        for (seq, end) in [
            (SPAN + 1, SPAN + 2),
            (u32::MAX, 5),
            (1 << 31, (1 << 31) + 5),
            (20, 20),
            (20, 21 + SPAN),
            (20, 10),
        ] {
            assert_eq!(cache.store(Seq(seq), Seq(end), 'a', 0), Stored::Refused, "{seq}..{end}");
        }
        assert_eq!(cache.store(Seq(20), Seq(20 + SPAN), 'a', 0), Stored::New);
    }

    #[test]
    fn a_byte_is_found_in_a_longer_segment_behind_a_shorter_one() {
        let mut cache = cache(8, &[(0, 100), (10, 20)]);
        assert_eq!(cache.covering(Seq(15)).map(|kept| kept.seq), Some(Seq(10)));
        assert_eq!(cache.covering(Seq(50)).map(|kept| kept.seq), Some(Seq(0)));
        assert!(cache.covering(Seq(100)).is_none());
        assert_eq!(cache.acknowledge(Seq(50)), 0);
        assert_eq!(cache.acknowledge(Seq(100)), 2);
    }

    /// A byte behind a longer segment is found whatever came and went in between.
    #[test]
    fn how_far_segments_reach_follows_changes() {
        let mut cache = cache(8, &[(10, 20), (20, 30), (0, 25)]);
        assert_eq!(cache.covering(Seq(24)).map(|kept| kept.seq), Some(Seq(20)));
        assert_eq!(cache.store(Seq(20), Seq(22), 'b', 0), Stored::Again);
        assert_eq!(cache.covering(Seq(24)).map(|kept| kept.seq), Some(Seq(0)));
        assert_eq!(cache.store(Seq(0), Seq(5), 'b', 0), Stored::Again);
        assert!(cache.covering(Seq(24)).is_none());
        assert_eq!(cache.starting(Seq(20)).map(|kept| kept.end), Some(Seq(22)));
        assert!(cache.starting(Seq(21)).is_none());
        let reaches = [5, 20, 22].map(Seq);
        assert!(cache.iter().map(|kept| kept.reach).eq(reaches), "nothing is looked at in vain");
    }

    #[derive(Clone, Copy, Debug)]
    enum Op {
        Store { at: u32, len: u32 },
        Acknowledge { at: u32 },
        Hold { at: u32 },
        Pop,
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            6 => (0u32..400, 0u32..60).prop_map(|(at, len)| Op::Store { at, len }),
            2 => (0u32..500).prop_map(|at| Op::Acknowledge { at }),
            3 => (0u32..500).prop_map(|at| Op::Hold { at }),
            1 => Just(Op::Pop),
        ]
    }

    /// The same with numbers that do not wrap.
    #[derive(Default)]
    struct Model(BTreeMap<u32, (u32, char, u32)>);

    impl Model {
        fn store(&mut self, limit: usize, at: u32, len: u32, packet: char, note: u32) -> Stored {
            if len == 0 {
                return Stored::Refused;
            }
            if let Some(there) = self.0.get_mut(&at) {
                *there = (at + len, packet, there.2);
                return Stored::Again;
            }
            if self.0.len() >= limit {
                return Stored::Refused;
            }
            self.0.insert(at, (at + len, packet, note));
            Stored::New
        }

        fn acknowledge(&mut self, ack: u32) -> usize {
            let before = self.0.len();
            while self.0.first_key_value().is_some_and(|(_, kept)| kept.0 <= ack) {
                self.0.pop_first();
            }
            before - self.0.len()
        }

        fn covering(&self, byte: u32) -> Option<u32> {
            self.0.range(..=byte).rev().find(|(_, kept)| kept.0 > byte).map(|(at, _)| *at)
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_map_wherever_the_numbers_begin(
            origin in prop_oneof![Just(u32::MAX - 200), Just((1 << 31) - 200), any::<u32>()],
            limit in 1usize..20,
            ops in prop::collection::vec(op(), 0..80),
        ) {
            let at = |n: u32| Seq(origin) + n;
            let mut cache = Cache::new(limit);
            let mut model = Model::default();
            for (n, op) in (0u32..).zip(ops) {
                let packet = char::from(b'a' + (n % 26) as u8);
                match op {
                    Op::Store { at: seq, len } => prop_assert_eq!(
                        cache.store(at(seq), at(seq + len), packet, n),
                        model.store(limit, seq, len, packet, n)
                    ),
                    Op::Acknowledge { at: ack } => {
                        prop_assert_eq!(cache.acknowledge(at(ack)), model.acknowledge(ack));
                    }
                    Op::Hold { at: byte } => prop_assert_eq!(
                        cache.covering(at(byte)).map(|kept| kept.seq),
                        model.covering(byte).map(at)
                    ),
                    Op::Pop => prop_assert_eq!(
                        cache.pop_front().map(|kept| kept.seq),
                        model.0.pop_first().map(|(seq, _)| at(seq))
                    ),
                }
                let kept: Vec<_> =
                    cache.iter().map(|k| (k.seq, k.end, k.packet, k.note)).collect();
                let expected: Vec<_> =
                    model.0.iter().map(|(seq, k)| (at(*seq), at(k.0), k.1, k.2)).collect();
                prop_assert_eq!(kept, expected);
            }
        }

        #[test]
        fn arbitrary_numbers_keep_one_order_and_the_bound(
            segments in prop::collection::vec((any::<u32>(), any::<u32>()), 0..60),
            probes in prop::collection::vec(any::<u32>(), 0..20),
        ) {
            let mut cache = Cache::new(16);
            for (seq, end) in segments {
                cache.store(Seq(seq), Seq(end), 'a', 0);
                prop_assert!(cache.len() <= 16);
                let bytes: u64 = cache.iter().map(|k| u64::from(apart(k.seq, k.end))).sum();
                prop_assert_eq!(cache.bytes(), bytes);
                let starts: Vec<Seq> = cache.iter().map(|kept| kept.seq).collect();
                for (n, low) in starts.iter().enumerate() {
                    prop_assert!(starts[n + 1..].iter().all(|high| high.ahead_of(*low) > 0));
                }
            }
            for probe in probes {
                if let Some(kept) = cache.covering(Seq(probe)) {
                    prop_assert!(apart(kept.seq, Seq(probe)) < apart(kept.seq, kept.end));
                }
                cache.acknowledge(Seq(probe));
            }
        }
    }
}
