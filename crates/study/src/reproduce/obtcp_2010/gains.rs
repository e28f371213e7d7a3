//! What obTCP gains on snoop, from the goodputs of both.

use crate::reproduce::{Comparison, Measured};
use crate::stats::{self, Interval};

use super::cells::DRAWN;

/// What a scheme's goodput is above snoop's at a point of a figure.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Gain {
    /// The point on the figure's axis.
    pub(super) row: String,
    /// In per cent, 100 (a/b - 1).
    pub(super) percent: f64,
    /// Its 95 % interval, where both goodputs have one.
    pub(super) interval: Option<Interval>,
}

/// What one scheme gains on another along the axis of a figure; points that were not run, or of which
/// a run failed, are left out.
pub(super) fn gains(comparison: &Comparison, figure: &str, scheme: &str, over: &str) -> Vec<Gain> {
    rows(comparison, figure)
        .into_iter()
        .filter_map(|row| {
            let at = |scheme: &str| cell(comparison, figure, row, scheme);
            let (a, b) = (at(scheme)?, at(over)?);
            let whole = |m: &Measured| m.ours.estimate().filter(|_| m.ours.failures() == 0);
            let ratio = stats::ratio(&whole(a)?, &whole(b)?)?;
            let percent = |value: f64| 100.0 * (value - 1.0);
            let interval =
                ratio.interval.map(|i| Interval { lo: percent(i.lo), hi: percent(i.hi) });
            Some(Gain { row: row.to_owned(), percent: percent(ratio.value), interval })
        })
        .collect()
}

/// The points on the axis of a figure, in its order.
pub(super) fn rows<'a>(comparison: &'a Comparison, figure: &str) -> Vec<&'a str> {
    let mut rows: Vec<&str> = Vec::new();
    for compared in comparison.cells.iter().filter(|c| c.cell.label.table == figure) {
        let row = compared.cell.label.row.as_str();
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    rows
}

/// The goodput of a scheme at a point of a figure.
pub(super) fn cell<'a>(
    comparison: &'a Comparison,
    figure: &str,
    row: &str,
    scheme: &str,
) -> Option<&'a Measured> {
    let is_it = |m: &&Measured| {
        let label = &m.label;
        label.table == figure && label.row == row && label.scheme == scheme && label.column == DRAWN
    };
    comparison.cells.iter().map(|c| &c.cell).find(is_it)
}

/// The mean of a scheme's goodput there, in kB/s.
pub(super) fn mean(comparison: &Comparison, figure: &str, row: &str, scheme: &str) -> Option<f64> {
    Some(cell(comparison, figure, row, scheme)?.ours.estimate()?.mean)
}
