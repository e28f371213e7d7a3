//! Goodput beside ns-2.35's, for the common path of its reference runs: 100 Mbit/s and 50 ms, then
//! 2 Mbit/s, 20 ms and loss p1, then 11 Mbit/s, 20 ms and loss 0.0001; 1000-byte segments, window 2
//! to 16, ssthresh 10, least timeout 0.3 s.

#![allow(missing_docs)]

mod common;

use common::{Bulk, Way};
use lasthop_tcp::{Algorithm, Config, Window};
use lasthop_units::{Duration, Rate, Seed, Time};

fn config(algorithm: Algorithm) -> Config {
    let mut config = Config::ns2();
    config.initial_ssthresh = Some(Window::Segments(10));
    config.cwnd_max = Some(Window::Segments(16));
    config.rto.min = Duration::from_millis(300);
    config.sack = matches!(algorithm, Algorithm::Sack);
    config.algorithm = algorithm;
    config
}

/// Goodput in kB/s over 2000 s, averaged over the seeds, and the half width of its 95 % interval.
fn goodput(algorithm: Algorithm, p1: f64, runs: u64) -> (f64, f64) {
    let loss = 1.0 - (1.0 - p1) * (1.0 - 0.0001);
    let one = |run: u64| {
        let seed = Seed::from_u64(run);
        // The fast links only add their serialisation.
        let fast = Duration::from_nanos(83_200 + 756_364);
        let there =
            Way::new(Rate::from_mbps(2), Duration::from_millis(90) + fast, loss, seed.stream("a"));
        let back = Way::new(
            Rate::from_mbps(2),
            Duration::from_millis(90) + fast / 26,
            0.0,
            seed.stream("b"),
        );
        let mut bulk = Bulk::new(config(algorithm), there, back);
        bulk.run_until(Time::from_secs(2000));
        bulk.sender.acknowledged().get() as f64 / 2000.0 / 1000.0
    };
    let all: Vec<f64> = (0..runs).map(one).collect();
    let mean = all.iter().sum::<f64>() / runs as f64;
    let var = all.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (runs as f64 - 1.0);
    (mean, 2.0 * (var / runs as f64).sqrt())
}

/// Each cell lies within ns-2's interval and 5 %.
fn compare(algorithm: Algorithm, cells: &[(f64, f64, f64)]) {
    let mut off = Vec::new();
    for &(p1, theirs, half) in cells {
        let (ours, ours_half) = goodput(algorithm, p1, 8);
        let line = format!("p1 {p1}: ns-2 {theirs} ±{half}, ours {ours:.2} ±{ours_half:.2}");
        println!("{algorithm:?} {line}");
        if (ours - theirs).abs() > half + 0.05 * theirs {
            off.push(line);
        }
    }
    assert!(off.is_empty(), "{off:#?}");
}

#[test]
fn reno_matches_ns2() {
    compare(
        Algorithm::Reno,
        &[
            (0.0001, 85.5, 0.2),
            (0.001, 81.5, 0.3),
            (0.005, 66.1, 0.7),
            (0.01, 51.9, 0.3),
            (0.02, 36.6, 0.7),
            (0.05, 20.8, 0.5),
            (0.1, 12.3, 0.5),
            (0.15, 8.2, 0.4),
            (0.2, 4.8, 0.6),
            (0.25, 2.2, 0.2),
            (0.3, 0.9, 0.3),
        ],
    );
}

#[test]
fn newreno_matches_ns2() {
    compare(
        Algorithm::NewReno,
        &[(0.001, 81.5, 0.5), (0.01, 54.8, 0.8), (0.05, 23.5, 1.0), (0.1, 14.0, 1.4)],
    );
}

#[test]
fn sack_matches_ns2() {
    compare(
        Algorithm::Sack,
        &[(0.001, 81.4, 0.5), (0.01, 54.3, 0.8), (0.05, 22.7, 0.9), (0.1, 13.4, 1.3)],
    );
}

/// Goodput in kbit/s over 500 s with an outage in every 10 s: 2 Mbit/s, window 20, queue 50.
fn with_outages(rtt_ms: u64, outage_ms: u64, min_ms: u64, tick_ms: u64) -> f64 {
    let mut config = Config::ns2();
    config.rto.min = Duration::from_millis(min_ms);
    config.rto.tick = Duration::from_millis(tick_ms);
    let way = |name| {
        let delay = Duration::from_millis(rtt_ms) / 2;
        let rng = Seed::from_u64(1).stream(name);
        let mut way = Way::new(Rate::from_mbps(2), delay, 0.0, rng);
        way.queue = 50;
        way.outage = Duration::from_millis(outage_ms);
        way
    };
    let mut bulk = Bulk::new(config, way("there"), way("back"));
    bulk.run_until(Time::from_secs(500));
    bulk.sender.acknowledged().get() as f64 * 8.0 / 500.0 / 1000.0
}

/// RENO-5 and RENO-6: what an outage costs is set by the doubling timer.
#[test]
fn reno_matches_ns2_in_outages() {
    let cells = [
        (5, 0, 200, 10, 1923.0),
        (5, 200, 200, 10, 1882.0),
        (5, 500, 200, 10, 1805.0),
        (5, 1000, 200, 10, 1651.0),
        (5, 2000, 200, 10, 1344.0),
        (5, 5000, 200, 10, 752.0),
        (50, 1000, 200, 10, 1566.0),
        (50, 2000, 200, 10, 1259.0),
        (5, 1000, 1000, 100, 1729.0),
        (5, 2000, 1000, 100, 1344.0),
        (5, 500, 1000, 500, 1632.0),
        (5, 2000, 1000, 500, 1055.0),
    ];
    let mut off = Vec::new();
    for (rtt, outage, min, tick, theirs) in cells {
        let ours = with_outages(rtt, outage, min, tick);
        println!("rtt {rtt} outage {outage} min {min}: ns-2 {theirs}, ours {ours:.0}");
        if (ours - theirs).abs() > 0.05 * theirs {
            off.push((rtt, outage, min, tick, theirs, ours));
        }
    }
    assert!(off.is_empty(), "{off:?}");
}
