//! The streams of an end by their numbers.

use alloc::collections::BTreeMap;
#[cfg(test)]
use core::cell::Cell;

use super::stream::Stream;

/// The streams that there are. In tests it counts how often one is looked at, since no frame may cost
/// more with many streams than with few.
#[derive(Debug, Default)]
pub(super) struct StreamTable {
    streams: BTreeMap<u64, Stream>,
    #[cfg(test)]
    visits: Cell<u64>,
}

impl StreamTable {
    #[cfg(test)]
    fn count(&self, visits: usize) {
        self.visits.set(self.visits.get() + visits as u64);
    }

    #[cfg(not(test))]
    fn count(&self, _visits: usize) {}

    /// How many streams were looked at so far.
    #[cfg(test)]
    pub(super) fn visits(&self) -> u64 {
        self.visits.get()
    }

    pub(super) fn len(&self) -> usize {
        self.streams.len()
    }

    pub(super) fn get(&self, id: u64) -> Option<&Stream> {
        self.count(1);
        self.streams.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut Stream> {
        self.count(1);
        self.streams.get_mut(&id)
    }

    pub(super) fn insert(&mut self, id: u64, stream: Stream) {
        self.count(1);
        self.streams.insert(id, stream);
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<Stream> {
        self.count(1);
        self.streams.remove(&id)
    }

    /// All of them, for what happens seldom.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Stream)> {
        self.count(self.streams.len());
        self.streams.iter().map(|(id, stream)| (*id, stream))
    }

    /// As [`iter`](Self::iter).
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut Stream)> {
        self.count(self.streams.len());
        self.streams.iter_mut().map(|(id, stream)| (*id, stream))
    }
}
