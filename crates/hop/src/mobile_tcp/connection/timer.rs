//! The one timer, and what it measures by (MOB-34, MOB-35).

use core::time::Duration;

use lasthop_units::Time;

use crate::mobile_tcp::config::Config;

/// When the timer goes off: at every multiple of `period` from `origin` on.
#[derive(Clone, Copy, Debug)]
pub(in crate::mobile_tcp) struct Ticks {
    origin: Time,
    period: Duration,
}

impl Ticks {
    pub(in crate::mobile_tcp) fn new(origin: Time, period: Duration) -> Self {
        Self { origin, period }
    }

    /// The first tick that is not before `at`.
    pub(in crate::mobile_tcp) fn not_before(&self, at: Time) -> Time {
        let period = u64::try_from(self.period.as_nanos()).unwrap_or(u64::MAX).max(1);
        let since = at.since(self.origin).as_nanos();
        let since = u64::try_from(since).unwrap_or(u64::MAX);
        self.origin + Duration::from_nanos(since.div_ceil(period).saturating_mul(period))
    }

    /// The first tick after `at`.
    pub(in crate::mobile_tcp) fn after(&self, at: Time) -> Time {
        self.not_before(at + Duration::from_nanos(1))
    }

    /// When a timer of length `timeout` that began at `start` is found to have expired. A whole
    /// period at least passes, so that a short round trip just before a tick is none too early.
    pub(in crate::mobile_tcp) fn expiry(&self, start: Time, timeout: Duration) -> Time {
        self.not_before(start + timeout.max(self.period))
    }
}

/// What of the configuration concerns timeouts.
#[derive(Clone, Copy, Debug)]
pub(in crate::mobile_tcp) struct Patience {
    initial: Duration,
    backoff_max: Duration,
    tick: Duration,
}

impl Patience {
    pub(in crate::mobile_tcp) fn of(config: &Config) -> Self {
        let (initial, backoff_max) = (config.rto_initial, config.backoff_max);
        Self { initial, backoff_max, tick: config.tick() }
    }
}

/// Smoothed round trip and mean deviation, as BSD has them (MOB-35).
#[derive(Clone, Copy, Default, Debug)]
pub(in crate::mobile_tcp) struct RoundTrip {
    srtt: Option<Duration>,
    mdev: Duration,
}

impl RoundTrip {
    pub(in crate::mobile_tcp) fn sample(&mut self, rtt: Duration) {
        match self.srtt {
            None => (self.srtt, self.mdev) = (Some(rtt), rtt / 2),
            Some(srtt) => {
                self.mdev = (3 * self.mdev + srtt.abs_diff(rtt)) / 4;
                self.srtt = Some((7 * srtt + rtt) / 8);
            }
        }
    }

    pub(in crate::mobile_tcp) fn srtt(&self) -> Option<Duration> {
        self.srtt
    }

    /// Round trip and four mean deviations, or a tick if that is longer, doubled for each of
    /// `expiries`.
    pub(in crate::mobile_tcp) fn timeout(&self, patience: &Patience, expiries: u32) -> Duration {
        let measured = self.srtt.map(|srtt| srtt + 4 * self.mdev);
        let once = measured.unwrap_or(patience.initial).max(patience.tick);
        once.saturating_mul(1 << expiries.min(16)).min(patience.backoff_max.max(once))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// MOB-34, MOB-35: a timeout is looked at when the timer goes off, so that real ones are 200 to
    /// 400 ms for a short round trip, and always end on a tick.
    #[test]
    fn timeouts_end_on_ticks() {
        let ticks = Ticks::new(Time::from_millis(50), ms(200));
        let expiry = |start, timeout| ticks.expiry(Time::from_millis(start), ms(timeout));
        assert_eq!(expiry(50, 1), Time::from_millis(250));
        assert_eq!(expiry(51, 1), Time::from_millis(450));
        assert_eq!(expiry(249, 1), Time::from_millis(450));
        assert_eq!(expiry(250, 201), Time::from_millis(650));
        assert_eq!(ticks.after(Time::from_millis(250)), Time::from_millis(450));
        assert_eq!(ticks.not_before(Time::from_millis(250)), Time::from_millis(250));
        assert_eq!(ticks.not_before(Time::ZERO), Time::from_millis(50));
    }

    /// MOB-35: smoothed round trip and four mean deviations; backed off, but little.
    #[test]
    fn the_timeout_is_bsds_and_backs_off_little() {
        let config = Config { backoff_max: ms(900), tick: ms(50), ..Config::default() };
        let patience = Patience::of(&config);
        let mut round_trip = RoundTrip::default();
        let timeout = |r: &RoundTrip, expiries| r.timeout(&patience, expiries);
        assert_eq!(timeout(&round_trip, 0), ms(1000));
        assert_eq!(timeout(&round_trip, 3), ms(1000));
        round_trip.sample(ms(80));
        assert_eq!(timeout(&round_trip, 0), ms(240));
        for _ in 0..100 {
            round_trip.sample(ms(80));
        }
        assert_eq!(timeout(&round_trip, 0).as_millis(), 80);
        assert_eq!(timeout(&round_trip, 1).as_millis(), 160);
        assert_eq!(timeout(&round_trip, 9), ms(900));

        let mut short = RoundTrip::default();
        short.sample(Duration::ZERO);
        assert_eq!([0, 1, 2].map(|n| timeout(&short, n)), [ms(50), ms(100), ms(200)]);
    }
}
