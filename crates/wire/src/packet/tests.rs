use alloc::string::ToString;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::icmpv4::DestUnreachableHeader as Unreachable4;
use etherparse::icmpv6::DestUnreachableCode as Unreachable6;
use etherparse::{
    Icmpv4Type, Icmpv6Type, Ipv4HeaderSlice, LaxPacketHeaders, NetSlice, PacketBuilder,
    PacketBuilderStep, SlicedPacket, TransportSlice,
};
use proptest::prelude::*;

use super::*;

const A4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const B4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
const A6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const B6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 7);
const ROUTER4: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1));
const ROUTER6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 1));

fn ip(v4: bool) -> PacketBuilderStep<etherparse::IpHeaders> {
    if v4 {
        PacketBuilder::ipv4(A4.octets(), B4.octets(), 64)
    } else {
        PacketBuilder::ipv6(A6.octets(), B6.octets(), 64)
    }
}

fn udp(v4: bool, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    ip(v4).udp(4000, 53).write(&mut out, payload).unwrap();
    out
}

fn tcp(v4: bool, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    ip(v4).tcp(5000, 80, 1, 500).ack(2).write(&mut out, payload).unwrap();
    out
}

fn echo(v4: bool, id: u16, sequence: u16) -> Vec<u8> {
    let mut out = Vec::new();
    if v4 {
        ip(v4).icmpv4_echo_request(id, sequence).write(&mut out, b"ping").unwrap();
    } else {
        ip(v4).icmpv6_echo_request(id, sequence).write(&mut out, b"ping").unwrap();
    }
    out
}

/// The kinds of packets that there are in most tests.
fn packets() -> Vec<Vec<u8>> {
    let of = |v4| [udp(v4, b"query"), tcp(v4, b"GET"), echo(v4, 7, 1)];
    [of(true), of(false)].concat()
}

/// An IPv6 packet with these headers behind its own, the first of kind `next`.
fn behind_v6(next: u8, parts: &[&[u8]]) -> Vec<u8> {
    let rest = parts.concat();
    let mut packet = udp(false, &[])[..40].to_vec();
    packet[4..6].copy_from_slice(&(rest.len() as u16).to_be_bytes());
    packet[6] = next;
    packet.extend(rest);
    packet
}

/// An extension header with eight bytes of options that only fill, before one of kind `next`.
fn options(next: u8) -> [u8; 8] {
    [next, 0, 1, 4, 0, 0, 0, 0]
}

/// A fragment header.
fn fragment(next: u8, offset: u16, more: bool) -> [u8; 8] {
    let [a, b] = (offset << 3 | u16::from(more)).to_be_bytes();
    [next, 0, a, b, 0, 0, 0, 9]
}

/// The fragment of an IPv4 packet with these eight bytes times `offset` before it.
fn fragment_v4(protocol: u8, offset: u16, more: bool, payload: &[u8]) -> Vec<u8> {
    let mut packet = [&udp(true, &[])[..20], payload].concat();
    packet[2..4].copy_from_slice(&(20 + payload.len() as u16).to_be_bytes());
    packet[6..8].copy_from_slice(&(offset | u16::from(more) << 13).to_be_bytes());
    packet[9] = protocol;
    packet
}

fn name(bytes: &[u8]) -> &'static str {
    Packet::inspect(bytes).unwrap_err().name()
}

#[test]
fn a_packet_tells_what_it_is() {
    for v4 in [true, false] {
        let (a, b) =
            if v4 { (IpAddr::V4(A4), IpAddr::V4(B4)) } else { (IpAddr::V6(A6), IpAddr::V6(B6)) };
        let icmp = if v4 { Protocol::ICMP } else { Protocol::ICMPV6 };
        for (bytes, protocol, ports) in [
            (udp(v4, b"x"), Protocol::UDP, Some((4000, 53))),
            (tcp(v4, b"x"), Protocol::TCP, Some((5000, 80))),
            (echo(v4, 1, 1), icmp, None),
        ] {
            let packet = Packet::inspect(&bytes).unwrap();
            assert_eq!((packet.source(), packet.destination()), (a, b));
            assert_eq!((packet.protocol, packet.ports), (protocol, ports));
            assert_eq!((packet.dscp(), packet.ecn(), packet.is_fragment), (0, 0, false));
        }
    }
    let mut bytes = udp(true, b"x");
    bytes[1] = 46 << 2 | 2;
    let packet = Packet::inspect(&bytes).unwrap();
    assert_eq!((packet.dscp(), packet.ecn(), packet.is_ect()), (46, 2, true));
    let mut bytes = udp(false, b"x");
    bytes[0] |= 46 >> 2;
    bytes[1] |= (46 & 3) << 6 | 1 << 4;
    let packet = Packet::inspect(&bytes).unwrap();
    assert_eq!((packet.dscp(), packet.ecn(), packet.is_ect()), (46, 1, true));
}

#[test]
fn the_protocol_behind_extension_headers_is_found() {
    let datagram = &udp(false, b"query")[40..];
    let authentication = [17, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0];
    for bytes in [
        behind_v6(0, &[&options(17), datagram]),
        behind_v6(0, &[&options(60), &options(43), &options(17), datagram]),
        behind_v6(51, &[&authentication, datagram]),
        behind_v6(44, &[&fragment(17, 0, false), datagram]),
    ] {
        let packet = Packet::inspect(&bytes).unwrap();
        assert_eq!(packet, Packet { transport: packet.transport, ..whole(&udp(false, b"query")) });
        assert_eq!(packet.transport, Some(bytes.len() - datagram.len()));
    }
    // Nothing, and what nobody can look into.
    assert_eq!(whole(&behind_v6(59, &[])).protocol, Protocol(59));
    assert_eq!(whole(&behind_v6(50, &[&[1; 20]])).ports, None);
}

fn whole(bytes: &[u8]) -> Packet {
    Packet::inspect(bytes).unwrap()
}

#[test]
fn a_chain_of_extension_headers_is_walked_so_far_only() {
    let datagram = &udp(false, b"query")[40..];
    let chain = |headers: usize| {
        let options: Vec<_> =
            (1..=headers).flat_map(|n| options(if n == headers { 17 } else { 60 })).collect();
        behind_v6(60, &[&options, datagram])
    };
    assert_eq!(whole(&chain(MOST_EXTENSIONS)).ports, Some((4000, 53)));
    assert_eq!(name(&chain(MOST_EXTENSIONS + 1)), "long-extension-chain");
    assert_eq!(name(&behind_v6(60, &[&options(0), &options(17), datagram])), "extension-order");
    let twice = [fragment(44, 0, true), fragment(17, 0, true)].concat();
    assert_eq!(name(&behind_v6(44, &[&twice, datagram])), "extension-order");
}

#[test]
fn only_the_first_fragment_has_ports() {
    let datagram = &udp(false, b"query")[40..];
    let first = whole(&behind_v6(44, &[&fragment(17, 0, true), datagram]));
    let later = whole(&behind_v6(44, &[&fragment(17, 3, false), datagram]));
    assert_eq!((first.ports, first.is_fragment), (Some((4000, 53)), true));
    assert_eq!((later.ports, later.is_fragment), (None, true));
    assert_eq!(first.flow_key(1), later.flow_key(1));
    // With options among what was fragmented, the second cannot know what is behind them.
    let first = whole(&behind_v6(44, &[&fragment(60, 0, true), &options(17), datagram]));
    let later = whole(&behind_v6(44, &[&fragment(60, 3, false), datagram]));
    assert_eq!((first.protocol, later.protocol), (Protocol::UDP, Protocol(60)));
    assert_eq!(first.flow_key(1), later.flow_key(1));
    let [first, later] = [(0, true), (1, false)]
        .map(|(offset, more)| whole(&fragment_v4(6, offset, more, &[0, 1, 0, 2, 0, 0, 0, 0])));
    assert_eq!((first.ports, later.ports), (Some((1, 2)), None));
    assert_eq!(first.flow_key(1), later.flow_key(1));
    // No IPv6 header chain is split, and ports are in the first bytes of IPv4.
    assert_eq!(name(&behind_v6(44, &[&fragment(17, 0, true), &datagram[..7]])), "truncated");
    assert_eq!(name(&fragment_v4(17, 0, true, &[0; 7])), "truncated");
}

#[test]
fn lengths_that_lie_are_refused() {
    for good in packets() {
        for cut in 0..good.len() {
            assert_eq!(name(&good[..cut]), "truncated");
        }
        assert_eq!(name(&[&good[..], &[0]].concat()), "padded");
    }
    let changed = |v4, tcp_too: bool, at: usize, to: &[u8]| {
        let mut bytes = if tcp_too { tcp(v4, b"GET") } else { udp(v4, b"query") };
        bytes[at..at + to.len()].copy_from_slice(to);
        bytes
    };
    assert_eq!(name(&changed(true, false, 0, &[0x44])), "bad-length");
    assert_eq!(name(&changed(true, false, 0, &[0x4f])), "truncated");
    assert_eq!(name(&changed(true, false, 2, &[0, 19])), "bad-length");
    assert_eq!(name(&changed(true, false, 0, &[0x55])), "not-ip");
    for v4 in [true, false] {
        let transport = if v4 { 20 } else { 40 };
        assert_eq!(name(&changed(v4, false, transport + 4, &[0, 7])), "bad-length");
        assert_eq!(name(&changed(v4, false, transport + 4, &[0, 14])), "bad-length");
        assert_eq!(name(&changed(v4, true, transport + 12, &[0x40])), "bad-length");
        assert_eq!(name(&changed(v4, true, transport + 12, &[0x60])), "bad-length");
        // What is behind a datagram within its packet are options.
        assert!(Packet::inspect(&changed(v4, false, transport + 4, &[0, 8])).is_ok());
    }
    let error = Packet::inspect(&changed(true, false, 24, &[0, 14])).unwrap_err().to_string();
    assert_eq!(error, "a UDP datagram of 14 bytes cannot be true");
}

#[test]
fn jumbograms_are_refused() {
    let jumbo = [59, 0, 0xc2, 4, 0, 1, 0, 0];
    let padded = [59, 1, 1, 0, 0, 1, 1, 0, 0xc2, 4, 0, 1, 0, 0, 0, 0];
    for header in [&jumbo[..], &padded] {
        let mut bytes = behind_v6(0, &[header, &[0; 100]]);
        assert_eq!(name(&bytes), "jumbogram");
        bytes[4..6].fill(0);
        assert_eq!(name(&bytes), "jumbogram");
    }
    // A length of zero alone is a packet without payload.
    assert!(Packet::inspect(&behind_v6(59, &[])).is_ok());
    assert_eq!(name(&[&behind_v6(59, &[])[..], &[0; 8]].concat()), "padded");
}

#[test]
fn addresses_that_are_nobodys_or_stay_on_the_link_are_refused() {
    for (address, kind) in [
        ("0.0.0.0", "unspecified"),
        ("0.1.2.3", "unspecified"),
        ("224.0.0.251", "multicast"),
        ("255.255.255.255", "broadcast"),
        ("127.0.0.53", "loopback"),
        ("169.254.7.7", "link-local"),
        ("::", "unspecified"),
        ("ff02::1", "multicast"),
        ("::1", "loopback"),
        ("fe80::1", "link-local"),
    ] {
        let address: IpAddr = address.parse().unwrap();
        for (source, side) in [(true, "source"), (false, "destination")] {
            let mut bytes = udp(address.is_ipv4(), b"query");
            match address {
                IpAddr::V4(ip) => {
                    bytes[if source { 12 } else { 16 }..][..4].copy_from_slice(&ip.octets());
                }
                IpAddr::V6(ip) => {
                    bytes[if source { 8 } else { 24 }..][..16].copy_from_slice(&ip.octets());
                }
            }
            assert_eq!(name(&bytes), [kind, "-", side].concat());
            let error = Packet::inspect(&bytes).unwrap_err().to_string();
            assert!(error.contains(&address.to_string()), "{error}");
        }
    }
}

#[test]
fn packets_of_a_flow_share_a_key_and_others_do_not() {
    let key = |bytes: &[u8]| whole(bytes).flow_key(1);
    let mut keys: Vec<u64> = packets().iter().map(|bytes| key(bytes)).collect();
    for v4 in [true, false] {
        assert_eq!(key(&udp(v4, b"a")), key(&udp(v4, b"longer")));
        assert_eq!(key(&echo(v4, 7, 1)), key(&echo(v4, 7, 2)));
        assert_ne!(whole(&udp(v4, b"a")).flow_key(2), key(&udp(v4, b"a")));
        keys.push(key(&echo(v4, 8, 1)));
        for port in 1..=500_u16 {
            let mut bytes = udp(v4, b"a");
            let transport = bytes.len() - 9;
            bytes[transport..transport + 2].copy_from_slice(&port.to_be_bytes());
            keys.push(key(&bytes));
        }
    }
    // The lowest bits alone tell flows apart: of 1008 in 256 queues no more than some share one.
    let mut queues = [0; 256];
    for key in &keys {
        queues[(key % 256) as usize] += 1;
    }
    assert!(queues.iter().all(|flows| *flows < 20), "{queues:?}");
    let flows = keys.len();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), flows);
}

#[test]
fn only_what_understands_marks_is_marked() {
    for good in packets() {
        for ecn in 0..4 {
            let mut bytes = good.clone();
            let v4 = bytes[0] >> 4 == 4;
            if v4 {
                bytes[1] = 46 << 2 | ecn;
                bytes[10..12].fill(0);
                let checksum = checksum::of(&bytes[..20]);
                bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
            } else {
                bytes[1] |= ecn << 4;
            }
            let before = bytes.clone();
            assert_eq!(mark_ce(&mut bytes), ecn != 0);
            assert_eq!(whole(&bytes).ecn(), if ecn == 0 { 0 } else { 3 });
            assert_eq!(whole(&bytes).dscp(), whole(&before).dscp());
            assert!(!v4 || checksum::of(&bytes[..20]) == 0);
            assert_eq!(bytes == before, ecn == 0 || ecn == 3);
        }
    }
    assert!(!mark_ce(&mut []));
    assert!(!mark_ce(&mut [0x45; 19]));
    assert!(!mark_ce(&mut [0x60; 39]));
}

#[test]
fn a_packet_is_passed_on_as_often_as_it_allows() {
    for mut bytes in packets() {
        let v4 = bytes[0] >> 4 == 4;
        let at = if v4 { 8 } else { 7 };
        let (allowed, before) = (bytes[at], bytes.clone());
        let passed = (0..256).filter(|_| lower_hop_limit(&mut bytes)).count();
        assert_eq!(passed, usize::from(allowed.saturating_sub(1)));
        assert_eq!(bytes[at], allowed.min(1));
        assert!(!v4 || checksum::of(&bytes[..20]) == 0);
        let changed = bytes.iter().zip(&before).enumerate().filter(|(_, (is, was))| is != was);
        assert!(changed.map(|(n, _)| n).all(|n| n == at || (v4 && (10..12).contains(&n))));
    }
    assert!(!lower_hop_limit(&mut []));
    assert!(!lower_hop_limit(&mut [0x45; 19]));
    assert!(!lower_hop_limit(&mut [0x60; 39]));
}

fn error_about(error: IcmpError, of: &[u8]) -> Option<Vec<u8>> {
    let mut out = [0xaa; 1400];
    let from = if of[0] >> 4 == 4 { ROUTER4 } else { ROUTER6 };
    let length = icmp_error(error, of, from, &mut out)?;
    assert!(out[length..].iter().all(|byte| *byte == 0xaa), "written beyond the length");
    Some(out[..length].to_vec())
}

/// What others read in an error whose lengths and checksums are right: its type, and the packet that
/// it quotes.
fn read_error(error: &[u8]) -> (Result<Icmpv4Type, Icmpv6Type>, Vec<u8>) {
    let packet = SlicedPacket::from_ip(error).unwrap();
    assert!(Packet::inspect(error).is_ok());
    match (packet.net.unwrap(), packet.transport.unwrap()) {
        (NetSlice::Ipv4(net), TransportSlice::Icmpv4(icmp)) => {
            assert_eq!(
                net.header().to_header().calc_header_checksum(),
                net.header().header_checksum()
            );
            assert_eq!(net.header().source_addr(), ROUTER4);
            assert_eq!(net.header().destination_addr(), A4);
            assert_eq!(checksum::of(icmp.slice()), 0);
            (Ok(icmp.icmp_type()), icmp.payload().to_vec())
        }
        (NetSlice::Ipv6(net), TransportSlice::Icmpv6(icmp)) => {
            assert_eq!(net.header().source_addr(), ROUTER6);
            assert_eq!(net.header().destination_addr(), A6);
            let (src, dst) = (net.header().source(), net.header().destination());
            assert!(icmp.is_checksum_valid(src, dst));
            (Err(icmp.icmp_type()), icmp.payload().to_vec())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn others_read_in_an_error_what_was_meant() {
    use IcmpError::*;
    for (error, v4, v6) in [
        (
            TooBig { mtu: 1300 },
            Icmpv4Type::DestinationUnreachable(Unreachable4::FragmentationNeeded {
                next_hop_mtu: 1300,
            }),
            Icmpv6Type::PacketTooBig { mtu: 1300 },
        ),
        (
            Prohibited,
            Icmpv4Type::DestinationUnreachable(Unreachable4::FilterProhibited),
            Icmpv6Type::DestinationUnreachable(Unreachable6::Prohibited),
        ),
        (
            HostUnreachable,
            Icmpv4Type::DestinationUnreachable(Unreachable4::Host),
            Icmpv6Type::DestinationUnreachable(Unreachable6::Address),
        ),
        (
            PortUnreachable,
            Icmpv4Type::DestinationUnreachable(Unreachable4::Port),
            Icmpv6Type::DestinationUnreachable(Unreachable6::Port),
        ),
        (
            NoRoute,
            Icmpv4Type::DestinationUnreachable(Unreachable4::Network),
            Icmpv6Type::DestinationUnreachable(Unreachable6::NoRoute),
        ),
    ] {
        let of = udp(true, b"query");
        assert_eq!(read_error(&error_about(error, &of).unwrap()), (Ok(v4), of));
        let of = udp(false, b"query");
        assert_eq!(read_error(&error_about(error, &of).unwrap()), (Err(v6), of));
    }
}

#[test]
fn no_error_is_longer_than_it_may_be() {
    for (v4, longest, headers) in [(true, 576, 28), (false, 1280, 48)] {
        for payload in [0, 400, 1231, 1232, 1233, 20_000] {
            let of = udp(v4, &[7; 20_000][..payload]);
            let error = error_about(IcmpError::Prohibited, &of).unwrap();
            assert_eq!(error.len(), longest.min(headers + of.len()));
            let (_, quoted) = read_error(&error);
            assert_eq!(quoted, of[..error.len() - headers]);
            // Others know the packet by what is quoted of it.
            let headers = LaxPacketHeaders::from_ip(&quoted).unwrap();
            assert_eq!(headers.transport.unwrap().udp().unwrap().source_port, 4000);
        }
    }
    let of = udp(true, b"query");
    let length = error_about(IcmpError::NoRoute, &of).unwrap().len();
    let mut out = [0; 100];
    let mut write = |room: usize, from| icmp_error(IcmpError::NoRoute, &of, from, &mut out[..room]);
    assert_eq!(write(length, ROUTER4), Some(length));
    assert_eq!(write(length - 1, ROUTER4), None);
    assert_eq!(write(100, ROUTER6), None);
}

/// RFC 1122 section 3.2.2, RFC 4443 section 2.4(e).
#[test]
fn no_error_answers_an_error_a_later_fragment_or_a_group() {
    let none = |of: &[u8]| {
        assert!(Packet::inspect(of).is_ok());
        assert_eq!(error_about(IcmpError::NoRoute, of), None, "{of:?}");
    };
    for v4 in [true, false] {
        let error = error_about(IcmpError::NoRoute, &udp(v4, b"query")).unwrap();
        none(&error);
        let redirect = if v4 { 5 } else { 137 };
        let mut of = echo(v4, 1, 1);
        let transport = of.len() - 12;
        of[transport] = redirect;
        none(&of);
    }
    none(&fragment_v4(17, 1, false, &[0; 8]));
    none(&behind_v6(44, &[&fragment(17, 1, false), &[0; 8]]));
    // Errors behind extension headers are errors.
    let error = error_about(IcmpError::NoRoute, &udp(false, b"query")).unwrap();
    none(&behind_v6(60, &[&options(58), &error[40..]]));
    for good in packets().iter().chain([
        &fragment_v4(17, 0, true, &[0, 1, 0, 2, 0, 99, 0, 0]),
        &behind_v6(44, &[&fragment(17, 0, true), &udp(false, b"query")[40..]]),
        &behind_v6(60, &[&options(58), &echo(false, 1, 1)[40..]]),
    ]) {
        assert!(error_about(IcmpError::NoRoute, good).is_some());
    }
    let mut group = udp(true, b"query");
    group[16..20].copy_from_slice(&[224, 0, 0, 1]);
    assert_eq!(error_about(IcmpError::NoRoute, &group), None);
}

proptest! {
    #[test]
    fn what_another_library_wrote_is_read_as_it_was_meant(
        v4: bool, tcp: bool, class: u8, ports: (u16, u16), payload in prop::collection::vec(any::<u8>(), 0..1500),
    ) {
        let step = if v4 {
            let mut header =
                etherparse::Ipv4Header::new(0, 64, etherparse::ip_number::UDP, A4.octets(), B4.octets()).unwrap();
            header.dscp = (class >> 2).try_into().unwrap();
            header.ecn = (class & 3).try_into().unwrap();
            PacketBuilder::ip(etherparse::IpHeaders::Ipv4(header, Default::default()))
        } else {
            PacketBuilder::ip(etherparse::IpHeaders::Ipv6(
                etherparse::Ipv6Header {
                    traffic_class: class,
                    hop_limit: 64,
                    source: A6.octets(),
                    destination: B6.octets(),
                    ..Default::default()
                },
                Default::default(),
            ))
        };
        let mut bytes = Vec::new();
        if tcp {
            step.tcp(ports.0, ports.1, 1, 1).write(&mut bytes, &payload).unwrap();
        } else {
            step.udp(ports.0, ports.1).write(&mut bytes, &payload).unwrap();
        }
        let packet = whole(&bytes);
        prop_assert_eq!(packet.ports, Some(ports));
        prop_assert_eq!(packet.traffic_class, class);
        prop_assert_eq!(packet.protocol, if tcp { Protocol::TCP } else { Protocol::UDP });
        prop_assert_eq!(mark_ce(&mut bytes), class & 3 != 0);
        if v4 {
            let header = Ipv4HeaderSlice::from_slice(&bytes).unwrap();
            prop_assert_eq!(header.to_header().calc_header_checksum(), header.header_checksum());
        }
        let (_, quoted) = read_error(&error_about(IcmpError::PortUnreachable, &bytes).unwrap());
        prop_assert!(bytes.starts_with(&quoted));
    }

    #[test]
    fn nothing_makes_anything_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200),
        changes in prop::collection::vec((0..100_usize, any::<u8>()), 0..4),
        of in 0..7_usize, next in prop::sample::select(alloc::vec![0_u8, 6, 17, 43, 44, 51, 58, 60]),
    ) {
        // Garbage, garbage behind a good header, and good packets with some bytes changed.
        if let Some(good) = packets().get(of) {
            bytes.splice(0..0, good.iter().copied());
        } else {
            bytes = behind_v6(next, &[&bytes]);
        }
        for (at, to) in changes {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = to;
            }
        }
        for bytes in [&bytes[..], bytes.get(40..).unwrap_or_default()] {
            let mut out = [0; 1280];
            for from in [ROUTER4, ROUTER6] {
                if let Some(length) = icmp_error(IcmpError::NoRoute, bytes, from, &mut out) {
                    prop_assert!(Packet::inspect(bytes).is_ok());
                    prop_assert!(Packet::inspect(&out[..length]).is_ok());
                }
            }
            let mut marked = bytes.to_vec();
            if mark_ce(&mut marked) && Packet::inspect(bytes).is_ok() {
                prop_assert_eq!(whole(&marked).ecn(), CE);
                prop_assert_eq!(whole(&marked).flow_key(3), whole(bytes).flow_key(3));
            }
        }
    }

    #[test]
    fn every_prefix_of_a_packet_is_refused(of in 0..6_usize, cut: prop::sample::Index) {
        let good = &packets()[of];
        prop_assert!(Packet::inspect(&good[..cut.index(good.len())]).is_err());
    }
}
