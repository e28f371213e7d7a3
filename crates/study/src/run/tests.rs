use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicUsize;

use lasthop_radio::{Errors, Loss};
use lasthop_scenario::{Outcome, Scenario};

use super::*;

const FILE: &str = r#"
duration = "1s"
runs = 4
[node]
a = "fixed-host"
b = "mobile-host"
[link.radio]
between = ["a", "b"]
delay = { uniform = ["1ms", "9ms"] }
[flow.up]
from = "b"
to = "a"
[sweep]
"link.radio.loss" = ["0%", "5%", "10%"]
"#;

/// An engine whose outcome is a function of what it is given.
#[derive(Default)]
struct Echo {
    runs: AtomicUsize,
    /// Ask to stop after this many runs.
    stop_after: Option<usize>,
    fail: bool,
}

impl Engine for Echo {
    fn check(&self, scenario: &Scenario) -> Result<(), RunError> {
        match scenario.links.len() {
            1 => Ok(()),
            n => Err(RunError::Unsupported(format!("{n} links"))),
        }
    }

    fn run(&self, scenario: &Scenario, seed: Seed, out: &Outputs<'_>) -> Result<Outcome, RunError> {
        let n = self.runs.fetch_add(1, Ordering::Relaxed) + 1;
        if self.stop_after.is_some_and(|most| n >= most) {
            out.stop.store(true, Ordering::Relaxed);
        }
        if self.fail && n == 3 {
            return Err(RunError::Failed("no memory".to_string()));
        }
        let random = seed.stream("echo").next_u64();
        let delay = scenario.links[0].radio.up.delay.as_secs_f64();
        let none = [Loss::lose(Errors::Uniform(0.0))];
        let lossy = scenario.links[0].radio.up.losses != none;
        // With all the digits that a number can have.
        let value = seed.stream("value").uniform() * 1e6;
        let broken = if random.is_multiple_of(5) { f64::NAN } else { value };
        Ok(Outcome {
            completed: !lossy,
            trace: random,
            metrics: vec![("delay_s".to_string(), delay), ("time_s".to_string(), broken)],
        })
    }
}

fn study() -> Study {
    Study::parse(Path::new("x.toml"), FILE).expect("a scenario")
}

fn options(shard: &str) -> Options {
    Options {
        runs: 4,
        seed: 10,
        shard: shard.parse().expect("a shard"),
        jobs: Some(2),
        commit: "abc".to_string(),
    }
}

fn go(engine: &Echo, shard: &str, results: Option<&Results>) -> Result<Finished, SweepError> {
    let stop = AtomicBool::new(false);
    sweep(&study(), engine, &options(shard), results, &stop, &|_| {})
}

fn lines(directory: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|e| e == "jsonl") {
            let text = fs::read_to_string(path).expect("text");
            lines.extend(text.lines().map(str::to_string));
        }
    }
    lines.sort();
    lines
}

#[test]
fn every_point_runs_with_every_seed() {
    let engine = Echo::default();
    let finished = go(&engine, "0/1", None).expect("runs");
    assert_eq!((finished.records.len(), finished.missing), (12, 0));
    let seeds: HashSet<u64> = finished.records.keys().map(|(_, seed)| *seed).collect();
    assert_eq!(seeds, HashSet::from([10, 11, 12, 13]));
}

#[test]
fn the_union_of_all_shards_is_the_whole() {
    let whole = tempfile::tempdir().expect("a directory");
    let results = Results::open(whole.path(), "abc", false).expect("opens");
    go(&Echo::default(), "0/1", Some(&results)).expect("runs");
    let parts = tempfile::tempdir().expect("a directory");
    for shard in ["0/5", "1/5", "2/5", "3/5", "4/5"] {
        let results = Results::open(parts.path(), "abc", false).expect("opens");
        go(&Echo::default(), shard, Some(&results)).expect("runs");
    }
    assert_eq!(lines(whole.path()).len(), 12);
    assert_eq!(lines(whole.path()), lines(parts.path()));
}

#[test]
fn two_shards_share_a_directory_at_the_same_time() {
    let directory = tempfile::tempdir().expect("a directory");
    std::thread::scope(|scope| {
        for shard in ["0/2", "1/2", "0/2"] {
            let path = directory.path();
            scope.spawn(move || {
                let results = Results::open(path, "abc", false).expect("opens");
                go(&Echo::default(), shard, Some(&results)).expect("runs");
            });
        }
    });
    let results = Results::open(directory.path(), "abc", false).expect("opens");
    assert_eq!(results.records().count(), 12);
}

#[test]
fn an_interrupted_sweep_resumes_with_what_is_missing() {
    let directory = tempfile::tempdir().expect("a directory");
    let open = || Results::open(directory.path(), "abc", false).expect("opens");
    let first = Echo { stop_after: Some(3), ..Echo::default() };
    let finished = go(&first, "0/1", Some(&open())).expect("stops");
    let kept = finished.records.len();
    assert!((3..12).contains(&kept) && finished.missing == 12 - kept, "{kept} kept");
    let second = Echo::default();
    let finished = go(&second, "0/1", Some(&open())).expect("runs");
    assert_eq!((finished.records.len(), finished.missing), (12, 0));
    assert_eq!(second.runs.load(Ordering::Relaxed), 12 - kept);
    let third = Echo::default();
    go(&third, "0/1", Some(&open())).expect("runs");
    assert_eq!(third.runs.load(Ordering::Relaxed), 0);
}

/// What a sweep tells is the same to the last digit however it came about: at once, interrupted, in
/// parts that end in any order, on any number of threads.
#[test]
fn a_sweep_in_pieces_tells_the_same_as_one_at_once() {
    let many = |shard: &str, jobs| Options { runs: 40, jobs: Some(jobs), ..options(shard) };
    let told = |finished: &Finished| {
        assert_eq!((finished.records.len(), finished.missing), (120, 0));
        let lines: Vec<String> = finished.records.values().map(Record::line).collect();
        format!("{lines:?} {:?}", summarise(&study(), finished))
    };
    let go = |options: &Options, results: Option<&Results>, engine: &Echo| {
        let stop = AtomicBool::new(false);
        sweep(&study(), engine, options, results, &stop, &|_| {}).expect("runs")
    };
    let whole = told(&go(&many("0/1", 1), None, &Echo::default()));
    assert_eq!(told(&go(&many("0/1", 4), None, &Echo::default())), whole);
    for pieces in ["interrupted", "0/3 1/3 2/3", "2/3 0/3 1/3"] {
        let directory = tempfile::tempdir().expect("a directory");
        let open = || Results::open(directory.path(), "abc", false).expect("opens");
        if pieces == "interrupted" {
            let engine = Echo { stop_after: Some(50), ..Echo::default() };
            assert!(go(&many("0/1", 3), Some(&open()), &engine).missing > 0);
        } else {
            for shard in pieces.split(' ') {
                go(&many(shard, 2), Some(&open()), &Echo::default());
            }
        }
        let again = go(&many("0/1", 2), Some(&open()), &Echo::default());
        assert!(told(&again) == whole, "{pieces}");
    }
}

/// Which of its runs a seed is, and what is set at a point, is the asking sweep's own.
#[test]
fn a_kept_run_is_counted_and_described_as_the_sweep_that_asks_does() {
    let directory = tempfile::tempdir().expect("a directory");
    let open = || Results::open(directory.path(), "abc", false).expect("opens");
    let stop = AtomicBool::new(false);
    let named = FILE.replace(
        "\"link.radio.loss\" = [\"0%\", \"5%\", \"10%\"]",
        "air = [{ label = \"good\", link.radio.loss = \"0%\" }]",
    );
    let other = Study::parse(Path::new("y.toml"), &named).expect("a scenario");
    let late = Options { seed: 12, runs: 2, ..options("0/1") };
    sweep(&other, &Echo::default(), &late, Some(&open()), &stop, &|_| {}).expect("runs");
    let engine = Echo::default();
    let resumed = go(&engine, "0/1", Some(&open())).expect("runs");
    assert_eq!(engine.runs.load(Ordering::Relaxed), 10);
    let lines = |finished: &Finished| -> Vec<String> {
        finished.records.values().map(Record::line).collect()
    };
    assert_eq!(lines(&resumed), lines(&go(&Echo::default(), "0/1", None).expect("runs")));
}

#[test]
fn a_line_that_a_crash_cut_short_is_run_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let open = || Results::open(directory.path(), "abc", false).expect("opens");
    go(&Echo::default(), "0/1", Some(&open())).expect("runs");
    let whole = lines(directory.path());
    let file = directory.path().join("runs-0-of-1-000.jsonl");
    let text = fs::read_to_string(&file).expect("text");
    fs::write(&file, &text[..text.len() - 40]).expect("writes");
    let engine = Echo::default();
    let finished = go(&engine, "0/1", Some(&open())).expect("runs");
    assert_eq!(engine.runs.load(Ordering::Relaxed), 1);
    let again: Vec<String> = finished.records.values().map(Record::line).collect();
    let mut again = again;
    again.sort();
    assert_eq!(again, whole);
}

#[test]
fn a_failing_run_ends_the_sweep_and_keeps_what_is_finished() {
    let directory = tempfile::tempdir().expect("a directory");
    let results = Results::open(directory.path(), "abc", false).expect("opens");
    let engine = Echo { fail: true, ..Echo::default() };
    let error = go(&engine, "0/1", Some(&results)).expect_err("fails").to_string();
    assert!(error.contains("no memory") && error.contains("link.radio.loss="), "{error}");
    assert!(lines(directory.path()).len() >= 2);
}

#[test]
fn what_the_engine_cannot_do_is_refused_before_anything_runs() {
    let node = "c = \"fixed-host\"\n[link.more]\nbetween = [\"b\", \"c\"]\n[link.radio]\n";
    let text = FILE.replace("[link.radio]\n", node);
    let study = Study::parse(Path::new("x.toml"), &text).expect("a scenario");
    let engine = Echo::default();
    let stop = AtomicBool::new(false);
    let error = sweep(&study, &engine, &options("0/1"), None, &stop, &|_| {});
    assert!(error.expect_err("refused").to_string().contains("2 links"));
    assert_eq!(engine.runs.load(Ordering::Relaxed), 0);
}

/// MET-1, MET-13: means and intervals count the runs that have a value, and show the others.
#[test]
fn summaries_show_intervals_and_failures() {
    let study = study();
    let stop = AtomicBool::new(false);
    let many = Options { runs: 40, ..options("0/1") };
    let finished = sweep(&study, &Echo::default(), &many, None, &stop, &|_| {}).expect("runs");
    let summaries = summarise(&study, &finished);
    assert_eq!(summaries.len(), 3);
    assert_eq!((summaries[0].incomplete, summaries[2].incomplete), (0, 40));
    for summary in &summaries {
        let [delay, time] = summary.metrics.as_slice() else { panic!("{summary:?}") };
        let estimate = delay.estimate.expect("a mean");
        let interval = estimate.interval().expect("an interval");
        assert!(interval.lo > 0.001 && interval.hi < 0.009 && interval.contains(estimate.mean));
        assert!(time.failures > 0 && time.estimate.expect("a mean").n + time.failures == 40);
    }
}

#[test]
fn shards_are_numbers_from_zero() {
    assert_eq!("1/4".parse::<Shard>().expect("a shard").to_string(), "1/4");
    for bad in ["", "1", "4/4", "0/0", "-1/2", "a/b", "1/2/3"] {
        assert!(bad.parse::<Shard>().expect_err(bad).to_string().contains("such as `0/4`"));
    }
}
