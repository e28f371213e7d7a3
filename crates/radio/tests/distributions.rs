//! What is claimed to be exponential or geometric is so, and not merely of the right mean: samples are
//! taken from what a link does to packets, and held against the whole distribution.

#![allow(clippy::expect_used)]

use lasthop_radio::{Errors, Gap, Link, LinkConfig, Loss, Pacing};
use lasthop_units::{Bytes, Duration, Rate, Seed, Stream, Time};
use statrs::distribution::{ChiSquared, ContinuousCDF, DiscreteCDF, Exp, Geometric};

/// What is called a fit: a sample of the distribution itself is refused once in a hundred times, and
/// the seeds here are none of those.
const SIGNIFICANCE: f64 = 0.01;
/// A full packet's time at the link's rate: what the link does is seen no finer.
const PACKET: Duration = Duration::from_millis(1);
/// Classes of fewer samples than this one are joined.
const LEAST_EXPECTED: f64 = 10.0;

/// Whether `n` packets, sent back to back, arrived.
fn arrivals(errors: Errors, seed: u64, n: u64) -> Vec<bool> {
    let config = LinkConfig {
        pacing: Pacing::Rate(Rate::from_mbps(12)),
        losses: vec![Loss::lose(errors)],
        ..LinkConfig::default()
    };
    let mut link = Link::new(&config, Seed::from_u64(seed), Time::ZERO).expect("a good link");
    let mut arrived = vec![false; n as usize];
    for i in 0..=n {
        let now = Time::ZERO + PACKET * i as u32;
        while let Some(delivery) = link.pop(now) {
            arrived[delivery.packet as usize] = true;
        }
        if i < n {
            link.push(now, Bytes::new(1500), i).expect("room");
        }
    }
    arrived
}

/// Lengths of the runs of `kind`, without the first and the last one, which were cut.
fn runs(arrived: &[bool], kind: bool) -> Vec<f64> {
    let mut runs: Vec<(bool, f64)> = Vec::new();
    for packet in arrived {
        match runs.last_mut() {
            Some((same, length)) if same == packet => *length += 1.0,
            _ => runs.push((*packet, 1.0)),
        }
    }
    let whole = runs.len().saturating_sub(1);
    runs[1..whole].iter().filter(|(same, _)| *same == kind).map(|(_, length)| *length).collect()
}

fn mean(sample: &[f64]) -> f64 {
    sample.iter().sum::<f64>() / sample.len() as f64
}

/// Kolmogorov and Smirnov's test: whether the sample may be of this distribution. The bound on the
/// distance is that of many samples, -ln(significance / 2) / 2 under the root.
fn fits(sample: &[f64], cdf: impl Fn(f64) -> f64) -> bool {
    let mut sorted = sample.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len() as f64;
    let distance = sorted
        .iter()
        .enumerate()
        .map(|(i, x)| {
            let (below, above) = (i as f64 / n, (i + 1) as f64 / n);
            (cdf(*x) - below).abs().max((cdf(*x) - above).abs())
        })
        .fold(0.0, f64::max);
    distance < (-(SIGNIFICANCE / 2.0).ln() / (2.0 * n)).sqrt()
}

fn is_exponential(sample: &[f64], mean: f64) -> bool {
    let exponential = Exp::new(1.0 / mean).expect("a mean");
    fits(sample, |x| exponential.cdf(x))
}

/// Pearson's test on the counts of 1, 2, 3 and so on.
fn is_geometric(sample: &[f64], mean: f64) -> bool {
    let geometric = Geometric::new(1.0 / mean).expect("a mean");
    let n = sample.len() as f64;
    let (mut sum, mut classes, mut from) = (0.0, 0, 0);
    loop {
        // The tail is one class.
        let rest = n * (1.0 - geometric.cdf(from));
        let enough = |to: u64| n * (geometric.cdf(to) - geometric.cdf(from)) >= LEAST_EXPECTED;
        let next = (from + 1..from + 1000).find(|to| enough(*to));
        let to = next.filter(|to| n * (1.0 - geometric.cdf(*to)) >= LEAST_EXPECTED);
        let expected = to.map_or(rest, |to| n * (geometric.cdf(to) - geometric.cdf(from)));
        let within = |x: &&f64| **x > from as f64 && to.is_none_or(|to| **x <= to as f64);
        let seen = sample.iter().filter(within).count() as f64;
        sum += (seen - expected).powi(2) / expected;
        classes += 1;
        match to {
            Some(to) => from = to,
            None => break,
        }
    }
    assert!(classes > 5, "too few samples to tell");
    let chi = ChiSquared::new(f64::from(classes - 1)).expect("classes");
    1.0 - chi.cdf(sum) > SIGNIFICANCE
}

/// No value says anything of the next one.
fn is_without_memory(sample: &[f64]) -> bool {
    let mean = mean(sample);
    let square: f64 = sample.iter().map(|x| (x - mean).powi(2)).sum();
    let pairs: f64 = sample.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum();
    (pairs / square).abs() < 3.0 / (sample.len() as f64).sqrt()
}

fn drawn(n: usize, draw: impl Fn(&mut Stream) -> f64) -> Vec<f64> {
    let mut stream = Seed::from_u64(7).stream("drawn");
    (0..n).map(|_| draw(&mut stream)).collect()
}

/// The tests themselves: what has the same mean, and another distribution, is refused.
#[test]
fn other_distributions_of_the_same_mean_are_refused() {
    let uniform = |s: &mut Stream| 600.0 * s.uniform();
    let exponential = |s: &mut Stream| -300.0 * (1.0 - s.uniform()).ln();
    let halves = |s: &mut Stream| -150.0 * ((1.0 - s.uniform()).ln() + (1.0 - s.uniform()).ln());
    assert!(is_exponential(&drawn(4000, exponential), 300.0));
    assert!(!is_exponential(&drawn(4000, exponential), 330.0), "another mean");
    assert!(!is_exponential(&drawn(4000, uniform), 300.0), "uniform");
    assert!(!is_exponential(&drawn(4000, halves), 300.0), "the sum of two");
    assert!(!is_exponential(&[300.0; 4000], 300.0), "constant");

    let geometric =
        |s: &mut Stream| 1.0 + ((1.0 - s.uniform()).ln() / (2.0_f64 / 3.0).ln()).floor();
    let uniform = |s: &mut Stream| 1.0 + s.below(5) as f64;
    let one_or_many = |s: &mut Stream| if s.chance(0.5) { 1.0 } else { 5.0 };
    assert!(is_geometric(&drawn(4000, geometric), 3.0));
    assert!(!is_geometric(&drawn(4000, geometric), 3.3), "another mean");
    assert!(!is_geometric(&drawn(4000, uniform), 3.0), "uniform");
    assert!(!is_geometric(&drawn(4000, one_or_many), 3.0), "one or five");
    assert!(!is_geometric(&[3.0; 4000], 3.0), "constant");

    assert!(is_without_memory(&drawn(4000, exponential)));
    let mut sorted = drawn(4000, exponential);
    sorted.sort_by(f64::total_cmp);
    assert!(!is_without_memory(&sorted));
}

/// LNK-4: gaps between bursts are exponential in packets, and bursts geometric. Gaps are so long that
/// hardly one is less than a packet, which would make one burst of two.
#[test]
fn gaps_in_packets_are_exponential_and_bursts_geometric() {
    let errors = Errors::Burst { gap: Gap::Packets(400.0), length: 3.0 };
    let arrived = arrivals(errors, 3, 1_600_000);
    let (gaps, bursts) = (runs(&arrived, true), runs(&arrived, false));
    assert!(is_exponential(&gaps, 400.0), "{}", mean(&gaps));
    assert!(is_geometric(&bursts, 3.0), "{}", mean(&bursts));
    assert!(is_without_memory(&gaps) && is_without_memory(&bursts));
}

/// LNK-4, the option: the same where gaps are told in time.
#[test]
fn gaps_in_time_are_exponential_and_bursts_geometric() {
    let errors = Errors::Burst { gap: Gap::Time(PACKET * 400), length: 3.0 };
    let arrived = arrivals(errors, 3, 1_600_000);
    let (gaps, bursts) = (runs(&arrived, true), runs(&arrived, false));
    assert!(is_exponential(&gaps, 400.0), "{}", mean(&gaps));
    assert!(is_geometric(&bursts, 3.0), "{}", mean(&bursts));
    assert!(is_without_memory(&gaps) && is_without_memory(&bursts));
}

/// LNK-4, ERR-6: what is lost one by one has geometric gaps, and geometric runs.
#[test]
fn uniform_losses_have_geometric_runs() {
    let arrived = arrivals(Errors::Uniform(0.4), 3, 60_000);
    assert!(is_geometric(&runs(&arrived, true), 2.5));
    assert!(is_geometric(&runs(&arrived, false), 1.0 / 0.6));
}

/// ERR-1: fades and the good times between them are exponential, with the means that follow from the
/// mean fade and the share of time. A packet that a fade only touches is hit too, which makes a fade a
/// packet longer, and the good time after it one shorter.
#[test]
fn fades_and_good_times_are_exponential() {
    let errors = Errors::Fade { mean: PACKET * 300, share: 0.3 };
    let arrived = arrivals(errors, 3, 3_000_000);
    let longer = |by: f64| move |length: f64| length + by;
    let fades: Vec<f64> = runs(&arrived, false).into_iter().map(longer(-1.0)).collect();
    let good: Vec<f64> = runs(&arrived, true).into_iter().map(longer(1.0)).collect();
    assert!(is_exponential(&fades, 300.0), "{}", mean(&fades));
    assert!(is_exponential(&good, 700.0), "{}", mean(&good));
    assert!(is_without_memory(&fades) && is_without_memory(&good));
}
