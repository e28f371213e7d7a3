//! The addresses of nodes, and the ports of flows.

use core::net::Ipv4Addr;

/// Flow n goes to this port and n.
const FIRST_PORT: u16 = 5000;

/// Nodes count up from 10.0.0.1.
pub(super) fn address(node: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a00_0001 + node as u32)
}

/// The address of a mobile by the link of one of its association's paths: that of the first is the node's.
pub(super) fn address_by(node: usize, path: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(address(node).to_bits() + ((path as u32) << 16))
}

/// Each flow has a port of its own.
pub(super) fn port(flow: usize) -> u16 {
    FIRST_PORT.saturating_add(u16::try_from(flow).unwrap_or(u16::MAX))
}
