//! Raisinghani, Singh and Iyer, 2003: user priorities as receive windows, and TCP that hears of
//! disconnections.
//!
//! The figures of the available copy are lost. Figures 2 to 4 are run from what the text says of them;
//! figures 6 and 7 with a set-up of our own, from the scenario files in `papers/rwc-atcp-2003`.

mod beside;
mod cells;
mod criteria;
mod figures;
mod gains;
mod runner;

use lasthop_units::Seed;

use super::cell::{Cell, chosen};
use super::page::{self, setup};
use super::prose::Prose;
use super::run::{Progress, seed_of};
use super::study::{ReproduceError, Reproduction, Request, compared, paper};
use crate::published::Published;
use beside::Ns2;
use cells::{AFTER, FLOWS};

pub use cells::Case;
pub use runner::{Runner, Series, Simulated};

/// How many runs each cell gets if nobody says.
const RUNS: u32 = 40;

/// What gains are told over.
const OVER: Option<&str> = Some("none");

paper!("rwc-atcp-2003", dyn Runner, Simulated);

/// What [`reproduce_with`] does, told in these words.
fn reproduce_in(
    prose: &Prose,
    runner: &dyn Runner,
    request: &Request,
    progress: &dyn Progress,
) -> Result<Reproduction, ReproduceError> {
    let published = published()?;
    let ns2 = Ns2::read()?;
    let cells = chosen(cells::all(&published)?, &request.only)?;
    let seed = Seed::from_u64(request.seed);
    let comparison = compared(&cells, runner, request, progress)?;
    let criteria = criteria::all(&comparison, &ns2);
    let own = Own {
        ns2,
        downloads: downloads(&cells, runner, seed),
        transfers: transfers(&cells, runner, seed),
    };
    let content = Content { prose, published: &published, request, comparison, criteria, own };
    let sections = vec![
        figures::downloads(&content),
        figures::maxima(&content),
        figures::transfers(&content),
        figures::courses(&content),
        prose.section("explained").noted(),
        figures::sensitivity(&content),
        setup(prose, &published),
    ];
    content.reproduction(&[], Vec::new(), sections)
}

/// What a report is made of.
type Content<'a> = page::Content<'a, Own>;

/// What this paper's report shows beside what all reports do.
struct Own {
    ns2: Ns2,
    downloads: Vec<Shown>,
    transfers: Vec<Shown>,
}

/// The rates of the flows of one run.
pub(crate) struct Shown {
    /// What was run.
    pub(crate) title: String,
    /// The flows, or the schemes.
    pub(crate) rates: Vec<(String, Series)>,
    /// When the link was cut, from and to, in seconds.
    pub(crate) cuts: Vec<(f64, f64)>,
}

/// Which run is drawn.
const SHOWN_RUN: u32 = 0;

/// Figures 2 to 4 over time.
fn downloads(cells: &[Cell<Case>], runner: &dyn Runner, seed: Seed) -> Vec<Shown> {
    let figures = ["figure2", "figure3", "figure4"];
    let shown = |figure: &str| {
        let mut own = cells.iter().filter(|c| c.label.table == figure && c.label.row == AFTER);
        let cell = own.find(|c| c.label.column == FLOWS[0])?;
        let scenario = cell.case.scenario()?;
        let rates = runner.rates(scenario, seed_of(seed, &cell.label, SHOWN_RUN))?;
        Some(Shown { title: figure.replace("figure", "figure "), rates, cuts: Vec::new() })
    };
    figures.into_iter().filter_map(shown).collect()
}

/// The length of the disconnections that are drawn over time.
const SHOWN_LENGTH: &str = "3 s";

/// One run of each scheme over the same disconnections.
fn transfers(cells: &[Cell<Case>], runner: &dyn Runner, seed: Seed) -> Vec<Shown> {
    let shown = |transfer: &cells::Transfer| {
        let place = |scheme: &str| {
            let place = [transfer.table, SHOWN_LENGTH, cells::GOODPUT, scheme];
            cells.iter().find(|cell| cell.label.words() == place)
        };
        let seed = seed.child("shown").child(transfer.table);
        let mut cuts = Vec::new();
        let mut rates = Vec::new();
        for scheme in transfer.schemes {
            let scenario = place(scheme)?.case.scenario()?;
            let handoff = scenario.handoff.as_ref()?;
            let cut =
                |m: lasthop_scenario::Move| (m.at.as_secs_f64(), (m.at + m.pause).as_secs_f64());
            cuts = handoff.moves(seed).map(cut).collect();
            let (_, series) = runner.rates(scenario, seed)?.into_iter().next()?;
            rates.push(((*scheme).to_owned(), series));
        }
        Some(Shown { title: transfer.title.to_owned(), rates, cuts })
    };
    cells::TRANSFERS.iter().filter_map(shown).collect()
}

#[cfg(test)]
mod tests;
