//! The scoreboard of selective acknowledgements (RFC 6675).

use core::ops::Range;

use lasthop_stream::RangeSet;

/// Separate ranges that are remembered at most.
const MAX_FRAGMENTS: usize = 256;

/// What the peer holds above its cumulative acknowledgement, in positions of our sequence space.
#[derive(Clone, Default, Debug)]
pub(crate) struct Scoreboard {
    sacked: RangeSet,
    /// All holes below were sent again in this recovery (HighRxt).
    high_rxt: u64,
    /// All holes below are lost (IsLost).
    lost_below: u64,
    /// Bytes that are taken to be in the network.
    pipe: u64,
}

impl Scoreboard {
    pub(crate) fn is_empty(&self) -> bool {
        self.sacked.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.sacked.clear();
        self.lost_below = 0;
        self.high_rxt = 0;
    }

    /// Notes that the peer holds `range`; true if that is news.
    pub(crate) fn record(&mut self, range: Range<u64>) -> bool {
        if range.start >= range.end {
            return false;
        }
        if self.sacked.fragments() >= MAX_FRAGMENTS && self.sacked.containing(range.start).is_none()
        {
            return false;
        }
        self.sacked.insert(range) > 0
    }

    /// Everything before `una` is acknowledged.
    pub(crate) fn advance(&mut self, una: u64) {
        if !self.sacked.is_empty() {
            self.sacked.remove(0..una);
        }
    }

    /// Recovery begins: nothing was sent again yet.
    pub(crate) fn begin(&mut self, una: u64) {
        self.high_rxt = una;
    }

    /// Works out what is lost and what is in the network (RFC 6675 section 4: IsLost, SetPipe).
    pub(crate) fn update(&mut self, una: u64, max: u64, mss: u64) {
        let (mut bytes, mut ranges) = (0, 0);
        self.lost_below = una;
        for range in self.sacked.iter().rev() {
            bytes += range.end - range.start;
            ranges += 1;
            if ranges >= 3 || bytes > 2 * mss {
                self.lost_below = range.start.max(una);
                break;
            }
        }
        self.high_rxt = self.high_rxt.max(una);
        self.pipe = self.holes(self.lost_below..max) + self.holes(una..self.high_rxt);
    }

    fn holes(&self, of: Range<u64>) -> u64 {
        self.sacked.missing_in(of).map(|r| r.end - r.start).sum()
    }

    /// The first unacknowledged byte is lost by the scoreboard.
    pub(crate) fn first_is_lost(&self, una: u64) -> bool {
        self.lost_below > una
    }

    pub(crate) fn pipe(&self) -> u64 {
        self.pipe
    }

    /// The next hole to send again: one that is lost, or with `any` one below what the peer holds.
    pub(crate) fn next_hole(&self, any: bool) -> Option<Range<u64>> {
        let end = if any { self.sacked.iter().next_back()?.end } else { self.lost_below };
        self.sacked.missing_in(self.high_rxt..end.max(self.high_rxt)).next()
    }

    /// `range` was sent: again, or for the first time.
    pub(crate) fn on_sent(&mut self, range: &Range<u64>, again: bool) {
        self.pipe += range.end - range.start;
        if again {
            self.high_rxt = self.high_rxt.max(range.end);
        }
    }

    /// The first part of `of` that the peer does not hold.
    pub(crate) fn first_missing(&self, of: Range<u64>) -> Option<Range<u64>> {
        self.sacked.missing_in(of).next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_ranges_above_make_a_hole_a_loss() {
        let mut b = Scoreboard::default();
        b.begin(0);
        assert!(b.record(10..20));
        assert!(!b.record(12..18));
        b.record(30..40);
        b.update(0, 100, 1000);
        assert!(!b.first_is_lost(0));
        assert_eq!(b.pipe(), 80);
        b.record(50..60);
        b.update(0, 100, 1000);
        assert!(b.first_is_lost(0));
        // 0..10 is lost; 20..30, 40..50 and 60..100 are out.
        assert_eq!(b.pipe(), 60);
        assert_eq!(b.next_hole(false), Some(0..10));
        b.on_sent(&(0..10), true);
        assert_eq!((b.pipe(), b.next_hole(false), b.next_hole(true)), (70, None, Some(20..30)));
    }

    #[test]
    fn more_than_two_segments_above_make_a_hole_a_loss() {
        let mut b = Scoreboard::default();
        b.begin(0);
        b.record(100..300);
        b.update(0, 400, 100);
        assert!(!b.first_is_lost(0));
        b.record(300..301);
        b.update(0, 400, 100);
        assert!(b.first_is_lost(0));
        b.advance(301);
        b.update(301, 400, 100);
        assert_eq!((b.pipe(), b.next_hole(true)), (99, None));
    }

    #[test]
    fn a_peer_cannot_make_it_grow_without_bound() {
        let mut b = Scoreboard::default();
        (0..10_000u64).for_each(|n| {
            b.record(3 * n..3 * n + 1);
        });
        assert_eq!(b.sacked.fragments(), MAX_FRAGMENTS);
    }
}
