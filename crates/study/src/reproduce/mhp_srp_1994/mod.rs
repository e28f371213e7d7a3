//! Yavatkar and Bhagawat, 1994: Tables 1 to 3, and what stands beside them.

mod cells;
mod document;
mod misses;
mod runner;

use lasthop_units::Seed;

use super::cell::{Cell, Label, chosen};
use super::compare::{Comparison, Criterion, Mark, Order, Pair};
use super::page::Content;
use super::prose::Prose;
use super::run::{CellRunner, Course, Progress, seed_of};
use super::study::{ReproduceError, Reproduction, Request, compared, paper};
use crate::published::Published;

pub use cells::Case;
pub use runner::Simulated;

/// How many runs each cell gets if nobody says.
const RUNS: u32 = 40;

/// The paper compares times, not rates.
const OVER: Option<&str> = None;

paper!("mhp-srp-1994", dyn CellRunner<Case>, Simulated);

/// What [`reproduce_with`] does, told in these words.
fn reproduce_in(
    prose: &Prose,
    runner: &dyn CellRunner<Case>,
    request: &Request,
    progress: &dyn Progress,
) -> Result<Reproduction, ReproduceError> {
    let published = published()?;
    let cells = chosen(cells::all(&published)?, &request.only)?;
    let seed = Seed::from_u64(request.seed);
    let comparison = compared(&cells, runner, request, progress)?;
    let criteria = criteria(&comparison);
    let own = courses(&cells, runner, seed);
    let published = &published;
    document::reproduction(Content { prose, published, request, comparison, criteria, own })
}

/// Where the report shows single runs, and which run it shows.
const SHOWN: [&str; 2] = ["2.8 s", "5 %"];
const SHOWN_RUN: u32 = 0;

fn courses(
    cells: &[Cell<Case>],
    runner: &dyn CellRunner<Case>,
    seed: Seed,
) -> Vec<(Label, Course)> {
    let shown = |cell: &&Cell<Case>| {
        cell.compared && [cell.label.row.as_str(), &cell.label.column] == SHOWN
    };
    let course = |cell: &Cell<Case>| {
        let course = runner.course(cell, SHOWN_RUN, seed_of(seed, &cell.label, SHOWN_RUN))?;
        Some((cell.label.clone(), course))
    };
    cells.iter().filter(shown).filter_map(course).collect()
}

/// What has to be right: the order of the schemes, their ratios, and the three fitted cells.
fn criteria(comparison: &Comparison) -> Vec<Criterion> {
    let orders = || comparison.printed().filter_map(|cell| cell.order);
    let ratios = |first, second| comparison.pairs_of(first, second).map(Pair::is_close);
    let base = comparison
        .printed()
        .filter(|cell| [cell.cell.label.row.as_str(), &cell.cell.label.column] == document::BASE);
    vec![
        Criterion::count(
            "cells whose scheme is in order, as far as the paper decides it",
            orders().map(|order| order != Order::Wrong),
            33,
            Some(30),
        ),
        Criterion::told(
            "cells whose scheme is in order, strictly",
            orders().map(|order| order == Order::Right),
            33,
        ),
        Criterion::count(
            "ratios of schemes within 35 % of the published",
            comparison.pairs.iter().map(Pair::is_close),
            30,
            Some(24),
        ),
        Criterion::told("ratios of tcp / split-tcp within 35 %", ratios("tcp", "split-tcp"), 12),
        Criterion::told("ratios of tcp / srp within 35 %", ratios("tcp", "srp"), 9),
        Criterion::told("ratios of split-tcp / srp within 35 %", ratios("split-tcp", "srp"), 9),
        Criterion::all(
            "base cells within their published interval",
            base.map(|cell| cell.mark == Mark::Within),
            3,
        ),
        Criterion::told(
            "printed cells within their published interval",
            comparison.printed().map(|cell| cell.mark == Mark::Within),
            33,
        ),
        Criterion::told(
            "printed cells that ours takes no less time for",
            comparison
                .printed()
                .filter_map(|c| Some(c.cell.ours.estimate()?.mean >= c.cell.published?.mean)),
            33,
        ),
    ]
}

#[cfg(test)]
mod tests;
