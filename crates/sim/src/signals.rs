//! What lower layers tell upper ones of the link, late, early, or not at all (LNK-14).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::Ipv4Addr;

use lasthop_radio::Share;
use lasthop_units::{Duration, LinkEvent, Seed, Stream, Time, deserialize_duration};
use serde::{Deserialize, Deserializer};
use thiserror::Error;

/// A word from below.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Signal {
    /// The link will go down.
    DisconnectPredicted {
        /// How long from now; zero if it did already.
        lead: Duration,
    },
    /// The link will go down, and come up at another base.
    HandoffImminent {
        /// The base that is expected.
        candidate: Ipv4Addr,
        /// How long from now; zero if it did already.
        lead: Duration,
    },
    /// The link carries nothing.
    LinkDown,
    /// The link carries again.
    LinkUp,
    /// The mobile can be reached through another base.
    HandoffComplete {
        /// Which.
        base: Ipv4Addr,
    },
}

impl Signal {
    /// The same in the machines' own terms, which do not name bases.
    pub const fn link_event(self) -> LinkEvent {
        match self {
            Self::DisconnectPredicted { lead } | Self::HandoffImminent { lead, .. } => {
                LinkEvent::Imminent { lead }
            }
            Self::LinkDown => LinkEvent::Down,
            Self::LinkUp => LinkEvent::Up,
            Self::HandoffComplete { .. } => LinkEvent::Complete,
        }
    }
}

/// How one kind of signal is given. The default is the truth at once, and no prediction.
#[derive(Clone, Copy, PartialEq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Quality {
    /// How long before the link goes down a prediction is made; none is made if there is none, or it
    /// is zero. What has happened has no lead.
    #[serde(deserialize_with = "some_duration")]
    pub lead: Option<Duration>,
    /// From then, or from what it is about, to its delivery.
    #[serde(deserialize_with = "deserialize_duration")]
    pub delay: Duration,
    /// The probability that it never comes.
    #[serde(deserialize_with = "share")]
    pub miss: f64,
}

fn some_duration<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Duration>, D::Error> {
    deserialize_duration(d).map(Some)
}

fn share<'de, D: Deserializer<'de>>(d: D) -> Result<f64, D::Error> {
    Share::deserialize(d).map(|share| share.0)
}

/// How all signals are given. By default the link's changes and completed handoffs are signalled
/// truthfully at once, and nothing is predicted.
#[derive(Clone, Copy, PartialEq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct SignalsConfig {
    /// `disconnect-predicted`.
    pub predicted: Quality,
    /// `handoff-imminent`.
    pub imminent: Quality,
    /// `link-down`.
    pub down: Quality,
    /// `link-up`.
    pub up: Quality,
    /// `handoff-complete`.
    pub complete: Quality,
}

/// What is really going to happen to the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outage {
    /// When it goes down.
    pub down: Time,
    /// When it comes up.
    pub up: Time,
    /// With whom: another base than before makes it a handoff.
    pub base: Ipv4Addr,
}

/// Why signals cannot be given as asked.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
pub enum SignalsError {
    /// Not a probability.
    #[error("the miss rate of {signal} is {miss}; it must lie between 0 and 1")]
    Miss {
        /// Which kind.
        signal: &'static str,
        /// What was asked for.
        miss: f64,
    },
    /// The link goes down before the last outage is over, comes up before it is down, or both lie
    /// in the past.
    #[error(
        "an outage from {down} to {up} does not come after what is planned, which ends {after}"
    )]
    Order {
        /// When it was to go down.
        down: Time,
        /// When it was to come up.
        up: Time,
        /// What it must come after.
        after: Time,
    },
    /// Too much is planned at once.
    #[error("more than {0} signals are planned; plan outages as time goes by")]
    Full(usize),
}

/// Signals to upper layers what [`SignalsConfig`] lets through of the truth.
///
/// Signals of what has happened are delivered in the order in which it happened: a late `link-down`
/// holds up the `link-up` after it.
#[derive(Clone, Debug)]
pub struct Signals {
    config: SignalsConfig,
    queue: BinaryHeap<Reverse<(Time, u64, Planned)>>,
    number: u64,
    base: Ipv4Addr,
    /// The end of the last outage planned, or the start.
    settled: Time,
    /// No later fact is delivered before.
    facts_until: Time,
    misses: Misses,
    missed: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Planned {
    Predicted { down: Time },
    Imminent { candidate: Ipv4Addr, down: Time },
    Down,
    Up,
    Complete { base: Ipv4Addr },
}

/// A stream for each kind, so that one kind's misses do not move another's (LNK-15).
#[derive(Clone, Debug)]
struct Misses {
    predicted: Stream,
    imminent: Stream,
    down: Stream,
    up: Stream,
    complete: Stream,
}

impl Signals {
    /// The most signals planned and not delivered yet.
    const PLANNED: usize = 65_536;

    /// Signals for a mobile that is with `base`; their misses follow from `seed`.
    ///
    /// # Errors
    ///
    /// Names the kind of signal whose setting does not hold.
    pub fn new(
        config: SignalsConfig,
        base: Ipv4Addr,
        seed: Seed,
        now: Time,
    ) -> Result<Self, SignalsError> {
        config.validate()?;
        let misses = Misses {
            predicted: seed.stream("miss-disconnect-predicted"),
            imminent: seed.stream("miss-handoff-imminent"),
            down: seed.stream("miss-link-down"),
            up: seed.stream("miss-link-up"),
            complete: seed.stream("miss-handoff-complete"),
        };
        Ok(Self {
            config,
            queue: BinaryHeap::new(),
            number: 0,
            base,
            settled: now,
            facts_until: now,
            misses,
            missed: 0,
        })
    }

    /// Learns of an outage to come. Outages are planned in order, as early as predictions of them
    /// are to be delivered: one that was due before `now` is delivered now.
    ///
    /// # Errors
    ///
    /// If it does not come after those planned before, or too many are planned.
    pub fn plan(&mut self, now: Time, outage: &Outage) -> Result<(), SignalsError> {
        let Outage { down, up, base } = *outage;
        let after = self.settled.max(now);
        if down < after || up < down {
            return Err(SignalsError::Order { down, up, after });
        }
        if self.queue.len() + 4 > Self::PLANNED {
            return Err(SignalsError::Full(Self::PLANNED));
        }
        self.settled = up;
        let quality = self.config.predicted;
        if let Some(lead) = quality.prediction()
            && !missed(&mut self.misses.predicted, quality, &mut self.missed)
        {
            self.add((down - lead).max(now) + quality.delay, Planned::Predicted { down });
        }
        let quality = self.config.imminent;
        if let Some(lead) = quality.prediction().filter(|_| base != self.base)
            && !missed(&mut self.misses.imminent, quality, &mut self.missed)
        {
            let planned = Planned::Imminent { candidate: base, down };
            self.add((down - lead).max(now) + quality.delay, planned);
        }
        self.base = base;
        if !missed(&mut self.misses.down, self.config.down, &mut self.missed) {
            self.add_fact(down + self.config.down.delay, Planned::Down);
        }
        if !missed(&mut self.misses.up, self.config.up, &mut self.missed) {
            self.add_fact(up + self.config.up.delay, Planned::Up);
        }
        Ok(())
    }

    /// Learns that a handoff is complete: packets come through `base` from now on (MIP-6).
    pub fn handle_complete(&mut self, now: Time, base: Ipv4Addr) {
        let quality = self.config.complete;
        if !missed(&mut self.misses.complete, quality, &mut self.missed)
            && self.queue.len() < Self::PLANNED
        {
            // It does not wait for outages planned but still to come.
            self.add(now + quality.delay, Planned::Complete { base });
        }
    }

    /// When the next signal is delivered.
    pub fn next_timeout(&self) -> Option<Time> {
        self.queue.peek().map(|Reverse((at, ..))| *at)
    }

    /// The next signal that is delivered by `now`, and when it was.
    pub fn poll_signal(&mut self, now: Time) -> Option<(Time, Signal)> {
        self.next_timeout().filter(|&at| at <= now)?;
        self.queue.pop().map(|Reverse((at, _, planned))| (at, planned.signal(at)))
    }

    /// Signals that were due and never came.
    pub const fn missed(&self) -> u64 {
        self.missed
    }

    fn add_fact(&mut self, at: Time, planned: Planned) {
        self.facts_until = self.facts_until.max(at);
        self.add(self.facts_until, planned);
    }

    fn add(&mut self, at: Time, planned: Planned) {
        self.queue.push(Reverse((at, self.number, planned)));
        self.number += 1;
    }
}

impl Planned {
    fn signal(self, at: Time) -> Signal {
        match self {
            Self::Predicted { down } => Signal::DisconnectPredicted { lead: down - at },
            Self::Imminent { candidate, down } => {
                Signal::HandoffImminent { candidate, lead: down - at }
            }
            Self::Down => Signal::LinkDown,
            Self::Up => Signal::LinkUp,
            Self::Complete { base } => Signal::HandoffComplete { base },
        }
    }
}

impl Quality {
    /// The lead of a prediction that is made.
    fn prediction(self) -> Option<Duration> {
        self.lead.filter(|lead| !lead.is_zero())
    }
}

impl SignalsConfig {
    fn validate(&self) -> Result<(), SignalsError> {
        let kinds = [
            ("disconnect-predicted", self.predicted),
            ("handoff-imminent", self.imminent),
            ("link-down", self.down),
            ("link-up", self.up),
            ("handoff-complete", self.complete),
        ];
        let wrong = kinds.into_iter().find(|(_, kind)| !(0.0..=1.0).contains(&kind.miss));
        match wrong {
            Some((signal, Quality { miss, .. })) => Err(SignalsError::Miss { signal, miss }),
            None => Ok(()),
        }
    }
}

fn missed(stream: &mut Stream, quality: Quality, count: &mut u64) -> bool {
    let missed = stream.chance(quality.miss);
    *count += u64::from(missed);
    missed
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
    const SECOND: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 1);
    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    fn signals(config: SignalsConfig, seed: u64) -> Signals {
        Signals::new(config, FIRST, Seed::from_u64(seed), Time::ZERO).unwrap()
    }

    fn heard(signals: &mut Signals, until: Time) -> Vec<(Time, Signal)> {
        std::iter::from_fn(|| signals.poll_signal(until)).collect()
    }

    fn outage(down: u64, up: u64, base: Ipv4Addr) -> Outage {
        Outage { down: at(down), up: at(up), base }
    }

    fn all() -> SignalsConfig {
        let late = |ms| Quality { delay: MS * ms, ..Quality::default() };
        SignalsConfig {
            predicted: Quality { lead: Some(MS * 500), ..late(20) },
            imminent: Quality { lead: Some(MS * 200), ..late(0) },
            down: late(5),
            up: late(7),
            complete: late(9),
        }
    }

    /// LNK-14: all five signals, each with its lead and delay.
    #[test]
    fn signals_come_with_their_leads_and_delays() {
        let mut signals = signals(all(), 1);
        signals.plan(at(0), &outage(1000, 1300, SECOND)).unwrap();
        assert_eq!(signals.next_timeout(), Some(at(520)));
        assert_eq!(heard(&mut signals, at(519)), []);
        let mut found = heard(&mut signals, at(1400));
        signals.handle_complete(at(1450), SECOND);
        found.extend(heard(&mut signals, at(2000)));
        let lead = MS * 200;
        assert_eq!(
            found,
            [
                (at(520), Signal::DisconnectPredicted { lead: MS * 480 }),
                (at(800), Signal::HandoffImminent { candidate: SECOND, lead }),
                (at(1005), Signal::LinkDown),
                (at(1307), Signal::LinkUp),
                (at(1459), Signal::HandoffComplete { base: SECOND }),
            ]
        );
    }

    /// LNK-14, LNK-12: an outage that ends at the same base is no handoff.
    #[test]
    fn no_handoff_is_imminent_where_none_comes() {
        let mut signals = signals(all(), 1);
        signals.plan(at(0), &outage(1000, 1300, FIRST)).unwrap();
        let found = heard(&mut signals, at(2000));
        assert_eq!(found.len(), 3);
        assert!(!found.iter().any(|(_, s)| matches!(s, Signal::HandoffImminent { .. })));
    }

    /// LNK-14: a share of each kind never comes, and one kind's misses leave the others alone.
    #[test]
    fn missed_signals_never_come() {
        let run = |miss_down: f64| {
            let mut config = all();
            config.down.miss = miss_down;
            config.up.miss = 0.25;
            let mut signals = signals(config, 7);
            for n in 1..=2000 {
                signals.plan(at(0), &outage(n * 1000, n * 1000 + 300, FIRST)).unwrap();
            }
            let found = heard(&mut signals, Time::from_secs(3000));
            let times = |kind: Signal| -> Vec<Time> {
                found.iter().filter(|(_, s)| *s == kind).map(|(at, _)| *at).collect()
            };
            (times(Signal::LinkDown), times(Signal::LinkUp), signals.missed())
        };
        let (all_down, ups, missed) = run(0.0);
        let (few_down, same_ups, more_missed) = run(0.6);
        assert_eq!(all_down.len(), 2000);
        assert!((1420..1580).contains(&ups.len()), "{}", ups.len());
        assert_eq!(missed, 2000 - ups.len() as u64);
        assert!((720..880).contains(&few_down.len()), "{}", few_down.len());
        assert_eq!(ups, same_ups);
        assert_eq!(more_missed - missed, 2000 - few_down.len() as u64);
        assert_eq!(run(1.0).0.len(), 0);
    }

    #[test]
    fn a_late_word_of_the_loss_holds_up_the_word_of_its_end() {
        let mut config = all();
        config.down.delay = MS * 800;
        let mut signals = signals(config, 1);
        signals.plan(at(0), &outage(1000, 1300, FIRST)).unwrap();
        let found = heard(&mut signals, at(2000));
        assert_eq!(found[1..], [(at(1800), Signal::LinkDown), (at(1800), Signal::LinkUp)]);
    }

    /// LNK-14: what machines hear of it is their own type.
    #[test]
    fn signals_become_link_events() {
        let lead = MS * 3;
        let predicted = Signal::DisconnectPredicted { lead };
        let imminent = Signal::HandoffImminent { candidate: SECOND, lead };
        assert_eq!(predicted.link_event(), LinkEvent::Imminent { lead });
        assert_eq!(imminent.link_event(), LinkEvent::Imminent { lead });
        assert_eq!(Signal::LinkDown.link_event(), LinkEvent::Down);
        assert_eq!(Signal::LinkUp.link_event(), LinkEvent::Up);
        assert_eq!(Signal::HandoffComplete { base: SECOND }.link_event(), LinkEvent::Complete);
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        let mut config = all();
        config.up.miss = f64::NAN;
        let error = Signals::new(config, FIRST, Seed::from_u64(1), Time::ZERO).unwrap_err();
        assert!(error.to_string().contains("link-up"), "{error}");
        let mut signals = signals(all(), 1);
        assert!(signals.plan(at(50), &outage(40, 60, FIRST)).is_err());
        assert!(signals.plan(at(50), &outage(60, 55, FIRST)).is_err());
        assert!(signals.plan(at(50), &outage(60, 100, FIRST)).is_ok());
        assert!(signals.plan(at(50), &outage(90, 110, FIRST)).is_err());
    }
}
