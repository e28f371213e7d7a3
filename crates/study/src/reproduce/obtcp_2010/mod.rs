//! Sardar, Saha and Hassan, 2010: snoop and obTCP behind a mobile router.
//!
//! Figures 7 to 13 are equations and are evaluated; figures 14 to 22 and 24 and Tables 5 and 6 are
//! simulated, from the scenario files in `papers/obtcp-2010`. The paper prints few numbers of its
//! figures, so that most of what has to be right are shapes.

mod cells;
pub mod checks;
mod criteria;
mod document;
mod figures;
mod gains;
mod model;
mod points;
mod runner;

use lasthop_units::Seed;

use super::cell::{Cell, chosen};
use super::equations::Check;
use super::page;
use super::prose::Prose;
use super::run::{Progress, seed_of};
use super::study::{ReproduceError, Reproduction, Request, compared, paper};
use crate::analysis::obtcp::reference::Reference;
use crate::published::Published;
use points::Points;

pub use cells::{Case, Level, Measure};
pub use runner::{Runner, Series, Simulated};

/// How many runs each cell gets if nobody says: few, since a run is 2000 s long.
const RUNS: u32 = 5;

/// What gains are told over.
const OVER: Option<&str> = Some("snoop");

paper!("obtcp-2010", dyn Runner, Simulated);

/// What [`reproduce_with`] does, told in these words.
fn reproduce_in(
    prose: &Prose,
    runner: &dyn Runner,
    request: &Request,
    progress: &dyn Progress,
) -> Result<Reproduction, ReproduceError> {
    let beside = |e: &dyn std::error::Error| ReproduceError::Beside(e.to_string());
    let published = published()?;
    let checks = checks::all()?;
    let reference = Reference::read().map_err(|e| beside(&e))?;
    let all = cells::all(&published)?;
    let points = Points::of(&all);
    let cells = chosen(all, &request.only)?;
    let seed = Seed::from_u64(request.seed);
    let comparison = compared(&cells, runner, request, progress)?;
    let criteria = criteria::all(&comparison, &checks, &reference, &points);
    let round_trips = round_trips(&cells, runner, seed);
    let own = Own { checks, reference, points, round_trips };
    let published = &published;
    document::reproduction(Content { prose, published, request, comparison, criteria, own })
}

/// What a report is made of.
type Content<'a> = page::Content<'a, Own>;

/// What this paper's report shows beside what all reports do.
struct Own {
    checks: Vec<Check>,
    reference: Reference,
    points: Points,
    round_trips: Vec<(String, Series)>,
}

/// Figure 22's schemes, and which of their runs is drawn.
const SHOWN: [&str; 2] = ["snoop", "obtcp"];
const SHOWN_RUN: u32 = 0;

fn round_trips(cells: &[Cell<Case>], runner: &dyn Runner, seed: Seed) -> Vec<(String, Series)> {
    let shown = |cell: &&Cell<Case>| {
        cell.case.measure == Measure::Srtt(Level::Mean)
            && SHOWN.contains(&cell.label.scheme.as_str())
    };
    let series = |cell: &Cell<Case>| {
        let series = runner.round_trips(&cell.case, seed_of(seed, &cell.label, SHOWN_RUN))?;
        Some((cell.label.scheme.clone(), series))
    };
    cells.iter().filter(shown).filter_map(series).collect()
}

#[cfg(test)]
mod tests;
