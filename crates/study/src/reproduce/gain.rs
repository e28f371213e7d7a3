//! What a scheme's mean is above another's in the same place.

use super::compare::Comparison;
use crate::report::chart::Range;
use crate::stats::{self, Estimate, Interval};

/// What a mean, of goodputs mostly, is above another (MET-2).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Gain {
    /// In per cent, 100 (a/b - 1).
    pub percent: f64,
    /// Its 95 % interval, where both means have one.
    pub interval: Option<Interval>,
}

impl Gain {
    /// Of one mean over another; none unless both are above zero.
    pub fn of(ours: &Estimate, other: &Estimate) -> Option<Self> {
        let ratio = stats::ratio(ours, other)?;
        let percent = |value: f64| 100.0 * (value - 1.0);
        let interval = ratio.interval.map(|i| Interval { lo: percent(i.lo), hi: percent(i.hi) });
        Some(Self { percent: percent(ratio.value), interval })
    }

    /// The gain is above zero, as far as its interval tells.
    pub fn is_certain(&self) -> bool {
        self.interval.map_or(self.percent, |i| i.lo) > 0.0
    }
}

impl From<Gain> for Range {
    fn from(gain: Gain) -> Self {
        Self { mean: gain.percent, interval: gain.interval }
    }
}

impl Comparison {
    /// What a scheme gains on another in a table, row and column; none unless all runs of both came
    /// to their end.
    pub fn gain(&self, [table, row, column]: [&str; 3], scheme: &str, other: &str) -> Option<Gain> {
        let of = |scheme: &str| self.whole([table, row, column, scheme]);
        Gain::of(&of(scheme)?, &of(other)?)
    }
}
