//! One test for each requirement on predictive transfer.

use super::*;

pub(super) const LEAD: Duration = Duration::from_millis(300);

/// A connection of whose bytes the base holds so many, in either direction.
pub(super) fn loaded(up: usize, down: usize) -> (Roaming, ConnId) {
    let limits = Limits { buffer: 40_000, unacknowledged: 700, ..Limits::default() };
    let mut world = Roaming::with(1, limits, Config::base());
    let id = world.opened();
    world.write(id, up);
    world.carry(usize::MAX, 0);
    world.relay(0, id, 0, down);
    (world, id)
}

/// Bytes of the state that went from one base to another with that type of message.
pub(super) fn sent(world: &Roaming, from: u32, to: u32, ahead: bool) -> usize {
    let of = |bytes: &[u8]| match Datagram::decode(bytes).map(|d| d.message) {
        Ok(Message::State { bytes, .. }) if !ahead => bytes.len(),
        Ok(Message::Ahead { bytes, .. }) if ahead => bytes.len(),
        _ => 0,
    };
    let between = world.sent.iter().filter(|(a, b, _)| (*a, *b) == (from, to));
    between.map(|(_, _, bytes)| of(bytes)).sum()
}

/// Lets time pass with control datagrams delivered and nothing else.
pub(super) fn pass(world: &mut Roaming, time: Duration) {
    let end = world.now + time;
    while world.now < end {
        world.wait(10 * MS);
        while world.deliver() {}
    }
}

/// All that either side holds arrives in the end.
pub(super) fn finish(world: &mut Roaming, id: ConnId) {
    world.run(Duration::from_secs(1));
    for _ in 0..20 {
        world.read_all();
        world.run(20 * MS);
    }
    let (app, wired) = (&world.apps[&id], world.wired[&id]);
    assert_eq!((app.read, wired.up), (wired.down, app.written));
}

/// MOB-39: warned of a handoff the mobile notifies its base, which sends the candidate a copy of what
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

/// MOB-42: bytes that were copied and have changed since are not used: those that were
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
        BaseEvent::Rebuild { state, .. } => Some(state.connections[0].clone()),
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
    let whole = |world: &Roaming| world.count(|_, _, m| matches!(m, Message::Have { .. })) > 0;
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

/// A base that was restarted has no copy, and the candidate's is of no use: all is requested.
#[test]
fn a_copy_that_the_old_base_does_not_know_is_not_used() {
    let (mut world, id) = loaded(20_000, 20_000);
    world.imminent(2, LEAD);
    pass(&mut world, 100 * MS);
    world.restart(0);
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

/// What a stranger says, as a datagram.
pub(super) fn said(session: u64, message: Message<'_>) -> Vec<u8> {
    let mut out = vec![];
    Datagram { session: SessionId(session), attempt: 0, message }.encode(&mut out);
    out
}

/// A remainder may say the same stretch of its copy again and again: what comes of it counts.
#[test]
fn a_remainder_that_swells_stays_within_the_memory() {
    let config = Config { memory_max: Bytes::new(100_000), ..Config::base() };
    let mut base = Base::new(config, 2u32);
    let mut most = 0;
    for session in 0..20 {
        let mut copy = vec![7; 1000];
        let first = Message::Ahead { number: 1, total: 1000, offset: 0, bytes: &copy };
        base.handle_datagram(Time::ZERO, 1, &said(session, first));
        for number in 2..=4 {
            // No new bytes and the whole copy, twenty times.
            let state = copy.repeat(20);
            let mut bytes = delta::remainder(&copy, &[])[..17].to_vec();
            bytes.extend(&delta::remainder(&[], &state)[17..25]);
            for _ in 0..20 {
                bytes.extend([0, 0]);
                bytes.extend((0x8000_0000 | copy.len() as u32).to_be_bytes());
            }
            let (total, offset) = (bytes.len() as u64, 0);
            let message = Message::Ahead { number, total, offset, bytes: &bytes };
            base.handle_datagram(Time::ZERO, 1, &said(session, message));
            copy = state;
            most = most.max(base.ahead.memory());
        }
    }
    assert!((20_000..=100_000).contains(&most), "{most} bytes");
}

/// Copies are a convenience: they give way to a state that is needed.
#[test]
fn copies_of_strangers_stand_in_the_way_of_no_handoff() {
    let config = Config { memory_max: Bytes::new(100_000), ..Config::base() };
    let limits = Limits { buffer: 40_000, unacknowledged: 700, ..Limits::default() };
    let mut world = Roaming::with(1, limits, config);
    let id = world.opened();
    world.write(id, 20_000);
    world.carry(usize::MAX, 0);
    world.relay(0, id, 0, 20_000);
    for session in 0..50 {
        let message = Message::Ahead { number: 1, total: 9000, offset: 0, bytes: &[7; 1000] };
        let now = world.now;
        world.stations[1].machine.handle_datagram(now, 3, &said(session, message));
    }
    world.upcall(2);
    pass(&mut world, 100 * MS);
    assert_eq!(world.resumed, 1);
    finish(&mut world, id);
}

/// A request that was repeated on its way costs nothing anew and changes nothing, though the copy is
/// gone by then.
#[test]
fn a_late_request_does_not_change_what_is_sent() {
    let (mut world, _) = loaded(20_000, 20_000);
    world.imminent(2, LEAD);
    pass(&mut world, 100 * MS);
    world.upcall(2);
    let asks = |m: &Message<'_>| matches!(m, Message::Handover { .. });
    let is = |bytes: &[u8]| Datagram::decode(bytes).is_ok_and(|d| asks(&d.message));
    while !world.sent.iter().any(|(.., bytes)| is(bytes)) {
        assert!(world.deliver());
    }
    let handover = world.sent.iter().find(|(.., bytes)| is(bytes)).unwrap().2.clone();
    let machine = &mut world.stations[0].machine;
    let numbers = |machine: &mut Base<u32, Toy>, now| {
        machine.handle_datagram(now, 2, &handover);
        while let Some(event) = machine.poll_event() {
            assert!(matches!(event, BaseEvent::Freeze { .. }), "{event:?}");
        }
        let mut out = vec![];
        let mut numbers = vec![];
        while machine.poll_transmit(now, &mut out).is_some() {
            if let Message::State { generation, total, .. } =
                Datagram::decode(&out).unwrap().message
            {
                numbers.push((generation, total));
            }
        }
        numbers
    };
    assert_eq!(numbers(machine, world.now), []);
    let state = SessionState::of(ID, vec![]);
    machine.frozen(world.now, ID, Some(state));
    let before = numbers(machine, world.now);
    assert!(!before.is_empty());
    let later = world.now + Duration::from_secs(6);
    machine.handle_timeout(later);
    assert_eq!(machine.copies(), 0);
    let after = numbers(machine, later);
    assert_eq!(after.first(), before.first());
}

/// A word about one candidate is not taken for one about another.
#[test]
fn an_answer_about_an_earlier_candidate_does_not_silence_the_mobile() {
    let mut mobile = Mobile::new(Config::mobile(), ID, 1u32);
    let mut out = vec![];
    for candidate in [2, 3] {
        mobile.handle_imminent(Time::ZERO, candidate, Duration::from_secs(1));
        assert_eq!(mobile.poll_transmit(Time::ZERO, &mut out), Some(1));
    }
    let answer = |candidate: u32| {
        let candidate = candidate.to_name();
        Message::Expected { candidate, refused: None }
    };
    mobile.handle_datagram(Time::ZERO, 1, &said(ID.0, answer(2)));
    let late = Time::ZERO + 200 * MS;
    assert_eq!(mobile.poll_transmit(late, &mut out), Some(1), "3 has no answer");
    mobile.handle_datagram(late, 1, &said(ID.0, answer(3)));
    assert_eq!(mobile.poll_transmit(late + 600 * MS, &mut out), None);
}

/// As many predictions as there may be: one of them may still change.
#[test]
fn a_prediction_changes_its_candidate_where_there_is_no_room_for_another() {
    let mut base = Base::new(Config { pending_max: 1, ..Config::base() }, 1u32);
    let expect = |candidate: u32| Message::Expect { candidate: candidate.to_name() };
    for candidate in [2, 3] {
        base.handle_datagram(Time::ZERO, 100, &said(1, expect(candidate)));
        assert_eq!(base.poll_event(), Some(BaseEvent::Copy(SessionId(1))));
    }
    base.handle_datagram(Time::ZERO, 100, &said(2, expect(2)));
    assert_eq!((base.poll_event(), base.copies()), (None, 1));
}

/// MOB-41: the mobile goes and comes back at once; a later word has copies made as before.
#[test]
fn a_mobile_that_came_back_is_foreseen_again() {
    let (mut world, id) = loaded(20_000, 20_000);
    world.imminent(2, LEAD);
    pass(&mut world, 100 * MS);
    world.upcall(2);
    while world.serving().is_some() {
        assert!(world.deliver());
    }
    world.stations[1].dead = true;
    pass(&mut world, 100 * MS);
    world.upcall(1);
    pass(&mut world, 300 * MS);
    world.stations[1].dead = false;
    assert_eq!((world.resumed, world.serving()), (1, Some(0)));
    world.run(100 * MS);
    world.imminent(2, 2 * LEAD);
    let before = world.count(|_, _, m| matches!(m, Message::Have { .. }));
    pass(&mut world, 500 * MS);
    assert!(world.count(|_, _, m| matches!(m, Message::Have { .. })) > before + 2);
    world.upcall(2);
    pass(&mut world, 100 * MS);
    assert_eq!(world.resumed, 2);
    assert_eq!(world.stations[1].machine.copies(), 0);
    finish(&mut world, id);
}

/// A copy that was of no use is not kept beside the session itself.
#[test]
fn what_came_ahead_goes_when_the_session_comes() {
    let (mut world, id) = loaded(20_000, 20_000);
    world.imminent(2, LEAD);
    pass(&mut world, 100 * MS);
    world.restart(0);
    world.upcall(2);
    pass(&mut world, 100 * MS);
    assert_eq!((world.resumed, world.stations[1].machine.copies()), (1, 0));
    finish(&mut world, id);
}

/// A base that was restarted counts its copies from one again: what the candidate has of before is
/// not taken for them, and gives way.
#[test]
fn a_restarted_base_sends_its_copies_anew() {
    let (mut world, id) = loaded(20_000, 20_000);
    world.imminent(2, Duration::from_secs(20));
    pass(&mut world, 500 * MS);
    world.restart(0);
    world.read(id, 10_000);
    world.carry(0, usize::MAX);
    pass(&mut world, Duration::from_secs(10));
    world.upcall(2);
    pass(&mut world, 100 * MS);
    assert_eq!(world.resumed, 1);
    assert!(sent(&world, 1, 2, false) < 2000, "{}", sent(&world, 1, 2, false));
    finish(&mut world, id);
}

/// A candidate that was restarted has no copy that a remainder could build on: it gets a whole one.
#[test]
fn a_restarted_candidate_gets_the_whole_copy() {
    let (mut world, id) = loaded(20_000, 20_000);
    world.imminent(2, Duration::from_secs(3));
    pass(&mut world, 200 * MS);
    world.restart(1);
    pass(&mut world, 600 * MS);
    world.upcall(2);
    pass(&mut world, 100 * MS);
    assert_eq!(world.resumed, 1);
    assert!(sent(&world, 1, 2, false) < 2000, "{}", sent(&world, 1, 2, false));
    finish(&mut world, id);
}
