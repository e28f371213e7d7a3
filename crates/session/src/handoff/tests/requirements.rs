//! One test for each requirement on a handoff.

use super::*;

fn is_greet(_: u32, _: u32, message: &Message<'_>) -> bool {
    matches!(message, Message::Greet { .. })
}

/// MHP-15: the upcall suspends sending, and the new base is sent who held the session.
#[test]
fn the_upcall_suspends_and_greets_the_new_base_with_the_old_ones_address() {
    let mut world = Roaming::new(1);
    let id = world.opened();
    world.upcall(2);
    assert_eq!(world.told, [MobileEvent::Suspend { to: 2 }]);
    world.write(id, 10);
    assert_eq!(world.apps[&id].written, 0, "nothing is sent while the session is suspended");
    let (from, to, bytes) = &world.sent[0];
    assert_eq!((*from, *to), (MOBILE, 2));
    let granted = |holder: u32| {
        (holder.to_name(), toy::grant(MOBILE, holder, &Claim { session: ID, attempt: 1, to: 2 }))
    };
    let grants = [1, 3].map(granted).to_vec();
    let greet = Message::Greet { holder: 1u32.to_name(), since: 0, grants };
    let datagram = Datagram { session: ID, attempt: 1, message: greet };
    assert_eq!(Datagram::decode(bytes), Ok(datagram));
    world.run(Duration::from_secs(1));
    assert_eq!(world.told, [MobileEvent::Suspend { to: 2 }, MobileEvent::Resumed { base: 2 }]);
    world.write(id, 10);
    assert_eq!(world.apps[&id].written, 10);
}

/// MHP-16: the new base asks the old one for the state.
#[test]
fn the_new_base_asks_the_old_one_for_the_state() {
    let mut world = Roaming::new(1);
    world.opened();
    world.upcall(3);
    world.deliver();
    let asked =
        |from, to, m: &Message<'_>| (from, to) == (3, 1) && matches!(m, Message::Handover { .. });
    assert_eq!(world.count(asked), 1);
    assert_eq!(world.stations[2].machine.pending(), 1);
}

/// MHP-17, ITCP-3: state and the bytes of both directions that the old base holds are handed over,
/// in pieces that fit a datagram.
#[test]
fn the_old_bases_buffers_of_both_directions_are_handed_over() {
    let mut world = Roaming::new(1);
    let id = world.opened();
    world.write(id, 3000);
    world.carry(usize::MAX, 0);
    world.relay(0, id, 1000, 2500);
    world.upcall(2);
    world.run(Duration::from_secs(1));
    let state = world.base_told.iter().find_map(|(_, event)| match event {
        BaseEvent::Rebuild { state, .. } => Some(&state.connections[0]),
        _ => None,
    });
    let state = state.expect("a state");
    assert_eq!((state.target.clone(), state.bound), (target(), Some(bound())));
    assert_eq!((state.up.start, state.up.bytes.clone()), (1000, bytes(id, true, 1000, 2000)));
    assert_eq!((state.down.start, state.down.bytes.clone()), (0, bytes(id, false, 0, 2500)));
    assert!(world.sent.iter().all(|(_, _, datagram)| datagram.len() <= 1200));
    world.read_all();
    world.relay(1, id, usize::MAX, 0);
    assert_eq!((world.apps[&id].read, world.wired[&id].up), (2500, 3000));
}

/// MHP-18, SPL-3: the session goes on over a new hop, with new streams, under the same names.
#[test]
fn after_resume_the_connection_goes_on_over_a_new_hop() {
    let mut world = Roaming::new(1);
    let id = world.opened();
    world.upcall(2);
    world.run(Duration::from_secs(1));
    assert_eq!(world.pair, world.pairs.len() - 1);
    assert!(world.base_told.contains(&(2, BaseEvent::Resumed { session: ID, mobile: MOBILE })));
    world.write(id, 500);
    world.run(20 * MS);
    assert_eq!(world.wired[&id].up, 500);
    world.relay(1, id, 0, 700);
    world.run(20 * MS);
    world.read_all();
    assert_eq!(world.apps[&id].read, 700);
    let other = world.opened();
    assert_ne!(other, id);
}

/// UFB-3: a connection keeps its priority when it moves to another hop.
#[test]
fn a_priority_goes_with_its_connection() {
    let mut world = Roaming::new(1);
    let id = world.opened();
    let priority = |world: &Roaming| {
        let stream = world.session.stream(id).expect("a stream");
        world.pairs[world.pair].mobile.priority(stream)
    };
    assert_eq!(priority(&world), None);
    let pair = world.pair;
    assert!(world.session.set_priority(&mut world.pairs[pair].mobile, id, 5));
    assert_eq!(priority(&world), Some(5));
    world.upcall(2);
    world.run(Duration::from_secs(1));
    assert_eq!((world.resumed, priority(&world)), (1, Some(5)));
    assert!(!world.session.set_priority(&mut world.pairs[pair].mobile, ConnId(998), 5));
}

/// MHP-19, SRP-13, ITCP-4: each side sends again from exactly the byte that the other expects, as
/// soon as the session resumes, without a timer.
#[test]
fn bytes_are_reconciled_to_the_byte_in_both_directions() {
    for unacknowledged in [0, 1, 300, 5000] {
        let limits = Limits { unacknowledged, ..Limits::default() };
        let mut world = Roaming::with(1, limits, Config::base());
        let id = world.opened();
        world.write(id, 2000);
        world.relay(0, id, 0, 2000);
        world.carry(700, 900);
        world.read(id, 100);
        world.upcall(2);
        for _ in 0..20 {
            world.deliver();
        }
        assert_eq!(world.resumed, 1);
        let start = world.now;
        for _ in 0..10 {
            world.carry(usize::MAX, usize::MAX);
            world.relay(1, id, usize::MAX, 0);
            world.read_all();
        }
        assert_eq!((world.apps[&id].read, world.wired[&id].up), (2000, 2000));
        assert_eq!(world.now, start);
    }
}

/// MHP-19: an end that was sent before the handoff is not lost, and an opening goes on.
#[test]
fn ends_and_openings_survive_a_handoff() {
    for opening in [Opening::Faithful, Opening::Early] {
        let mut world = Roaming::new(1);
        let ended = world.opened();
        world.write(ended, 10);
        world.finish(ended);
        let asking = world.connect(opening).expect("room");
        world.carry(usize::MAX, 0);
        let unheard = world.connect(opening).expect("room");
        world.upcall(2);
        world.run(Duration::from_secs(1));
        assert!(world.wired[&ended].up_ended);
        assert!(world.apps[&asking].open && world.apps[&unheard].open);
        world.relay(1, ended, 0, 5);
        world.end(1, ended);
        world.run(20 * MS);
        world.read_all();
        world.run(20 * MS);
        assert!(world.apps[&ended].closed && world.apps[&ended].read == 5);
    }
}

/// MHP-20: a request is repeated after 200 ms, then after twice that, and so on up to a cap.
#[test]
fn a_lost_greeting_is_repeated_with_doubled_pauses() {
    let mut world = Roaming::new(1);
    world.stations[1].dead = true;
    world.upcall(2);
    let mut pauses = vec![];
    let mut before = world.now;
    for _ in 0..7 {
        let sent = world.count(is_greet);
        world.wait(world.mobile.next_timeout().expect("a timer").since(world.now));
        if world.count(is_greet) > sent {
            pauses.push(world.now.since(before).as_millis());
            before = world.now;
        }
    }
    assert_eq!(pauses, [200, 400, 800, 1600, 3200, 3200, 3200]);
}

/// MHP-20: whatever is repeated is answered alike, and the state is rebuilt once.
#[test]
fn repeated_messages_change_nothing() {
    let mut world = Roaming::new(1);
    let id = world.opened();
    world.write(id, 100);
    world.upcall(2);
    world.run(Duration::from_secs(1));
    for (from, to, datagram) in world.sent.clone() {
        world.flying.push((from, to, datagram));
    }
    world.run(Duration::from_secs(1));
    let rebuilt = |(_, event): &&(u32, BaseEvent<u32>)| matches!(event, BaseEvent::Rebuild { .. });
    assert_eq!(world.base_told.iter().filter(rebuilt).count(), 1);
    assert_eq!((world.resumed, world.serving()), (1, Some(1)));
    assert_eq!(world.wired[&id].up, 100);
}

/// MHP-20: pieces of a large state that are lost are requested again, and no other.
#[test]
fn a_large_state_comes_whole_over_a_lossy_network() {
    let mut world =
        Roaming::with(7, Limits { buffer: 200_000, ..Limits::default() }, Config::base());
    let id = world.opened();
    world.write(id, 190_000);
    world.carry(usize::MAX, 0);
    world.loss = 0.1;
    world.upcall(2);
    world.run(Duration::from_secs(20));
    assert_eq!(world.wired[&id].up, 190_000);
    let pieces = world.count(|_, _, m| matches!(m, Message::State { .. }));
    assert!((160..250).contains(&pieces), "{pieces} pieces for 164");
}

/// MHP-21: the mobile gives up after 30 s, and its connections are reset.
#[test]
fn a_base_that_does_not_answer_breaks_the_session_after_30_seconds() {
    let mut world = Roaming::new(1);
    world.panics_on_broken = false;
    let id = world.opened();
    world.stations[1].dead = true;
    world.upcall(2);
    world.run(Duration::from_millis(29_900));
    assert!(world.mobile.is_pending());
    world.run(Duration::from_millis(200));
    assert_eq!(world.told[1..], [MobileEvent::Broken(Broken::TimedOut)]);
    assert!(world.apps[&id].closed);
}

/// MHP-21: a new base that cannot reach the old one says so before the mobile's own bound.
#[test]
fn an_unreachable_old_base_is_told_to_the_mobile() {
    let mut world = Roaming::new(1);
    world.panics_on_broken = false;
    world.opened();
    world.stations[0].dead = true;
    world.upcall(2);
    world.run(Duration::from_secs(26));
    let broken = Broken::Refused(Reason::Unreachable);
    assert_eq!(world.told[1..], [MobileEvent::Broken(broken)]);
    assert_eq!(world.stations[1].machine.pending(), 0);
}

/// MHP-22: the old base drops its agent, says where packets are to be forwarded, and tells
/// stragglers who has the session.
#[test]
fn the_old_base_forwards_and_tells_stragglers_where_the_session_went() {
    let mut world = Roaming::new(1);
    world.opened();
    world.upcall(2);
    world.run(Duration::from_secs(1));
    assert!(world.stations[0].surrogate.is_none());
    let lasts = Config::base().forward;
    assert!(world.base_told.contains(&(1, BaseEvent::Forward { session: ID, to: 2, lasts })));
    let grant = toy::grant(MOBILE, 1, &Claim { session: ID, attempt: 9, to: 3 });
    let warrant = Some(Warrant { mobile: MOBILE.to_name(), grant });
    let (limit, piece) = (1 << 24, 1000);
    let message = Message::Handover { limit, piece, window: 8, since: 0, copy: None, warrant };
    let mut ask = vec![];
    Datagram { session: ID, attempt: 9, message }.encode(&mut ask);
    world.flying.push((3, 1, ask));
    world.deliver();
    let told = |from, to, m: &Message<'_>| {
        (from, to) == (1, 3) && *m == Message::Moved { to: 2u32.to_name(), since: 256 }
    };
    assert_eq!(world.count(told), 1);
    world.wait(Config::base().remember);
    assert_eq!(world.stations[0].machine.sessions(), 0, "and forgets it in the end");
}

/// MHP-23: a handoff during an unfinished one starts anew towards the third base, wherever the
/// state has got to.
#[test]
fn a_handoff_may_be_interrupted_by_another_at_any_point() {
    for delivered in 0..14 {
        let mut world = Roaming::new(delivered);
        let id = world.opened();
        world.write(id, 5000);
        world.upcall(2);
        for _ in 0..delivered {
            world.deliver();
        }
        world.upcall(3);
        world.run(Duration::from_secs(5));
        assert_eq!(world.serving(), Some(2), "after {delivered} datagrams");
        assert_eq!(world.wired[&id].up, 5000);
        assert_eq!(world.told.last(), Some(&MobileEvent::Resumed { base: 3 }));
    }
}

/// MHP-23: a mobile that comes back finds its session where it was, though it was frozen.
#[test]
fn a_mobile_that_returns_to_the_old_base_goes_on_there() {
    let mut world = Roaming::new(1);
    let id = world.opened();
    world.upcall(2);
    world.deliver();
    world.deliver();
    world.stations[1].dead = true;
    world.upcall(1);
    world.run(Duration::from_secs(5));
    world.write(id, 50);
    world.run(20 * MS);
    assert_eq!((world.serving(), world.wired[&id].up), (Some(0), 50));
}

#[test]
fn a_state_that_is_too_large_is_refused_and_the_old_base_keeps_it() {
    let config = Config { state_max: Bytes::from_kib(1), ..Config::base() };
    let mut world = Roaming::with(1, Limits::default(), config);
    world.panics_on_broken = false;
    let id = world.opened();
    world.write(id, 8000);
    world.carry(usize::MAX, 0);
    world.upcall(2);
    world.run(Duration::from_secs(1));
    let broken = Broken::Refused(Reason::TooLarge);
    assert_eq!(world.told[1..], [MobileEvent::Broken(broken)]);
    world.run(Config::base().hold);
    let expired = |(base, event): &(u32, BaseEvent<u32>)| {
        *base == 1 && matches!(event, BaseEvent::Expired(_))
    };
    assert!(world.base_told.iter().any(expired), "nothing is left behind");
    assert_eq!(world.stations[0].machine.pending(), 0);
}

#[test]
fn handoffs_beyond_the_bound_wait_for_room() {
    let config = Config { pending_max: 1, ..Config::base() };
    let mut base: Base<u32> = Base::new(config, 2);
    let mut out = vec![];
    let mut greet = |base: &mut Base<u32>, session| {
        let message = Message::Greet { holder: 1u32.to_name(), since: 0, grants: vec![] };
        let mut bytes = vec![];
        Datagram { session: SessionId(session), attempt: 1, message }.encode(&mut bytes);
        base.handle_datagram(Time::ZERO, 100, &bytes);
        let to = base.poll_transmit(Time::ZERO, &mut out).expect("an answer");
        (to, Datagram::decode(&out).is_ok_and(|d| d.message == Message::Refuse(Reason::Busy)))
    };
    assert_eq!(greet(&mut base, 1), (1, false));
    assert_eq!(greet(&mut base, 2), (100, true));
    base.remove(SessionId(1));
    assert_eq!(greet(&mut base, 2), (1, false));
}

#[test]
fn a_session_that_nobody_holds_is_refused_at_once() {
    let mut world = Roaming::new(1);
    world.panics_on_broken = false;
    world.stations[0].surrogate = None;
    world.upcall(2);
    world.run(100 * MS);
    let broken = Broken::Refused(Reason::Unknown);
    assert_eq!(world.told[1..], [MobileEvent::Broken(broken)]);
}

#[test]
fn addresses_survive_their_names() {
    for text in ["192.0.2.1:443", "[2001:db8::1]:9"] {
        let addr: SocketAddr = text.parse().expect("an address");
        assert_eq!(SocketAddr::from_name(&addr.to_name()), Some(addr));
    }
    assert_eq!(u32::from_name(&7u32.to_name()), Some(7));
    assert_eq!(SocketAddr::from_name(&7u32.to_name()), None);
}
