//! One test for each requirement on predictive transfer.

use super::*;

const LEAD: Duration = Duration::from_millis(300);

/// A connection of whose bytes the base holds so many, in either direction.
fn loaded(up: usize, down: usize) -> (World, ConnId) {
    let limits = Limits { buffer: 40_000, unacknowledged: 700, ..Limits::default() };
    let mut world = World::with(1, limits, Config::base());
    let id = world.opened();
    world.write(id, up);
    world.carry(usize::MAX, 0);
    world.relay(0, id, 0, down);
    (world, id)
}

/// Bytes of the state that went from one base to another with that type of message.
fn sent(world: &World, from: u32, to: u32, ahead: bool) -> usize {
    let of = |bytes: &[u8]| match Datagram::decode(bytes).map(|d| d.message) {
        Ok(Message::State { bytes, .. }) if !ahead => bytes.len(),
        Ok(Message::Ahead { bytes, .. }) if ahead => bytes.len(),
        _ => 0,
    };
    let between = world.sent.iter().filter(|(a, b, _)| (*a, *b) == (from, to));
    between.map(|(_, _, bytes)| of(bytes)).sum()
}

/// Lets time pass with control datagrams delivered and nothing else.
fn pass(world: &mut World, time: Duration) {
    let end = world.now + time;
    while world.now < end {
        world.wait(10 * MS);
        while world.deliver() {}
    }
}

/// All that either side holds arrives in the end.
fn finish(world: &mut World, id: ConnId) {
    world.run(Duration::from_secs(1));
    for _ in 0..20 {
        world.read_all();
        world.run(20 * MS);
    }
    let (app, wired) = (&world.apps[&id], world.wired[&id]);
    assert_eq!((app.read, wired.up), (wired.down, app.written));
}

/// MOB-39: warned of a handoff the mobile tells its base, which sends the candidate a copy of what
/// it holds at once, and goes on serving meanwhile.
#[test]
fn the_state_goes_to_the_candidate_before_the_handoff() {
    let (mut world, id) = loaded(20_000, 20_000);
    world.imminent(2, LEAD);
    pass(&mut world, 100 * MS);
    assert!(sent(&world, 1, 2, true) >= 40_000, "{}", sent(&world, 1, 2, true));
    assert_eq!(world.serving(), Some(0));
    assert!(world.told.is_empty(), "the mobile's session is not touched");
    world.carry(0, usize::MAX);
    world.read(id, 100);
    assert_eq!(world.apps[&id].read, 100);
    finish(&mut world, id);
}

/// MOB-40: after the handoff only what is new since, and the variables, are sent; what the new base
/// has then is the exact state.
#[test]
fn after_the_handoff_only_the_remainder_is_sent() {
    let (mut world, id) = loaded(20_000, 20_000);
    world.imminent(2, LEAD);
    pass(&mut world, 40 * MS);
    world.relay(0, id, 2000, 1500);
    world.upcall(2);
    pass(&mut world, 100 * MS);
    assert_eq!(world.resumed, 1);
    let remainder = sent(&world, 1, 2, false);
    assert!(remainder < 2500, "{remainder} bytes");
    finish(&mut world, id);
    let (mut world, _) = loaded(20_000, 20_000);
    world.upcall(2);
    pass(&mut world, 100 * MS);
    assert!(sent(&world, 1, 2, false) >= 40_000, "without a copy all of it goes then");
}

/// MOB-41: when no handoff comes the copy is dropped after five seconds, at both bases, and the
/// connection never noticed.
#[test]
fn a_prediction_that_does_not_come_true_leaves_nothing_behind() {
    let (mut world, id) = loaded(5000, 5000);
    world.imminent(2, LEAD);
    pass(&mut world, Duration::from_secs(1));
    assert_eq!(world.stations[0].machine.copies(), 1);
    assert_eq!(world.stations[1].machine.copies(), 1);
    pass(&mut world, Duration::from_secs(11));
    assert_eq!(world.stations[0].machine.copies(), 0);
    assert_eq!(world.stations[1].machine.copies(), 0);
    assert_eq!(world.stations[1].machine.sessions(), 0);
    assert_eq!(world.serving(), Some(0));
    assert!(world.told.is_empty());
    finish(&mut world, id);
}

/// MOB-42: bytes that were copied and have changed since are not believed: those that were
/// acknowledged are gone from the state, those that came are in it.
#[test]
fn what_changed_after_it_was_copied_is_sent_anew() {
    let (mut world, id) = loaded(8000, 8000);
    world.imminent(2, LEAD);
    pass(&mut world, 40 * MS);
    // The copy is made every 50 ms; what happens now is in none.
    world.relay(0, id, 5000, 3000);
    world.carry(0, usize::MAX);
    world.read(id, 6000);
    world.carry(0, usize::MAX);
    world.upcall(2);
    pass(&mut world, 100 * MS);
    let state = world.base_told.iter().find_map(|(_, event)| match event {
        BaseEvent::Rebuild(state) => Some(state.connections[0].clone()),
        _ => None,
    });
    let state = state.expect("a state");
    assert_eq!(state.up.bytes, bytes(id, true, state.up.start as usize, state.up.bytes.len()));
    assert_eq!(
        state.down.bytes,
        bytes(id, false, state.down.start as usize, state.down.bytes.len())
    );
    assert_eq!((state.up.start, state.up.end(), state.down.end()), (5000, 8000, 11_000));
    finish(&mut world, id);
}

/// The copy is made anew while the handoff is awaited, and costs what changed.
#[test]
fn a_copy_is_renewed_by_what_has_changed() {
    let (mut world, id) = loaded(20_000, 20_000);
    world.imminent(2, Duration::from_secs(2));
    pass(&mut world, 100 * MS);
    let first = sent(&world, 1, 2, true);
    for _ in 0..10 {
        world.relay(0, id, 500, 500);
        pass(&mut world, 100 * MS);
    }
    let renewed = sent(&world, 1, 2, true) - first;
    assert!((5000..20_000).contains(&renewed), "{renewed} bytes");
    let number = |m: &Message<'_>| matches!(m, Message::Have { number } if *number > 5);
    assert!(world.count(|from, to, m| (from, to) == (2, 1) && number(m)) > 0);
    world.upcall(2);
    pass(&mut world, 100 * MS);
    assert!(sent(&world, 1, 2, false) < 2000, "{}", sent(&world, 1, 2, false));
    finish(&mut world, id);
}

/// MOB-43: the mobile comes to another base than was foreseen: it fetches all, as if nothing had
/// been said, and the candidate's copy is dropped.
#[test]
fn a_wrong_candidate_costs_a_prediction_and_nothing_else() {
    let (mut world, id) = loaded(20_000, 20_000);
    world.imminent(2, LEAD);
    pass(&mut world, 100 * MS);
    world.upcall(3);
    pass(&mut world, 100 * MS);
    assert_eq!((world.resumed, world.serving()), (1, Some(2)));
    assert!(sent(&world, 1, 3, false) >= 40_000);
    pass(&mut world, Duration::from_secs(11));
    assert_eq!(world.stations[1].machine.copies(), 0);
    finish(&mut world, id);
}

/// MOB-40: as much of a copy as has come is of use, too.
#[test]
fn a_part_of_a_copy_spares_that_part() {
    let (mut world, id) = loaded(20_000, 20_000);
    world.imminent(2, LEAD);
    let whole = |world: &World| world.count(|_, _, m| matches!(m, Message::Have { .. })) > 0;
    while sent(&world, 1, 2, true) < 25_000 && !whole(&world) {
        assert!(world.deliver());
    }
    assert!(!whole(&world));
    world.upcall(2);
    pass(&mut world, 100 * MS);
    assert_eq!(world.resumed, 1);
    let rest = sent(&world, 1, 2, false);
    assert!((10_000..35_000).contains(&rest), "{rest} bytes");
    finish(&mut world, id);
}

/// A base that was restarted has no copy, and the candidate's is of no use: all is asked for.
#[test]
fn a_copy_that_the_old_base_does_not_know_is_not_used() {
    let (mut world, id) = loaded(20_000, 20_000);
    world.imminent(2, LEAD);
    pass(&mut world, 100 * MS);
    world.stations[0].machine = Base::new(Config::base(), 1);
    world.upcall(2);
    pass(&mut world, 100 * MS);
    assert_eq!(world.resumed, 1);
    assert!(sent(&world, 1, 2, false) >= 40_000);
    finish(&mut world, id);
}

/// What comes ahead is bounded like what comes at a handoff.
#[test]
fn copies_are_bounded_in_number_and_in_size() {
    let config = Config { pending_max: 3, memory_max: Bytes::new(5000), ..Config::base() };
    let mut base = Base::new(config, 2u32);
    let piece = |session, total| {
        let mut out = vec![];
        let message = Message::Ahead { number: 1, total, offset: 0, bytes: &[7; 100] };
        Datagram { session: SessionId(session), attempt: 0, message }.encode(&mut out);
        out
    };
    base.handle_datagram(Time::ZERO, 1, &piece(0, 1 << 40));
    for session in 1..50 {
        base.handle_datagram(Time::ZERO, 1, &piece(session, 2000));
    }
    assert!(base.copies() <= 3);
    base.handle_timeout(Time::ZERO + Duration::from_secs(6));
    assert_eq!((base.copies(), base.next_timeout()), (0, None));
}
