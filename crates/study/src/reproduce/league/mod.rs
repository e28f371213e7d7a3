//! The league table: every scheme under every condition, with the senders of the papers' time and
//! with today's; and calls and transfers of datagrams, for which few schemes do anything.
//!
//! A run gives several cells at once, and a cell has no published counterpart, so that the league
//! has cells and runs of its own. All schemes meet the same luck: the gain of a scheme is the mean
//! over pairs of runs that draw alike.

mod cells;
mod document;
mod gain;
mod print;
mod runner;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use lasthop_units::{Rate, Scheme, Seed, WorksAt as Where};
use rayon::prelude::*;

use super::cell::{Label, Only, chosen_labels, once_each};
use super::compare::Criterion;
use super::prose::Prose;
use super::run::{Failure, Progress, gathered};
use super::study::{ReproduceError, Request, beside, pool};
use crate::report::Report;
use crate::stats::Sample;

pub use cells::{LeagueRun, Load, Measure};
pub use gain::{Gain, Verdict};
pub use print::{json_lines, tables};

use cells::{Case, Entry};

/// The name that `lasthop reproduce` takes.
pub const ID: &str = "league";

/// How many runs each cell gets if nobody says.
pub const RUNS: u32 = 10;

/// How much above the limit a goodput may be before something is wrong with one of them, in per cent.
const ABOVE: f64 = 2.0;

/// One cell after its runs.
#[derive(Clone, Debug)]
pub struct Cell {
    /// What was run.
    pub place: LeagueRun,
    /// What was measured.
    pub measure: Measure,
    /// Where it stands.
    pub label: Label,
    /// What the runs gave. Nothing where the scheme has no place.
    pub ours: Sample,
    /// Why the scheme has no place here.
    pub not_applicable: Option<&'static str>,
    /// The reasons of runs without a value, each once.
    pub reasons: Vec<String>,
    /// The most that the radio allows here.
    pub limit: Option<Rate>,
    /// What the scheme makes of the goodput without help.
    pub gain: Option<Gain>,
}

impl Cell {
    /// The mean of its values, if it has any.
    pub fn mean(&self) -> Option<f64> {
        self.ours.estimate().map(|e| e.mean)
    }
}

/// The league after its runs.
#[derive(Clone, Debug)]
pub struct League {
    /// Its cells, in order.
    pub cells: Vec<Cell>,
    /// What has to be right for it to be believed.
    pub criteria: Vec<Criterion>,
    /// All of it as a report.
    pub report: Report,
}

/// The labels of all cells, in order.
///
/// # Errors
/// None, as long as the scenario files are as their tests saw them.
pub fn labels() -> Result<Vec<Label>, ReproduceError> {
    let entries = cells::all()?;
    Ok(entries.iter().flat_map(|(place, _)| labels_of(place).map(|(_, label)| label)).collect())
}

fn labels_of(place: &LeagueRun) -> impl Iterator<Item = (Measure, Label)> + '_ {
    place.load.measures().iter().map(|measure| (*measure, place.label(*measure)))
}

/// Runs the chosen cells, and those that they are measured by.
///
/// # Errors
/// If a choice of cells makes no sense, or the threads cannot be had.
pub fn reproduce(request: &Request, progress: &dyn Progress) -> Result<League, ReproduceError> {
    let entries = chosen(cells::all()?, &request.only)?;
    let mut cells = pool(request)?.install(|| run_all(&entries, request, progress));
    gain::compare(&mut cells);
    let criteria = criteria(&cells);
    let report = document::report(&prose()?, request, &cells, &criteria)?;
    Ok(League { cells, criteria, report })
}

/// The words of the report.
fn prose() -> Result<Prose, ReproduceError> {
    Ok(Prose::parse(beside!("league", "/report.toml"))?)
}

/// What the choice takes. Where a goodput is taken, so is that without help, which it is compared
/// with.
fn chosen(entries: Vec<Entry>, only: &[Only]) -> Result<Vec<Entry>, ReproduceError> {
    if only.is_empty() {
        return Ok(entries);
    }
    let all = entries.iter().flat_map(|(place, _)| labels_of(place).map(|(_, label)| label));
    let taken = chosen_labels(all.collect(), only)?;
    let takes = |place: &LeagueRun| labels_of(place).any(|(_, label)| taken.contains(&label));
    let lucks: Vec<String> =
        entries.iter().filter(|(place, _)| takes(place)).map(|(place, _)| place.luck()).collect();
    let unhelped =
        |place: &LeagueRun| place.scheme == Scheme::None.name() && lucks.contains(&place.luck());
    Ok(entries.into_iter().filter(|(place, _)| takes(place) || unhelped(place)).collect())
}

fn run_all(entries: &[Entry], request: &Request, progress: &dyn Progress) -> Vec<Cell> {
    let to_run = entries.iter().filter(|(_, case)| case.is_ok()).count() as u64;
    progress.begin(to_run * u64::from(request.runs));
    let seed = Seed::from_u64(request.seed);
    entries
        .par_iter()
        .flat_map_iter(|(place, case)| match case {
            Ok(case) => measured(place, case, request.runs, seed, progress),
            Err(reason) => labels_of(place).map(|cell| nowhere(place, cell, reason)).collect(),
        })
        .collect()
}

fn measured(
    place: &LeagueRun,
    case: &Case,
    runs: u32,
    seed: Seed,
    progress: &dyn Progress,
) -> Vec<Cell> {
    let measures = place.load.measures();
    let luck = place.luck();
    let results: Vec<Vec<Result<f64, Failure>>> = (0..runs)
        .into_par_iter()
        .map(|run| {
            let values = runner::run(case, seed.child(&format!("league/{luck}/{run}")), measures);
            progress.done();
            values
        })
        .collect();
    let limit = runner::limit(&case.scenario, case.radios);
    let cell = |(n, cell): (usize, (Measure, Label))| {
        let results = results.iter().filter_map(|values| values.get(n).cloned());
        let (ours, reasons) = gathered(results);
        Cell { limit, ours, reasons, ..empty(place, cell) }
    };
    labels_of(place).enumerate().map(cell).collect()
}

fn nowhere(place: &LeagueRun, cell: (Measure, Label), reason: &'static str) -> Cell {
    Cell { not_applicable: Some(reason), ..empty(place, cell) }
}

fn empty(place: &LeagueRun, (measure, label): (Measure, Label)) -> Cell {
    Cell {
        place: place.clone(),
        measure,
        label,
        ours: Sample::default(),
        not_applicable: None,
        reasons: Vec::new(),
        limit: None,
        gain: None,
    }
}

/// The names of the schemes that claim to repair what the hop loses.
fn repairs_losses(scheme: Scheme) -> bool {
    matches!(scheme.traits().place, Where::Path | Where::Surrogate)
}

/// Those that claim to get over disconnections: the mobile's own, and M-TCP, which was made for them.
fn outlives_gaps(scheme: Scheme) -> bool {
    scheme.traits().place == Where::Mobile || scheme == Scheme::MTcp
}

/// What has to be right: that no goodput is above what the radio allows, and that each scheme helps
/// downloads where its paper says so.
fn criteria(cells: &[Cell]) -> Vec<Criterion> {
    let goodputs = || cells.iter().filter(|cell| cell.measure == Measure::Goodput);
    let run = || goodputs().filter(|cell| cell.not_applicable.is_none());
    let below = run().filter_map(Cell::mean).map(|share| share <= 100.0 + ABOVE);
    let whole = run().count();
    let helps = |condition: &str, claims: fn(Scheme) -> bool| -> Vec<bool> {
        run()
            .filter(|cell| cell.place.load == Load::Download && cell.place.sender == "reno")
            .filter(|cell| cell.place.condition == condition)
            .filter(|cell| Scheme::of_name(&cell.place.scheme).is_some_and(claims))
            // A single run decides nothing.
            .filter(|cell| cell.ours.runs() > 1)
            .map(|cell| cell.gain.is_some_and(|gain| gain.verdict() == Verdict::Helps))
            .collect()
    };
    // A mobile router stands elsewhere.
    let all = |claims: fn(Scheme) -> bool| {
        let meant = |s: &Scheme| claims(*s) && !s.traits().needs_mobile_router;
        Scheme::over_one_link().filter(meant).count()
    };
    let ended = run().map(|cell| cell.ours.failures() == 0);
    vec![
        Criterion::all("goodputs at most 2 % above the limit", below, whole),
        Criterion::all("cells all of whose runs gave a value", ended, whole),
        Criterion::all(
            "schemes against losses that help a Reno download at 5 %",
            helps("loss 5 %", repairs_losses),
            all(repairs_losses),
        ),
        Criterion::all(
            "schemes against disconnections that help a Reno download",
            helps("gaps", outlives_gaps),
            all(outlives_gaps),
        ),
    ]
}

/// Cells by what they measure and where, for tables.
#[derive(Debug)]
pub(super) struct Board<'a> {
    cells: BTreeMap<[&'a str; 4], &'a Cell>,
    /// The conditions, in order.
    pub(super) conditions: Vec<&'a str>,
    /// The senders, in order.
    pub(super) senders: Vec<&'a str>,
    /// The schemes, in order.
    pub(super) schemes: Vec<&'a str>,
}

impl<'a> Board<'a> {
    /// Of what TCP carries.
    pub(super) fn new(cells: &'a [Cell]) -> Self {
        Self::of(cells, Load::is_tcp)
    }

    /// Of packets that are not TCP's.
    pub(super) fn of_packets(cells: &'a [Cell]) -> Self {
        Self::of(cells, |load| !load.is_tcp())
    }

    fn of(cells: &'a [Cell], is_in: impl Fn(Load) -> bool) -> Self {
        let cells = || cells.iter().filter(|cell| is_in(cell.place.load));
        let names =
            |of: fn(&LeagueRun) -> &String| once_each(cells().map(|cell| of(&cell.place).as_str()));
        Self {
            cells: cells().map(|cell| (cell.label.words(), cell)).collect(),
            conditions: names(|place| &place.condition),
            senders: names(|place| &place.sender),
            schemes: names(|place| &place.scheme),
        }
    }

    /// The cell of a table, sender, condition and scheme.
    pub(super) fn at(
        &self,
        table: &str,
        sender: &str,
        condition: &str,
        scheme: &str,
    ) -> Option<&'a Cell> {
        self.cells.get(&[table, sender, condition, scheme]).copied()
    }

    /// Whether there is any cell of a table with this sender.
    pub(super) fn has(&self, table: &str, sender: &str) -> bool {
        self.cells.values().any(|c| c.label.table == table && c.label.row == sender)
    }
}
