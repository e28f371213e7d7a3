use alloc::vec;
use alloc::vec::Vec;

use lasthop_units::Seed;
use proptest::prelude::*;

use super::*;

fn hello(limits: &[u8]) -> Hello {
    let limits = Limits::new(limits).expect("short");
    Hello { receiver: 0x0102_0304, fast_aes: true, stamp: 0x1122_3344_5566_7788, limits }
}

/// Every decoder, on bytes that may be anything.
fn decode_all(bytes: &mut [u8]) {
    let _ = Kind::of(bytes);
    let _ = Hello::parse(bytes);
    let _ = reply_receiver(bytes);
    let _ = PlainInit::parse(bytes);
    let _ = PlainReply::parse(bytes);
    if let Ok(view) = HandshakeInit::new_checked(&*bytes) {
        let _ = (view.path(), view.noise(), view.split_mac(), view.split_cookie_mac());
    }
    if let Ok(reply) = CookieReply::parse(bytes) {
        assert_eq!(
            CookieReply::parse(&reply.to_bytes()).map(|again| again.sealed),
            Ok(reply.sealed)
        );
    }
    if let Ok(token) = Token::parse(bytes) {
        assert_eq!(Token::parse(&token.to_bytes()), Ok(token));
    }
    if let Ok(view) = HandshakeReply::new_checked(&*bytes) {
        let _ = (view.path(), view.receiver(), view.noise(), view.split_mac());
    }
    if let Ok(mut view) = Data::new_checked(bytes) {
        let header = view.header();
        let (head, body) = view.split_mut();
        assert_eq!(head, header.to_bytes());
        body.fill(0);
    }
}

#[test]
fn a_data_header_is_ten_bytes_in_the_documented_order() {
    let header = DataHeader::new(3, 0xa1a2_a3a4, 0x99_b1b2_b3b4);
    let bytes = header.to_bytes();
    assert_eq!(bytes, [0x10, 3, 0xa1, 0xa2, 0xa3, 0xa4, 0xb1, 0xb2, 0xb3, 0xb4]);
    let mut datagram = bytes.to_vec();
    datagram.extend_from_slice(b"sealed");
    let mut view = Data::new_checked(&mut datagram[..]).expect("well formed");
    assert_eq!(view.header(), header);
    assert_eq!(view.split_mut().1, b"sealed");
}

#[test]
fn other_versions_and_kinds_are_told_apart() {
    assert_eq!(Kind::of(&[]), Err(DatagramError::Truncated { found: 0, least: 1 }));
    assert_eq!(Kind::of(&[0x20]), Err(DatagramError::Version(2)));
    assert_eq!(Kind::of(&[0x1f]), Err(DatagramError::Kind(15)));
    assert_eq!(Kind::of(&[0x11]), Ok(Kind::HandshakeInit));
    assert_eq!(Data::new_checked([0x11; 20]).err(), Some(DatagramError::Kind(1)));
    assert_eq!(
        Data::new_checked([0x10; 9]).err(),
        Some(DatagramError::Truncated { found: 9, least: 10 })
    );
}

#[test]
fn handshake_messages_have_a_least_and_a_greatest_length() {
    let init = |n| HandshakeInit::new_checked(vec![0x11; n]).is_ok();
    assert!(!init(143) && init(144) && init(399) && !init(400));
    assert_eq!((MIN_INIT_LEN, MAX_INIT_LEN), (144, 399));
    let reply = |n| HandshakeReply::new_checked(vec![0x12; n]).is_ok();
    assert!(!reply(83) && reply(84) && reply(339) && !reply(340));
}

#[test]
fn an_answer_is_never_longer_than_an_equally_limited_question() {
    const { assert!(MIN_REPLY_LEN < MIN_INIT_LEN && MIN_PLAIN_REPLY_LEN < MIN_PLAIN_INIT_LEN) };
    const { assert!(CookieReply::LEN < MIN_INIT_LEN) };
}

#[test]
fn limits_are_bounded() {
    assert!(Limits::new(&[7; MAX_LIMITS]).is_some_and(|l| *l == [7; MAX_LIMITS]));
    assert!(Limits::new(&[7; MAX_LIMITS + 1]).is_none());
    let mut long = vec![0; Hello::MAX_LEN + 1];
    long[0] = VERSION;
    assert!(matches!(Hello::parse(&long), Err(DatagramError::Oversized { .. })));
}

#[test]
fn numbers_recover_across_the_edge_of_the_low_half() {
    assert_eq!(recover_number(5, None), 5);
    assert_eq!(recover_number(0, Some(0xffff_ffff)), 0x1_0000_0000);
    assert_eq!(recover_number(0xffff_ffff, Some(0x1_0000_0000)), 0xffff_ffff);
    assert_eq!(recover_number(u32::MAX, Some(u64::MAX)), u64::MAX);
    assert_eq!(recover_number(0, Some(u64::MAX)), u64::MAX - u64::from(u32::MAX));
}

#[test]
fn a_hundred_thousand_mutated_datagrams_panic_nowhere() {
    let mut random = Seed::from_u64(1).stream("datagrams");
    let mut samples: Vec<Vec<u8>> = vec![DataHeader::new(0, 1, 2).to_bytes().to_vec(), vec![]];
    let mut buffer = [0; 300];
    let plain = PlainInit { path: 0, public: [9; KEY_LEN], hello: hello(b"abc") };
    let n = plain.emit(&mut buffer).expect("room");
    samples.push(buffer[..n].to_vec());
    let reply = PlainReply { path: 0, receiver: 1, hello: hello(b"abc") };
    let n = reply.emit(&mut buffer).expect("room");
    samples.push(buffer[..n].to_vec());
    for kind in 0..16 {
        samples.push(vec![0x10 | kind; 128]);
    }
    for _ in 0..100_000 {
        let mut bytes = samples[random.below(samples.len() as u64) as usize].clone();
        bytes.resize(random.below(300) as usize, random.next_u64() as u8);
        for _ in 0..random.below(4) {
            if !bytes.is_empty() {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.next_u64() as u8;
            }
        }
        decode_all(&mut bytes);
    }
}

proptest! {
    #[test]
    fn any_number_within_half_a_window_recovers(
        highest in 0..u64::MAX - (1 << 33),
        ahead in -(1i64 << 31) + 1..1i64 << 31,
    ) {
        let expected = highest + 1;
        if let Some(number) = expected.checked_add_signed(ahead) {
            prop_assert_eq!(recover_number(number as u32, Some(highest)), number);
        }
    }

    #[test]
    fn a_recovered_number_always_has_the_low_half_received(low: u32, highest: Option<u64>) {
        prop_assert_eq!(recover_number(low, highest) as u32, low);
    }

    #[test]
    fn plain_messages_survive_the_wire(
        path: u8, public: [u8; 32], receiver: u32, other: u32, fast_aes: bool, stamp: u64,
        limits in proptest::collection::vec(any::<u8>(), 0..=MAX_LIMITS),
    ) {
        let limits = Limits::new(&limits).expect("short");
        let hello = Hello { receiver, fast_aes, stamp, limits };
        let mut out = [0; MAX_INIT_LEN];

        let init = PlainInit { path, public, hello };
        let n = init.emit(&mut out).expect("room");
        prop_assert_eq!(PlainInit::parse(&out[..n]), Ok(init));
        for short in 0..n {
            prop_assert!(init.emit(&mut out[..short]).is_err());
        }

        let reply = PlainReply { path, receiver: other, hello };
        let n = reply.emit(&mut out).expect("room");
        prop_assert_eq!(PlainReply::parse(&out[..n]), Ok(reply));
        prop_assert_eq!(reply_receiver(&out[..n]), Ok(other));
    }
}

#[test]
fn an_answer_to_data_for_nobody_is_shorter_than_any_data_and_names_the_association() {
    let unknown = Unknown { receiver: 0x0102_0304 };
    let bytes = unknown.to_bytes();
    assert_eq!(bytes, [0x15, 0, 1, 2, 3, 4]);
    assert!(bytes.len() < DATA_HEADER_LEN);
    assert_eq!(Unknown::parse(&bytes), Ok(unknown));
    assert_eq!(
        Unknown::parse(&bytes[..5]).err(),
        Some(DatagramError::Truncated { found: 5, least: 6 })
    );
    let long = [&bytes[..], &[0]].concat();
    assert_eq!(Unknown::parse(&long).err(), Some(DatagramError::Oversized { found: 7, most: 6 }));
    assert_eq!(Unknown::parse(&[0x10; 6]).err(), Some(DatagramError::Kind(0)));
}
