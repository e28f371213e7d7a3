//! `lasthop reproduce`: published experiments beside ours.

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use lasthop_study::report::{Book, Report};
use lasthop_study::reproduce::league::{self, League};
use lasthop_study::reproduce::mobile_tcp_2001;
use lasthop_study::reproduce::{
    self, Criterion, Label, Only, PAPERS, Paper, ReproduceError, Reproduction, Request, lines,
    print as told,
};

use crate::terminal::print;
use crate::{cost, terminal};

/// How many runs a cell gets with `--quick` at most; half of the usual number where that is less.
const QUICK: u32 = 5;

/// The name for everything there is.
const ALL: &str = "all";

/// The exit status that tells of a criterion which is not met.
const NOT_MET: u8 = 3;

/// Runs a published paper's experiments and prints its values and ours side by side, each a mean
/// with its 95 % interval by Student's t. Without a paper, lists the papers.
///
/// `league` is no paper: it lets every scheme meet every kind of hop, with a sender of the papers'
/// time and with one of today, and tells which scheme helps where. `all` runs the league and every
/// paper, and sums up.
///
/// A cell's mark is the first of these that applies:
///
/// within: our mean lies in the published interval;
/// overlaps: our interval and the published one overlap;
/// near: our mean is within 10 % of a value that is printed without an interval;
/// ratio: the ratio to each other scheme printed in the same row and column is within 35 % of the
/// published ratio;
/// order: the scheme is ordered as published among them, or the published intervals overlap, so
/// that the paper does not decide;
/// miss: none of these, or a run did not come to its end;
/// unpublished: the paper prints no value;
/// not-run: no run came to its end.
///
/// Below the tables stand criteria: what has to be right, or is only counted, in how many cases it
/// is, and a line that says what agrees and what does not.
///
/// Exit status: 0 if no criterion is known to be missed, 3 if one is, which is a result like any
/// other and printed as such; 1 if something went wrong.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Options {
    /// The paper, such as mhp-srp-1994; or league, or all
    paper: Option<String>,

    /// How many runs each cell gets [default: 40; of obtcp-2010, whose runs are long, 5; of
    /// mobile-tcp-2001 and the league 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    runs: Option<u32>,

    /// Few runs of each cell, for a first look: 5, of obtcp-2010 3
    #[arg(long, conflicts_with = "runs")]
    quick: bool,

    /// Experiments as long as the papers', where ours are shorter otherwise: the 100 000 buffers of
    /// mobile-tcp-2001
    #[arg(long)]
    full: bool,

    /// Measure what protocols cost on this machine, for mobile-tcp-2001's figures 10 to 14
    #[arg(long, value_name = "EFFORT")]
    measure: Option<Effort>,

    /// Where all random processes start; the same seed gives the same values
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// How many runs go on at once [default: one on each core]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,

    /// Only these cells: labels joined by /, such as table1, srp/5% or table1/2.8s/5%; may be given
    /// several times
    #[arg(long, value_name = "LABELS")]
    only: Vec<Only>,

    /// Write a report to this file: one HTML page with figures, which opens offline
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// JSON in place of tables: one object a line, whose `kind` is cell, pair (the ratio of two
    /// schemes), gain, criterion or verdict
    #[arg(long)]
    json: bool,

    /// List the paper's cells and run nothing
    #[arg(long)]
    list: bool,
}

/// How thoroughly processing costs are measured.
#[derive(ValueEnum, Clone, Copy, Debug)]
enum Effort {
    /// Some ten seconds
    Quick,
    /// A few minutes
    Full,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let Some(id) = &options.paper else {
        print(&papers())?;
        return Ok(ExitCode::SUCCESS);
    };
    if let Some(path) = &options.report {
        check(path)?;
    }
    match id.as_str() {
        ALL => everything(options),
        league::ID if options.full || options.measure.is_some() => {
            bail!(
                "{id}: it has one length and measures no processor; leave --full and --measure out"
            )
        }
        league::ID if options.list => listed(options, league::labels()?, league::RUNS),
        league::ID => one_league(options),
        _ => one_paper(options, id),
    }
}

fn one_paper(options: &Options, id: &str) -> anyhow::Result<ExitCode> {
    let paper = reproduce::find(id)?;
    let study = paper.study;
    if options.measure.is_some() && id != mobile_tcp_2001::ID {
        bail!("{id}: --measure is for mobile-tcp-2001, whose figures are of processor time");
    }
    if options.full && !study.longer {
        bail!("{id}: its experiments are as long as the paper's already; leave --full out");
    }
    if options.list {
        return listed(options, (study.labels)()?, study.runs);
    }
    let reproduction = reproduced(options, paper)?;
    write_report(options, &reproduction.report)?;
    print_result(options, paper, &reproduction)?;
    refuse_if_nothing_ran(paper, &reproduction)?;
    Ok(status(&reproduction.criteria))
}

fn one_league(options: &Options) -> anyhow::Result<ExitCode> {
    let league = league_of(options)?;
    write_report(options, &league.report)?;
    if options.json {
        let criteria = lines::criteria(league::ID, &league.criteria)?;
        print(&(league::json_lines(&league.cells)? + &criteria))?;
    } else {
        print(&format!("{}{}", league::tables(&league.cells), judged(&league.criteria)))?;
    }
    Ok(status(&league.criteria))
}

/// Whether a criterion is missed, as far as that is known.
fn status(criteria: &[Criterion]) -> ExitCode {
    let missed = criteria.iter().any(|c| c.verdict() == Some(false));
    if missed { ExitCode::from(NOT_MET) } else { ExitCode::SUCCESS }
}

/// The criteria, and what they come to.
fn judged(criteria: &[Criterion]) -> String {
    format!("{}{}\n", told::criteria(criteria), told::verdict(criteria))
}

/// The league and every paper: a summary, and one report whose first page is the
/// league.
fn everything(options: &Options) -> anyhow::Result<ExitCode> {
    if !options.only.is_empty() {
        bail!("--only chooses cells of one paper or of the league, and `{ALL}` is all of them");
    }
    if options.list {
        let mut list = said_of(league::ID, &league::labels()?);
        for paper in &PAPERS {
            list.push_str(&said_of(paper.id, &(paper.study.labels)()?));
        }
        print(&list)?;
        return Ok(ExitCode::SUCCESS);
    }
    let league = league_of(options)?;
    summarise(options, league::ID, &league.criteria)?;
    let mut criteria = league.criteria;
    let mut parts = vec![league.report];
    for paper in &PAPERS {
        let reproduction = reproduced(options, paper)?;
        summarise(options, paper.id, &reproduction.criteria)?;
        parts.push(reproduction.report);
        criteria.extend(reproduction.criteria);
    }
    let status = status(&criteria);
    let Some(path) = &options.report else { return Ok(status) };
    let book = Book {
        title: "What helps TCP over a last hop".to_owned(),
        subtitle: format!(
            "The league of all schemes, and {} papers beside what they publish",
            parts.len() - 1
        ),
        parts,
    };
    write_to(path, &book.to_html())?;
    Ok(status)
}

fn said_of(id: &str, labels: &[Label]) -> String {
    labels.iter().map(|label| format!("{id}: {label}\n")).collect()
}

/// How much of what had to be right is right.
fn summarise(options: &Options, id: &str, criteria: &[Criterion]) -> anyhow::Result<()> {
    if options.json {
        return print(&lines::criteria(id, criteria)?);
    }
    let needed = || criteria.iter().filter(|c| c.needed.is_some());
    let met = needed().filter(|c| c.verdict() == Some(true)).count();
    let told: String = judged(criteria).lines().map(|line| format!("    {line}\n")).collect();
    print(&format!("{id}: {met} of {} criteria met\n{told}", needed().count()))
}

fn request(options: &Options, usual: u32) -> Request {
    Request {
        runs: match options.runs {
            Some(runs) => runs,
            None if options.quick => QUICK.min(usual.div_ceil(2)),
            None => usual,
        },
        seed: options.seed,
        jobs: options.jobs,
        only: options.only.clone(),
        full: options.full,
        processing: None,
        version: version(),
    }
}

fn reproduced(options: &Options, paper: &Paper) -> anyhow::Result<Reproduction> {
    // Before anything is measured.
    reproduce::chosen_labels((paper.study.labels)()?, &options.only)?;
    let mut request = request(options, paper.study.runs);
    if let Some(effort) = options.measure.filter(|_| paper.id == mobile_tcp_2001::ID) {
        // Before the runs, which take all cores.
        let costs = cost::measured(matches!(effort, Effort::Full));
        print(&if options.json { cost::lines(&costs)? } else { cost::tables(&costs) + "\n" })?;
        request.processing = Some(costs);
    }
    with_progress(|progress| (paper.study.reproduce)(&request, progress))
}

fn league_of(options: &Options) -> anyhow::Result<League> {
    with_progress(|progress| league::reproduce(&request(options, league::RUNS), progress))
}

fn write_report(options: &Options, report: &Report) -> anyhow::Result<()> {
    let Some(path) = &options.report else { return Ok(()) };
    write_to(path, &report.to_html())
}

fn write_to(path: &Path, html: &str) -> anyhow::Result<()> {
    fs::write(path, html).with_context(|| format!("writing the report {}", path.display()))
}

/// The version, and the commit if the build knew it.
fn version() -> String {
    let version = env!("CARGO_PKG_VERSION");
    match option_env!("LASTHOP_COMMIT") {
        Some(commit) => format!("{version} (commit {commit})"),
        None => version.to_owned(),
    }
}

fn print_result(
    options: &Options,
    paper: &Paper,
    reproduction: &Reproduction,
) -> anyhow::Result<()> {
    if options.json {
        return print(&lines::all(paper, reproduction)?);
    }
    let tables = told::tables(&reproduction.comparison);
    print(&format!("{tables}\n{}", judged(&reproduction.criteria)))
}

/// A paper of which nothing could be run was not reproduced, whatever was printed.
fn refuse_if_nothing_ran(paper: &Paper, reproduction: &Reproduction) -> anyhow::Result<()> {
    let cells = &reproduction.comparison.cells;
    if cells.iter().any(|c| c.cell.ours.estimate().is_some()) {
        return Ok(());
    }
    let reason = cells.iter().find_map(|c| c.cell.reasons.first());
    bail!("{}: no run came to its end: {}", paper.id, reason.map_or("no cell", String::as_str))
}

fn papers() -> String {
    let line = |id: &str, state: &str, about: &str| format!("{id:<16} {state:<20} {about}\n");
    let paper = |paper: &Paper| {
        let Paper { id, authors, year, title, study } = paper;
        let state = format!("reproduced, {} runs", study.runs);
        line(id, &state, &format!("{authors} ({year}): {title}"))
    };
    let league = "every scheme over every kind of hop, then and today";
    let rest = [
        line(league::ID, &format!("measured, {} runs", league::RUNS), league),
        line(ALL, "", "the league and every paper, and one report of them"),
    ];
    PAPERS.iter().map(paper).chain(rest).collect()
}

/// The labels of the chosen cells, and beside them how often each is run.
fn listed(options: &Options, labels: Vec<Label>, usual: u32) -> anyhow::Result<ExitCode> {
    let chosen = reproduce::chosen_labels(labels, &options.only)?;
    let lines: String = chosen.iter().map(|label| format!("{label}\n")).collect();
    print(&lines)?;
    eprintln!("{} cells; each gets {} runs", chosen.len(), request(options, usual).runs);
    Ok(ExitCode::SUCCESS)
}

/// Refuses a report that could not be written, before anything runs.
fn check(path: &Path) -> anyhow::Result<()> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        bail!("cannot write the report {}: {} is no folder", path.display(), folder.display());
    }
    if path.is_dir() {
        bail!("cannot write the report {}: it is a folder", path.display());
    }
    Ok(())
}

fn with_progress<T>(run: impl FnOnce(&Progress) -> Result<T, ReproduceError>) -> anyhow::Result<T> {
    let progress = Progress::default();
    let result = run(&progress);
    progress.0.finish_and_clear();
    Ok(result?)
}

/// A bar on the standard error, if that is a terminal.
struct Progress(ProgressBar);

impl Default for Progress {
    fn default() -> Self {
        let template = "[{elapsed}] {bar:40} {pos}/{len} runs, {eta} left";
        Self(terminal::bar(template))
    }
}

impl reproduce::Progress for Progress {
    fn begin(&self, runs: u64) {
        self.0.set_length(runs);
    }

    fn done(&self) {
        self.0.inc(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_papers_says_which_are_reproduced() {
        let papers = papers();
        assert_eq!(papers.lines().count(), PAPERS.len() + 2);
        assert!(papers.contains("league           measured, 10 runs "), "{papers}");
        assert!(papers.contains("obtcp-2010       reproduced, 5 runs   Sardar"), "{papers}");
        assert!(papers.contains("mhp-srp-1994     reproduced, 40 runs  Yavatkar"), "{papers}");
        assert!(papers.contains("mobile-tcp-2001  reproduced, 10 runs  Haas"), "{papers}");
    }

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn what_a_paper_has_no_use_for_is_refused_before_anything_runs() {
        let refusal = |line: &[&str]| {
            let line = ["reproduce"].iter().chain(line);
            run(&<Line as clap::Parser>::try_parse_from(line).unwrap().options)
                .unwrap_err()
                .to_string()
        };
        assert!(refusal(&["obtcp-2010", "--full"]).contains("leave --full out"));
        let measure = refusal(&["obtcp-2010", "--measure", "quick"]);
        assert!(measure.contains("--measure is for mobile-tcp-2001"), "{measure}");
        assert!(refusal(&["league", "--full"]).contains("leave --full and --measure out"));
        for paper in ["mobile-tcp-2001", "obtcp-2010", "league"] {
            let only = refusal(&[paper, "--only", "snop"]);
            assert!(only.contains("`snop`") && only.contains("there are "), "{paper}: {only}");
        }
        let measured = refusal(&["mobile-tcp-2001", "--measure", "quick", "--only", "snop"]);
        assert!(measured.contains("`snop`"), "{measured}");
    }

    #[test]
    fn a_report_without_a_folder_is_refused_before_anything_runs() {
        let refusal = check(Path::new("/nowhere/at/all.html")).unwrap_err().to_string();
        assert!(refusal.contains("/nowhere/at is no folder"), "{refusal}");
        assert!(check(Path::new("report.html")).is_ok());
        assert!(check(Path::new("/")).is_err());
    }
}
