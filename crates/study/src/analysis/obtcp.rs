//! The model of snoop and obTCP by Sardar, Saha and Hassan (2010), equations (1) to (22).
//!
//! A fixed host sends through a base and a mobile router to a mobile host. The wired path to the base
//! has a delay of d0 and loses nothing; the link from the base to the mobile router has a delay of d1
//! and loses packets with probability p1, and that from there to the mobile host d2 and p2. Snoop
//! repairs from the base across both links; obTCP repairs on each link by itself.
//!
//! | equations | where |
//! | --- | --- |
//! | (1), (2) window and throughput fall with round-trip time and loss | no function: they are proportionalities, and enter (10) and (11) only |
//! | (3) to (9) time to get a packet across | [`Hops`] |
//! | (10), (11) ratio of windows and of throughput | [`Hops::throughput_ratio`] |
//! | (12), (15), (19) packets and time of many rounds | no function: all rounds are alike, so that their number falls out of (16) and (20) |
//! | (13), (14), (16) to (18), (20) throughput | [`Model`] |
//! | (21), (22) fairness and utilisation | [`fairness`], [`utilisation`] |
//!
//! Where the model stops being valid is in [`validity`]; `reproduce::obtcp_2010::checks` holds this module
//! against values that were computed from the formulas.
//!
//! Delays are one way. Times have a resolution of a nanosecond and end at [`Duration::MAX`].

mod recovery;
pub mod reference;
mod sharing;
mod throughput;
pub mod validity;

use lasthop_units::Duration;
use thiserror::Error;

pub use recovery::{Hop, Hops};
pub use sharing::{fairness, utilisation};
pub use throughput::{Batch, Batches, Model, PacketRate};

/// The probability that a link loses a packet: at least 0 and below 1, since nothing ever gets across
/// a link that loses all (equation (7) is said to be valid for p1 < 1 and p2 < 1).
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
pub struct LossProbability(f64);

impl LossProbability {
    /// A link that loses nothing.
    pub const NONE: Self = Self(0.0);

    /// A probability of `p`.
    ///
    /// # Errors
    /// If `p` is below 0, is 1 or more, or is no number.
    pub fn new(p: f64) -> Result<Self, DomainError> {
        if (0.0..1.0).contains(&p) { Ok(Self(p)) } else { Err(DomainError::Loss(p)) }
    }

    /// The probability as a number.
    pub fn get(self) -> f64 {
        self.0
    }

    /// The probability that a packet gets across; above 0.
    pub fn success(self) -> f64 {
        1.0 - self.0
    }

    /// How often a packet is sent on average until it gets across: equation (4).
    ///
    /// Losses are independent. Since they have no memory, this is also the mean number of repetitions
    /// of a packet that is known to be lost.
    pub fn transmissions(self) -> f64 {
        self.success().recip()
    }
}

/// Why an equation has no value.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
pub enum DomainError {
    /// A loss is no probability below one.
    #[error(
        "a loss of {0} is not at least 0 and below 1; nothing gets across a link that loses all"
    )]
    Loss(f64),
    /// A window without a packet.
    #[error("a window of 0 packets moves nothing; it must be at least 1")]
    Window,
    /// A repair brings less than one packet.
    #[error("a repair brings at least 1 packet on average, not {0}")]
    Batch(f64),
    /// A quotient of times whose divisor is zero.
    #[error("without any delay there is no ratio of times; one of the links must have a delay")]
    NoDelay,
    /// A gain that no number of packets in a repair gives.
    #[error("no number of packets in a repair makes the gain {0} %")]
    Gain(f64),
    /// Shares of nothing.
    #[error("fairness and utilisation need at least one flow that receives something")]
    NoFlow,
    /// A bottleneck without a rate, or without a limit.
    #[error("utilisation needs a bottleneck with a rate above 0 that is not unlimited")]
    NoRate,
}

/// A time in seconds as a duration, which ends at [`Duration::MAX`].
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests;
