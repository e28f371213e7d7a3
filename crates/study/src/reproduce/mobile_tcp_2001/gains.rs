//! What Mobile TCP gains on TCP, and what each keeps of the loss-free peak.

use super::cells::{FIGURE_16, MOBILE_TCP, NO_FADES, TCP};
use crate::reproduce::{Comparison, Gain};
use crate::stats::{self, Ratio};

/// What Mobile TCP gains on TCP at a place; none unless all runs of both came to their end.
pub(super) fn gain(comparison: &Comparison, place: [&str; 3]) -> Option<Gain> {
    comparison.gain(place, MOBILE_TCP, TCP)
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
