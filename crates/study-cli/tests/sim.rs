//! `lasthop sim` as users meet it.

#![allow(clippy::expect_used, reason = "a test that cannot go on should say where")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use lasthop_units::Scheme;

const SCENARIO: &str = r#"
duration = "20s"
runs = 3
[node]
server = "fixed-host"
phone = "mobile-host"
[link.radio]
between = ["server", "phone"]
rate = "1Mbit/s"
delay = { uniform = ["5ms", "50ms"] }
[flow.download]
from = "server"
to = "phone"
[sweep]
link.radio.loss = ["1%", "5%", "10%"]
"#;

struct Isolation {
    directory: tempfile::TempDir,
}

impl Isolation {
    fn new(scenario: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join("x.toml"), scenario).expect("writes");
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn sim(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_lasthop-study"))
            .args(["sim", "x.toml"])
            .args(arguments)
            .current_dir(self.directory.path())
            .output()
            .expect("starts")
    }

    fn prints(&self, arguments: &[&str]) -> String {
        let output = self.sim(arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    fn refuses(&self, arguments: &[&str]) -> String {
        let output = self.sim(arguments);
        assert!(!output.status.success(), "accepted");
        assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8(output.stderr).expect("text")
    }
}

fn lines(directory: &Path) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|e| e == "jsonl") {
            lines.extend(fs::read_to_string(path).expect("text").lines().map(str::to_string));
        }
    }
    lines
}

#[test]
fn two_runs_of_a_scenario_have_the_same_traces() {
    let place = Isolation::new(SCENARIO);
    let once = place.prints(&["--no-results", "--trace-hash", "--jobs", "1"]);
    let again = place.prints(&["--no-results", "--trace-hash", "--jobs", "3"]);
    assert_eq!(once.lines().count(), 9);
    assert_eq!(once, again);
    let other = place.prints(&["--no-results", "--trace-hash", "--seed", "100"]);
    let traces = |text: &str| -> BTreeSet<String> {
        text.lines().filter_map(|l| l.split(' ').next()).map(str::to_string).collect()
    };
    assert!(traces(&once).is_disjoint(&traces(&other)));
}

#[test]
fn the_union_of_shards_is_the_whole() {
    let place = Isolation::new(SCENARIO);
    place.prints(&["--results", "whole"]);
    place.prints(&["--results", "parts", "--shard", "0/2"]);
    assert!(lines(&place.path("parts")).len() < 9);
    place.prints(&["--results", "parts", "--shard", "1/2"]);
    assert_eq!(lines(&place.path("whole")).len(), 9);
    assert_eq!(lines(&place.path("whole")), lines(&place.path("parts")));
}

#[test]
fn a_sweep_in_pieces_or_from_a_file_in_another_order_prints_the_same_to_the_byte() {
    let place = Isolation::new(&SCENARIO.replace("loss = [", "loss = [\"2%\", "));
    let kinds = ["--json", "--json=runs", "--trace-hash", "--jobs=1"];
    let whole = kinds.map(|kind| place.prints(&["--no-results", kind]));
    for shard in ["2/3", "0/3", "1/3"] {
        place.prints(&["--results", "parts", "--shard", shard]);
    }
    place.prints(&["--results", "more", "--runs", "1", "--seed", "2"]);
    let radio = SCENARIO.find("[link.radio]").expect("a link");
    let flow = SCENARIO.find("[flow.download]").expect("a flow");
    let sweep = SCENARIO.find("[sweep]").expect("a sweep");
    let (before, link) = (&SCENARIO[..radio], &SCENARIO[radio..flow]);
    let other = format!("{before}{}{link}{}", &SCENARIO[flow..sweep], &SCENARIO[sweep..]);
    let other = other.replace("loss = [", "loss = [\"2%\", ");
    fs::write(place.path("x.toml"), other).expect("writes");
    for results in ["parts", "more", "fresh"] {
        let again = kinds.map(|kind| place.prints(&["--results", results, kind]));
        assert_eq!(again, whole, "{results}");
    }
}

#[test]
fn more_runs_do_only_what_is_missing() {
    let place = Isolation::new(SCENARIO);
    place.prints(&["--runs", "2"]);
    let first = place.path("x.results/runs-0-of-1-000.jsonl");
    assert_eq!(fs::read_to_string(&first).expect("text").lines().count(), 6);
    place.prints(&["--runs", "3"]);
    let second = place.path("x.results/runs-0-of-1-001.jsonl");
    assert_eq!(fs::read_to_string(second).expect("text").lines().count(), 3);
    place.prints(&["--runs", "3"]);
    assert!(!place.path("x.results/runs-0-of-1-002.jsonl").exists());
}

#[test]
fn json_has_one_object_a_point_or_a_run() {
    let place = Isolation::new(SCENARIO);
    let parse = |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("JSON");
    let points = place.prints(&["--no-results", "--json"]);
    assert_eq!(points.lines().count(), 3);
    let first = parse(points.lines().next().expect("a line"));
    assert_eq!(first["parameters"]["link.radio.loss"], "1%");
    assert_eq!(first["runs"], 3);
    let goodput = &first["metrics"]["download.goodput_bps"];
    assert!(goodput["lo"].as_f64() < goodput["mean"].as_f64(), "{goodput}");
    assert!(goodput["mean"].as_f64() < goodput["hi"].as_f64(), "{goodput}");
    let runs = place.prints(&["--no-results", "--json=runs"]);
    assert_eq!(runs.lines().count(), 9);
    assert_eq!(parse(runs.lines().next().expect("a line"))["seed"], 1);
}

#[test]
fn a_wrong_scenario_is_refused_with_file_line_and_key_and_nothing_is_written() {
    let place = Isolation::new(&SCENARIO.replace("rate =", "rte ="));
    let said = place.refuses(&[]);
    assert!(said.contains("x.toml:9: link.radio.rte: unknown key"), "{said}");
    assert!(said.contains("did you mean `rate`?"), "{said}");
    assert!(!place.path("x.results").exists());
}

#[test]
fn a_missing_file_is_named() {
    let place = Isolation::new(SCENARIO);
    fs::remove_file(place.path("x.toml")).expect("removes");
    assert!(place.refuses(&["--check"]).contains("cannot read x.toml"));
}

#[test]
fn results_of_another_commit_are_refused_with_the_remedy() {
    let place = Isolation::new(SCENARIO);
    fs::create_dir(place.path("old")).expect("a directory");
    let manifest = r#"{"format": 2, "commit": "0123456789"}"#;
    fs::write(place.path("old/manifest.json"), manifest).expect("writes");
    let said = place.refuses(&["--results", "old"]);
    assert!(said.contains("0123456789") && said.contains("--allow-other-commit"), "{said}");
    place.prints(&["--results", "old", "--allow-other-commit"]);
}

#[test]
fn a_scheme_that_is_unknown_or_not_there_yet_is_refused() {
    let unknown = Isolation::new(&format!("scheme = \"magic\"\n{SCENARIO}")).refuses(&[]);
    assert!(unknown.contains("x.toml:1: scheme: `magic` is unknown"), "{unknown}");
    assert!(unknown.contains("none, split-tcp, i-tcp, srp"), "{unknown}");
}

#[test]
fn the_points_are_listed_without_running() {
    let place = Isolation::new(SCENARIO);
    let list = place.prints(&["--list"]);
    assert_eq!(list.lines().count(), 3);
    assert!(
        list.lines().all(|l| l.len() > 33 && l[33..].starts_with("link.radio.loss=")),
        "{list}"
    );
    assert!(place.prints(&["--check"]).contains("3 points, 3 runs each"));
    assert!(!place.path("x.results").exists());
}

#[test]
fn ctrl_c_keeps_what_is_finished_and_the_next_call_goes_on() {
    let long = SCENARIO.replace("20s", "30000s").replace("runs = 3", "runs = 40");
    let place = Isolation::new(&long);
    let mut child = Command::new(env!("CARGO_BIN_EXE_lasthop-study"))
        .args(["sim", "x.toml", "--jobs", "1"])
        .current_dir(place.directory.path())
        .spawn()
        .expect("starts");
    let first = place.path("x.results/runs-0-of-1-000.jsonl");
    while !fs::read_to_string(&first).is_ok_and(|text| text.contains('\n')) {
        assert!(child.try_wait().expect("waits").is_none(), "ended before it was stopped");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("signals");
    assert!(!child.wait().expect("ends").success());
    let kept = lines(&place.path("x.results"));
    assert!(!kept.is_empty() && kept.len() < 120, "{} kept", kept.len());
    place.prints(&["--runs", "1"]);
    assert!(kept.is_subset(&lines(&place.path("x.results"))));
}

fn is_scenario(path: &Path) -> bool {
    let in_schemes = path.parent().is_some_and(|parent| parent.ends_with("schemes"));
    let named = path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("sim-"));
    path.extension().is_some_and(|e| e == "toml") && (in_schemes || named)
}

#[test]
fn the_examples_of_the_documentation_are_right() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples");
    let mut count = 0;
    for directory in [examples.clone(), examples.join("schemes")] {
        for entry in fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            if !is_scenario(&path) {
                continue;
            }
            let output = Command::new(env!("CARGO_BIN_EXE_lasthop-study"))
                .arg("sim")
                .arg(&path)
                .arg("--check")
                .output()
                .expect("starts");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            count += 1;
        }
    }
    assert!(count >= 20, "{count}");
}

/// Whoever reads of a scheme finds how it was measured, and the index names every page.
#[test]
fn every_scheme_has_a_page_and_an_example() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let index = fs::read_to_string(docs.join("schemes.md")).expect("an index");
    for scheme in Scheme::ALL {
        let page = fs::read_to_string(docs.join(format!("schemes/{scheme}.md"))).expect("a page");
        assert!(page.starts_with(&format!("# {scheme}: {}\n", scheme.title())), "{scheme}");
        for code in scheme.codes() {
            assert!(page.contains(&format!("{code}-")), "{scheme}: {code}");
        }
        let example = format!("docs/examples/schemes/{scheme}.toml");
        assert!(page.contains(&example), "{scheme}");
        assert!(docs.join(format!("examples/schemes/{scheme}.toml")).is_file(), "{scheme}");
        let row = index.lines().find(|line| line.contains(&format!("(schemes/{scheme}.md)")));
        let end_to_end = if scheme.traits().end_to_end { "| yes |" } else { "| no |" };
        assert!(row.expect("a row").contains(end_to_end), "{scheme}");
    }
}
