//! The retransmission timeout (RFC 6298), in ticks of the measuring clock.

use lasthop_units::{Duration, Time};

use crate::config::{BackoffReset, Rto};

/// srtt is kept times 8 and the deviation times 4, as in the appendix of Jacobson's paper, so that
/// whole numbers lose nothing that matters even when a tick is 500 ms.
const SRTT_SHIFT: u32 = 3;
const VAR_SHIFT: u32 = 2;

/// An hour, in nanoseconds: more than any path has, and the arithmetic cannot overflow.
const LONGEST: u64 = 3_600_000_000_000;

/// Estimates the round trip and says how long to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Estimator {
    config: Rto,
    /// Nanoseconds of one tick, and of the bounds.
    tick: u64,
    min: u64,
    max: u64,
    /// Smoothed round trip in ticks, times 8; zero before the first sample.
    srtt: u64,
    /// The same as a time, for whoever asks at every acknowledgement.
    smoothed: Option<Duration>,
    /// Mean deviation in ticks, times 4.
    rttvar: u64,
    /// The timeout without doublings, in nanoseconds.
    base: u64,
    /// Doublings.
    backoff: u32,
}

/// What travels with a connection.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RttState {
    /// The smoothed round trip; zero if there is no sample.
    pub srtt: Duration,
    /// Its mean deviation.
    pub rttvar: Duration,
    /// The timeout before doubling.
    pub rto: Duration,
    /// Doublings.
    pub backoff: u32,
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

impl Estimator {
    pub(crate) fn new(config: Rto) -> Self {
        let tick = nanos(config.tick).max(1);
        let (min, max) = (nanos(config.min), nanos(config.max));
        Self {
            config,
            tick,
            min,
            max,
            srtt: 0,
            smoothed: None,
            rttvar: 0,
            base: nanos(config.initial),
            backoff: 0,
        }
    }

    /// Takes a sample of something that was sent at `sent` and answered at `now`.
    pub(crate) fn sample(&mut self, sent: Time, now: Time) {
        let ticks = if self.tick == 1 {
            now.as_nanos().saturating_sub(sent.as_nanos())
        } else {
            // The ticks that passed between: what a counter that the tick increments would show.
            (now.as_nanos() / self.tick).saturating_sub(sent.as_nanos() / self.tick)
        };
        self.update(ticks);
        self.backoff = 0;
    }

    fn update(&mut self, ticks: u64) {
        let ticks = ticks.min(LONGEST / self.tick).max(1);
        if self.srtt == 0 {
            self.set_srtt(ticks << SRTT_SHIFT);
            self.rttvar = ticks << (VAR_SHIFT - 1);
        } else {
            let off = ticks.abs_diff(self.srtt >> SRTT_SHIFT);
            self.set_srtt((self.srtt + ticks - (self.srtt >> SRTT_SHIFT)).max(1));
            self.rttvar = (self.rttvar + off - (self.rttvar >> VAR_SHIFT)).max(1);
        }
        self.base = self.timeout_from_estimates();
    }

    fn timeout_from_estimates(&self) -> u64 {
        let ticks = (self.srtt >> SRTT_SHIFT) + self.rttvar;
        ticks.saturating_mul(self.tick).max(self.min)
    }

    /// Doubles the timeout after an expiry.
    pub(crate) fn back_off(&mut self) {
        if self.unbounded() < self.max {
            self.backoff += 1;
        }
        if self.config.forget_after.is_some_and(|n| self.backoff == n) && self.srtt != 0 {
            self.rttvar += self.srtt >> SRTT_SHIFT;
            self.set_srtt(0);
        }
    }

    /// Whether an acknowledgement without a sample ends the doubling.
    #[inline]
    pub(crate) fn on_new_ack(&mut self) {
        if self.config.backoff_reset == BackoffReset::AnyAck {
            self.backoff = 0;
        }
    }

    /// A SYN was lost: data begins with at least 3 s (RFC 6298 section 5.7).
    pub(crate) fn syn_was_lost(&mut self) {
        if self.srtt == 0 {
            self.base = self.base.max(3_000_000_000);
            self.backoff = 0;
        }
    }

    #[inline]
    fn unbounded(&self) -> u64 {
        self.base.saturating_mul(1u64.checked_shl(self.backoff).unwrap_or(u64::MAX))
    }

    /// The timeout with its doublings, in nanoseconds.
    #[inline]
    fn timeout(&self) -> u64 {
        self.unbounded().min(self.max)
    }

    /// The timeout with its doublings.
    pub(crate) fn rto(&self) -> Duration {
        Duration::from_nanos(self.timeout())
    }

    /// The timeout before doubling.
    pub(crate) fn base(&self) -> Duration {
        Duration::from_nanos(self.base)
    }

    /// When a timer that is started at `now` expires.
    #[inline]
    pub(crate) fn deadline(&self, now: Time) -> Time {
        let timeout = self.timeout();
        if self.config.fires_on_ticks {
            // A counter of whole ticks that begins somewhere within one.
            let ticks = (now.as_nanos() / self.tick).saturating_add(timeout.div_ceil(self.tick));
            return Time::from_nanos(ticks.saturating_mul(self.tick));
        }
        Time::from_nanos(now.as_nanos().saturating_add(timeout))
    }

    #[inline]
    pub(crate) fn srtt(&self) -> Option<Duration> {
        self.smoothed
    }

    fn set_srtt(&mut self, srtt: u64) {
        self.srtt = srtt;
        let time = Duration::from_nanos((srtt * self.tick) >> SRTT_SHIFT);
        self.smoothed = (srtt > 0).then_some(time);
    }

    pub(crate) fn rttvar(&self) -> Duration {
        Duration::from_nanos((self.rttvar * self.tick) >> VAR_SHIFT)
    }

    pub(crate) fn state(&self) -> RttState {
        RttState {
            srtt: self.srtt().unwrap_or_default(),
            rttvar: self.rttvar(),
            rto: self.base(),
            backoff: self.backoff,
        }
    }

    pub(crate) fn restore(config: Rto, state: RttState) -> Self {
        let mut it = Self::new(config);
        let bounded = |d: Duration| nanos(d).min(LONGEST);
        it.set_srtt((bounded(state.srtt) << SRTT_SHIFT) / it.tick);
        it.rttvar = (bounded(state.rttvar) << VAR_SHIFT) / it.tick;
        it.base = bounded(state.rto).max(it.min);
        it.backoff = state.backoff.min(63);
        it
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    /// RENO-5: RTO = SRTT + 4 RTTVAR; the first sample R gives R + 4 R/2.
    #[test]
    fn the_first_sample_gives_three_round_trips() {
        let mut e = Estimator::new(Config::modern().rto);
        assert_eq!(e.rto(), Duration::from_secs(1));
        e.sample(at(0), at(100));
        assert_eq!(e.rto(), Duration::from_millis(300));
        assert_eq!(
            (e.srtt(), e.rttvar()),
            (Some(Duration::from_millis(100)), Duration::from_millis(50))
        );
        e.sample(at(0), at(180));
        assert_eq!(e.srtt(), Some(Duration::from_millis(110)));
        // 3/4 * 50 + 1/4 * 80
        assert_eq!(e.rttvar(), Duration::from_micros(57_500));
    }

    /// RENO-5: doubling on each expiry up to a cap, kept until a sample.
    #[test]
    fn doublings_stop_at_the_cap_and_end_with_a_sample() {
        let mut e = Estimator::new(Config::ns2().rto);
        e.sample(at(0), at(50));
        assert_eq!(e.rto(), Duration::from_millis(200));
        let mut seen = alloc::vec::Vec::new();
        for _ in 0..11 {
            e.back_off();
            seen.push(e.rto().as_millis() as u64);
        }
        assert_eq!(seen[..4], [400, 800, 1600, 3200]);
        assert_eq!(seen[10], 60_000);
        e.on_new_ack();
        assert_eq!(e.rto(), Duration::from_secs(60));
        e.sample(at(0), at(50));
        assert_eq!(e.rto(), e.base());
    }

    /// RENO-5: BSD's clock ticks twice a second.
    #[test]
    fn a_coarse_clock_counts_ticks_and_fires_on_them() {
        let mut e = Estimator::new(Config::bsd_1990s().rto);
        e.sample(at(400), at(600));
        assert_eq!(e.srtt(), Some(Duration::from_millis(500)));
        assert_eq!(e.rto(), Duration::from_millis(1500));
        assert_eq!(e.deadline(at(600)), at(2000));
        assert_eq!(e.deadline(at(1000)), at(2500));
        for _ in 0..40 {
            e.sample(at(1010), at(1090));
        }
        assert!(e.rto() >= Duration::from_secs(1));
        assert!(e.rto() <= Duration::from_millis(1500), "{:?}", e.rto());
    }

    /// RENO-5: nothing that a clock or a peer does makes the arithmetic overflow.
    #[test]
    fn extremes_do_not_overflow() {
        let mut e = Estimator::new(Config::modern().rto);
        e.sample(at(0), Time::from_secs(3600));
        (0..200).for_each(|_| e.back_off());
        assert_eq!(e.rto(), Duration::from_secs(120));
        assert_eq!(e.deadline(Time::NEVER), Time::NEVER);
        let odd = RttState {
            srtt: Duration::MAX,
            rttvar: Duration::MAX,
            rto: Duration::MAX,
            backoff: 999,
        };
        let e = Estimator::restore(Config::modern().rto, odd);
        assert_eq!(e.rto(), Duration::from_secs(120));
    }

    #[test]
    fn an_estimate_survives_a_move() {
        let mut e = Estimator::new(Config::modern().rto);
        e.sample(at(0), at(80));
        e.back_off();
        let moved = Estimator::restore(Config::modern().rto, e.state());
        assert_eq!((moved.srtt(), moved.rttvar(), moved.rto()), (e.srtt(), e.rttvar(), e.rto()));
    }
}
