//! Connections in the order in which they were used last.

use alloc::vec::Vec;

use lasthop_units::Time;

use crate::Connection;

/// No place.
const NONE: usize = usize::MAX;

/// A list of connections, the one that was silent longest first. To use one again moves it to the
/// end, which takes no memory; a place that was left is taken again.
#[derive(Clone, Debug)]
pub(crate) struct Silent {
    places: Vec<Place>,
    first: usize,
    last: usize,
    /// The first of those that are free, which are a list of their own.
    free: usize,
}

#[derive(Clone, Debug)]
struct Place {
    connection: Connection,
    used: Time,
    before: usize,
    after: usize,
}

impl Silent {
    pub(crate) const fn new() -> Self {
        Self { places: Vec::new(), first: NONE, last: NONE, free: NONE }
    }

    /// The connection that was silent longest, and since when.
    pub(crate) fn longest(&self) -> Option<(Time, Connection)> {
        self.places.get(self.first).map(|place| (place.used, place.connection))
    }

    /// Adds a connection; its place.
    pub(crate) fn push(&mut self, now: Time, connection: Connection) -> usize {
        let new = Place { connection, used: now, before: NONE, after: NONE };
        let at = match self.places.get_mut(self.free) {
            Some(place) => {
                let at = self.free;
                self.free = place.after;
                *place = new;
                at
            }
            None => {
                self.places.push(new);
                self.places.len() - 1
            }
        };
        self.link(at);
        at
    }

    /// The connection at a place is used.
    pub(crate) fn touch(&mut self, at: usize, now: Time) {
        if self.last != at {
            self.unlink(at);
            self.link(at);
        }
        if let Some(place) = self.places.get_mut(at) {
            place.used = now;
        }
    }

    /// The connection at a place is forgotten.
    pub(crate) fn remove(&mut self, at: usize) {
        self.unlink(at);
        if let Some(place) = self.places.get_mut(at) {
            place.after = self.free;
            self.free = at;
        }
    }

    fn link(&mut self, at: usize) {
        let last = self.last;
        if let Some(place) = self.places.get_mut(at) {
            (place.before, place.after) = (last, NONE);
            self.last = at;
        }
        match self.places.get_mut(last) {
            Some(place) => place.after = at,
            None => self.first = at,
        }
    }

    fn unlink(&mut self, at: usize) {
        let Some(&Place { before, after, .. }) = self.places.get(at) else { return };
        match self.places.get_mut(before) {
            Some(place) => place.after = after,
            None => self.first = after,
        }
        match self.places.get_mut(after) {
            Some(place) => place.before = before,
            None => self.last = before,
        }
    }

    /// Connections in it.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        let next = |at: &usize| self.places.get(*at).map(|place| place.after);
        core::iter::successors(Some(self.first), next).filter(|at| *at != NONE).count()
    }

    /// Places that were ever taken at a time.
    #[cfg(test)]
    pub(crate) fn places(&self) -> usize {
        self.places.len()
    }
}
