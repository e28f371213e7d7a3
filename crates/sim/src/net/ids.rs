//! The names of nodes and links.

/// Names a node of a network.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(u32);

/// Names a link of a network; the first one by default.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct LinkId(u32);

impl NodeId {
    pub(super) const fn new(n: u32) -> Self {
        Self(n)
    }

    /// Its number: nodes count from zero as they are added.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl LinkId {
    pub(super) const fn new(n: u32) -> Self {
        Self(n)
    }

    /// Its number: links count from zero as they are added.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
