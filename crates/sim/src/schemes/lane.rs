//! Packets of the network on the hop's datagram lane: whole IP packets, as Linux carries them.

use core::net::{Ipv4Addr, SocketAddrV4};
use std::collections::BTreeSet;

use lasthop_hop::{OutgoingPacket, PacketClass, PacketLane, Policy};
use lasthop_units::Time;
use lasthop_wire::ip::{self, Addresses, Protocol};
use lasthop_wire::{packet, udp};

use crate::net::host::OutgoingDatagram;
use crate::net::{Body, Packet, Payload};

/// What the hop is told of what it carries.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Carriage {
    /// Which of the hop's paths may carry connections and packets.
    pub policy: Policy,
    /// Packets to or from these ports are sent once ([`PacketClass::ONCE`]).
    pub once: BTreeSet<u16>,
}

impl Carriage {
    fn class(&self, packet: &packet::Packet, length: usize, ports: [u16; 2]) -> PacketClass {
        let once = ports.iter().any(|port| self.once.contains(port));
        let class = if once { PacketClass::ONCE } else { PacketClass::of(packet, length) };
        PacketClass { policy: self.policy, ..class }
    }
}

/// A datagram, and the host that it is from.
pub(super) type Carried = (Ipv4Addr, OutgoingDatagram);

/// Gives the lane a datagram from one host to another; `mobile` is whose share of the hop it takes. What the lane does
/// not take is lost.
pub(super) fn send(
    now: Time,
    lane: Option<&mut PacketLane>,
    carriage: &Carriage,
    mobile: Ipv4Addr,
    from: Ipv4Addr,
    datagram: &OutgoingDatagram,
) {
    let Some(lane) = lane else { return };
    let addresses = Addresses::V4 { src: from, dst: *datagram.to.ip() };
    let header = udp::Header { src_port: datagram.from, dst_port: datagram.to.port() };
    let mut data = vec![0; addresses.header_len() as usize];
    let whole = header.emit(&addresses, &datagram.bytes, &mut data).is_ok()
        && ip::Header::new(addresses, Protocol::UDP).emit_in_place(&mut data).is_ok();
    if whole && let Ok(inspected) = packet::Packet::inspect(&data) {
        let flow = u64::from(datagram.from) << 16 | u64::from(datagram.to.port());
        let ports = [datagram.from, datagram.to.port()];
        let class = carriage.class(&inspected, data.len(), ports);
        let client = u64::from(mobile.to_bits());
        let packet = OutgoingPacket { client, flow, ecn_capable: false, class, data: &data };
        let _ = lane.send(now, &packet);
    }
}

/// The next packet that has come, or that it is none of UDP.
pub(super) fn take(lane: &mut PacketLane) -> Option<Option<Carried>> {
    // None of them can be marked.
    let datagram = lane.front().map(|(data, _)| parse(data))?;
    lane.pop();
    Some(datagram)
}

fn parse(data: &[u8]) -> Option<Carried> {
    let (header, rest) = ip::Header::parse(data).ok()?;
    let (ports, payload) = udp::Header::parse(&header.addresses, rest).ok()?;
    let Addresses::V4 { src, dst } = header.addresses else { return None };
    let to = SocketAddrV4::new(dst, ports.dst_port);
    let bytes = payload.to_vec();
    Some((src, OutgoingDatagram { from: ports.src_port, to, bytes }))
}

/// What a packet of the network carries, if the lane can: one of UDP whose bytes exist.
pub(super) fn datagram_of(packet: &Packet) -> Option<OutgoingDatagram> {
    let (Body::Udp { src_port, dst_port }, Payload::Real(bytes)) = (packet.body, packet.payload())
    else {
        return None;
    };
    let to = SocketAddrV4::new(packet.dst, dst_port);
    Some(OutgoingDatagram { from: src_port, to, bytes: bytes.to_vec() })
}
