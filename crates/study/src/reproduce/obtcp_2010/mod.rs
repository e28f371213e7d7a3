//! Sardar, Saha and Hassan, 2010: snoop and obTCP behind a mobile router.
//!
//! Figures 7 to 13 are equations and are evaluated; figures 14 to 22 and 24 and Tables 5 and 6 are
//! simulated, from the scenario files in `papers/obtcp-2010`. The paper prints few numbers of its
//! figures, so that most of what has to be right are shapes.

mod cells;
mod content;
mod criteria;
mod document;
mod figures;
mod gains;
mod model;
mod points;
mod runner;

use lasthop_units::Seed;

use super::cell::{Cell, chosen};
use super::prose::Prose;
use super::run::{Progress, seed_of};
use super::study::{ReproduceError, Reproduction, Request, compared, paper};
use crate::analysis::obtcp::checks;
use crate::analysis::obtcp::reference::Reference;
use crate::published::Published;
use content::Content;

pub use cells::{Case, Level, Measure};
pub use runner::{Runner, Series, Simulated};

/// How many runs each cell gets if nobody says: few, since a run is 2000 s long.
const RUNS: u32 = 5;

/// What gains are told over.
const OVER: Option<&str> = Some("snoop");

paper!("obtcp-2010", dyn Runner, Simulated::default());

/// What [`reproduce_with`] does, told in these words.
fn reproduce_in(
    prose: &Prose,
    runner: &dyn Runner,
    request: &Request,
    progress: &dyn Progress,
) -> Result<Reproduction, ReproduceError> {
    let beside = |e: &dyn std::error::Error| ReproduceError::Beside(e.to_string());
    let published = published()?;
    let checks = checks::all().map_err(|e| beside(&e))?;
    let reference = Reference::read().map_err(|e| beside(&e))?;
    let all = cells::all(&published)?;
    let points = points::Points::of(&all);
    let cells = chosen(all, &request.only)?;
    let seed = Seed::from_u64(request.seed);
    let comparison = compared(&cells, runner, request, progress)?;
    let criteria = criteria::all(&comparison, &checks, &reference, &points);
    let report = document::report(&Content {
        prose,
        published: &published,
        request,
        comparison: &comparison,
        criteria: &criteria,
        checks: &checks,
        reference: &reference,
        points: &points,
        round_trips: &round_trips(&cells, runner, seed),
    })?;
    Ok(Reproduction { comparison, criteria, report })
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
