//! How fast mobiles may open connections.

use std::collections::BTreeMap;
use std::time::Duration;

use lasthop_units::Time;

/// Seconds' worth of openings that may come at once.
const BURST: u32 = 8;
/// Mobiles that are remembered before those that have been quiet are forgotten.
const REMEMBERED: usize = 64;

/// What becomes of an opening.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Admission {
    /// It is made at once.
    Now,
    /// It is made when it is its turn.
    At(Time),
    /// It would wait for too long.
    Never,
}

/// A bucket for each mobile, by the generic cell rate algorithm (ITU-T I.371): the time at which a bucket
/// will be full again says all.
#[derive(Debug)]
pub(super) struct Openings<C> {
    interval: Duration,
    burst: Duration,
    patience: Duration,
    full_at: BTreeMap<C, Time>,
    forget_at: usize,
}

impl<C: Copy + Ord> Openings<C> {
    /// So many a second of each mobile; those beyond wait for at most `patience`.
    pub(super) fn new(per_second: u32, patience: Duration) -> Self {
        let interval = Duration::from_secs(1) / per_second.max(1);
        let burst = interval * per_second.max(1).saturating_mul(BURST);
        Self { interval, burst, patience, full_at: BTreeMap::new(), forget_at: REMEMBERED }
    }

    /// This mobile opens a connection.
    pub(super) fn admit(&mut self, now: Time, client: C) -> Admission {
        if self.full_at.len() >= self.forget_at {
            // As often as the table doubles: each opening pays for a little of it.
            self.full_at.retain(|_, at| *at > now);
            self.forget_at = (2 * self.full_at.len()).max(REMEMBERED);
        }
        let full_at = self.full_at.get(&client).map_or(now, |at| (*at).max(now)) + self.interval;
        let wait = full_at.since(now + self.burst);
        if wait > self.patience {
            return Admission::Never;
        }
        self.full_at.insert(client, full_at);
        if wait > Duration::ZERO { Admission::At(now + wait) } else { Admission::Now }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SEC-19: a burst passes, what is beyond comes at its rate or is refused, and others notice nothing.
    #[test]
    fn a_mobile_opens_at_its_rate_and_others_notice_nothing() {
        let mut openings = Openings::new(100, Duration::from_secs(2));
        let now = Time::from_secs(5);
        let outcomes: Vec<Admission> = (0..2000).map(|_| openings.admit(now, 'a')).collect();
        assert!(outcomes[..800].iter().all(|outcome| *outcome == Admission::Now));
        for (n, outcome) in outcomes[800..1000].iter().enumerate() {
            let at = now + Duration::from_millis(10 * (n as u64 + 1));
            assert_eq!(*outcome, Admission::At(at));
        }
        assert!(outcomes[1000..].iter().all(|outcome| *outcome == Admission::Never));
        assert_eq!(openings.admit(now, 'b'), Admission::Now);
        // Those that were refused cost nothing: the next comes behind those that wait.
        let later = now + Duration::from_secs(1);
        assert_eq!(openings.admit(later, 'a'), Admission::At(later + Duration::from_millis(1010)));
        assert_eq!(openings.admit(now + Duration::from_secs(20), 'a'), Admission::Now);
    }

    #[test]
    fn mobiles_that_were_quiet_are_forgotten() {
        let mut openings = Openings::new(10, Duration::ZERO);
        for client in 0..100_000u64 {
            openings.admit(Time::from_millis(client), client);
            assert!(openings.full_at.len() <= 300);
        }
    }
}
