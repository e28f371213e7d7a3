//! What is known of things, by their names and by their owners.

use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, BTreeSet};
use core::ops::Deref;

/// Something that may have an owner.
pub(crate) trait Owned<O> {
    fn owner(&self) -> Option<O>;
}

/// A map that finds what an owner has; an owner that has nothing takes no place.
#[derive(Debug)]
pub(crate) struct OwnedMap<K, O, V> {
    all: BTreeMap<K, V>,
    of: BTreeMap<O, BTreeSet<K>>,
}

impl<K: Copy + Ord, O: Copy + Ord, V: Owned<O>> OwnedMap<K, O, V> {
    pub(crate) const fn new() -> Self {
        Self { all: BTreeMap::new(), of: BTreeMap::new() }
    }

    /// To change anything but the owner.
    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.all.get_mut(key)
    }

    /// In place of what was called so.
    pub(crate) fn insert(&mut self, key: K, thing: V) {
        self.remove(&key);
        if let Some(owner) = thing.owner() {
            self.of.entry(owner).or_default().insert(key);
        }
        self.all.insert(key, thing);
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let thing = self.all.remove(key)?;
        if let Some(owner) = thing.owner()
            && let Entry::Occupied(mut own) = self.of.entry(owner)
        {
            own.get_mut().remove(key);
            if own.get().is_empty() {
                own.remove();
            }
        }
        Some(thing)
    }

    /// What an owner has, in order.
    pub(crate) fn of(&self, owner: O) -> impl Iterator<Item = (K, &V)> {
        let own = self.of.get(&owner).into_iter().flatten();
        own.filter_map(|key| Some((*key, self.all.get(key)?)))
    }
}

impl<K, O, V> Deref for OwnedMap<K, O, V> {
    type Target = BTreeMap<K, V>;

    fn deref(&self) -> &BTreeMap<K, V> {
        &self.all
    }
}
