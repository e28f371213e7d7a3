//! What changes in agents by hand of the simulation.

use core::net::Ipv4Addr;

use lasthop_sim::net::{LinkId, NodeId};
use lasthop_units::Time;

/// A change in an agent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub(super) at: Time,
    pub(super) mobile: Ipv4Addr,
    pub(super) change: Change,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// A supervisor's state moves to the next; `hop` is the link from that one to the mobile.
    State { from: NodeId, to: NodeId, hop: LinkId },
    /// The mobile router at `node` talks to another base.
    Base { node: NodeId, base: Ipv4Addr },
    /// At the mobile's edge windows are divided as so many changes of mind make them (RWC-1).
    Wishes { node: NodeId, changes: usize },
}
