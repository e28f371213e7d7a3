//! Where the peer is by each path.

use smallvec::{SmallVec, smallvec};

use crate::path_id::PathId;

/// The peer's address by each path, the first path's first.
pub(super) struct Peers<A>(SmallVec<[(PathId, A); 1]>);

impl<A: Copy> Peers<A> {
    /// It is here by the first path.
    pub(super) fn new(first: A) -> Self {
        Self(smallvec![(PathId::FIRST, first)])
    }

    pub(super) fn first(&self) -> A {
        self.0[0].1
    }

    /// Where it is by a path, if there is that path.
    pub(super) fn of(&self, path: PathId) -> Option<A> {
        self.iter().find(|(id, _)| *id == path).map(|(_, peer)| peer)
    }

    /// It is here by a path: whether there was that path.
    pub(super) fn set(&mut self, path: PathId, peer: A) -> bool {
        let known = self.0.iter_mut().find(|(id, _)| *id == path);
        let is_known = known.is_some();
        match known {
            Some((_, known)) => *known = peer,
            None => self.0.push((path, peer)),
        }
        is_known
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (PathId, A)> {
        self.0.iter().copied()
    }
}
