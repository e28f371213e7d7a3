//! What one base or mobile may fill of what is there for all.

use lasthop_wire::mhp::handoff::Pieces;

use super::*;
use crate::handoff::share;

fn said(session: u64, message: Message<'_>) -> Vec<u8> {
    let mut out = vec![];
    Datagram { session: SessionId(session), attempt: 1, message }.encode(&mut out);
    out
}

fn greet(holder: u32) -> Message<'static> {
    Message::Greet { holder: holder.to_name(), since: 0, grants: vec![] }
}

/// To whom something is said, and what it is.
fn told(base: &mut Base<u32>) -> Vec<(u32, Vec<u8>)> {
    let mut out = vec![];
    core::iter::from_fn(|| Some((base.poll_transmit(Time::ZERO, &mut out)?, out.clone()))).collect()
}

/// SEC-10: sessions that a base is asked for and does not give stand in the way of those of another base.
#[test]
fn a_base_that_does_not_answer_has_a_share_of_the_places() {
    let mut base: Base<u32> = Base::new(Config::base(), 1);
    for mobile in 100..2000 {
        base.handle_datagram(Time::ZERO, mobile, &said(u64::from(mobile), greet(3)));
    }
    told(&mut base);
    assert_eq!(base.pending(), Config::base().pending_max / 2);
    for mobile in 3000..3050 {
        base.handle_datagram(Time::ZERO, mobile, &said(u64::from(mobile), greet(2)));
        let asked = told(&mut base);
        assert_eq!(asked.len(), 1);
        assert_eq!(asked[0].0, 2, "{:?}", Datagram::decode(&asked[0].1));
    }
}

/// SEC-10: a mobile that greets with one session after the other has two on their way.
#[test]
fn a_mobile_has_few_sessions_on_their_way() {
    let mut base: Base<u32> = Base::new(Config::base(), 1);
    for session in 0..100_000 {
        base.handle_datagram(Time::ZERO, 100, &said(session, greet(3)));
        told(&mut base);
    }
    assert_eq!((base.pending(), base.sessions()), (2, 2));
}

/// SEC-10: states and copies of one base leave room for those of another, in number and in size.
#[test]
fn a_base_has_a_share_of_the_memory() {
    let config = Config::base();
    let (most, total) = (config.memory_max.get(), config.state_max.get());
    let mut base: Base<u32> = Base::new(config, 1);
    let bytes = &[7; 1000];
    for mobile in 100..200 {
        let session = u64::from(mobile);
        base.handle_datagram(Time::ZERO, mobile, &said(session, greet(3)));
        let state = Message::State { generation: 1, total, offset: 0, bytes };
        base.handle_datagram(Time::ZERO, 3, &said(session, state));
    }
    for session in 1000..100_000 {
        let (number, total) = (1, if session % 2 == 0 { total } else { 1000 });
        let ahead = Message::Ahead { number, total, offset: 0, bytes: &bytes[..500] };
        base.handle_datagram(Time::ZERO, 3, &said(session, ahead));
    }
    told(&mut base);
    let left = base.free_memory(2);
    assert!(left >= most / 4, "{left}");
    assert!(base.free_memory(4) == left && share(most, 0) == most / 2);
    let copies = base.copies();
    for session in 200_000..200_010 {
        let ahead = Message::Ahead { number: 1, total: 1 << 20, offset: 0, bytes };
        base.handle_datagram(Time::ZERO, 2, &said(session, ahead));
    }
    assert_eq!(base.copies(), copies + 10);
}

/// SEC-10: who has much to be told waits, and nobody else does.
#[test]
fn answers_to_one_are_not_lost_for_those_to_another() {
    let mut base: Base<u32> = Base::new(Config::base(), 1);
    let commit = Message::Commit { generation: 1, warrant: None };
    for session in 0..100_000 {
        base.handle_datagram(Time::ZERO, 3, &said(session, commit.clone()));
    }
    base.handle_datagram(Time::ZERO, 2, &said(7, commit));
    let told = told(&mut base);
    assert_eq!(told.iter().filter(|(to, _)| *to == 2).count(), 1);
    assert!(told.len() <= 2000, "{}", told.len());
}

/// SEC-10: a few bytes that ask for pieces do not have a state sent over and over.
#[test]
fn what_one_request_gets_is_bounded() {
    let mut base: Base<u32> = Base::new(Config::base(), 1);
    let (piece, window) = (1, u16::MAX);
    let copy = None;
    let handover =
        Message::Handover { limit: 1 << 24, piece, window, since: 0, copy, warrant: None };
    base.handle_datagram(Time::ZERO, 2, &said(7, handover));
    assert!(matches!(base.poll_event(), Some(BaseEvent::Freeze { .. })));
    base.frozen(Time::ZERO, SessionId(7), Some(copies::state(7, 100_000, 1)));
    assert!((1..=256).contains(&told(&mut base).len()));
    let pieces = vec![Pieces { first: 0, count: u16::MAX }; 16];
    base.handle_datagram(Time::ZERO, 2, &said(7, Message::Pull { piece, pieces }));
    assert!((1..=256).contains(&told(&mut base).len()));
}
