//! What obTCP gains on snoop, from the goodputs of both.

use crate::reproduce::{Comparison, Gain, Measured};

use super::cells::DRAWN;

/// What one scheme gains on another along the axis of a figure, with the point on it; points that were
/// not run, or of which a run failed, are left out.
pub(super) fn gains(
    comparison: &Comparison,
    figure: &str,
    scheme: &str,
    over: &str,
) -> Vec<(String, Gain)> {
    let gain =
        |row: &str| Some((row.to_owned(), comparison.gain([figure, row, DRAWN], scheme, over)?));
    rows(comparison, figure).into_iter().filter_map(gain).collect()
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
