//! `lasthop demo`: schemes side by side on the same bad radio.

mod bond;
mod crash;
mod handoff;
mod packets;
mod progress;
mod report;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use lasthop_kernel::netns::{Netns, NetnsError, become_root_of_a_user_namespace};
use lasthop_lab::cell::{Isolation, Measured, Plan, measure};
use lasthop_lab::client::Stop;
use lasthop_lab::condition::Condition;
use lasthop_lab::scheme::Scheme;
use lasthop_lab::topology::{Lab, Topology};
use lasthop_lab::transfer::Direction;
use lasthop_lab::{LabError, lasthop_program};
use lasthop_units::{Seed, one_line};

use crate::terminal;
use progress::Progress;

/// Shows what kernel TCP, split TCP and srp make of a radio of 20 Mbit/s that loses packets, fades
/// or falls silent, with a wired path of 100 Mbit/s and 25 ms behind it. Everything runs in
/// network namespaces of its own, which vanish with the command.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    other: Option<Other>,

    /// One JSON object a line instead of a table
    #[arg(long)]
    json: bool,

    /// Only these: a row (srp), a cell (loss-20) or both (srp/loss-20); may be given several times
    #[arg(long, value_name = "ROW/CELL")]
    only: Vec<Only>,

    /// From the mobile to the fixed host instead of the other way
    #[arg(long)]
    upload: bool,

    /// How long each measured part lasts, after 1.5 s to settle
    #[arg(long, value_name = "N", default_value_t = 15,
          value_parser = clap::value_parser!(u64).range(2..=3600))]
    seconds: u64,

    /// Where the random processes of the radio start
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// How many cells are measured at once
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u8).range(1..=64))]
    jobs: u8,
}

/// Other demonstrations.
#[derive(Subcommand, Debug)]
enum Other {
    /// Show a mobile that uses three links at once, beside other ways to have them
    Bond(bond::Options),
    /// Show a base that dies, and its connections going on at another one
    Crash(crash::Options),
    /// Show a mobile that moves from base to base while its connections go on
    Handoff(handoff::Options),
}

/// A choice of cells: `srp`, `loss-20` or `srp/loss-20`.
#[derive(Clone, Debug)]
struct Only {
    row: Option<String>,
    cell: Option<String>,
}

impl Only {
    fn fits(&self, row: &str, cell: &str) -> bool {
        self.row.as_ref().is_none_or(|r| r == row) && self.cell.as_ref().is_none_or(|c| c == cell)
    }
}

impl std::str::FromStr for Only {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let packets = packets::Cell::all();
        let is_row = |name: &str| {
            rows().iter().any(|r| r.to_string() == name) || packets.iter().any(|c| c.row() == name)
        };
        let is_cell = |name: &str| {
            Condition::DEMO.iter().any(|c| c.to_string() == name)
                || packets.iter().any(|c| c.name() == name)
        };
        let row = |name: &str| is_row(name).then(|| name.to_owned()).ok_or_else(|| unknown(name));
        let cell = |name: &str| is_cell(name).then(|| name.to_owned()).ok_or_else(|| unknown(name));
        match s.split_once('/') {
            Some((r, c)) => Ok(Self { row: Some(row(r)?), cell: Some(cell(c)?) }),
            None if is_cell(s) => Ok(Self { row: None, cell: Some(s.to_owned()) }),
            None => Ok(Self { row: Some(row(s)?), cell: None }),
        }
    }
}

fn unknown(name: &str) -> String {
    let rows: Vec<String> = rows().iter().map(Scheme::to_string).collect();
    let packets = packets::Cell::all();
    let mut cells: Vec<String> = Condition::DEMO.iter().map(ToString::to_string).collect();
    cells.extend(packets.iter().filter(|cell| cell.row() == "srp").map(packets::Cell::name));
    format!("`{name}` is none of the rows {}, none or cells {}", rows.join(", "), cells.join(", "))
}

/// The schemes of the demonstration, in the order of the table.
fn rows() -> Vec<Scheme> {
    let named = |make: fn(String) -> Scheme, name: &str| make(name.to_owned());
    vec![
        named(Scheme::Kernel, "cubic"),
        named(Scheme::Kernel, "bbr"),
        named(Scheme::SplitTcp, "cubic"),
        named(Scheme::SplitTcp, "bbr"),
        Scheme::Srp,
    ]
}

/// One cell of the table.
#[derive(Clone, Debug)]
struct Cell {
    scheme: Scheme,
    condition: Condition,
    direction: Direction,
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.scheme, self.condition)
    }
}

impl Cell {
    fn plan(&self, options: &Options, place: Isolation) -> Plan {
        let measured = Duration::from_secs(options.seconds);
        let mut topology = self.condition.topology();
        // The same losses, as far as packets are sent alike, for every scheme.
        topology.seed = Seed::from_u64(options.seed).child(&self.condition.to_string());
        Plan {
            topology,
            place,
            scheme: self.scheme.clone(),
            direction: self.direction,
            measured,
            silence: self.condition.silence(measured),
            ..Plan::default()
        }
    }
}

/// What became of a cell.
#[derive(Debug)]
enum Outcome {
    Measured(Box<Measured>),
    /// The kernel lacks what the scheme needs.
    Unavailable(String),
    Failed(String),
}

impl Outcome {
    /// Whether the demonstration may succeed with it.
    fn is_good(&self) -> bool {
        match self {
            Self::Measured(measured) => measured.sha256_ok,
            Self::Unavailable(_) => true,
            Self::Failed(_) => false,
        }
    }
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    match &options.other {
        Some(Other::Bond(options)) => return bond::run(options),
        Some(Other::Crash(options)) => return crash::run(options),
        Some(Other::Handoff(options)) => return handoff::run(options),
        None => {}
    }
    let program = program()?;
    let place = place()?;
    let cells = cells(options, place);
    let of_packets = packet_cells(options, place);
    if cells.is_empty() && of_packets.is_empty() {
        bail!("no cell is left to measure here");
    }
    let stop = stop_on_signals()?;
    let progress = Progress::new(cells.len() + of_packets.len());
    let run = Run { options, stop: &stop, progress: &progress };
    let measure = |cell: &Cell| measure_one(cell, options, place, &program, &stop);
    let outcomes = run.all(&cells, measure, report::summary, report::json);
    let measure = |cell: &packets::Cell| cell.measure(options, &program, &stop);
    let packet_outcomes = run.all(&of_packets, measure, packets::summary, packets::json);
    progress.finish();
    if stop.is_set() {
        bail!("interrupted");
    }
    if !options.json {
        if !cells.is_empty() {
            print!("{}", report::tables(&cells, &outcomes));
        }
        if !of_packets.is_empty() {
            print!("{}", packets::table(&of_packets, &packet_outcomes));
        }
    }
    let good = outcomes.iter().flatten().filter(|outcome| outcome.is_good()).count()
        + packet_outcomes.iter().flatten().filter(|outcome| outcome.is_good()).count();
    let all = cells.len() + of_packets.len();
    if good < all {
        bail!("{} of {all} cells failed", all - good);
    }
    Ok(())
}

/// The command whose bases and mobiles are shown.
fn program() -> anyhow::Result<PathBuf> {
    lasthop_program().context("there is no lasthop beside this command, and LASTHOP names none")
}

/// Namespaces, or where they are not permitted the loopback interface.
fn place() -> anyhow::Result<Isolation> {
    let permitted = || Lab::start(&Topology::default()).map(drop);
    let refused = match permitted() {
        // Ordinary users may have namespaces inside one of their own.
        Err(e) if e.is_permission() => {
            become_root_of_a_user_namespace().map_err(LabError::from).and_then(|()| permitted())
        }
        other => other,
    };
    match refused {
        Ok(()) => Ok(Isolation::Namespaces),
        Err(e) if e.is_permission() => {
            eprintln!(
                "{e}: only srp, over a radio between two UDP ports of the loopback interface, \
                 without the wired path"
            );
            Ok(Isolation::Loopback)
        }
        Err(e) => Err(e.into()),
    }
}

/// Namespaces of this process's own, in a user namespace where it may not have them otherwise.
fn require_namespaces() -> anyhow::Result<()> {
    let permitted = || Netns::anonymous().map(drop);
    match permitted() {
        Err(NetnsError::NotPermitted(_)) => {}
        other => return Ok(other?),
    }
    become_root_of_a_user_namespace()
        .and_then(|()| permitted())
        .map_err(LabError::from)
        .context("the demonstration needs hosts of its own: run it as root")
}

/// The cells asked for, column by column, so that cells measured together differ in scheme.
fn cells(options: &Options, place: Isolation) -> Vec<Cell> {
    let direction = if options.upload { Direction::Upload } else { Direction::Download };
    let wanted = |scheme: &Scheme, condition: &Condition| {
        let (row, cell) = (scheme.to_string(), condition.to_string());
        options.only.is_empty() || options.only.iter().any(|only| only.fits(&row, &cell))
    };
    let possible = |scheme: &Scheme| place == Isolation::Namespaces || *scheme == Scheme::Srp;
    let mut cells = Vec::new();
    for condition in Condition::DEMO {
        for scheme in rows() {
            if possible(&scheme) && wanted(&scheme, &condition) {
                cells.push(Cell { scheme, condition, direction });
            }
        }
    }
    cells
}

/// The cells of packets that are asked for; they need namespaces, and go from the fixed host to the mobile.
fn packet_cells(options: &Options, place: Isolation) -> Vec<packets::Cell> {
    if place != Isolation::Namespaces || options.upload {
        return Vec::new();
    }
    let wanted = |cell: &packets::Cell| {
        let fits = |only: &Only| only.fits(cell.row(), &cell.name());
        options.only.is_empty() || options.only.iter().any(fits)
    };
    packets::Cell::all().into_iter().filter(wanted).collect()
}

/// Interrupted, the run ends in order; once more, at once.
fn stop_on_signals() -> anyhow::Result<Stop> {
    let stop = Stop::default();
    terminal::stop_on_signals(&stop.flag(), |_| 130)?;
    Ok(stop)
}

/// What measuring needs to know.
struct Run<'a> {
    options: &'a Options,
    stop: &'a Stop,
    progress: &'a Progress,
}

impl Run<'_> {
    /// Measures cells of a kind, a few at once; the outcomes are in the order of the cells.
    fn all<C: ToString + Sync, O: Send>(
        &self,
        cells: &[C],
        measure: impl Fn(&C) -> O + Sync,
        summary: impl Fn(&O) -> String + Sync,
        json: impl Fn(&C, &O) -> anyhow::Result<String> + Sync,
    ) -> Vec<Option<O>> {
        let Self { options, stop, progress } = self;
        let waiting: Mutex<VecDeque<usize>> = Mutex::new((0..cells.len()).collect());
        let outcomes: Mutex<Vec<Option<O>>> = Mutex::new(cells.iter().map(|_| None).collect());
        // A function of its own, so that the lock is not held while the cell is measured.
        let next = || lock(&waiting).pop_front().filter(|_| !stop.is_set());
        let work = || {
            while let Some(index) = next() {
                let cell = &cells[index];
                let name = cell.to_string();
                progress.begin(&name);
                let outcome = measure(cell);
                if stop.is_set() {
                    return;
                }
                progress.end(&name, &summary(&outcome));
                if options.json {
                    match json(cell, &outcome) {
                        Ok(line) => println!("{line}"),
                        Err(e) => eprintln!("lasthop: {}", one_line(e.as_ref())),
                    }
                }
                lock(&outcomes)[index] = Some(outcome);
            }
        };
        thread::scope(|scope| {
            for _ in 0..usize::from(options.jobs).min(cells.len()) {
                scope.spawn(work);
            }
        });
        outcomes.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

fn measure_one(
    cell: &Cell,
    options: &Options,
    place: Isolation,
    program: &Path,
    stop: &Stop,
) -> Outcome {
    match measure(&cell.plan(options, place), program, stop) {
        Ok(measured) => Outcome::Measured(Box::new(measured)),
        Err(e @ LabError::NoCongestionControl(_)) => Outcome::Unavailable(e.to_string()),
        Err(e) => Outcome::Failed(e.to_string()),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn chosen(arguments: &[&str]) -> Vec<String> {
        let line = Line::parse_from(std::iter::once(&"demo").chain(arguments));
        let cells = cells(&line.options, Isolation::Namespaces);
        cells.iter().map(|c| format!("{}/{}", c.scheme, c.condition)).collect()
    }

    #[test]
    fn rows_cells_and_single_cells_can_be_chosen() {
        assert_eq!(chosen(&[]).len(), 25);
        assert_eq!(chosen(&["--only", "srp"]).len(), 5);
        assert_eq!(chosen(&["--only", "loss-20"]).len(), 5);
        let line = Line::parse_from(["demo", "--only", "quic-loss-5", "--only", "none"]);
        let names: Vec<_> = packet_cells(&line.options, Isolation::Namespaces)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            names,
            [
                "none/quic-loss-5",
                "srp/quic-loss-5",
                "none/quic-loss-20",
                "none/voice-loss-5",
                "none/voice-loss-10"
            ]
        );
        assert_eq!(
            chosen(&["--only", "kernel-bbr/loss-0", "--only", "srp/silence-2.8"]),
            ["kernel-bbr/loss-0", "srp/silence-2.8"]
        );
    }

    #[test]
    fn an_unknown_row_or_cell_is_refused_with_those_that_there_are() {
        for bad in ["srb", "srp/loss-7", "tcp/loss-0", "loss-0/srp", ""] {
            let e = bad.parse::<Only>().unwrap_err();
            assert!(e.contains("split-tcp-bbr") && e.contains("fades-10"), "{e}");
        }
    }

    #[test]
    fn without_namespaces_only_srp_is_measured() {
        let line = Line::parse_from(["demo"]);
        let cells = cells(&line.options, Isolation::Loopback);
        assert_eq!(cells.len(), 5);
        assert!(cells.iter().all(|c| c.scheme == Scheme::Srp));
    }
}
