//! Whether two worlds say the same of a scheme.

use std::fmt;

use crate::stats::Ratio;

/// Gains nearer to one than this are none: what another minute or another kernel may turn round.
pub const MARGIN: f64 = 0.05;

/// What a scheme does to goodput.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Effect {
    /// It raises it.
    Helps,
    /// It lowers it.
    Harms,
    /// Neither, as far as can be told.
    Same,
}

impl Effect {
    /// Of a goodput over that without help: beyond [`MARGIN`], and with all of its interval, if it
    /// has one, on one side of one.
    pub fn of(gain: &Ratio) -> Self {
        let (lo, hi) = gain.interval.map_or((gain.value, gain.value), |i| (i.lo, i.hi));
        if gain.value > 1.0 + MARGIN && lo > 1.0 {
            Self::Helps
        } else if gain.value < 1.0 / (1.0 + MARGIN) && hi < 1.0 {
            Self::Harms
        } else {
            Self::Same
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Helps => "helps",
            Self::Harms => "harms",
            Self::Same => "same",
        })
    }
}

/// What is to be made of two gains.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Verdict {
    /// The effect is the same.
    Agree,
    /// It is not, but one interval reaches into the other: more runs would tell.
    Unclear,
    /// It is not.
    Disagree,
}

impl Verdict {
    /// Of one world's gain and the other's.
    pub fn of(one: &Ratio, other: &Ratio) -> Self {
        let overlap = one.interval.zip(other.interval).is_some_and(|(a, b)| a.overlaps(&b));
        match Effect::of(one) == Effect::of(other) {
            true => Self::Agree,
            false if overlap => Self::Unclear,
            false => Self::Disagree,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Agree => "agree",
            Self::Unclear => "unclear",
            Self::Disagree => "disagree",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Interval;

    fn gain(value: f64, lo: f64, hi: f64) -> Ratio {
        Ratio { value, interval: Some(Interval { lo, hi }) }
    }

    #[test]
    fn an_effect_is_beyond_the_margin_and_sure() {
        assert_eq!(Effect::of(&gain(1.2, 1.1, 1.3)), Effect::Helps);
        assert_eq!(Effect::of(&gain(1.2, 0.9, 1.6)), Effect::Same);
        assert_eq!(Effect::of(&gain(1.03, 1.02, 1.04)), Effect::Same);
        assert_eq!(Effect::of(&gain(0.8, 0.7, 0.9)), Effect::Harms);
        assert_eq!(Effect::of(&gain(0.8, 0.6, 1.1)), Effect::Same);
        assert_eq!(Effect::of(&gain(0.97, 0.96, 0.98)), Effect::Same);
        assert_eq!(Effect::of(&Ratio { value: 1.2, interval: None }), Effect::Helps);
        assert_eq!(Effect::of(&Ratio { value: 0.8, interval: None }), Effect::Harms);
    }

    #[test]
    fn opposite_effects_disagree_and_doubtful_ones_are_unclear() {
        let (helps, harms) = (gain(1.2, 1.1, 1.3), gain(0.8, 0.7, 0.9));
        assert_eq!(Verdict::of(&helps, &gain(3.0, 2.0, 4.0)), Verdict::Agree);
        assert_eq!(Verdict::of(&helps, &harms), Verdict::Disagree);
        assert_eq!(Verdict::of(&helps, &gain(1.04, 0.9, 1.2)), Verdict::Unclear);
        assert_eq!(Verdict::of(&helps, &gain(1.0, 0.99, 1.01)), Verdict::Disagree);
    }
}
