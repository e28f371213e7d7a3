//! IP headers: IPv4 (RFC 791), IPv6 (RFC 8200), and IP in IP (RFC 2003).
//!
//! A packet is built from the outside in: each header appends itself to the bytes that there are
//! and gets the length of what follows. It is read the same way: each view gives its payload.

use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::err::{LenError, ipv4, ipv6};
use etherparse::{IpNumber, Ipv4Header, Ipv4HeaderSlice, Ipv6Header, Ipv6HeaderSlice, Ipv6Slice};
use thiserror::Error;

use crate::checksum::{self, Sum};

/// Bytes of an IPv4 header without options.
pub const IPV4_HEADER: u32 = Ipv4Header::MIN_LEN as u32;
/// Bytes of an IPv6 header without extension headers.
pub const IPV6_HEADER: u32 = Ipv6Header::LEN as u32;

/// Why bytes are not the IP packet they were taken for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ParseError {
    /// Fewer bytes than the header, or the length in it, asks for.
    #[error("{found} bytes of an IP packet, at least {least} are needed")]
    Truncated {
        /// How many bytes there are.
        found: usize,
        /// How many are needed.
        least: usize,
    },
    /// Neither version 4 nor 6.
    #[error("IP version {0} is neither 4 nor 6")]
    Version(u8),
    /// The header's own length is below the least.
    #[error("an IPv4 header of {0} words, at least 5 are needed")]
    HeaderLength(u8),
    /// The total length does not even cover the header.
    #[error("a total length of {total} bytes with a header of {header}")]
    TotalLength {
        /// The field.
        total: usize,
        /// The header with its options.
        header: usize,
    },
    /// The IPv4 header was changed on the way.
    #[error("the IPv4 header's checksum is wrong")]
    Checksum,
    /// A fragment: nothing here reassembles.
    #[error("a fragment of a packet")]
    Fragment,
    /// The extension headers are out of order or malformed.
    #[error("malformed IPv6 extension headers")]
    Extension,
}

/// A packet that cannot be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum EmitError {
    /// The length field has 16 bits.
    #[error("{0} bytes of payload do not fit into an IP packet, which has at most 65535")]
    TooLong(usize),
    /// A header was to be written in place where none fits.
    #[error("{room} bytes of room for an IP header of {header}")]
    NoRoom {
        /// How many bytes there are.
        room: usize,
        /// How many are needed.
        header: usize,
    },
    /// The addresses do not belong to one IP version.
    #[error("{0} and {1} are of different IP versions")]
    MixedFamilies(IpAddr, IpAddr),
}

/// The source and the destination of a packet, of one version.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Addresses {
    /// IPv4.
    V4 {
        /// Whose packet it is.
        src: Ipv4Addr,
        /// Where it goes.
        dst: Ipv4Addr,
    },
    /// IPv6.
    V6 {
        /// Whose packet it is.
        src: Ipv6Addr,
        /// Where it goes.
        dst: Ipv6Addr,
    },
}

impl Addresses {
    /// From `src` to `dst`.
    ///
    /// # Errors
    ///
    /// One is an IPv4 address and the other an IPv6 address.
    pub const fn new(src: IpAddr, dst: IpAddr) -> Result<Self, EmitError> {
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => Ok(Self::V4 { src, dst }),
            (IpAddr::V6(src), IpAddr::V6(dst)) => Ok(Self::V6 { src, dst }),
            _ => Err(EmitError::MixedFamilies(src, dst)),
        }
    }

    /// Whose packet it is.
    pub const fn src(&self) -> IpAddr {
        match *self {
            Self::V4 { src, .. } => IpAddr::V4(src),
            Self::V6 { src, .. } => IpAddr::V6(src),
        }
    }

    /// Where it goes.
    pub const fn dst(&self) -> IpAddr {
        match *self {
            Self::V4 { dst, .. } => IpAddr::V4(dst),
            Self::V6 { dst, .. } => IpAddr::V6(dst),
        }
    }

    /// Of the answer.
    #[must_use]
    pub const fn reversed(self) -> Self {
        match self {
            Self::V4 { src, dst } => Self::V4 { src: dst, dst: src },
            Self::V6 { src, dst } => Self::V6 { src: dst, dst: src },
        }
    }

    /// Bytes of a header between these addresses.
    pub const fn header_len(&self) -> u32 {
        match self {
            Self::V4 { .. } => IPV4_HEADER,
            Self::V6 { .. } => IPV6_HEADER,
        }
    }

    /// The sum over the pseudo header of a transport's header and payload, which are `len` bytes long (RFC 9293
    /// section 3.1, RFC 8200 section 8.1).
    #[inline]
    pub fn pseudo_header(&self, protocol: Protocol, len: usize) -> Sum {
        let addresses = match self {
            Self::V4 { src, dst } => Sum::new().with(&src.octets()).with(&dst.octets()),
            Self::V6 { src, dst } => Sum::new().with(&src.octets()).with(&dst.octets()),
        };
        // Longer than an IP packet may be is refused when its header is written.
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        addresses.with(&[0, protocol.0]).with(&len.to_be_bytes())
    }

    /// The checksum of `bytes`, a transport's header and payload, with the pseudo header. Over bytes that hold their right
    /// checksum it is zero.
    #[inline]
    pub(crate) fn checksum(&self, protocol: Protocol, bytes: &[u8]) -> u16 {
        self.pseudo_header(protocol, bytes.len()).with(bytes).checksum()
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} > {}", self.src(), self.dst())
    }
}

/// What follows an IP header, by its assigned number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Protocol(pub u8);

impl Protocol {
    /// ICMP.
    pub const ICMP: Self = Self(1);
    /// An IPv4 packet within this one (RFC 2003).
    pub const IPV4: Self = Self(4);
    /// TCP.
    pub const TCP: Self = Self(6);
    /// UDP.
    pub const UDP: Self = Self(17);
    /// An IPv6 packet within this one (RFC 2473).
    pub const IPV6: Self = Self(41);
    /// DCCP (RFC 4340).
    pub const DCCP: Self = Self(33);
    /// ICMPv6 (RFC 4443).
    pub const ICMPV6: Self = Self(58);
    /// SCTP (RFC 9260).
    pub const SCTP: Self = Self(132);
    /// UDP-Lite (RFC 3828).
    pub const UDP_LITE: Self = Self(136);
}

/// What an IP header says. Options and extension headers are skipped when read, never written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Header {
    /// Source and destination; they decide the version.
    pub addresses: Addresses,
    /// What follows.
    pub protocol: Protocol,
    /// Routers that it may still pass.
    pub ttl: u8,
    /// Differentiated services in the upper six bits, congestion notification in the lower two
    /// (RFC 2474, RFC 3168).
    pub traffic_class: u8,
    /// Identification; IPv6 has none: zero.
    pub id: u16,
    /// No router may fragment it; always so in IPv6.
    pub dont_fragment: bool,
}

impl Header {
    /// A header with a lifetime of 64 routers, no traffic class, no identification, and no leave
    /// to fragment.
    pub const fn new(addresses: Addresses, protocol: Protocol) -> Self {
        Self { addresses, protocol, ttl: 64, traffic_class: 0, id: 0, dont_fragment: true }
    }

    /// The header of a tunnel between `addresses` around a packet with this header: traffic class
    /// and leave to fragment are the inner packet's, the lifetime is the tunnel's own (RFC 2003
    /// section 3.1, MIP-3).
    #[must_use]
    pub const fn encapsulated(&self, addresses: Addresses) -> Self {
        let protocol = match self.addresses {
            Addresses::V4 { .. } => Protocol::IPV4,
            Addresses::V6 { .. } => Protocol::IPV6,
        };
        let outer = Self::new(addresses, protocol);
        let dont_fragment = match addresses {
            Addresses::V4 { .. } => self.dont_fragment,
            Addresses::V6 { .. } => true,
        };
        Self { traffic_class: self.traffic_class, dont_fragment, ..outer }
    }

    /// Appends the header of a packet with `payload_len` bytes after it.
    ///
    /// # Errors
    ///
    /// The packet would be too long; nothing is written.
    pub fn emit(&self, payload_len: usize, out: &mut Vec<u8>) -> Result<(), EmitError> {
        self.with_bytes(payload_len, |bytes| out.extend_from_slice(bytes))
    }

    /// Writes the header in front of a payload that is in its place already: `packet` is
    /// [`header_len`](Addresses::header_len) bytes of room, then the payload. The bytes are those of
    /// [`emit`](Self::emit).
    ///
    /// # Errors
    ///
    /// The packet is too long, or has no room for a header; nothing is written.
    #[inline]
    pub fn emit_in_place(&self, packet: &mut [u8]) -> Result<(), EmitError> {
        let header = self.addresses.header_len() as usize;
        match packet.split_at_mut_checked(header) {
            Some((room, payload)) => {
                self.with_bytes(payload.len(), |bytes| room.copy_from_slice(bytes))
            }
            None => Err(EmitError::NoRoom { room: packet.len(), header }),
        }
    }

    #[inline]
    fn with_bytes(&self, payload_len: usize, write: impl FnOnce(&[u8])) -> Result<(), EmitError> {
        let len = u16::try_from(payload_len).map_err(|_| EmitError::TooLong(payload_len))?;
        match self.addresses {
            Addresses::V4 { src, dst } => {
                let total = u16::try_from(payload_len + IPV4_HEADER as usize)
                    .map_err(|_| EmitError::TooLong(payload_len))?;
                write(&self.v4_bytes(src, dst, total));
            }
            Addresses::V6 { src, dst } => {
                let header = Ipv6Header {
                    traffic_class: self.traffic_class,
                    flow_label: Default::default(),
                    payload_length: len,
                    next_header: IpNumber(self.protocol.0),
                    hop_limit: self.ttl,
                    source: src.octets(),
                    destination: dst.octets(),
                };
                write(&header.to_bytes());
            }
        }
        Ok(())
    }

    fn v4_bytes(&self, src: Ipv4Addr, dst: Ipv4Addr, total: u16) -> [u8; IPV4_HEADER as usize] {
        let mut bytes = [0; IPV4_HEADER as usize];
        // Version 4, five words.
        bytes[0] = 0x45;
        bytes[1] = self.traffic_class;
        bytes[2..4].copy_from_slice(&total.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.id.to_be_bytes());
        bytes[6] = if self.dont_fragment { 0x40 } else { 0 };
        bytes[8] = self.ttl;
        bytes[9] = self.protocol.0;
        bytes[12..16].copy_from_slice(&src.octets());
        bytes[16..].copy_from_slice(&dst.octets());
        let checksum = checksum::of(&bytes);
        bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }

    /// Reads the header at the start of `bytes`: what it says, and its payload. Bytes beyond the
    /// packet's own length are no part of it.
    ///
    /// # Errors
    ///
    /// Names what is cut short, malformed or damaged.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        match bytes.first().map(|first| first >> 4) {
            Some(4) => parse_v4(bytes),
            Some(6) => parse_v6(bytes),
            Some(version) => Err(ParseError::Version(version)),
            None => Err(ParseError::Truncated { found: 0, least: IPV4_HEADER as usize }),
        }
    }
}

fn parse_v4(bytes: &[u8]) -> Result<(Header, &[u8]), ParseError> {
    let view = Ipv4HeaderSlice::from_slice(bytes).map_err(|error| match error {
        ipv4::HeaderSliceError::Len(e) => truncated(&e),
        ipv4::HeaderSliceError::Content(ipv4::HeaderError::UnexpectedVersion {
            version_number,
        }) => ParseError::Version(version_number),
        ipv4::HeaderSliceError::Content(ipv4::HeaderError::HeaderLengthSmallerThanHeader {
            ihl,
        }) => ParseError::HeaderLength(ihl),
    })?;
    let (header, total) = (view.slice().len(), usize::from(view.total_len()));
    if total < header {
        return Err(ParseError::TotalLength { total, header });
    }
    let payload = bytes
        .get(header..total)
        .ok_or(ParseError::Truncated { found: bytes.len(), least: total })?;
    if checksum::of(view.slice()) != 0 {
        return Err(ParseError::Checksum);
    }
    if view.is_fragmenting_payload() {
        return Err(ParseError::Fragment);
    }
    let header = Header {
        addresses: Addresses::V4 { src: view.source_addr(), dst: view.destination_addr() },
        protocol: Protocol(view.protocol().0),
        ttl: view.ttl(),
        traffic_class: view.dcp().value() << 2 | view.ecn().value(),
        id: view.identification(),
        dont_fragment: view.dont_fragment(),
    };
    Ok((header, payload))
}

fn parse_v6(bytes: &[u8]) -> Result<(Header, &[u8]), ParseError> {
    let fixed = Ipv6HeaderSlice::from_slice(bytes).map_err(|error| match error {
        ipv6::HeaderSliceError::Len(e) => truncated(&e),
        ipv6::HeaderSliceError::Content(ipv6::HeaderError::UnexpectedVersion {
            version_number,
        }) => ParseError::Version(version_number),
    })?;
    // A length of zero is taken for a jumbogram's otherwise, which nothing here sends.
    let len = Ipv6Header::LEN + usize::from(fixed.payload_length());
    let packet =
        bytes.get(..len).ok_or(ParseError::Truncated { found: bytes.len(), least: len })?;
    let view = Ipv6Slice::from_slice(packet).map_err(|error| match error {
        ipv6::SliceError::Len(e) => truncated(&e),
        ipv6::SliceError::Header(_) | ipv6::SliceError::Exts(_) => ParseError::Extension,
    })?;
    if view.is_payload_fragmented() {
        return Err(ParseError::Fragment);
    }
    let header = Header {
        addresses: Addresses::V6 { src: fixed.source_addr(), dst: fixed.destination_addr() },
        protocol: Protocol(view.payload().ip_number.0),
        ttl: fixed.hop_limit(),
        traffic_class: fixed.traffic_class(),
        id: 0,
        dont_fragment: true,
    };
    // The payload is what ends the packet; taken from there it lives as long as `bytes`.
    Ok((header, &packet[packet.len() - view.payload().payload.len()..]))
}

fn truncated(error: &LenError) -> ParseError {
    ParseError::Truncated { found: error.len, least: error.required_len }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    fn v4() -> Addresses {
        Addresses::V4 { src: Ipv4Addr::new(192, 0, 2, 1), dst: Ipv4Addr::new(198, 51, 100, 7) }
    }

    fn v6() -> Addresses {
        Addresses::V6 {
            src: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
            dst: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2),
        }
    }

    fn packet(header: &Header, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        header.emit(payload.len(), &mut out).unwrap();
        out.extend_from_slice(payload);
        out
    }

    #[test]
    fn the_checksum_is_that_of_a_worked_header() {
        let mut header = Header::new(
            Addresses::V4 {
                src: Ipv4Addr::new(192, 168, 0, 1),
                dst: Ipv4Addr::new(192, 168, 0, 199),
            },
            Protocol::UDP,
        );
        header.ttl = 0x40;
        let bytes = packet(&header, &[0; 95]);
        let worked = [0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0xb8, 0x61];
        assert_eq!(bytes[..12], worked);
    }

    /// MIP-3: a packet in a tunnel is 20 bytes longer and comes out as it went in.
    #[test]
    fn a_tunnelled_packet_comes_out_as_it_went_in() {
        let mut inner = Header::new(v4(), Protocol::TCP);
        inner.traffic_class = 0b1011_1011;
        inner.dont_fragment = false;
        let inside = packet(&inner, b"segment");
        let ends = Addresses::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into()).unwrap();
        let tunnel = inner.encapsulated(ends);
        let bytes = packet(&tunnel, &inside);
        assert_eq!(bytes.len(), inside.len() + 20);

        let (outer, payload) = Header::parse(&bytes).unwrap();
        assert_eq!((outer.protocol, outer.addresses), (Protocol::IPV4, ends));
        assert_eq!((outer.traffic_class, outer.dont_fragment), (inner.traffic_class, false));
        assert_eq!(Header::parse(payload), Ok((inner, &b"segment"[..])));
    }

    #[test]
    fn extension_headers_are_skipped_and_fragments_refused() {
        let tcp_after_options = |next: u8, fragment: u8| {
            let mut header = Header::new(v6(), Protocol(next));
            header.ttl = 1;
            packet(&header, &[6, 0, 0, fragment, 0, 0, 0, 1, b'x'])
        };
        let bytes = tcp_after_options(0, 0);
        let (header, payload) = Header::parse(&bytes).unwrap();
        assert_eq!((header.protocol, payload), (Protocol::TCP, &b"x"[..]));
        assert_eq!(Header::parse(&tcp_after_options(44, 8)), Err(ParseError::Fragment));
    }

    #[test]
    fn ipv4_fragments_and_damage_are_told_apart() {
        let bytes = packet(&Header::new(v4(), Protocol::TCP), b"abc");
        let mut damaged = bytes.clone();
        damaged[8] ^= 1;
        assert_eq!(Header::parse(&damaged), Err(ParseError::Checksum));
        let mut fragment = bytes.clone();
        fragment[6] = 0x20;
        fragment[10] = fragment[10].wrapping_add(0x20);
        assert_eq!(Header::parse(&fragment), Err(ParseError::Fragment));
        assert_eq!(
            Header::parse(&bytes[..22]),
            Err(ParseError::Truncated { found: 22, least: 23 })
        );
        assert_eq!(Header::parse(&[0x70]), Err(ParseError::Version(7)));
    }

    #[test]
    fn what_does_not_fit_is_refused_and_nothing_written() {
        let mut out = Vec::new();
        let header = Header::new(v4(), Protocol::TCP);
        assert_eq!(header.emit(65_516, &mut out), Err(EmitError::TooLong(65_516)));
        assert_eq!(Header::new(v6(), Protocol::TCP).emit(65_535, &mut Vec::new()), Ok(()));
        assert!(out.is_empty());
        let mixed = Addresses::new(v4().src(), v6().dst()).unwrap_err().to_string();
        assert!(mixed.contains("192.0.2.1") && mixed.contains("2001:db8::2"), "{mixed}");
    }

    fn headers() -> impl Strategy<Value = Header> {
        let addresses = prop_oneof![
            any::<(u32, u32)>().prop_map(|(s, d)| Addresses::V4 { src: s.into(), dst: d.into() }),
            any::<(u128, u128)>().prop_map(|(s, d)| Addresses::V6 { src: s.into(), dst: d.into() }),
        ];
        let protocol = prop_oneof![Just(Protocol::TCP), Just(Protocol::UDP), Just(Protocol::IPV4)];
        (addresses, protocol, any::<(u8, u8, u16, bool)>()).prop_map(|(addresses, protocol, f)| {
            let v4 = matches!(addresses, Addresses::V4 { .. });
            Header {
                addresses,
                protocol,
                ttl: f.0,
                traffic_class: f.1,
                id: if v4 { f.2 } else { 0 },
                dont_fragment: f.3 || !v4,
            }
        })
    }

    proptest! {
        #[test]
        fn every_header_comes_back(header in headers(), payload: Vec<u8>, after: u8) {
            let mut bytes = packet(&header, &payload);
            prop_assert_eq!(
                bytes.len() - payload.len(),
                header.addresses.header_len() as usize
            );
            let mut in_place = bytes.clone();
            in_place[..header.addresses.header_len() as usize].fill(0xaa);
            prop_assert_eq!(header.emit_in_place(&mut in_place), Ok(()));
            prop_assert_eq!(&in_place, &bytes);
            prop_assert!(header.emit_in_place(&mut [0; 19]).is_err());
            bytes.push(after);
            prop_assert_eq!(Header::parse(&bytes), Ok((header, &payload[..])));
        }

        #[test]
        fn arbitrary_bytes_make_nothing_panic(mut bytes: Vec<u8>, v6: bool) {
            let _ = Header::parse(&bytes);
            if let Some(first) = bytes.first_mut() {
                *first = if v6 { 0x60 } else { 0x45 };
                let _ = Header::parse(&bytes);
            }
        }

        #[test]
        fn no_cut_packet_is_taken_for_a_whole_one(header in headers(), cut in 0_usize..60) {
            let bytes = packet(&header, &[7; 20]);
            let is_truncated = matches!(
                Header::parse(&bytes[..cut.min(bytes.len() - 1)]),
                Err(ParseError::Truncated { .. })
            );
            prop_assert!(is_truncated);
        }
    }
}
