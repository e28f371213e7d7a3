//! What ns-2 gives for TCP over such fades: neither the paper's nor ours.

use serde::Deserialize;

use super::cells::NS2;
use crate::reproduce::study::{ReproduceError, beside, read_beside};
use crate::reproduce::{Comparison, Measured};

/// How far ours may be from ns-2's beyond both intervals, as a part of it.
const NEAR: f64 = 0.05;

/// Everything that was measured with ns-2.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ns2 {
    /// The shares of time in fades, as labels.
    pub(super) shares: Vec<String>,
    /// The senders.
    #[serde(rename = "row")]
    pub(super) rows: Vec<Row>,
}

/// A sender's goodputs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    /// Its answer to loss.
    pub(super) sender: String,
    /// Its least timeout and its clock.
    pub(super) timer: String,
    /// Ours is known to differ.
    #[serde(default)]
    pub(super) apart: bool,
    /// In kbit/s, one for each share.
    pub(super) mean: Vec<f64>,
    /// Half of the 95 % interval of each.
    pub(super) half: Vec<f64>,
}

/// One of its goodputs, with ours.
pub(super) struct Point<'a> {
    /// The share of time in fades.
    pub(super) share: &'a str,
    /// ns-2's mean and half its interval, in kbit/s.
    pub(super) theirs: (f64, f64),
    /// Ours.
    pub(super) ours: &'a Measured,
}

impl Point<'_> {
    /// Whether ours is within ns-2's interval, its own and 5 %; none without a run.
    pub(super) fn agrees(&self) -> Option<bool> {
        let ours = self.ours.ours.estimate()?;
        let (mean, half) = self.theirs;
        let own = ours.interval().map_or(0.0, |i| (i.hi - i.lo) / 2.0);
        Some((ours.mean - mean).abs() <= half + own + NEAR * mean)
    }
}

impl Ns2 {
    /// What the repository holds.
    ///
    /// # Errors
    ///
    /// None, as long as the file is as its tests saw it.
    pub(super) fn read() -> Result<Self, ReproduceError> {
        read_beside("ns2.toml", beside!("mobile-tcp-2001", "/ns2.toml"))
    }

    /// The points of a sender that were run.
    pub(super) fn points<'a>(
        &'a self,
        row: &'a Row,
        comparison: &'a Comparison,
    ) -> impl Iterator<Item = Point<'a>> {
        let theirs = row.mean.iter().copied().zip(row.half.iter().copied());
        self.shares.iter().zip(theirs).filter_map(move |(share, theirs)| {
            let ours = comparison.at([NS2, share, &row.timer, &row.sender])?;
            Some(Point { share, theirs, ours })
        })
    }

    /// How many goodputs are held against ns-2's.
    pub(super) fn held(&self) -> usize {
        self.rows.iter().filter(|row| !row.apart).map(|row| row.mean.len()).sum()
    }
}
