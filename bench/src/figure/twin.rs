//! Does the simulation tell the truth? The same cells in the simulator and on real kernels.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use lasthop_lab::agent::cell::{self as kernel, Cell as KernelCell, Figures};
use lasthop_lab::agent::path::{Behind, Settings};
use lasthop_lab::agent::script::Gap;
use lasthop_lab::agent::sender::Sender as KernelSender;
use lasthop_lab::client::Stop;
use lasthop_lab::topology::Family;
use lasthop_lab::transfer::Direction;
use lasthop_study::stats::{Estimate, Ratio, ratio};
use lasthop_study::twin::{self, Cell, Condition, Effect, Sender, Verdict};
use lasthop_units::{Duration, Rate, Scheme, Seed, one_line};

use super::Setting;
use crate::process::lasthop;
use crate::report::{Report, Row};

const FIGURE: &str = "twin";
/// Runs of the simulated half: they cost next to nothing.
const SIMULATED_RUNS: u64 = 20;
/// How late the links may be, 99 of 100 packets: far below every delay of a cell.
const LATE: Duration = Duration::from_millis(5);
/// How often a run is begun whose links were late.
const TRIES: u32 = 3;
/// What snoop has to gain on the big radio.
const SNOOP_GAIN: f64 = 5.0;

/// What is run, and how much of it at once.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Cells that run on kernels at once [default: twice the cores]
    #[arg(long, value_name = "NUMBER")]
    jobs: Option<NonZero<usize>>,
    /// Runs of each cell on kernels [default: 3, with --quick 2]
    #[arg(long, value_name = "NUMBER")]
    runs: Option<NonZero<u64>>,
    /// Only this condition, as the table names it; may be given several times
    #[arg(long = "condition", value_name = "NAME")]
    conditions: Vec<String>,
    /// Only the simulated half, which needs no privilege
    #[arg(long)]
    pub(crate) simulated: bool,
}

/// One cell's results.
struct Point {
    cell: Cell,
    kernel: Vec<f64>,
    /// Why there is none of a run.
    failed: Vec<String>,
}

impl Point {
    const fn new(cell: Cell) -> Self {
        Self { cell, kernel: Vec::new(), failed: Vec::new() }
    }

    fn runs(&self) -> usize {
        self.kernel.len() + self.failed.len()
    }
}

/// Runs all cells; `--peer` chooses schemes, beside that which all are compared with.
///
/// # Errors
///
/// There is no cell of that name, or no `lasthop` command.
pub(crate) fn run(
    options: &Options,
    setting: &Setting,
    seed: u64,
    report: &mut Report,
) -> Result<()> {
    let cells = chosen(options, setting)?;
    let runs = match (options.simulated, options.runs) {
        (true, _) => 0,
        (false, Some(runs)) => runs.get(),
        (false, None) => setting.choose(2, 3),
    };
    let mut points: Vec<Point> = cells.iter().map(|cell| Point::new(*cell)).collect();
    let mut tally = Tally::default();
    let mut shown = 0;
    on_kernels(&cells, seed, runs, jobs(options), |i, result| {
        match result {
            Ok(rate) => points[i].kernel.push(rate.as_bps() as f64),
            Err(error) => points[i].failed.push(one_line(error.as_ref())),
        }
        while let Some(group) = group(&points[shown..]).filter(|g| is_done(g, runs)) {
            show(group, seed, report, &mut tally);
            shown += group.len();
        }
    })?;
    while let Some(group) = group(&points[shown..]) {
        show(group, seed, report, &mut tally);
        shown += group.len();
    }
    if runs > 0 {
        report.row(&tally.row());
    }
    Ok(())
}

fn chosen(options: &Options, setting: &Setting) -> Result<Vec<Cell>> {
    let duration = Duration::from_secs(setting.choose(30, 60));
    let all = twin::cells(duration);
    let known: Vec<String> = all.iter().map(|cell| cell.condition.to_string()).collect();
    if let Some(wrong) = options.conditions.iter().find(|name| !known.contains(name)) {
        let mut known = known;
        known.dedup();
        return Err(anyhow!("there is no condition `{wrong}`; there are: {}", known.join("; ")));
    }
    let mut schemes: Vec<String> = Vec::new();
    for scheme in all.iter().map(|cell| cell.scheme.name()) {
        if !schemes.iter().any(|known| known == scheme) {
            schemes.push(scheme.to_owned());
        }
    }
    setting.refuse_others(&schemes)?;
    let is_chosen = |cell: &Cell| {
        let condition = match options.conditions.is_empty() {
            true => !setting.quick || is_quick(cell.condition),
            false => options.conditions.contains(&cell.condition.to_string()),
        };
        let scheme = cell.scheme == Scheme::None || setting.wants(cell.scheme.name());
        condition && scheme
    };
    Ok(all.into_iter().filter(is_chosen).collect())
}

/// The conditions in which schemes differ most.
fn is_quick(condition: Condition) -> bool {
    matches!(
        condition,
        Condition::Loss { per_mille: 50 }
            | Condition::Gaps { told: true }
            | Condition::TwoHops
            | Condition::BigRadio
    )
}

fn jobs(options: &Options) -> usize {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    options.jobs.map_or(2 * cores, NonZero::get)
}

/// Measures every cell `runs` times on kernels, several at once, and tells of each as it is done.
fn on_kernels(
    cells: &[Cell],
    seed: u64,
    runs: u64,
    jobs: usize,
    mut done: impl FnMut(usize, Result<Rate>),
) -> Result<()> {
    let work: Vec<(usize, u64)> =
        (0..cells.len()).flat_map(|i| (0..runs).map(move |run| (i, run))).collect();
    if work.is_empty() {
        return Ok(());
    }
    lasthop()?;
    let next = AtomicUsize::new(0);
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..jobs.min(work.len()) {
            let (tell, next, work) = (tell.clone(), &next, &work);
            scope.spawn(move || {
                while let Some(&(i, run)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let measured = on_kernel(&cells[i], Seed::from_u64(seed.wrapping_add(run)));
                    if tell.send((i, measured)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(tell);
        told.iter().for_each(|(i, measured)| done(i, measured));
    });
    Ok(())
}

/// What the application at a kernel's mobile receives from its first byte on, silences included.
fn on_kernel(cell: &Cell, seed: Seed) -> Result<Rate> {
    let figures = punctual(&built(cell, seed), seed)?;
    if !figures.is_right {
        return Err(anyhow!("wrong bytes arrived"));
    }
    let first = figures.received.first().context("nothing arrived")?;
    let bytes = figures.received.between(first, first + cell.duration);
    Ok(Rate::of(bytes, cell.duration))
}

/// A run whose links were what was asked for.
fn punctual(cell: &KernelCell, seed: Seed) -> Result<Figures> {
    let mut late = Duration::ZERO;
    for _ in 0..TRIES {
        let figures = kernel::measure(cell, seed, lasthop()?, &Stop::default())?;
        if figures.late <= LATE {
            return Ok(figures);
        }
        late = figures.late;
    }
    Err(anyhow!("links were {late:.0?} late on a machine with too much to do; lower --jobs"))
}

/// The cell as the lab builds it. Every scheme meets the same bridges.
fn built(cell: &Cell, seed: Seed) -> KernelCell {
    let gap =
        |outage: &twin::Outage| Gap { at: outage.at, lasting: outage.lasting, lead: outage.lead };
    KernelCell {
        path: Settings {
            wire: Some(cell.wire()),
            radio: Some(cell.radio()),
            behind: cell.wlan().map_or(Behind::Edge, |wlan| Behind::Router(Box::new(wlan))),
            sender: KernelSender {
                congestion: cell.sender.congestion(),
                sack: cell.sender.sack(),
                timestamps: cell.sender.timestamps(),
                ecn: cell.ecn(),
                window: cell.window(),
            },
            ..Settings::default()
        },
        agents: cell.agents(),
        direction: Direction::Download,
        family: Family::V4,
        gaps: cell.outages(seed).iter().map(gap).collect(),
        settle: Duration::ZERO,
        measured: cell.duration,
    }
}

/// The cells at the front that are compared with the first.
fn group(points: &[Point]) -> Option<&[Point]> {
    let first = points.first()?.cell;
    let same = |p: &&Point| (p.cell.condition, p.cell.sender) == (first.condition, first.sender);
    Some(&points[..points.iter().take_while(same).count()])
}

fn is_done(group: &[Point], runs: u64) -> bool {
    group.iter().all(|point| point.runs() as u64 >= runs)
}

/// Shows the cells of one condition and sender.
fn show(group: &[Point], seed: u64, report: &mut Report, tally: &mut Tally) {
    let seeds: Vec<u64> = (0..SIMULATED_RUNS).map(|run| seed.wrapping_add(run)).collect();
    let simulated = |cell: &Cell| -> Result<Estimate> {
        let rates = twin::run(cell, &seeds)?;
        let values: Vec<f64> = rates.iter().map(|rate| rate.as_bps() as f64).collect();
        Estimate::of(&values).context("no run")
    };
    let halves: Vec<(Result<Estimate>, Option<Estimate>)> =
        group.iter().map(|p| (simulated(&p.cell), Estimate::of(&p.kernel))).collect();
    let of = |scheme: Scheme| group.iter().position(|p| p.cell.scheme == scheme);
    let kernel = |scheme: Scheme| halves.get(of(scheme)?)?.1;
    let Some((Ok(unhelped), unhelped_kernel)) = halves.first() else {
        if let Some((Err(error), _)) = halves.first() {
            report
                .row(&failed(&group[0].cell, &format!("simulator: {}", one_line(error.as_ref()))));
        }
        return;
    };
    for (point, (simulated, on_kernel)) in group.iter().zip(&halves) {
        let cell = &point.cell;
        let simulated = match simulated {
            Ok(simulated) => simulated,
            Err(error) => {
                report.row(&failed(cell, &format!("simulator: {}", one_line(error.as_ref()))));
                continue;
            }
        };
        if let (None, Some(why)) = (on_kernel, point.failed.first()) {
            report.row(&failed(cell, why));
            tally.missing.push(cell.to_string());
            continue;
        }
        let gains = Gains {
            simulated: ratio(simulated, unhelped),
            kernel: on_kernel.zip(*unhelped_kernel).and_then(|(a, b)| ratio(&a, &b)),
        };
        let mut row = row(cell, simulated, on_kernel.as_ref(), &gains);
        if let Some(verdict) = gains.verdict().filter(|_| cell.scheme != Scheme::None) {
            tally.count(cell, verdict);
            row = row.claim("the effect agrees", verdict != Verdict::Disagree);
        }
        report.row(&claims(row, cell, &gains, on_kernel.as_ref(), kernel(Scheme::Snoop).as_ref()));
    }
}

/// A scheme's goodput over that without help, in each world.
struct Gains {
    simulated: Option<Ratio>,
    kernel: Option<Ratio>,
}

impl Gains {
    fn verdict(&self) -> Option<Verdict> {
        Some(Verdict::of(self.simulated.as_ref()?, self.kernel.as_ref()?))
    }
}

fn row(cell: &Cell, simulated: &Estimate, kernel: Option<&Estimate>, gains: &Gains) -> Row {
    let mbps = |estimate: &Estimate| estimate.mean / 1e6;
    let effect = |gain: &Option<Ratio>| gain.as_ref().map(|gain| Effect::of(gain).to_string());
    let interval = gains.kernel.and_then(|gain| gain.interval);
    Row::new(FIGURE, cell.scheme, cell.condition)
        .value("sender", cell.sender.to_string())
        .number("sim_mbps", mbps(simulated))
        .number("kernel_mbps", kernel.map(mbps))
        .number("kernel/sim", kernel.map(|kernel| kernel.mean / simulated.mean))
        .number("sim_gain", gains.simulated.map(|gain| gain.value))
        .number("kernel_gain", gains.kernel.map(|gain| gain.value))
        .number("kernel_low", interval.map(|i| i.lo))
        .number("kernel_high", interval.map(|i| i.hi))
        .value("sim", effect(&gains.simulated))
        .value("kernel", effect(&gains.kernel))
}

/// What is claimed of kernels beside that the two worlds agree.
fn claims(
    row: Row,
    cell: &Cell,
    gains: &Gains,
    kernel: Option<&Estimate>,
    snoop: Option<&Estimate>,
) -> Row {
    match (cell.condition, cell.scheme, cell.sender) {
        (Condition::BigRadio, Scheme::Snoop, Sender::Reno) => {
            let gain = gains.kernel.map(|gain| gain.value);
            row.claim_if(gain.is_some(), "gains 5 times", gain.is_some_and(|g| g >= SNOOP_GAIN))
        }
        // With SACK it need not: this snoop reads the blocks, of which the paper's agents know nothing.
        (Condition::TwoHops | Condition::FirstHop, Scheme::Obtcp, Sender::Reno) => {
            let beats = kernel.zip(snoop).map(|(own, snoop)| own.mean > snoop.mean);
            row.claim_if(beats.is_some(), "beats snoop", beats == Some(true))
        }
        _ => row,
    }
}

fn failed(cell: &Cell, why: &str) -> Row {
    Row::new(FIGURE, cell.scheme, cell.condition)
        .value("sender", cell.sender.to_string())
        .note(why)
        .claim("measured at all", false)
}

/// How many cells agree, and which do not.
#[derive(Default)]
struct Tally {
    agree: usize,
    unclear: Vec<String>,
    disagree: Vec<String>,
    missing: Vec<String>,
}

impl Tally {
    fn count(&mut self, cell: &Cell, verdict: Verdict) {
        match verdict {
            Verdict::Agree => self.agree += 1,
            Verdict::Unclear => self.unclear.push(cell.to_string()),
            Verdict::Disagree => self.disagree.push(cell.to_string()),
        }
    }

    fn row(&self) -> Row {
        let named = |what: &str, cells: &[String]| match cells.is_empty() {
            true => None,
            false => Some(format!("{what}: {}", cells.join("; "))),
        };
        let notes = [
            named("disagree", &self.disagree),
            named("unclear", &self.unclear),
            named("not measured", &self.missing),
        ];
        let notes: Vec<String> = notes.into_iter().flatten().collect();
        let row = Row::new(FIGURE, "all", "all")
            .value("agree", self.agree)
            .value("unclear", self.unclear.len())
            .value("disagree", self.disagree.len())
            .value("not_measured", self.missing.len());
        if notes.is_empty() { row } else { row.note(notes.join(" / ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the simulator runs, the lab can be asked for.
    #[test]
    fn every_cell_becomes_one_of_the_lab() {
        for cell in twin::cells(Duration::from_secs(60)) {
            let built = built(&cell, Seed::from_u64(1));
            assert_eq!(built.agents.len(), cell.agents().len(), "{cell}");
            assert_eq!(built.path.radio, Some(cell.radio()), "{cell}");
            let router = matches!(built.path.behind, Behind::Router(_));
            assert_eq!(router, cell.condition.has_router(), "{cell}");
            assert_eq!(built.gaps.len(), cell.outages(Seed::from_u64(1)).len(), "{cell}");
        }
    }

    #[test]
    fn cells_of_one_condition_and_sender_are_shown_together() {
        let points: Vec<Point> =
            twin::cells(Duration::from_secs(60)).into_iter().map(Point::new).collect();
        let mut rest = points.as_slice();
        let mut groups = 0;
        while let Some(group) = group(rest) {
            assert_eq!(group[0].cell.scheme, Scheme::None);
            assert!(group.len() > 1);
            rest = &rest[group.len()..];
            groups += 1;
        }
        assert_eq!(groups, 20);
    }

    #[test]
    fn a_wrong_condition_is_named_with_those_that_there_are() {
        let options =
            Options { jobs: None, runs: None, conditions: vec!["fade".into()], simulated: true };
        let setting = Setting {
            quick: false,
            only: Vec::new(),
            cells: Vec::new(),
            notes: None,
            seed: Seed::from_u64(1),
        };
        let told = chosen(&options, &setting).unwrap_err().to_string();
        assert!(told.contains("`fade`") && told.contains("fades; gaps; gaps untold"), "{told}");
    }
}
