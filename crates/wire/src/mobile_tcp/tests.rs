use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};

use proptest::prelude::*;

use super::*;
use crate::checksum;

fn data(header: &DataHeader, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0; DATA_HEADER + payload.len()];
    out[DATA_HEADER..].copy_from_slice(payload);
    assert_eq!(header.emit(payload.len(), &mut out), Ok(out.len()));
    out
}

fn control(control: &Control) -> Vec<u8> {
    let mut out = [0xee; CONTROL_HEADER];
    assert_eq!(control.emit(&mut out), Ok(CONTROL_HEADER));
    out.to_vec()
}

fn extended(control: &Control, extensions: &[Extension<'_>]) -> Vec<u8> {
    let mut out = [0xee; 4096];
    let len = control.emit_extended(extensions, &mut out).unwrap();
    out[..len].to_vec()
}

/// Writes the checksum that the changed `packet` should have, at `at`.
fn mend(packet: &mut [u8], at: usize) {
    packet[at..at + 2].fill(0);
    let checksum = checksum::of(packet);
    packet[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}

fn request() -> DataHeader {
    DataHeader {
        code: Code::ACK.with(Code::RRQ).with(Code::RCR),
        cid: Cid(0x0102),
        seq: Seq16(0x0304),
        ack: Seq16(0x0506),
        window: 0x0708,
        nack: Seq16(0x090a),
    }
}

fn opening() -> Control {
    Control {
        code: Code::SYN,
        cid: Cid::NONE,
        seq: Seq16(0x1112),
        ack: Seq16(0x1314),
        reverse: Cid(0x1516),
        max_buffer: 16_384,
        max_packet: 1460,
        destination: SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 80), 443),
        source: SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 40_000),
    }
}

/// MOB-11: code bits, CID; sequence, acknowledgement; window, negative acknowledgement; data
/// length, checksum: 16 bytes, 24 fewer than TCP over IPv4 has, as MTCP_24 presumes.
#[test]
fn a_data_packet_is_laid_out_as_in_figure_3b() {
    let bytes = data(&request(), b"abc");
    let expected =
        [0x00, 0xb0, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x00, 0x03];
    assert_eq!(bytes[..14], expected);
    assert_eq!(bytes[16..], *b"abc");
    // b0 + 0102 + 0304 + 0506 + 0708 + 090a + 3 + 6162 + 6300, carried around once.
    assert_eq!(bytes[14..16], (!0xde33_u16).to_be_bytes());
    assert_eq!(20 + 20 - DATA_HEADER, 24);
}

/// MOB-10: code bits, CID; sequence, acknowledgement; reverse CID, checksum; largest buffer and
/// packet; ports; addresses, the destination's first: 28 bytes.
#[test]
fn a_control_packet_is_laid_out_as_in_figure_3a() {
    let bytes = control(&opening());
    let before = [0x80, 0x02, 0x00, 0x00, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16];
    let behind = [0x40, 0x00, 0x05, 0xb4, 0x01, 0xbb, 0x9c, 0x40, 192, 0, 2, 80, 10, 0, 0, 2];
    assert_eq!(bytes[..10], before);
    assert_eq!(bytes[12..], behind);
    let sum = sum_by_hand(&[&before[..], &behind].concat());
    assert_eq!(bytes[10..12], (!sum).to_be_bytes());
}

fn sum_by_hand(bytes: &[u8]) -> u16 {
    bytes.chunks(2).fold(0, |sum: u16, pair| {
        let (sum, carry) = sum.overflowing_add(u16::from_be_bytes([pair[0], pair[1]]));
        sum + u16::from(carry)
    })
}

/// MOB-12: the first bit tells control from data, and each code bit has its place.
#[test]
fn the_first_bit_tells_data_from_control() {
    assert_eq!(data(&DataHeader::default(), b"")[0] & 0x80, 0);
    assert_eq!(control(&Control::default())[0] & 0x80, 0x80);
    let bits = [
        (Code::FIN, 0x0001),
        (Code::SYN, 0x0002),
        (Code::RST, 0x0004),
        (Code::PSH, 0x0008),
        (Code::ACK, 0x0010),
        (Code::RRQ, 0x0020),
        (Code::RC, 0x0040),
        (Code::RCR, 0x0080),
        (Code::LISTEN, 0x0100),
        (Code::UNKNOWN, 0x0200),
        (Code::PENDING, 0x0400),
    ];
    for (code, bit) in bits {
        let packet = control(&Control { code, ..opening() });
        assert_eq!(packet[..2], (0x8000_u16 | bit).to_be_bytes(), "{code:?}");
        assert!(code.contains(code) && !Code::empty().intersects(code));
    }
    assert_eq!(Code::SYN.with(Code::ACK).without(Code::SYN), Code::ACK);
    assert_eq!(Code::SYN.with_if(Code::ACK, false), Code::SYN);
    assert_eq!(alloc::format!("{:?}", Code::ACK.with(Code::RRQ)), "ACK|RRQ");
    assert_eq!(alloc::format!("{:?}", Code::empty()), "-");
}

/// The reserved bit is sent zero and ignored.
#[test]
fn a_bit_without_a_meaning_changes_nothing() {
    let mut packet = data(&request(), b"abc");
    packet[0] |= 0x08;
    mend(&mut packet, 14);
    assert_eq!(Packet::decode(&packet), Ok(Packet::Data(request(), b"abc")));
}

/// MOB-13: sequence numbers go around at 2^16, and comparing them goes around with them.
#[test]
fn sequence_numbers_wrap() {
    let late = Seq16(0xfff0);
    let next = late + 0x20;
    assert_eq!(next, Seq16(0x0010));
    assert_eq!((next.ahead_of(late), late.ahead_of(next)), (0x20, -0x20));
    assert_eq!(next.since(late), 0x20);
    assert_eq!(next - 0x20, late);
    assert!(late.is_before(next) && !next.is_before(late) && !late.is_before(late));
    let far = late + MAX_WINDOW;
    assert!(late.is_before(far), "the largest window is not ambiguous");
    let mut at = late;
    at += 0x10;
    assert_eq!(at, Seq16(0));
}

/// MOB-13: windows are below 32768, so a data packet that says otherwise is refused; in a reset
/// the field is a code.
#[test]
fn a_window_that_makes_numbers_ambiguous_is_refused() {
    let widest = DataHeader { window: MAX_WINDOW, ..request() };
    assert_eq!(Packet::decode(&data(&widest, b"")), Ok(Packet::Data(widest, b"")));
    let wider = DataHeader { window: MAX_WINDOW + 1, ..request() };
    assert_eq!(Packet::decode(&data(&wider, b"")), Err(DecodeError::Window(32_768)));
    let reset = DataHeader { code: Code::RST, ..wider };
    assert_eq!(Packet::decode(&data(&reset, b"")), Ok(Packet::Data(reset, b"")));
    assert_eq!((wider.reset_code(), reset.reset_code()), (None, Some(32_768)));
}

/// MOB-14: the checksum covers header, data and extensions; any changed bit makes it wrong.
#[test]
fn any_changed_bit_is_noticed() {
    let packets = [
        data(&request(), b"some data"),
        control(&opening()),
        extended(&opening(), &[Extension::Message(b"to a name")]),
    ];
    for packet in packets {
        assert!(Packet::decode(&packet).is_ok());
        for bit in 0..8 * packet.len() {
            let mut damaged = packet.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Packet::decode(&damaged).is_err(), "bit {bit} of {packet:?}");
        }
        let mut damaged = packet.clone();
        *damaged.get_mut(5).unwrap() ^= 1;
        assert_eq!(Packet::decode(&damaged), Err(DecodeError::Checksum));
    }
}

/// MOB-14: a checksum of zeros over zeros is wrong, so an empty frame is no packet.
#[test]
fn zeros_are_no_packet() {
    assert_eq!(Packet::decode(&[0; 60]), Err(DecodeError::Checksum));
}

/// MOB-15: the negative acknowledgement comes as it was sent, with the bit that says whether it
/// means something.
#[test]
fn a_request_names_the_next_segment_in_order() {
    let none = DataHeader { code: Code::ACK, nack: request().ack, ..request() };
    for header in [request(), none] {
        let bytes = data(&header, b"");
        let Ok(Packet::Data(read, b"")) = Packet::decode(&bytes) else { panic!("{bytes:?}") };
        assert_eq!(read.nack, header.nack);
        assert_eq!(read.code.contains(Code::RRQ), header == request());
    }
}

/// MOB-16: an opening names no connection of the peer's and says under which number its sender
/// wants to be answered; the answer names both.
#[test]
fn openings_tell_their_reverse_cid_and_answers_both() {
    let answer = Control {
        code: Code::SYN.with(Code::ACK),
        cid: opening().reverse,
        reverse: Cid(7),
        ..opening()
    };
    for (sent, cids) in [(opening(), (0, 0x1516)), (answer, (0x1516, 7))] {
        let bytes = control(&sent);
        let Ok(Packet::Control(read, None)) = Packet::decode(&bytes) else { panic!("{bytes:?}") };
        assert_eq!((read.cid.0, read.reverse.0), cids);
        assert_eq!(read, sent);
    }
    assert!(Cid::NONE.is_none() && !Cid(1).is_none());
}

/// Ethernet pads frames to 60 bytes, whose rest is no part of the packet.
#[test]
fn padding_is_ignored() {
    let mut bytes = data(&request(), b"abc");
    bytes.resize(46, 0xaa);
    assert_eq!(Packet::decode(&bytes), Ok(Packet::Data(request(), b"abc")));
    let mut bytes = control(&opening());
    bytes.resize(46, 0xaa);
    assert_eq!(Packet::decode(&bytes), Ok(Packet::Control(opening(), None)));
    let mut bytes = extended(&opening(), &[]);
    bytes.resize(46, 0xaa);
    assert!(matches!(Packet::decode(&bytes), Ok(Packet::Control(c, Some(_))) if c == opening()));
}

#[test]
fn what_is_cut_short_says_how_much_is_missing() {
    let message = Extension::Message(b"hello");
    for (packet, header) in [
        (data(&request(), b"abcd"), DATA_HEADER),
        (control(&opening()), CONTROL_HEADER),
        (extended(&opening(), &[message]), CONTROL_HEADER),
    ] {
        for cut in 0..packet.len() {
            let Err(DecodeError::Truncated { found, least }) = Packet::decode(&packet[..cut])
            else {
                panic!("{cut} bytes of {packet:?} are a packet")
            };
            assert_eq!(found, cut);
            assert!(least > cut && least <= packet.len());
            assert!(cut == 0 || cut >= header || least == header, "{cut} {least}");
        }
    }
    let text = Packet::decode(&[0x80; 3]).unwrap_err().to_string();
    assert_eq!(text, "3 bytes of a Mobile TCP packet, at least 28 are needed");
}

#[test]
fn what_is_not_spoken_here_is_refused_by_name() {
    for version in 1..8 {
        let mut packet = data(&request(), b"");
        packet[0] |= version << 4;
        mend(&mut packet, 14);
        assert_eq!(Packet::decode(&packet), Err(DecodeError::DataVersion(version)));
    }
    for version in 2..8 {
        let mut packet = control(&opening());
        packet[0] |= version << 4;
        mend(&mut packet, 10);
        assert_eq!(Packet::decode(&packet), Err(DecodeError::ControlVersion(version)));
    }
    for code in [Code::SYN, Code::LISTEN, Code::PENDING] {
        let odd = DataHeader { code: code.with(Code::ACK), ..request() };
        assert_eq!(Packet::decode(&data(&odd, b"")), Err(DecodeError::Code(odd.code)));
    }
}

/// Hop datagrams share carriers with bare packets; their first byte tells them apart.
#[test]
fn the_first_byte_tells_a_packet_from_a_hop_datagram() {
    assert!(is_mobile_tcp(data(&request(), b"")[0]));
    assert!(is_mobile_tcp(control(&opening())[0]));
    assert!(is_mobile_tcp(extended(&opening(), &[])[0]));
    let hop = crate::datagram::DataHeader::new(0, 1, 2).to_bytes();
    assert!(!is_mobile_tcp(hop[0]));
    assert_eq!(Packet::decode(&[&hop[..], &[0; 30]].concat()), Err(DecodeError::DataVersion(1)));
    assert_eq!((0..=255).filter(|first| is_mobile_tcp(*first)).count(), 48);
}

/// What the paper's packet cannot say goes behind it, in a version that is marked as such.
#[test]
fn extensions_follow_the_header() {
    let bytes =
        extended(&opening(), &[Extension::Message(&[1, 2, 3]), Extension::ResetCode(0x102)]);
    let expected = [1, 0, 0, 3, 1, 2, 3, 2, 0, 0, 8, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0];
    assert_eq!(bytes[0], 0x90);
    assert_eq!(bytes[CONTROL_HEADER..], expected);
    let Ok(Packet::Control(read, Some(extensions))) = Packet::decode(&bytes) else {
        panic!("{bytes:?}")
    };
    assert_eq!(read, opening());
    assert_eq!(extensions.message(), Some(&[1, 2, 3][..]));
    assert_eq!(extensions.reset_code(), Some(0x102));
    let all: Vec<_> = extensions.into_iter().collect();
    assert_eq!(all, [Extension::Message(&[1, 2, 3]), Extension::ResetCode(0x102)]);
}

#[test]
fn unknown_extensions_are_skipped_and_bad_ones_refused() {
    let with = |extensions: &[u8]| {
        let mut bytes = [&extended(&opening(), &[])[..CONTROL_HEADER], extensions].concat();
        mend(&mut bytes, 10);
        bytes
    };
    let unknown = with(&[77, 9, 0, 2, 5, 5, 1, 0, 0, 1, 6, 0, 0, 0, 0]);
    let Ok(Packet::Control(_, Some(extensions))) = Packet::decode(&unknown) else {
        panic!("{unknown:?}")
    };
    let all: Vec<_> = extensions.into_iter().collect();
    assert_eq!(all, [Extension::Message(&[6])]);
    assert_eq!(extensions.reset_code(), None);

    let refused = |kind, len| Err(DecodeError::Extension { kind, len });
    assert_eq!(Packet::decode(&with(&[2, 0, 0, 1, 9, 0, 0, 0, 0])), refused(2, 1));
    assert_eq!(Packet::decode(&with(&[0, 0, 0, 4, 0, 0, 0, 0])), refused(0, 4));
    let endless = with(&[1, 0, 0, 1, 6]);
    assert_eq!(
        Packet::decode(&endless),
        Err(DecodeError::Truncated { found: endless.len(), least: endless.len() + 4 })
    );
    let long = with(&[1, 0, 0xff, 0xff, 6]);
    assert_eq!(
        Packet::decode(&long),
        Err(DecodeError::Truncated { found: long.len(), least: 32 + 0xffff })
    );
}

/// MOB-7: a refusal tells why; a code that 16 bits cannot hold takes the marked version.
#[test]
fn a_refusal_carries_any_code() {
    for (code, len) in [(0, 28), (111, 28), (0xfffe, 28), (0xffff, 44), (1 << 40, 44)] {
        let mut out = [0; 64];
        let refusal = Control { code: Code::ACK, ..opening() };
        assert_eq!(refusal.emit_refusal(code, &mut out), Ok(len));
        let Ok(Packet::Control(read, extensions)) = Packet::decode(&out) else { panic!("{out:?}") };
        assert_eq!(read.code, Code::ACK.with(Code::RST));
        assert_eq!(read.reset_code(extensions), Some(code));
        assert_eq!(read.max_buffer, short_code(code));
    }
    assert_eq!(opening().reset_code(None), None);
}

#[test]
fn what_has_no_room_is_not_written() {
    let mut out = [9; 64];
    assert_eq!(request().emit(49, &mut out), Err(EmitError::Room { found: 64, needed: 65 }));
    assert_eq!(
        request().emit(usize::from(u16::MAX) + 1, &mut out),
        Err(EmitError::TooLong(65_536))
    );
    let short = &mut out[..27];
    assert_eq!(opening().emit(short), Err(EmitError::Room { found: 27, needed: 28 }));
    let message = [0; 40];
    assert_eq!(
        opening().emit_extended(&[Extension::Message(&message)], &mut out),
        Err(EmitError::Room { found: 64, needed: 76 })
    );
    assert_eq!(out, [9; 64]);
    let long = vec![0; 65_536];
    assert_eq!(
        opening().emit_extended(&[Extension::Message(&long)], &mut vec![0; 80_000]),
        Err(EmitError::TooLong(65_536))
    );
}

fn codes() -> impl Strategy<Value = Code> {
    any::<u16>().prop_map(Code::from_bits)
}

fn data_headers() -> impl Strategy<Value = DataHeader> {
    (codes(), any::<(u16, u16, u16, u16)>(), 0..=MAX_WINDOW).prop_map(
        |(code, (cid, seq, ack, nack), window)| DataHeader {
            code: code.without(Code::CONTROL_ONLY),
            cid: Cid(cid),
            seq: Seq16(seq),
            ack: Seq16(ack),
            window,
            nack: Seq16(nack),
        },
    )
}

fn controls() -> impl Strategy<Value = Control> {
    let numbers = any::<(u16, u16, u16, u16, u16, u16)>();
    (codes(), numbers, any::<(u32, u16)>(), any::<(u32, u16)>()).prop_map(
        |(code, (cid, seq, ack, reverse, max_buffer, max_packet), to, from)| Control {
            code,
            cid: Cid(cid),
            seq: Seq16(seq),
            ack: Seq16(ack),
            reverse: Cid(reverse),
            max_buffer,
            max_packet,
            destination: SocketAddrV4::new(to.0.into(), to.1),
            source: SocketAddrV4::new(from.0.into(), from.1),
        },
    )
}

proptest! {
    #[test]
    fn every_data_packet_comes_back(header in data_headers(), payload: Vec<u8>, after: Vec<u8>) {
        let mut bytes = data(&header, &payload);
        bytes.extend(after);
        prop_assert_eq!(Packet::decode(&bytes), Ok(Packet::Data(header, &payload)));
    }

    #[test]
    fn every_control_packet_comes_back(sent in controls(), after: Vec<u8>) {
        let mut bytes = control(&sent);
        bytes.extend(after);
        prop_assert_eq!(Packet::decode(&bytes), Ok(Packet::Control(sent, None)));
    }

    #[test]
    fn every_extended_packet_comes_back(
        sent in controls(),
        messages: Vec<Vec<u8>>,
        code: Option<u64>,
        after: Vec<u8>,
    ) {
        let messages = messages.iter().map(|m| Extension::Message(&m[..m.len().min(20)]));
        let extensions: Vec<_> = messages.chain(code.map(Extension::ResetCode)).collect();
        let mut bytes = extended(&sent, &extensions);
        bytes.extend(after);
        let Ok(Packet::Control(read, Some(back))) = Packet::decode(&bytes) else {
            return Err(TestCaseError::fail("not read"));
        };
        prop_assert_eq!(read, sent);
        let back: Vec<_> = back.into_iter().collect();
        prop_assert_eq!(back, extensions);
    }

    #[test]
    fn arbitrary_bytes_make_nothing_panic(
        mut bytes: Vec<u8>,
        first in prop::sample::select(vec![0_u8, 0x04, 0x80, 0x90]),
        mended: bool,
    ) {
        let _ = Packet::decode(&bytes);
        if bytes.len() >= CONTROL_HEADER {
            bytes[0] = first;
            bytes[12] = 0;
            if mended {
                mend(&mut bytes, if first < 0x80 { 14 } else { 10 });
            }
            let _ = Packet::decode(&bytes);
        }
    }

    #[test]
    fn numbers_compare_as_far_as_a_window_reaches(seq: u16, ahead in 0..=MAX_WINDOW) {
        let (a, b) = (Seq16(seq), Seq16(seq) + ahead);
        prop_assert_eq!(b.ahead_of(a), ahead.cast_signed());
        prop_assert_eq!(b.since(a), ahead);
        prop_assert_eq!(a.is_before(b), ahead > 0);
        prop_assert!(!b.is_before(a));
    }
}
