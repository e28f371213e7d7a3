use std::net::Ipv4Addr;

use lasthop_units::{Duration, Seed, Stream, Time};

use super::message::{Advertisement, Role};

/// How an agent advertises itself (MIP-2, MIP-8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdvertiserConfig {
    /// From one advertisement to the next. The first comes within one period, at a random time.
    pub period: Duration,
    /// Each period is longer or shorter by up to this, so that agents do not fall into step. No
    /// more than the period counts.
    pub jitter: Duration,
    /// How long a mobile may take the agent to be there without another advertisement.
    pub validity: Duration,
    /// The longest registration that is granted through this agent.
    pub lifetime: Duration,
    /// Whether a solicitation is answered at once.
    pub answers: bool,
}

/// RFC 5944 section 2.3 allows one advertisement a second; three missed ones mean that the agent is
/// gone.
impl Default for AdvertiserConfig {
    fn default() -> Self {
        Self {
            period: Duration::from_secs(1),
            jitter: Duration::from_millis(50),
            validity: Duration::from_secs(3),
            lifetime: Duration::from_secs(1800),
            answers: true,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Advertiser {
    config: AdvertiserConfig,
    agent: Ipv4Addr,
    role: Role,
    sequence: u16,
    next: Time,
    stream: Stream,
}

impl Advertiser {
    /// The shortest period: an agent that advertises at every instant would stop time.
    const SHORTEST: Duration = Duration::from_millis(1);

    pub(super) fn new(
        config: AdvertiserConfig,
        agent: Ipv4Addr,
        role: Role,
        seed: Seed,
        now: Time,
    ) -> Self {
        let mut stream = seed.stream("advertisement");
        let period = config.period.max(Self::SHORTEST);
        let next = now + uniform(&mut stream, period);
        Self { config, agent, role, sequence: 0, next, stream }
    }

    pub(super) fn config(&self) -> &AdvertiserConfig {
        &self.config
    }

    pub(super) fn next_time(&self) -> Time {
        self.next
    }

    /// The periodic advertisement, if its time has come.
    pub(super) fn poll(&mut self, now: Time, busy: bool) -> Option<Advertisement> {
        if now < self.next {
            return None;
        }
        let period = self.config.period.max(Self::SHORTEST);
        let jitter = self.config.jitter.min(period);
        let earliest = (period - jitter).max(Self::SHORTEST);
        self.next = now + earliest + uniform(&mut self.stream, jitter * 2);
        Some(self.advertise(busy))
    }

    /// The answer to a solicitation, if it gets one.
    pub(super) fn answer(&mut self, busy: bool) -> Option<Advertisement> {
        self.config.answers.then(|| self.advertise(busy))
    }

    fn advertise(&mut self, busy: bool) -> Advertisement {
        let sequence = self.sequence;
        self.sequence = sequence.checked_add(1).unwrap_or(256);
        Advertisement {
            agent: self.agent,
            role: self.role,
            sequence,
            validity: self.config.validity,
            lifetime: self.config.lifetime,
            busy,
        }
    }
}

fn uniform(stream: &mut Stream, below: Duration) -> Duration {
    let nanos = u64::try_from(below.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(stream.below(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advertiser(config: AdvertiserConfig, seed: u64) -> Advertiser {
        let agent = Ipv4Addr::new(10, 0, 0, 1);
        Advertiser::new(config, agent, Role::Foreign, Seed::from_u64(seed), Time::ZERO)
    }

    /// MIP-8: the advertisement period is a parameter, and who arrives at a random time waits for
    /// half of it on average.
    #[test]
    fn advertisements_come_once_a_period_from_a_random_first_time() {
        let config = AdvertiserConfig { period: Duration::from_secs(2), ..Default::default() };
        let mut first = Duration::ZERO;
        for seed in 0..400 {
            let mut advertiser = advertiser(config, seed);
            first += advertiser.next_time() - Time::ZERO;
            let mut last = advertiser.next_time();
            for _ in 0..20 {
                assert!(advertiser.poll(last, false).is_some());
                let gap = advertiser.next_time() - last;
                assert!(gap >= Duration::from_millis(1950) && gap <= Duration::from_millis(2050));
                last = advertiser.next_time();
            }
        }
        let mean = first / 400;
        assert!(
            mean > Duration::from_millis(900) && mean < Duration::from_millis(1100),
            "{mean:?}"
        );
    }

    #[test]
    fn a_roll_over_of_the_sequence_does_not_look_like_a_restart() {
        let mut advertiser = advertiser(AdvertiserConfig::default(), 1);
        let sequence = |a: &mut Advertiser| a.answer(false).map(|found| found.sequence);
        assert_eq!(sequence(&mut advertiser), Some(0));
        advertiser.sequence = u16::MAX;
        assert_eq!(sequence(&mut advertiser), Some(u16::MAX));
        assert_eq!(sequence(&mut advertiser), Some(256));
    }

    #[test]
    fn odd_periods_do_not_stop_time() {
        let zero = AdvertiserConfig { period: Duration::ZERO, ..Default::default() };
        let mut advertiser = advertiser(zero, 1);
        let at = advertiser.next_time();
        assert!(advertiser.poll(at, false).is_some());
        assert!(advertiser.next_time() > at);
    }
}
