use lasthop_scenario::Scenario;
use lasthop_units::Duration;

use super::*;
use crate::reproduce::testing::{Changed, change, request};
use crate::reproduce::{CellRunner, Failure, Mark, sheet};

fn met(reproduction: &Reproduction, name: &str) -> (usize, usize, usize) {
    let found = reproduction.criteria.iter().find(|c| c.name.contains(name));
    let criterion = found.unwrap_or_else(|| panic!("no criterion `{name}`"));
    (criterion.met, criterion.of, criterion.whole)
}

impl<F: Fn(&mut Case) + Sync> Runner for Changed<Simulated, F> {
    fn rates(&self, scenario: &Scenario, seed: Seed) -> Option<Vec<(String, Series)>> {
        self.runner.rates(scenario, seed)
    }
}

/// Runs are so long, but for those with changes of priorities, which have their time.
fn shortened(length: Duration) -> impl Runner {
    let change = move |case: &mut Case| {
        if let Case::Runs(case) = case {
            change(case, |scenario| {
                if scenario.rwc.changes.is_empty() {
                    sheet::shorten(scenario, length);
                }
            });
        }
    };
    Changed { runner: Simulated, change }
}

#[test]
fn labels_are_unique_and_published_tables_have_their_cells() {
    let labels = (STUDY.labels)().unwrap();
    let mut sorted = labels.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!(sorted.len(), labels.len());
    for table in published().unwrap().tables.iter().filter(|t| t.id != "gains") {
        for row in &table.row {
            for column in &table.column {
                let own = labels
                    .iter()
                    .filter(|l| (&l.table, &l.row, &l.column) == (&table.id, &row.label, column));
                assert_eq!(own.count(), 1, "{} {} {column}", table.id, row.label);
            }
        }
    }
}

/// RWC-5, RWC-4, EXP-R1, EXP-R2: windows exactly, rates within 3 %.
#[test]
fn windows_and_rates_are_the_papers() {
    let only = ["example", "windows", "figure2", "figure3", "figure3-change"];
    let result = reproduce_with(&Simulated, &request(&only, 1), &()).unwrap();
    assert_eq!(met(&result, "worked examples"), (10, 10, 10));
    assert_eq!(met(&result, "add up"), (4, 4, 4));
    assert_eq!(met(&result, "figures 2 and 3"), (8, 8, 8));
    let printed = result.comparison.printed();
    assert!(printed.into_iter().all(|c| matches!(c.mark, Mark::Near)));
}

/// EXP-R3: the direction.
#[test]
fn feedback_moves_both_flows_despite_loss() {
    let result = reproduce_with(&Simulated, &request(&["figure4"], 30), &()).unwrap();
    assert_eq!(met(&result, "despite loss"), (2, 2, 2));
}

/// EXP-R4 to R6, at some lengths and over half the time.
#[test]
fn atcp_gains_on_reno_and_keeps_up_with_freeze_tcp() {
    let simulated = shortened(Duration::from_secs(50));
    let tables = ["figure6", "figure6-idle", "figure7", "figure7-idle", "wwan-up", "wwan-down"];
    let lengths = ["0s", "0.5s", "1.5s", "3s"];
    let only: Vec<String> =
        tables.iter().flat_map(|t| lengths.map(|l| format!("{t}/{l}"))).collect();
    // There is no idle time without disconnections.
    let only: Vec<&str> =
        only.iter().map(String::as_str).filter(|o| !o.ends_with("idle/0s")).collect();
    let result = reproduce_with(&simulated, &request(&only, 4), &()).unwrap();
    assert_eq!(met(&result, "where ATCP gains on Reno"), (4, 4, 4));
    assert_eq!(met(&result, "less than 2 %"), (12, 12, 36));
    assert_eq!(met(&result, "within 10 % of Freeze-TCP, WLAN"), (3, 3, 9));
    assert_eq!(met(&result, "above three duplicates, WLAN"), (3, 3, 9));
    assert_eq!(met(&result, "not above what"), (36, 36, 108));
    assert_eq!(met(&result, "idle times no longer"), (6, 6, 18));
}

/// Beside ns-2: where its five runs left no scatter, neither do ours.
#[test]
fn reno_is_ns2s_over_short_disconnections() {
    let only: Vec<String> = ["figure6", "figure7"]
        .iter()
        .flat_map(|t| ["0.2s", "0.5s", "1.5s", "2s"].map(|l| format!("{t}/{l}/none")))
        .collect();
    let only: Vec<&str> = only.iter().map(String::as_str).collect();
    let result = reproduce_with(&Simulated, &request(&only, 1), &()).unwrap();
    assert_eq!(met(&result, "ns-2's interval"), (8, 8, 14));
}

#[test]
fn the_report_has_its_figures_and_the_same_run_gives_the_same_bytes() {
    let only = ["figure3", "figure7/0s", "figure7/3s", "sensitivity/fixedlengths/down,3s"];
    let html = || {
        let simulated = shortened(Duration::from_secs(30));
        reproduce_with(&simulated, &request(&only, 2), &()).unwrap().report.to_html()
    };
    let first = html();
    assert_eq!(first, html());
    for text in ["gain over Reno", "figure 3", "Single runs over disconnections", "as assumed"] {
        assert!(first.contains(text), "{text}");
    }
}

/// Gives values that follow from the seed alone.
struct Dice;

impl CellRunner<Case> for Dice {
    fn run(&self, _: &Cell<Case>, run: u32, seed: Seed) -> Result<f64, Failure> {
        match run {
            2 => Err(Failure::Incomplete("time is over".to_owned())),
            _ => Ok(1.0 + seed.stream("dice").uniform()),
        }
    }
}

impl Runner for Dice {
    fn rates(&self, scenario: &Scenario, _: Seed) -> Option<Vec<(String, Series)>> {
        let rates: Series = (0..1000).map(|i| (f64::from(i) / 100.0, f64::from(i % 7))).collect();
        Some(scenario.flows.iter().map(|flow| (flow.name.clone(), rates.clone())).collect())
    }
}

#[test]
fn every_text_of_the_report_is_asked_for() {
    let prose = prose().unwrap();
    reproduce_in(&prose, &Dice, &request(&[], 2), &()).unwrap();
    assert_eq!(prose.unasked(), [""; 0]);
}
