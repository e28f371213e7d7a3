//! Each run of a cell: a transfer in the simulator.

use lasthop_units::{Bytes, Duration, Seed};

use crate::reproduce::sheet::Case;
use crate::reproduce::{Cell, CellRunner, Failure, sheet};
use crate::scenario::{End, Scenario, Traffic};

/// The experiment in the simulator.
#[derive(Clone, Copy, Debug, Default)]
pub struct Simulated {
    /// Transfers are so many times shorter than the scenarios say; for a first look.
    pub shorter: Option<u64>,
}

impl CellRunner<Case> for Simulated {
    fn run(&self, cell: &Cell<Case>, _run: u32, seed: Seed) -> Result<f64, Failure> {
        cell.case.value(|scenario, name| self.metric(scenario, name, seed))
    }
}

impl Simulated {
    /// MET-13: a transfer that did not come to its end has no goodput.
    fn metric(&self, scenario: &Scenario, name: &str, seed: Seed) -> Result<f64, Failure> {
        let outcome = match self.shorter {
            None => sheet::outcome(scenario, seed)?,
            Some(times) => sheet::outcome(&shorter(scenario, times), seed)?,
        };
        if !outcome.completed {
            return Err(Failure::Incomplete("TCP gave the connection up".to_owned()));
        }
        sheet::metric(&outcome, name)
    }
}

/// The same with files of a part of their size, and a part of the time where it ends by time.
fn shorter(scenario: &Scenario, times: u64) -> Scenario {
    let mut shorter = scenario.clone();
    let times = times.max(1);
    for flow in &mut shorter.flows {
        if let Traffic::File { size } = &mut flow.traffic {
            *size = Bytes::new(size.get() / times);
        }
    }
    if let End::After(length) = shorter.end {
        shorter.end = End::After(length.mul_f64(1.0 / times as f64).max(Duration::from_secs(20)));
    }
    shorter
}
