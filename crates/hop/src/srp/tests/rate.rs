//! How fast: what a hop gives, what is asked of its queue, and who gets how much.

use alloc::collections::VecDeque;

use super::*;

/// What one download got of a hop, once settled.
struct Settled {
    /// Of the hop's rate less its loss, payload of full TCP segments.
    share: f64,
    dropped: f64,
    queue_ms: f64,
}

fn settled(rate_mbps: u64, delay_ms: u64, loss: f64, seconds: u64) -> Settled {
    settled_with(rate_mbps, delay_ms, seconds, |p| p.loss = loss)
}

/// The same where datagrams are lost in some other way.
fn settled_with(rate_mbps: u64, delay_ms: u64, seconds: u64, lose: impl Fn(&mut Pipe)) -> Settled {
    let mut w = Pairs::new(2);
    for p in &mut w.pipes {
        p.rate = Rate::from_mbps(rate_mbps);
        p.delay = Duration::from_millis(delay_ms);
        lose(p);
    }
    let mut bulk = Bulk::start(&mut w, 1, FOREVER);
    let from = Time::from_secs(seconds / 2);
    bulk.run(&mut w, from);
    let p = &mut w.pipes[1];
    (p.offered, p.dropped, p.lost, p.queued_ns) = (0, 0, 0, 0.0);
    let to = Time::from_secs(seconds);
    bulk.run(&mut w, to);
    let p = &w.pipes[1];
    // Loss as it really fell.
    let loss = p.lost as f64 / (p.offered - p.dropped) as f64;
    let limit = rate_mbps as f64 * 1e6 * (1.0 - loss) * 1448.0 / 1500.0;
    Settled {
        share: bulk.mean_goodput(from) / limit,
        dropped: p.dropped as f64 / p.offered as f64,
        queue_ms: p.queued_ns / 1e6 / (p.offered - p.dropped) as f64,
    }
}

/// Of each of these delays in ms for so many seconds.
fn random_loss_costs_only_itself(rate: u64, delays: [(u64, u64); 3]) {
    for (delay, seconds) in delays {
        for loss in [0.0, 0.05, 0.1, 0.2, 0.3] {
            let s = settled(rate, delay, loss, seconds);
            let what = alloc::format!(
                "{rate} Mbit/s, {delay} ms, loss {loss}: share {:.3}, dropped {:.4}, queue {:.1} ms",
                s.share,
                s.dropped,
                s.queue_ms
            );
            std::println!("{what}");
            assert!(s.share >= 0.96, "{what}");
            assert!(s.dropped <= 0.03, "{what}");
            assert!(s.queue_ms < delay as f64, "{what}");
        }
    }
}

#[test]
fn random_loss_costs_only_itself_on_a_slow_hop() {
    random_loss_costs_only_itself(2, [(5, 30), (20, 30), (300, 150)]);
}

#[test]
fn random_loss_costs_only_itself_on_a_usual_hop() {
    random_loss_costs_only_itself(20, [(5, 12), (20, 12), (300, 80)]);
}

#[test]
fn random_loss_costs_only_itself_on_a_fast_hop() {
    random_loss_costs_only_itself(100, [(5, 10), (20, 10), (300, 110)]);
}

/// A fade that takes many datagrams in a row is no sign that too much is sent, however few datagrams come between two of
/// them.
#[test]
fn fades_cost_only_themselves_on_every_hop() {
    let fades = |now: Time, _| {
        let ms = now.as_micros() / 1000;
        ms % 200 < [20, 5, 36, 14, 1, 41, 9][(ms / 200 % 7) as usize]
    };
    for (rate, delay) in [(5, 20), (20, 20), (80, 5), (80, 50), (200, 20)] {
        for loss in [0.0, 0.1] {
            let s = settled_with(rate, delay, 20, |p| {
                p.loss = loss;
                p.loses = Some(Box::new(fades));
            });
            let what = alloc::format!(
                "{rate} Mbit/s, {delay} ms, loss {loss}: share {:.3}, dropped {:.4}",
                s.share,
                s.dropped
            );
            std::println!("{what}");
            assert!(s.share >= 0.93 && s.dropped <= 0.03, "{what}");
        }
    }
}

/// Where a queue is too short to be seen, what it drops is not taken for the hop's own loss: neither while a
/// transfer goes on, nor from one to the next.
#[test]
fn a_hop_with_a_short_queue_is_not_flooded() {
    for (mbps, delay, queue, least) in [
        (20, 20, 10, 0.88),
        (50, 5, 10, 0.9),
        (50, 20, 10, 0.88),
        (200, 5, 10, 0.82),
        (200, 20, 25, 0.75),
        (500, 5, 50, 0.88),
    ] {
        for pauses in [false, true] {
            let mut w = Pairs::new(1);
            for p in &mut w.pipes {
                p.rate = Rate::from_mbps(mbps);
                (p.delay, p.queue) = (Duration::from_millis(delay), queue);
            }
            let size = if pauses { mbps * 125_000 } else { FOREVER };
            let end = Time::from_secs(10);
            let (mut read, mut busy) = (0, Duration::ZERO);
            while w.now < end {
                let begun = w.now;
                let mut bulk = Bulk::start(&mut w, 1, size);
                bulk.run(&mut w, end);
                (read, busy) = (read + bulk.read, busy + (w.now - begun));
                let later = w.now + Duration::from_millis(700);
                while w.step(later) {}
            }
            let share = read as f64 * 8.0 / busy.as_secs_f64() / (mbps as f64 * 1e6);
            let dropped = w.pipes[1].dropped as f64 / w.pipes[1].offered as f64;
            let what = alloc::format!(
                "{mbps} Mbit/s, {delay} ms, {queue}, {pauses}: {share:.3}, dropped {dropped:.4}"
            );
            std::println!("{what}");
            assert!(share >= least && dropped <= 0.05, "{what}");
        }
    }
}

/// Where a datagram takes longer to send than to arrive, a burst at the start fills the queue for
/// seconds; what the queue then drops does not show the rate, and a queue that drains slowly is
/// nobody else's.
#[test]
fn a_slow_hop_nearby_is_not_flooded() {
    let rate = Rate::from_kbps(128);
    for seed in 1..=4 {
        for loss in [0.0, 0.01, 0.05, 0.2] {
            let mut w = Pairs::new(seed);
            for p in &mut w.pipes {
                (p.rate, p.delay, p.queue, p.loss) = (rate, Duration::from_millis(5), 50, loss);
            }
            let mut bulk = Bulk::start(&mut w, 1, FOREVER);
            bulk.run(&mut w, Time::from_secs(120));
            let limit = rate.as_bps() as f64 * (1.0 - loss) * 1448.0 / 1500.0;
            let share = bulk.mean_goodput(Time::ZERO) / limit;
            let dropped = w.pipes[1].dropped as f64 / w.pipes[1].offered as f64;
            let what = alloc::format!("seed {seed}, loss {loss}: {share:.3}, dropped {dropped:.3}");
            std::println!("{what}");
            assert!(share > 0.85 && dropped < 0.1, "{what}");
        }
    }
}

#[test]
fn a_rate_that_falls_and_returns_is_followed_within_a_second() {
    for phase in 0..20 {
        follow(Time::from_millis(6_000 + 37 * phase));
    }
}

/// From 20 to 4 Mbit/s at that moment, and back.
fn follow(fall: Time) {
    let mut w = Pairs::new(1);
    let mut bulk = Bulk::start(&mut w, 1, FOREVER);
    let second = Duration::from_secs(1);
    bulk.run(&mut w, fall);
    w.pipes[1].rate = Rate::from_mbps(4);
    bulk.run(&mut w, fall + second);
    let queue = w.pipes[1].busy_until.since(w.now);
    assert!(queue < Duration::from_millis(41), "a queue of {queue:?} stands after a second");
    let end = fall + 8 * second;
    while w.now < end {
        let next = w.now + Duration::from_millis(100);
        bulk.run(&mut w, next);
        let queue = w.pipes[1].busy_until.since(w.now);
        assert!(queue < Duration::from_millis(41), "{queue:?} at {}", w.now);
    }
    for (from, to, least) in [(fall + second, fall + 2 * second, 0.92), (fall + second, end, 0.95)]
    {
        let slow = bulk.goodput(from, to) / (4e6 * 1448.0 / 1500.0);
        assert!(slow > least, "from {fall}, until {to}: {slow}");
    }
    w.pipes[1].rate = Rate::from_mbps(20);
    bulk.run(&mut w, end + 2 * second);
    let fast = bulk.goodput(end + second, end + 2 * second) / (20e6 * 1448.0 / 1500.0);
    assert!(fast > 0.95, "{fast}");
}

fn jain(x: &[f64]) -> f64 {
    let sum: f64 = x.iter().sum();
    sum * sum / (x.len() as f64 * x.iter().map(|x| x * x).sum::<f64>())
}

#[test]
fn two_associations_share_a_radio_evenly() {
    for (loss, late) in [(0.0, 0), (0.0, 5), (0.05, 0), (0.1, 5), (0.0, 20)] {
        let mut w = Pairs::new(3);
        w.ends.extend(Pairs::new(4).ends);
        w.pipes.iter_mut().for_each(|p| p.loss = loss);
        let from = Time::from_secs(late);
        let end = Time::from_secs(late + 30);
        let mut first = Bulk::start_on(&mut w, 0, 1, FOREVER);
        first.run(&mut w, from);
        let mut second = Bulk::start_on(&mut w, 1, 1, FOREVER);
        loop {
            first.pump(&mut w);
            second.pump(&mut w);
            if !w.step(end) {
                break;
            }
        }
        let x = [first.goodput(from, end), second.goodput(from, end)];
        assert!(jain(&x) > 0.97, "loss {loss}, {late} s apart: {x:.0?}");
        let sum = (x[0] + x[1]) / 19.3e6 / (1.0 - loss);
        assert!(sum > 0.96, "loss {loss}, {late} s apart: together {sum:.3}");
    }
}

#[test]
fn a_cubic_sender_is_met_on_equal_terms() {
    for (srp_first, late) in [(true, 0), (true, 5), (false, 5)] {
        let mut w = Pairs::new(3);
        let mut bulk = Bulk::start(&mut w, 1, FOREVER);
        let from = Time::from_secs(late);
        if srp_first {
            bulk.run(&mut w, from);
        }
        let mut cubic = CubicFlow::new(Duration::from_millis(70));
        cubic.run(w.now, &mut w.pipes[1]);
        w.cubic = Some(cubic);
        while w.step(from) {}
        let before = w.cubic.as_ref().map_or(0, |c| c.delivered);
        let end = from + Duration::from_secs(30);
        bulk.run(&mut w, end);
        let after = w.cubic.as_ref().map_or(0, |c| c.delivered);
        let x = [bulk.goodput(from, end), (after - before) as f64 * 8.0 / 30.0];
        assert!(jain(&x) > 0.8, "srp first {srp_first}, {late} s apart: {x:.0?}");
    }
}

#[test]
fn a_neighbour_that_leaves_gives_the_queue_back() {
    let mut w = Pairs::new(3);
    let mut bulk = Bulk::start(&mut w, 1, FOREVER);
    let mut cubic = CubicFlow::new(Duration::from_millis(70));
    cubic.run(w.now, &mut w.pipes[1]);
    w.cubic = Some(cubic);
    bulk.run(&mut w, Time::from_secs(15));
    w.cubic = Some(CubicFlow::silent());
    bulk.run(&mut w, Time::from_secs(27));
    let p = &mut w.pipes[1];
    (p.offered, p.dropped, p.queued_ns) = (0, 0, 0.0);
    bulk.run(&mut w, Time::from_secs(40));
    let p = &w.pipes[1];
    let queue_ms = p.queued_ns / 1e6 / p.offered as f64;
    let share = bulk.goodput(Time::from_secs(27), w.now) / 19.3e6;
    assert!(share > 0.96 && queue_ms < 20.0, "share {share:.3}, queue {queue_ms:.1} ms");
}

/// How long it takes from the first data on until nine tenths of what the hop carries have been used for a
/// round trip or a quarter of a second, and the share of datagrams that its queue drops until a second later.
fn start_up(
    rate: Rate,
    delay: Duration,
    loss: f64,
    seed: u64,
    saved: Option<Rate>,
) -> (Duration, f64) {
    let mut w = Pairs::new(seed);
    if let Some(saved) = saved {
        w.ends[0][1].resume_path(saved, 2 * delay);
    }
    for end in &mut w.ends[0] {
        end.seed_round_trip(Time::ZERO, 2 * delay);
    }
    for p in &mut w.pipes {
        (p.rate, p.delay, p.loss) = (rate, delay, loss);
    }
    let span = (2 * delay).max(Duration::from_millis(250));
    let full = 0.9 * rate.bytes_in(span).get() as f64 / 1500.0;
    let mut bulk = Bulk::start(&mut w, 1, FOREVER);
    let mut used = VecDeque::new();
    while w.now < Time::from_secs(60) {
        let next = w.now + Duration::from_millis(10);
        bulk.run(&mut w, next);
        let p = &w.pipes[1];
        used.push_back((w.now, p.offered - p.dropped));
        while used.front().is_some_and(|(at, _)| *at + span < w.now) {
            used.pop_front();
        }
        if (p.offered - p.dropped - used[0].1) as f64 >= full {
            break;
        }
    }
    let took = w.now.since(Time::ZERO + delay);
    let end = w.now + Duration::from_secs(1);
    bulk.run(&mut w, end);
    let p = &w.pipes[1];
    (took, p.dropped as f64 / p.offered as f64)
}

#[test]
fn start_up_reaches_the_limit_soon_and_drops_little() {
    for mbps in [1, 10, 100] {
        for ms in [5, 20, 100, 300] {
            for (loss, seed) in [(0.0, 1), (0.05, 1), (0.05, 2), (0.2, 1), (0.2, 2)] {
                let (rate, delay) = (Rate::from_mbps(mbps), Duration::from_millis(ms));
                let (took, dropped) = start_up(rate, delay, loss, seed, None);
                let what = alloc::format!(
                    "{mbps} Mbit/s, {ms} ms, loss {loss}, seed {seed}: {took:?}, dropped {dropped:.4}"
                );
                std::println!("{what}");
                assert!(took <= 16 * delay + Duration::from_secs(1), "{what}");
                assert!(dropped <= 0.02, "{what}");
            }
        }
    }
}

/// Half of what a path was worth is used at once; if it is worth less, or another one by its round trip, that
/// costs little.
#[test]
fn a_path_that_is_remembered_is_used_sooner() {
    let delay = Duration::from_millis(300);
    for mbps in [10, 20] {
        for (loss, seed) in [(0.0, 1), (0.05, 1), (0.05, 2), (0.05, 3)] {
            let rate = Rate::from_mbps(mbps);
            let [anew, again, wrong] = [None, Some(rate), Some(rate.scale(4.0))]
                .map(|saved| start_up(rate, delay, loss, seed, saved));
            let what = alloc::format!(
                "{mbps} Mbit/s, loss {loss}, seed {seed}: {anew:?} {again:?} {wrong:?}"
            );
            std::println!("{what}");
            assert!(again.0 <= Duration::from_secs(3) && again.0 < anew.0, "{what}");
            assert!(again.1 <= 0.02, "{what}");
            assert!(wrong.0 <= 16 * delay + Duration::from_secs(1), "{what}");
        }
    }
}
