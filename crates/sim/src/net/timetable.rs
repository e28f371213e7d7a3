//! Who is next: a tournament over all sources of events.

use lasthop_units::Time;

/// The next time of each source. Of those with the earliest the lowest number wins, so that the
/// order of events depends on nothing else. A change costs at most one match for each doubling of
/// the number of sources.
#[derive(Debug, Default)]
pub(super) struct Timetable {
    /// A tree in the shape of a heap: the winner of nodes `2i` and `2i + 1` is node `i`'s, and the
    /// second half are the sources themselves.
    nodes: Vec<Entry>,
    leaves: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    at: Time,
    source: u32,
}

impl Timetable {
    /// Makes room for `sources`, all without a time.
    pub(super) fn reset(&mut self, sources: usize) {
        self.leaves = sources.next_power_of_two().max(2);
        self.nodes.clear();
        self.nodes.resize(2 * self.leaves, Entry { at: Time::NEVER, source: 0 });
        for (source, leaf) in self.nodes[self.leaves..].iter_mut().enumerate() {
            leaf.source = source as u32;
        }
        for node in (1..self.leaves).rev() {
            self.nodes[node] = self.winner(node);
        }
    }

    /// When a source is next.
    #[inline]
    pub(super) fn time(&self, source: usize) -> Time {
        self.nodes[self.leaves + source].at
    }

    /// Changes when `source` is next.
    #[inline]
    pub(super) fn set(&mut self, source: usize, at: Time) {
        let mut node = self.leaves + source;
        if self.nodes[node].at == at {
            return;
        }
        // The winner so far stays in registers, and who wins is chosen without a branch: which
        // source is next is what no branch predictor knows.
        let mut winner = Entry { at, source: source as u32 };
        self.nodes[node] = winner;
        while node > 1 {
            let other = self.nodes[node ^ 1];
            let loses =
                (other.at < winner.at) | ((other.at == winner.at) & (other.source < winner.source));
            winner.at = core::hint::select_unpredictable(loses, other.at, winner.at);
            winner.source = core::hint::select_unpredictable(loses, other.source, winner.source);
            node /= 2;
            self.nodes[node] = winner;
        }
    }

    /// The earliest time and its source.
    #[inline]
    pub(super) fn next(&self) -> (Time, usize) {
        let Entry { at, source } = self.nodes[1];
        (at, source as usize)
    }

    #[inline]
    fn winner(&self, node: usize) -> Entry {
        let (left, right) = (self.nodes[2 * node], self.nodes[2 * node + 1]);
        if right.at < left.at { right } else { left }
    }
}

#[cfg(test)]
mod tests {
    use lasthop_units::Seed;

    use super::*;

    #[test]
    fn the_earliest_is_next_and_the_lowest_of_equals() {
        let mut table = Timetable::default();
        let mut random = Seed::from_u64(1).stream("times");
        for sources in [1, 2, 3, 10, 17] {
            table.reset(sources);
            for _ in 0..1000 {
                let source = random.below(sources as u64) as usize;
                table.set(source, Time::from_nanos(random.below(20)));
                let times = || (0..sources).map(|source| table.time(source));
                let least = times().min().expect("a time");
                let first = times().position(|at| at == least).expect("a source");
                assert_eq!(table.next(), (least, first));
            }
        }
    }
}
