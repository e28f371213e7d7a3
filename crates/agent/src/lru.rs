//! Connections in the order in which they were used last.

use alloc::vec::Vec;

use lasthop_units::Time;

use crate::Connection;

/// No node.
const NONE: usize = usize::MAX;

/// A list of connections, the least recently used first. To use one again moves it to the end, which
/// takes no memory; a node that was removed is used again.
#[derive(Clone, Debug)]
pub(crate) struct LruList {
    nodes: Vec<Node>,
    first: usize,
    last: usize,
    /// The first of those that are free, which are a list of their own.
    free: usize,
}

#[derive(Clone, Debug)]
struct Node {
    connection: Connection,
    used: Time,
    before: usize,
    after: usize,
}

impl LruList {
    pub(crate) const fn new() -> Self {
        Self { nodes: Vec::new(), first: NONE, last: NONE, free: NONE }
    }

    /// The least recently used connection, and when that was.
    pub(crate) fn oldest(&self) -> Option<(Time, Connection)> {
        self.nodes.get(self.first).map(|node| (node.used, node.connection))
    }

    /// Adds a connection; its index.
    pub(crate) fn push(&mut self, now: Time, connection: Connection) -> usize {
        let new = Node { connection, used: now, before: NONE, after: NONE };
        let at = match self.nodes.get_mut(self.free) {
            Some(node) => {
                let at = self.free;
                self.free = node.after;
                *node = new;
                at
            }
            None => {
                self.nodes.push(new);
                self.nodes.len() - 1
            }
        };
        self.link(at);
        at
    }

    /// The connection at an index is used.
    pub(crate) fn touch(&mut self, at: usize, now: Time) {
        if self.last != at {
            self.unlink(at);
            self.link(at);
        }
        if let Some(node) = self.nodes.get_mut(at) {
            node.used = now;
        }
    }

    /// Removes the connection at an index.
    pub(crate) fn remove(&mut self, at: usize) {
        self.unlink(at);
        if let Some(node) = self.nodes.get_mut(at) {
            node.after = self.free;
            self.free = at;
        }
    }

    fn link(&mut self, at: usize) {
        let last = self.last;
        if let Some(node) = self.nodes.get_mut(at) {
            (node.before, node.after) = (last, NONE);
            self.last = at;
        }
        match self.nodes.get_mut(last) {
            Some(node) => node.after = at,
            None => self.first = at,
        }
    }

    fn unlink(&mut self, at: usize) {
        let Some(&Node { before, after, .. }) = self.nodes.get(at) else { return };
        match self.nodes.get_mut(before) {
            Some(node) => node.after = after,
            None => self.first = after,
        }
        match self.nodes.get_mut(after) {
            Some(node) => node.before = before,
            None => self.last = before,
        }
    }

    /// Connections in it.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        let next = |at: &usize| self.nodes.get(*at).map(|node| node.after);
        core::iter::successors(Some(self.first), next).filter(|at| *at != NONE).count()
    }

    /// Nodes that were ever in use at a time.
    #[cfg(test)]
    pub(crate) fn nodes(&self) -> usize {
        self.nodes.len()
    }
}
