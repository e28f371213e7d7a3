//! Carrying on over the new hop at once: what comes before the state waits for it.

use super::*;

fn world(seed: u64) -> (Roaming, ConnId) {
    let mut world = Roaming::new(seed);
    world.early = true;
    let id = world.opened();
    world.write(id, 5000);
    (world, id)
}

/// MHP-18: all that the mobile has to say is at the new base when the state arrives there.
#[test]
fn connections_are_reopened_before_the_base_has_them() {
    let (mut world, id) = world(1);
    world.upcall(2);
    world.carry(usize::MAX, usize::MAX);
    assert_eq!(world.serving(), Some(0));
    while world.deliver() {}
    assert_eq!(world.serving(), Some(1));
    // The base's answer, the mobile's bytes: no further round trip.
    world.carry(0, usize::MAX);
    world.carry(usize::MAX, 0);
    world.relay(1, id, usize::MAX, 0);
    assert!(world.wired[&id].up > 0);
    world.run(Duration::from_secs(1));
    assert_eq!((world.wired[&id].up, world.resumed), (5000, 1));
}

/// MHP-23: further handoffs at every step, with connections carried on early at each base.
#[test]
fn an_early_handoff_may_be_interrupted_at_any_point() {
    for delivered in 0..14 {
        for next in [1, 3] {
            let (mut world, id) = world(delivered);
            world.upcall(2);
            for _ in 0..delivered {
                world.deliver();
                world.carry(700, 700);
            }
            world.upcall(next);
            world.run(Duration::from_secs(5));
            let at = (world.serving(), world.wired[&id].up);
            assert_eq!(at, (Some(next as usize - 1), 5000), "after {delivered} to {next}");
        }
    }
}

/// A mobile that comes back at once finds its session where it was, and nothing is frozen for it.
#[test]
fn a_mobile_that_comes_back_early_moves_no_state() {
    let (mut world, id) = world(1);
    world.stations[1].dead = true;
    world.upcall(2);
    world.upcall(1);
    world.run(Duration::from_secs(2));
    assert_eq!((world.serving(), world.wired[&id].up), (Some(0), 5000));
    assert_eq!(world.count(|_, _, m| matches!(m, Message::State { .. })), 0);
}

/// MHP-21: a session that breaks leaves nothing at the base where it was wanted, whatever comes there
/// later.
#[test]
fn a_session_that_breaks_early_begins_anew() {
    let (mut world, id) = world(1);
    world.panics_on_broken = false;
    world.stations[0].dead = true;
    world.upcall(2);
    while world.deliver() {}
    let now = world.now;
    world.stations[1].machine.unreachable(now, 1);
    world.run(Duration::from_secs(1));
    assert!(world.apps[&id].closed && world.broken == 1);
    let next = world.opened();
    world.write(next, 100);
    world.run(Duration::from_secs(1));
    assert_eq!(world.wired[&next].up, 100);
}
