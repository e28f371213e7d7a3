use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use lasthop_units::{Bytes, Duration, Rate};
use thiserror::Error;

use crate::Trace;

/// What one direction of a radio does to packets.
///
/// The default is a perfect link with ns-2's queue: no rate limit, no delay, 50 packets, no loss.
#[derive(Clone, PartialEq, Debug)]
pub struct LinkConfig {
    /// How fast packets leave (LNK-1).
    pub pacing: Pacing,
    /// One-way delay after the last bit has left (LNK-1).
    pub delay: Duration,
    /// How much may wait for the transmitter; the packet on air does not count (LNK-1).
    pub queue: QueueLimit,
    /// What finds as much waiting that a queue of this limit would drop it is to be marked as having
    /// met congestion instead (RFC 3168, CC-2), if its transport takes part; never without. It is
    /// the carrier that knows packets and sets the mark: [`Link::marks`](crate::Link::marks).
    pub ecn_mark: Option<QueueLimit>,
    /// The longest IP datagram carried, headers included (LNK-2). Longer ones are dropped.
    pub mtu: u32,
    /// The MAC's delay, once for each transmission (LNK-13).
    pub mac_delay: Duration,
    /// Whether the MAC delay keeps the channel busy. If not, it only adds to the delay.
    pub mac_occupies: bool,
    /// The error processes. A packet that meets several is lost if any of them loses it.
    pub losses: Vec<Loss>,
    /// When the radio is silent (LNK-7, LNK-12).
    pub pauses: Vec<Pause>,
    /// Some packets are late, so that others overtake them. Off by default (LNK-11).
    pub reorder: Option<Reorder>,
    /// The probability that a packet arrives twice. Zero by default.
    pub duplicate: f64,
    /// The most packets held at once, waiting and in flight, whatever rate and delay say: the
    /// bound on memory.
    pub capacity: u32,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            pacing: Pacing::Rate(Rate::UNLIMITED),
            delay: Duration::ZERO,
            queue: QueueLimit::Packets(50),
            ecn_mark: None,
            mtu: 65_535,
            mac_delay: Duration::ZERO,
            mac_occupies: false,
            losses: Vec::new(),
            pauses: Vec::new(),
            reorder: None,
            duplicate: 0.0,
            capacity: 65_536,
        }
    }
}

/// Both directions of a radio.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct RadioConfig {
    /// From the mobile to the base.
    pub up: LinkConfig,
    /// From the base to the mobile.
    pub down: LinkConfig,
    /// Both directions fade together, instead of each by itself (ERR-4).
    pub shared_fades: bool,
}

impl RadioConfig {
    /// The same parameters in both directions; their random processes are independent (LNK-6).
    pub fn both(link: LinkConfig) -> Self {
        Self { up: link.clone(), down: link, shared_fades: false }
    }
}

/// How fast packets leave.
#[derive(Clone, PartialEq, Debug)]
pub enum Pacing {
    /// One rate, which may be [`Rate::UNLIMITED`].
    Rate(Rate),
    /// A rate that changes at set times.
    Steps(RateSteps),
    /// The delivery opportunities of a recorded link.
    Trace(Arc<Trace>),
}

/// A rate that changes at set times after the start.
#[derive(Clone, PartialEq, Debug)]
pub struct RateSteps {
    /// The rate before the first step.
    pub initial: Rate,
    /// The changes, in order of time.
    pub steps: Vec<RateStep>,
    /// Start again after this long; it must not be shorter than the last step's time.
    pub period: Option<Duration>,
}

/// One change of rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RateStep {
    /// When, after the start of the run (or of the period).
    pub at: Duration,
    /// The rate from then on.
    pub rate: Rate,
}

/// How much may wait for the transmitter. A packet that finds more is dropped (drop-tail).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueLimit {
    /// This many packets.
    Packets(u32),
    /// This many bytes of IP datagrams.
    Bytes(Bytes),
    /// As much as drains in this time at the present rate (a trace counts with its mean rate).
    Time(Duration),
}

impl QueueLimit {
    /// Whether this is reached before `other`. Limits of different kinds cannot be compared: which
    /// is reached first depends on the packets.
    fn is_below(self, other: Self) -> bool {
        match (self, other) {
            (Self::Packets(a), Self::Packets(b)) => a < b,
            (Self::Bytes(a), Self::Bytes(b)) => a < b,
            (Self::Time(a), Self::Time(b)) => a < b,
            _ => true,
        }
    }
}

/// An error process and what it does to the packets that it hits.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Loss {
    /// Which packets are hit.
    pub errors: Errors,
    /// What happens to them.
    pub damage: Damage,
}

impl Loss {
    /// Packets hit by `errors` vanish.
    pub const fn lose(errors: Errors) -> Self {
        Self { errors, damage: Damage::Lose }
    }

    /// Packets hit by `errors` arrive corrupted (LNK-10).
    pub const fn corrupt(errors: Errors) -> Self {
        Self { errors, damage: Damage::Corrupt }
    }
}

/// What an error does to a packet. Either way the packet has cost its air time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Damage {
    /// It vanishes.
    Lose,
    /// It is carried and delivered, flagged as corrupted (LNK-10).
    Corrupt,
}

/// Which packets an error process hits.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Errors {
    /// Each packet by itself with this probability (ERR-6).
    Uniform(f64),
    /// Bursts: gaps exponential, lengths geometric (LNK-4).
    Burst {
        /// The mean gap between bursts.
        gap: Gap,
        /// The mean number of packets lost in a burst, at least 1.
        length: f64,
    },
    /// Two states in clock time, both exponential; what touches a fade is hit (ERR-1..3).
    Fade {
        /// The mean duration of a fade.
        mean: Duration,
        /// The share of time spent in fades, above 0 and below 1.
        share: f64,
    },
}

impl Errors {
    /// Bursts of mean `length` packets that hit the share `loss` of all packets:
    /// gap = length (1 - loss) / loss (LNK-4).
    pub fn burst(loss: f64, length: f64) -> Self {
        Self::Burst { gap: Gap::Packets(length * (1.0 - loss) / loss), length }
    }
}

/// The mean gap between two bursts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Gap {
    /// In packets.
    Packets(f64),
    /// In time.
    Time(Duration),
}

/// Times at which the radio is silent: whatever waits, is on air or in flight when a pause begins
/// is dropped, and so is whatever comes while it lasts (LNK-7, LNK-12).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pause {
    /// When the (first) pause begins, after the start of the run.
    pub start: Duration,
    /// How long each lasts.
    pub duration: Duration,
    /// Repeat with this spacing, start to start (LNK-9).
    pub every: Option<Duration>,
    /// How often in all, if it repeats; no end without.
    pub times: Option<u32>,
}

impl Pause {
    /// A single pause.
    pub const fn once(start: Duration, duration: Duration) -> Self {
        Self { start, duration, every: None, times: None }
    }
}

/// Some packets arrive late.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Reorder {
    /// The probability that a packet is one of them.
    pub probability: f64,
    /// How much longer such a packet takes.
    pub extra: Duration,
}

/// A configuration that describes no link.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum ConfigError {
    /// A probability or a share outside its range.
    #[error("{what} is {found}, which is not {expected}")]
    Number {
        /// Which parameter.
        what: &'static str,
        /// What it was.
        found: f64,
        /// What it may be.
        expected: &'static str,
    },
    /// A duration outside its range.
    #[error("{what} is {found:?}, which is not {expected}")]
    Span {
        /// Which parameter.
        what: &'static str,
        /// What it was.
        found: Duration,
        /// What it may be.
        expected: &'static str,
    },
    /// Two settings of which only one can hold.
    #[error("{0}")]
    Conflict(&'static str),
    /// A trace that could not be read.
    #[error("trace {path}: {why}")]
    Trace {
        /// The trace's name.
        path: String,
        /// What was wrong.
        why: String,
    },
}

/// Shortest fade, good time and repetition accepted: work per packet is then bounded.
const SHORTEST: Duration = Duration::from_micros(10);

impl LinkConfig {
    /// Checks that this describes a link.
    ///
    /// # Errors
    ///
    /// Names the first parameter out of its range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        range("mtu", f64::from(self.mtu), 1.0, 16_777_216.0, "between 1 and 16777216")?;
        range("capacity", f64::from(self.capacity), 1.0, f64::INFINITY, "at least 1")?;
        probability("the duplicate probability", self.duplicate)?;
        if let Some(reorder) = &self.reorder {
            probability("the reorder probability", reorder.probability)?;
        }
        if self.losses.len() > 8 {
            return Err(ConfigError::Conflict("more than 8 loss processes on one link"));
        }
        self.losses.iter().try_for_each(|loss| loss.errors.validate())?;
        self.pauses.iter().try_for_each(Pause::validate)?;
        if self.ecn_mark.is_some_and(|mark| !mark.is_below(self.queue)) {
            return Err(ConfigError::Conflict(
                "ecn-mark is not below the queue's limit: what is to be marked would be dropped",
            ));
        }
        match &self.pacing {
            Pacing::Steps(steps) => steps.validate(),
            Pacing::Trace(_) if self.mac_occupies => Err(ConfigError::Conflict(
                "a trace says when packets leave, so that the MAC delay cannot occupy the channel",
            )),
            Pacing::Rate(_) | Pacing::Trace(_) => Ok(()),
        }
    }
}

impl Errors {
    fn validate(&self) -> Result<(), ConfigError> {
        match *self {
            Self::Uniform(p) => probability("the loss probability", p),
            Self::Burst { gap, length } => {
                range("the mean burst length", length, 1.0, 1e9, "at least 1 packet")?;
                match gap {
                    Gap::Packets(n) => {
                        range("the mean gap between bursts", n, 0.0, 1e15, "zero or more packets")
                    }
                    Gap::Time(_) => Ok(()),
                }
            }
            Self::Fade { mean, share } => {
                range("the share of time in fades", share, 1e-9, 0.999_999, "above 0 and below 1")?;
                let good = mean.as_secs_f64() * (1.0 - share) / share;
                at_least("the mean fade", mean, SHORTEST, "10us or more")?;
                let good = Duration::from_nanos((good * 1e9) as u64);
                at_least("the mean time between fades", good, SHORTEST, "10us or more")
            }
        }
    }
}

impl Pause {
    fn validate(&self) -> Result<(), ConfigError> {
        match self.every {
            Some(every) => at_least(
                "the spacing of pauses",
                every,
                self.duration.max(SHORTEST),
                "as long as the pause itself, and 10us or more",
            ),
            None => Ok(()),
        }
    }
}

impl RateSteps {
    fn validate(&self) -> Result<(), ConfigError> {
        if !self.steps.is_sorted_by(|a, b| a.at < b.at) {
            return Err(ConfigError::Conflict("the rate's steps are not in order of time"));
        }
        match (self.period, self.steps.last()) {
            (Some(period), last) => at_least(
                "the period of the rate's steps",
                period,
                last.map_or(SHORTEST, |step| step.at).max(SHORTEST),
                "as long as its last step, and 10us or more",
            ),
            (None, _) => Ok(()),
        }
    }
}

fn probability(what: &'static str, p: f64) -> Result<(), ConfigError> {
    range(what, p, 0.0, 1.0, "between 0 and 1")
}

fn range(
    what: &'static str,
    found: f64,
    least: f64,
    most: f64,
    expected: &'static str,
) -> Result<(), ConfigError> {
    // Written so that a NaN fails too.
    if found >= least && found <= most {
        return Ok(());
    }
    Err(ConfigError::Number { what, found, expected })
}

fn at_least(
    what: &'static str,
    found: Duration,
    least: Duration,
    expected: &'static str,
) -> Result<(), ConfigError> {
    if found >= least {
        return Ok(());
    }
    Err(ConfigError::Span { what, found, expected })
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec;

    use super::*;

    fn refusal(change: impl FnOnce(&mut LinkConfig)) -> String {
        let mut config = LinkConfig::default();
        change(&mut config);
        config.validate().expect_err("accepted").to_string()
    }

    #[test]
    fn the_default_link_is_perfect_with_a_50_packet_queue() {
        let config = LinkConfig::default();
        assert_eq!(config.validate(), Ok(()));
        assert_eq!(config.queue, QueueLimit::Packets(50));
    }

    #[test]
    fn numbers_out_of_range_are_refused_by_name() {
        assert!(refusal(|c| c.duplicate = 1.5).contains("duplicate"));
        assert!(refusal(|c| c.duplicate = f64::NAN).contains("duplicate"));
        assert!(refusal(|c| c.mtu = 0).contains("mtu"));
        assert!(refusal(|c| c.capacity = 0).contains("capacity"));
        assert!(refusal(|c| c.ecn_mark = Some(c.queue)).contains("ecn-mark"));
        let loss = |e| move |c: &mut LinkConfig| c.losses = vec![Loss::lose(e)];
        assert!(refusal(loss(Errors::Uniform(-0.1))).contains("loss"));
        assert!(refusal(loss(Errors::burst(0.1, 0.5))).contains("burst length"));
        assert!(refusal(loss(Errors::burst(0.0, 2.0))).contains("gap"));
        let fade = |mean, share| loss(Errors::Fade { mean, share });
        assert!(refusal(fade(Duration::from_millis(17), 1.0)).contains("share"));
        assert!(refusal(fade(Duration::from_nanos(5), 0.1)).contains("mean fade"));
    }

    #[test]
    fn pauses_that_overlap_themselves_and_steps_out_of_order_are_refused() {
        let second = Duration::from_secs(1);
        let pause = Pause { every: Some(second), ..Pause::once(second, second * 2) };
        assert!(refusal(|c| c.pauses = vec![pause]).contains("spacing"));
        let step = |s| RateStep { at: Duration::from_secs(s), rate: Rate::from_mbps(1) };
        let steps =
            |steps, period| Pacing::Steps(RateSteps { initial: Rate::UNLIMITED, steps, period });
        assert!(refusal(|c| c.pacing = steps(vec![step(2), step(1)], None)).contains("order"));
        assert!(refusal(|c| c.pacing = steps(vec![step(2)], Some(second))).contains("period"));
    }
}
