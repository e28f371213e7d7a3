//! Mohammad and Potrus, 2017: a link-layer trigger that freezes the sender for a handoff, beside snoop,
//! M-TCP, splitting, Delayed Dupacks and congestion coherence.
//!
//! Nearly every parameter of the paper is missing. What it claims is run on a set-up of our own, from the
//! scenario files in `papers/ll-trigger-2017`, and Table I is answered by measurement for every scheme.

mod answers;
mod cells;
mod criteria;
mod document;
mod figures;
mod rate;
mod runner;

use lasthop_units::Seed;

use super::cell::{Cell, chosen};
use super::compare::Comparison;
use super::papers::{ReproduceError, Reproduction, Request, Study};
use super::run::{Progress, compared};
use crate::published::Published;
use cells::{BINS, FIGURE_7, MINIMUM};

pub use cells::{Case, Measure};
pub use runner::{Runner, Shown, Simulated};

/// The name that `lasthop reproduce` takes.
pub const ID: &str = "ll-trigger-2017";

/// How many runs each cell gets if nobody says.
const RUNS: u32 = 40;

const PUBLISHED: &str = include_str!("../../../../../papers/ll-trigger-2017/published.toml");

/// How the paper is reproduced.
pub(super) const STUDY: Study = Study {
    runs: RUNS,
    labels: || Ok(cells::all(&published()?)?.into_iter().map(|cell| cell.label).collect()),
    reproduce: |request, progress| reproduce_with(&Simulated, request, progress),
};

/// What the paper publishes.
///
/// # Errors
/// None, as long as the file in the repository is as its tests saw it.
pub fn published() -> Result<Published, ReproduceError> {
    Ok(Published::parse(PUBLISHED)?)
}

/// Runs the chosen cells with `runner` and compares them with the paper's.
///
/// # Errors
/// If a choice of cells makes no sense, or the threads cannot be had.
pub fn reproduce_with(
    runner: &dyn Runner,
    request: &Request,
    progress: &dyn Progress,
) -> Result<Reproduction, ReproduceError> {
    let published = published()?;
    let cells = chosen(cells::all(&published)?, &request.only)?;
    let seed = Seed::from_u64(request.seed);
    let comparison = compared(&cells, runner, request, progress)?;
    let criteria = criteria::all(&published, &comparison);
    let report = document::report(&document::Content {
        published: &published,
        request,
        comparison: &comparison,
        criteria: &criteria,
        shown: &shown(&cells, runner, seed),
    });
    Ok(Reproduction { comparison, criteria, report })
}

/// One run of each scheme of figure 7, all with the same handoff.
fn shown(cells: &[Cell<Case>], runner: &dyn Runner, seed: Seed) -> Vec<(String, Shown)> {
    let seed = seed.child("shown");
    let is_shown = |cell: &&Cell<Case>| {
        let label = &cell.label;
        label.table == FIGURE_7[0] && label.row == MINIMUM && label.column == BINS[0].0
    };
    let shown =
        |cell: &Cell<Case>| Some((cell.label.scheme.clone(), runner.shown(&cell.case, seed)?));
    cells.iter().filter(is_shown).filter_map(shown).collect()
}

/// The mean of a cell, where it has one.
fn mean(
    comparison: &Comparison,
    table: &str,
    row: &str,
    column: &str,
    scheme: &str,
) -> Option<f64> {
    let is_it = |label: &super::Label| {
        [&label.table, &label.row, &label.column, &label.scheme] == [table, row, column, scheme]
    };
    let mut cells = comparison.cells.iter().map(|c| &c.cell);
    Some(cells.find(|m| is_it(&m.label))?.ours.estimate()?.mean)
}

#[cfg(test)]
mod tests;
