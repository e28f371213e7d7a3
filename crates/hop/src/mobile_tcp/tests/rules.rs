//! The small print of connections beside each other.

use lasthop_wire::mobile_tcp::Code;

use super::*;

fn give(end: &mut MobileTcp, now: Time, control: Control) {
    let mut out = [0; 28];
    control.emit(&mut out).unwrap();
    end.handle(now, &out).unwrap();
}

fn opening(reverse: u16, half: u16) -> Control {
    Control {
        code: Code::SYN,
        seq: Seq16(reverse),
        ack: Seq16(half),
        reverse: Cid(reverse),
        max_buffer: 9000,
        max_packet: 1000,
        ..Control::default()
    }
}

/// MOB-20: the buffer that a SYN advertises leaves room for what the answer may bring.
#[test]
fn a_syn_promises_no_more_than_there_is_room_for() {
    let mut world = Pair::new();
    let id = world.mobile.open().unwrap();
    let asked = open_to(v4(1, 80), Opening::Faithful);
    world.mobile.write(id, &asked).unwrap();
    let syn = poll(&mut world.mobile, world.now).unwrap();
    assert_eq!(control(&syn).max_buffer, 16_384 - 32);
    world.base.handle(world.now, &syn).unwrap();
    poll_all(&mut world.base, world.now);
    world.base.write(id, &opened(v4(9, 1))).unwrap();
    let answer = poll(&mut world.base, world.now).unwrap();
    assert_eq!(usize::from(control(&answer).max_buffer), 16_384 - asked.len());
}

/// A stream that the receiver has already is not opened again under another identifier; another
/// stream under an identifier that was used before is.
#[test]
fn a_stream_is_opened_once_and_an_identifier_may_come_again() {
    let mut base = end(&Config::default(), Role::Base);
    give(&mut base, ms(0), opening(5, 0));
    assert!(events(&mut base).contains(&StreamEvent::Incoming(StreamId(0))));
    poll_all(&mut base, ms(0));
    for other in [opening(6, 0), Control { seq: Seq16(77), ..opening(5, 0) }] {
        give(&mut base, ms(0), other);
        assert_eq!((events(&mut base), poll(&mut base, ms(0))), (vec![], None));
    }
    // The mobile gave the first up and has its identifier for another one.
    let reset = Control { code: Code::RST, ..opening(5, 0) };
    give(&mut base, ms(0), reset);
    assert!(events(&mut base).contains(&StreamEvent::Closed(StreamId(0))));
    give(&mut base, ms(10_000), opening(5, 1));
    assert!(events(&mut base).contains(&StreamEvent::Incoming(StreamId(2))));
    // The first one's identifier has rested; the second one is still known by the mobile's.
    base.handle_timeout(ms(61_000));
    assert_eq!(base.entries.len(), 1);
    give(&mut base, ms(61_000), Control { code: Code::RST, ..opening(5, 1) });
    assert!(matches!(base.recv_state(StreamId(2)), RecvState::Reset(_)));
}

/// The peer's first stream says what the low bits of a SYN mean.
#[test]
fn the_low_bits_of_a_stream_are_read_near_the_first() {
    for (first, low, stream) in [(400_000, 3392, 400_000), (140_000, 60_000, 120_000)] {
        let mut base = MobileTcp::new(Config::default(), Role::Base, Time::ZERO);
        let limits = MobileTcp::limits(&Config::default());
        base.establish(Time::ZERO, &Limits { first_stream: first, ..limits });
        give(&mut base, ms(0), opening(5, low));
        assert!(events(&mut base).contains(&StreamEvent::Incoming(StreamId(stream))), "{first}");
    }
}

/// MOB-7: only the answer to the present SYN slows its repetition down.
#[test]
fn the_answer_that_the_opening_arrived_has_its_number() {
    let mut world = Pair::new();
    let id = world.mobile.open().unwrap();
    world.mobile.write(id, &open_to(v4(1, 80), Opening::Faithful)).unwrap();
    let syn = control(&poll(&mut world.mobile, world.now).unwrap());
    let heard = |ack| {
        let code = Code::PENDING.with(Code::ACK);
        Control { code, cid: syn.reverse, reverse: Cid(1), ack, ..Control::default() }
    };
    give(&mut world.mobile, world.now, heard(syn.seq));
    world.mobile.handle_timeout(ms(1000));
    assert!(poll(&mut world.mobile, ms(1000)).is_some());
    give(&mut world.mobile, ms(1000), heard(syn.seq + 1));
    for tick in 0..24 {
        world.mobile.handle_timeout(ms(1200 + 200 * tick));
        assert_eq!(poll(&mut world.mobile, ms(1200 + 200 * tick)), None);
    }
    world.mobile.handle_timeout(ms(6000));
    assert!(poll(&mut world.mobile, ms(6000)).is_some());
}

/// MOB-5: an answer that comes again is acknowledged again, and one to an opening that was given up
/// is reset again.
#[test]
fn a_repeated_answer_is_answered() {
    for gives_up in [false, true] {
        let mut world = Pair::new();
        let id = world.mobile.open().unwrap();
        world.mobile.write(id, &open_to(v4(1, 80), Opening::Faithful)).unwrap();
        let syn = poll(&mut world.mobile, world.now).unwrap();
        world.base.handle(world.now, &syn).unwrap();
        poll_all(&mut world.base, world.now);
        world.base.write(id, &opened(v4(9, 1))).unwrap();
        let answer = poll(&mut world.base, world.now).unwrap();
        if gives_up {
            world.mobile.reset(id, 1);
        } else {
            world.mobile.handle(world.now, &answer).unwrap();
        }
        assert_eq!(poll_all(&mut world.mobile, world.now).len(), 1);
        world.mobile.handle(world.now, &answer).unwrap();
        let again = poll_all(&mut world.mobile, world.now);
        assert_eq!(again.len(), 1);
        world.base.handle(world.now, &again[0]).unwrap();
        assert_eq!(world.base.half_open, 0, "it has heard");
    }
}

/// An opening that nobody answers is given up, as a connection is.
#[test]
fn an_opening_that_is_never_answered_is_given_up() {
    let mut world = Pair::with(&Config { give_up_after: 3, ..Config::default() });
    let id = world.mobile.open().unwrap();
    world.mobile.write(id, &open_to(v4(1, 80), Opening::Faithful)).unwrap();
    let mut said = poll_all(&mut world.mobile, world.now).len();
    while world.mobile.recv_state(id) == RecvState::Open {
        world.now = world.mobile.next_timeout().unwrap();
        world.mobile.handle_timeout(world.now);
        said += poll_all(&mut world.mobile, world.now).len();
    }
    let timed_out = RecvState::Reset(ResetReason::TimedOut.code());
    assert_eq!((said, world.mobile.recv_state(id)), (3, timed_out));
}

/// A reset for a connection that is not known is not answered; anything else is, with the number
/// behind it.
#[test]
fn a_reset_of_nothing_is_not_answered() {
    let mut world = Pair::new();
    let mut out = [0; 16];
    for (code, answers) in [(Code::RST, 0), (Code::RST.with(Code::ACK), 0), (Code::FIN, 1)] {
        let header = DataHeader { code, cid: Cid(77), seq: Seq16(500), ..DataHeader::default() };
        header.emit(0, &mut out).unwrap();
        world.base.handle(world.now, &out).unwrap();
        let said = poll_all(&mut world.base, world.now);
        assert_eq!(said.len(), answers);
        assert!(said.iter().all(|p| data(p).ack == Seq16(501)));
    }
}

/// The number of a reset may lie a whole largest window and an end ahead.
#[test]
fn a_reset_behind_the_largest_window_is_believed() {
    let config = Config { window: Bytes::new(32_767), ..Config::default() };
    let mut world = Pair::with(&config);
    let id = world.connection();
    // A packet was read, the opening with it: the whole window is told.
    let rest = 1460 - open_to(v4(1, 80), Opening::Faithful).len();
    world.mobile.write(id, &vec![0; rest]).unwrap();
    world.settle();
    read(&mut world.base, id);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.mobile.write(id, &[0; 32_767]), Ok(32_767));
    world.mobile.finish(id);
    poll_all(&mut world.mobile, world.now);
    assert_eq!(world.mobile.inflight, 32_768);
    world.mobile.reset(id, 7);
    world.settle();
    assert_eq!(world.base.recv_state(id), RecvState::Reset(7));
}

/// What is reset is not on its way any more: others may use the cap.
#[test]
fn a_reset_connection_leaves_the_cap_to_the_others() {
    let config = Config { inflight: Some(Bytes::new(2920)), ..Config::default() };
    let mut world = Pair::with(&config);
    let ids = [world.connection(), world.connection()];
    world.mobile.write(ids[0], &[0; 2920]).unwrap();
    assert_eq!(poll_all(&mut world.mobile, world.now).len(), 2);
    world.mobile.write(ids[1], &[1; 2920]).unwrap();
    assert_eq!(poll(&mut world.mobile, world.now), None);
    world.mobile.reset(ids[0], 1);
    assert_eq!(poll_all(&mut world.mobile, world.now).len(), 3);
    assert_eq!(world.mobile.inflight, 2920);
}

/// MOB-22: with a cap a connection sends as many packets in its turn as are acknowledged at once, so
/// that many connections do not share the cap in single packets, each waiting for the tick.
#[test]
fn a_cap_is_used_in_pairs_of_packets() {
    let config = Config { inflight: Some(Bytes::new(5 * 1460)), ..Config::default() };
    let mut world = Pair::with(&config);
    let ids: Vec<_> = (0..6).map(|_| world.connection()).collect();
    for id in &ids {
        assert_eq!(world.mobile.write(*id, &[1; 8760]), Ok(8760));
    }
    let mut packets = 0;
    loop {
        let sent = poll_all(&mut world.mobile, world.now);
        if sent.is_empty() {
            break;
        }
        packets += sent.len();
        sent.iter().for_each(|p| world.base.handle(world.now, p).unwrap());
        for packet in poll_all(&mut world.base, world.now) {
            world.mobile.handle(world.now, &packet).unwrap();
        }
    }
    assert_eq!((packets, world.mobile.inflight), (36, 0), "no tick was needed");
}

/// Identifiers that rest are bounded; of more the earliest are removed.
#[test]
fn what_rests_is_bounded() {
    let mut mobile = end(&Config::default(), Role::Mobile);
    for _ in 0..6000 {
        let id = mobile.open().unwrap();
        mobile.write(id, b"no message").unwrap();
        assert!(poll(&mut mobile, ms(0)).is_some());
        mobile.reset(id, 1);
        events(&mut mobile);
        poll_all(&mut mobile, ms(0));
    }
    assert!(mobile.entries.len() <= 4096 + 1, "{}", mobile.entries.len());
}

/// A reset that is not reported to the session yet is kept for it, however long that takes.
#[test]
fn what_was_not_reported_to_the_session_is_kept() {
    let mut world = Pair::new();
    let id = world.connection();
    world.base.reset(id, 7);
    world.settle();
    world.pass(Duration::from_secs(200));
    assert_eq!(world.mobile.recv_state(id), RecvState::Reset(7));
    assert_eq!(events(&mut world.mobile), [StreamEvent::Readable(id), StreamEvent::Closed(id)]);
    world.pass(Duration::from_secs(200));
    assert_eq!((world.mobile.entries.len(), world.mobile.next_timeout()), (0, None));
}

/// An association that begins anew does not begin with the identifiers of the last.
#[test]
fn identifiers_go_on_over_a_restart() {
    let mut world = Pair::new();
    let id = world.connection();
    let cid = world.mobile.cid_of(id).unwrap();
    world.mobile.restart(world.now);
    events(&mut world.mobile);
    let id = world.mobile.open().unwrap();
    assert_eq!(world.mobile.cid_of(id), Some(cid + 1));
}

/// A round trip that one connection has measured is known to the next.
#[test]
fn connections_share_what_they_measure() {
    let mut world = Pair::new();
    let id = world.connection();
    world.mobile.write(id, &[1; 2920]).unwrap();
    let sent = poll_all(&mut world.mobile, world.now);
    world.now += Duration::from_millis(80);
    sent.iter().for_each(|p| world.base.handle(world.now, p).unwrap());
    world.settle();
    let measured = world.mobile.stats().srtt;
    assert!(measured > Duration::ZERO, "{measured:?}");
    let next = world.mobile.open().unwrap();
    let entry = world.mobile.entry_of(next).unwrap();
    assert_eq!(entry.connection.srtt(), Some(measured));
}
