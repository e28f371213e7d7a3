//! What one run gives, and means over independent runs.

use lasthop_study::stats::Estimate;
use serde::Deserialize;

use crate::reference::{Mean, TOLERANCE, Unit};

/// The end of a run.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
pub struct Outcome {
    /// Acknowledged payload in bits a second.
    pub bps: f64,
    /// Segments acknowledged.
    pub acked: u64,
    /// Expiries of the retransmission timer.
    pub timeouts: u64,
    /// Segments sent again.
    pub retransmits: u64,
}

/// The mean of a cell's runs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Measured {
    /// Goodput.
    pub goodput: Mean,
    /// Of how many runs.
    pub runs: u32,
    /// Mean timeouts in a run.
    pub timeouts: f64,
    /// Mean segments sent again in a run.
    pub retransmits: f64,
}

impl Measured {
    /// Of the runs' outcomes, in `unit`; none of none. A single run has no interval: zero.
    pub fn of(outcomes: &[Outcome], unit: Unit) -> Option<Self> {
        let over = |f: fn(&Outcome) -> f64| {
            Estimate::of(&outcomes.iter().map(f).collect::<Vec<_>>()).map(|e| e.mean)
        };
        let goodput: Vec<f64> = outcomes.iter().map(|o| unit.of_bps(o.bps)).collect();
        let estimate = Estimate::of(&goodput)?;
        let ci = estimate.interval().map_or(0.0, |i| (i.hi - i.lo) / 2.0);
        Some(Self {
            goodput: Mean { mean: estimate.mean, ci },
            runs: estimate.n,
            timeouts: over(|o| o.timeouts as f64)?,
            retransmits: over(|o| o.retransmits as f64)?,
        })
    }
}

/// How many runs a cell gets: as many as its interval needs, within bounds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Effort {
    /// At least.
    pub least: u32,
    /// At most.
    pub most: u32,
    /// Enough once half of the 95 % interval is not above this part of the mean.
    pub precision: f64,
}

impl Effort {
    /// What a cell's comparison with `ns2` needs: half of our interval is then below a quarter of
    /// what the means may differ.
    pub fn against(ns2: &Mean, most: u32) -> Self {
        let allowed = ns2.widened(TOLERANCE);
        Self { least: 4, most, precision: (allowed.hi - allowed.lo) / 8.0 / ns2.mean }
    }

    /// Runs seeds from 1 on until the mean is known well enough. The outcome of a seed and the
    /// order are fixed, and so is the result.
    ///
    /// # Errors
    ///
    /// The first run that fails.
    pub fn measure<E>(
        &self,
        unit: Unit,
        mut run: impl FnMut(u32) -> Result<Outcome, E>,
    ) -> Result<Option<Measured>, E> {
        let mut outcomes = Vec::new();
        let mut measured = None;
        for seed in 1..=self.most {
            outcomes.push(run(seed)?);
            if seed < self.least {
                continue;
            }
            measured = Measured::of(&outcomes, unit);
            let good = |m: &Measured| m.goodput.ci <= self.precision * m.goodput.mean;
            if measured.as_ref().is_some_and(good) {
                break;
            }
        }
        Ok(measured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(bps: f64) -> Outcome {
        Outcome { bps, acked: 1, timeouts: 2, retransmits: 3 }
    }

    #[test]
    fn runs_stop_once_the_mean_is_known() {
        let effort = Effort { least: 3, most: 50, precision: 0.05 };
        let steady = effort.measure(Unit::KiloBits, |_| Ok::<_, ()>(outcome(4e3)));
        assert_eq!(steady.unwrap().unwrap().runs, 3);
        let wild = |seed| Ok::<_, ()>(outcome(if seed % 2 == 0 { 1e3 } else { 9e3 }));
        let wild = effort.measure(Unit::KiloBits, wild).unwrap().unwrap();
        assert_eq!(wild.runs, 50);
        assert_eq!(wild.goodput.mean, 5.0);
        assert!(wild.goodput.ci > 1.0);
    }

    #[test]
    fn a_failing_run_ends_the_cell() {
        let effort = Effort { least: 3, most: 50, precision: 0.05 };
        assert_eq!(effort.measure(Unit::KiloBytes, Err), Err(1));
    }
}
