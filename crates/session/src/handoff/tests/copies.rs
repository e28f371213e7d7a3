//! What the two bases make of copies, of the world's answers and of what strangers say.

use super::ahead::{LEAD, finish, loaded, pass, said, sent};
use super::*;

/// What a base says at this moment.
fn outgoing<T: Authority<u32>>(base: &mut Base<u32, T>, now: Time) -> Vec<(u32, Vec<u8>)> {
    let mut all = vec![];
    let mut out = vec![];
    while let Some(to) = base.poll_transmit(now, &mut out) {
        all.push((to, out.clone()));
    }
    all
}

/// The copies' numbers that are among it.
fn numbers(sent: &[(u32, Vec<u8>)]) -> Vec<u32> {
    let number = |bytes: &[u8]| match Datagram::decode(bytes).map(|d| d.message) {
        Ok(Message::Ahead { number, .. } | Message::Have { number }) => Some(number),
        _ => None,
    };
    sent.iter().filter_map(|(_, bytes)| number(bytes)).collect()
}

fn expect(session: u64, attempt: u32, candidate: u32) -> Vec<u8> {
    let message = Message::Expect { candidate: candidate.to_name() };
    let mut out = vec![];
    Datagram { session: SessionId(session), attempt, message }.encode(&mut out);
    out
}

/// A state that takes so many bytes and some more.
pub(super) fn state(session: u64, bytes: usize, with: u8) -> SessionState {
    let (ended, forgotten) = (vec![], 0);
    let session = SessionId(session);
    SessionState { session, connections: vec![], ended, forgotten, turn: 0, hop: vec![with; bytes] }
}

/// Pieces of two copies never mix, where they come in and where they go out.
#[test]
fn pieces_of_two_copies_do_not_mix() {
    let mut base = Base::new(Config::base(), 2u32);
    let mut piece = |number, offset, with: u8| {
        let message = Message::Ahead { number, total: 200, offset, bytes: &[with; 100] };
        base.handle_datagram(Time::ZERO, 1, &said(5, message));
        numbers(&outgoing(&mut base, Time::ZERO))
    };
    assert_eq!([piece(2, 0, 7), piece(3, 0, 8), piece(2, 100, 7)], [const { vec![] }; 3]);
    assert_eq!(piece(3, 100, 8), [3]);
    assert_eq!(base.ahead.copy_from(SessionId(5), 1), Some(delta::name(&[8; 200])));

    let mut base = Base::new(Config::base(), 1u32);
    for attempt in 1..=2 {
        base.handle_datagram(Time::ZERO, 100, &expect(5, attempt, 2));
        assert_eq!(base.poll_event(), Some(BaseEvent::Copy(SessionId(5))));
        base.copied(Time::ZERO, SessionId(5), Some(state(5, 300, attempt as u8)));
    }
    assert_eq!(numbers(&outgoing(&mut base, Time::ZERO)), [2]);
}

/// Only a copy that the old base itself has sent, and that is no remainder of another, is named.
#[test]
fn a_copy_of_somebody_else_is_not_built_on() {
    let state = state(5, 3000, 7).encode();
    let mut remainder = delta::remainder(&[], &state);
    remainder.truncate(1000);
    for (from, bytes, named) in [(77, &state, false), (1, &remainder, false), (1, &state, true)] {
        let mut base = Base::new(Config::base(), 2u32);
        let message = Message::Ahead { number: 1, total: 3100, offset: 0, bytes: &bytes[..1000] };
        base.handle_datagram(Time::ZERO, from, &said(5, message));
        outgoing(&mut base, Time::ZERO);
        let greet = Message::Greet { holder: 1u32.to_name(), since: 0, grants: vec![] };
        base.handle_datagram(Time::ZERO, 100, &said(5, greet));
        let asked = outgoing(&mut base, Time::ZERO);
        let copy =
            asked.iter().find_map(|(_, bytes)| match Datagram::decode(bytes).ok()?.message {
                Message::Handover { copy, .. } => Some(copy),
                _ => None,
            });
        let expected = named.then(|| delta::name(&state[..1000]));
        assert_eq!(copy, Some(expected), "from {from}");
    }
}

/// MOB-39: for as long as the handoff is awaited there is a copy.
#[test]
fn a_long_warning_keeps_the_copy() {
    let (mut world, _) = loaded(2000, 2000);
    world.imminent(2, Duration::from_secs(20));
    for _ in 0..120 {
        pass(&mut world, 100 * MS);
        let copies = [0, 1].map(|at| world.stations[at].machine.copies());
        assert_eq!(copies, [1, 1], "at {:?}", world.now);
    }
}

/// A base sends copies of what is used there, and to others.
#[test]
fn only_what_is_used_here_is_copied_and_to_others() {
    let (mut world, _) = loaded(2000, 2000);
    world.upcall(2);
    pass(&mut world, 100 * MS);
    for (at, candidate) in [(0, 3), (1, 2)] {
        let now = world.now;
        let machine = &mut world.stations[at].machine;
        machine.handle_datagram(now, MOBILE, &expect(ID.0, 1, candidate));
        assert_eq!((machine.poll_event(), machine.copies()), (None, 0));
        assert_eq!(outgoing(machine, now), []);
    }
}

/// A copy that the world makes once the session is frozen would be of nothing.
#[test]
fn a_copy_that_is_made_too_late_stays() {
    let (now, id) = (Time::ZERO, SessionId(5));
    let mut base = Base::new(Config::base(), 1u32);
    base.handle_datagram(now, 100, &expect(5, 0, 2));
    let (limit, piece, window) = (1 << 20, 1000, 32);
    let handover = Message::Handover { limit, piece, window, since: 0, copy: None, warrant: None };
    base.handle_datagram(now, 2, &said(5, handover));
    base.frozen(now, id, Some(state(5, 300, 1)));
    outgoing(&mut base, now);
    base.copied(now, id, Some(state(5, 300, 2)));
    assert_eq!(outgoing(&mut base, now), []);
}

/// MOB-39, MOB-40: a mobile that goes back finds a copy where it was.
#[test]
fn a_copy_goes_back_to_where_the_session_was() {
    let (mut world, id) = loaded(20_000, 20_000);
    world.upcall(2);
    pass(&mut world, 100 * MS);
    world.imminent(1, LEAD);
    pass(&mut world, 100 * MS);
    assert_eq!(world.stations[0].machine.copies(), 1);
    world.upcall(1);
    pass(&mut world, 100 * MS);
    assert_eq!(world.resumed, 2);
    assert!(sent(&world, 2, 1, false) < 2000, "{}", sent(&world, 2, 1, false));
    finish(&mut world, id);
}

/// A large copy is made less often.
#[test]
fn a_large_copy_waits_longer_for_the_next() {
    for (bytes, wait) in [(1000, 50), (600 * 1024, 150)] {
        let (now, id) = (Time::ZERO, SessionId(5));
        let mut base = Base::new(Config::base(), 1u32);
        base.handle_datagram(now, 100, &expect(5, 0, 2));
        base.copied(now, id, Some(state(5, bytes, 1)));
        base.handle_datagram(now, 2, &said(5, Message::Have { number: 1 }));
        assert_eq!(base.next_timeout(), Some(now + wait * MS));
    }
}

/// The table of pieces counts too.
#[test]
fn tiny_pieces_take_no_more_memory_than_there_is() {
    let config = Config { memory_max: Bytes::new(4000), ..Config::base() };
    let mut base = Base::new(config, 2u32);
    for session in 0..3 {
        let message = Message::Ahead { number: 1, total: 1000, offset: 0, bytes: &[7] };
        base.handle_datagram(Time::ZERO, 1, &said(session, message));
    }
    assert_eq!(base.copies(), 1);
}

/// MOB-40: what waits for the mobile to reopen its connections is copied like all else.
#[test]
fn what_is_not_reopened_yet_is_copied_too() {
    let (mut world, id) = loaded(20_000, 20_000);
    for base in [2, 3] {
        world.imminent(base, LEAD);
        pass(&mut world, 100 * MS);
        world.upcall(base);
        pass(&mut world, 100 * MS);
    }
    assert_eq!(world.resumed, 2);
    assert!(sent(&world, 2, 3, false) < 2000, "{}", sent(&world, 2, 3, false));
    finish(&mut world, id);
}

/// The base is called when a copy is due, or over.
#[test]
fn copies_have_timers() {
    let (now, id) = (Time::ZERO, SessionId(5));
    let mut base = Base::new(Config::base(), 1u32);
    base.handle_datagram(now, 100, &expect(5, 0, 2));
    assert_eq!(base.next_timeout(), Some(now + Config::base().ahead));
    base.copied(now, id, Some(state(5, 300, 1)));
    assert_eq!(base.next_timeout(), Some(now + Config::base().retry));
}

/// The mobile says where it will be until it is there, and once every so often for as long as that
/// is to come.
#[test]
fn a_warning_is_repeated_in_time_and_ends_with_the_handoff() {
    let mut mobile = Mobile::new(Config::mobile(), ID, 1u32);
    let mut out = vec![];
    let at = |ms: u32| Time::ZERO + ms * MS;
    mobile.handle_imminent(at(0), 2, Duration::from_secs(20));
    assert_eq!(mobile.poll_transmit(at(0), &mut out), Some(1));
    let expected = Message::Expected { candidate: 2u32.to_name(), refused: None };
    mobile.handle_datagram(at(0), 1, &said(ID.0, expected));
    assert_eq!(mobile.poll_transmit(at(2400), &mut out), None);
    assert_eq!(mobile.poll_transmit(at(2500), &mut out), Some(1), "before the base gives it up");
    mobile.handle_upcall(at(3000), 2);
    mobile.handle_imminent(at(3000), 3, Duration::from_secs(20));
    let kind = |out: &[u8]| matches!(Datagram::decode(out).unwrap().message, Message::Greet { .. });
    for ms in (3000..10_000).step_by(50) {
        while mobile.poll_transmit(at(ms), &mut out).is_some() {
            assert!(kind(&out), "at {ms} ms");
        }
    }
}
