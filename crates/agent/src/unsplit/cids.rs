//! Which connection a CID stands for, in either direction.

use alloc::collections::BTreeMap;

use crate::Connection;

/// Most connections that can have a CID: half of all CIDs, so that a free one is soon found and one
/// that was used lately is not used again at once.
pub(super) const MOST: usize = 1 << 15;

/// The CIDs of one hop.
#[derive(Clone, Debug)]
pub(super) struct Cids {
    /// The next to try. Zero is nobody's.
    next: u16,
    /// Those that this half has allotted, for packets that it receives.
    ours: BTreeMap<u16, Connection>,
    /// Those that the other half has allotted, for packets that this one sends.
    theirs: BTreeMap<u16, Connection>,
}

impl Cids {
    /// None, and the first to be allotted is `first`.
    pub(super) const fn new(first: u16) -> Self {
        Self { next: first, ours: BTreeMap::new(), theirs: BTreeMap::new() }
    }

    /// A CID for a connection, unlike all that are in use.
    pub(super) fn allot(&mut self, connection: Connection) -> u16 {
        // Fewer than half are in use, so this ends.
        loop {
            let cid = self.next;
            self.next = cid.wrapping_add(1);
            if cid != 0 && !self.ours.contains_key(&cid) {
                self.ours.insert(cid, connection);
                return cid;
            }
        }
    }

    /// The connection that a packet with this CID belongs to.
    pub(super) fn receives(&self, cid: u16) -> Option<Connection> {
        self.ours.get(&cid).copied()
    }

    /// The connection that is sent with this CID.
    pub(super) fn sends(&self, cid: u16) -> Option<Connection> {
        self.theirs.get(&cid).copied()
    }

    /// From here on a connection is sent with `cid`, not with `before`. Returns the one that was sent
    /// so until here: the other half has removed it.
    pub(super) fn assign(
        &mut self,
        connection: Connection,
        before: Option<u16>,
        cid: u16,
    ) -> Option<Connection> {
        if let Some(before) = before {
            self.unlearn(&connection, before);
        }
        self.theirs.insert(cid, connection).filter(|other| *other != connection)
    }

    /// A connection is not sent with this CID any more.
    pub(super) fn unlearn(&mut self, connection: &Connection, cid: u16) {
        if self.theirs.get(&cid) == Some(connection) {
            self.theirs.remove(&cid);
        }
    }

    /// Removes a connection.
    pub(super) fn free(&mut self, connection: &Connection, ours: u16, theirs: Option<u16>) {
        self.ours.remove(&ours);
        if let Some(theirs) = theirs {
            self.unlearn(connection, theirs);
        }
    }
}
