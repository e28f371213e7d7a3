//! The round trip of a hop, for timers that must be finer than TCP's.

use lasthop_units::{Duration, Time};

/// Bounds of a timeout that follows a round-trip estimate (RFC 6298 section 2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RtoBounds {
    /// Before the first sample.
    pub initial: Duration,
    /// The least.
    pub least: Duration,
    /// The most, also after several expiries.
    pub most: Duration,
}

/// For one hop: half a second before the first sample, then from 20 ms to 10 s.
impl Default for RtoBounds {
    fn default() -> Self {
        Self {
            initial: Duration::from_millis(500),
            least: Duration::from_millis(20),
            most: Duration::from_secs(10),
        }
    }
}

/// More than any hop takes; the arithmetic cannot overflow.
pub(crate) const LONGEST: Duration = Duration::from_secs(60);

/// Doublings that are counted.
const MOST_DOUBLINGS: u32 = 20;

/// Jacobson's estimator (RFC 6298 section 2) without the floor of a second and without a clock's
/// grain: what is measured is one hop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rtt {
    bounds: RtoBounds,
    /// The smoothed round trip and its mean deviation, in nanoseconds.
    smoothed: Option<(u64, u64)>,
    least: Option<Duration>,
}

impl Rtt {
    /// An estimator without a sample.
    pub(crate) const fn new(bounds: RtoBounds) -> Self {
        Self { bounds, smoothed: None, least: None }
    }

    /// Something that was sent once took this long to be answered.
    pub(crate) fn sample(&mut self, took: Duration) {
        let took = took.min(LONGEST);
        let ns = took.as_nanos() as u64;
        self.least = Some(self.least.map_or(took, |least| least.min(took)));
        self.smoothed = Some(match self.smoothed {
            None => (ns, ns / 2),
            Some((srtt, var)) => ((7 * srtt + ns) / 8, (3 * var + srtt.abs_diff(ns)) / 4),
        });
    }

    /// The smoothed round trip; none before the first sample.
    pub(crate) fn srtt(&self) -> Option<Duration> {
        self.smoothed.map(|(srtt, _)| Duration::from_nanos(srtt))
    }

    /// The shortest round trip seen.
    pub(crate) const fn least(&self) -> Option<Duration> {
        self.least
    }

    /// How long to wait for an answer after `doublings` vain attempts.
    pub(crate) fn timeout(&self, doublings: u32) -> Duration {
        let RtoBounds { initial, least, most } = self.bounds;
        let measured = |(srtt, var): (u64, u64)| Duration::from_nanos(srtt + 4 * var);
        let once = self.smoothed.map_or(initial, measured).max(least);
        once.saturating_mul(1 << doublings.min(MOST_DOUBLINGS)).min(most)
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
    fn the_timeout_follows_the_samples_within_its_bounds() {
        let bounds = RtoBounds { initial: 500 * MS, least: 20 * MS, most: 900 * MS };
        let mut rtt = Rtt::new(bounds);
        assert_eq!((rtt.timeout(0), rtt.srtt(), rtt.least()), (500 * MS, None, None));
        rtt.sample(40 * MS);
        assert_eq!(rtt.timeout(0), (40 + 4 * 20) * MS);
        rtt.sample(40 * MS);
        assert_eq!(rtt.timeout(0), (40 + 4 * 15) * MS);
        assert_eq!(rtt.timeout(1), 200 * MS);
        assert_eq!(rtt.timeout(40), 900 * MS);
        for _ in 0..100 {
            rtt.sample(2 * MS);
        }
        assert_eq!(rtt.timeout(0), 20 * MS);
        assert_eq!((rtt.srtt().map(|srtt| srtt < 3 * MS), rtt.least()), (Some(true), Some(2 * MS)));
    }

    #[test]
    fn absurd_samples_do_not_overflow() {
        let mut rtt = Rtt::new(RtoBounds { initial: MS, least: MS, most: LONGEST });
        for took in [Duration::MAX, Duration::ZERO, Duration::MAX] {
            rtt.sample(took);
        }
        assert_eq!(rtt.timeout(u32::MAX), LONGEST);
    }
}
