//! What packets of the datagram lane are worth.

use core::time::Duration;

use lasthop_wire::ip::Protocol;
use lasthop_wire::packet::Packet;

use crate::policy::Policy;

/// Code points of calls and their signalling (RFC 4594 section 2.3): CS5, EF, VOICE-ADMIT and AF4x.
const CALLS: [u8; 6] = [40, 46, 44, 34, 36, 38];
/// The port of QUIC's most frequent use (RFC 9114 section 3.1).
const HTTPS: u16 = 443;
/// Calls and games send short packets; who sends longer ones by UDP, in bytes, has much to send.
const LONG: usize = 1000;
/// The headers of IPv4 and UDP.
const HEADERS: usize = 20 + 8;

/// How a packet is to be treated.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PacketClass {
    /// For how many of the hop's round trips beyond the first try the packet is sent again when it is lost, and
    /// those behind it in its flow wait for it. 0: it is sent once, and none waits.
    pub patience: f64,
    /// For how long at least, unless `patience` is 0: a short fade lasts for several round trips of a short hop, and at
    /// first none is measured.
    pub patience_min: Duration,
    /// How long packets of the flow may wait to be sent while it stands (CoDel's target, RFC 8289); longer where a full
    /// datagram takes longer, or packets that are lost keep others waiting for their order.
    pub target: Duration,
    /// A packet that has waited so long to be sent is dropped.
    pub lifetime: Duration,
    /// Where the hop loses packets, this one is sent twice if its flow is sparse (RFC 8290 section 5.2).
    pub doubled: bool,
    /// What the flow gets of what its host has, relative to the host's other flows and streams; at least 1.
    pub priority: u32,
    /// Which of several paths may carry it; of a flow with packets that wait it is the first one's that counts.
    pub policy: Policy,
}

impl PacketClass {
    /// What nothing is known of.
    pub const ORDINARY: Self = Self {
        patience: 1.5,
        // Most short fades are over by then.
        patience_min: Duration::from_millis(200),
        target: Duration::from_millis(5),
        lifetime: Duration::from_secs(1),
        doubled: true,
        priority: 1,
        policy: Policy::Speed,
    };
    /// The packets of a call: what is late is of no use.
    pub const CALL: Self = Self { lifetime: Duration::from_millis(250), ..Self::ORDINARY };
    /// Packets of a transport that takes a loss for congestion: one in 100,000 is too many, and later is better than
    /// not at all. Without a queue of its own it would leave air time unused each time that it makes room.
    pub const TRANSPORT: Self = Self {
        patience: 12.0,
        patience_min: Duration::from_millis(240),
        target: Duration::from_millis(25),
        ..Self::ORDINARY
    };

    /// What is of no use when it is repeated, or repeats itself: it is sent once, waits for none, and none waits for it.
    pub const ONCE: Self = Self { patience: 0.0, doubled: false, ..Self::ORDINARY };

    /// The class of an IP packet of so many bytes, by what it says of itself.
    pub fn of(packet: &Packet, length: usize) -> Self {
        match packet.protocol {
            _ if CALLS.contains(&packet.dscp()) => Self::CALL,
            Protocol::TCP => Self::TRANSPORT,
            Protocol::UDP => {
                let https = packet.ports.is_some_and(|(from, to)| from == HTTPS || to == HTTPS);
                Self::of_udp(https, length)
            }
            _ => Self::ORDINARY,
        }
    }

    /// The class of a UDP datagram that goes without its headers: by the remote host's port, and by how many bytes it
    /// carries.
    pub fn of_datagram(remote_port: u16, payload: usize) -> Self {
        Self::of_udp(remote_port == HTTPS, payload + HEADERS)
    }

    fn of_udp(https: bool, length: usize) -> Self {
        if https || length >= LONG { Self::TRANSPORT } else { Self::ORDINARY }
    }
}

impl Default for PacketClass {
    fn default() -> Self {
        Self::ORDINARY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_is_worth_what_its_packet_is() {
        assert_eq!(PacketClass::of_datagram(HTTPS, 1), PacketClass::TRANSPORT);
        assert_eq!(PacketClass::of_datagram(53, LONG - HEADERS), PacketClass::TRANSPORT);
        assert_eq!(PacketClass::of_datagram(53, LONG - HEADERS - 1), PacketClass::ORDINARY);
    }
}
