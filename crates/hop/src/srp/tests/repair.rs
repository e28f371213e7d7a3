//! What is lost comes again, soon and once.

use lasthop_units::LinkEvent;

use super::*;

/// Loses the transmissions with these numbers, downwards.
fn lose(w: &mut Pairs, numbers: &'static [u64]) {
    w.pipes[1].loses = Some(Box::new(move |_, n| numbers.contains(&n)));
}

/// SRP-3, SRP-4: the acknowledgement names all that is missing, and one round trip repairs it.
#[test]
fn several_losses_are_repaired_in_one_round_trip() {
    let mut w = Pairs::new(1);
    let mut bulk = Bulk::start(&mut w, 1, 200_000);
    lose(&mut w, &[20, 22, 23, 29, 31, 32, 33]);
    bulk.run(&mut w, Time::from_secs(5));
    let lossy = w.now;
    let stats = w.ends[0][1].stats();
    assert_eq!((bulk.read, stats.lost, stats.probes), (200_000, 7, 0));

    let mut clean = Pairs::new(1);
    let mut bulk = Bulk::start(&mut clean, 1, 200_000);
    bulk.run(&mut clean, Time::from_secs(5));
    let extra = lossy - clean.now;
    assert!(extra < Duration::from_millis(50), "{extra:?}");
}

/// SRP-7: however often a hole is reported, what was in it is sent once more and no oftener.
#[test]
fn a_hole_is_repaired_once_however_often_it_is_reported() {
    let mut w = Pairs::new(1);
    lose(&mut w, &[100, 101, 150]);
    let mut bulk = Bulk::start(&mut w, 1, 2_000_000);
    bulk.run(&mut w, Time::from_secs(5));
    let stats = w.ends[0][1].stats();
    assert_eq!(bulk.read, 2_000_000);
    assert!(stats.bytes_retransmitted.get() <= 3 * 1472, "{}", stats.bytes_retransmitted);
    assert_eq!(stats.spurious, 0);
}

/// A retransmission has a number of its own: its loss is a gap like any other.
#[test]
fn a_lost_retransmission_needs_no_timeout() {
    let mut w = Pairs::new(1);
    let mut bulk = Bulk::start(&mut w, 1, FOREVER);
    bulk.run(&mut w, Time::from_secs(2));
    // Whatever is sent first after a loss is the retransmission; five in a row are lost.
    let mut left = 5;
    let mut next = Time::from_secs(2);
    w.pipes[1].loses = Some(Box::new(move |now, _| {
        let hit = left > 0 && now >= next;
        if hit {
            left -= 1;
            next = now + Duration::from_millis(43);
        }
        hit
    }));
    let before = w.ends[0][1].stats();
    bulk.run(&mut w, Time::from_secs(3));
    let after = w.ends[0][1].stats();
    assert_eq!((after.lost - before.lost, after.probes - before.probes), (5, 0));
    assert!(bulk.goodput(Time::from_secs(2), w.now) > 0.9 * 19.3e6);
}

/// SRP-9: the last datagram has no successor whose arrival would show the gap. The queue that stood when
/// the last transfer ended has gone, whatever it was.
#[test]
fn a_lost_tail_is_probed_after_little_more_than_a_round_trip() {
    for size in (4_600_000..=5_400_000).step_by(100_000) {
        let took = lost_tail(size);
        assert!(took < Duration::from_millis(90), "after {size} bytes: {took:?}");
    }
}

/// How long a lost datagram takes a second after a transfer of so many bytes.
fn lost_tail(size: u64) -> Duration {
    let mut w = Pairs::new(1);
    let mut warm = Bulk::start(&mut w, 1, size);
    warm.run(&mut w, Time::from_secs(5));
    let quiet = w.now + Duration::from_secs(1);
    while w.step(quiet) {}
    let start = w.now;
    let mut first = true;
    w.pipes[1].loses = Some(Box::new(move |_, _| core::mem::take(&mut first)));
    let mut tail = Bulk::start(&mut w, 1, 500);
    let until = w.now + Duration::from_secs(2);
    tail.run(&mut w, until);
    tail.first_byte - start
}

/// SRP-9: loss on one hop is not congestion, so waiting longer and longer would help nobody.
#[test]
fn a_silence_is_probed_at_a_steady_interval_and_ends_with_the_first_probe() {
    for loss in [0.0, 0.05] {
        for length in [1_000, 2_800, 5_000, 60_000] {
            for seed in 0..10 {
                let mut w = Pairs::new(seed);
                w.pipes.iter_mut().for_each(|p| p.loss = loss);
                let (from, to) = (Time::from_secs(4), Time::from_millis(4_000 + length));
                w.silences.push((from, to));
                let mut bulk = Bulk::start(&mut w, 1, FOREVER);
                let later = to + Duration::from_secs(1);
                let end = later + Duration::from_secs(3);
                bulk.run(&mut w, end);
                let first = bulk.progress.iter().find(|p| p.0 > to).map(|p| p.0 - to);
                let full = bulk.goodput(later, end) / 19.3e6 / (1.0 - loss);
                let what =
                    alloc::format!("{length} ms, loss {loss}, seed {seed}: {first:?} {full}");
                // A probe or its answer may be lost; one more interval each is what it costs.
                assert!(first.is_some_and(|t| t < Duration::from_millis(130)), "{what}");
                assert!(full > 0.95, "{what}");
            }
        }
    }
}

/// SRP-13: what is missing is sent as soon as the link is known to be there.
#[test]
fn a_link_up_event_resumes_at_once() {
    let mut w = Pairs::new(1);
    w.silences.push((Time::from_secs(3), Time::from_secs(203)));
    let mut bulk = Bulk::start(&mut w, 1, FOREVER);
    bulk.run(&mut w, Time::from_secs(203));
    // By now the silence is probed four times a second.
    let now = w.now;
    w.ends[0][1].handle_link_event(now, PathId::FIRST, LinkEvent::Up);
    bulk.run(&mut w, now + Duration::from_secs(1));
    let first = bulk.progress.iter().find(|p| p.0 > now).map(|p| p.0 - now);
    assert!(first.is_some_and(|t| t < Duration::from_millis(70)), "{first:?}");
}

/// SRP-13: what was never sent does not wait for an answer either, if there is nothing to repeat.
#[test]
fn a_probe_with_nothing_to_repeat_carries_what_waits() {
    let mut w = Pairs::new(1);
    Bulk::start(&mut w, 1, 100_000).run(&mut w, Time::from_secs(2));
    while w.step(Time::from_secs(2)) {}
    w.silences.push((w.now, Time::from_secs(5)));
    // Only this is outstanding while nothing comes through.
    let now = w.now;
    w.ends[0][1].probe(now);
    while w.step(Time::from_secs(5)) {}
    assert!(w.ends[0][1].stats().silent);
    let mut little = Bulk::start(&mut w, 1, 500);
    little.pump(&mut w);
    let now = w.now;
    w.ends[0][1].handle_link_event(now, PathId::FIRST, LinkEvent::Up);
    little.run(&mut w, now + Duration::from_secs(1));
    let one_way = w.pipes[1].delay + Duration::from_millis(1);
    assert!(little.first_byte - now <= one_way, "{:?}", little.first_byte - now);
}

#[test]
fn a_link_reported_down_is_still_probed() {
    let mut w = Pairs::new(1);
    w.ends[0][1].handle_link_event(Time::ZERO, PathId::FIRST, LinkEvent::Down);
    let mut bulk = Bulk::start(&mut w, 1, 100_000);
    bulk.run(&mut w, Time::from_secs(5));
    assert_eq!(bulk.read, 100_000);
}

/// Some links do reorder: the first late arrivals teach how long to wait.
#[test]
fn reordering_is_learnt_and_then_tolerated() {
    let mut w = Pairs::new(1);
    w.pipes[1].late = Some((40, Duration::from_millis(6)));
    let mut bulk = Bulk::start(&mut w, 1, FOREVER);
    bulk.run(&mut w, Time::from_secs(4));
    let early = w.ends[0][1].stats();
    bulk.run(&mut w, Time::from_secs(10));
    let stats = w.ends[0][1].stats();
    assert!(early.spurious > 0 && stats.reordering >= Duration::from_millis(6), "{stats:?}");
    let repeated = stats.bytes_retransmitted.get() - early.bytes_retransmitted.get();
    let sent = stats.bytes_sent.get() - early.bytes_sent.get();
    assert!(repeated * 1000 < sent, "{repeated} of {sent}");
    assert!(bulk.goodput(Time::from_secs(4), w.now) > 0.95 * 19.3e6);
}

/// SRP-5 is departed from: bytes that first left in pieces as large as the path took arrive in others,
/// since nothing as large passes any more.
#[test]
fn what_was_lost_is_sent_again_in_other_pieces() {
    let mut w = Pairs::new(5);
    let mut bulk = Bulk::start(&mut w, 1, 4_000_000);
    bulk.run(&mut w, Time::from_secs(1));
    assert_eq!(w.pipes[1].largest, 1500);
    // What is on its way is lost too.
    let large = w.pipes[1].flying.iter().filter(|f| f.3.len() + OVERHEAD > 1300).count();
    assert!(large > 10, "{large} large datagrams are on their way");
    w.pipes[1].flying.retain(|f| f.3.len() + OVERHEAD <= 1300);
    w.pipes.iter_mut().for_each(|p| p.mtu = 1300);
    let before = bulk.read;
    bulk.run(&mut w, Time::from_secs(30));
    assert!(before < bulk.size);
    assert_eq!(bulk.read, bulk.size);
}

/// SRP-12: headers count against the MTU.
#[test]
fn a_path_whose_mtu_shrinks_does_not_wedge_a_connection() {
    for loss in [0.0, 0.2] {
        let mut w = Pairs::new(5);
        w.pipes.iter_mut().for_each(|p| p.loss = loss);
        let mut bulk = Bulk::start(&mut w, 1, FOREVER);
        bulk.run(&mut w, Time::from_secs(4));
        assert_eq!(w.pipes[1].largest, 1500, "the whole MTU is found and not exceeded");
        w.pipes.iter_mut().for_each(|p| p.mtu = 1300);
        bulk.run(&mut w, Time::from_secs(14));
        let late = bulk.goodput(Time::from_secs(10), w.now) / 19.3e6 / (1.0 - loss);
        assert!(late > 0.9, "loss {loss}: {late}");
        let mtu = w.ends[0][1].stats().mtu.get() + 28;
        assert!((1280..=1300).contains(&mtu), "loss {loss}: {mtu}");
    }
}

/// Both ends lose their full datagrams at once: acknowledgements must not ride on those.
#[test]
fn a_path_that_shrinks_both_ways_at_once_does_not_wedge_either_end() {
    let mut w = Pairs::new(5);
    let mut down = Bulk::start(&mut w, 1, FOREVER);
    let mut up = Bulk::start(&mut w, 0, FOREVER);
    let shrink = Time::from_secs(4);
    while w.now < Time::from_secs(16) {
        down.pump(&mut w);
        up.pump(&mut w);
        w.step(if w.now < shrink { shrink } else { Time::from_secs(16) });
        if w.now == shrink {
            w.pipes.iter_mut().for_each(|p| p.mtu = 1300);
        }
    }
    for bulk in [&down, &up] {
        let late = bulk.goodput(Time::from_secs(12), w.now) / 19.3e6;
        assert!(late > 0.8, "{late}");
    }
}

/// A 100 kB answer to a request on a new stream of a used association, with a server 25 ms behind
/// the base that starts slowly, as TCP does. Returns the seconds that it took.
fn small(loss: f64, seed: u64, early: bool) -> f64 {
    let ms = Duration::from_millis;
    let mut w = Pairs::new(seed);
    w.pipes.iter_mut().for_each(|p| p.loss = loss);
    let mut warm = Bulk::start(&mut w, 1, 400_000);
    warm.run(&mut w, Time::from_secs(20));
    let idle = w.now + ms(700);
    while w.step(idle) {}

    let start = w.now;
    let [mobile, _] = &mut w.ends[0];
    let id = mobile.open().unwrap();
    let opening = if early { 200 } else { 20 };
    mobile.write(id, &vec![1; opening]).unwrap();
    let flights =
        |t: Time| VecDeque::from([(t, 14_480), (t + ms(50), 28_960), (t + ms(100), 56_560)]);
    let mut server: VecDeque<(Time, usize)> = VecDeque::new();
    let (mut at_base, mut at_mobile) = (0, 0);
    let (mut opened, mut asked, mut answered) = (false, early, false);
    while at_mobile < 100_000 {
        let until = server.front().map_or(w.now + Duration::from_secs(5), |f| f.0);
        assert!(w.step(until) || !server.is_empty(), "nothing happens any more");
        let now = w.now;
        let [mobile, base] = &mut w.ends[0];
        while base.poll_event().is_some() {}
        let n = base.received(id).len();
        base.consume(id, n);
        at_base += n;
        if !opened && at_base >= opening {
            opened = true;
            answered = early;
            server = if early { flights(now + ms(100)) } else { [(now + ms(50), 20)].into() };
        }
        if !answered && at_base >= opening + 180 {
            answered = true;
            server = flights(now + ms(50));
        }
        while server.front().is_some_and(|f| f.0 <= now)
            && let Some((_, n)) = server.pop_front()
        {
            base.write(id, &vec![2; n]).unwrap();
        }
        while mobile.poll_event().is_some() {}
        let n = mobile.received(id).len();
        mobile.consume(id, n);
        at_mobile += n;
        if !asked && at_mobile >= 20 {
            asked = true;
            mobile.write(id, &[1; 180]).unwrap();
        }
    }
    w.now.since(start).as_secs_f64()
}

#[test]
fn a_small_answer_comes_soon_in_spite_of_loss() {
    for (early, medians) in [(false, [0.32, 0.38, 0.48]), (true, [0.28, 0.34, 0.42])] {
        for (loss, limit) in [0.0, 0.1, 0.2].into_iter().zip(medians) {
            let mut took: Vec<f64> = (0..50).map(|seed| small(loss, seed, early)).collect();
            took.sort_by(f64::total_cmp);
            let (median, worst) = (took[25], took[49]);
            assert!(median < limit && worst < 0.8, "{early} {loss}: {median} {worst}");
        }
    }
}

/// One ping and its acknowledgement show both ends of an idle association that the other is there; a base that hears
/// none asks itself.
#[test]
fn an_idle_association_is_kept_alive_by_its_mobile() {
    let mut w = Pairs::new(1);
    let minutes = |n: u64| Time::from_secs(60 * n);
    while w.step(minutes(10)) {}
    let offered = [0, 1].map(|side| w.pipes[side].offered);
    assert!(offered.iter().all(|n| (39..=41).contains(n)), "{offered:?}");

    // Nothing comes of the mobile any more.
    w.pipes[0].loses = Some(Box::new(|_, _| true));
    while w.step(minutes(11)) {}
    assert!(w.ends[0][1].silent_for(w.now).is_some());
}
