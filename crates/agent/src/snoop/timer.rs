//! How long an acknowledgement may take to come back over the hop.

use lasthop_units::{Duration, Time};

use super::config::{Config, Timer};

const MS: u64 = 1_000_000;

/// A pinned timer of zero would fire for ever at one time.
const SHORTEST: Duration = Duration::from_millis(1);

/// A measured timer that is longer than any fixed host's is of no use.
const LONGEST: u64 = 60_000 * MS;

/// A segment that was acknowledged, as a sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// When it crossed the hop last.
    pub(super) at: Time,
    /// Its acknowledgement tells the hop's round trip: it was sent once and waited for no other.
    pub(super) clean: bool,
}

/// Estimates the round trip, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Estimator {
    smoothed: Option<(u64, u64)>,
}

impl Estimator {
    pub(super) fn sample(&mut self, now: Time, timer: Timer, sample: Sample) {
        let took = now.since(sample.at);
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).min(3600 * 1000 * MS);
        match timer {
            Timer::Measured if sample.clean => self.measure(took),
            Timer::Stock if took > 0 => self.measure_as_stock(took),
            _ => {}
        }
    }

    /// RFC 6298 section 2.
    fn measure(&mut self, took: u64) {
        self.smoothed = Some(match self.smoothed {
            None => (took, took / 2),
            Some((srtt, var)) => ((7 * srtt + took) / 8, (3 * var + srtt.abs_diff(took)) / 4),
        });
    }

    /// The smoothed value follows the sample before the deviation is taken from it.
    fn measure_as_stock(&mut self, took: u64) {
        let (srtt, var) = self.stock();
        let srtt = (srtt + 7 * took) / 8;
        let off = srtt.abs_diff(took);
        self.smoothed = Some((srtt, if var == 0 { off } else { (off + 7 * var) / 8 }));
    }

    fn stock(&self) -> (u64, u64) {
        self.smoothed.unwrap_or((100 * MS, 250 * MS))
    }

    pub(super) fn timeout(&self, config: &Config) -> Duration {
        let after = |(srtt, var): (u64, u64)| Duration::from_nanos((srtt + 4 * var).min(LONGEST));
        match config.timer {
            Timer::Pinned(after) => after.max(SHORTEST),
            Timer::Stock => after(self.stock()).max(config.tick).max(SHORTEST),
            Timer::Measured => {
                self.smoothed.map_or(config.initial, after).max(config.tick).max(SHORTEST)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(timer: Timer, samples: &[(u64, bool)]) -> Duration {
        let config = Config { timer, ..Config::default() };
        let mut estimator = Estimator::default();
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
