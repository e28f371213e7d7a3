//! Each run of a cell: a scenario in the simulator.

use lasthop_scenario::{Outcome, Scenario};
use lasthop_units::{Bytes, Rate, Seed};

use super::cells::{Case, Level, Measure};
use crate::analysis::obtcp::{fairness, utilisation};
use crate::reproduce::{Cell, CellRunner, Failure, sheet};

/// The link that both flows of Tables 5 and 6 share.
const SHARED_LINK: &str = "L1";

/// A value over time: seconds and milliseconds.
pub type Series = Vec<(f64, f64)>;

/// What runs this paper's cells; the simulator, or a stand-in of it in tests.
pub trait Runner: CellRunner<Case> {
    /// The smoothed round trip of a run of figure 22, where it is recorded.
    fn round_trips(&self, case: &Case, seed: Seed) -> Option<Series>;
}

/// The experiment in the simulator.
#[derive(Clone, Copy, Debug, Default)]
pub struct Simulated;

impl CellRunner<Case> for Simulated {
    fn run(&self, cell: &Cell<Case>, _run: u32, seed: Seed) -> Result<f64, Failure> {
        let case = &cell.case;
        match case.measure {
            Measure::Goodput(flow) => {
                let outcome = sheet::outcome(&case.scenario, seed)?;
                Ok(goodput(&outcome, flow)?.as_bps() as f64 / 8000.0)
            }
            Measure::Fairness => {
                let shares = shares(&sheet::outcome(&case.scenario, seed)?)?;
                fairness(&shares).map_err(|e| Failure::Incomplete(e.to_string()))
            }
            Measure::Utilisation => {
                let shares = shares(&sheet::outcome(&case.scenario, seed)?)?;
                let psi = utilisation(&shares, bottleneck(&case.scenario));
                psi.map_err(|e| Failure::Unavailable(e.to_string()))
            }
            Measure::Srtt(level) => {
                let series = series(&case.scenario, seed)?;
                let values = series.into_iter().map(|(_, value)| value).collect();
                of_level(values, level)
                    .ok_or_else(|| Failure::Incomplete("no round trip was measured".to_owned()))
            }
        }
    }
}

impl Runner for Simulated {
    fn round_trips(&self, case: &Case, seed: Seed) -> Option<Series> {
        series(&case.scenario, seed).ok()
    }
}

/// The sender's smoothed round trip while rates count (OBM-13), in ms.
fn series(scenario: &Scenario, seed: Seed) -> Result<Series, Failure> {
    let table = sheet::recorded(scenario, seed, "series.csv")?;
    let from = scenario.measure.from.as_secs_f64();
    let round_trips = sheet::series(&table, "srtt_s").into_iter();
    Ok(round_trips.filter(|(at, _)| *at >= from).map(|(at, s)| (at, s * 1e3)).collect())
}

fn goodput(outcome: &Outcome, flow: &str) -> Result<Rate, Failure> {
    Ok(Rate::from_bps(sheet::metric(outcome, &format!("{flow}.goodput_bps"))? as u64))
}

fn shares(outcome: &Outcome) -> Result<[Rate; 2], Failure> {
    Ok([goodput(outcome, "obtcp")?, goodput(outcome, "snoop")?])
}

fn bottleneck(scenario: &Scenario) -> Rate {
    let link = scenario.links.iter().find(|link| link.name == SHARED_LINK);
    match link.map(|link| &link.radio.up.pacing) {
        Some(lasthop_radio::Pacing::Rate(rate)) => *rate,
        _ => Rate::ZERO,
    }
}

/// A value of many; none of none.
fn of_level(mut values: Vec<f64>, level: Level) -> Option<f64> {
    let n = values.len();
    match level {
        _ if n == 0 => None,
        Level::Mean => Some(values.iter().sum::<f64>() / n as f64),
        Level::Permille(share) => {
            values.sort_by(f64::total_cmp);
            let place = (n as u64 * u64::from(share)).div_ceil(1000).saturating_sub(1);
            values.get(usize::try_from(place).ok()?).copied()
        }
    }
}

/// Bytes of payload that a packet of a scenario carries.
pub(super) fn payload(scenario: &Scenario) -> Bytes {
    let mss = scenario.flows.first().and_then(|flow| flow.tcp.from.mss);
    Bytes::new(mss.map_or(1000, u64::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_a_value_that_so_many_do_not_exceed() {
        let values: Vec<f64> = (1..=20).rev().map(f64::from).collect();
        assert_eq!(of_level(values.clone(), Level::Mean), Some(10.5));
        assert_eq!(of_level(values.clone(), Level::Permille(500)), Some(10.0));
        assert_eq!(of_level(values.clone(), Level::Permille(950)), Some(19.0));
        assert_eq!(of_level(values, Level::Permille(1000)), Some(20.0));
        assert_eq!(of_level(Vec::new(), Level::Mean), None);
    }
}
