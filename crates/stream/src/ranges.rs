//! Sets of numbers kept as sorted, disjoint, non-touching ranges.

use alloc::collections::VecDeque;
use core::ops::Range;

/// A set of `u64`, such as offsets of a stream. Inserting at either end, the usual case, moves
/// nothing.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RangeSet {
    ranges: VecDeque<Range<u64>>,
}

impl RangeSet {
    /// Adds `new`; how many of its numbers were not there before.
    pub fn insert(&mut self, new: Range<u64>) -> u64 {
        if new.is_empty() {
            return 0;
        }
        // The common cases: nothing there, or the new range at or after the last one.
        match self.ranges.back_mut() {
            None => {
                self.ranges.push_back(new.clone());
                return new.end - new.start;
            }
            Some(last) if new.start == last.end => {
                last.end = new.end;
                return new.end - new.start;
            }
            Some(last) if new.start > last.end => {
                self.ranges.push_back(new.clone());
                return new.end - new.start;
            }
            Some(_) => {}
        }
        // All ranges that touch the new one merge with it.
        let from = self.ranges.partition_point(|r| r.end < new.start);
        let to = self.ranges.partition_point(|r| r.start <= new.end);
        if from == to {
            self.ranges.insert(from, new.clone());
            return new.end - new.start;
        }
        let merged = new.start.min(self.ranges[from].start)..new.end.max(self.ranges[to - 1].end);
        let before: u64 = self.ranges.range(from..to).map(|r| r.end - r.start).sum();
        let added = merged.end - merged.start - before;
        self.ranges[from] = merged;
        if to - from > 1 {
            self.ranges.drain(from + 1..to);
        }
        added
    }

    /// Removes `gone`.
    pub fn remove(&mut self, gone: Range<u64>) {
        if gone.is_empty() {
            return;
        }
        let from = self.ranges.partition_point(|r| r.end <= gone.start);
        let to = self.ranges.partition_point(|r| r.start < gone.end);
        if from >= to {
            return;
        }
        let left = self.ranges[from].start..gone.start;
        let right = gone.end..self.ranges[to - 1].end;
        match (left.start < left.end, right.start < right.end) {
            (true, true) if to - from == 1 => {
                self.ranges[from] = left;
                self.ranges.insert(from + 1, right);
            }
            (true, true) => {
                self.ranges[from] = left;
                self.ranges[to - 1] = right;
                self.ranges.drain(from + 1..to - 1);
            }
            (true, false) => {
                self.ranges[from] = left;
                self.ranges.drain(from + 1..to);
            }
            (false, true) => {
                self.ranges[to - 1] = right;
                self.ranges.drain(from..to - 1);
            }
            (false, false) => {
                self.ranges.drain(from..to);
            }
        }
    }

    /// The lowest range.
    pub fn first(&self) -> Option<Range<u64>> {
        self.ranges.front().cloned()
    }

    /// Removes the lowest range, if it starts at `start`, and returns its end.
    pub fn take_prefix(&mut self, start: u64) -> Option<u64> {
        let first = self.ranges.front()?;
        if first.start > start {
            return None;
        }
        let end = first.end;
        self.ranges.pop_front();
        Some(end)
    }

    /// The parts of `of` that are not in the set, lowest first.
    pub fn missing_in(&self, of: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let from = self.ranges.partition_point(|r| r.end <= of.start);
        let mut next = of.start;
        let end = of.end;
        let mut inside = self.ranges.range(from..);
        core::iter::from_fn(move || {
            while next < end {
                let gap = match inside.next() {
                    Some(r) if r.start < end => {
                        let gap = next..r.start;
                        next = r.end;
                        gap
                    }
                    _ => {
                        let gap = next..end;
                        next = end;
                        gap
                    }
                };
                if gap.start < gap.end {
                    return Some(gap);
                }
            }
            None
        })
    }

    /// The range that holds `n`.
    pub fn containing(&self, n: u64) -> Option<Range<u64>> {
        let at = self.ranges.partition_point(|r| r.end <= n);
        self.ranges.get(at).filter(|r| r.start <= n).cloned()
    }

    /// The ranges, lowest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Range<u64>> + '_ {
        self.ranges.iter().cloned()
    }

    /// How many separate ranges there are.
    pub fn fragments(&self) -> usize {
        self.ranges.len()
    }

    /// Nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Takes everything out.
    pub fn clear(&mut self) {
        self.ranges.clear();
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn members(set: &RangeSet) -> BTreeSet<u64> {
        set.ranges.iter().flat_map(Clone::clone).collect()
    }

    fn is_normal(set: &RangeSet) -> bool {
        let r: Vec<_> = set.ranges.iter().collect();
        r.iter().all(|r| r.start < r.end) && r.windows(2).all(|w| w[0].end < w[1].start)
    }

    proptest! {
        #[test]
        fn agrees_with_a_plain_set(
            ops in prop::collection::vec((any::<bool>(), 0u64..100, 0u64..20), 0..60),
            probe in (0u64..100, 0u64..40),
        ) {
            let mut set = RangeSet::default();
            let mut oracle = BTreeSet::new();
            for (add, start, len) in ops {
                let range = start..start + len;
                if add {
                    let added = range.clone().filter(|n| oracle.insert(*n)).count() as u64;
                    prop_assert_eq!(set.insert(range), added);
                } else {
                    range.clone().for_each(|n| { oracle.remove(&n); });
                    set.remove(range);
                }
                prop_assert!(is_normal(&set), "{:?}", set);
                prop_assert_eq!(members(&set), oracle.clone());
            }
            for n in 0..120 {
                let held = set.containing(n).is_some_and(|r| r.contains(&n));
                prop_assert_eq!(held, oracle.contains(&n));
            }
            prop_assert_eq!(set.iter().flatten().collect::<BTreeSet<u64>>(), oracle.clone());
            let of = probe.0..probe.0 + probe.1;
            let gaps: BTreeSet<u64> = set.missing_in(of.clone()).flatten().collect();
            let expected: BTreeSet<u64> = of.filter(|n| !oracle.contains(n)).collect();
            prop_assert_eq!(gaps, expected);
        }
    }
}
