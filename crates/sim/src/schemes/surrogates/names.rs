//! What associations and wired halves are called.

use core::net::{Ipv4Addr, SocketAddrV4};

use lasthop_hop::AssociationId;

/// Names an association of a base: by who made it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::schemes) enum Way {
    /// A mobile's.
    Mobile(Ipv4Addr),
    /// One that another base made.
    Peer(AssociationId),
    /// One that this base made to another.
    Link(u32),
}

/// The two ends of a wired half; the local one is the mobile's own address (MHP-3), or the base's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct WiredEnd {
    pub(super) local: SocketAddrV4,
    pub(super) remote: SocketAddrV4,
}
