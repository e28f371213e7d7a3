//! Each run of a cell: a transfer in the simulator.

use lasthop_scenario::Scenario;
use lasthop_units::Seed;

use crate::reproduce::sheet::Case;
use crate::reproduce::{Cell, CellRunner, Failure, sheet};

/// The experiment in the simulator.
#[derive(Clone, Copy, Debug, Default)]
pub struct Simulated;

impl CellRunner<Case> for Simulated {
    fn run(&self, cell: &Cell<Case>, _run: u32, seed: Seed) -> Result<f64, Failure> {
        cell.case.value(|scenario, name| metric(scenario, name, seed))
    }
}

/// MET-13: a transfer that did not come to its end has no goodput.
fn metric(scenario: &Scenario, name: &str, seed: Seed) -> Result<f64, Failure> {
    let outcome = sheet::outcome(scenario, seed)?;
    if !outcome.completed {
        return Err(Failure::Incomplete("TCP gave the connection up".to_owned()));
    }
    sheet::metric(&outcome, name)
}
