use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TcpOptionElement, TransportSlice};
use lasthop_kernel::offload::{Link, Segments, Unfinished};
use lasthop_wire::checksum;
use lasthop_wire::tcp::{Flags, Options, SackBlocks, Seq, Timestamps};
use proptest::prelude::*;

use super::*;

/// A packet of TCP, as a host would send it.
#[derive(Clone, Debug)]
struct Sample {
    v4: bool,
    ip_options: bool,
    ecn: u8,
    stamps: bool,
    payload: Vec<u8>,
}

impl Sample {
    fn new(v4: bool, payload: &[u8]) -> Self {
        Self { v4, ip_options: false, ecn: 0, stamps: true, payload: payload.to_vec() }
    }

    fn bytes(&self) -> Vec<u8> {
        use etherparse::{IpDscp, IpEcn, IpFragOffset, Ipv4Header, Ipv4Options, Ipv6Header};
        let ethernet = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let ip = if self.v4 {
            let mut header = Ipv4Header {
                identification: 77,
                dscp: IpDscp::try_new(10).unwrap(),
                ecn: IpEcn::try_new(self.ecn).unwrap(),
                dont_fragment: true,
                fragment_offset: IpFragOffset::ZERO,
                time_to_live: 61,
                protocol: etherparse::IpNumber::TCP,
                source: [192, 0, 2, 1],
                destination: [10, 0, 0, 2],
                ..Ipv4Header::default()
            };
            if self.ip_options {
                header.options = Ipv4Options::try_from([1, 1, 1, 0].as_slice()).unwrap();
            }
            ethernet.ip(etherparse::IpHeaders::Ipv4(header, Default::default()))
        } else {
            let header = Ipv6Header {
                traffic_class: 10 << 2 | self.ecn,
                flow_label: 0xabcde.try_into().unwrap(),
                hop_limit: 61,
                next_header: etherparse::IpNumber::TCP,
                source: [3; 16],
                destination: [4; 16],
                ..Ipv6Header::default()
            };
            ethernet.ip(etherparse::IpHeaders::Ipv6(header, Default::default()))
        };
        let mut tcp = ip.tcp(80, 4000, u32::MAX - 10, 500).ack(77).psh();
        if self.stamps {
            let element =
                [TcpOptionElement::Noop, TcpOptionElement::Noop, TcpOptionElement::Timestamp(5, 6)];
            tcp = tcp.options(&element).unwrap();
        }
        let mut out = Vec::new();
        tcp.write(&mut out, &self.payload).unwrap();
        out
    }

    fn frame(&self) -> Frame {
        Frame::copy_of(&Pool::new(8), &self.bytes())
    }
}

fn samples() -> impl Strategy<Value = Sample> {
    let payload = prop::collection::vec(any::<u8>(), 0..300);
    (any::<[bool; 3]>(), 0..4u8, payload).prop_map(|([v4, ip_options, stamps], ecn, payload)| {
        Sample { v4, ip_options: v4 && ip_options, ecn, stamps, payload }
    })
}

/// What another parser says of a frame: the TCP header's numbers and the payload, if lengths and
/// checksums are right.
fn checked(frame: &[u8]) -> (u32, u32, u16, Vec<u8>) {
    let packet = SlicedPacket::from_ethernet(frame).expect("whole");
    let Some(TransportSlice::Tcp(tcp)) = packet.transport else { panic!("TCP") };
    let right = match packet.net.expect("IP") {
        NetSlice::Ipv4(ip) => {
            let header = ip.header().to_header();
            assert_eq!(header.calc_header_checksum(), header.header_checksum);
            tcp.calc_checksum_ipv4(header.source, header.destination)
        }
        NetSlice::Ipv6(ip) => {
            let header = ip.header().to_header();
            tcp.calc_checksum_ipv6(header.source, header.destination)
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(right, Ok(tcp.checksum()));
    let numbers = (tcp.sequence_number(), tcp.acknowledgment_number(), tcp.window_size());
    (numbers.0, numbers.1, numbers.2, tcp.payload().to_vec())
}

fn segment(frame: &Frame) -> Segment {
    frame.tcp().expect("TCP").segment
}

fn sack(blocks: u32) -> SackBlocks {
    let mut sack = SackBlocks::default();
    (0..blocks).for_each(|n| assert!(sack.push(Seq(100 * n), Seq(100 * n + 50))));
    sack
}

#[test]
fn addresses_and_header_are_read() {
    for v4 in [true, false] {
        let tcp = Sample::new(v4, b"payload").frame().tcp().unwrap();
        let (src, dst) = match v4 {
            true => ("192.0.2.1:80", "10.0.0.2:4000"),
            false => {
                ("[303:303:303:303:303:303:303:303]:80", "[404:404:404:404:404:404:404:404]:4000")
            }
        };
        assert_eq!((tcp.src, tcp.dst), (src.parse().unwrap(), dst.parse().unwrap()));
        let segment = tcp.segment;
        assert_eq!((segment.seq, segment.ack), (Seq(u32::MAX - 10), Seq(77)));
        assert_eq!((segment.window, segment.len), (500, 7));
        assert_eq!(segment.flags, Flags::ACK.with(Flags::PSH));
        assert_eq!(segment.options.timestamps, Some(Timestamps { value: 5, echo: 6 }));
    }
}

#[test]
fn a_window_is_rewritten_in_place() {
    for v4 in [true, false] {
        let sample = Sample::new(v4, b"odd");
        let mut frame = sample.frame();
        frame.set_segment(&Segment { window: 3, ack: Seq(78), ..segment(&frame) });
        assert_eq!(checked(frame.bytes()), (u32::MAX - 10, 78, 3, b"odd".to_vec()));
        assert_eq!(segment(&frame).window, 3);
        let (was, is) = (sample.bytes(), frame.bytes());
        let changed: Vec<usize> = (0..was.len()).filter(|&n| was[n] != is[n]).collect();
        let tcp = if v4 { 34 } else { 54 };
        let allowed = [8..12, 14..18].map(|r| r.start + tcp..r.end + tcp);
        assert!(changed.iter().all(|n| allowed.iter().any(|r| r.contains(n))), "{changed:?}");
    }
}

#[test]
fn what_belongs_to_the_connection_and_the_payload_is_not_rewritten() {
    let mut frame = Sample::new(true, b"payload").frame();
    let (was, bytes) = (segment(&frame), frame.bytes().to_vec());
    frame.set_segment(&Segment { src_port: 1, dst_port: 2, len: 900, ..was });
    assert_eq!(frame.bytes(), bytes);
}

#[test]
fn urgent_pointer_reserved_bits_and_unknown_options_stay() {
    let mut bytes = Sample { stamps: false, ..Sample::new(true, b"x") }.bytes();
    // Another kind of authentication, eight bytes long, and bits that are somebody else's.
    bytes.splice(54..54, [29, 6, 1, 2, 3, 4, 1, 1]);
    bytes[46] = 7 << 4 | 1;
    bytes[47] |= Flags::URG.bits();
    bytes[53] = 9;
    let length = (bytes.len() - 14) as u16;
    bytes[16..18].copy_from_slice(&length.to_be_bytes());
    mend(&mut bytes);
    let mut frame = Frame::copy_of(&Pool::new(8), &bytes);
    let options = Options { eln: true, ..Options::default() };
    frame.set_segment(&Segment { options, ..segment(&frame) });
    let is = frame.bytes();
    assert_eq!((is[46], is[53]), (8 << 4 | 1, 9));
    assert_eq!(is[54..66], [29, 6, 1, 2, 3, 4, 1, 1, 253, 4, 0x45, 0x4c]);
    assert_eq!(checked(is).3, b"x");
    assert!(segment(&frame).options.eln);
}

/// Puts the right IPv4 and TCP checksums in.
fn mend(bytes: &mut [u8]) {
    bytes[24..26].fill(0);
    let sum = checksum::of(&bytes[14..34]);
    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    bytes[50..52].fill(0);
    let length = (bytes.len() - 34) as u16;
    let pseudo = [&bytes[26..34], &[0, 6], &length.to_be_bytes(), &bytes[34..]].concat();
    bytes[50..52].copy_from_slice(&checksum::of(&pseudo).to_be_bytes());
}

#[test]
fn options_come_and_go_with_lengths_and_checksums() {
    for v4 in [true, false] {
        let mut frame = Sample { ip_options: v4, ..Sample::new(v4, b"some payload") }.frame();
        let before = frame.bytes().to_vec();
        let plain = segment(&frame);
        let options = Options { sack: sack(3), ..plain.options };
        frame.set_segment(&Segment { options, ..plain });
        assert_eq!(frame.bytes().len(), before.len() + 28);
        assert_eq!(segment(&frame).options, options);
        assert_eq!(checked(frame.bytes()).3, b"some payload");
        frame.set_segment(&plain);
        assert_eq!(frame.bytes(), before);
    }
}

#[test]
fn nothing_is_added_beyond_forty_bytes_of_options() {
    let mut frame = Sample::new(true, b"").frame();
    let full = Options { sack: sack(3), ..segment(&frame).options };
    frame.set_segment(&Segment { options: full, ..segment(&frame) });
    let marked = Options { eln: true, cid: Some(5), ..full };
    frame.set_segment(&Segment { options: marked, ..segment(&frame) });
    assert_eq!(segment(&frame).options, Options { eln: true, ..full }, "there was room for one");
    assert_eq!(segment(&frame).header_len(), 60);
    checked(frame.bytes());
}

#[test]
fn a_long_packet_does_not_become_longer() {
    let mut frame = Sample::new(true, &[7; 1448]).frame();
    let options = Options { eln: true, ..segment(&frame).options };
    frame.set_segment(&Segment { options, window: 9, ..segment(&frame) });
    assert_eq!((segment(&frame).options.eln, segment(&frame).window), (false, 9));
    assert_eq!(frame.bytes().len(), 14 + 1500);
    frame.set_segment(&Segment { options: Options::default(), ..segment(&frame) });
    assert_eq!(frame.bytes().len(), 14 + 1488, "it may become shorter");
    assert_eq!(checked(frame.bytes()).3, [7; 1448]);
}

#[test]
fn padding_is_no_payload_and_goes_when_the_packet_changes_its_length() {
    let mut bytes = Sample { stamps: false, ..Sample::new(true, b"") }.bytes();
    bytes.resize(60, 0xee);
    let mut frame = Frame::copy_of(&Pool::new(8), &bytes);
    assert_eq!(segment(&frame).len, 0);
    frame.set_segment(&Segment { window: 1, ..segment(&frame) });
    assert_eq!((frame.bytes().len(), &frame.bytes()[54..]), (60, &[0xee; 6][..]));
    let options = Options { eln: true, ..Options::default() };
    frame.set_segment(&Segment { options, ..segment(&frame) });
    assert_eq!(frame.bytes().len(), 58);
    assert_eq!(checked(frame.bytes()).3, b"");
}

#[test]
fn damage_hides_a_packet_and_is_handed_on() {
    for v4 in [true, false] {
        let good = Sample::new(v4, b"payload").bytes();
        // Anywhere under the checksums but the EtherType, the version and the way to the checksum.
        for at in good.len() - 20..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 0x10;
            let mut frame = Frame::copy_of(&Pool::new(8), &bytes);
            assert_eq!(frame.tcp(), None, "byte {at}");
            assert!(!frame.is_marked());
            frame.set_segment(&Segment::default());
            assert_eq!(frame.bytes(), bytes);
        }
    }
    let mut header = Sample::new(true, b"payload").bytes();
    header[22] ^= 1;
    assert_eq!(Frame::copy_of(&Pool::new(8), &header).tcp(), None, "the IPv4 header's own sum");
}

#[test]
fn what_is_not_whole_has_no_tcp() {
    for v4 in [true, false] {
        let good = Sample::new(v4, b"payload").bytes();
        for cut in 0..good.len() {
            assert_eq!(Frame::copy_of(&Pool::new(8), &good[..cut]).tcp(), None, "{cut} bytes");
        }
    }
}

#[test]
fn a_checksum_that_is_known_to_be_right_is_not_looked_at() {
    let mut bytes = Sample::new(true, b"payload").bytes();
    *bytes.last_mut().unwrap() ^= 1;
    let mut buffer = Pool::new(8).take();
    buffer.edit().extend_from_slice(&bytes);
    assert!(Frame::parse_summed(buffer).tcp().is_some());
}

#[test]
fn congestion_marks_are_seen() {
    for v4 in [true, false] {
        for ecn in 0..4 {
            let frame = Sample { ecn, ..Sample::new(v4, b"") }.frame();
            assert_eq!(frame.is_marked(), ecn == 3, "IPv4: {v4}, {ecn:#04b}");
        }
    }
}

#[test]
fn copies_part_when_one_is_changed() {
    let mut one = Sample::new(true, b"payload").frame();
    let mut other = one.clone();
    other.set_frame(Some(7));
    assert_eq!((one.frame(), other.frame()), (None, Some(7)));
    assert_eq!(one.bytes().as_ptr(), other.bytes().as_ptr());
    one.set_segment(&Segment { window: 1, ..segment(&one) });
    assert_eq!((segment(&one).window, segment(&other).window), (1, 500));
    checked(one.bytes());
    checked(other.bytes());
}

#[test]
fn every_piece_of_a_large_packet_is_read() {
    for v4 in [true, false] {
        let whole: Vec<u8> = (0..9000).map(|n| n as u8).collect();
        let sample = Sample::new(v4, &whole);
        let transport: u16 = if v4 { 34 } else { 54 };
        // A checksum to be finished, TCP over that version, in pieces of 1400 bytes.
        let mut header = [1, if v4 { 1 } else { 4 }, 0, 0, 0, 0, 0, 0, 0, 0];
        header[4..6].copy_from_slice(&1400_u16.to_ne_bytes());
        header[6..8].copy_from_slice(&transport.to_ne_bytes());
        header[8..10].copy_from_slice(&16_u16.to_ne_bytes());
        let large = sample.bytes();
        let mut segments =
            Segments::new(Unfinished::parse(header), Link::Ethernet, &large).unwrap();
        let pool = Pool::new(8);
        let mut next = Seq(u32::MAX - 10);
        loop {
            let mut buffer = pool.take();
            if !segments.next_into(buffer.edit()) {
                break;
            }
            let frame = Frame::parse(buffer);
            assert_eq!(segment(&frame).seq, next);
            next += segment(&frame).len;
        }
        assert_eq!(next, Seq(u32::MAX - 10) + 9000);
    }
}

fn options() -> impl Strategy<Value = Options> {
    let rest = any::<(Option<u16>, Option<u8>, bool, Option<(u32, u32)>, bool, Option<u16>)>();
    (rest, 0..=4u32).prop_map(|((mss, window_scale, sack_permitted, stamps, eln, cid), blocks)| {
        let timestamps = stamps.map(|(value, echo)| Timestamps { value, echo });
        let (sack, multipath) = (sack(blocks), None);
        Options { mss, window_scale, sack_permitted, timestamps, sack, eln, cid, multipath }
    })
}

proptest! {
    #[test]
    fn to_write_what_was_read_changes_nothing(sample in samples(), padding in 0..20usize) {
        let mut bytes = sample.bytes();
        bytes.resize(bytes.len() + padding, 0);
        let mut frame = Frame::copy_of(&Pool::new(8), &bytes);
        frame.set_segment(&segment(&frame));
        prop_assert_eq!(frame.bytes(), bytes);
    }

    #[test]
    fn what_is_written_is_read_and_valid(
        sample in samples(), options in options(), numbers: (u32, u32, u8, u16),
    ) {
        let mut frame = sample.frame();
        let was = segment(&frame);
        let (seq, ack, flags, window) = numbers;
        let flags = Flags::from_bits(flags);
        let is = Segment { seq: Seq(seq), ack: Seq(ack), flags, window, options, ..was };
        frame.set_segment(&is);
        let read = segment(&frame);
        prop_assert_eq!(Segment { options, ..read }, is);
        if options.sack_that_fits() == options.sack.as_slice() {
            prop_assert_eq!(read.options, options);
        }
        prop_assert_eq!(checked(frame.bytes()), (seq, ack, window, sample.payload.clone()));
        let again = Frame::copy_of(&Pool::new(8), frame.bytes());
        prop_assert_eq!(again.tcp(), frame.tcp());
        // Nothing else in the frame but the IP length and its checksum.
        let ip = if sample.v4 { 8 } else { 6 };
        prop_assert_eq!(&frame.bytes()[14 + ip..24], &sample.bytes()[14 + ip..24]);
        prop_assert_eq!(&frame.bytes()[26..34], &sample.bytes()[26..34]);
    }

    #[test]
    fn arbitrary_bytes_make_nothing_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200), v4: bool, options in options(),
    ) {
        let pool = Pool::new(8);
        let mut frame = Frame::copy_of(&pool, &bytes);
        frame.set_segment(&Segment { options, ..Segment::default() });
        prop_assert_eq!(frame.bytes(), &bytes);
        if bytes.len() > 23 {
            bytes[12..15].copy_from_slice(if v4 { &[8, 0, 0x45] } else { &[0x86, 0xdd, 0x60] });
            bytes[if v4 { 23 } else { 20 }] = 6;
        }
        let mut buffer = pool.take();
        buffer.edit().extend_from_slice(&bytes);
        let mut frame = Frame::parse_summed(buffer);
        frame.is_marked();
        frame.set_segment(&Segment { options, ..Segment::default() });
    }

    #[test]
    fn one_changed_byte_is_never_taken_for_sound(sample in samples(), at: usize, by in 1..=255u8) {
        let mut bytes = sample.bytes();
        let transport = if sample.v4 { 34 } else { 54 } + if sample.ip_options { 4 } else { 0 };
        let at = transport + at % (bytes.len() - transport);
        bytes[at] ^= by;
        prop_assert_eq!(Frame::copy_of(&Pool::new(8), &bytes).tcp(), None);
    }
}
