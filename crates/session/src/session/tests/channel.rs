//! The datagrams of handoffs that travel between sessions.

use lasthop_hop::StreamId;
use lasthop_wire::mhp::handoff::{BaseName, Datagram, Message as Said};

use super::*;

/// A datagram that may be anything but for its header.
fn message(version: u8, kind: u8, len: usize) -> Vec<u8> {
    let mut bytes = vec![version, kind];
    bytes.extend_from_slice(&(len as u16).to_be_bytes());
    bytes.extend((0..len).map(|n| (n * 7) as u8));
    bytes
}

/// The first message of a connection's stream.
fn open() -> Vec<u8> {
    let mut bytes = vec![];
    Message::Open {
        opening: Opening::Early,
        target: target(),
        connection: None,
        source: None,
        resumed: None,
    }
    .encode(&mut bytes);
    bytes
}

impl Sessions {
    fn send_up(&mut self, bytes: &[u8]) -> Result<(), StreamError> {
        self.mobile.send_message(self.now, &mut self.pair.mobile, bytes)
    }

    fn send_down(&mut self, bytes: &[u8]) -> Result<(), StreamError> {
        self.base.send_message(self.now, &mut self.pair.base, bytes)
    }

    /// What came at the base, and at the mobile.
    fn messages(&mut self) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        self.settle();
        let Self { mobile, base, .. } = self;
        let at_base = core::iter::from_fn(|| base.poll_message()).collect();
        (at_base, core::iter::from_fn(|| mobile.poll_message()).collect())
    }
}

/// MHP-15: the upcall's Greet and its answer travel on the association, before any connection and
/// without being one.
#[test]
fn messages_pass_both_ways_without_a_connection() {
    let mut world = Sessions::new();
    let session = SessionId(7);
    let holder = BaseName::new(b"1").expect("short");
    let mut greet = vec![];
    let said = Said::Moved { to: holder, since: 0 };
    Datagram { session, attempt: 1, message: said }.encode(&mut greet);
    let mut resume = vec![];
    let said = Said::Resume { since: 3 };
    Datagram { session, attempt: 1, message: said }.encode(&mut resume);

    assert_eq!(world.send_down(&resume), Err(StreamError::Unknown), "nobody has asked yet");
    assert_eq!(world.send_up(&greet), Ok(()));
    assert_eq!(world.messages(), (vec![greet.clone()], vec![]));
    assert_eq!(world.send_down(&resume), Ok(()));
    assert_eq!(world.messages(), (vec![], vec![resume]));
    assert_eq!(world.told, (vec![], vec![]));
    assert_eq!((world.mobile.connections(), world.base.connections()), (0, 0));

    let id = world.opened();
    assert_eq!(id.0, 2, "the channel was the first stream");
    assert_eq!((world.mobile.connections(), world.base.connections()), (1, 1));
    world.up(id, b"beside it");
    assert_eq!(world.send_up(&greet), Ok(()));
    assert_eq!(world.messages(), (vec![greet], vec![]));
    assert_eq!(world.read_base(id), b"beside it");
}

#[test]
fn the_channel_stays_while_nothing_is_said() {
    let mut world = Sessions::new();
    world.send_up(&message(1, 20, 3)).expect("room");
    world.messages();
    assert_eq!((world.mobile.next_timeout(), world.base.next_timeout()), (None, None));
    world.now += Duration::from_secs(100_000);
    let Sessions { pair, mobile, base, now, .. } = &mut world;
    mobile.handle_timeout(*now, &mut pair.mobile);
    base.handle_timeout(*now, &mut pair.base);
    assert_eq!(world.send_down(&message(1, 21, 4)), Ok(()));
    assert_eq!(world.messages(), (vec![], vec![message(1, 21, 4)]));
    assert_eq!((world.pair.mobile.len(), world.pair.base.len()), (1, 1));
}

/// A message of a later version or of a type that nobody knows here is handed up by its length.
#[test]
fn messages_of_a_newer_peer_break_nothing() {
    let sent = [message(1, 20, 0), message(2, 63, 900), message(1, 62, 65_535), message(9, 20, 1)];
    for first in 0..sent.len() {
        let mut world = Sessions::new();
        let sent: Vec<_> = sent[first..].iter().chain(&sent[..first]).cloned().collect();
        for bytes in &sent {
            assert_eq!(world.send_up(bytes), Ok(()));
        }
        assert_eq!(world.messages(), (sent.clone(), vec![]));
        assert_eq!(world.base.stats().malformed, 0);
    }
}

#[test]
fn only_whole_datagrams_of_a_handoff_are_sent() {
    let mut world = Sessions::new();
    let whole = message(1, 20, 5);
    let mut longer = whole.clone();
    longer.push(0);
    let open = open();
    for bytes in [&[][..], &whole[..3], &whole[..8], &longer, &open, b"GET / HTTP/1.1"] {
        assert_eq!(world.send_up(bytes), Err(StreamError::Unknown), "{bytes:?}");
    }
    assert!(world.pair.mobile.is_empty());
}

/// What is no message resets the stream and costs nothing else; the next message opens another.
#[test]
fn a_malformed_message_resets_the_channel_alone() {
    let open = open();
    for bad in [&open[..], &[0, 20, 0, 0], &[1, 64, 0, 0], &[1, 19, 0, 0], b"HTTP"] {
        let mut world = Sessions::new();
        let good = message(1, 20, 2);
        world.send_up(&good).expect("room");
        let id = world.opened();
        world.pair.mobile.write(StreamId(0), bad).expect("room");
        assert_eq!(world.messages(), (vec![good.clone()], vec![]));
        assert_eq!(world.base.stats().malformed, 1, "{bad:?}");
        assert_eq!(world.send_down(&good), Err(StreamError::Unknown));

        assert_eq!(world.send_up(&good), Ok(()));
        assert_eq!(world.messages(), (vec![good], vec![]));
        assert_eq!((world.up(id, b"x"), world.base.connections()), (1, 1));
    }
}

#[test]
fn a_channel_that_ends_inside_a_message_is_malformed() {
    for (sent, malformed) in [(6, 1), (9, 0)] {
        let mut world = Sessions::new();
        let stream = world.pair.mobile.open().expect("room");
        world.pair.mobile.write(stream, &message(1, 20, 5)[..sent]).expect("room");
        world.pair.mobile.finish(stream);
        let (at_base, _) = world.messages();
        assert_eq!(
            (at_base.len(), world.base.stats().malformed),
            (1 - malformed as usize, malformed)
        );
        assert!(world.pair.mobile.is_empty() && world.pair.base.is_empty());
    }
}

/// A full base has no room for connections, but for messages.
#[test]
fn a_full_base_is_still_spoken_to() {
    let config = Config { max_connections: 1, ..Config::base() };
    let mut world = Sessions::of(Limits::default(), Config::mobile(), config);
    world.opened();
    world.send_up(&message(1, 20, 2)).expect("room");
    assert_eq!(world.messages(), (vec![message(1, 20, 2)], vec![]));
    assert_eq!(world.base.stats().turned_away, 0);
}

#[test]
fn what_waits_to_be_sent_is_bounded() {
    let mut world = Sessions::with(Limits { buffer: 10, ..Limits::default() });
    let large = message(1, 24, 65_000);
    let mut sent = 0;
    while world.send_up(&large).is_ok() {
        sent += 1;
    }
    assert_eq!(sent, (4 << 20) / large.len());
    assert_eq!(world.send_up(&large), Err(StreamError::TooMany));
    let (at_base, _) = world.messages();
    assert!(!at_base.is_empty() && at_base.iter().all(|bytes| *bytes == large));
    let mut world = Sessions::with(Limits { streams: 0, ..Limits::default() });
    assert_eq!(world.send_up(&message(1, 20, 1)), Err(StreamError::TooMany));
}

/// A reader that does not poll stops the writer at the transport's buffers, and nothing is lost.
#[test]
fn what_waits_to_be_polled_is_bounded() {
    let mut world = Sessions::new();
    let small = message(1, 24, 0);
    for _ in 0..50_000 {
        world.send_up(&small).expect("room");
    }
    world.settle();
    let mut polled = 0;
    while world.base.poll_message().is_some() {
        polled += 1;
    }
    assert!((10_000..20_000).contains(&polled), "{polled}");
    loop {
        let (at_base, _) = world.messages();
        if at_base.is_empty() {
            break;
        }
        polled += at_base.len();
    }
    assert_eq!(polled, 50_000);
}

/// MHP-15: whatever was under way when the hop was left is lost, and what the old base sent is not
/// taken for the new one's word.
#[test]
fn the_channel_does_not_move() {
    let mut world = Sessions::new();
    let id = world.opened();
    world.send_up(&message(1, 30, 2)).expect("room");
    world.messages();
    world.send_down(&message(1, 31, 2)).expect("room");
    world.pair.carry();
    world.send_up(&message(1, 30, 9)).expect("room");
    let name = SessionId(7);
    let Sessions { pair, mobile, base, now, .. } = &mut world;
    mobile.suspend(*now, &mut pair.mobile);
    assert_eq!(mobile.poll_message(), None);
    let state = base.freeze(*now, &mut pair.base, name);
    assert_eq!(state.connections.len(), 1);
    assert_eq!((state.ended.len(), state.connections[0].id), (0, id.0));

    world.pair = Pair::new(Limits::default());
    world.base = Session::base(Config::base());
    assert_eq!(world.send_up(&message(1, 20, 4)), Ok(()), "before the session is resumed");
    assert_eq!(world.messages(), (vec![message(1, 20, 4)], vec![]));
    assert_eq!(world.send_down(&message(1, 21, 4)), Ok(()));
    assert_eq!(world.messages(), (vec![], vec![message(1, 21, 4)]));
    world.base.adopt(world.now, state);
    world.mobile.resume(world.now, &mut world.pair.mobile, name);
    world.settle();
    assert_eq!((world.up(id, b"on"), world.down(id, b"no")), (2, 2));
    world.settle();
    assert_eq!((world.read_base(id), world.read_mobile(id)), (b"on".to_vec(), b"no".to_vec()));
    assert_eq!((world.base.connections(), world.mobile.connections()), (1, 1));
}

/// A mobile that comes back over an association that still stands has its messages on a new stream.
#[test]
fn a_channel_opened_anew_replaces_the_old_one() {
    let mut world = Sessions::new();
    world.send_up(&message(1, 20, 1)).expect("room");
    world.messages();
    world.mobile.suspend(world.now, &mut world.pair.mobile);
    world.send_up(&message(1, 20, 2)).expect("room");
    assert_eq!(world.messages(), (vec![message(1, 20, 2)], vec![]));
    world.send_down(&message(1, 21, 3)).expect("room");
    assert_eq!(world.messages(), (vec![], vec![message(1, 21, 3)]));
    assert_eq!((world.pair.mobile.len(), world.pair.base.len()), (1, 1));
}

#[test]
fn there_is_one_channel_and_it_is_the_latest() {
    let mut world = Sessions::new();
    let first = world.pair.mobile.open().expect("room");
    let second = world.pair.mobile.open().expect("room");
    for stream in [first, second] {
        world.pair.mobile.write(stream, &message(1, 20, 1)).expect("room");
        world.pair.carry();
        world.base_events();
    }
    world.pair.carry();
    let code = ResetReason::Aborted.code();
    assert_eq!(world.pair.mobile.recv_state(first), RecvState::Reset(code));
    assert_eq!(world.pair.mobile.recv_state(second), RecvState::Open);
    assert_eq!(world.pair.base.len(), 1);
}

#[test]
fn a_lost_association_takes_the_channel_with_it() {
    let mut world = Sessions::new();
    world.send_up(&message(1, 20, 1)).expect("room");
    world.messages();
    let Sessions { pair, mobile, base, .. } = &mut world;
    mobile.reset_all(&mut pair.mobile, ResetReason::AssociationLost);
    base.reset_all(&mut pair.base, ResetReason::AssociationLost);
    assert_eq!(world.send_down(&message(1, 21, 1)), Err(StreamError::Unknown));
    assert_eq!(world.send_up(&message(1, 20, 1)), Ok(()));
    assert_eq!(world.messages(), (vec![message(1, 20, 1)], vec![]));
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(300))]

    #[test]
    fn messages_arrive_in_order_whatever_pieces_the_transport_makes(
        buffer in 1usize..300,
        piece in 1usize..40,
        sizes in proptest::collection::vec((20u8..64, 0usize..400, 0u8..4), 1..40),
    ) {
        let mut world = Sessions::with(Limits { buffer, piece, ..Limits::default() });
        let (mut up, mut down) = ((vec![], vec![]), (vec![], vec![]));
        // The base must know the stream for what it is before it can answer.
        world.send_up(&message(2, 20, 0)).expect("room");
        let mut came = world.messages();
        up.0.push(message(2, 20, 0));
        for (kind, len, what) in sizes {
            let bytes = message(1 + what / 3, kind, len);
            match what {
                0 => {
                    world.pair.carry_up(len);
                    world.base_events();
                }
                1 => {
                    world.send_down(&bytes).expect("room");
                    down.0.push(bytes);
                }
                _ => {
                    world.send_up(&bytes).expect("room");
                    up.0.push(bytes);
                }
            }
        }
        for _ in 0..100 {
            let (at_base, at_mobile) = world.messages();
            came.0.extend(at_base);
            came.1.extend(at_mobile);
        }
        (up.1, down.1) = came;
        assert_eq!(up.0, up.1);
        assert_eq!(down.0, down.1);
    }
}
