//! The association: identifiers, restarts, silence, pings, what is known from below.

use super::*;

/// MOB-16, MOB-18: identifiers are one for each direction, and are not used again while a packet of
/// their connection may be about.
#[test]
fn identifiers_rest_before_they_name_another_connection() {
    let mut world = Pair::new();
    let mut seen = alloc::collections::BTreeSet::new();
    for _ in 0..300 {
        let id = world.connection();
        let cid = world.mobile.cid_of(id).unwrap();
        assert!(seen.insert(cid), "identifier {cid} is used again");
        world.mobile.finish(id);
        world.base.finish(id);
        world.settle();
        let told = events(&mut world.mobile);
        assert!(told.contains(&StreamEvent::Closed(id)), "{told:?}");
        events(&mut world.base);
    }
    assert_eq!(world.mobile.entries.len(), 300);
    // They come around, past those that are in use, and past zero.
    world.pass(Duration::from_secs(70));
    let id = world.connection();
    let taken = world.mobile.cid_of(id).unwrap();
    for _ in 0..66_000 {
        let id = world.mobile.open().unwrap();
        let cid = world.mobile.cid_of(id).unwrap();
        assert!(cid != 0 && cid != taken);
        world.mobile.reset(id, 0);
        world.now += Duration::from_millis(20);
        world.mobile.handle_timeout(world.now);
        events(&mut world.mobile);
    }
    world.mobile.write(id, b"still").unwrap();
    world.settle();
    assert_eq!(read(&mut world.base, id), b"still");
}

/// Streams are named by 16 bits of half their number, and keep their names beyond.
#[test]
fn stream_numbers_go_on_beyond_sixteen_bits() {
    let mut world = Pair::new();
    for turn in 1..4 {
        world.mobile.next_stream = 2 * ((turn << 16) - 2);
        world.base.highest = (turn << 16) - 3;
        for _ in 0..4 {
            world.connection();
        }
    }
}

/// A data packet of a connection that an end does not know is answered, so that the peer learns that
/// its connection is gone.
#[test]
fn a_connection_that_one_end_forgot_ends_at_the_other() {
    let mut world = Pair::new();
    let id = world.connection();
    let cid = world.base.cid_of(id).unwrap();
    world.base.remove(cid);
    world.mobile.write(id, b"anybody?").unwrap();
    world.settle();
    assert_eq!(world.mobile.poll_event(), Some(StreamEvent::Readable(id)));
    assert_eq!(world.mobile.recv_state(id), RecvState::Reset(LOST));
    assert_eq!(world.base.own_stats().unknown, 1);
}

/// The peer had everything and removed it; only its acknowledgement of our end was lost, for longer than
/// identifiers rest.
#[test]
fn an_end_whose_acknowledgement_was_lost_is_still_an_end() {
    let mut world = Pair::new();
    let id = world.connection();
    world.base.finish(id);
    world.settle();
    world.mobile.finish(id);
    let fin = poll_all(&mut world.mobile, world.now);
    assert_eq!(fin.len(), 1);
    world.base.handle(world.now, &fin[0]).unwrap();
    assert!(events(&mut world.base).contains(&StreamEvent::Closed(id)));
    let cid = world.base.resting[0].1;
    world.base.remove(cid);
    world.pass(Duration::from_secs(3));
    let told = events(&mut world.mobile);
    assert!(told.contains(&StreamEvent::Closed(id)), "{told:?}");
    assert_eq!(world.mobile.recv_state(id), RecvState::Finished);
}

/// The base has everything, and none of its acknowledgements arrives for much longer than identifiers
/// rest: what the mobile repeats keeps the base from forgetting.
#[test]
fn an_end_that_has_everything_acknowledges_as_long_as_it_is_asked() {
    let mut world = Pair::new();
    let id = world.connection();
    world.base.finish(id);
    world.settle();
    world.mobile.write(id, b"the last bytes").unwrap();
    world.mobile.finish(id);
    let sent = poll_all(&mut world.mobile, world.now);
    sent.iter().for_each(|p| world.base.handle(world.now, p).unwrap());
    assert_eq!(read(&mut world.base, id), b"the last bytes");
    assert!(events(&mut world.base).contains(&StreamEvent::Closed(id)));
    world.pass_without_answers(Duration::from_secs(300));
    world.pass(Duration::from_secs(3));
    assert_eq!(world.mobile.recv_state(id), RecvState::Finished);
    assert!(events(&mut world.mobile).ends_with(&[StreamEvent::Closed(id)]));
    // Nobody asks any more.
    world.pass(Duration::from_secs(200));
    assert_eq!((world.mobile.entries.len(), world.base.entries.len()), (0, 0));
}

/// No reset arrives for much longer than identifiers rest: whoever goes on sending hears the
/// application's code all the same.
#[test]
fn a_reset_has_its_code_as_long_as_the_peer_sends() {
    let mut world = Pair::new();
    let id = world.connection();
    world.mobile.write(id, b"anybody?").unwrap();
    world.base.reset(id, 7);
    world.pass_without_answers(Duration::from_secs(300));
    world.pass(Duration::from_secs(3));
    assert_eq!(world.mobile.recv_state(id), RecvState::Reset(7));
    events(&mut world.mobile);
    world.pass(Duration::from_secs(200));
    assert_eq!((world.mobile.entries.len(), world.base.entries.len()), (0, 0));
}

/// A round trip of many seconds: the reset is repeated as often as on any hop, however long that takes.
#[test]
fn a_reset_is_repeated_for_longer_than_an_identifier_rests() {
    let mut world = Pair::new();
    world.base.seed_round_trip(world.now, Duration::from_secs(10));
    let id = world.connection();
    world.base.reset(id, 7);
    let mut said = 0;
    loop {
        said += poll_all(&mut world.base, world.now).len();
        let Some(at) = world.base.next_timeout() else { break };
        world.now = at;
        world.base.handle_timeout(at);
    }
    assert_eq!((said, world.base.entries.len()), (16, 0));
}

/// After a restart streams are reset, numbers go on, and nothing of before disturbs.
#[test]
fn a_restart_ends_all_streams_and_numbers_go_on() {
    let mut world = Pair::new();
    let first = world.connection();
    let second = world.connection();
    assert_eq!(world.mobile.first_stream(), first.0);
    world.mobile.write(second, b"lost").unwrap();
    let late = poll_all(&mut world.mobile, world.now);
    for end in [&mut world.mobile, &mut world.base] {
        end.restart(world.now);
        for id in [first, second] {
            assert_eq!(end.poll_event(), Some(StreamEvent::Readable(id)));
            assert_eq!(end.recv_state(id), RecvState::Reset(LOST));
            assert_eq!(end.poll_event(), Some(StreamEvent::Closed(id)));
            assert_eq!(end.recv_state(id), RecvState::Finished);
        }
        assert_eq!((end.poll_event(), end.entries.len()), (None, 0));
        assert_eq!(end.handle(world.now, &late[0]), Err(Error::NotEstablished));
    }
    assert_eq!(world.mobile.first_stream(), second.0 + 2);
    let limits = Limits {
        first_stream: world.mobile.first_stream(),
        ..MobileTcp::limits(&Config::default())
    };
    // Streams may be opened and written to before the association stands.
    let third = world.mobile.open().unwrap();
    assert_eq!(third, StreamId(second.0 + 2));
    world.mobile.write(third, &open_to(v4(1, 1), Opening::Faithful)).unwrap();
    assert_eq!(poll(&mut world.mobile, world.now), None);
    world.base.establish(world.now, &limits);
    world.mobile.establish(world.now, &limits);
    world.settle();
    assert_eq!(world.base.poll_event(), Some(StreamEvent::Incoming(third)));
}

/// What failed before a restart, and what is not reported to the session yet, leave nothing behind.
#[test]
fn a_restart_removes_what_failed_before() {
    let mut world = Pair::new();
    let id = world.connection();
    world.base.reset(id, 7);
    world.settle();
    assert_eq!(world.mobile.recv_state(id), RecvState::Reset(7));
    world.mobile.restart(world.now);
    assert_eq!(events(&mut world.mobile), [StreamEvent::Readable(id), StreamEvent::Closed(id)]);
    assert_eq!(world.mobile.entries.len(), 0);
}

/// Streams survive a second handshake of the same association.
#[test]
fn streams_go_on_when_the_association_is_established_anew() {
    let mut world = Pair::new();
    let id = world.connection();
    world.mobile.write(id, b"one").unwrap();
    poll_all(&mut world.mobile, world.now);
    world.mobile.establish(world.now, &MobileTcp::limits(&Config::default()));
    world.settle();
    assert_eq!(read(&mut world.base, id), b"one");
}

/// What is outstanding when nobody answers is a silence; one that lasts ends the association.
#[test]
fn a_silence_that_lasts_is_the_end() {
    let config = Config { silence_limit: Duration::from_secs(30), ..Config::default() };
    let mut world = Pair::with(&config);
    let id = world.connection();
    world.pass(Duration::from_secs(1));
    assert_eq!((world.mobile.silent_for(world.now), world.mobile.next_timeout()), (None, None));
    world.mobile.write(id, b"?").unwrap();
    let mut ended = None;
    while ended.is_none() {
        poll_all(&mut world.mobile, world.now);
        world.now = world.now.max(world.mobile.next_timeout().unwrap());
        world.mobile.handle_timeout(world.now);
        ended = world.mobile.closed();
        assert!(world.now < Time::from_secs(60));
    }
    assert_eq!(ended, Some(CloseReason::Silence));
    assert!(world.now >= Time::from_secs(30));
    assert_eq!(world.mobile.next_timeout(), None);
}

/// Where nothing is outstanding any more, there is no silence.
#[test]
fn a_silence_ends_with_what_was_asked() {
    let mut world = Pair::new();
    let id = world.connection();
    world.mobile.write(id, b"?").unwrap();
    wait_for_word(&mut world.mobile, &mut world.now);
    wait_for_word(&mut world.mobile, &mut world.now);
    assert!(world.mobile.silent_for(world.now).is_some());
    world.mobile.detach(id).unwrap();
    world.pass(Duration::from_secs(1));
    assert_eq!(world.mobile.silent_for(world.now), None);
}

/// A ping is repeated until anything comes.
#[test]
fn a_ping_is_repeated_until_it_is_answered() {
    let mut world = Pair::new();
    world.mobile.ping();
    for _ in 0..3 {
        let asked = wait_for_word(&mut world.mobile, &mut world.now);
        assert_eq!((asked.len(), data(&asked[0]).cid), (1, Cid::NONE));
    }
    assert!(world.mobile.silent_for(world.now).is_some());
    world.settle();
    world.pass(Duration::from_secs(1));
    assert_eq!((world.mobile.silent_for(world.now), world.mobile.next_timeout()), (None, None));
}

#[test]
fn an_idle_end_is_probed_if_configured() {
    let config = Config { keepalive: Some(Duration::from_secs(15)), ..Config::default() };
    let mut world = Pair::with(&config);
    world.pass(Duration::from_secs(100));
    let sent = world.mobile.own_stats().sent + world.base.own_stats().sent;
    assert!((12..30).contains(&sent), "{sent}");
}

/// When the link is down nothing is sent and nothing expires; when it is up, what was unanswered is
/// tried at once.
#[test]
fn link_events_stop_and_start_the_timers() {
    let mut world = Pair::new();
    let id = world.connection();
    world.mobile.write(id, b"into the dark").unwrap();
    poll_all(&mut world.mobile, world.now);
    world.mobile.handle_link_event(world.now, PathId::FIRST, LinkEvent::Down);
    world.mobile.write(id, b", and more").unwrap();
    assert_eq!(poll(&mut world.mobile, world.now), None);
    assert_eq!(world.mobile.next_timeout(), Some(world.now + Duration::from_secs(1)));
    world.now += Duration::from_millis(999);
    world.mobile.handle_timeout(world.now);
    assert_eq!((poll(&mut world.mobile, world.now), world.mobile.own_stats().expiries), (None, 0));
    world.mobile.handle_link_event(world.now, PathId::FIRST, LinkEvent::Up);
    world.settle();
    assert_eq!(read(&mut world.base, id), b"into the dark, and more");
}

/// LNK-14: the news that the link is up may never come: after a second it is tried all the same, and as
/// often from then on as without any news.
#[test]
fn a_link_that_is_down_is_tried_without_a_link_up_event() {
    let mut world = Pair::new();
    let id = world.connection();
    world.mobile.write(id, b"into the dark").unwrap();
    poll_all(&mut world.mobile, world.now);
    world.mobile.handle_link_event(world.now, PathId::FIRST, LinkEvent::Down);
    let (begun, mut tries) = (world.now, 0);
    while world.now < begun + Duration::from_secs(10) {
        world.now = world.mobile.next_timeout().unwrap();
        world.mobile.handle_timeout(world.now);
        tries += usize::from(poll(&mut world.mobile, world.now).is_some());
    }
    assert!((7..15).contains(&tries), "{tries}");
    world.mobile.probe(world.now);
    world.settle();
    assert_eq!(read(&mut world.base, id), b"into the dark");
}

/// A move, and a word of the association's, try everything at once.
#[test]
fn a_move_tries_what_is_unanswered_at_once() {
    let mut world = Pair::new();
    let id = world.connection();
    for moved in [true, false] {
        world.mobile.write(id, b"x").unwrap();
        poll_all(&mut world.mobile, world.now);
        match moved {
            true => world.mobile.handle_moved(world.now, PathId::FIRST),
            false => world.mobile.probe(world.now),
        }
        world.settle();
        assert_eq!(read(&mut world.base, id), b"x");
    }
    world.mobile.probe(world.now);
    assert!(data(&poll(&mut world.mobile, world.now).unwrap()).code.contains(Code::PSH));
}

/// Close is sent three times, and closes the other end too.
#[test]
fn a_shutdown_is_sent_to_the_peer() {
    let mut world = Pair::new();
    world.connection();
    world.mobile.close(CloseReason::Shutdown);
    assert_eq!(world.mobile.open(), Err(StreamError::TooMany));
    let words = poll_all(&mut world.mobile, world.now);
    assert_eq!((words.len(), world.mobile.closed()), (3, Some(CloseReason::Shutdown)));
    world.base.handle(world.now, &words[2]).unwrap();
    assert_eq!(world.base.closed(), Some(CloseReason::Shutdown));
    assert_eq!(poll(&mut world.base, world.now), None);
}

/// MOB-37: what either end still owes leaves with the stream; an end that stays says nothing.
#[test]
fn a_stream_leaves_with_all_that_either_end_still_owes() {
    let mut world = Pair::new();
    let id = world.connection();
    let (asked, answered) = (open_to(v4(1, 80), Opening::Faithful).len(), opened(v4(9, 999)).len());
    let bytes: Vec<u8> = (0..8000_u32).map(|n| n as u8).collect();
    world.mobile.write(id, &bytes).unwrap();
    world.mobile.finish(id);
    let sent = poll_all(&mut world.mobile, world.now);
    // The third is lost, and nothing is acknowledged.
    for (n, packet) in sent.iter().enumerate().filter(|(n, _)| *n != 2) {
        world.base.handle(world.now, packet).unwrap();
        assert!(n < 6);
    }
    world.base.consume(id, 100);
    assert_eq!(world.mobile.snapshot(id).unwrap().send, bytes);
    let left = world.mobile.detach(id).unwrap();
    assert_eq!((left.send_start, &left.send, left.send_ended), (asked as u64, &bytes, true));
    assert_eq!((left.received, left.unread.len()), (answered as u64, 0));
    let stayed = world.base.detach(id).unwrap();
    assert_eq!((stayed.received, stayed.recv_ended), (asked as u64 + 2920, false));
    assert_eq!(stayed.unread, bytes[100..2920]);
    assert_eq!((stayed.send_start, stayed.send.len()), (answered as u64, 0));
    assert_eq!((world.mobile.detach(id), world.base.snapshot(id)), (None, None));
    events(&mut world.base);
    // A late packet is dropped without a word, so that nothing is reset.
    poll_all(&mut world.base, world.now);
    world.base.handle(world.now, &sent[2]).unwrap();
    assert_eq!((poll(&mut world.base, world.now), events(&mut world.base)), (None, vec![]));
}

/// An opening that was not answered leaves with its message.
#[test]
fn an_unanswered_opening_leaves_whole() {
    let mut world = Pair::new();
    let id = world.mobile.open().unwrap();
    let asked = open_to(v4(1, 80), Opening::Faithful);
    world.mobile.write(id, &asked).unwrap();
    world.settle();
    let left = world.mobile.detach(id).unwrap();
    assert_eq!((left.send_start, left.send, left.received), (0, asked.clone(), 0));
    let there = world.base.detach(id).unwrap();
    assert_eq!((there.received, there.unread), (asked.len() as u64, asked));
}
