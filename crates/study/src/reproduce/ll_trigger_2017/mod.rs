//! Mohammad and Potrus, 2017: a link-layer trigger that freezes the sender for a handoff, beside snoop,
//! M-TCP, splitting, Delayed Dupacks and congestion coherence.
//!
//! Nearly every parameter of the paper is missing. What it claims is run on a set-up of our own, from the
//! scenario files in `papers/ll-trigger-2017`, and Table I is answered by measurement for every scheme.

mod answers;
mod cells;
mod criteria;
mod figures;
mod rate;
mod runner;

use lasthop_units::Seed;

use super::cell::{Cell, chosen};
use super::page::{self, setup};
use super::prose::Prose;
use super::run::Progress;
use super::study::{ReproduceError, Reproduction, Request, compared, paper};
use crate::published::Published;
use cells::{BINS, FIGURE_7, MINIMUM};

pub use cells::{Case, Measure};
pub use runner::{Runner, Shown, Simulated};

/// How many runs each cell gets if nobody says.
const RUNS: u32 = 40;

/// What gains are told over.
const OVER: Option<&str> = Some("snoop");

paper!("ll-trigger-2017", dyn Runner, Simulated);

/// What [`reproduce_with`] does, told in these words.
fn reproduce_in(
    prose: &Prose,
    runner: &dyn Runner,
    request: &Request,
    progress: &dyn Progress,
) -> Result<Reproduction, ReproduceError> {
    let published = published()?;
    let cells = chosen(cells::all(&published)?, &request.only)?;
    let seed = Seed::from_u64(request.seed);
    let comparison = compared(&cells, runner, request, progress)?;
    let criteria = criteria::all(&published, &comparison);
    let shown = shown(&cells, runner, seed);
    let content =
        Content { prose, published: &published, request, comparison, criteria, own: shown };
    let marks = page::marks(prose, &content.comparison);
    let sections = vec![
        figures::timeouts(&content),
        figures::rates(&content),
        figures::throughput(&content),
        figures::characteristics(&content),
        prose.section("explained").noted(),
        setup(prose, &published),
    ];
    content.reproduction(&[], vec![marks], sections)
}

/// What a report is made of, with the rates that are drawn, by scheme.
type Content<'a> = page::Content<'a, Vec<(String, Shown)>>;

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

#[cfg(test)]
mod tests;
