//! The IP layer of a host: addresses, routes, neighbours.

use std::net::Ipv4Addr;

use lasthop_wire::ip::{Addresses, Header, Protocol};

use crate::link::Mac;

/// Where packets for a prefix go.
#[derive(Clone, Copy, Debug)]
struct Route {
    prefix: u32,
    mask: u32,
    /// A router; none where the destination is on the link itself.
    gateway: Option<Ipv4Addr>,
}

/// A resolved path, which a connection keeps until routes or neighbours change, as the kernels of
/// today and BSD do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Path {
    pub(super) mac: Mac,
    generation: u32,
}

/// A host's IP layer with one interface.
#[derive(Debug)]
pub(super) struct Ip {
    address: Ipv4Addr,
    /// Longest prefix first.
    routes: Vec<Route>,
    neighbours: Vec<(Ipv4Addr, Mac)>,
    generation: u32,
    id: u16,
}

impl Ip {
    /// A host with this address on a link with this prefix length, and a router for the rest.
    pub(super) fn new(address: Ipv4Addr, length: u32, router: Ipv4Addr) -> Self {
        let mask = |length: u32| u32::MAX.checked_shl(32 - length).unwrap_or(0);
        let here =
            Route { prefix: u32::from(address) & mask(length), mask: mask(length), gateway: None };
        let rest = Route { prefix: 0, mask: 0, gateway: Some(router) };
        let mut routes = vec![here, rest];
        routes.sort_by_key(|r| std::cmp::Reverse(r.mask));
        Self { address, routes, neighbours: Vec::new(), generation: 0, id: 0 }
    }

    /// The host's address.
    pub(super) fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// A neighbour's link address, as ARP would have found it.
    pub(super) fn add_neighbour(&mut self, address: Ipv4Addr, mac: Mac) {
        self.neighbours.push((address, mac));
        self.generation = self.generation.wrapping_add(1);
    }

    /// The way to `to`: `known` if it still holds, else by route and neighbour.
    #[inline]
    pub(super) fn path(&self, to: Ipv4Addr, known: Option<Path>) -> Option<Path> {
        if let Some(path) = known
            && path.generation == self.generation
        {
            return known;
        }
        let to_bits = u32::from(to);
        let route = self.routes.iter().find(|r| to_bits & r.mask == r.prefix)?;
        let hop = route.gateway.unwrap_or(to);
        let (_, mac) = self.neighbours.iter().find(|(address, _)| *address == hop)?;
        Some(Path { mac: *mac, generation: self.generation })
    }

    /// Writes the header in front of the payload that is in `packet` already.
    #[inline]
    pub(super) fn emit(&mut self, to: Ipv4Addr, packet: &mut [u8]) -> bool {
        self.id = self.id.wrapping_add(1);
        let between = Addresses::V4 { src: self.address, dst: to };
        let header = Header { id: self.id, ..Header::new(between, Protocol::TCP) };
        header.emit_in_place(packet).is_ok()
    }

    /// The TCP segment in a packet for this host, and the addresses in its header.
    #[inline]
    pub(super) fn receive<'a>(&self, packet: &'a [u8]) -> Option<(Addresses, &'a [u8])> {
        let (header, payload) = Header::parse(packet).ok()?;
        let Addresses::V4 { dst, .. } = header.addresses else { return None };
        let ours = dst == self.address && header.ttl > 0 && header.protocol == Protocol::TCP;
        ours.then_some((header.addresses, payload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
    const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);

    #[test]
    fn the_longest_prefix_decides_and_a_path_holds_until_something_changes() {
        let mut ip = Ip::new(HERE, 24, ROUTER);
        assert_eq!(ip.path(PEER, None), None);
        ip.add_neighbour(PEER, [2; 6]);
        ip.add_neighbour(ROUTER, [3; 6]);
        let path = ip.path(PEER, None).unwrap();
        assert_eq!(path.mac, [2; 6]);
        assert_eq!(ip.path(Ipv4Addr::new(192, 0, 2, 1), None).unwrap().mac, [3; 6]);
        assert_eq!(ip.path(PEER, Some(path)), Some(path));
        ip.add_neighbour(Ipv4Addr::new(10, 0, 0, 3), [4; 6]);
        assert_ne!(ip.path(PEER, Some(path)), Some(path), "resolved anew");
    }

    #[test]
    fn packets_for_others_damaged_ones_and_other_protocols_are_not_taken() {
        let (mut a, b) = (Ip::new(HERE, 24, ROUTER), Ip::new(PEER, 24, ROUTER));
        let mut packet = [7; 30];
        assert!(a.emit(PEER, &mut packet));
        let (addresses, payload) = b.receive(&packet).unwrap();
        assert_eq!((addresses.src(), payload), (HERE.into(), &[7; 10][..]));
        assert!(a.receive(&packet).is_none(), "not for this host");
        let mut udp = packet;
        udp[9] = 17;
        udp[11] = udp[11].wrapping_sub(11);
        assert!(b.receive(&udp).is_none());
        packet[8] ^= 1;
        assert!(b.receive(&packet).is_none(), "damaged");
    }
}
