//! The addresses of nodes, and the ports of flows.

use core::net::Ipv4Addr;

/// Flow n goes to this port and n.
const FIRST_PORT: u16 = 5000;

/// Nodes count up from 10.0.0.1.
pub(super) fn address(node: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a00_0001 + node as u32)
}

/// Each flow has a port of its own.
pub(super) fn port(flow: usize) -> u16 {
    FIRST_PORT.saturating_add(u16::try_from(flow).unwrap_or(u16::MAX))
}
