//! What schemes gain on Reno, and how near they come to what a disconnection leaves.

use super::cells::{GOODPUT, NEVER, Transfer};
use crate::reproduce::{Comparison, Gain};

/// From one disconnection to the next, in seconds.
const PERIOD: f64 = 10.0;
/// How many there are in a run, and by which part of its mean a length varies either way.
const DISCONNECTIONS: f64 = 10.0;
const SPREAD: f64 = 0.3;

/// A scheme's gain at a place.
pub(super) fn gain(comparison: &Comparison, place: [&str; 3], scheme: &str) -> Option<Gain> {
    comparison.gain(place, scheme, "none")
}

/// A scheme's largest gain in a table, and for which length.
pub(super) fn largest<'a>(
    comparison: &'a Comparison,
    transfer: &Transfer,
    scheme: &str,
) -> Option<(&'a str, Gain)> {
    let all = lengths(comparison, transfer)
        .into_iter()
        .filter_map(|row| Some((row, gain(comparison, [transfer.table, row, GOODPUT], scheme)?)));
    all.max_by(|a, b| a.1.percent.total_cmp(&b.1.percent))
}

/// The lengths of disconnections that were run, in order, without none at all.
pub(super) fn lengths<'a>(comparison: &'a Comparison, transfer: &Transfer) -> Vec<&'a str> {
    let mut rows = comparison.rows(transfer.table);
    rows.retain(|row| *row != NEVER);
    rows
}

/// What remains of the loss-free goodput while the link is up: the most that any scheme can have.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Ideal {
    /// Where lengths have their mean.
    pub(super) mean: f64,
    /// The standard deviation that a single disconnection's length gives it, if all were like it.
    deviation: f64,
}

impl Ideal {
    /// Its standard error in the mean of so many runs, whose lengths are their own.
    pub(super) fn error(&self, runs: u32) -> f64 {
        self.deviation / (DISCONNECTIONS * f64::from(runs)).sqrt()
    }
}

/// The most that any scheme can have over disconnections of this length.
pub(super) fn ideal(comparison: &Comparison, transfer: &Transfer, row: &str) -> Option<Ideal> {
    let whole = comparison.whole_mean([transfer.table, NEVER, GOODPUT, "none"])?;
    let length: f64 = row.strip_suffix(" s")?.parse().ok()?;
    let share = length / PERIOD;
    // Of a uniform length.
    let deviation = whole * share * SPREAD / 3.0_f64.sqrt();
    Some(Ideal { mean: whole * (1.0 - share), deviation })
}
