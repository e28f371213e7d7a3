//! When each of many things is due.

use alloc::collections::{BTreeMap, BTreeSet};

use crate::Time;

/// At most one time for each key, in order, for whoever keeps each key's time beside what it is of.
#[derive(Clone, Debug)]
pub struct Timers<K> {
    order: BTreeSet<(Time, K)>,
}

impl<K> Default for Timers<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K> Timers<K> {
    /// Nothing is due.
    pub const fn new() -> Self {
        Self { order: BTreeSet::new() }
    }

    /// How many keys have a time.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// No key has one.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

impl<K: Copy + Ord> Timers<K> {
    /// `key`, whose time was `before`, is due at `at` from here on.
    pub fn replace(&mut self, key: K, before: Option<Time>, at: Option<Time>) {
        if before == at {
            return;
        }
        if let Some(before) = before {
            self.order.remove(&(before, key));
        }
        if let Some(at) = at {
            self.order.insert((at, key));
        }
    }

    /// When the first of them is due.
    pub fn next(&self) -> Option<Time> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Removes the first that is due by `now`, which has no time from here on.
    pub fn pop_due(&mut self, now: Time) -> Option<K> {
        self.order.first().filter(|(at, _)| *at <= now)?;
        self.order.pop_first().map(|(_, key)| key)
    }
}

/// The same with the times of the keys.
#[derive(Clone, Debug)]
pub struct Deadlines<K> {
    of: BTreeMap<K, Time>,
    timers: Timers<K>,
}

impl<K> Default for Deadlines<K> {
    fn default() -> Self {
        Self { of: BTreeMap::new(), timers: Timers::new() }
    }
}

impl<K: Copy + Ord> Deadlines<K> {
    /// Nothing is due.
    pub fn new() -> Self {
        Self::default()
    }

    /// `key` is due at `at` from here on, and at no other time; with `None` at no time.
    pub fn set(&mut self, key: K, at: Option<Time>) {
        let before = match at {
            Some(at) => self.of.insert(key, at),
            None => self.of.remove(&key),
        };
        self.timers.replace(key, before, at);
    }

    /// When the first of them is due.
    pub fn next(&self) -> Option<Time> {
        self.timers.next()
    }

    /// Removes the first that is due by `now`.
    pub fn pop_due(&mut self, now: Time) -> Option<K> {
        let key = self.timers.pop_due(now)?;
        self.of.remove(&key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Duration;

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn the_earliest_comes_first_and_each_key_has_one_time() {
        let mut deadlines = Deadlines::new();
        assert_eq!(deadlines.next(), None);
        for (key, ms) in [(1, 30), (2, 10), (3, 20), (2, 40)] {
            deadlines.set(key, Some(at(ms)));
        }
        assert_eq!(deadlines.next(), Some(at(20)));
        assert_eq!(deadlines.pop_due(at(19)), None);
        deadlines.set(1, None);
        assert_eq!(deadlines.pop_due(at(50)), Some(3));
        assert_eq!(deadlines.pop_due(at(50)), Some(2));
        assert_eq!(deadlines.pop_due(Time::NEVER), None);
        assert_eq!(deadlines.next(), None);
    }

    #[test]
    fn what_was_taken_can_be_set_to_the_same_time_again() {
        let mut deadlines = Deadlines::new();
        deadlines.set('a', Some(at(5)));
        assert_eq!(deadlines.pop_due(at(5)), Some('a'));
        deadlines.set('a', Some(at(5)));
        assert_eq!(deadlines.next(), Some(at(5)));
    }
}
