//! What a scheme makes of the goodput without help.

use lasthop_units::Scheme;

use super::{Cell, Measure};
use crate::stats::{Estimate, Interval, Ratio};

/// A difference below this share of the goodput is none, however well it is known.
pub(super) const MARGIN: f64 = 0.02;

/// The goodput with a scheme over that without, a mean over pairs of runs that draw alike.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Gain {
    /// The ratio and its 95 % interval.
    pub ratio: Ratio,
}

/// Whether a scheme helps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The interval of the gain is above 1, and the gain itself by 2 % or more.
    Helps,
    /// Neither of the others.
    NoDifference,
    /// The interval of the gain is below 1, and the gain itself by 2 % or more.
    Harms,
}

impl Verdict {
    /// The words for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Helps => "helps",
            Self::NoDifference => "no difference",
            Self::Harms => "harms",
        }
    }
}

impl Gain {
    /// Of a scheme's values and those without help, run by run. None without a pair, or where
    /// nothing arrived.
    ///
    /// The mean and Student's interval are those of the logarithms of the ratios, so that the gain
    /// of one over the other is the reciprocal of the other's.
    pub fn of(helped: &[f64], unhelped: &[f64]) -> Option<Self> {
        let pairs = helped.iter().zip(unhelped);
        if helped.len() != unhelped.len() || pairs.clone().any(|(a, b)| *a <= 0.0 || *b <= 0.0) {
            return None;
        }
        let logs: Vec<f64> = pairs.map(|(a, b)| libm::log(a / b)).collect();
        let mean = Estimate::of(&logs)?;
        let interval =
            mean.interval().map(|i| Interval { lo: libm::exp(i.lo), hi: libm::exp(i.hi) });
        Some(Self { ratio: Ratio { value: libm::exp(mean.mean), interval } })
    }

    /// Whether the scheme helps.
    pub fn verdict(self) -> Verdict {
        let Ratio { value, interval } = self.ratio;
        match interval {
            Some(i) if i.lo > 1.0 && value >= 1.0 + MARGIN => Verdict::Helps,
            Some(i) if i.hi < 1.0 && value <= 1.0 - MARGIN => Verdict::Harms,
            _ => Verdict::NoDifference,
        }
    }
}

/// Compares every goodput with that of the same sender and condition without help.
pub(super) fn compare(cells: &mut [Cell]) {
    let unhelped: Vec<(String, Vec<f64>)> = cells
        .iter()
        .filter(|cell| cell.measure == Measure::Goodput && cell.place.scheme == Scheme::None.name())
        .map(|cell| (cell.place.luck(), cell.ours.values().to_vec()))
        .collect();
    for cell in cells.iter_mut().filter(|cell| cell.measure == Measure::Goodput) {
        let luck = cell.place.luck();
        let base = unhelped.iter().find(|(other, _)| *other == luck);
        cell.gain = base.and_then(|(_, base)| Gain::of(cell.ours.values(), base));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gain_needs_pairs_and_more_than_a_margin() {
        let verdict = |a: &[f64], b: &[f64]| Gain::of(a, b).map(Gain::verdict);
        assert_eq!(verdict(&[20.0, 30.0, 22.0], &[10.0, 16.0, 10.0]), Some(Verdict::Helps));
        assert_eq!(verdict(&[5.0, 8.0, 5.1], &[10.0, 16.0, 10.0]), Some(Verdict::Harms));
        assert_eq!(verdict(&[10.1, 16.2, 10.1], &[10.0, 16.0, 10.0]), Some(Verdict::NoDifference));
        assert_eq!(verdict(&[5.0, 30.0, 11.0], &[10.0, 16.0, 10.0]), Some(Verdict::NoDifference));
        assert_eq!(verdict(&[5.0], &[10.0, 16.0]), None);
        assert_eq!(verdict(&[0.0, 1.0], &[10.0, 16.0]), None);
        assert_eq!(verdict(&[], &[]), None);
    }

    #[test]
    fn a_gain_turned_round_is_the_reciprocal() {
        let (a, b) = ([20.0, 30.0, 22.0], [10.0, 16.0, 10.0]);
        let (there, back) = (Gain::of(&a, &b).unwrap().ratio, Gain::of(&b, &a).unwrap().ratio);
        assert!((there.value * back.value - 1.0).abs() < 1e-12);
        let (i, j) = (there.interval.unwrap(), back.interval.unwrap());
        assert!((i.lo * j.hi - 1.0).abs() < 1e-12);
    }

    #[test]
    fn equal_runs_are_no_difference() {
        let same = Gain::of(&[3.0, 4.0], &[3.0, 4.0]).unwrap();
        assert_eq!((same.ratio.value, same.verdict()), (1.0, Verdict::NoDifference));
    }
}
