//! Proxies: addresses for which this host answers its neighbours' questions (ip-neighbour(8)).

use std::net::IpAddr;

use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourHeader, NeighbourMessage,
};

use super::family;

/// The message that names one.
pub(super) fn message(interface: u32, ip: IpAddr) -> NeighbourMessage {
    let mut message = question();
    message.header.family = family(ip.is_ipv6());
    message.header.ifindex = interface;
    message.attributes = vec![NeighbourAttribute::Destination(ip.into())];
    message
}

/// The message that asks for all.
pub(super) fn question() -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header = NeighbourHeader { flags: NeighbourFlags::Proxy, ..NeighbourHeader::default() };
    message
}

/// The interface and the address that a message names.
pub(super) fn named(message: &NeighbourMessage) -> Option<(u32, IpAddr)> {
    let ip = message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(ip)) => Some(IpAddr::V4(*ip)),
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(ip)) => Some(IpAddr::V6(*ip)),
        _ => None,
    });
    Some((message.header.ifindex, ip?))
}
