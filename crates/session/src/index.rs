//! What belongs to whom.

use alloc::collections::{BTreeMap, BTreeSet};

/// The things that each owner has; an owner that has none takes no place.
#[derive(Debug)]
pub(crate) struct Index<K, V>(BTreeMap<K, BTreeSet<V>>);

impl<K: Copy + Ord, V: Copy + Ord> Index<K, V> {
    pub(crate) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    pub(crate) fn insert(&mut self, owner: K, thing: V) {
        self.0.entry(owner).or_default().insert(thing);
    }

    pub(crate) fn remove(&mut self, owner: K, thing: V) {
        if let Some(own) = self.0.get_mut(&owner) {
            own.remove(&thing);
            if own.is_empty() {
                self.0.remove(&owner);
            }
        }
    }

    /// What an owner has, in order.
    pub(crate) fn of(&self, owner: K) -> impl Iterator<Item = V> {
        self.0.get(&owner).into_iter().flatten().copied()
    }

    /// How much that is.
    pub(crate) fn count(&self, owner: K) -> usize {
        self.0.get(&owner).map_or(0, BTreeSet::len)
    }
}
