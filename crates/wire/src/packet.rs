//! Whole IP packets that come from outside and are carried as they are: whether they may cross, which
//! flow they belong to, the congestion mark, and the ICMP error about one that may not.

mod extensions;
mod icmp;
#[cfg(test)]
mod tests;

use core::hash::{BuildHasher, Hasher};
use core::net::{IpAddr, SocketAddr};

use etherparse::{Ipv4HeaderSlice, Ipv6HeaderSlice};
use foldhash::quality::FixedState;
use thiserror::Error;

use self::extensions::Chain;
pub use self::extensions::MOST_EXTENSIONS;
pub use self::icmp::{IcmpError, icmp_error};
use crate::checksum;
use crate::ip::{Addresses, IPV4_HEADER, IPV6_HEADER, Protocol};

/// The two bits of the traffic class that are congestion notification (RFC 3168 section 5).
const ECN: u8 = 0b11;
/// Congestion experienced.
const CE: u8 = 0b11;
/// The transport is not capable of ECN.
const NOT_ECT: u8 = 0b00;

/// Why an address does not cross a hop.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Unusable {
    /// All zeros, or an IPv4 address of "this network", 0.0.0.0/8 (RFC 1122 section 3.2.1.3).
    #[error("unspecified")]
    Unspecified,
    /// A group's.
    #[error("multicast")]
    Multicast,
    /// Everybody on one link: 255.255.255.255.
    #[error("the limited broadcast")]
    Broadcast,
    /// A host's own for itself.
    #[error("loopback")]
    Loopback,
    /// Valid on one link only (RFC 4291 section 2.5.6, RFC 3927 section 7).
    #[error("link-local")]
    LinkLocal,
}

impl Unusable {
    fn of(ip: IpAddr) -> Option<Self> {
        let (unspecified, broadcast, link_local) = match ip {
            IpAddr::V4(ip) => (ip.octets()[0] == 0, ip.is_broadcast(), ip.is_link_local()),
            IpAddr::V6(ip) => (ip.is_unspecified(), false, ip.is_unicast_link_local()),
        };
        [
            (unspecified, Self::Unspecified),
            (ip.is_multicast(), Self::Multicast),
            (broadcast, Self::Broadcast),
            (ip.is_loopback(), Self::Loopback),
            (link_local, Self::LinkLocal),
        ]
        .into_iter()
        .find_map(|(is, kind)| is.then_some(kind))
    }
}

/// Why bytes are no packet that crosses a hop.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum BadPacket {
    /// Fewer bytes than a header, or a length in one, asks for.
    #[error("{found} bytes of an IP packet, at least {least} are needed")]
    Truncated {
        /// How many bytes there are.
        found: usize,
        /// How many are needed.
        least: usize,
    },
    /// Neither version 4 nor 6.
    #[error("IP version {0} is neither 4 nor 6")]
    NotIp(u8),
    /// More bytes than the packet itself says that it has.
    #[error("{found} bytes are given for a packet of {total}")]
    Padded {
        /// How many bytes there are.
        found: usize,
        /// How many the packet has.
        total: usize,
    },
    /// A length in a header that cannot be true.
    #[error("{field} of {said} bytes cannot be true")]
    Length {
        /// Which length.
        field: &'static str,
        /// What it says, in bytes.
        said: usize,
    },
    /// Longer than 65575 bytes, or with the option that says so (RFC 2675).
    #[error("a jumbogram")]
    Jumbogram,
    /// More extension headers than [`MOST_EXTENSIONS`].
    #[error("more than {MOST_EXTENSIONS} IPv6 extension headers")]
    LongChain,
    /// An extension header where it must not be (RFC 8200 section 4.1): hop-by-hop options behind
    /// another one, or a second fragment header.
    #[error("IPv6 extension header {0} is where it must not be")]
    Order(u8),
    /// Nobody can be answered there.
    #[error("its source {0} is {1}")]
    Source(IpAddr, Unusable),
    /// It would not leave the link.
    #[error("its destination {0} is {1}")]
    Destination(IpAddr, Unusable),
}

impl BadPacket {
    /// What a counter of such packets is called; never changes.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Truncated { .. } => "truncated",
            Self::NotIp(_) => "not-ip",
            Self::Padded { .. } => "padded",
            Self::Length { .. } => "bad-length",
            Self::Jumbogram => "jumbogram",
            Self::LongChain => "long-extension-chain",
            Self::Order(_) => "extension-order",
            Self::Source(_, Unusable::Unspecified) => "unspecified-source",
            Self::Source(_, Unusable::Multicast) => "multicast-source",
            Self::Source(_, Unusable::Broadcast) => "broadcast-source",
            Self::Source(_, Unusable::Loopback) => "loopback-source",
            Self::Source(_, Unusable::LinkLocal) => "link-local-source",
            Self::Destination(_, Unusable::Unspecified) => "unspecified-destination",
            Self::Destination(_, Unusable::Multicast) => "multicast-destination",
            Self::Destination(_, Unusable::Broadcast) => "broadcast-destination",
            Self::Destination(_, Unusable::Loopback) => "loopback-destination",
            Self::Destination(_, Unusable::LinkLocal) => "link-local-destination",
        }
    }
}

/// What a packet says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Source and destination.
    pub addresses: Addresses,
    /// What is behind the IP header and its extension headers. In a fragment that is not the first it
    /// is what the fragment header tells, which may be one more extension header.
    pub protocol: Protocol,
    /// Source and destination port, of a transport that has them; in fragments the first has them.
    pub ports: Option<(u16, u16)>,
    /// Differentiated services in the upper six bits, congestion notification in the lower two
    /// (RFC 2474, RFC 3168).
    pub traffic_class: u8,
    /// Whether it is a part of a packet. One that is alone behind a fragment header is not (RFC 6946).
    pub is_fragment: bool,
    /// What tells the flow from others between the same addresses.
    flow: Flow,
    /// Where the transport's header begins; none in fragments that are not the first.
    transport: Option<usize>,
}

/// The protocol, and what the transport adds: ports, or the identifier of an echo.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Flow {
    protocol: u8,
    transport: u32,
}

impl Packet {
    /// Reads a packet that came from outside; `bytes` have to be that packet and nothing more.
    ///
    /// The checksum of an IPv4 header is not checked: the kernel that gets the packet in the end does
    /// so, and drops it. No more are those of transports.
    ///
    /// # Errors
    ///
    /// Names what is wrong: [`BadPacket`].
    #[inline]
    pub fn inspect(bytes: &[u8]) -> Result<Self, BadPacket> {
        let packet = match bytes.first().map(|first| first >> 4) {
            Some(4) => inspect_v4(bytes),
            Some(6) => inspect_v6(bytes),
            Some(version) => Err(BadPacket::NotIp(version)),
            None => Err(BadPacket::Truncated { found: 0, least: IPV4_HEADER as usize }),
        }?;
        let (source, destination) = (packet.source(), packet.destination());
        if let Some(why) = Unusable::of(source) {
            return Err(BadPacket::Source(source, why));
        }
        if let Some(why) = Unusable::of(destination) {
            return Err(BadPacket::Destination(destination, why));
        }
        Ok(packet)
    }

    /// Whose packet it is.
    pub const fn source(&self) -> IpAddr {
        self.addresses.src()
    }

    /// Where it goes.
    pub const fn destination(&self) -> IpAddr {
        self.addresses.dst()
    }

    /// Where it comes from and where it goes, with the ports of a transport that has them.
    pub fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        let (from, to) = self.ports?;
        Some((SocketAddr::new(self.source(), from), SocketAddr::new(self.destination(), to)))
    }

    /// The differentiated services code point (RFC 2474 section 3).
    pub const fn dscp(&self) -> u8 {
        self.traffic_class >> 2
    }

    /// The two bits of congestion notification (RFC 3168 section 5).
    pub const fn ecn(&self) -> u8 {
        self.traffic_class & ECN
    }

    /// Whether the transport understands congestion marks: the packet is ECT or marked already.
    pub const fn is_ect(&self) -> bool {
        self.ecn() != NOT_ECT
    }

    /// A number that packets of one flow share, and other flows' packets seldom: a hash of addresses,
    /// protocol and ports, or the identifier of an ICMP echo. Without ports, and for every fragment,
    /// so that those of one packet stay together, it is one of addresses and protocol.
    ///
    /// Who does not know `seed` cannot choose flows that collide.
    #[inline]
    pub fn flow_key(&self, seed: u64) -> u64 {
        let mut hasher = FixedState::with_seed(seed).build_hasher();
        match self.addresses {
            Addresses::V4 { src, dst } => {
                hasher.write_u64(u64::from(src.to_bits()) << 32 | u64::from(dst.to_bits()));
            }
            Addresses::V6 { src, dst } => {
                hasher.write_u128(src.to_bits());
                hasher.write_u128(dst.to_bits());
            }
        }
        let Flow { protocol, transport } = self.flow;
        hasher.write_u64(u64::from(protocol) << 32 | u64::from(transport));
        hasher.finish()
    }

    /// With what the transport's header adds; `offset` is where it begins.
    fn with_transport(
        mut self,
        bytes: &[u8],
        offset: usize,
        least: usize,
    ) -> Result<Self, BadPacket> {
        let truncated = || BadPacket::Truncated { found: bytes.len(), least: offset + least };
        let header = bytes.get(offset..).filter(|h| h.len() >= least).ok_or_else(truncated)?;
        self.transport = Some(offset);
        let word = |at: usize| match header.get(at..at + 2) {
            Some(&[a, b]) => u16::from_be_bytes([a, b]),
            _ => 0,
        };
        match self.protocol {
            Protocol::TCP if !self.is_fragment => {
                let said = header.get(12).map_or(0, |byte| usize::from(byte >> 4) * 4);
                if said < least || said > header.len() {
                    return Err(BadPacket::Length { field: "a TCP header", said });
                }
            }
            Protocol::UDP => {
                // Shorter than what there is: the rest are options (RFC 9868).
                let said = usize::from(word(4));
                if said < least || (said > header.len() && !self.is_fragment) {
                    return Err(BadPacket::Length { field: "a UDP datagram", said });
                }
            }
            _ => {}
        }
        if has_ports(self.protocol) {
            self.ports = Some((word(0), word(2)));
        }
        if !self.is_fragment {
            self.flow.transport = match self.ports {
                Some((src, dst)) => u32::from(src) << 16 | u32::from(dst),
                None if self.is_echo(header) => word(4).into(),
                None => 0,
            };
        }
        Ok(self)
    }

    fn is_echo(&self, header: &[u8]) -> bool {
        // Request and reply (RFC 792, RFC 4443 section 4).
        match (self.addresses, self.protocol) {
            (Addresses::V4 { .. }, Protocol::ICMP) => matches!(header.first(), Some(8 | 0)),
            (Addresses::V6 { .. }, Protocol::ICMPV6) => matches!(header.first(), Some(128 | 129)),
            _ => false,
        }
    }
}

const fn has_ports(protocol: Protocol) -> bool {
    matches!(
        protocol,
        Protocol::TCP | Protocol::UDP | Protocol::DCCP | Protocol::SCTP | Protocol::UDP_LITE
    )
}

/// The shortest header of a transport, in bytes.
const fn least_header(protocol: Protocol, v4: bool) -> usize {
    match (protocol, v4) {
        (Protocol::TCP, _) => 20,
        (Protocol::UDP | Protocol::UDP_LITE, _) => 8,
        (Protocol::DCCP | Protocol::SCTP, _) => 12,
        (Protocol::ICMP, true) => 8,
        (Protocol::ICMPV6, false) => 4,
        _ => 0,
    }
}

/// The bytes have to be as many as the packet says.
fn check_total(found: usize, total: usize) -> Result<(), BadPacket> {
    if found < total {
        return Err(BadPacket::Truncated { found, least: total });
    }
    if found > total {
        return Err(BadPacket::Padded { found, total });
    }
    Ok(())
}

fn inspect_v4(bytes: &[u8]) -> Result<Packet, BadPacket> {
    let found = bytes.len();
    let words = bytes.first().map_or(0, |first| usize::from(first & 15));
    let header = 4 * words;
    if header < IPV4_HEADER as usize {
        return Err(BadPacket::Length { field: "an IPv4 header", said: header });
    }
    let view = Ipv4HeaderSlice::from_slice(bytes)
        .map_err(|_| BadPacket::Truncated { found, least: header })?;
    let total = usize::from(view.total_len());
    if total < header {
        return Err(BadPacket::Length { field: "an IPv4 packet", said: total });
    }
    check_total(found, total)?;
    let protocol = Protocol(view.protocol().0);
    let is_fragment = view.is_fragmenting_payload();
    let packet = Packet {
        addresses: Addresses::V4 { src: view.source_addr(), dst: view.destination_addr() },
        protocol,
        ports: None,
        traffic_class: view.dcp().value() << 2 | view.ecn().value(),
        is_fragment,
        flow: Flow { protocol: protocol.0, transport: 0 },
        transport: None,
    };
    if view.fragments_offset().value() > 0 {
        return Ok(packet);
    }
    // A first fragment may end within the header, but eight bytes of payload it has (RFC 791
    // section 3.2), and all ports are in those.
    let least = least_header(protocol, true);
    packet.with_transport(bytes, header, if is_fragment { least.min(8) } else { least })
}

fn inspect_v6(bytes: &[u8]) -> Result<Packet, BadPacket> {
    let found = bytes.len();
    let view = Ipv6HeaderSlice::from_slice(bytes)
        .map_err(|_| BadPacket::Truncated { found, least: IPV6_HEADER as usize })?;
    // A length of zero is that of a jumbogram, or there is nothing behind the header (RFC 2675
    // section 3).
    if view.payload_length() == 0 && extensions::is_jumbo(bytes, view.next_header().0) {
        return Err(BadPacket::Jumbogram);
    }
    check_total(found, IPV6_HEADER as usize + usize::from(view.payload_length()))?;
    let chain = Chain::walk(bytes, view.next_header().0)?;
    let protocol = Protocol(chain.protocol);
    let packet = Packet {
        addresses: Addresses::V6 { src: view.source_addr(), dst: view.destination_addr() },
        protocol,
        ports: None,
        traffic_class: view.traffic_class(),
        is_fragment: chain.fragment.is_some(),
        flow: Flow { protocol: chain.fragment.unwrap_or(chain.protocol), transport: 0 },
        transport: None,
    };
    match chain.transport {
        // A first fragment has all headers (RFC 7112 section 5).
        Some(offset) => packet.with_transport(bytes, offset, least_header(protocol, false)),
        None => Ok(packet),
    }
}

/// Lowers a packet's TTL or hop limit by one, as whoever passes it on does (RFC 1812 section 5.3.1, RFC 8200 section 3), and
/// keeps the checksum of an IPv4 header right. Whether it may go on: one whose hops are used up stays as it is.
pub fn lower_hop_limit(packet: &mut [u8]) -> bool {
    match packet.first().map(|first| first >> 4) {
        Some(4) if packet.len() >= IPV4_HEADER as usize && packet[8] > 1 => {
            let was = [packet[8], packet[9]];
            packet[8] -= 1;
            let before = u16::from_be_bytes([packet[10], packet[11]]);
            let after = checksum::updated(before, &was, &packet[8..10]);
            packet[10..12].copy_from_slice(&after.to_be_bytes());
            true
        }
        Some(6) if packet.len() >= IPV6_HEADER as usize && packet[7] > 1 => {
            packet[7] -= 1;
            true
        }
        _ => false,
    }
}

/// Marks a packet as one that met congestion (RFC 3168 section 5), and keeps the checksum of an IPv4
/// header right, or as wrong as it was (RFC 1624). Whether it is marked now: one that was marked
/// before is too; one whose transport does not understand marks, or that is no packet, stays as it is.
#[inline]
pub fn mark_ce(packet: &mut [u8]) -> bool {
    match packet.first().map(|first| first >> 4) {
        Some(4) if packet.len() >= IPV4_HEADER as usize => {
            let was = [packet[0], packet[1]];
            if was[1] & ECN == NOT_ECT {
                return false;
            }
            packet[1] |= CE;
            let before = u16::from_be_bytes([packet[10], packet[11]]);
            let after = checksum::updated(before, &was, &packet[..2]);
            packet[10..12].copy_from_slice(&after.to_be_bytes());
            true
        }
        // The traffic class is across two bytes; its last two bits are bits 4 and 5 of the second.
        Some(6) if packet.len() >= IPV6_HEADER as usize => {
            if packet[1] >> 4 & ECN == NOT_ECT {
                return false;
            }
            packet[1] |= CE << 4;
            true
        }
        _ => false,
    }
}
