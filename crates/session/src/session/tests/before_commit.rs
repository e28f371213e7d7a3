//! A base that has the state and may not use it yet: what the mobile gets from it, and what it keeps.

use lasthop_wire::mhp::handoff::Stage;

use super::*;

const NAME: SessionId = SessionId(5);

/// A mobile with one connection, which has left a base and asks another; the state is with neither.
fn moved(up: &[u8], down: &[u8]) -> (Sessions, ConnId, SessionState) {
    let mut world = Sessions::with(Limits { unacknowledged: 100, ..Limits::default() });
    let id = world.opened();
    assert_eq!((world.up(id, up), world.down(id, down)), (up.len(), down.len()));
    let state = leave(&mut world);
    arrive(&mut world);
    (world, id, state)
}

fn leave(world: &mut Sessions) -> SessionState {
    let Sessions { pair, mobile, base, now, .. } = world;
    mobile.suspend(*now, &mut pair.mobile);
    base.freeze(*now, &mut pair.base, NAME)
}

fn arrive(world: &mut Sessions) {
    world.pair = Pair::new(Limits::default());
    world.base = Session::base(Config::base());
    let Sessions { pair, mobile, now, .. } = world;
    mobile.resume(*now, &mut pair.mobile, NAME);
    world.settle();
}

fn answer_tentatively(world: &mut Sessions, state: &SessionState) {
    let Sessions { pair, base, now, .. } = world;
    base.answer_tentatively(*now, &mut pair.base, state, 0);
    base.answer_tentatively(*now, &mut pair.base, state, 0);
    world.settle();
}

fn handle_resumed(world: &mut Sessions) {
    let Sessions { pair, mobile, now, .. } = world;
    mobile.handle_resumed(*now, &mut pair.mobile);
    world.settle();
}

/// MHP-18: bytes for the mobile do not wait until the base may use the state, and come once.
#[test]
fn bytes_for_the_mobile_come_before_the_state_may_be_used() {
    let (mut world, id, state) = moved(b"up", b"down");
    answer_tentatively(&mut world, &state);
    assert_eq!(world.read_mobile(id), b"down");
    assert_eq!((world.base.connections(), world.read_base(id)), (0, vec![]));
    world.base.adopt(world.now, state);
    world.settle();
    handle_resumed(&mut world);
    assert_eq!((world.up(id, b"!"), world.down(id, b"more")), (1, 4));
    world.settle();
    assert_eq!((world.read_mobile(id), world.read_base(id)), (b"more".to_vec(), b"up!".to_vec()));
}

/// MHP-23: what the mobile sends to a base that never gets the state is not lost.
#[test]
fn what_a_base_took_that_may_not_use_the_state_is_sent_again() {
    let (mut world, id, state) = moved(b"up", b"down");
    answer_tentatively(&mut world, &state);
    assert_eq!(world.up(id, b"123"), 3);
    world.settle();
    let Sessions { pair, mobile, now, .. } = &mut world;
    mobile.suspend(*now, &mut pair.mobile);
    arrive(&mut world);
    world.base.adopt(world.now, state);
    world.settle();
    assert_eq!((world.read_mobile(id), world.read_base(id)), (b"down".to_vec(), b"up123".to_vec()));
}

/// MHP-14: an end that the application wrote behind a tentative answer reaches the base once it has the state.
#[test]
fn an_end_waits_until_the_base_has_the_state() {
    let (mut world, id, state) = moved(b"up", b"");
    answer_tentatively(&mut world, &state);
    let Sessions { pair, mobile, .. } = &mut world;
    mobile.finish(&mut pair.mobile, id);
    world.settle();
    world.base.adopt(world.now, state);
    world.settle();
    assert_eq!(world.base.recv_state(&world.pair.base, id), RecvState::Open);
    handle_resumed(&mut world);
    assert_eq!(world.read_base(id), b"up");
    assert_eq!(world.base.recv_state(&world.pair.base, id), RecvState::Finished);
}

/// MHP-19: a mobile that wants bytes that are not there, or that has carried on elsewhere since, is not
/// answered before the state is used.
#[test]
fn a_connection_that_does_not_fit_is_not_answered_tentatively() {
    for spoil in [
        (|state: &mut SessionState| state.connections[0].down.start = 2) as fn(&mut SessionState),
        |state| state.connections[0].stage = Stage::Over,
        |state| state.connections.clear(),
        |state| state.turn = 1 << 20,
    ] {
        let (mut world, id, mut state) = moved(b"up", b"down");
        spoil(&mut state);
        answer_tentatively(&mut world, &state);
        assert_eq!(world.read_mobile(id), b"");
        assert_eq!(world.mobile_events(), []);
    }
}
