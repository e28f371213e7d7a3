//! Fairness, caps, and what a peer can make an end hold.

use super::*;

fn bulk(world: &mut Pair, ids: &[StreamId], each: usize) {
    for id in ids {
        let n = world.mobile.write(*id, &vec![id.0 as u8; each]).unwrap();
        assert_eq!(n, each);
    }
}

/// Connections send in turn, a packet each.
#[test]
fn connections_share_the_hop_packet_by_packet() {
    let mut world = Pair::new();
    let ids: Vec<_> = (0..4).map(|_| world.connection()).collect();
    bulk(&mut world, &ids, 5 * 1460);
    let sent = poll_all(&mut world.mobile, world.now);
    assert_eq!(sent.len(), 20);
    for turn in sent.chunks(4) {
        let cids: alloc::collections::BTreeSet<_> = turn.iter().map(|p| data(p).cid).collect();
        assert_eq!(cids.len(), 4, "each in every turn");
    }
}

/// A cap on all connections together keeps the rest back until something has arrived, and lets one
/// packet go whatever it is.
#[test]
fn the_cap_on_all_connections_holds() {
    for cap in [1000, 4000, 10_000] {
        let config = Config { inflight: Some(Bytes::new(cap)), ..Config::default() };
        let mut world = Pair::with(&config);
        let ids: Vec<_> = (0..4).map(|_| world.connection()).collect();
        bulk(&mut world, &ids, 14_600);
        let mut sent = 0;
        for _ in 0..400 {
            world.up.extend(poll_all(&mut world.mobile, world.now));
            assert!(world.mobile.inflight <= cap.max(1460), "{} at once", world.mobile.inflight);
            sent += world.up.len();
            world.up.drain(..).for_each(|p| world.base.handle(world.now, &p).unwrap());
            for id in &ids {
                read(&mut world.base, *id);
            }
            world.base.handle_timeout(world.now);
            let back = poll_all(&mut world.base, world.now);
            back.iter().for_each(|p| world.mobile.handle(world.now, p).unwrap());
            world.now += Duration::from_millis(200);
        }
        assert_eq!((sent, world.mobile.inflight), (40, 0), "cap {cap}");
    }
}

/// Connections that the cap has stopped go on in turn, and none is looked at in vain whenever
/// something arrives.
#[test]
fn capped_connections_go_on_in_turn() {
    let config = Config { inflight: Some(Bytes::new(3 * 1460)), ack_every: 1, ..Config::default() };
    let mut world = Pair::with(&config);
    let ids: Vec<_> = (0..20).map(|_| world.connection()).collect();
    bulk(&mut world, &ids, 14_600);
    let mut order = Vec::new();
    world.up.extend(poll_all(&mut world.mobile, world.now));
    while let Some(packet) = world.up.pop_front() {
        order.push(data(&packet).cid);
        world.base.handle(world.now, &packet).unwrap();
        poll_all(&mut world.base, world.now).iter().for_each(|p| {
            world.mobile.handle(world.now, p).unwrap();
        });
        assert!(world.mobile.ready.len() <= 3, "they wait where they are");
        world.up.extend(poll_all(&mut world.mobile, world.now));
    }
    assert_eq!(order.len(), 200);
    for turn in order.chunks(20) {
        let cids: alloc::collections::BTreeSet<_> = turn.iter().collect();
        assert_eq!(cids.len(), 20, "each in every turn");
    }
}

/// A buffer that is too short for what is to be sent gets nothing, and nothing spins.
#[test]
fn a_buffer_that_is_too_short_gets_nothing() {
    for inflight in [None, Some(Bytes::new(5000))] {
        let mut world = Pair::with(&Config { inflight, ..Config::default() });
        let id = world.connection();
        bulk(&mut world, &[id], 3000);
        assert_eq!(poll_all(&mut world.mobile, world.now).len(), 3);
        world.mobile.handle_moved(world.now, PathId::FIRST);
        for short in [0, 15, 16] {
            let mut out = [0; 16];
            for _ in 0..3 {
                assert_eq!(world.mobile.poll(world.now, &mut out[..short]), None);
            }
        }
        world.settle();
        assert_eq!(read(&mut world.base, id), vec![id.0 as u8; 3000]);
    }
}

/// Stream numbers never overflow, whatever a peer says of its own.
#[test]
fn the_highest_stream_of_all_overflows_nothing() {
    let mut base = MobileTcp::new(Config::default(), Role::Base, Time::ZERO);
    let limits = MobileTcp::limits(&Config::default());
    base.establish(Time::ZERO, &Limits { first_stream: u64::MAX, ..limits });
    for low in [0, 1, 0x7fff, 0x8000, 0xffff] {
        let syn = Control {
            code: Code::SYN,
            ack: Seq16(low),
            reverse: Cid(low.max(1)),
            ..Control::default()
        };
        let mut out = [0; 28];
        syn.emit(&mut out).unwrap();
        base.handle(Time::ZERO, &out).unwrap();
        assert!(matches!(events(&mut base)[..], [StreamEvent::Incoming(_), _]));
    }
}

/// More connections than allowed are refused with the session's code, whoever opens them.
#[test]
fn connections_are_bounded_both_ways() {
    let config = Config { connections_max: 10, half_open_max: 4, ..Config::default() };
    let mut world = Pair::with(&config);
    let mut ids = Vec::new();
    for _ in 0..10 {
        let id = world.mobile.open().unwrap();
        world.mobile.write(id, &open_to(v4(1, 80), Opening::Faithful)).unwrap();
        ids.push(id);
    }
    assert_eq!(world.mobile.open(), Err(StreamError::TooMany));
    world.settle();
    let incoming = events(&mut world.base);
    let incoming = incoming.iter().filter(|e| matches!(e, StreamEvent::Incoming(_))).count();
    assert_eq!((incoming, world.base.own_stats().turned_away), (4, 6));
    let code = ResetReason::Refused(Refusal::TooMany).code();
    assert_eq!(world.mobile.recv_state(ids[9]), RecvState::Reset(code));
}

/// A flood of openings holds no more than is allowed, and answers no more than a few at a time.
#[test]
fn a_flood_of_openings_is_bounded() {
    let config = Config { half_open_max: 8, ..Config::default() };
    let mut base = end(&config, Role::Base);
    let mut out = [0; 64];
    for n in 0..10_000_u16 {
        let syn = Control {
            code: Code::SYN,
            ack: Seq16(n),
            reverse: Cid(n + 1),
            max_buffer: 1000,
            max_packet: 1000,
            ..Control::default()
        };
        let len = syn.emit(&mut out).unwrap();
        base.handle(Time::ZERO, &out[..len]).unwrap();
    }
    assert_eq!((base.entries.len(), base.half_open), (8, 8));
    assert!(base.replies.len() <= 64);
    let stats = base.own_stats();
    assert_eq!(stats.turned_away, 10_000 - 8);
    assert!(stats.unanswered > 9000);
    assert!(base.stats().memory < Bytes::from_mib(2));
    // They are given up like any others.
    for event in events(&mut base) {
        if let StreamEvent::Incoming(id) = event {
            base.reset(id, 1);
        }
    }
    assert_eq!(base.half_open, 0);
}

/// Opening and resetting as fast as one can leaves nothing behind but what rests.
#[test]
fn connections_that_come_and_go_leave_nothing_behind() {
    let mut world = Pair::new();
    for n in 0..2000_u64 {
        let id = world.mobile.open().unwrap();
        world.mobile.write(id, &open_to(v4(1, 80), Opening::Faithful)).unwrap();
        world.pass(Duration::from_millis(50));
        if n % 3 == 0 {
            world.base.reset(id, n);
        }
        world.mobile.reset(id, n);
        events(&mut world.mobile);
        for event in events(&mut world.base) {
            let StreamEvent::Incoming(id) = event else { continue };
            world.base.reset(id, 1);
        }
        assert!(world.mobile.entries.len() < 1300 && world.base.entries.len() < 1300);
    }
    world.pass(Duration::from_secs(70));
    for end in [&world.mobile, &world.base] {
        assert_eq!((end.entries.len(), end.streams.len(), end.by_peer.len()), (0, 0, 0));
        assert_eq!((end.half_open, end.inflight, end.resting.len()), (0, 0, 0));
        assert_eq!((end.stats().memory, end.next_timeout()), (Bytes::ZERO, None));
    }
}

/// A peer that reads nothing costs its buffer and no more, and one that never opens its window is
/// asked for ever.
#[test]
fn a_peer_that_does_not_read_costs_a_buffer() {
    let mut world = Pair::new();
    let id = world.connection();
    let mut written = 0;
    for _ in 0..2000 {
        written += world.mobile.write(id, &[1; 5000]).unwrap();
        world.pass(Duration::from_millis(200));
    }
    let config = Config::default();
    // The window is advertised in steps of a packet.
    let most = config.window.get() + config.send_buffer.get();
    assert!((most - 1460..=most).contains(&(written as u64)), "{written}");
    assert_eq!(world.mobile.stats().memory, config.window + config.send_buffer);
    assert!(world.mobile.own_stats().probes > 300);
    assert_eq!(world.mobile.recv_state(id), RecvState::Open);
    // It reads at last.
    let mut got = 0;
    while got < written {
        got += read(&mut world.base, id).len();
        world.pass(Duration::from_secs(1));
    }
    assert!(events(&mut world.mobile).contains(&StreamEvent::Writable(id)));
}

/// SEC-13: all mobiles' connections take what the base's bound has and no more; one too many is refused,
/// and a mobile that comes last has connections all the same.
#[test]
fn buffers_of_all_mobiles_are_bounded_together() {
    use crate::memory::Memory;
    let bound = Bytes::from_mib(16);
    let memory = Memory::bounded(bound, 16);
    let base = Config { memory: memory.clone(), ..Config::default() };
    let mut pairs: Vec<Pair> = (0..16).map(|_| Pair::between(&Config::default(), &base)).collect();
    for pair in &mut pairs {
        let mut open = 0;
        for _ in 0..300 {
            let id = pair.mobile.open().unwrap();
            pair.mobile.write(id, &open_to(v4(1, 80), Opening::Faithful)).unwrap();
            pair.pass(Duration::from_millis(10));
        }
        pair.pass(Duration::from_secs(1));
        for event in events(&mut pair.base) {
            open += usize::from(matches!(event, StreamEvent::Incoming(_)));
        }
        assert!((3..300).contains(&open), "{open}");
        assert!(pair.base.own_stats().turned_away > 0);
    }
    let held: u64 = pairs.iter().map(|pair| pair.base.stats().memory.get()).sum();
    assert_eq!(held, memory.needed().get());
    assert!(held <= bound.get(), "{held}");
    for pair in &mut pairs {
        pair.base.restart(Time::from_secs(60));
    }
    assert_eq!(memory.needed(), Bytes::ZERO);
}
