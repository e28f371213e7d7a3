//! The decoders of IP, TCP and UDP, and that of compressed headers, on any bytes: what is read can be
//! written and read again.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use lasthop_wire::ip::{Addresses, Header, Protocol};
use lasthop_wire::packet::{IcmpError, Packet, icmp_error, mark_ce};
use lasthop_wire::tcp::Segment;
use lasthop_wire::{udp, unsplit};

fn transport(between: &Addresses, protocol: Protocol, bytes: &[u8]) {
    match protocol {
        Protocol::TCP => segment(between, bytes),
        Protocol::UDP => datagram(between, bytes),
        _ => {}
    }
}

fn segment(between: &Addresses, bytes: &[u8]) {
    let Ok((segment, payload)) = Segment::parse_unverified(bytes) else {
        assert!(Segment::parse(between, bytes).is_err());
        return;
    };
    assert_eq!(segment.len as usize, payload.len());
    let mut again = Vec::new();
    assert_eq!(segment.emit(between, payload, &mut again), Ok(()));
    let header = segment.header_len() as usize;
    assert_eq!(again.len(), header + payload.len());
    let (read, carried) = Segment::parse(between, &again).expect("what was written is read");
    assert_eq!(carried, payload);
    // Of what a header can hold nothing is lost; only blocks beside many other options are cut.
    let mut kept = segment;
    kept.options.sack.truncate(segment.options.sack_that_fits().len());
    assert_eq!(read, kept);
    // One changed bit is never believed.
    again[header - 1] ^= 1;
    assert!(Segment::parse(between, &again).is_err());
}

fn datagram(between: &Addresses, bytes: &[u8]) {
    let Ok((header, payload)) = udp::Header::parse(between, bytes) else { return };
    let mut again = Vec::new();
    assert_eq!(header.emit(between, payload, &mut again), Ok(()));
    assert_eq!(udp::Header::parse(between, &again), Ok((header, payload)));
}

/// Headers of IP within IP, and what the innermost carries.
fn packet(bytes: &[u8], depth: u32) {
    let Ok((header, payload)) = Header::parse(bytes) else { return };
    let mut again = Vec::new();
    assert_eq!(header.emit(payload.len(), &mut again), Ok(()));
    assert_eq!(again.len(), header.addresses.header_len() as usize);
    again.extend_from_slice(payload);
    // Protocols that IPv6 takes for extension headers mean something else behind IPv4.
    assert_eq!(Header::parse(&again), Ok((header, payload)));
    transport(&header.addresses, header.protocol, payload);
    compress(bytes, header, payload);
    if depth > 0 && matches!(header.protocol, Protocol::IPV4 | Protocol::IPV6) {
        packet(payload, depth - 1);
    }
}

/// A packet with its headers compressed comes out as it went in, but for an identification that means
/// nothing.
fn compress(packet: &[u8], header: Header, payload: &[u8]) {
    let hop = unsplit::Header { cid: 1, offer: Some(2), ..unsplit::Header::default() };
    let mut compressed = Vec::new();
    if unsplit::compress(packet, &hop, &mut compressed).is_err() {
        assert!(compressed.is_empty());
        return;
    }
    let port = |at: usize| u16::from_be_bytes([payload[at], payload[at + 1]]);
    let src = SocketAddr::new(header.addresses.src(), port(0));
    let dst = SocketAddr::new(header.addresses.dst(), port(2));
    let mut whole = Vec::new();
    assert_eq!(unsplit::expand(&compressed, (src, dst), &mut whole), Ok(hop));
    let id = if header.dont_fragment { 0 } else { header.id };
    assert_eq!(Header::parse(&whole), Ok((Header { id, ..header }, payload)));
}

/// Bytes that claim to be a packet with compressed headers.
fn expand(bytes: &[u8]) {
    for between in addresses() {
        let ends = (SocketAddr::new(between.src(), 80), SocketAddr::new(between.dst(), 4000));
        let mut whole = Vec::new();
        let Ok(header) = unsplit::expand(bytes, ends, &mut whole) else {
            assert!(whole.is_empty());
            continue;
        };
        assert_eq!(unsplit::parse(bytes), Ok(header));
        let (mut again, mut same) = (Vec::new(), Vec::new());
        assert_eq!(unsplit::compress(&whole, &header, &mut again), Ok(()));
        assert_eq!(unsplit::expand(&again, ends, &mut same), Ok(header));
        assert_eq!(whole, same);
    }
}

/// A packet that may cross the hop: a mark changes nothing else that it says, and an error about it is
/// a packet about which there is none.
fn cross(bytes: &[u8]) {
    let mut out = [0; 1280];
    for between in addresses() {
        let error = icmp_error(IcmpError::TooBig { mtu: 1280 }, bytes, between.src(), &mut out);
        if let Some(length) = error {
            let error = &out[..length];
            assert!(Packet::inspect(error).is_ok());
            assert_eq!(icmp_error(IcmpError::NoRoute, error, between.src(), &mut [0; 1280]), None);
        }
    }
    let Ok(packet) = Packet::inspect(bytes) else { return };
    let mut marked = bytes.to_vec();
    assert_eq!(mark_ce(&mut marked), packet.is_ect());
    let mut again = Packet::inspect(&marked).expect("only marked");
    assert_eq!(again.flow_key(1), packet.flow_key(1));
    again.traffic_class = packet.traffic_class;
    assert_eq!(again, packet);
}

fn addresses() -> [Addresses; 2] {
    let v4 = |last| IpAddr::V4(Ipv4Addr::new(192, 0, 2, last));
    let v6 = |last| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last));
    [Addresses::new(v4(1), v4(2)), Addresses::new(v6(1), v6(2))].map(|of| of.expect("one version"))
}

/// One input: a packet, the payload of one, and both again with IPv4's checksum made right.
pub fn run(bytes: &[u8]) {
    packet(bytes, 3);
    cross(bytes);
    expand(bytes);
    for between in addresses() {
        segment(&between, bytes);
        datagram(&between, bytes);
        for protocol in [Protocol::TCP, Protocol::UDP, Protocol::IPV4] {
            let mut whole = Vec::new();
            let header = Header::new(between, protocol);
            if header.emit(bytes.len(), &mut whole).is_ok() {
                whole.extend_from_slice(bytes);
                packet(&whole, 3);
            }
        }
    }
    if let Some(right) = with_right_checksum(bytes) {
        packet(&right, 3);
    }
}

/// The packet with its IPv4 header's checksum made right; `None` if it has no such header.
fn with_right_checksum(bytes: &[u8]) -> Option<Vec<u8>> {
    let words = usize::from(bytes.first().filter(|first| **first >> 4 == 4)? & 15);
    let mut right = bytes.to_vec();
    let header = right.get_mut(..4 * words)?;
    header.get_mut(10..12)?.fill(0);
    let sum: u32 = header.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !((folded & 0xffff) + (folded >> 16)) as u16;
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    Some(right)
}
