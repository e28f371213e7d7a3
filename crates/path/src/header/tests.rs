use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use lasthop_wire::tcp::{Flags, Options, Seq, Timestamps};

use super::*;

const IDLE: Duration = Duration::from_secs(60);

fn connection(v4: bool, port: u16) -> Connection {
    let end = |last: u8, port| match v4 {
        true => ([192, 0, 2, last], port).into(),
        false => ([0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(last)], port).into(),
    };
    Connection { fixed: end(1, 80), mobile: end(2, port) }
}

/// A frame from the fixed host to the mobile, or the other way.
fn frame(from: Side, connection: Connection, tos: u8, ttl: u8, pool: &Pool) -> Frame {
    let mut addresses = [2, 0, 0, 0, 0, 0xaa, 2, 0, 0, 0, 0, 0xbb];
    let (mut src, mut dst) = (connection.fixed, connection.mobile);
    if from == Side::Mobile {
        addresses.rotate_left(6);
        (src, dst) = (dst, src);
    }
    let shape = Shape { addresses, traffic_class: tos, ttl, flow_label: 0x54321 };
    let segment = Segment {
        src_port: src.port(),
        dst_port: dst.port(),
        flags: Flags::ACK,
        ..Segment::default()
    };
    let mut buffer = pool.take();
    let between = Addresses::new(src.ip(), dst.ip()).unwrap();
    shape.emit(between, &segment, buffer.edit()).unwrap();
    let frame = Frame::parse(buffer);
    assert!(frame.tcp().is_some());
    frame
}

fn probe() -> Segment {
    let timestamps = Some(Timestamps { value: 1, echo: 2 });
    let options = Options { timestamps, ..Options::default() };
    Segment {
        seq: Seq(5),
        ack: Seq(6),
        flags: Flags::ACK,
        window: 0,
        options,
        ..Segment::default()
    }
}

#[test]
fn a_segment_looks_like_the_latest_frame_of_its_direction() {
    for v4 in [true, false] {
        let (pool, connection) = (Pool::new(8), connection(v4, 4000));
        let mut headers = Headers::new(10, IDLE);
        let older = frame(Side::Fixed, connection, 0xb8, 3, &pool);
        headers.remember(Time::ZERO, Side::Fixed, &older);
        let latest = frame(Side::Fixed, connection, 0x2b, 57, &pool);
        headers.remember(Time::ZERO, Side::Fixed, &latest);
        let back = frame(Side::Mobile, connection, 0, 200, &pool);
        headers.remember(Time::ZERO, Side::Mobile, &back);
        let built = headers.build(Side::Mobile, &connection, &probe(), &pool).unwrap();
        assert_eq!(built.bytes()[..14], latest.bytes()[..14]);
        let packet = SlicedPacket::from_ethernet(built.bytes()).unwrap();
        let (class, ttl, label) = match packet.net.unwrap() {
            NetSlice::Ipv4(ip) => {
                let header = ip.header().to_header();
                assert_eq!(header.calc_header_checksum(), header.header_checksum);
                assert!(header.dont_fragment);
                (header.dscp.value() << 2 | header.ecn.value(), header.time_to_live, 0x54321)
            }
            NetSlice::Ipv6(ip) => {
                let header = ip.header().to_header();
                (header.traffic_class, header.hop_limit, header.flow_label.value())
            }
            other => panic!("{other:?}"),
        };
        assert_eq!((class, ttl, label), (0x28, 57, 0x54321), "the latest, but not ECN capable");
        let Some(TransportSlice::Tcp(tcp)) = packet.transport else { panic!("TCP") };
        assert_eq!((tcp.source_port(), tcp.destination_port(), tcp.window_size()), (80, 4000, 0));
        let tcp = Frame::copy_of(&pool, built.bytes()).tcp().expect("checksums are right");
        assert_eq!((tcp.src, tcp.dst), (connection.fixed, connection.mobile));
        assert_eq!(tcp.segment, Segment { src_port: 80, dst_port: 4000, ..probe() });
    }
}

#[test]
fn the_other_directions_addresses_serve_in_exchange() {
    for v4 in [true, false] {
        let (pool, connection) = (Pool::new(8), connection(v4, 4000));
        let mut headers = Headers::new(10, IDLE);
        let seen = frame(Side::Mobile, connection, 0x28, 9, &pool);
        headers.remember(Time::ZERO, Side::Mobile, &seen);
        let built = headers.build(Side::Mobile, &connection, &probe(), &pool).unwrap();
        assert_eq!(built.bytes()[..6], seen.bytes()[6..12]);
        assert_eq!(built.bytes()[6..12], seen.bytes()[..6]);
        assert_eq!(built.bytes()[if v4 { 22 } else { 21 }], TTL);
        assert_eq!(built.tcp().unwrap().src, connection.fixed);
    }
}

#[test]
fn of_an_unknown_connection_nothing_is_made() {
    let pool = Pool::new(8);
    let mut headers = Headers::new(2, IDLE);
    for port in 1..=3 {
        let connection = connection(true, port);
        let at = Time::from_secs(port.into());
        headers.remember(at, Side::Fixed, &frame(Side::Fixed, connection, 0, 9, &pool));
    }
    let mut built = |port, side| headers.build(side, &connection(true, port), &probe(), &pool);
    assert!(built(1, Side::Mobile).is_none(), "it gave way to the third");
    assert!(built(2, Side::Mobile).is_some() && built(3, Side::Fixed).is_some());
    assert!(built(4, Side::Mobile).is_none());
}

#[test]
fn what_is_no_tcp_is_not_remembered() {
    let (pool, connection) = (Pool::new(8), connection(true, 9));
    let mut damaged = frame(Side::Fixed, connection, 0, 9, &pool).bytes().to_vec();
    damaged[50] ^= 1;
    let mut headers = Headers::new(2, IDLE);
    headers.remember(Time::ZERO, Side::Fixed, &Frame::copy_of(&pool, &damaged));
    assert!(headers.build(Side::Mobile, &connection, &probe(), &pool).is_none());
}
