//! A total divided among flows by priority: receiver window control (rwc-atcp-2003 section IV).

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use thiserror::Error;

/// Why a flow does not take part.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SharesError {
    /// A flow of that name takes part already: change its priority instead.
    #[error("the flow takes part already")]
    Known,
    /// As many flows as were allowed take part.
    #[error("as many flows as are allowed take part already")]
    Full,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Flow<K> {
    key: K,
    priority: u32,
    share: u64,
}

/// Divides a total of whole units, for TCP packets, among flows in proportion to their priorities
/// (RWC-1 to RWC-5).
///
/// With `A` the total, `x_i` the priority of flow i and `k` the flow that takes the remainder, every
/// flow but k gets `A x_i / sum x`, rounded half up (equation 2), and k what is left (equation 3).
/// Flow k is the one whose priority changed last, or that was added last; after a removal or a
/// change of the total the one of highest priority, of several the one that was added first
/// (RWC-10). Rounding up may leave less than nothing for k.
///
/// Where the paper is silent (RWC-8), no flow gets less than one unit: what is short is taken from
/// the largest shares, unit by unit. A flow of priority 0 gets that one unit; if all have 0, all are
/// alike. The shares add up to the total, unless there are more flows than units: then each has
/// exactly one, for a flow without a window would stand still.
///
/// Shares depend on the present priorities and on k, not on how they came about. Each change takes
/// time in proportion to the number of flows, with its logarithm for what the floor takes. Who has
/// many changes to make at a time makes them together.
#[derive(Clone, Debug)]
pub struct Shares<K> {
    total: u64,
    most: usize,
    flows: Vec<Flow<K>>,
}

impl<K: Copy + Eq> Shares<K> {
    /// A total of `total` units for at most `most` flows, of which there are none yet.
    pub const fn new(total: u64, most: usize) -> Self {
        Self { total, most, flows: Vec::new() }
    }

    /// What is divided, in units.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Flows that take part.
    pub fn len(&self) -> usize {
        self.flows.len()
    }

    /// No flow takes part.
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// A flow begins; the remainder is its own.
    ///
    /// # Errors
    ///
    /// The flow takes part already, or as many as were allowed do; nothing has changed.
    pub fn add(&mut self, key: K, priority: u32) -> Result<(), SharesError> {
        if self.index(key).is_some() {
            return Err(SharesError::Known);
        }
        if self.flows.len() >= self.most {
            return Err(SharesError::Full);
        }
        self.flows.push(Flow { key, priority, share: 0 });
        self.divide(self.flows.len() - 1);
        Ok(())
    }

    /// A flow ended; whether it took part.
    pub fn remove(&mut self, key: K) -> bool {
        let Some(index) = self.index(key) else { return false };
        self.flows.remove(index);
        self.divide_for_highest();
        true
    }

    /// Changes one flow's priority; whether it takes part.
    pub fn set_priority(&mut self, key: K, priority: u32) -> bool {
        self.set_priorities([(key, priority)]) == 1
    }

    /// Changes several priorities at once: the remainder goes to the last that takes part (RWC-10).
    /// How many take part; the others are left out.
    pub fn set_priorities(&mut self, changes: impl IntoIterator<Item = (K, u32)>) -> usize {
        let (mut last, mut known) = (None, 0);
        for (key, priority) in changes {
            let Some(index) = self.index(key) else { continue };
            self.flows[index].priority = priority;
            last = Some(index);
            known += 1;
        }
        if let Some(last) = last {
            self.divide(last);
        }
        known
    }

    /// These flows take part from here on, each named once, in place of those that did; `last` takes
    /// the remainder, or if it is none of them the one of highest priority. As many as are allowed:
    /// further ones are left out.
    pub fn replace(&mut self, flows: impl IntoIterator<Item = (K, u32)>, last: Option<K>) {
        self.flows.clear();
        let flows = flows.into_iter().take(self.most);
        self.flows.extend(flows.map(|(key, priority)| Flow { key, priority, share: 0 }));
        match last.and_then(|last| self.index(last)) {
            Some(last) => self.divide(last),
            None => self.divide_for_highest(),
        }
    }

    /// There is more or less to divide.
    pub fn set_total(&mut self, total: u64) {
        self.total = total;
        self.divide_for_highest();
    }

    /// A flow's priority.
    pub fn priority(&self, key: K) -> Option<u32> {
        self.index(key).map(|index| self.flows[index].priority)
    }

    /// A flow's share, in units.
    pub fn share(&self, key: K) -> Option<u64> {
        self.index(key).map(|index| self.flows[index].share)
    }

    /// Every flow with its share in units, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (K, u64)> + '_ {
        self.flows.iter().map(|flow| (flow.key, flow.share))
    }

    fn index(&self, key: K) -> Option<usize> {
        self.flows.iter().position(|flow| flow.key == key)
    }

    fn divide_for_highest(&mut self) {
        let priorities = self.flows.iter().map(|flow| flow.priority).enumerate();
        // Of equals the last maximum counts, so they are looked at from behind.
        if let Some((index, _)) = priorities.rev().max_by_key(|(_, priority)| *priority) {
            self.divide(index);
        }
    }

    /// Equations 2 and 3, with the flow at `k` taking the remainder.
    fn divide(&mut self, k: usize) {
        if self.flows.len() as u64 >= self.total {
            self.flows.iter_mut().for_each(|flow| flow.share = 1);
            return;
        }
        let sum: u64 = self.flows.iter().map(|flow| u64::from(flow.priority)).sum();
        let count = self.flows.len() as u64;
        let mut given: u128 = 0;
        for (index, flow) in self.flows.iter_mut().enumerate() {
            let (part, whole) = if sum == 0 { (1, count) } else { (flow.priority.into(), sum) };
            if index != k {
                flow.share = rounded_half_up(self.total, part, whole).max(1);
                given += u128::from(flow.share);
            }
        }
        // At least one for k too.
        let rest = u128::from(self.total).saturating_sub(given).max(1);
        if let Some(flow) = self.flows.get_mut(k) {
            flow.share = u64::try_from(rest).unwrap_or(u64::MAX);
        }
        self.take_back((given + rest).saturating_sub(u128::from(self.total)));
    }

    /// Takes what was given too much from the largest shares, unit by unit. Rounding and the floor
    /// give each flow at most one unit more than its due.
    fn take_back(&mut self, excess: u128) {
        if excess == 0 {
            return;
        }
        // Of equals the one that was added first gives.
        let shares = self.flows.iter().enumerate();
        let mut largest: BinaryHeap<(u64, Reverse<usize>)> =
            shares.map(|(index, flow)| (flow.share, Reverse(index))).collect();
        for _ in 0..excess {
            let Some(mut top) = largest.peek_mut().filter(|top| top.0 > 1) else { break };
            top.0 -= 1;
        }
        for (share, Reverse(index)) in largest {
            self.flows[index].share = share;
        }
    }
}

/// `total x part / whole`, halves up (RWC-3); `whole` is not zero, `part` not more than it.
fn rounded_half_up(total: u64, part: u64, whole: u64) -> u64 {
    // No overflow: a sum of 32-bit numbers that fit in memory stays far below 2^62.
    let twice = 2 * u128::from(total) * u128::from(part) + u128::from(whole);
    u64::try_from(twice / (2 * u128::from(whole))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;

    /// Flows 0, 1, ... of the priorities given.
    fn shares(total: u64, priorities: &[u32]) -> Shares<usize> {
        let mut shares = Shares::new(total, usize::MAX);
        for (key, priority) in priorities.iter().enumerate() {
            shares.add(key, *priority).unwrap();
        }
        shares
    }

    fn list(shares: &Shares<usize>) -> Vec<u64> {
        shares.iter().map(|(_, share)| share).collect()
    }

    /// The rules word for word, with the remainder to the first of the highest priority.
    fn unit_by_unit(total: u64, priorities: &[u32]) -> Vec<u64> {
        let count = priorities.len() as u64;
        if count >= total {
            return vec![1; priorities.len()];
        }
        let highest = priorities.iter().max().unwrap();
        let k = priorities.iter().position(|x| x == highest).unwrap();
        let sum: u64 = priorities.iter().map(|x| u64::from(*x)).sum();
        let due = |x: u32| match sum {
            0 => rounded_half_up(total, 1, count),
            _ => rounded_half_up(total, x.into(), sum),
        };
        let mut given: Vec<u64> = priorities.iter().map(|x| due(*x).max(1)).collect();
        given[k] = 0;
        given[k] = total.saturating_sub(given.iter().sum()).max(1);
        while given.iter().sum::<u64>() > total {
            let most = *given.iter().max().unwrap();
            *given.iter_mut().find(|share| **share == most).unwrap() -= 1;
        }
        given
    }

    /// RWC-1, RWC-2, RWC-5: the paper's figures, 21 and 11 in the order that its results have
    /// (INC-R1).
    #[test]
    fn the_papers_examples_come_out() {
        let mut three = shares(30, &[1, 1, 1]);
        assert_eq!(list(&three), [10, 10, 10]);
        assert!(three.set_priority(0, 2));
        assert_eq!(list(&three), [14, 8, 8]);

        let mut two = shares(32, &[1, 1]);
        assert_eq!(list(&two), [16, 16]);
        assert!(two.set_priority(0, 2));
        assert_eq!(list(&two), [21, 11]);
    }

    /// RWC-3: a half goes up, to an odd number or an even one.
    #[test]
    fn halves_are_rounded_up() {
        for (total, part, whole, rounded) in [(30, 1, 4, 8), (10, 1, 4, 3), (18, 1, 4, 5)] {
            assert_eq!(rounded_half_up(total, part, whole), rounded);
        }
        assert_eq!(rounded_half_up(9, 1, 4), 2);
    }

    /// RWC-8: nobody gets nothing, and the largest pays, even if it is the one that takes the
    /// remainder.
    #[test]
    fn no_flow_gets_less_than_one() {
        let mut few = shares(10, &[1, 1, 1000]);
        assert_eq!(list(&few), [1, 1, 8]);
        few.set_priority(0, 0);
        assert_eq!(list(&few), [1, 1, 8]);

        // Six times 1.5 is rounded to 2 for five of them, so that the last would get -1.
        assert_eq!(list(&shares(9, &[1; 6])), [1, 1, 2, 2, 2, 1]);
        assert_eq!(list(&shares(9, &[0; 3])), [3, 3, 3]);
    }

    /// RWC-8: with more flows than units each has one, though that is more than there is.
    #[test]
    fn more_flows_than_units_have_one_each() {
        assert_eq!(list(&shares(3, &[7, 1, 1, 1, 9])), [1, 1, 1, 1, 1]);
        assert_eq!(list(&shares(0, &[1])), [1]);
    }

    /// RWC-10: the flow changed last takes the remainder, of several the last; a new flow its own;
    /// after an end the one of highest priority does.
    #[test]
    fn the_remainder_goes_where_the_rules_say() {
        let mut s = shares(11, &[1, 1]);
        assert_eq!(list(&s), [6, 5]);
        s.set_priority(0, 1);
        assert_eq!(list(&s), [5, 6]);

        s.add(2, 2).unwrap();
        assert_eq!(list(&s), [3, 3, 5]);
        assert_eq!(s.set_priorities([(2, 2), (9, 5), (0, 1)]), 2);
        assert_eq!(list(&s), [2, 3, 6]);
        assert!(s.remove(0));
        assert_eq!(list(&s), [4, 7]);
        assert!(!s.remove(0) && !s.set_priority(0, 3));
        s.set_total(20);
        assert_eq!((s.share(2), s.share(1), s.priority(2)), (Some(13), Some(7), Some(2)));
    }

    #[test]
    fn flows_are_bounded_and_known_once() {
        let mut s = Shares::new(10, 2);
        assert_eq!((s.add('a', 1), s.add('b', 1)), (Ok(()), Ok(())));
        assert_eq!(
            (s.add('a', 3), s.add('c', 1)),
            (Err(SharesError::Known), Err(SharesError::Full))
        );
        assert_eq!((s.len(), s.total(), s.priority('a')), (2, 10, Some(1)));
        assert!(s.remove('a') && s.remove('b') && s.is_empty());
    }

    proptest! {
        /// RWC-8: of several changes made together the same comes as of one after the other, and what
        /// the floor takes comes from the largest, unit by unit.
        #[test]
        fn together_or_one_by_one_is_alike(
            total in 1u64..200,
            priorities in prop::collection::vec(prop_oneof![0u32..3, 0u32..1000], 1..40),
            k in any::<prop::sample::Index>(),
        ) {
            let k = k.index(priorities.len());
            let mut single = shares(total, &priorities);
            single.set_priority(k, priorities[k]);
            let mut all = Shares::new(total, 40);
            all.replace([(77, 5)], None);
            all.replace(priorities.iter().copied().enumerate(), Some(k));
            prop_assert_eq!(list(&single), list(&all));

            single.set_total(total);
            all.replace(priorities.iter().copied().enumerate(), Some(99));
            prop_assert_eq!(list(&single), list(&all));
            prop_assert_eq!(list(&all), unit_by_unit(total, &priorities));
        }

        /// RWC-4, RWC-8: whatever the priorities, the shares add up and none is below one.
        #[test]
        fn shares_add_up_and_none_is_empty(
            total in prop_oneof![0u64..100, any::<u64>()],
            priorities in prop::collection::vec(prop_oneof![0u32..5, any::<u32>()], 1..40),
            k in any::<prop::sample::Index>(),
        ) {
            let mut s = shares(total, &priorities);
            let k = k.index(priorities.len());
            s.set_priority(k, priorities[k]);
            let sum: u128 = s.iter().map(|(_, share)| u128::from(share)).sum();
            let count = priorities.len() as u64;
            prop_assert_eq!(sum, u128::from(total.max(count)));
            prop_assert!(s.iter().all(|(_, share)| share >= 1));
        }

        /// RWC-10: only the present priorities and the last change count.
        #[test]
        fn history_does_not_matter(
            total in 1u64..1000,
            mut steps in prop::collection::vec((0usize..6, 0u32..20), 1..30),
            last in (0usize..6, 0u32..20),
        ) {
            let mut long = shares(total, &[1; 6]);
            steps.push(last);
            for (key, priority) in &steps {
                long.set_priority(*key, *priority);
            }
            let mut priorities = vec![1; 6];
            steps.iter().for_each(|(key, priority)| priorities[*key] = *priority);
            let mut short = shares(total, &priorities);
            short.set_priority(last.0, last.1);
            prop_assert_eq!(list(&long), list(&short));
        }
    }
}
