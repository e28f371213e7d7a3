//! The round trip of the hop, for timers that must be finer than TCP's.

use lasthop_units::{Duration, Time};

/// Jacobson's estimator (RFC 6298 section 2) without the floor of a second and without a clock's
/// grain: what is measured is one hop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HopRtt {
    /// The smoothed round trip and its mean deviation, in nanoseconds.
    estimate: Option<(u64, u64)>,
    least: Option<Duration>,
    initial: Duration,
    floor: Duration,
}

/// More than any hop takes; the arithmetic cannot overflow.
const LONGEST: Duration = Duration::from_secs(60);

impl HopRtt {
    /// An estimator that says `initial` before its first sample and never less than `floor`.
    pub(crate) const fn new(initial: Duration, floor: Duration) -> Self {
        Self { estimate: None, least: None, initial, floor }
    }

    /// Something that was sent once took this long to be answered.
    pub(crate) fn sample(&mut self, took: Duration) {
        let took = took.min(LONGEST);
        let ns = took.as_nanos() as u64;
        self.least = Some(self.least.map_or(took, |least| least.min(took)));
        self.estimate = Some(match self.estimate {
            None => (ns, ns / 2),
            Some((srtt, var)) => ((7 * srtt + ns) / 8, (3 * var + srtt.abs_diff(ns)) / 4),
        });
    }

    /// The smoothed round trip; none before the first sample.
    pub(crate) fn srtt(&self) -> Option<Duration> {
        self.estimate.map(|(srtt, _)| Duration::from_nanos(srtt))
    }

    /// The shortest round trip seen.
    pub(crate) const fn least(&self) -> Option<Duration> {
        self.least
    }

    /// How long to wait for an answer after `doublings` vain attempts.
    pub(crate) fn timeout(&self, doublings: u32) -> Duration {
        let base = match self.estimate {
            None => self.initial,
            Some((srtt, var)) => Duration::from_nanos(srtt.saturating_add(4 * var)),
        };
        base.max(self.floor).saturating_mul(1 << doublings.min(6)).min(LONGEST)
    }

    /// When to wait no longer for the answer to what was sent at `sent`.
    pub(crate) fn deadline(&self, sent: Time, doublings: u32) -> Time {
        sent + self.timeout(doublings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_timeout_follows_the_samples_above_its_floor() {
        let mut rtt = HopRtt::new(300 * MS, 10 * MS);
        assert_eq!((rtt.timeout(0), rtt.srtt(), rtt.least()), (300 * MS, None, None));
        rtt.sample(20 * MS);
        assert_eq!(rtt.timeout(0), 60 * MS);
        assert_eq!(rtt.timeout(2), 240 * MS);
        for _ in 0..100 {
            rtt.sample(2 * MS);
        }
        assert_eq!(rtt.timeout(0), 10 * MS);
        assert_eq!(rtt.least(), Some(2 * MS));
    }

    #[test]
    fn absurd_samples_do_not_overflow() {
        let mut rtt = HopRtt::new(MS, MS);
        for took in [Duration::MAX, Duration::ZERO, Duration::MAX] {
            rtt.sample(took);
        }
        assert_eq!(rtt.timeout(u32::MAX), LONGEST);
    }
}
