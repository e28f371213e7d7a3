//! Which segments carried a congestion mark, for congestion coherence (CC-3).

use core::ops::Range;

/// Runs of marked segments that are remembered.
const RUNS: usize = 8;

/// The marked segments of the peer's stream that came last, in positions. Segments that follow one
/// another are one run, so that in a congested time a few runs reach far back.
#[derive(Clone, Copy, Default, Debug)]
pub struct Marks {
    /// The latest last; empty ranges are unused.
    runs: [(u64, u64); RUNS],
}

impl Marks {
    /// A marked segment came.
    pub fn record(&mut self, segment: Range<u64>) {
        let last = &mut self.runs[RUNS - 1];
        if last.1 == segment.start {
            last.1 = segment.end;
            return;
        }
        self.runs.copy_within(1.., 0);
        self.runs[RUNS - 1] = (segment.start, segment.end);
    }

    /// Whether a neighbour of `hole` carries a mark: the segment before it, or one that begins less
    /// than `behind` bytes after its end.
    pub fn are_near(&self, hole: Range<u64>, behind: u64) -> bool {
        let touches = |from: u64, to: u64| self.runs.iter().any(|run| run.0 < to && run.1 > from);
        touches(hole.start.saturating_sub(1), hole.start) || touches(hole.end, hole.end + behind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CC-3: the segment before a loss and one or two behind it tell, others do not.
    #[test]
    fn only_neighbours_of_a_hole_tell() {
        let near = |marked: u64, behind: u64| {
            let mut marks = Marks::default();
            marks.record(marked..marked + 1000);
            marks.are_near(5001..7001, behind * 1000)
        };
        assert!(!near(3001, 2));
        assert!(near(4001, 2) && near(4001, 1));
        assert!(near(7001, 1));
        assert!(!near(8001, 1) && near(8001, 2));
        assert!(!near(9001, 2));
    }

    #[test]
    fn segments_in_a_row_are_one_run_and_old_runs_are_forgotten() {
        let mut marks = Marks::default();
        (0..100).for_each(|n| marks.record(n * 10..n * 10 + 10));
        assert!(marks.are_near(5..5, 0) && marks.are_near(900..901, 0));
        (0..RUNS as u64).for_each(|n| marks.record(10_000 + n * 20..10_010 + n * 20));
        assert!(!marks.are_near(900..901, 10));
        assert!(marks.are_near(10_010..10_020, 0));
    }
}
