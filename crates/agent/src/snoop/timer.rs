//! How long an acknowledgement may take to come back over the hop.

use lasthop_units::{Duration, Time};

use super::config::{Config, Timer};
use crate::rtt::{LONGEST, RtoBounds, Rtt};

const MS: u64 = 1_000_000;

/// A pinned timer of zero would fire for ever at one time.
const SHORTEST: Duration = Duration::from_millis(1);

/// A segment that was acknowledged, as a sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// When it crossed the hop last.
    pub(super) at: Time,
    /// Its acknowledgement tells the hop's round trip: it was sent once and waited for no other.
    pub(super) clean: bool,
}

/// Estimates the round trip by either rule; a timer that is longer than any fixed host's is of no
/// use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Estimator {
    measured: Rtt,
    /// ns-2's smoothed round trip and deviation, in nanoseconds: at first 0.1 and 0.25 s.
    stock: (u64, u64),
}

impl Estimator {
    pub(super) fn new(config: &Config) -> Self {
        let least = config.tick.max(SHORTEST);
        let most = LONGEST.max(least);
        let bounds = RtoBounds { initial: config.initial, least, most };
        Self { measured: Rtt::new(bounds), stock: (100 * MS, 250 * MS) }
    }

    pub(super) fn sample(&mut self, now: Time, timer: Timer, sample: Sample) {
        let took = now.since(sample.at);
        match timer {
            Timer::Measured if sample.clean => self.measured.sample(took),
            Timer::Stock if !took.is_zero() => self.measure_as_stock(took),
            _ => {}
        }
    }

    /// So short a time can be that between a segment and its acknowledgement, with room for what
    /// clocks and schedulers do.
    pub(super) fn allows(&self, took: Duration) -> bool {
        self.measured.least().is_none_or(|least| took >= least / 2)
    }

    /// The smoothed value follows the sample before the deviation is taken from it.
    fn measure_as_stock(&mut self, took: Duration) {
        let took = took.min(LONGEST).as_nanos() as u64;
        let (srtt, var) = self.stock;
        let srtt = (srtt + 7 * took) / 8;
        let off = srtt.abs_diff(took);
        self.stock = (srtt, if var == 0 { off } else { (off + 7 * var) / 8 });
    }

    pub(super) fn timeout(&self, config: &Config) -> Duration {
        match config.timer {
            Timer::Pinned(after) => after.max(SHORTEST),
            Timer::Stock => {
                let (srtt, var) = self.stock;
                let after = Duration::from_nanos(srtt + 4 * var).min(LONGEST);
                after.max(config.tick).max(SHORTEST)
            }
            Timer::Measured => self.measured.timeout(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(timer: Timer, samples: &[(u64, bool)]) -> Duration {
        let config = Config { timer, ..Config::default() };
        let mut estimator = Estimator::new(&config);
        for (took, clean) in samples {
            let sample = Sample { at: Time::from_secs(1), clean: *clean };
            estimator.sample(Time::from_millis(1000 + took), timer, sample);
        }
        estimator.timeout(&config)
    }

    /// SNP-6: at least a tick of 100 ms.
    #[test]
    fn a_measured_timer_is_srtt_and_four_deviations_but_at_least_a_tick() {
        assert_eq!(estimate(Timer::Measured, &[]), Duration::from_secs(1));
        assert_eq!(estimate(Timer::Measured, &[(80, true)]), Duration::from_millis(240));
        assert_eq!(estimate(Timer::Measured, &[(10, true)]), Duration::from_millis(100));
        let many = [(80, true); 60];
        assert_eq!(estimate(Timer::Measured, &many), Duration::from_millis(100));
    }

    #[test]
    fn a_measured_timer_ignores_samples_that_tell_of_a_recovery() {
        let recovery = [(80, true), (900, false), (2000, false)];
        assert_eq!(estimate(Timer::Measured, &recovery), Duration::from_millis(240));
    }

    #[test]
    fn a_pinned_timer_never_moves_and_is_never_zero() {
        let pinned = Timer::Pinned(Duration::from_millis(100));
        assert_eq!(estimate(pinned, &[(900, true)]), Duration::from_millis(100));
        assert_eq!(estimate(Timer::Pinned(Duration::ZERO), &[]), SHORTEST);
    }

    /// SNP-6: ns-2's begins at 0.1 + 4 x 0.25 s. After a sample of 900 ms srtt is 800 ms and the
    /// deviation (100 + 7 x 250) / 8 ms.
    #[test]
    fn the_stock_timer_grows_with_what_recovery_takes() {
        assert_eq!(estimate(Timer::Stock, &[]), Duration::from_millis(1100));
        assert_eq!(estimate(Timer::Stock, &[(900, false)]), Duration::from_micros(1_725_000));
    }
}
