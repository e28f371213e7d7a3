//! Round-trip estimates and the timers that follow from them.

use alloc::collections::BTreeSet;

use lasthop_units::{Duration, Time};

use super::ConfigError;
use crate::Connection;

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

impl RtoBounds {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if self.least.is_zero() || self.initial.is_zero() || self.least > self.most {
            return Err(ConfigError::Rto { least: self.least, most: self.most });
        }
        Ok(())
    }
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
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        match self.tries {
            0 => Err(ConfigError::Zero("the timer's tries")),
            _ => self.rto.check(),
        }
    }
}

/// Smoothed round-trip time and its deviation (RFC 6298 section 2).
#[derive(Clone, Copy, Debug)]
pub(super) struct Rtt {
    bounds: RtoBounds,
    smoothed: Option<(Duration, Duration)>,
}

impl Rtt {
    pub(super) const fn new(bounds: RtoBounds) -> Self {
        Self { bounds, smoothed: None }
    }

    pub(super) fn sample(&mut self, rtt: Duration) {
        self.smoothed = Some(match self.smoothed {
            None => (rtt, rtt / 2),
            Some((srtt, var)) => ((srtt * 7 + rtt) / 8, (var * 3 + srtt.abs_diff(rtt)) / 4),
        });
    }

    /// The timeout after `expiries` in a row.
    pub(super) fn rto(&self, expiries: u32) -> Duration {
        let RtoBounds { initial, least, most } = self.bounds;
        let rto = self.smoothed.map_or(initial, |(srtt, var)| srtt + var * 4);
        rto.max(least).saturating_mul(1 << expiries.min(20)).min(most)
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
            self.due = Some(now + self.rtt.rto(0));
        }
    }

    /// Something new was acknowledged; the sample is its round-trip time, if that is known.
    pub(super) fn acknowledged(&mut self, now: Time, sample: Option<Duration>, outstanding: bool) {
        if let Some(sample) = sample {
            self.rtt.sample(sample);
        }
        self.expiries = 0;
        self.due = outstanding.then(|| now + self.rtt.rto(0));
    }

    /// If it is time, waits once more (`again`) or rests, without a try.
    pub(super) fn skip(&mut self, now: Time, again: bool) {
        if self.due.is_some_and(|due| due <= now) {
            self.due = again.then(|| now + self.rtt.rto(self.expiries));
        }
    }

    /// Whether it is time to send the oldest segment again.
    pub(super) fn expire(&mut self, now: Time) -> bool {
        if self.due.is_none_or(|due| due > now) {
            return false;
        }
        self.expiries += 1;
        let again = self.expiries <= self.tries;
        self.due = again.then(|| now + self.rtt.rto(self.expiries));
        again
    }
}

/// When connections want to be called. An entry of a connection that the table has forgotten stays
/// until its time or until too many such have gathered.
#[derive(Clone, Debug, Default)]
pub(super) struct Deadlines(BTreeSet<(Time, Connection)>);

impl Deadlines {
    /// Moves a connection's deadline from `armed` to `due`.
    pub(super) fn set(
        &mut self,
        connection: Connection,
        armed: &mut Option<Time>,
        due: Option<Time>,
    ) {
        if *armed == due {
            return;
        }
        if let Some(old) = *armed {
            self.0.remove(&(old, connection));
        }
        if let Some(new) = due {
            self.0.insert((new, connection));
        }
        *armed = due;
    }

    pub(super) fn next(&self) -> Option<Time> {
        self.0.first().map(|(due, _)| *due)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes out a deadline that has come.
    pub(super) fn pop(&mut self, now: Time) -> Option<(Time, Connection)> {
        if self.next()? > now {
            return None;
        }
        self.0.pop_first()
    }

    /// Drops the deadlines of connections that are gone once there are more than `limit`.
    pub(super) fn prune(&mut self, limit: usize, mut lives: impl FnMut(Time, &Connection) -> bool) {
        if self.0.len() > limit {
            self.0.retain(|(due, connection)| lives(*due, connection));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn the_timeout_follows_the_samples_within_its_bounds() {
        let mut rtt = Rtt::new(RtoBounds { initial: ms(500), least: ms(20), most: ms(900) });
        assert_eq!(rtt.rto(0), ms(500));
        rtt.sample(ms(40));
        assert_eq!(rtt.rto(0), ms(40 + 4 * 20));
        rtt.sample(ms(40));
        assert_eq!(rtt.rto(0), ms(40 + 4 * 15));
        assert_eq!(rtt.rto(1), ms(200));
        assert_eq!(rtt.rto(40), ms(900));
        for _ in 0..100 {
            rtt.sample(Duration::from_micros(10));
        }
        assert_eq!(rtt.rto(0), ms(20));
    }

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
