//! What obTCP gains on snoop, from the goodputs of both.

use crate::reproduce::{Comparison, Gain};

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
    comparison.rows(figure).into_iter().filter_map(gain).collect()
}

/// The mean of a scheme's goodput at a point of a figure, in kB/s.
pub(super) fn mean(comparison: &Comparison, figure: &str, row: &str, scheme: &str) -> Option<f64> {
    comparison.mean([figure, row, DRAWN, scheme])
}
