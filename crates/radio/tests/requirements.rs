//! The numbered requirements on a wireless link (LNK, ERR), each with an oracle of its own.

#![allow(clippy::expect_used)]

use lasthop_radio::{
    Damage, Delivery, Direction, Errors, Gap, Link, LinkConfig, LinkStats, Loss, Pacing, Pause,
    QueueLimit, Radio, RadioConfig, RateStep, RateSteps, Refusal, Reorder, Trace,
};
use lasthop_units::{Bytes, Duration, Rate, Seed, Time};
use proptest::prelude::*;

const MS: Duration = Duration::from_millis(1);
const FULL: Bytes = Bytes::new(1500);

fn at(ms: u64) -> Time {
    Time::from_millis(ms)
}

fn link(config: &LinkConfig) -> Link<u64> {
    seeded(config, 1)
}

fn seeded(config: &LinkConfig, seed: u64) -> Link<u64> {
    Link::new(config, Seed::from_u64(seed), Time::ZERO).expect("a good configuration")
}

fn rate(mbps: u64) -> LinkConfig {
    LinkConfig { pacing: Pacing::Rate(Rate::from_mbps(mbps)), ..LinkConfig::default() }
}

fn lossy(errors: Errors) -> LinkConfig {
    LinkConfig { losses: vec![Loss::lose(errors)], ..LinkConfig::default() }
}

fn drain(link: &mut Link<u64>, now: Time) -> Vec<Delivery<u64>> {
    std::iter::from_fn(|| link.pop(now)).collect()
}

fn packets(deliveries: &[Delivery<u64>]) -> Vec<u64> {
    deliveries.iter().map(|d| d.packet).collect()
}

/// Sends `n` full packets back to back at 12 Mbit/s (1 ms each) and gives the statistics.
fn saturate(config: LinkConfig, seed: u64, n: u64) -> LinkStats {
    let mut link = seeded(&LinkConfig { pacing: rate(12).pacing, ..config }, seed);
    for i in 0..n {
        link.push(at(i), FULL, i).expect("room");
        drain(&mut link, at(i));
    }
    link.stats(at(n))
}

/// SNP-7: a queue is nearly full where one more packet fits, in whatever it is limited.
#[test]
fn a_queue_is_nearly_full_where_one_more_packet_fits() {
    for queue in [
        QueueLimit::Packets(4),
        QueueLimit::Bytes(Bytes::new(4 * 1500)),
        QueueLimit::Time(Duration::from_micros(3500)),
    ] {
        let mut link = link(&LinkConfig { queue, ..rate(12) });
        let mut full = Vec::new();
        for i in 0..5 {
            full.push(link.is_nearly_full(at(0), FULL));
            link.push(at(0), FULL, i).expect("room");
        }
        // The first is on air, so that the fifth is the fourth that waits.
        assert_eq!(full, [false, false, false, false, true], "{queue:?}");
        assert!(link.push(at(0), FULL, 5).is_err(), "{queue:?}");
    }
}

/// LNK-1: a packet leaves size / rate after the one before it, and arrives a delay later.
#[test]
fn packets_take_their_air_time_one_after_another_and_then_the_delay() {
    let mut link = link(&LinkConfig { delay: MS * 20, ..rate(12) });
    for i in 0..3 {
        link.push(at(5), FULL, i).expect("room");
    }
    assert_eq!(link.next_time(), Some(at(26)));
    assert!(link.pop(at(26) - Duration::from_nanos(1)).is_none());
    let arrivals: Vec<Time> = drain(&mut link, at(100)).iter().map(|d| d.at).collect();
    assert_eq!(arrivals, [at(26), at(27), at(28)]);
    assert_eq!(link.next_time(), None);
}

/// LNK-1: drop-tail, 50 packets by default; the packet on air does not count.
#[test]
fn the_default_queue_holds_50_packets() {
    let mut link = link(&rate(12));
    let taken = (0..60).take_while(|&i| link.push(at(0), FULL, i).is_ok()).count();
    assert_eq!(taken, 51);
    let refused = link.push(at(0), FULL, 99).expect_err("full");
    assert_eq!((refused.packet, refused.reason), (99, Refusal::QueueFull));
    assert_eq!(link.stats(at(0)).dropped.queue.packets, 2);
    assert!(link.push(at(1), FULL, 100).is_ok());
}

/// LNK-1: limits in bytes and in time.
#[test]
fn a_queue_can_be_limited_in_bytes_and_in_time() {
    let taken = |queue| {
        let mut link = link(&LinkConfig { queue, ..rate(12) });
        (0..99).take_while(|&i| link.push(at(0), FULL, i).is_ok()).count()
    };
    assert_eq!(taken(QueueLimit::Bytes(Bytes::new(4500))), 1 + 3);
    assert_eq!(taken(QueueLimit::Time(MS * 7)), 1 + 8);
    assert_eq!(taken(QueueLimit::Packets(0)), 1);
}

/// CC-2: packets that meet the threshold are marked before the queue begins to drop, those that it
/// drops are not, and nothing is marked where no threshold is set.
#[test]
fn a_packet_that_meets_the_threshold_is_marked_before_any_is_dropped() {
    for losses in [vec![], vec![Loss::lose(Errors::Uniform(0.0))]] {
        let ecn_mark = Some(QueueLimit::Packets(2));
        let queue = QueueLimit::Packets(4);
        let mut link = link(&LinkConfig { queue, ecn_mark, losses, ..rate(12) });
        let marks: Vec<bool> = (0..7)
            .map(|i| {
                let marks = link.marks(at(0), FULL);
                let _ = link.push(at(0), FULL, i);
                marks
            })
            .collect();
        // One on air, two below the threshold, two above it, two dropped.
        assert_eq!(marks, [false, false, false, true, true, false, false]);
        let stats = link.stats(at(0));
        assert_eq!((stats.marked.packets, stats.dropped.queue.packets), (2, 2));
        assert!(!link.marks(at(3), FULL));
    }
    let mut never = link(&rate(12));
    (0..40).for_each(|i| never.push(at(0), FULL, i).expect("room"));
    assert!(!never.marks(at(0), FULL));
}

/// CC-2: thresholds in bytes and in time.
#[test]
fn a_threshold_can_be_in_bytes_and_in_time() {
    let below = |mark| {
        let mut link = link(&LinkConfig { ecn_mark: Some(mark), ..rate(12) });
        (0..40)
            .take_while(|&i| !link.marks(at(0), FULL) && link.push(at(0), FULL, i).is_ok())
            .count()
    };
    assert_eq!(below(QueueLimit::Bytes(Bytes::new(4500))), 1 + 3);
    assert_eq!(below(QueueLimit::Time(MS * 7)), 1 + 8);
}

/// LNK-2: the MTU is the length of the whole IP datagram.
#[test]
fn a_packet_longer_than_the_mtu_is_dropped_and_counted() {
    let mut link = link(&LinkConfig { mtu: 128, ..LinkConfig::default() });
    assert!(link.push(at(0), Bytes::new(128), 1).is_ok());
    let refused = link.push(at(0), Bytes::new(129), 2).expect_err("too big");
    assert_eq!(refused.reason, Refusal::TooBig);
    assert_eq!(link.stats(at(0)).dropped.oversize.bytes, 129);
}

/// LNK-5: mean loss over 10⁵ packets within 0.5 points of the target, for every form.
#[test]
fn the_loss_applied_is_the_loss_asked_for() {
    for target in [0.0, 0.05, 0.1, 0.2, 0.3] {
        // Long bursts are few in 10⁵ packets: one run then deviates by more than 0.5 points.
        let mut forms = vec![Errors::Uniform(target)];
        if target > 0.0 {
            forms.push(Errors::burst(target, 2.0));
            forms.push(Errors::Burst { gap: Gap::Packets((1.0 - target) / target), length: 1.0 });
        }
        for errors in forms {
            let stats = saturate(lossy(errors), 7, 100_000);
            let loss = stats.dropped.loss.packets as f64 / stats.sent.packets as f64;
            assert!((loss - target).abs() < 0.005, "{errors:?}: {loss}");
            assert!((stats.loss() - loss).abs() < 1e-12);
        }
    }
}

/// LNK-4: bursts have the geometric mean length asked for. Gaps below one packet join two bursts,
/// so that runs are a little longer: by 1/P(gap >= 1 packet).
#[test]
fn bursts_have_the_mean_length_asked_for() {
    let stats = saturate(lossy(Errors::burst(0.02, 3.0)), 3, 400_000);
    let joined = (1.0_f64 / 147.0).exp();
    assert!((stats.burst_length() / (3.0 * joined) - 1.0).abs() < 0.06, "{}", stats.burst_length());
}

/// LNK-4, the option: gaps in time do not depend on how many packets are sent.
#[test]
fn gaps_in_time_are_exponential_in_time() {
    let errors = Errors::Burst { gap: Gap::Time(MS * 500), length: 4.0 };
    let stats = saturate(lossy(errors), 3, 400_000);
    let gap = (400_000 - stats.hit.packets) as f64 / stats.bursts as f64;
    assert!((gap / 500.0 - 1.0).abs() < 0.08, "{gap}");
    assert!((stats.burst_length() - 4.0).abs() < 0.3, "{}", stats.burst_length());
}

/// LNK-6, ERR-8: each direction has a process of its own; either may be without.
#[test]
fn directions_lose_independently() {
    let mut config = RadioConfig::both(lossy(Errors::Uniform(0.5)));
    let survivors = |config: &RadioConfig| {
        let mut radio = Radio::new(config, Seed::from_u64(1), Time::ZERO).expect("good");
        let mut survivors = [vec![], vec![]];
        for i in 0..2000_u64 {
            for direction in Direction::ALL {
                radio.push(at(i), direction, FULL, i).expect("room");
            }
            while let Some((direction, delivery)) = radio.pop(at(i)) {
                survivors[usize::from(direction == Direction::Down)].push(delivery.packet);
            }
        }
        survivors
    };
    let [up, down] = survivors(&config);
    let common = up.iter().filter(|p| down.contains(p)).count();
    assert!((400..600).contains(&common), "{common}");
    config.up.losses.clear();
    let [up, same_down] = survivors(&config);
    assert_eq!(up.len(), 2000);
    assert_eq!(down, same_down);
}

/// LNK-7, LNK-12: what waits, is on air or in flight as the pause begins, and what comes while it
/// lasts, is dropped; what has arrived before and what comes after is not.
#[test]
fn a_pause_drops_everything_and_queues_nothing() {
    let pauses = vec![Pause::once(MS * 100, MS * 1000)];
    let mut link = link(&LinkConfig { delay: MS * 10, pauses, ..rate(12) });
    link.push(at(80), FULL, 1).expect("room");
    for i in 2..8 {
        link.push(at(98), FULL, i).expect("room");
    }
    for (now, packet) in [(100, 8), (600, 9), (1099, 10)] {
        let refused = link.push(at(now), FULL, packet).expect_err("silent");
        assert_eq!(refused.reason, Refusal::Silent);
    }
    link.push(at(1100), FULL, 11).expect("the radio is back");
    assert_eq!(packets(&drain(&mut link, at(2000))), [1, 11]);
    let stats = link.stats(at(2000));
    assert_eq!((stats.dropped.silence.packets, stats.pauses), (9, 1));
    assert_eq!(stats.silent, MS * 1000);
    assert_eq!(stats.queue.packets_max, 5);
}

/// LNK-7: a pause of no length is none.
#[test]
fn a_pause_of_zero_seconds_drops_nothing() {
    let pauses = vec![Pause::once(MS, Duration::ZERO)];
    let mut link = link(&LinkConfig { delay: MS * 10, pauses, ..LinkConfig::default() });
    link.push(at(0), FULL, 1).expect("room");
    link.push(at(1), FULL, 2).expect("room");
    assert_eq!(packets(&drain(&mut link, at(20))), [1, 2]);
}

/// LNK-8, LNK-9: the first pause at a fixed time, more of them start to start.
#[test]
fn repeated_pauses_drop_what_comes_in_each() {
    let pause =
        Pause { every: Some(MS * 8000), times: Some(2), ..Pause::once(MS * 4000, MS * 2800) };
    let mut link = link(&LinkConfig { pauses: vec![pause], ..LinkConfig::default() });
    let lost: Vec<u64> = (0..30).filter(|&s| link.push(at(s * 1000), FULL, s).is_err()).collect();
    assert_eq!(lost, [4, 5, 6, 12, 13, 14]);
}

#[test]
fn a_pause_ordered_at_run_time_acts_like_a_scheduled_one() {
    let mut link = link(&rate(12));
    link.push(at(0), FULL, 1).expect("room");
    link.pause(at(0), MS * 500);
    assert!(link.is_silent(at(499)) && !link.is_silent(at(500)));
    link.pause(at(600), MS * 500);
    link.resume(at(700));
    link.push(at(700), FULL, 2).expect("room");
    assert_eq!(packets(&drain(&mut link, at(800))), [2]);
    assert_eq!(link.stats(at(800)).silent, MS * 600);
}

/// LNK-10: corrupted packets cost air time like others, and are delivered, flagged.
#[test]
fn corrupted_packets_are_carried_and_flagged() {
    let losses = vec![Loss { errors: Errors::Uniform(1.0), damage: Damage::Corrupt }];
    let mut link = link(&LinkConfig { losses, ..rate(12) });
    link.push(at(0), FULL, 1).expect("room");
    link.push(at(0), FULL, 2).expect("room");
    let out = drain(&mut link, at(2));
    assert_eq!(
        out.iter().map(|d| (d.at, d.corrupted)).collect::<Vec<_>>(),
        [(at(1), true), (at(2), true)]
    );
    let stats = link.stats(at(2));
    assert_eq!((stats.corrupted.packets, stats.dropped.loss.packets), (2, 0));
    assert_eq!(stats.air_time, MS * 2);
}

/// Losses happen after the transmission: a lost packet has cost its air time.
#[test]
fn a_lost_packet_costs_its_air_time() {
    let mut link = link(&LinkConfig { pacing: rate(12).pacing, ..lossy(Errors::Uniform(1.0)) });
    link.push(at(0), FULL, 1).expect("room");
    link.push(at(0), FULL, 2).expect("room");
    assert!(drain(&mut link, at(10)).is_empty());
    let stats = link.stats(at(10));
    assert_eq!((stats.dropped.loss.packets, stats.air_time), (2, MS * 2));
}

/// LNK-13: once for each transmission; by default it only adds delay, as an option it takes air.
#[test]
fn the_mac_delay_is_added_once_to_each_transmission() {
    let arrivals = |mac_occupies| {
        let mut link = link(&LinkConfig { mac_delay: MS * 5, mac_occupies, ..rate(12) });
        link.push(at(0), FULL, 1).expect("room");
        link.push(at(0), FULL, 2).expect("room");
        drain(&mut link, at(100)).iter().map(|d| d.at).collect::<Vec<_>>()
    };
    assert_eq!(arrivals(false), [at(6), at(7)]);
    assert_eq!(arrivals(true), [at(6), at(12)]);
}

/// LNK-15: 40 seeds give 40 different runs, the same seed the same one.
#[test]
fn forty_seeds_give_forty_runs_and_the_same_seed_the_same() {
    let run = |seed| {
        let mut link = seeded(&lossy(Errors::Uniform(0.5)), seed);
        let hits = (0..64_u64).map(|i| {
            link.push(at(i), FULL, i).expect("room");
            u64::from(link.pop(at(i)).is_none()) << i
        });
        hits.sum::<u64>()
    };
    let runs: std::collections::BTreeSet<u64> = (0..40).map(run).collect();
    assert_eq!(runs.len(), 40);
    assert_eq!(run(5), run(5));
}

/// ERR-1: the share of time in fades and their mean duration.
#[test]
fn fades_take_the_share_of_time_asked_for() {
    let stats = saturate(lossy(Errors::Fade { mean: MS * 17, share: 0.1 }), 2, 2_000_000);
    assert!((stats.fade_share() - 0.1).abs() < 0.004, "{}", stats.fade_share());
    let mean = stats.faded.as_secs_f64() / stats.fades as f64;
    assert!((mean / 0.017 - 1.0).abs() < 0.03, "{mean}");
}

/// ERR-5: on a saturated link, packets lost per fade = 1 + FD/S, and
/// PER = 1 - (1 - FR) exp(-FR S / ((1 - FR) FD)).
#[test]
fn a_saturated_link_loses_what_the_fade_formulas_say() {
    let s = 1.0;
    for (fade, share) in [(17.0_f64, 0.1), (5.0, 0.05), (50.0, 0.2)] {
        let mean = Duration::from_nanos((fade * 1e6) as u64);
        let stats = saturate(lossy(Errors::Fade { mean, share }), 11, 2_000_000);
        let per_fade = stats.hit.packets as f64 / stats.fades as f64;
        // Two fades within one packet's air time share that packet: the formula's first order
        // counts it twice.
        let good = fade * (1.0 - share) / share;
        let expected = 1.0 + fade / s;
        assert!((per_fade / expected - 1.0).abs() < 0.03 + s / good, "{per_fade} {expected}");
        let per = 1.0 - (1.0 - share) * (-share * s / ((1.0 - share) * fade)).exp();
        assert!((stats.loss() / per - 1.0).abs() < 0.04, "{} {per}", stats.loss());
        let ratio = stats.loss() / stats.fade_share();
        assert!((ratio / (1.0 + s / fade) - 1.0).abs() < 0.04, "{ratio}");
    }
}

/// ERR-3: a sender that waits after a loss meets fewer fades than one that does not.
#[test]
fn fades_pass_while_nothing_is_sent() {
    let config = lossy(Errors::Fade { mean: MS * 50, share: 0.3 });
    let mut link = link(&LinkConfig { pacing: rate(12).pacing, ..config });
    let (mut now, mut sent, mut hit) = (0, 0.0, 0.0);
    while sent < 20_000.0 {
        link.push(at(now), FULL, 0).expect("room");
        now += 1;
        sent += 1.0;
        if link.pop(at(now)).is_none() {
            hit += 1.0;
            now += 1000;
        }
    }
    assert!(hit / sent < 0.05, "{}", hit / sent);
}

/// ERR-4: two independent chains, or one that both directions share.
#[test]
fn directions_fade_together_only_if_asked_to() {
    let fade = lossy(Errors::Fade { mean: MS * 20, share: 0.5 });
    let agreement = |shared_fades| {
        let config = RadioConfig { shared_fades, ..RadioConfig::both(fade.clone()) };
        let mut radio = Radio::new(&config, Seed::from_u64(9), Time::ZERO).expect("good");
        let same = (0..10_000_u64).filter(|&i| {
            let mut arrived = [false; 2];
            for direction in Direction::ALL {
                radio.push(at(i), direction, FULL, i).expect("room");
            }
            while let Some((direction, _)) = radio.pop(at(i)) {
                arrived[usize::from(direction == Direction::Up)] = true;
            }
            arrived[0] == arrived[1]
        });
        same.count()
    };
    assert_eq!(agreement(true), 10_000);
    assert!((4_000..6_000).contains(&agreement(false)));
}

/// ERR-6, ERR-7: small probabilities hold too.
#[test]
fn one_packet_in_a_thousand_is_lost() {
    let stats = saturate(lossy(Errors::Uniform(0.001)), 5, 1_000_000);
    assert!((stats.loss() - 0.001).abs() < 0.0002, "{}", stats.loss());
}

#[test]
fn a_rate_that_changes_while_a_packet_is_on_air_splits_its_time() {
    let step = |ms: u32, mbps| RateStep { at: MS * ms, rate: Rate::from_mbps(mbps) };
    let steps = vec![step(10, 0), step(20, 6)];
    let steps = RateSteps { initial: Rate::from_mbps(12), steps, period: None };
    let mut link = link(&LinkConfig { pacing: Pacing::Steps(steps), ..LinkConfig::default() });
    link.push(Time::from_micros(9_500), FULL, 1).expect("room");
    assert_eq!(drain(&mut link, at(100))[0].at, at(21));
    link.push(at(100), FULL, 2).expect("room");
    link.set_rate(at(101), Rate::from_mbps(12));
    assert_eq!(drain(&mut link, at(200))[0].at, Time::from_micros(101_500));
}

#[test]
fn a_trace_delivers_1500_bytes_at_each_opportunity() {
    let trace = Trace::parse("5\n5\n10\n").expect("reads");
    let pacing = Pacing::Trace(std::sync::Arc::new(trace));
    let mut link = link(&LinkConfig { pacing, delay: MS, ..LinkConfig::default() });
    let sizes = [700, 700, 200, 1500, 3000];
    for (i, size) in (0..).zip(sizes) {
        link.push(at(1), Bytes::new(size), i).expect("room");
    }
    assert_eq!(link.next_time(), Some(at(6)));
    let arrivals: Vec<Time> = drain(&mut link, at(100)).iter().map(|d| d.at).collect();
    // 700 + 700 + 100 | 100 + 1400 | 100 + 1400 of 3000 | 1500 | 100
    assert_eq!(arrivals, [at(6), at(6), at(6), at(11), at(16)]);
    link.push(at(121), FULL, 9).expect("room");
    assert_eq!(link.next_time(), Some(at(126)));
}

#[test]
fn reordering_and_duplication_happen_only_if_asked_for() {
    let reorder = Some(Reorder { probability: 0.1, extra: MS * 3 });
    let config = LinkConfig { reorder, duplicate: 0.1, ..rate(12) };
    let mut link = link(&config);
    let mut out = vec![];
    for i in 0..10_000 {
        link.push(at(i), FULL, i).expect("room");
        out.extend(drain(&mut link, at(i)));
    }
    out.extend(drain(&mut link, at(20_000)));
    let stats = link.stats(at(20_000));
    let late = out.iter().filter(|d| d.at > at(d.packet + 1)).count() as u64;
    assert_eq!(late, stats.reordered.packets);
    assert!((900..1100).contains(&late), "{late}");
    let copies = out.iter().filter(|d| d.duplicate).count() as u64;
    assert_eq!(copies, stats.duplicated.packets);
    assert!((900..1100).contains(&copies), "{copies}");
    assert!(out.is_sorted_by_key(|d| d.at));
}

#[test]
fn memory_is_bounded_however_fast_packets_come() {
    let config = LinkConfig { delay: MS * 1000, capacity: 100, ..LinkConfig::default() };
    let mut link = link(&config);
    let taken = (0..1000).filter(|&i| link.push(at(0), FULL, i).is_ok()).count();
    assert_eq!((taken, link.held()), (100, 100));
    let refused = link.push(at(0), FULL, 0).expect_err("no room");
    assert_eq!(refused.reason, Refusal::Capacity);
}

#[test]
fn the_queue_is_averaged_over_time() {
    let mut link = link(&rate(12));
    for i in 0..4 {
        link.push(at(0), FULL, i).expect("room");
    }
    let stats = link.stats(at(10));
    // Three wait for 1 ms, two for another, one for a third: 6 packet milliseconds in 10.
    assert!((stats.mean_backlog_packets() - 0.6).abs() < 1e-9);
    assert!((stats.mean_backlog_bytes() - 900.0).abs() < 1e-6);
    assert_eq!(stats.mean_wait(), Duration::from_micros(1500));
    assert_eq!((stats.queue.wait_max, stats.queue.packets_max), (MS * 3, 3));
    assert!((stats.utilisation() - 0.4).abs() < 1e-9);
    link.reset_stats(at(10));
    let stats = link.stats(at(20));
    assert_eq!((stats.offered.packets, stats.elapsed()), (0, MS * 10));
}

#[test]
fn an_endless_wait_takes_bounded_work() {
    let pause = Pause { every: Some(MS), ..Pause::once(MS, MS / 2) };
    let mut config = lossy(Errors::Fade { mean: MS, share: 0.5 });
    config.pauses.push(pause);
    let mut link = link(&config);
    link.push(at(0), FULL, 0).expect("room");
    drain(&mut link, Time::from_secs(1_000_000_000));
    drain(&mut link, Time::NEVER);
    link.stats(Time::NEVER);
}

fn any_config() -> impl Strategy<Value = LinkConfig> {
    let pacing = prop_oneof![
        Just(Pacing::Rate(Rate::UNLIMITED)),
        Just(Pacing::Rate(Rate::from_mbps(12))),
        Just(Pacing::Steps(RateSteps {
            initial: Rate::from_mbps(1),
            steps: vec![RateStep { at: MS * 20, rate: Rate::from_mbps(50) }],
            period: Some(MS * 30),
        })),
        Just(Pacing::Trace(std::sync::Arc::new(Trace::parse("1\n1\n7\n").expect("reads")))),
    ];
    let loss = prop_oneof![
        Just(vec![]),
        Just(vec![Loss::lose(Errors::burst(0.2, 3.0))]),
        Just(vec![
            Loss::corrupt(Errors::Uniform(0.2)),
            Loss::lose(Errors::Fade { mean: MS * 3, share: 0.2 })
        ]),
    ];
    let queue = prop_oneof![
        Just(QueueLimit::Packets(5)),
        Just(QueueLimit::Bytes(Bytes::new(4000))),
        Just(QueueLimit::Time(MS * 5)),
    ];
    let pauses = prop_oneof![
        Just(vec![]),
        Just(vec![Pause { every: Some(MS * 40), ..Pause::once(MS * 30, MS * 7) }]),
    ];
    let delay = (0..30_u32).prop_map(|ms| MS * ms);
    (pacing, loss, queue, pauses, delay).prop_map(|(pacing, losses, queue, pauses, delay)| {
        LinkConfig { pacing, losses, queue, pauses, delay, ..LinkConfig::default() }
    })
}

proptest! {
    /// LNK-11: order is never changed on one link, and no packet comes out before it was due.
    #[test]
    fn order_is_never_changed(
        config in any_config(),
        gaps in prop::collection::vec((0u64..4_000, 1u64..3_000), 1..200),
    ) {
        let mut link = link(&config);
        let (mut now, mut out) = (Time::ZERO, vec![]);
        for (i, (gap, size)) in (0..).zip(gaps) {
            now += Duration::from_micros(gap);
            let _ = link.push(now, Bytes::new(size), i);
            out.extend(drain(&mut link, now));
        }
        out.extend(drain(&mut link, Time::from_secs(100)));
        prop_assert!(out.is_sorted_by(|a, b| a.packet < b.packet && a.at <= b.at));
        prop_assert!(out.iter().all(|d| d.at >= d.entered + config.delay));
    }

    /// LNK-15: what happens does not depend on how often the link is asked.
    #[test]
    fn a_link_asked_often_does_what_one_asked_seldom_does(
        config in any_config(),
        gaps in prop::collection::vec(0u64..4_000, 1..200),
    ) {
        let run = |step: Option<Duration>| {
            let mut link = link(&config);
            let (mut now, mut out) = (Time::ZERO, vec![]);
            let end = Time::from_secs(2);
            for (i, gap) in (0..).zip(&gaps) {
                let next = now + Duration::from_micros(*gap);
                while let Some(step) = step.filter(|&s| now + s < next) {
                    now += step;
                    out.extend(drain(&mut link, now));
                    link.stats(now);
                }
                now = next;
                let _ = link.push(now, FULL, i);
            }
            while let Some(next) = step.and(link.next_time()).filter(|&t| t < end) {
                out.extend(drain(&mut link, next));
            }
            out.extend(drain(&mut link, end));
            (out, link.stats(end))
        };
        prop_assert_eq!(run(None), run(Some(Duration::from_micros(700))));
    }

    /// MET-11: nothing is unaccounted for.
    #[test]
    fn every_packet_offered_is_delivered_dropped_or_held(
        config in any_config(),
        duplicate in 0.0..0.5_f64,
        gaps in prop::collection::vec(0u64..4_000, 1..200),
    ) {
        let mut link = link(&LinkConfig { duplicate, ..config });
        let mut now = Time::ZERO;
        for (i, gap) in (0..).zip(gaps) {
            now += Duration::from_micros(gap);
            let _ = link.push(now, FULL, i);
            link.pop(now);
            let s = link.stats(now);
            let drops = [s.dropped.queue, s.dropped.oversize, s.dropped.silence, s.dropped.loss,
                s.dropped.capacity];
            let dropped: u64 = drops.iter().map(|c| c.packets).sum();
            prop_assert_eq!(
                s.offered.packets + s.duplicated.packets,
                s.delivered.packets + dropped + s.held
            );
            prop_assert_eq!(s.held, link.held() as u64);
        }
    }

    /// A caller that sleeps until `next_time` gets every packet at the moment it is due.
    #[test]
    fn nothing_comes_out_before_next_time(config in any_config(), n in 1u64..60) {
        let mut link = link(&config);
        for i in 0..n {
            let _ = link.push(at(0), FULL, i);
        }
        let mut steps = 0;
        while let Some(next) = link.next_time() {
            let before = next - Duration::from_nanos(1);
            prop_assert!(next == Time::ZERO || link.pop(before).is_none());
            prop_assert!(drain(&mut link, next).iter().all(|d| d.at == next));
            steps += 1;
            prop_assert!(steps < 10_000, "next_time does not move on");
        }
        prop_assert_eq!(link.held(), 0);
    }
}
