//! What Mobile TCP gains on TCP, and what each keeps of the loss-free peak.

use super::cells::{FIGURE_16, MOBILE_TCP, NO_FADES, TCP};
use crate::reproduce::Comparison;
use crate::stats::{self, Interval, Ratio};

/// What a goodput is above another (MET-2).
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Gain {
    /// In per cent, 100 (a/b - 1).
    pub(super) percent: f64,
    /// Its 95 % interval, where both goodputs have one.
    pub(super) interval: Option<Interval>,
}

/// What Mobile TCP gains on TCP at a place; none unless all runs of both came to their end.
pub(super) fn gain(comparison: &Comparison, place: [&str; 3]) -> Option<Gain> {
    gain_on(comparison, place, TCP)
}

/// What Mobile TCP gains there on another scheme.
pub(super) fn gain_on(
    comparison: &Comparison,
    [table, row, column]: [&str; 3],
    other: &str,
) -> Option<Gain> {
    let of = |scheme: &str| comparison.whole([table, row, column, scheme]);
    let ratio = stats::ratio(&of(MOBILE_TCP)?, &of(other)?)?;
    let percent = |value: f64| 100.0 * (value - 1.0);
    let interval = ratio.interval.map(|i| Interval { lo: percent(i.lo), hi: percent(i.hi) });
    Some(Gain { percent: percent(ratio.value), interval })
}

/// A scheme's goodput over Mobile TCP's without loss, in the same network (MET-2).
pub(super) fn normalised(
    comparison: &Comparison,
    network: &str,
    row: &str,
    scheme: &str,
) -> Option<Ratio> {
    let of = |row: &str, scheme: &str| comparison.whole([FIGURE_16, row, network, scheme]);
    stats::ratio(&of(row, scheme)?, &of(NO_FADES, MOBILE_TCP)?)
}
