//! From the mobile to the fixed host: which segments the hop has lost (SNP-10).

use alloc::collections::VecDeque;

use lasthop_wire::tcp::{Segment, Seq};

use crate::cache::SPAN;

/// Holes of one connection that are remembered. A loss beyond them counts as congestion.
const HOLES: usize = 32;

/// What the mobile has sent as far as it crossed the hop.
#[derive(Clone, Debug, Default)]
pub(super) struct UploadLosses {
    /// After the highest byte.
    seen: Option<Seq>,
    /// What is missing below it, lowest first.
    holes: VecDeque<(Seq, Seq)>,
}

impl UploadLosses {
    /// The mobile has sent data. A gap is a loss on the hop; what the hop brings later fills it, for
    /// if that gets lost again, it is lost further on.
    pub(super) fn on_data(&mut self, segment: &Segment) {
        let (seq, end) = (segment.seq, segment.end());
        let seen = match self.seen {
            Some(seen) if seq.ahead_of(seen).unsigned_abs() <= SPAN => seen,
            _ => {
                self.holes.clear();
                self.seen = Some(end);
                return;
            }
        };
        if seq.ahead_of(seen) > 0 && self.holes.len() < HOLES {
            self.holes.push_back((seen, seq));
        } else if seq.ahead_of(seen) < 0 {
            self.fill(seq, end);
        }
        if end.ahead_of(seen) > 0 {
            self.seen = Some(end);
        }
    }

    /// The fixed host acknowledges up to `ack`: whether what it asks for next was lost on the hop.
    pub(super) fn on_ack(&mut self, ack: Seq) -> bool {
        while self.holes.front().is_some_and(|hole| hole.1.ahead_of(ack) <= 0) {
            self.holes.pop_front();
        }
        self.holes.front().is_some_and(|hole| ack.ahead_of(hole.0) >= 0)
    }

    fn fill(&mut self, seq: Seq, end: Seq) {
        let mut at = 0;
        while let Some(&(from, to)) = self.holes.get(at) {
            if end.ahead_of(from) <= 0 || to.ahead_of(seq) <= 0 {
                at += 1;
                continue;
            }
            let below = seq.ahead_of(from) > 0;
            let above = to.ahead_of(end) > 0;
            match (below, above) {
                (false, false) => {
                    self.holes.remove(at);
                    continue;
                }
                (true, false) => self.holes[at] = (from, seq),
                (false, true) => self.holes[at] = (end, to),
                (true, true) => {
                    self.holes[at] = (from, seq);
                    if self.holes.len() < HOLES {
                        self.holes.insert(at + 1, (end, to));
                    }
                }
            }
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn data(seq: u32, len: u32) -> Segment {
        Segment { seq: Seq(seq), len, ..Segment::default() }
    }

    fn after(segments: &[(u32, u32)]) -> UploadLosses {
        let mut half = UploadLosses::default();
        for (seq, len) in segments {
            half.on_data(&data(*seq, *len));
        }
        half
    }

    /// SNP-10: what was lost on the hop is distinguished from what was lost further on.
    #[test]
    fn only_an_acknowledgement_with_a_hole_shows_a_loss_on_the_hop() {
        let start = u32::MAX - 149;
        let mut half = after(&[(start, 100), (50, 100)]);
        assert!(!half.on_ack(Seq(start)), "this byte crossed the hop");
        assert!(half.on_ack(Seq(start) + 100));
        assert!(half.on_ack(Seq(0)), "in the middle of the hole");
        assert!(!half.on_ack(Seq(50)));
        assert!(half.holes.is_empty());
    }

    /// SNP-10: a retransmission that crossed the hop and is missing still was lost further on.
    #[test]
    fn what_the_hop_brings_later_fills_the_hole() {
        let mut half = after(&[(0, 100), (400, 100), (200, 100)]);
        assert!(half.on_ack(Seq(100)));
        assert!(!half.on_ack(Seq(200)));
        assert!(half.on_ack(Seq(300)));
        half.on_data(&data(300, 100));
        assert!(!half.on_ack(Seq(300)));
    }

    #[test]
    fn a_jump_begins_anew() {
        let mut half = after(&[(0, 100), (200, 100), (1 << 31, 100)]);
        assert!(!half.on_ack(Seq(100)));
        half.on_data(&data((1 << 31) + 200, 100));
        assert!(half.on_ack(Seq((1 << 31) + 100)));
    }

    proptest! {
        /// SNP-10: the holes are those of a plain list of bytes, as long as there are few enough.
        #[test]
        fn agrees_with_a_list_of_bytes(
            origin in prop_oneof![Just(u32::MAX - 100), any::<u32>()],
            segments in prop::collection::vec((0u32..200, 1u32..30), 1..20),
            beyond in 0u32..230,
        ) {
            let ack = segments[0].0 + beyond;
            let mut half = UploadLosses::default();
            let mut come = [false; 256];
            for (at, len) in &segments {
                half.on_data(&Segment { seq: Seq(origin) + *at, len: *len, ..Segment::default() });
                come[*at as usize..(at + len) as usize].fill(true);
            }
            let highest = segments.iter().map(|(at, len)| at + len).max().unwrap();
            let lost = ack < highest && !come[ack as usize];
            prop_assert_eq!(half.on_ack(Seq(origin) + ack), lost);
        }

        #[test]
        fn arbitrary_numbers_leave_it_bounded(
            segments in prop::collection::vec((any::<u32>(), any::<u32>(), any::<u32>()), 0..200),
        ) {
            let mut half = UploadLosses::default();
            for (seq, len, ack) in segments {
                half.on_data(&data(seq % (1 << 28), len));
                half.on_ack(Seq(ack));
                half.on_data(&data(seq, 1));
                prop_assert!(half.holes.len() <= HOLES);
            }
        }
    }
}
