//! What a packet is worth, by what it says of itself.

use std::time::Duration;

use lasthop_hop::PacketClass;
use lasthop_wire::ip::Protocol;
use lasthop_wire::packet::Packet;

/// Code points of calls and their signalling (RFC 4594 section 2.3): CS5, EF, VOICE-ADMIT and AF4x.
const CALLS: [u8; 6] = [40, 46, 44, 34, 36, 38];
/// The port of QUIC's most frequent use (RFC 9114 section 3.1).
const HTTPS: u16 = 443;

/// The packets of a call: what is late is of no use.
const CALL: PacketClass = PacketClass {
    patience: 1.5,
    target: Duration::from_millis(5),
    lifetime: Duration::from_millis(250),
    doubled: true,
};
/// Packets of a transport that takes a loss for congestion: one in 100,000 is too many, and later is better than not at
/// all. Without a queue of its own it would leave air time unused each time that it makes room.
const TRANSPORT: PacketClass = PacketClass {
    patience: 12.0,
    target: Duration::from_millis(25),
    lifetime: Duration::from_secs(1),
    doubled: true,
};
/// Calls and games send short packets; who sends longer ones by UDP, in bytes, has much to send.
const LONG: usize = 1000;
/// The headers of IPv4 and UDP.
const HEADERS: usize = 20 + 8;

/// The class of a packet of this length.
pub(super) fn class(packet: &Packet, length: usize) -> PacketClass {
    match packet.protocol {
        _ if CALLS.contains(&packet.dscp()) => CALL,
        Protocol::TCP => TRANSPORT,
        Protocol::UDP => udp_class(packet.ports.is_some_and(is_https), length),
        _ => PacketClass::default(),
    }
}

fn is_https((from, to): (u16, u16)) -> bool {
    from == HTTPS || to == HTTPS
}

/// The class of a datagram that goes without its headers: by the remote host's port, and by how many bytes of
/// user data it has.
pub(crate) fn datagram_class(remote_port: u16, payload: usize) -> PacketClass {
    udp_class(remote_port == HTTPS, payload + HEADERS)
}

fn udp_class(https: bool, length: usize) -> PacketClass {
    if https || length >= LONG { TRANSPORT } else { PacketClass::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_is_worth_what_its_packet_is() {
        assert_eq!(datagram_class(HTTPS, 1), TRANSPORT);
        assert_eq!(datagram_class(53, LONG - HEADERS), TRANSPORT);
        assert_eq!(datagram_class(53, LONG - HEADERS - 1), PacketClass::default());
    }
}
