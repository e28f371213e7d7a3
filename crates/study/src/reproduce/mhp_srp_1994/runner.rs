//! Each run of a cell: a mobile that moves a file from cell to cell.

use lasthop_scenario::Move;
use lasthop_units::Seed;

use super::cells::Case;
use crate::reproduce::{Cell, CellRunner, Course, Failure, sheet};

/// The experiment in the simulator.
#[derive(Clone, Copy, Debug, Default)]
pub struct Simulated;

impl CellRunner<Case> for Simulated {
    fn run(&self, cell: &Cell<Case>, _run: u32, seed: Seed) -> Result<f64, Failure> {
        let drawn = cell.case.scenario(seed);
        let scenario = drawn.map_err(|e| Failure::Unavailable(e.to_string()))?;
        sheet::metric(&sheet::outcome(&scenario, seed)?, "file.time_s")
    }

    fn course(&self, cell: &Cell<Case>, _run: u32, seed: Seed) -> Option<Course> {
        let scenario = cell.case.scenario(seed).ok()?;
        let table = sheet::recorded(&scenario, seed, "series.csv").ok()?;
        let of = |variable| sheet::series(&table, variable);
        let (sent, delivered) = (of("written_bytes"), of("received_bytes"));
        // What has no window of its own is told by what it has under way.
        let window = of("cwnd_bytes");
        let cwnd = if window.is_empty() { of("flight_bytes") } else { window };
        let end = delivered.last()?.0;
        let pause = |m: Move| {
            let [from, to] = [m.at, m.at + m.pause].map(|at| at.as_secs_f64());
            (from, to)
        };
        let moves = scenario.handoff.iter().flat_map(|handoff| handoff.moves(seed));
        let pauses = moves.map(pause).filter(|(from, _)| *from < end).collect();
        Some(Course { cwnd, sent, delivered, pauses })
    }
}
