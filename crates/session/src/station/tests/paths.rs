//! Single ways of a session through bases.

use lasthop_wire::mhp::handoff::{Datagram, Message};

use super::*;
use crate::handoff::Address;

/// A world with a connection that has carried something both ways.
pub(super) fn world(mode: Mode) -> (Roaming, ConnId) {
    let mut world = Roaming::new(1, mode);
    let id = world.connect(Opening::Faithful).expect("room");
    world.run(20 * MS);
    assert!(world.apps[&id].open);
    world.write(id, 3000);
    world.run(20 * MS);
    assert_eq!(world.up(id), 3000);
    (world, id)
}

impl Roaming {
    /// Bytes that the fixed host has of a connection.
    fn up(&self, id: ConnId) -> usize {
        self.around.flows_of(id).map(|wired| wired.up).max().unwrap_or(0)
    }
}

pub(super) fn moves(world: &mut Roaming, id: ConnId, to: u32) {
    world.mobile.handle_upcall(world.now, to);
    let (up, down) = (world.up(id), world.apps[&id].read);
    world.run(Duration::from_millis(500));
    world.write(id, 2000);
    world.relay(id, 0, 1500);
    world.run(Duration::from_millis(200));
    world.read_all();
    assert_eq!(world.up(id), up + 2000, "up by {to}");
    assert_eq!(world.apps[&id].read, down + 1500, "down by {to}");
}

#[test]
fn wired_halves_that_stay_are_reached_from_every_base() {
    let (mut world, id) = world(Mode::Anchor);
    for to in [2, 3, 2, 1, 3] {
        moves(&mut world, id, to);
        let anchored = world.nodes[0].station.anchored();
        assert_eq!(anchored, usize::from(to != 1), "at {to}");
        // Chains collapse: whoever has the session reaches the first base itself.
        let anchors: Vec<usize> = world.nodes.iter().map(|node| node.station.anchors()).collect();
        assert_eq!(anchors.iter().sum::<usize>(), usize::from(to != 1), "{anchors:?} at {to}");
    }
    assert_eq!(world.around.dumped, 0);
}

#[test]
fn wired_halves_that_move_are_where_the_session_is() {
    let (mut world, id) = world(Mode::Migrate);
    for to in [2, 3, 1] {
        moves(&mut world, id, to);
        for base in 1..=3 {
            let (carried, wired) = world.node(base).sockets.left();
            assert_eq!((carried, wired), (usize::from(base == to), usize::from(base == to)));
        }
    }
    assert_eq!((world.around.dumped, world.around.spliced), (3, 0));
}

/// The session leaves base 1, which has yet to hear what came of its wired halves.
fn leaves_slowly(world: &mut Roaming, to: u32) {
    world.around.slow = true;
    world.mobile.handle_upcall(world.now, to);
    world.poll();
    while world.deliver() {}
    assert_eq!(world.node(1).sockets.jobs.len(), 1);
    world.around.slow = false;
}

#[test]
fn a_mobile_that_comes_back_while_its_wired_halves_are_taken_out_goes_on_with_them() {
    let (mut world, id) = world(Mode::Migrate);
    leaves_slowly(&mut world, 2);
    world.mobile.handle_upcall(world.now, 1);
    world.poll();
    while world.deliver() {}
    assert!(!world.node(1).station.is_done());
    moves(&mut world, id, 1);
    moves(&mut world, id, 3);
    assert!((1..=3).all(|base| world.node(base).station.is_done()));
}

#[test]
fn a_session_that_is_over_while_its_wired_halves_are_taken_out_goes_to_nobody() {
    let (mut world, id) = world(Mode::Migrate);
    leaves_slowly(&mut world, 2);
    world.around.spoiled.insert(id);
    let now = world.now;
    world.with_node(1, |station, around| station.revoke(around, now, MOBILE));
    world.finish_job(1);
    let station = &world.node(1).station;
    assert!(station.is_done());
    assert_eq!((station.counts().given, station.counts().lost), (0, 0));
}

#[test]
fn wired_halves_that_cannot_leave_at_the_moment_are_waited_for() {
    let (mut world, id) = world(Mode::Migrate);
    world.around.ready = false;
    world.mobile.handle_upcall(world.now, 2);
    world.run(Duration::from_secs(2));
    assert_eq!((world.around.dumped, world.nodes[0].sockets.left()), (0, (1, 1)));
    world.around.ready = true;
    moves(&mut world, id, 2);
    assert_eq!(world.around.dumped, 1);
}

#[test]
fn wired_halves_that_nobody_comes_for_are_reset_in_the_end() {
    let (mut world, id) = world(Mode::Anchor);
    world.mobile.handle_upcall(world.now, 2);
    // The state is given, and the new base vanishes before it has reached the old one.
    while world.nodes[0].station.anchored() == 0 || world.nodes[0].station.counts().given == 0 {
        world.wait(MS);
        world.deliver();
        world.carry(usize::MAX, usize::MAX);
    }
    world.crash(2);
    assert_eq!(world.nodes[0].sockets.left().1, 1);
    world.run(Duration::from_secs(70));
    assert_eq!((world.nodes[0].station.anchored(), world.nodes[0].sockets.left().1), (0, 0));
    assert!(world.apps[&id].closed);
}

/// SEC-2: what the mobile said before it had its association may be said again by anybody who heard it.
#[test]
fn a_call_of_a_mobile_that_is_present_changes_nothing() {
    for mode in [Mode::Anchor, Mode::Migrate] {
        let (mut world, id) = world(mode);
        moves(&mut world, id, 2);
        let (session, attempt) = (world.mobile.session(), world.mobile.attempt());
        for attempt in [attempt, attempt + 1] {
            let holder = 1_u32.to_name();
            let message = Message::Greet { holder, since: 0, grants: Vec::new() };
            let mut call = Vec::new();
            Datagram { session, attempt, message }.encode(&mut call);
            let now = world.now;
            world.node(2).station.handle_call(now, MOBILE, &call);
            let present = &world.node(2).station;
            assert!(present.mobiles.get(MOBILE).is_some_and(|known| known.call.is_none()));
            world.write(id, 1000);
            let up = world.up(id);
            world.run(Duration::from_millis(500));
            assert_eq!(world.up(id), up + 1000, "{mode:?}");
        }
        assert!(world.apps[&id].open);
        moves(&mut world, id, 3);
    }
}

/// The mobile is served no more at that base.
fn revoke(world: &mut Roaming, base: u32) {
    world.spoil_all();
    let now = world.now;
    world.with_node(base, |station, world| station.revoke(world, now, MOBILE));
}

#[test]
fn wired_halves_of_a_mobile_that_is_revoked_are_reset_at_once() {
    let (mut world, id) = world(Mode::Anchor);
    moves(&mut world, id, 2);
    assert_eq!(world.nodes[0].station.anchored(), 1);
    revoke(&mut world, 1);
    let first = &world.nodes[0];
    assert_eq!((first.station.anchored(), first.sockets.left()), (0, (0, 0)));
    world.run(Duration::from_millis(100));
    assert!(world.apps[&id].closed, "the base that has the session hears of it");
}

/// FLT-2
#[test]
fn connections_whose_wired_halves_are_with_a_base_that_is_known_no_more_are_reset_at_once() {
    let (mut world, id) = world(Mode::Anchor);
    moves(&mut world, id, 2);
    assert_eq!(world.nodes[1].station.anchors(), 1);
    world.spoil_all();
    let now = world.now;
    world.with_node(2, |station, world| station.forget_base(world, now, 1));
    world.run(Duration::from_millis(100));
    assert!(world.apps[&id].closed);
    assert_eq!(world.nodes[1].station.anchors(), 0);
}

#[test]
fn no_base_gets_the_session_of_a_mobile_that_was_revoked() {
    // Frozen and on its way; and still in use, as wired halves cannot leave yet.
    for frozen in [true, false] {
        let (mut world, id) = world(Mode::Migrate);
        world.around.ready = frozen;
        world.mobile.handle_upcall(world.now, 2);
        while world.nodes[0].station.machine().pending() == 0 || frozen && world.around.dumped == 0
        {
            world.wait(MS);
            world.deliver();
        }
        revoke(&mut world, 1);
        let first = &world.nodes[0];
        assert_eq!((first.station.machine().pending(), first.station.machine().sessions()), (0, 0));
        world.around.ready = true;
        // Its association is lost, and what was carried on it.
        let pair = world.ways.remove(&1).map(|way| way.0).expect("it was there");
        world.flying.push(Flight::Gone(1, At { pair, link: false }));
        world.run(Duration::from_secs(40));
        let [first, second] = [0, 1].map(|n| world.nodes[n].station.counts());
        assert_eq!((first.given, second.here), (0, 0), "frozen: {frozen}");
        assert_eq!(world.nodes[0].sockets.left(), (0, 0));
        assert!(world.apps[&id].closed);
    }
}
