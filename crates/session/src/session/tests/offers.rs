//! Connections that fixed hosts open.

use super::*;

const CALLER: &str = "192.0.2.9:5555";
const MOBILE: &str = "10.1.0.1:22";

fn addr(text: &str) -> SocketAddr {
    text.parse().expect("address")
}

fn listening() -> Sessions {
    let mut world = Sessions::new();
    world.mobile.set_listening(true);
    world
}

fn offer(world: &mut Sessions) -> ConnId {
    let Sessions { pair, base, now, .. } = world;
    base.offer(*now, &mut pair.base, addr(MOBILE), addr(CALLER)).expect("room")
}

/// MHP-6: the mobile gets the address and port that the fixed host connects to.
#[test]
fn an_offer_that_is_taken_is_a_connection() {
    let mut world = listening();
    let id = offer(&mut world);
    let (mobile, base) = world.settle();
    let source = Some(addr(CALLER));
    assert_eq!(mobile, [Event::Connect { id, target: addr(MOBILE).into(), source }]);
    assert_eq!(base, []);
    assert_eq!(world.mobile.caller(id), Some(addr(CALLER)));
    world.mobile.accept(&mut world.pair.mobile, id, addr(MOBILE));
    let (_, base) = world.settle();
    assert_eq!(base, [Event::Opened { id, bound: Some(addr(MOBILE)) }]);
    assert_eq!(world.down(id, b"down"), 4);
    assert_eq!(world.up(id, b"up"), 2);
    world.settle();
    assert_eq!(world.read_mobile(id), b"down");
    assert_eq!(world.read_base(id), b"up");
    world.base.finish(&mut world.pair.base, id);
    world.mobile.finish(&mut world.pair.mobile, id);
    world.assert_nothing_left();
}

/// MHP-6: a refusal reaches the base, which sends it to the fixed host.
#[test]
fn an_offer_may_be_refused() {
    let mut world = listening();
    let id = offer(&mut world);
    world.settle();
    world.mobile.refuse(&mut world.pair.mobile, id, Refusal::Refused);
    let (_, base) = world.settle();
    assert_eq!(base[0], Event::Failed { id, refusal: Refusal::Refused });
    world.assert_nothing_left();
}

#[test]
fn a_mobile_that_does_not_listen_resets_what_it_is_offered() {
    let mut world = Sessions::new();
    let id = offer(&mut world);
    let (mobile, base) = world.settle();
    assert_eq!(mobile, []);
    assert!(matches!(base[0], Event::Failed { id: failed, .. } if failed == id), "{base:?}");
    assert_eq!(world.mobile.stats().malformed, 1);
    world.assert_nothing_left();
}

#[test]
fn an_offer_is_not_awaited_for_ever() {
    let mut world = listening();
    let id = offer(&mut world);
    world.now += Config::base().opening_timeout;
    let Sessions { pair, base, now, .. } = &mut world;
    base.handle_timeout(*now, &mut pair.base);
    let (_, base) = world.settle();
    assert_eq!(base[0], Event::Failed { id, refusal: Refusal::TimedOut });
}

#[test]
fn a_mobile_offers_nothing() {
    let mut world = listening();
    let Sessions { pair, mobile, now, .. } = &mut world;
    let offered = mobile.offer(*now, &mut pair.mobile, addr(MOBILE), addr(CALLER));
    assert_eq!(offered, Err(StreamError::Unknown));
}

/// MHP-17: a connection that a fixed host opened moves; one that the mobile has not agreed to is
/// removed, and its number is not used again.
#[test]
fn offered_connections_move_and_unanswered_offers_do_not() {
    let mut world = listening();
    let taken = offer(&mut world);
    world.settle();
    world.mobile.accept(&mut world.pair.mobile, taken, addr(MOBILE));
    world.settle();
    let asked = offer(&mut world);
    let name = SessionId(7);
    let Sessions { pair, base, mobile, now, .. } = &mut world;
    let state = base.freeze(*now, &mut pair.base, name);
    mobile.suspend(*now, &mut pair.mobile);
    assert_eq!(state.connections.iter().map(|c| c.id).collect::<Vec<_>>(), [taken.0]);
    world.base = Session::base(Config::base());
    world.base.adopt(world.now, state);
    world.pair = Pair::new(Limits::default());
    world.mobile.resume(world.now, &mut world.pair.mobile, name);
    world.settle();
    let again = offer(&mut world);
    assert!(again > asked, "{again} {asked}");
    world.settle();
    assert_eq!(world.down(taken, b"on"), 2);
    world.settle();
    assert_eq!(world.read_mobile(taken), b"on");
}
