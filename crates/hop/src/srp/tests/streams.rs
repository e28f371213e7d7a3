//! Streams: their life, their bounds, and each other.

use super::*;
use crate::streams::{RecvState, StreamError, StreamEvent};

fn run_for_3_s(w: &mut Pairs) {
    let until = w.now + Duration::from_secs(3);
    while w.step(until) {}
}

fn events(end: &mut Srp) -> Vec<StreamEvent> {
    core::iter::from_fn(|| end.poll_event()).collect()
}

fn read_all(end: &mut Srp, id: StreamId) -> Vec<u8> {
    let mut all = Vec::new();
    while !end.received(id).is_empty() {
        all.extend_from_slice(end.received(id));
        let n = end.received(id).len();
        end.consume(id, n);
    }
    all
}

/// SRP-11: the open is the first datagram, ends go both ways, and then nothing is left.
#[test]
fn a_stream_opens_ends_both_ways_and_is_removed() {
    let mut w = Pairs::new(1);
    let id = w.ends[0][0].open().unwrap();
    w.ends[0][0].write(id, b"question").unwrap();
    w.ends[0][0].finish(id);
    run_for_3_s(&mut w);
    let base = &mut w.ends[0][1];
    assert_eq!(events(base), [StreamEvent::Incoming(id), StreamEvent::Readable(id)]);
    assert_eq!(read_all(base, id), b"question");
    assert_eq!(base.recv_state(id), RecvState::Finished);
    base.write(id, b"answer").unwrap();
    base.finish(id);
    assert_eq!(base.write(id, b"more"), Err(StreamError::Finished));
    run_for_3_s(&mut w);
    let mobile = &mut w.ends[0][0];
    assert_eq!(read_all(mobile, id), b"answer");
    let seen = events(mobile);
    assert!(seen.contains(&StreamEvent::Finished(id)), "{seen:?}");
    assert_eq!(seen.last(), Some(&StreamEvent::Closed(id)));
    run_for_3_s(&mut w);
    assert_eq!(events(&mut w.ends[0][1]).last(), Some(&StreamEvent::Closed(id)));
    for end in &w.ends[0] {
        let (buffered, received, consumed) = end.streams.accounts();
        assert_eq!((end.stats().streams, end.stats().memory.get(), buffered), (0, 0, 0));
        assert_eq!(received, consumed);
    }
}

#[test]
fn a_reset_reaches_the_peer_with_its_code_even_unread_and_under_loss() {
    for seed in 0..50 {
        let mut w = Pairs::new(seed);
        w.pipes.iter_mut().for_each(|p| p.loss = 0.3);
        let id = w.ends[0][0].open().unwrap();
        w.ends[0][0].write(id, &[7; 100_000]).unwrap();
        let soon = w.now + Duration::from_millis(seed * 3);
        while w.step(soon) {}
        w.ends[0][0].reset(id, 42);
        run_for_3_s(&mut w);
        let base = &mut w.ends[0][1];
        if base.streams.inspect().contains_key(&id.0) {
            assert_eq!(base.recv_state(id), RecvState::Reset(42), "seed {seed}");
        }
        let seen = events(base);
        assert_eq!(seen.last(), Some(&StreamEvent::Closed(id)), "seed {seed}: {seen:?}");
        assert_eq!(events(&mut w.ends[0][0]).last(), Some(&StreamEvent::Closed(id)));
        for end in &w.ends[0] {
            let (buffered, received, consumed) = end.streams.accounts();
            assert_eq!((end.stats().streams, buffered), (0, 0), "seed {seed}");
            assert_eq!(received, consumed, "seed {seed}");
        }
    }
}

/// SRP-2: the receiver's credit bounds what is sent, whatever the hop could carry.
#[test]
fn an_application_that_does_not_read_stops_only_its_own_stream() {
    let mut w = Pairs::new(1);
    let stalled = w.ends[0][1].open().unwrap();
    let mut bulk = Bulk::start(&mut w, 1, 3_000_000);
    let window = HopConfig::default().stream_window.get();
    let mut pushed = 0;
    for s in 1..=20 {
        pushed += w.ends[0][1].write(stalled, &vec![0; 100_000]).unwrap();
        bulk.run(&mut w, Time::from_millis(200 * s));
    }
    bulk.run(&mut w, Time::from_secs(10));
    assert_eq!(bulk.read, 3_000_000);
    let kept = w.ends[0][0].streams.inspect()[&stalled.0].waiting;
    assert_eq!(kept, window, "the receiver keeps what it granted and no more");
    assert!(pushed as u64 <= window + 1_000_000, "{pushed}");
    assert_eq!(read_all(&mut w.ends[0][0], stalled).len() as u64, window);
}

#[test]
fn many_streams_share_datagrams_and_take_turns() {
    let mut w = Pairs::new(1);
    let ids: Vec<_> = (0..200).map(|_| w.ends[0][0].open().unwrap()).collect();
    for id in &ids {
        w.ends[0][0].write(*id, b"a few bytes").unwrap();
    }
    run_for_3_s(&mut w);
    assert!(w.ends[0][0].stats().datagrams_sent < 40);
    let base = &mut w.ends[0][1];
    assert!(ids.iter().all(|id| read_all(base, *id) == b"a few bytes"));

    let mut w = Pairs::new(1);
    let mut bulks: Vec<_> = (0..8).map(|_| Bulk::start(&mut w, 1, FOREVER)).collect();
    while w.now < Time::from_secs(4) {
        bulks.iter_mut().for_each(|b| b.pump(&mut w));
        w.step(Time::from_secs(4));
    }
    let (most, least) =
        (bulks.iter().map(|b| b.read).max().unwrap(), bulks.iter().map(|b| b.read).min().unwrap());
    assert!(least * 10 > most * 8, "{least} {most}");
}

#[test]
fn both_directions_at_once_do_not_disturb_each_other() {
    let mut w = Pairs::new(1);
    w.pipes.iter_mut().for_each(|p| p.loss = 0.05);
    let mut down = Bulk::start(&mut w, 1, FOREVER);
    let mut up = Bulk::start(&mut w, 0, FOREVER);
    while w.now < Time::from_secs(12) {
        down.pump(&mut w);
        up.pump(&mut w);
        w.step(Time::from_secs(12));
    }
    for bulk in [&down, &up] {
        let share = bulk.goodput(Time::from_secs(4), w.now) / 19.3e6 / 0.95;
        assert!(share > 0.9, "{share}");
    }
}

#[test]
fn a_peer_that_breaks_the_protocol_ends_the_association() {
    use lasthop_wire::frame::{Frame, StreamFrame, Writer};
    let bad: [Frame<'_>; 4] = [
        Frame::Stream(StreamFrame { id: 1, offset: 0, fin: false, data: b"ours" }),
        Frame::Stream(StreamFrame { id: 0, offset: 1 << 40, fin: false, data: b"beyond" }),
        Frame::Stream(StreamFrame { id: 1 << 40, offset: 0, fin: false, data: b"far" }),
        Frame::Reset { id: 0, code: 0, size: 1 << 40 },
    ];
    for frame in bad {
        let mut w = Pairs::new(1);
        let mut buf = [0; 200];
        let mut writer = Writer::new(&mut buf);
        assert!(writer.put(&frame));
        let len = writer.len();
        let base = &mut w.ends[0][1];
        base.handle(Time::ZERO, PathId::FIRST, 1, &buf[..len]).unwrap();
        let mut out = [0; 2000];
        while base.poll(Time::ZERO, &mut out).is_some() {}
        assert_eq!(base.closed(), Some(CloseReason::Protocol), "{frame:?}");
    }
}

#[test]
fn frames_of_garbage_never_panic_and_never_hold_memory() {
    let mut numbers = Seed::from_u64(1).stream("garbage");
    let mut w = Pairs::new(1);
    for n in 1..20_000 {
        let mut frames = vec![0; numbers.below(60) as usize];
        numbers.fill(&mut frames);
        if let Some(first) = frames.first_mut() {
            *first %= 0x14;
        }
        let base = &mut w.ends[0][1];
        let _ = base.handle(Time::from_micros(n), PathId::FIRST, n, &frames);
        let mut out = [0; 2000];
        while base.poll(Time::from_micros(n), &mut out).is_some() {}
        assert!(base.stats().memory.get() < 1 << 22);
        if base.closed().is_some() {
            w = Pairs::new(n);
        }
    }
}

/// A connection on which nothing moves holds no buffers, though somebody has looked whether there is something to send,
/// and bytes have passed both ways.
#[test]
fn an_idle_stream_holds_no_buffers() {
    let mut w = Pairs::new(1);
    let id = w.ends[0][0].open().unwrap();
    w.ends[0][0].write(id, b"question").unwrap();
    run_for_3_s(&mut w);
    let base = &mut w.ends[0][1];
    assert_eq!(read_all(base, id), b"question");
    base.write(id, b"answer").unwrap();
    run_for_3_s(&mut w);
    assert_eq!(read_all(&mut w.ends[0][0], id), b"answer");
    for end in &mut w.ends[0] {
        assert!(!end.send_space(id).unwrap().is_empty());
        end.commit(id, 0);
        assert_eq!(end.stats().memory, Bytes::ZERO);
    }
}

/// Streams whose reader stops once it has taken so much of each, and whose sender goes on; then how fast one
/// is that is read.
fn goodput_beside_unread(config: HopConfig, streams: usize, taken: u64) -> f64 {
    let mut w = Pairs::with(1, config);
    w.pipes.iter_mut().for_each(|pipe| pipe.rate = Rate::from_mbps(200));
    for _ in 0..streams {
        let mut bulk = Bulk::start(&mut w, 1, FOREVER);
        let until = w.now + Duration::from_secs(2);
        loop {
            if bulk.read < taken {
                bulk.pump(&mut w);
            }
            let sender = &mut w.ends[0][1];
            while let Ok(room) = sender.send_space(bulk.id)
                && !room.is_empty()
            {
                let n = room.len();
                fill(room, bulk.written);
                sender.commit(bulk.id, n);
                bulk.written += n as u64;
            }
            if !w.step(until) {
                break;
            }
            w.ends[0].iter_mut().for_each(|end| drop(events(end)));
        }
    }
    let begun = w.now;
    let mut read = Bulk::start(&mut w, 1, FOREVER);
    read.run(&mut w, begun + Duration::from_secs(4));
    read.goodput(begun + Duration::from_secs(1), w.now)
}

/// SRP-11: streams that nobody reads hold up no other, be they many, or few whose windows had grown.
#[test]
fn streams_that_nobody_reads_leave_room_for_one_that_is_read() {
    let many = goodput_beside_unread(HopConfig::default(), 30, 0);
    let small = HopConfig {
        stream_window: Bytes::from_kib(32),
        stream_memory: Bytes::from_mib(4),
        association_memory: Bytes::from_mib(16),
        ..HopConfig::default()
    };
    let grown = goodput_beside_unread(small, 6, 8 << 20);
    assert!(many > 170e6 && grown > 10e6, "{many} {grown}");
}

/// SRP-11: a stream that holds little finds room beside one that takes all it gets, and both stay below the bound.
#[test]
fn a_stream_that_holds_little_finds_room() {
    let memory = Bytes::from_kib(64);
    let config = HopConfig { association_memory: memory, ..HopConfig::default() };
    let [mut end, _] = pair(&config, &config, Time::ZERO);
    let fill = |end: &mut Srp, id: StreamId| {
        core::iter::from_fn(|| Some(end.write(id, &[7; 10_000]).unwrap()).filter(|n| *n > 0)).sum()
    };
    let ids: Vec<StreamId> = (0..8).map(|_| end.open().unwrap()).collect();
    let bulk: usize = fill(&mut end, ids[0]);
    assert_eq!(bulk as u64, (memory - config.reserve()).get());
    let others: Vec<usize> = ids[1..].iter().map(|id| fill(&mut end, *id)).collect();
    assert_eq!(others, [2048, 2048, 2048, 2048, 0, 0, 0]);
}

/// SRP-47: what the peer has is known as soon as it has said so and never sooner, and the end as one byte more.
#[test]
fn what_the_peer_has_is_reported_and_never_too_early() {
    const SIZE: usize = 1_000_000;
    for seed in 0..20 {
        let mut w = Pairs::new(seed);
        w.pipes.iter_mut().for_each(|p| p.loss = 0.2);
        let id = w.ends[0][1].open().unwrap();
        w.ends[0][1].report_acknowledged(id);
        let (mut written, mut read, mut known, mut reports) = (0, 0, 0, 0);
        let until = Time::from_secs(60);
        while known <= SIZE as u64 {
            assert!(w.now < until, "seed {seed}: {known} known of {read}");
            written += w.ends[0][1].write(id, &vec![7; SIZE - written]).unwrap_or_default();
            if written == SIZE {
                w.ends[0][1].finish(id);
            }
            w.step(until);
            read += read_all(&mut w.ends[0][0], id).len() as u64;
            let ended = u64::from(w.ends[0][0].recv_state(id) == RecvState::Finished);
            let before = known;
            known = w.ends[0][1].acknowledged(id).unwrap();
            assert!((before..=read + ended).contains(&known), "seed {seed}: {known} of {read}");
            let events = events(&mut w.ends[0][1]);
            let reported = events.iter().filter(|e| **e == StreamEvent::Acknowledged(id)).count();
            assert_eq!(reported > 0, known > before, "seed {seed}: {before} {known}");
            reports += reported;
        }
        assert!(reports > 10, "seed {seed}: {reports}");
    }
}

/// SRP-48: what the peer has but has not released is kept, whatever is lost, and the stream ends when its end is released.
#[test]
fn what_is_not_released_is_kept_and_the_stream_lasts_as_long() {
    const SIZE: usize = 300_000;
    let mut mostly_kept = 0;
    for seed in 0..20 {
        let mut w = Pairs::new(seed);
        w.pipes.iter_mut().for_each(|p| p.loss = 0.2);
        let id = w.ends[0][1].open().unwrap();
        let (mut written, mut read, mut behind) = (0, 0u64, 0u64);
        let from_first = seed % 2 == 1;
        if from_first {
            w.ends[0][1].retain(id);
        }
        // What was acknowledged before the first word of releases came is gone.
        let mut gone = None;
        let mut closed = [false; 2];
        let until = Time::from_secs(60);
        while closed != [true; 2] {
            assert!(w.now < until, "seed {seed}: {written} written, {read} read, {closed:?}");
            written += w.ends[0][1].write(id, &vec![7; SIZE - written]).unwrap_or_default();
            if written == SIZE {
                w.ends[0][1].finish(id);
            }
            w.step(w.now + Duration::from_millis(20));
            for (end, closed) in w.ends[0].iter_mut().zip(&mut closed) {
                *closed |= events(end).contains(&StreamEvent::Closed(id));
            }
            assert!(behind == 0 || closed == [false; 2], "seed {seed}: over too early");
            let peer = &mut w.ends[0][0];
            let before = read;
            read += read_all(peer, id).len() as u64;
            let ended = peer.recv_state(id) == RecvState::Finished;
            // Half of what comes goes on, and the rest of it when all has come.
            behind += (read - before) / 2;
            if ended {
                peer.finish(id);
                behind = behind.saturating_sub(5000);
            }
            if read > 0 && !closed[0] {
                assert!(peer.release(id, behind, ended), "seed {seed}");
            }
            let (mobile, released) = (&w.ends[0][1], read - behind);
            if let (Some(state), Some(acked)) = (mobile.snapshot(id), mobile.acknowledged(id)) {
                let first = state.send_start;
                if gone.is_none() && first < acked {
                    gone = Some(first);
                }
                if from_first {
                    gone = Some(0);
                }
                let most = gone.map_or(acked, |gone| released.max(gone));
                assert!(first <= most, "seed {seed}: {first} is beyond {released}");
                assert_eq!(first + state.send.len() as u64, written as u64);
            }
        }
        mostly_kept += usize::from(gone.is_some_and(|gone| gone < SIZE as u64 / 2));
    }
    assert!(mostly_kept > 14, "{mostly_kept} of 20");
}

/// SRP-48: what is kept is let go of, and over, when the peer will release nothing.
#[test]
fn what_is_released_ahead_is_not_kept() {
    let pass = |w: &mut Pairs| {
        for _ in 0..100 {
            w.step(w.now + Duration::from_millis(20));
        }
    };
    for (seed, before) in [(0, true), (1, false), (2, true), (3, false)] {
        let mut w = Pairs::new(seed);
        w.pipes.iter_mut().for_each(|p| p.loss = 0.2);
        let id = w.ends[0][1].open().unwrap();
        w.ends[0][1].retain(id);
        assert_eq!(w.ends[0][1].write(id, &[7; 5000]), Ok(5000));
        pass(&mut w);
        let peer = &mut w.ends[0][0];
        assert!(peer.release(id, u64::MAX, false));
        if before {
            peer.release_ahead(id);
        }
        read_all(peer, id);
        peer.finish(id);
        w.ends[0][1].finish(id);
        pass(&mut w);
        read_all(&mut w.ends[0][1], id);
        read_all(&mut w.ends[0][0], id);
        pass(&mut w);
        let closed = |w: &mut Pairs| {
            [0, 1].map(|end| events(&mut w.ends[0][end]).contains(&StreamEvent::Closed(id)))
        };
        if !before {
            assert_eq!(closed(&mut w), [false; 2], "seed {seed}: it is kept");
            w.ends[0][0].release_ahead(id);
            pass(&mut w);
        }
        assert_eq!(closed(&mut w), [true; 2], "seed {seed}");
    }
}
