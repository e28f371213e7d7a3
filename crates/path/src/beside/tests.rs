use etherparse::PacketBuilder;
use lasthop_wire::agent::Connection;
use proptest::prelude::*;

use super::*;

const A: Mac = Mac([2, 0, 0, 0, 0, 0xa]);
const B: Mac = Mac([2, 0, 0, 0, 0, 0xb]);

fn tcp(payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    PacketBuilder::ethernet2(B.0, A.0)
        .ipv4([192, 0, 2, 1], [10, 0, 0, 2], 64)
        .tcp(80, 4000, 7, 500)
        .write(&mut out, payload)
        .unwrap();
    out
}

#[test]
fn a_numbered_packet_comes_back_as_it_was() {
    let pool = Pool::new(8);
    let packet = Frame::copy_of(&pool, &tcp(b"payload"));
    let numbered = wrap(&packet, 0x0102_0304, 1500).unwrap();
    let bytes = numbered.bytes();
    assert!(is_beside(bytes) && numbered.tcp().is_none());
    assert_eq!(bytes[..22], [&A.0[..], &B.0, &[0x88, 0xb6, 0xff, 0x13, 1, 2, 3, 4, 8, 0]].concat());
    match unwrap(bytes, &pool).unwrap() {
        (from, Received::Numbered(frame)) => {
            assert_eq!(from, B);
            assert_eq!((frame.bytes(), frame.frame()), (packet.bytes(), Some(0x0102_0304)));
            assert_eq!(frame.tcp(), packet.tcp());
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_packet_that_does_not_fit_with_its_number_is_not_wrapped() {
    let pool = Pool::new(8);
    let full = Frame::copy_of(&pool, &tcp(&[0; 1460]));
    assert!(wrap(&full, 1, 1507).is_none());
    assert_eq!(wrap(&full, 1, 1508).unwrap().bytes().len(), 14 + 1508);
}

#[test]
fn padding_is_not_carried() {
    let pool = Pool::new(8);
    let mut bytes = tcp(b"");
    bytes.resize(60, 0);
    let numbered = wrap(&Frame::copy_of(&pool, &bytes), 1, 1500).unwrap();
    assert_eq!(numbered.bytes().len(), 14 + 8 + 40);
}

#[test]
fn only_ip_is_wrapped() {
    let pool = Pool::new(8);
    let arp = [&[0xff; 12][..], &[8, 6], &[0; 46]].concat();
    assert!(wrap(&Frame::copy_of(&pool, &arp), 1, 1500).is_none());
    assert!(wrap(&Frame::copy_of(&pool, &[]), 1, 1500).is_none());
    let once = wrap(&Frame::copy_of(&pool, &tcp(b"")), 1, 1500).unwrap();
    assert!(wrap(&once, 2, 1500).is_none());
}

#[test]
fn hellos_and_messages_arrive_from_whom_they_are() {
    let pool = Pool::new(8);
    let said = Hello { epoch: 5, heard: Some(6) };
    let mut padded = hello(A, &said, &pool).bytes().to_vec();
    padded.resize(60, 0);
    assert_eq!(padded[..6], GROUP.0);
    let heard = unwrap(&padded, &pool).unwrap();
    assert!(matches!(heard, (A, Received::Hello(heard)) if heard == said));
    let said = Message::LinkAck { latest: 70, come: 5 };
    let mut padded = message(B, A, &said, &pool).unwrap().bytes().to_vec();
    padded.resize(60, 0);
    assert_eq!(padded[..6], A.0);
    let heard = unwrap(&padded, &pool).unwrap();
    assert!(matches!(heard, (B, Received::Message(heard)) if heard == said));
}

#[test]
fn what_cannot_be_sent_or_read_is_refused_with_its_reason() {
    let pool = Pool::new(8);
    let mixed = Connection {
        fixed: ([192, 0, 2, 1], 80).into(),
        mobile: ([0, 0, 0, 0, 0, 0, 0, 1], 80).into(),
    };
    assert!(message(A, B, &Message::BadState { connection: mixed }, &pool).is_none());
    let refused = |bytes: &[u8]| unwrap(bytes, &pool).unwrap_err().to_string();
    let other = "not a frame of EtherType 0x88b6 and subtype 0xff";
    let bad = |payload: &[u8]| [&[0; 12][..], &[0x88, 0xb6], payload].concat();
    // The second is a hop datagram of 257 bytes.
    for frame in [tcp(b""), bad(&[1, 1, 0]), bad(&[])] {
        assert_eq!(refused(&frame), other);
    }
    assert_eq!(refused(&bad(&[0xff])), "an agent's frame ends within its kind");
    assert_eq!(refused(&bad(&[0xff, 0x12, 1, 99])), "an agent's frame: message kind 99 is unknown");
}

proptest! {
    #[test]
    fn arbitrary_frames_make_nothing_panic(mut bytes: Vec<u8>, kind in 0..5u8) {
        let pool = Pool::new(8);
        let _ = unwrap(&bytes, &pool);
        let _ = wrap(&Frame::copy_of(&pool, &bytes), 1, 1500);
        if let Some(header) = bytes.get_mut(12..16) {
            header.copy_from_slice(&[0x88, 0xb6, 0xff, 0x10 | kind]);
        }
        if let Ok((_, Received::Numbered(frame))) = unwrap(&bytes, &pool) {
            let number = frame.frame().expect("it is numbered");
            let again = wrap(&frame, number, usize::MAX).expect("it was wrapped");
            prop_assert!(bytes.starts_with(again.bytes()));
        }
    }
}
