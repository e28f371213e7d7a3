use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;

use proptest::prelude::*;

use super::*;

fn encoded(message: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    message.encode(&mut out);
    out
}

fn open(target: Target) -> Message {
    Message::Open {
        opening: Opening::Faithful,
        target,
        connection: None,
        source: None,
        resumed: None,
    }
}

fn addr() -> impl Strategy<Value = SocketAddr> {
    (any::<IpAddr>(), any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip, port))
}

pub(super) fn target() -> impl Strategy<Value = Target> {
    let name = ("[a-z0-9.-]{1,255}", any::<u16>())
        .prop_map(|(name, port)| Target::Name(HostName::new(&name).expect("fit"), port));
    prop_oneof![addr().prop_map(Target::Addr), name]
}

fn message() -> impl Strategy<Value = Message> {
    let opening = prop_oneof![Just(Opening::Faithful), Just(Opening::Early)];
    prop_oneof![
        (
            (opening, target(), any::<Option<u64>>()),
            prop::option::of(addr()),
            prop::option::of((any::<u64>().prop_map(SessionId), any::<u32>())),
        )
            .prop_map(|((opening, target, connection), source, resumed)| Message::Open {
                opening,
                target,
                connection,
                source,
                resumed,
            }),
        addr().prop_map(|bound| Message::Opened { bound }),
        (addr(), addr(), any::<Option<u64>>()).prop_map(|(to, from, connection)| Message::Offer {
            to,
            from,
            connection
        }),
        (any::<u8>(), any::<u16>())
            .prop_map(|(code, detail)| Message::Refused(Refusal::from_code(code, detail))),
    ]
}

#[test]
fn the_layout_is_the_documented_one() {
    let to = "192.0.2.7:443".parse().expect("address");
    assert_eq!(encoded(&open(Target::Addr(to))), [1, 1, 0, 8, 0, 1, 1, 187, 192, 0, 2, 7]);

    let name = Target::from_host("a.b", 80).expect("name");
    let early = Message::Open {
        opening: Opening::Early,
        target: name,
        connection: None,
        source: None,
        resumed: None,
    };
    assert_eq!(encoded(&early), [1, 1, 0, 8, 1, 3, 0, 80, 3, b'a', b'.', b'b']);

    let bound = "[2001:db8::1]:5".parse().expect("address");
    let expected = [1, 2, 0, 19, 2, 0, 5, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    assert_eq!(encoded(&Message::Opened { bound }), expected);

    let from = "192.0.2.9:2".parse().expect("address");
    let offer = Message::Offer { to, from, connection: None };
    let expected = [1, 4, 0, 15, 0, 1, 1, 187, 192, 0, 2, 7, 1, 0, 2, 192, 0, 2, 9];
    assert_eq!(encoded(&offer), expected);

    assert_eq!(encoded(&Message::Refused(Refusal::Refused)), [1, 3, 0, 3, 1, 0, 0]);
    assert_eq!(encoded(&Message::Refused(Refusal::Other(99))), [1, 3, 0, 3, 255, 0, 99]);
}

#[test]
fn fields_that_a_newer_peer_adds_are_skipped() {
    let message = Message::Refused(Refusal::TimedOut);
    let mut bytes = encoded(&message);
    bytes.extend_from_slice(b"a later field");
    bytes[3] += 13;
    assert_eq!(decode(&bytes), Ok(Decoded::Complete { message, len: bytes.len() }));
}

#[test]
fn unknown_flags_are_ignored() {
    let mut bytes = encoded(&open(Target::from_host("h", 1).expect("name")));
    bytes[HEADER_LEN] = 0xf0;
    let Ok(Decoded::Complete { message: Message::Open { opening, .. }, .. }) = decode(&bytes)
    else {
        panic!("not read")
    };
    assert_eq!(opening, Opening::Faithful);
}

#[test]
fn another_version_or_type_is_named_from_its_first_bytes() {
    assert_eq!(decode(&[2]), Err(MhpError::Version(2)));
    assert_eq!(decode(&[1, 20]), Err(MhpError::Type(20)));
    assert_eq!(decode(&[1, 0]), Err(MhpError::Type(0)));
    assert!(MhpError::Version(2).to_string().contains("version 2"));
}

#[test]
fn a_body_that_is_too_long_is_an_error_before_it_arrives() {
    assert_eq!(decode(&[1, 1, 4, 1]), Err(MhpError::TooLong(1025)));
    assert_eq!(decode(&[1, 1, 4, 0]), Ok(Decoded::Incomplete { needed: MAX_MESSAGE_LEN }));
}

#[test]
fn names_that_no_host_has_are_errors() {
    assert_eq!(HostName::new(""), Err(NameError::Empty));
    assert_eq!(HostName::new(&"x".repeat(256)), Err(NameError::TooLong(256)));
    assert_eq!(HostName::new("a b"), Err(NameError::BadCharacter(1)));
    assert_eq!(HostName::new("ab\0"), Err(NameError::BadCharacter(2)));
    assert_eq!(HostName::from_bytes(b"ab\xff"), Err(NameError::BadCharacter(2)));
    assert_eq!(
        decode(&[1, 1, 0, 6, 0, 3, 0, 80, 1, b'\n']),
        Err(MhpError::Name(NameError::BadCharacter(0)))
    );
}

#[test]
fn a_host_that_is_an_address_becomes_one() {
    let v4 = Target::Addr("10.1.2.3:80".parse().expect("address"));
    assert_eq!(Target::from_host("10.1.2.3", 80), Ok(v4));
    let v6 = Target::Addr("[::1]:80".parse().expect("address"));
    assert_eq!(Target::from_host("::1", 80), Ok(v6));
    assert_eq!(Target::from_host("1.2.3", 80).map(|t| t.to_string()), Ok("1.2.3:80".into()));
}

#[test]
fn a_body_that_ends_inside_a_field_names_the_field() {
    let whole = encoded(&open(Target::from_host("name", 1).expect("name")));
    for cut in 0..whole.len() - HEADER_LEN {
        let mut short = whole[..HEADER_LEN + cut].to_vec();
        short[3] = cut as u8;
        assert!(matches!(decode(&short), Err(MhpError::Truncated(_))), "cut at {cut}");
    }
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(message in message(), behind in prop::collection::vec(any::<u8>(), 0..40)) {
        let mut bytes = encoded(&message);
        let len = bytes.len();
        bytes.extend(behind);
        prop_assert_eq!(decode(&bytes), Ok(Decoded::Complete { message, len }));
    }

    /// A reader that asks for `needed` bytes each time ends up with the message and nothing else.
    #[test]
    fn any_prefix_says_how_much_is_missing(message in message(), cut in any::<prop::sample::Index>()) {
        let bytes = encoded(&message);
        let cut = cut.index(bytes.len());
        let Ok(Decoded::Incomplete { needed }) = decode(&bytes[..cut]) else {
            return Err(TestCaseError::fail(format!("{cut} of {} bytes", bytes.len())));
        };
        prop_assert!(needed > cut && needed <= bytes.len());
    }

    #[test]
    fn garbage_never_panics_and_never_wants_more_than_the_bound(
        version in prop_oneof![Just(1u8), any::<u8>()],
        kind in prop_oneof![1u8..4, any::<u8>()],
        rest in prop::collection::vec(any::<u8>(), 0..1200),
    ) {
        let mut bytes = vec![version, kind];
        bytes.extend(rest);
        match decode(&bytes) {
            Ok(Decoded::Incomplete { needed }) => prop_assert!(needed > bytes.len() && needed <= MAX_MESSAGE_LEN),
            Ok(Decoded::Complete { len, .. }) => prop_assert!(len <= bytes.len()),
            Err(e) => prop_assert_ne!(e.to_string(), String::new()),
        }
    }

    /// An error that a prefix shows is the error of the whole.
    #[test]
    fn more_bytes_never_change_the_answer(bytes in prop::collection::vec(0u8..5, 0..60), cut in any::<prop::sample::Index>()) {
        let cut = cut.index(bytes.len() + 1);
        match decode(&bytes[..cut]) {
            Ok(Decoded::Incomplete { .. }) => {}
            settled => prop_assert_eq!(decode(&bytes), settled),
        }
    }
}
