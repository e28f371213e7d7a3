use alloc::string::ToString;
use alloc::vec;

use proptest::prelude::*;

use super::super::{self as mhp, Decoded};
use super::*;
use crate::mhp::Refusal;

fn datagram(message: Message<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    Datagram { session: SessionId(7), attempt: 3, message }.encode(&mut out);
    out
}

fn name(bytes: &[u8]) -> BaseName {
    BaseName::new(bytes).expect("short enough")
}

fn messages() -> Vec<Message<'static>> {
    vec![
        Message::Greet { holder: name(b"base 1"), since: 2 },
        Message::Resume { since: 4 },
        Message::Handover { limit: 1 << 24, piece: 1100, window: 32, since: 3, copy: None },
        Message::Handover {
            limit: 7,
            piece: 9,
            window: 1,
            since: 0,
            copy: Some(CopyName { len: 70_000, digest: u64::MAX - 1 }),
        },
        Message::Expect { candidate: name(&[10, 0, 0, 3, 17, 81]) },
        Message::Expected { candidate: name(&[10, 0, 0, 3, 17, 81]) },
        Message::Ahead { number: 2, total: 2000, offset: 1100, bytes: &[8; 40] },
        Message::Fetch { number: 2, piece: 1100, pieces: vec![Pieces { first: 1, count: 3 }] },
        Message::Have { number: 2 },
        Message::Pull { piece: 1100, pieces: vec![Pieces { first: 5, count: 9 }; 3] },
        Message::State { frozen: 6, total: 10, offset: 4, bytes: b"abcdef" },
        Message::Take { frozen: 6 },
        Message::Given { frozen: 6 },
        Message::Stale { frozen: 6 },
        Message::Moved { to: name(&[0; MAX_BASE_NAME_LEN]), since: 9 },
        Message::Refuse(Reason::TooLarge),
        Message::Refuse(Reason::Other(200)),
    ]
}

#[test]
fn the_layout_of_datagrams_is_the_documented_one() {
    let greet = datagram(Message::Greet { holder: name(b"b1"), since: 2 });
    assert_eq!(
        greet,
        [1, 20, 0, 21, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 3, 0, 0, 0, 2, 2, b'b', b'1']
    );
    let state = Message::State { frozen: 1, total: 1, offset: 0, bytes: b"x" };
    assert_eq!(datagram(state).len(), STATE_OVERHEAD + 1);
}

#[test]
fn every_datagram_comes_back_and_no_cut_one_is_read() {
    for message in messages() {
        let bytes = datagram(message.clone());
        let read = Datagram::decode(&bytes).expect("whole");
        assert_eq!(read, Datagram { session: SessionId(7), attempt: 3, message });
        for cut in 0..bytes.len() {
            assert!(Datagram::decode(&bytes[..cut]).is_err());
        }
    }
}

#[test]
fn a_newer_datagram_is_read_as_far_as_it_is_known_or_refused_by_name() {
    let mut bytes = datagram(Message::Refuse(Reason::Busy));
    bytes.extend_from_slice(b"later");
    bytes[3] += 5;
    assert!(Datagram::decode(&bytes).is_ok());
    bytes[0] = 2;
    assert_eq!(Datagram::decode(&bytes), Err(MhpError::Version(2)));
    bytes[..2].copy_from_slice(&[1, 35]);
    assert_eq!(Datagram::decode(&bytes), Err(MhpError::Type(35)));
    assert_eq!(BaseName::new(&[0; MAX_BASE_NAME_LEN + 1]), None);
}

fn target() -> Target {
    Target::from_host("server.example", 443).expect("a good name")
}

#[test]
fn every_stream_message_comes_back() {
    let bound = "[2001:db8::1]:5".parse().ok();
    let reopen = Reopen {
        session: SessionId(9),
        connection: 4,
        expected: 1 << 40,
        kept: 3,
        ended: true,
        asking: None,
    };
    let asking = Some((Opening::Early, target()));
    let all = [
        mhp::Message::Reopen(Reopen { asking, ended: false, ..reopen.clone() }),
        mhp::Message::Reopen(reopen),
        mhp::Message::Reopened(Reopened { expected: 5, ended: true, over: false, bound }),
        mhp::Message::Reopened(Reopened { expected: 5, ended: false, over: true, bound: None }),
        mhp::Message::Roll(Roll { session: SessionId(9), connections: vec![], last: true }),
        mhp::Message::Roll(Roll {
            session: SessionId(9),
            connections: (0..ROLL_MAX as u64).map(|n| n << 40).collect(),
            last: false,
        }),
    ];
    for message in all {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        assert!(bytes.len() <= mhp::MAX_MESSAGE_LEN);
        let len = bytes.len();
        assert_eq!(mhp::decode(&bytes), Ok(Decoded::Complete { message, len }));
    }
}

fn state() -> SessionState {
    let direction = |start, bytes: &[u8], ended| Direction { start, bytes: bytes.into(), ended };
    let connection = ConnectionState {
        id: 6,
        stage: Stage::Open,
        target: target(),
        bound: "10.0.0.1:4000".parse().ok(),
        up: direction(100, b"to the server", true),
        down: direction(1 << 33, b"to the mobile", false),
        wired: b"opaque".to_vec(),
    };
    let refused = ConnectionState {
        id: 8,
        stage: Stage::Refusing(Refusal::Other(99)),
        bound: None,
        up: Direction::default(),
        down: Direction::default(),
        wired: vec![],
        ..connection.clone()
    };
    let early = ConnectionState { stage: Stage::Connecting(Opening::Early), ..refused.clone() };
    SessionState {
        session: SessionId(1 << 63),
        connections: vec![connection, refused, early],
        ended: vec![Ended { id: 2, reset: None }, Ended { id: 4, reset: Some(1) }],
        forgotten: 2,
        hop: b"rtt".to_vec(),
    }
}

/// MHP-13, MHP-17: state, buffers of both directions and the wired half travel together.
#[test]
fn a_sessions_state_comes_back_and_no_cut_one_is_read() {
    let bytes = state().encode();
    assert!(bytes.len() <= state().encoded_len());
    assert_eq!(SessionState::decode(&bytes), Ok(state()));
    for cut in 0..bytes.len() {
        assert!(SessionState::decode(&bytes[..cut]).is_err(), "cut at {cut}");
    }
}

#[test]
fn a_state_of_another_version_is_refused_by_name() {
    let mut bytes = state().encode();
    bytes[0] = 9;
    let error = SessionState::decode(&bytes).expect_err("another version");
    assert_eq!(error, StateError::Version(9));
    assert!(error.to_string().contains("version 9"));
}

proptest! {
    #[test]
    fn garbage_never_panics(
        kind in 16u8..32,
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        at in any::<prop::sample::Index>(),
        flip in any::<u8>(),
    ) {
        let mut datagram = vec![VERSION, kind];
        datagram.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
        datagram.extend_from_slice(&bytes);
        let _ = Datagram::decode(&datagram);
        let _ = mhp::decode(&datagram);
        let mut whole = state().encode();
        let at = at.index(whole.len());
        whole[at] = flip;
        let _ = SessionState::decode(&whole);
        let _ = SessionState::decode(&bytes);
    }
}
