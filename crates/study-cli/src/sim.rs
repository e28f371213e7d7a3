//! `lasthop sim`: scenarios in the simulated world.

mod report;

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use lasthop_engine::Simulator;
use lasthop_scenario::Study;
use lasthop_study::results::{Record, Results};
use lasthop_study::run::{self, Finished, Shard};

use crate::terminal;

/// The commit that this command is built from.
const COMMIT: &str = env!("LASTHOP_COMMIT");

const EXAMPLES: &str = "\
Examples:
  Check a scenario and see the points of its sweep:
    lasthop sim docs/examples/sim-loss.toml --list

  Run it with 40 seeds a point on all cores; what is there already is not run again:
    lasthop sim docs/examples/sim-loss.toml --runs 40 --results loss

  The same on four machines that share a directory (here as a Slurm array of 0-3):
    srun lasthop sim docs/examples/sim-loss.toml --runs 40 --results loss \\
        --shard $SLURM_ARRAY_TASK_ID/4

  One object a point, or a run, for other programs:
    lasthop sim docs/examples/sim-loss.toml --results loss --json
    lasthop sim docs/examples/sim-loss.toml --results loss --json=runs

docs/scenarios.md describes scenario files and results directories.";

/// Runs a scenario file: every point of its sweep, with every seed.
///
/// Finished runs are kept in a results directory and not repeated; ended by Ctrl-C, the next call
/// goes on where this one stopped.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Options {
    /// The scenario, in TOML
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Runs of each point, each with a seed of its own; the file's `runs` otherwise
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    runs: Option<u64>,

    /// The first seed; the others follow it. The file's `seed` otherwise
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Do only this part of the runs: 0/4 is the first of four
    #[arg(long, value_name = "I/N", default_value = "0/1")]
    shard: Shard,

    /// How many runs at once; as many as there are cores otherwise
    #[arg(long, value_name = "N", value_parser = positive)]
    jobs: Option<usize>,

    /// Keep results here, and do not repeat those that are there; NAME.results otherwise
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,

    /// Keep no results
    #[arg(long, conflicts_with = "results")]
    no_results: bool,

    /// Take results of another commit as they are
    #[arg(long)]
    allow_other_commit: bool,

    /// Print JSON, one object a line, for each point or for each run
    #[arg(long, value_name = "WHAT", num_args = 0..=1, require_equals = true,
          default_missing_value = "points")]
    json: Option<Json>,

    /// Only check the file
    #[arg(long)]
    check: bool,

    /// Only print the points, each with its hash
    #[arg(long, conflicts_with = "check")]
    list: bool,

    /// Print the hash of everything that happened in each run
    #[arg(long, conflicts_with = "json")]
    trace_hash: bool,
}

/// What a line of JSON is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Json {
    /// A point: means and intervals
    Points,
    /// A run
    Runs,
}

fn positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| "not a number above zero".to_string())
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let study = Study::load(&options.file)?;
    if options.list {
        return Ok(io::stdout().lock().write_all(report::points(&study).as_bytes())?);
    }
    let sweep = sweep(options, &study);
    if options.check {
        let (points, runs) = (study.points().len(), sweep.runs);
        println!("{}: {points} points, {runs} runs each", options.file.display());
        return Ok(());
    }
    let stop = Arc::default();
    terminal::stop_on_signals(&stop, |signal| 128 + signal)?;
    let results = results(options, &study)?;
    let jobs = run::jobs(&study, &sweep).len();
    let progress = Progress::new(jobs, options.json.is_some());
    let done = |record: &Record| progress.done(record);
    let finished = run::sweep(&study, &Simulator, &sweep, results.as_ref(), &stop, &done);
    progress.finish();
    let finished = finished?;
    print(options, &study, &finished)?;
    if finished.missing > 0 {
        let resume = match &results {
            Some(r) => {
                format!("; {} keeps the others, run again to go on", r.directory().display())
            }
            None => String::new(),
        };
        bail!("stopped with {} of {jobs} runs missing{resume}", finished.missing);
    }
    Ok(())
}

fn sweep(options: &Options, study: &Study) -> run::Options {
    run::Options {
        runs: options.runs.unwrap_or(study.runs()),
        seed: options.seed.unwrap_or(study.seed()),
        shard: options.shard,
        jobs: options.jobs,
        commit: COMMIT.to_string(),
    }
}

fn results(options: &Options, study: &Study) -> anyhow::Result<Option<Results>> {
    if options.no_results {
        return Ok(None);
    }
    let usual = || {
        let stem = options.file.file_stem().unwrap_or_default().to_string_lossy();
        PathBuf::from(format!("{stem}.results"))
    };
    let directory = options.results.clone().unwrap_or_else(usual);
    let results = Results::open(&directory, COMMIT, options.allow_other_commit)?;
    results.keep_scenario(study.text())?;
    Ok(Some(results))
}

fn print(options: &Options, study: &Study, finished: &Finished) -> anyhow::Result<()> {
    let text = match options.json {
        Some(Json::Points) => report::json(&run::summarise(study, finished)),
        Some(Json::Runs) => report::runs(study, finished),
        None if options.trace_hash => report::traces(study, finished),
        None => report::table(&run::summarise(study, finished)),
    };
    io::stdout().lock().write_all(text.as_bytes()).context("printing")
}

/// How far the sweep is, on a terminal.
struct Progress {
    bar: ProgressBar,
    incomplete: AtomicBool,
}

impl Progress {
    fn new(jobs: usize, json: bool) -> Self {
        let template =
            "[{elapsed}] {bar:30} {human_pos}/{human_len} runs, {per_sec}, {eta} left {msg}";
        let bar = if json { ProgressBar::hidden() } else { terminal::bar(template) };
        bar.set_length(jobs as u64);
        bar.enable_steady_tick(Duration::from_millis(250));
        Self { bar, incomplete: AtomicBool::new(false) }
    }

    fn done(&self, record: &Record) {
        self.bar.inc(1);
        if !record.completed && !self.incomplete.swap(true, Ordering::Relaxed) {
            self.bar.set_message("(some transfers do not complete)");
        }
    }

    fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
