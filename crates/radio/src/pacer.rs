use alloc::sync::Arc;
use alloc::vec::Vec;

use lasthop_units::{Bytes, Duration, Rate, Time};

use crate::{Pacing, RateSteps, Trace};

/// Work of the transmitter: bits times 10⁹, so that work over rate is nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Work(u64);

impl Work {
    pub(crate) const fn of(size: Bytes) -> Self {
        Self(size.get().saturating_mul(8 * 1_000_000_000))
    }

    pub(crate) const fn is_done(self) -> bool {
        self.0 == 0
    }

    /// What is left after `rate` has worked for `time`.
    pub(crate) fn after(self, rate: Rate, time: Duration) -> Self {
        if rate == Rate::UNLIMITED {
            return Self(0);
        }
        let done = u128::from(rate.as_bps()).saturating_mul(time.as_nanos());
        Self(self.0.saturating_sub(u64::try_from(done).unwrap_or(u64::MAX)))
    }

    /// Takes as much from both as the smaller has.
    pub(crate) fn consume(&mut self, budget: &mut Self) {
        let spent = self.0.min(budget.0);
        self.0 -= spent;
        budget.0 -= spent;
    }

    /// When it is done at `rate`, begun at `from`. Rounded up: nothing leaves early.
    pub(crate) fn done_at(self, rate: Rate, from: Time) -> Time {
        match rate {
            Rate::UNLIMITED => from,
            Rate::ZERO => Time::NEVER,
            rate => from + Duration::from_nanos(self.0.div_ceil(rate.as_bps())),
        }
    }
}

/// The transmitter's clockwork.
#[derive(Debug)]
pub(crate) enum Pacer {
    /// Packets take size over rate.
    Rate(RateClock),
    /// Packets leave at recorded opportunities.
    Trace(TraceClock),
}

impl Pacer {
    /// Times in `pacing` count from `epoch`.
    pub(crate) fn new(pacing: &Pacing, epoch: Time) -> Self {
        match pacing {
            Pacing::Rate(rate) => Self::Rate(RateClock::constant(*rate)),
            Pacing::Steps(steps) => Self::Rate(RateClock::new(steps.clone(), epoch)),
            Pacing::Trace(trace) => Self::Trace(TraceClock {
                trace: Arc::clone(trace),
                epoch,
                number: 0,
                at: epoch + trace.time_of(0),
            }),
        }
    }

    /// The rate at `now`; a trace's mean.
    pub(crate) fn rate(&mut self, now: Time) -> Rate {
        match self {
            Self::Rate(clock) => clock.at(now),
            Self::Trace(clock) => clock.trace.mean_rate(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct RateClock {
    steps: RateSteps,
    epoch: Time,
    rate: Rate,
    until: Time,
}

impl RateClock {
    fn constant(rate: Rate) -> Self {
        let steps = RateSteps { initial: rate, steps: Vec::new(), period: None };
        Self { steps, epoch: Time::ZERO, rate, until: Time::NEVER }
    }

    fn new(steps: RateSteps, epoch: Time) -> Self {
        let mut clock = Self { rate: steps.initial, steps, epoch, until: epoch };
        clock.look_up(epoch);
        clock
    }

    /// The rate at `now`.
    pub(crate) fn at(&mut self, now: Time) -> Rate {
        if now >= self.until {
            self.look_up(now);
        }
        self.rate
    }

    /// The rate last asked for.
    pub(crate) fn present(&self) -> Rate {
        self.rate
    }

    /// When the rate last asked for ends.
    pub(crate) fn until(&self) -> Time {
        self.until
    }

    fn look_up(&mut self, now: Time) {
        let since = now.since(self.epoch);
        let (begin, within) = match self.steps.period {
            Some(period) => {
                let within = (since.as_nanos() % period.as_nanos().max(1)) as u64;
                let within = Duration::from_nanos(within);
                (now - within, within)
            }
            None => (self.epoch, since),
        };
        let next = self.steps.steps.partition_point(|step| step.at <= within);
        let present = next.checked_sub(1).and_then(|i| self.steps.steps.get(i));
        self.rate = present.map_or(self.steps.initial, |step| step.rate);
        self.until = match (self.steps.steps.get(next), self.steps.period) {
            (Some(step), Some(period)) => begin + step.at.min(period),
            (Some(step), None) => begin + step.at,
            (None, Some(period)) => begin + period,
            (None, None) => Time::NEVER,
        };
    }
}

#[derive(Debug)]
pub(crate) struct TraceClock {
    trace: Arc<Trace>,
    epoch: Time,
    number: u64,
    at: Time,
}

impl TraceClock {
    /// When the next opportunity comes.
    pub(crate) fn next(&self) -> Time {
        self.at
    }

    /// Passes over the opportunities before `now`, which found nothing to send.
    pub(crate) fn seek(&mut self, now: Time) {
        if self.at < now {
            self.set(self.trace.first_from(now.since(self.epoch)));
        }
    }

    /// Uses up the next opportunity.
    pub(crate) fn use_up(&mut self) {
        self.set(self.number + 1);
    }

    fn set(&mut self, number: u64) {
        self.number = number;
        self.at = self.epoch + self.trace.time_of(number);
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::RateStep;

    fn steps(period: Option<Duration>) -> RateClock {
        let step = |s, mbps| RateStep { at: Duration::from_secs(s), rate: Rate::from_mbps(mbps) };
        let steps = RateSteps {
            initial: Rate::from_mbps(20),
            steps: vec![step(10, 4), step(20, 20), step(25, 1)],
            period,
        };
        RateClock::new(steps, Time::from_secs(100))
    }

    #[test]
    fn a_step_list_says_the_rate_and_until_when() {
        let mut clock = steps(None);
        for (at, mbps, until) in [(100, 20, 110), (110, 4, 120), (124, 20, 125)] {
            assert_eq!(clock.at(Time::from_secs(at)), Rate::from_mbps(mbps));
            assert_eq!(clock.until(), Time::from_secs(until));
        }
        assert_eq!(clock.at(Time::from_secs(1000)), Rate::from_mbps(1));
        assert_eq!(clock.until(), Time::NEVER);
    }

    #[test]
    fn a_step_list_with_a_period_begins_anew() {
        let mut clock = steps(Some(Duration::from_secs(30)));
        assert_eq!(clock.at(Time::from_secs(100 + 28)), Rate::from_mbps(1));
        assert_eq!(clock.until(), Time::from_secs(130));
        assert_eq!(clock.at(Time::from_secs(100 + 30 * 7 + 12)), Rate::from_mbps(4));
        assert_eq!(clock.until(), Time::from_secs(100 + 30 * 7 + 20));
    }

    #[test]
    fn work_done_at_a_changed_rate_is_not_done_again() {
        let work = Work::of(Bytes::new(1500));
        let left = work.after(Rate::from_mbps(12), Duration::from_micros(500));
        assert_eq!(left, Work::of(Bytes::new(750)));
        let at = left.done_at(Rate::from_mbps(6), Time::from_micros(500));
        assert_eq!(at, Time::from_micros(1500));
        assert_eq!(left.done_at(Rate::ZERO, Time::ZERO), Time::NEVER);
        assert!(left.after(Rate::UNLIMITED, Duration::ZERO).is_done());
    }
}
