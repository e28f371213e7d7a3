//! Behaviour as a diff: what the simulator measures of SRP and of every scheme stands in small tables
//! beside this file. Whatever changes behaviour changes a table, and a review sees how. `make golden`
//! writes them anew.

use std::path::Path;
use std::sync::Arc;
use std::{env, fs};

use lasthop_radio::{Errors, Pacing};
use lasthop_scenario::{Outcome, Scenario};
use lasthop_study::reproduce::sheet::{self, Sheet};
use lasthop_units::{Duration, Seed};

/// One run, and what it is called in its table.
struct Cell {
    names: Vec<String>,
    scenario: Arc<Scenario>,
}

/// SRP over rate, delay and loss of the hop: goodput from a download's start as a share of what the
/// radio allows, which is its rate without headers and less what it loses; from a request to its answer
/// over the idle hop and beside the download; bytes that go onto the hop for each that arrives, which
/// is what headers and retransmissions cost.
#[test]
fn srp_over_loss_delay_and_rate() {
    let srp = Sheet { path: "tests/golden/srp.toml", text: include_str!("golden/srp.toml") };
    let axes = ["rate", "link.radio.delay", "link.radio.loss"];
    let cells = cells(&srp, |at| Some(axes.map(at).to_vec()));
    let head = ["share_%", "queue_drops", "first_ms", "beside_ms", "sent_per_byte"];
    let table = table(&["rate", "delay", "loss"], &head, &cells, |cell, outcome| {
        let metric = |name: &str| sheet::metric(outcome, name).ok();
        let share = || Some(100.0 * metric("bulk.goodput_bps")? / limit(&cell.scenario)?);
        let sent = || Some(metric("radio.forward.bytes")? / metric("bulk.received_bytes")?);
        vec![
            told(share(), 1),
            told(metric("radio.forward.queue_drops"), 0),
            told(metric("first.latency_s").map(|s| 1e3 * s), 0),
            told(metric("beside.latency_s").map(|s| 1e3 * s), 0),
            told(sent(), 3),
        ]
    });
    check("srp.txt", &table);
}

/// Every scheme over some cells of the league, for less time: goodput, expiries of the fixed host's
/// timer, retransmissions by the TCP of both hosts and by agents, what full queues of radios dropped,
/// and the mean wait for the echo of a keystroke.
#[test]
fn schemes_over_cells_of_the_league() {
    let conditions = ["loss 1 %", "loss 5 %", "fades", "gaps", "handoffs", "two hops"];
    let of = |league: &Sheet| {
        cells(league, |at| {
            let taken = at("load") == "download" && conditions.contains(&at("at").as_str());
            taken.then(|| ["scheme", "at", "sender"].map(at).to_vec())
        })
    };
    let mut cells = LEAGUE.iter().flat_map(of).collect::<Vec<_>>();
    cells.sort_by_key(|cell| cell.names[0].clone());
    for cell in &mut cells {
        sheet::shorten(Arc::make_mut(&mut cell.scenario), LENGTH);
    }
    let head = ["kbit/s", "timeouts", "retransmits", "local", "queue_drops", "echo_ms"];
    let table = table(&["scheme", "condition", "sender"], &head, &cells, |_, outcome| {
        let metric = |name: &str| sheet::metric(outcome, name).ok();
        let all = |what: &str| {
            let own = outcome.metrics.iter().filter(|(name, _)| name.ends_with(what));
            own.map(|(_, count)| *count).reduce(|a, b| a + b)
        };
        vec![
            told(metric("bulk.goodput_bps").map(|bps| bps / 1e3), 0),
            told(metric("bulk.fixed_timeouts"), 0),
            told(metric("bulk.retransmits"), 0),
            told(all(".local_retransmits"), 0),
            told(all(".forward.queue_drops"), 0),
            told(metric("keys.latency_s").map(|s| 1e3 * s), 0),
        ]
    });
    check("schemes.txt", &table);
}

/// How long a cell of the league runs here.
const LENGTH: Duration = Duration::from_secs(30);

const LEAGUE: [Sheet; 3] = [
    Sheet { path: "papers/league/hop.toml", text: include_str!("../../../papers/league/hop.toml") },
    Sheet {
        path: "papers/league/handoffs.toml",
        text: include_str!("../../../papers/league/handoffs.toml"),
    },
    Sheet {
        path: "papers/league/train.toml",
        text: include_str!("../../../papers/league/train.toml"),
    },
];

/// The points of a scenario file that `taken` names, by what they set.
fn cells(
    sheet: &Sheet,
    taken: impl Fn(&dyn Fn(&str) -> String) -> Option<Vec<String>>,
) -> Vec<Cell> {
    let points = sheet.points().unwrap_or_else(|e| panic!("{e}")).into_iter();
    let cell = |(settings, scenario): (sheet::Settings, Arc<Scenario>)| {
        let names = taken(&|axis| settings.at(axis).to_owned())?;
        Some(Cell { names, scenario })
    };
    points.filter_map(cell).collect()
}

/// The most that the radio allows, in bit/s.
fn limit(scenario: &Scenario) -> Option<f64> {
    let radio = &scenario.links.iter().find(|link| link.name == "radio")?.radio.up;
    let Pacing::Rate(rate) = &radio.pacing else { return None };
    let lost = radio.losses.iter().map(|loss| match loss.errors {
        Errors::Uniform(share) => Some(share),
        _ => None,
    });
    let arrives = lost.map(|lost| Some(1.0 - lost?)).product::<Option<f64>>()?;
    Some(rate.as_bps() as f64 * arrives * 1460.0 / 1500.0)
}

/// A value with so many digits; a dash where there is none.
fn told(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

/// Runs all cells, and tells of each in a line: its names on the left, what was measured on the right.
fn table(
    axes: &[&str],
    head: &[&str],
    cells: &[Cell],
    measure: impl Fn(&Cell, &Outcome) -> Vec<String> + Sync,
) -> String {
    let mut rows = lasthop_testing::run_all(0..cells.len() as u64, |n| {
        let cell = &cells[n as usize];
        let outcome = sheet::outcome(&cell.scenario, Seed::from_u64(1));
        let outcome = outcome.unwrap_or_else(|e| panic!("{:?}: {e}", cell.names));
        (n, [cell.names.clone(), measure(cell, &outcome)].concat())
    });
    rows.sort();
    let head = axes.iter().chain(head).map(|&name| name.to_owned()).collect();
    let rows: Vec<Vec<String>> = [head].into_iter().chain(rows.into_iter().map(|r| r.1)).collect();
    let width = |n: usize| rows.iter().map(|row| row[n].chars().count()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let entry = |(n, (entry, &width)): (usize, (&String, &usize))| match n < axes.len() {
            true => format!("{entry:<width$}"),
            false => format!("{entry:>width$}"),
        };
        row.iter().zip(&widths).enumerate().map(entry).collect::<Vec<_>>().join("  ") + "\n"
    };
    rows.iter().map(line).collect()
}

/// Compares a table with the one that is kept, or keeps it where `LASTHOP_GOLDEN` is `write`.
#[track_caller]
fn check(name: &str, now: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if env::var("LASTHOP_GOLDEN").is_ok_and(|what| what == "write") {
        fs::write(&path, now).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        return;
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == now,
        "{name} is not what the simulator does now:\n\n  {}\n{}\n`make golden` writes it anew.",
        now.lines().next().unwrap_or_default(),
        differences(&kept, now)
    );
}

/// Lines of one text that the other does not have, in their order.
fn differences(kept: &str, now: &str) -> String {
    let lines = |of: &'static str, text: &str, other: &str| -> Vec<(usize, String)> {
        let missing = |(_, line): &(usize, &str)| other.lines().all(|there| there != *line);
        let told = |(n, line): (usize, &str)| (n, format!("{of} {line}\n"));
        text.lines().enumerate().filter(missing).map(told).collect()
    };
    let mut all = [lines("-", kept, now), lines("+", now, kept)].concat();
    all.sort_by_key(|(n, _)| *n);
    all.into_iter().map(|(_, line)| line).collect()
}

#[test]
fn a_difference_is_told_line_by_line() {
    let told = differences("rate  drops\n1 M   0\n2 M   3\n", "rate  drops\n1 M   0\n2 M   4\n");
    assert_eq!(told, "- 2 M   3\n+ 2 M   4\n");
    assert_eq!(differences("same\n", "same\n"), "");
}
