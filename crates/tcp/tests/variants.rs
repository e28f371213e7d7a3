//! What tells the answers to loss apart, on a path of 10 Mbit/s and 100 ms.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::Bulk;
use lasthop_tcp::{Algorithm, Config, Rto, Window};
use lasthop_units::{Bytes, Duration, Time};

fn config(algorithm: Algorithm) -> Config {
    let sack = matches!(algorithm, Algorithm::Sack | Algorithm::Cubic);
    let ns2 = Config::ns2();
    Config {
        algorithm,
        sack,
        // Longer than any repair below takes, so that the timer does not end it.
        rto: Rto { min: Duration::from_secs(2), ..ns2.rto },
        cwnd_max: Some(Window::Segments(40)),
        initial_ssthresh: Some(Window::Segments(20)),
        ..ns2
    }
}

/// 30 s in which the given transmissions are lost.
fn run(config: Config, lost: &[u64]) -> Bulk {
    let mut bulk = Bulk::clean(config, Duration::from_millis(100));
    bulk.drop = lost.to_vec();
    bulk.run_until(Time::from_secs(30));
    bulk
}

const ALL: [Algorithm; 5] =
    [Algorithm::Tahoe, Algorithm::Reno, Algorithm::NewReno, Algorithm::Sack, Algorithm::Cubic];

/// RENO-3: one loss costs every variant one retransmission and no timeout.
#[test]
fn one_loss_is_repaired_without_a_timeout() {
    for algorithm in ALL {
        let bulk = run(config(algorithm), &[200]);
        let stats = bulk.sender.stats();
        assert_eq!((stats.timeouts, stats.fast_retransmits), (0, 1), "{algorithm:?}");
        let again = if algorithm == Algorithm::Tahoe { 1..30 } else { 1..2 };
        assert!(again.contains(&stats.retransmits), "{algorithm:?} {}", stats.retransmits);
    }
}

/// Three losses in one window: Reno waits for its timer, the others do not.
#[test]
fn several_losses_in_a_window_stop_reno_only() {
    let lost = [200, 203, 206];
    assert!(run(config(Algorithm::Reno), &lost).sender.stats().timeouts > 0);
    for algorithm in [Algorithm::NewReno, Algorithm::Sack, Algorithm::Cubic] {
        let bulk = run(config(algorithm), &lost);
        let stats = bulk.sender.stats();
        assert_eq!((stats.timeouts, stats.retransmits), (0, 3), "{algorithm:?}");
    }
}

/// SACK repairs in one round trip what costs NewReno one for each loss.
#[test]
fn sack_repairs_faster_than_newreno() {
    let lost: Vec<u64> = (200..216).step_by(2).collect();
    let done = |algorithm| {
        let mut bulk = Bulk::clean(config(algorithm), Duration::from_millis(100));
        bulk.drop = lost.clone();
        while bulk.sender.stats().fast_retransmits == 0 || bulk.sender.probe().recovering {
            bulk.run_until(bulk.now + Duration::from_millis(5));
            assert!(bulk.now < Time::from_secs(30), "{algorithm:?}");
        }
        bulk.now
    };
    assert!(done(Algorithm::Sack) + Duration::from_millis(300) < done(Algorithm::NewReno));
}

/// RFC 9438: CUBIC gives up 30 %, returns quickly to where it was, and then grows past it.
#[test]
fn cubic_returns_to_its_old_window_and_passes_it() {
    let mut free = config(Algorithm::Cubic);
    free.cwnd_max = None;
    free.initial_ssthresh = Some(Window::Segments(60));
    free.loss_base = lasthop_tcp::LossBase::Flight;
    let mut bulk = Bulk::clean(free, Duration::from_millis(100));
    bulk.drop = vec![2000];
    while bulk.sender.stats().fast_retransmits == 0 {
        bulk.run_until(bulk.now + Duration::from_millis(1));
    }
    let after = bulk.sender.probe();
    while bulk.sender.probe().recovering {
        bulk.run_until(bulk.now + Duration::from_millis(1));
    }
    let floor = bulk.sender.probe().cwnd.get();
    assert_eq!(Bytes::new(floor), after.ssthresh);
    let old = floor as f64 / 0.7;
    bulk.run_until(bulk.now + Duration::from_secs(3));
    assert!(bulk.sender.probe().cwnd.get() as f64 > 0.9 * old);
    bulk.run_until(bulk.now + Duration::from_secs(3));
    assert!(bulk.sender.probe().cwnd.get() as f64 > old);
}

/// RENO-5: with BSD's clock the same loss pattern costs whole ticks.
#[test]
fn coarse_ticks_cost_time() {
    let mut coarse = config(Algorithm::Reno);
    coarse.rto = Config::bsd_1990s().rto;
    let lost = [200, 203, 206, 500, 503, 506];
    let mut quick = config(Algorithm::Reno);
    quick.rto = Config::ns2().rto;
    let fine = run(quick, &lost).sender.acknowledged();
    let bsd = run(coarse, &lost).sender.acknowledged();
    assert!(bsd < fine, "{bsd} {fine}");
}

/// The same inputs give the same outcome, to the last counter.
#[test]
fn a_run_repeats_itself_exactly() {
    for algorithm in ALL {
        let (a, b) = (run(config(algorithm), &[50, 99]), run(config(algorithm), &[50, 99]));
        assert_eq!(a.sender.stats(), b.sender.stats());
        assert_eq!(a.receiver.unwrap().stats(), b.receiver.unwrap().stats());
    }
}
