//! Another base reaches what is kept here for it, and nothing else (SEC-8).

use lasthop_wire::mhp::handoff::{Asking, Stage};

use super::*;

const NAME: SessionId = SessionId(3);

/// What another base writes on a stream of its own, to the end that keeps wired halves.
fn ask(world: &mut Sessions, message: &Message) -> StreamId {
    let stream = world.pair.mobile.open().expect("room");
    let mut bytes = vec![];
    message.encode(&mut bytes);
    assert_eq!(world.pair.mobile.write(stream, &bytes), Ok(bytes.len()));
    stream
}

/// Carries until nothing moves, but leaves what comes back to be looked at; what the base's end says.
fn carry(world: &mut Sessions) -> Vec<Event> {
    let mut told = vec![];
    while world.pair.carry() {
        told.extend(world.base_events());
    }
    told.extend(world.base_events());
    world.pair.carry();
    told
}

fn refused(world: &Sessions, stream: StreamId) -> bool {
    let code = ResetReason::Refused(Refusal::NotAllowed).code();
    world.pair.mobile.recv_state(stream) == RecvState::Reset(code)
}

fn open(connection: u64, resumed: Option<(SessionId, u32)>) -> Message {
    let (opening, connection) = (Opening::Faithful, Some(connection));
    Message::Open { opening, target: target(), connection, source: None, resumed }
}

/// A connection that has no answer yet.
fn asking(session: SessionId, connection: u64) -> Message {
    let asking = Some(Asking { opening: Opening::Faithful, target: target(), source: None });
    let (expected, kept, turn, ended) = (0, 0, 1, false);
    let retains = false;
    Message::Reopen(Reopen { session, connection, expected, kept, ended, retains, asking, turn })
}

/// SEC-8: a base that is a peer, and malicious or captured, has no connection made by another, whatever it
/// asks in whichever order.
#[test]
fn another_base_has_no_connection_made() {
    for kept in [false, true] {
        let (mut world, state) = left();
        world.pair = Pair::new(Limits::default());
        world.base = Session::anchor(Config::base());
        if kept {
            world.base.adopt(world.now, state);
        }
        let held = world.base.connections();
        let plain = ask(&mut world, &open(50, None));
        let resumed = ask(&mut world, &open(52, Some((NAME, 1))));
        let reopened = ask(&mut world, &asking(NAME, 54));
        let other = ask(&mut world, &asking(SessionId(9), 56));
        let mut told = carry(&mut world);
        if !kept {
            while let Some(wanted) = world.base.poll_wanted() {
                world.base.decline(world.now, &mut world.pair.base, wanted);
            }
        }
        told.extend(carry(&mut world));
        assert_eq!(told, [], "kept {kept}");
        assert_eq!(world.base.connections(), held);
        for stream in [plain, resumed, reopened] {
            assert!(refused(&world, stream), "kept {kept}: {stream:?}");
        }
        // Nothing is known of that session: it waits for it to come, and is reset in the end.
        world.now += Duration::from_secs(200);
        world.base.handle_timeout(world.now, &mut world.pair.base);
        carry(&mut world);
        assert!(matches!(world.pair.mobile.recv_state(other), RecvState::Reset(_)));
        assert!(world.told.1.iter().all(|event| !matches!(event, Event::Connect { .. })));
    }
}

/// SEC-8: nor by what it once gave: a state may say of what stayed here that it is being opened.
#[test]
fn a_connection_that_is_kept_is_not_opened_for_another_base() {
    let (mut world, mut state) = left();
    state.connections[0].stage = Stage::Connecting(Opening::Faithful);
    let id = state.connections[0].id;
    world.pair = Pair::new(Limits::default());
    world.base = Session::anchor(Config::base());
    world.base.adopt(world.now, state);
    let stream = ask(&mut world, &asking(NAME, id));
    let told = carry(&mut world);
    assert!(!told.iter().any(|event| matches!(event, Event::Connect { .. })), "{told:?}");
    assert!(refused(&world, stream));
}

/// What is kept here is carried on as ever.
#[test]
fn another_base_carries_on_what_is_kept() {
    let (mut world, state) = left();
    let id = ConnId(state.connections[0].id);
    world.pair = Pair::new(Limits::default());
    world.base = Session::anchor(Config::base());
    world.base.adopt(world.now, state);
    world.mobile.resume(world.now, &mut world.pair.mobile, NAME);
    world.settle();
    assert_eq!((world.up(id, b"hello"), world.down(id, b"there")), (5, 5));
    world.settle();
    assert_eq!(world.read_base(id), b"hello");
    assert_eq!(world.read_mobile(id), b"there");
}

/// A connection that stands, and the state of its base, which has given it away.
fn left() -> (Sessions, SessionState) {
    let mut world = Sessions::new();
    world.opened();
    let Sessions { pair, mobile, base, now, .. } = &mut world;
    mobile.suspend(*now, &mut pair.mobile);
    let state = base.freeze(*now, &mut pair.base, NAME);
    world.told = (vec![], vec![]);
    (world, state)
}
