//! The timer for the oldest segment (OBB-7).

use lasthop_units::{Duration, Time};

use super::ConfigError;
use crate::rtt::{RtoBounds, Rtt};

pub(super) fn check_bounds(rto: &RtoBounds) -> Result<(), ConfigError> {
    if rto.least.is_zero() || rto.initial.is_zero() || rto.least > rto.most {
        return Err(ConfigError::Rto { least: rto.least, most: rto.most });
    }
    Ok(())
}

/// A timer for the oldest segment, as snoop has it: max(SRTT + 4 RTTVAR, tick) (SNP-6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalTimer {
    /// The timeout.
    pub rto: RtoBounds,
    /// Expiries in a row until the timer rests.
    pub tries: u32,
}

/// ns-2's figures for snoop: a tick of 100 ms, 10 tries.
impl Default for LocalTimer {
    fn default() -> Self {
        Self {
            rto: RtoBounds { least: Duration::from_millis(100), ..RtoBounds::default() },
            tries: 10,
        }
    }
}

impl LocalTimer {
    /// A hop's usual bounds, 20 ms at least, since today's kernels wait no more than 200 ms themselves.
    pub fn modern() -> Self {
        Self { rto: RtoBounds::default(), ..Self::default() }
    }

    /// One of this least time, which its other times are no shorter than.
    pub(super) fn of_tick(least: Duration) -> Self {
        let RtoBounds { initial, most, .. } = RtoBounds::default();
        let rto = RtoBounds { initial: initial.max(least), least, most: most.max(least) };
        Self { rto, ..Self::default() }
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        match self.tries {
            0 => Err(ConfigError::Zero("the timer's tries")),
            _ => check_bounds(&self.rto),
        }
    }
}

/// A [`LocalTimer`] at work.
#[derive(Clone, Debug)]
pub(super) struct Retry {
    rtt: Rtt,
    tries: u32,
    expiries: u32,
    due: Option<Time>,
}

impl Retry {
    pub(super) const fn new(config: LocalTimer) -> Self {
        Self { rtt: Rtt::new(config.rto), tries: config.tries, expiries: 0, due: None }
    }

    pub(super) const fn due(&self) -> Option<Time> {
        self.due
    }

    /// Something was sent.
    pub(super) fn sent(&mut self, now: Time) {
        if self.due.is_none() && self.expiries == 0 {
            self.due = Some(now + self.rtt.timeout(0));
        }
    }

    /// Something new was acknowledged; the sample is its round-trip time, if that is known.
    pub(super) fn acknowledged(&mut self, now: Time, sample: Option<Duration>, outstanding: bool) {
        if let Some(sample) = sample {
            self.rtt.sample(sample);
        }
        self.expiries = 0;
        self.due = outstanding.then(|| now + self.rtt.timeout(0));
    }

    /// If it is time, waits once more (`again`) or rests, without a try.
    pub(super) fn skip(&mut self, now: Time, again: bool) {
        if self.due.is_some_and(|due| due <= now) {
            self.due = again.then(|| now + self.rtt.timeout(self.expiries));
        }
    }

    /// Whether it is time to send the oldest segment again.
    pub(super) fn expire(&mut self, now: Time) -> bool {
        if self.due.is_none_or(|due| due > now) {
            return false;
        }
        self.expiries += 1;
        let again = self.expiries <= self.tries;
        self.due = again.then(|| now + self.rtt.timeout(self.expiries));
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_rests_after_its_tries_until_something_is_acknowledged() {
        let mut retry = Retry::new(LocalTimer { tries: 2, ..LocalTimer::default() });
        retry.sent(Time::ZERO);
        let mut expired = 0;
        while let Some(due) = retry.due() {
            assert!(!retry.expire(due - Duration::from_nanos(1)));
            expired += u32::from(retry.expire(due));
        }
        assert_eq!(expired, 2);
        retry.sent(Time::from_secs(9));
        assert_eq!(retry.due(), None);
        retry.acknowledged(Time::from_secs(10), None, true);
        assert!(retry.due().is_some());
    }
}
