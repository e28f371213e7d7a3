//! Each run of a cell: windows by RWC's allocator, everything else in the simulator.

use lasthop_scenario::Scenario;
use lasthop_stream::Shares;
use lasthop_units::Seed;

use super::cells::Case;
use crate::reproduce::{Cell, CellRunner, Failure, sheet};

/// A flow's rate over time: seconds and Mbit/s.
pub type Series = Vec<(f64, f64)>;

/// What runs this paper's cells; the simulator, or a stand-in of it in tests.
pub trait Runner: CellRunner<Case> {
    /// The rates of a run's flows over time, where they are recorded, by the flows' names.
    fn rates(&self, scenario: &Scenario, seed: Seed) -> Option<Vec<(String, Series)>>;
}

/// The experiment in the simulator.
#[derive(Clone, Copy, Debug, Default)]
pub struct Simulated;

impl CellRunner<Case> for Simulated {
    fn run(&self, cell: &Cell<Case>, _run: u32, seed: Seed) -> Result<f64, Failure> {
        match &cell.case {
            Case::Window { total, flows, raised, flow } => window(*total, *flows, *raised, *flow),
            Case::Runs(case) => {
                case.value(|scenario, name| sheet::metric(&sheet::outcome(scenario, seed)?, name))
            }
        }
    }
}

impl Runner for Simulated {
    fn rates(&self, scenario: &Scenario, seed: Seed) -> Option<Vec<(String, Series)>> {
        let table = sheet::recorded(scenario, seed, "rates.csv").ok()?;
        let flow = |name: &String| {
            let points = table.lines().filter_map(|line| rate(line, name)).collect();
            (name.clone(), points)
        };
        Some(scenario.flows.iter().map(|f| flow(&f.name)).collect())
    }
}

/// What RWC gives a flow of several, of which the first was raised (RWC-2).
fn window(total: u64, flows: usize, raised: Option<u32>, flow: usize) -> Result<f64, Failure> {
    let refused = |e: &dyn std::fmt::Display| Failure::Unavailable(e.to_string());
    let mut shares = Shares::new(total, flows);
    for flow in 0..flows {
        shares.add(flow, 1).map_err(|e| refused(&e))?;
    }
    if let Some(priority) = raised {
        shares.set_priority(0, priority);
    }
    let share = shares.share(flow);
    share.map(|n| n as f64).ok_or_else(|| Failure::Unavailable("no such flow".to_owned()))
}

/// The time and Mbit/s of a line of the table, if it is about the flow.
fn rate(line: &str, flow: &str) -> Option<(f64, f64)> {
    let fields: Vec<&str> = line.split(',').collect();
    match fields[..] {
        [start, name, bps] if name == flow => {
            Some((start.parse().ok()?, bps.parse::<f64>().ok()? / 1e6))
        }
        _ => None,
    }
}
