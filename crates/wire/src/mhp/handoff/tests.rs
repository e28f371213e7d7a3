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

fn warrant() -> Warrant {
    Warrant { mobile: name(&[9; 32]), grant: Grant([3; Grant::LEN]) }
}

fn handover(copy: Option<CopyName>, warrant: Option<Warrant>) -> Message<'static> {
    Message::Handover { limit: 1 << 24, piece: 1100, window: 32, since: 3, copy, warrant }
}

fn orphans() -> Vec<Orphan> {
    let ticket = Ticket::new(b"sealed");
    let one = Orphan {
        connection: 6,
        received: 1 << 40,
        received_end: true,
        kept: 3,
        sent: 9,
        sent_end: false,
        asking: true,
        ticket: None,
    };
    let other = Orphan {
        received_end: false,
        sent_end: true,
        asking: false,
        ticket: ticket.clone(),
        ..one.clone()
    };
    let mut all = vec![Orphan { ticket, ..one.clone() }; ORPHANS_MAX];
    (all[1], all[2]) = (one, other);
    all
}

fn messages() -> Vec<Message<'static>> {
    vec![
        Message::Greet { holder: name(b"base 1"), since: 2, grants: vec![] },
        Message::Greet {
            holder: name(&[7; 32]),
            since: 2,
            grants: vec![(name(&[7; 32]), Grant([1; 16])); GRANTS_MAX],
        },
        Message::Resume { since: 4 },
        handover(None, None),
        handover(Some(CopyName { len: 70_000, digest: u64::MAX - 1 }), None),
        handover(None, Some(warrant())),
        handover(Some(CopyName { len: 1, digest: 0 }), Some(warrant())),
        Message::Expect { candidate: name(&[10, 0, 0, 3, 17, 81]) },
        Message::Expected { candidate: name(&[10, 0, 0, 3, 17, 81]), refused: None },
        Message::Expected { candidate: name(b"b3"), refused: Some(Reason::Unauthorised) },
        Message::Ahead { number: 2, total: 2000, offset: 1100, bytes: &[8; 40] },
        Message::Fetch { number: 2, piece: 1100, pieces: vec![Pieces { first: 1, count: 3 }] },
        Message::Have { number: 2 },
        Message::Pull { piece: 1100, pieces: vec![Pieces { first: 5, count: 9 }; 3] },
        Message::State { generation: 6, total: 10, offset: 4, bytes: b"abcdef" },
        Message::Commit { generation: 6, warrant: None },
        Message::Commit { generation: 6, warrant: Some(warrant()) },
        Message::Attach { warrant: warrant() },
        Message::Attached,
        Message::Here { since: 4 },
        Message::TakeOver,
        Message::Orphans { flags: 3, silent: 70_000, orphans: vec![] },
        Message::Orphans { flags: 0, silent: 0, orphans: orphans() },
        Message::Committed { generation: 6 },
        Message::Superseded { generation: 6 },
        Message::Moved { to: name(&[0; MAX_BASE_NAME_LEN]), since: 9 },
        Message::Refuse(Reason::TooLarge),
        Message::Refuse(Reason::Other(200)),
    ]
}

#[test]
fn the_layout_of_datagrams_is_the_documented_one() {
    let greet = datagram(Message::Greet { holder: name(b"b1"), since: 2, grants: vec![] });
    assert_eq!(
        greet,
        [1, 20, 0, 21, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 3, 0, 0, 0, 2, 2, b'b', b'1']
    );
    let state = Message::State { generation: 1, total: 1, offset: 0, bytes: b"x" };
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
    bytes[..2].copy_from_slice(&[1, 40]);
    assert_eq!(Datagram::decode(&bytes), Err(MhpError::Type(40)));
    assert_eq!(BaseName::new(&[0; MAX_BASE_NAME_LEN + 1]), None);
}

/// What a base before grants says is read, and what it does not know it skips.
#[test]
fn grants_stand_behind_what_an_older_base_reads() {
    let cut = |message, by: usize| {
        let mut bytes = datagram(message);
        bytes.truncate(bytes.len() - by);
        let body = (bytes.len() - HEADER_LEN) as u16;
        bytes[2..4].copy_from_slice(&body.to_be_bytes());
        Datagram::decode(bytes.leak()).map(|datagram| datagram.message)
    };
    let greet = |grants| Message::Greet { holder: name(b"b1"), since: 2, grants };
    let granted = greet(vec![(name(b"b1"), Grant([1; 16]))]);
    assert_eq!(cut(granted.clone(), 1 + 3 + 16), Ok(greet(vec![])));
    assert_eq!(cut(granted, 1), Err(MhpError::Truncated("grant")));
    let len = 33 + Grant::LEN;
    assert_eq!(cut(handover(None, Some(warrant())), len), Ok(handover(None, None)));
    assert_eq!(cut(handover(None, Some(warrant())), len + 16), Ok(handover(None, None)));
    let take = |warrant| Message::Commit { generation: 6, warrant };
    assert_eq!(cut(take(Some(warrant())), len), Ok(take(None)));
    let many = vec![(name(b""), Grant([0; 16])); GRANTS_MAX + 1];
    let Ok(Message::Greet { grants, .. }) = cut(greet(many), 0) else { panic!("not read") };
    assert_eq!(grants.len(), GRANTS_MAX);
}

#[test]
fn what_cannot_be_read_still_says_what_it_is_about() {
    let mut bytes = datagram(Message::Attached);
    bytes[..2].copy_from_slice(&[9, 200]);
    bytes[5] = 1;
    let envelope =
        Envelope { version: 9, kind: 200, critical: true, session: SessionId(7), attempt: 3 };
    assert_eq!(Envelope::read(&bytes), Some(envelope));
    assert!(!envelope.is_refusal());
    assert_eq!(Envelope::read(&bytes[..17]), None);
    let refusal = datagram(Message::Refuse(Reason::Version));
    assert!(Envelope::read(&refusal).is_some_and(|envelope| envelope.is_refusal()));
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
        retains: true,
        asking: None,
        turn: 3,
    };
    let asking = |source| Some(Asking { opening: Opening::Early, target: target(), source });
    let all = [
        mhp::Message::Reopen(Reopen { asking: asking(None), retains: false, ..reopen.clone() }),
        mhp::Message::Reopen(Reopen { asking: asking(bound), ended: false, ..reopen.clone() }),
        mhp::Message::Reopen(reopen),
        mhp::Message::Continue { from: 1 << 50 },
        mhp::Message::Reopened(Reopened {
            expected: 5,
            ended: true,
            over: false,
            tentative: true,
            bound,
        }),
        mhp::Message::Reopened(Reopened {
            expected: 5,
            ended: false,
            over: true,
            tentative: false,
            bound: None,
        }),
        mhp::Message::Roll(Roll {
            session: SessionId(9),
            connections: vec![],
            last: true,
            turn: 1 << 31,
        }),
        mhp::Message::Roll(Roll {
            session: SessionId(9),
            connections: (0..ROLL_MAX as u64).map(|n| n << 40).collect(),
            last: false,
            turn: 2,
        }),
        mhp::Message::Presumed(Presumed {
            session: SessionId(9),
            turn: 2,
            connection: 6,
            from: 1 << 40,
            bytes: vec![7; PRESUMED_MAX],
            last: true,
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
        source: "10.1.0.1:5000".parse().ok(),
    };
    let refused = ConnectionState {
        id: 8,
        stage: Stage::Refusing(Refusal::Other(99)),
        bound: None,
        up: Direction::default(),
        down: Direction::default(),
        wired: vec![],
        source: None,
        ..connection.clone()
    };
    let early = ConnectionState { stage: Stage::Connecting(Opening::Early), ..refused.clone() };
    SessionState {
        session: SessionId(1 << 63),
        connections: vec![connection, refused, early],
        ended: vec![Ended { id: 2, reset: None }, Ended { id: 4, reset: Some(1) }],
        forgotten: 2,
        turn: 5,
        hop: b"rtt".to_vec(),
    }
}

/// MHP-13, MHP-17: state, buffers of both directions and the wired half travel together.
#[test]
fn a_sessions_state_comes_back_and_no_cut_one_is_read() {
    let bytes = state().encode();
    assert!(bytes.len() <= state().encoded_len());
    assert_eq!(SessionState::decode(&bytes), Ok(state()));
    // An older peer does not say how often the mobile has resumed.
    let older = bytes.len() - 4;
    assert_eq!(SessionState::decode(&bytes[..older]), Ok(SessionState { turn: 0, ..state() }));
    for cut in (0..bytes.len()).filter(|cut| *cut != older) {
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
        kind in 16u8..40,
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
