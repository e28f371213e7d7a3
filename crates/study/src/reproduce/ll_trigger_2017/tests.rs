use std::collections::BTreeSet;

use lasthop_units::Scheme;

use super::*;
use crate::reproduce::testing::{as_xml, request};
use crate::reproduce::{CellRunner, Criterion, Failure, Label, Mark};

/// Gives what the paper prints, and otherwise values of the shapes that it claims.
struct Echo {
    /// Turns what is claimed round.
    reversed: bool,
}

impl CellRunner<Case> for Echo {
    fn run(&self, cell: &Cell<Case>, run: u32, _: Seed) -> Result<f64, Failure> {
        let label = &cell.label;
        if label.scheme == "none" && label.table == "figure8" && run == 1 {
            return Err(Failure::Incomplete("<time> is over & out".to_owned()));
        }
        let sign = if self.reversed { -1.0 } else { 1.0 };
        let split = ["split-tcp", "i-tcp", "srp", "mobile-tcp"].contains(&label.scheme.as_str());
        Ok(match cell.case.measure {
            Measure::Goodput => {
                let time: f64 = label.row.trim_end_matches(" s").parse().unwrap();
                50.0 - 2.0 * time + if label.scheme == "ll-freeze" { sign * time } else { 0.0 }
            }
            Measure::Early => {
                if split != self.reversed {
                    100.0
                } else {
                    0.0
                }
            }
            Measure::Ideal => {
                if label.scheme == "none" {
                    80.0
                } else {
                    95.0
                }
            }
            _ => sign * cell.published.map_or(3.0, |published| published.mean),
        })
    }
}

impl Runner for Echo {
    fn shown(&self, _: &Case, _: Seed) -> Option<Shown> {
        let rate = (0..250).map(|i| (f64::from(i), 56.0)).collect();
        Some(Shown { rate, handoff: (115.0, 116.0) })
    }
}

fn echo(reversed: bool) -> Reproduction {
    reproduce_with(&Echo { reversed }, &request(&[], 2), &()).unwrap()
}

fn verdicts(reproduction: &Reproduction) -> Vec<bool> {
    reproduction.criteria.iter().filter_map(Criterion::verdict).collect()
}

/// Ten values of Table II, and ten of figure 7, each beside means over 1 and 10 s.
#[test]
fn every_printed_value_has_its_cells() {
    let cells = cells::all(&published().unwrap()).unwrap();
    let printed = |table: &str| {
        cells.iter().filter(|c| c.label.table == table && c.published.is_some()).count()
    };
    assert_eq!(printed("table2"), 10);
    assert_eq!(printed("figure7-minimum") + printed("figure7-recovery"), 20);
    let labels: BTreeSet<&Label> = cells.iter().map(|cell| &cell.label).collect();
    assert_eq!(labels.len(), cells.len(), "each cell has a label of its own");
    let mut units: Vec<(&str, &str)> =
        cells.iter().map(|c| (c.label.table.as_str(), c.unit)).collect();
    units.dedup();
    let tables: BTreeSet<&str> = units.iter().map(|(table, _)| *table).collect();
    assert_eq!(units.len(), tables.len(), "each table stands together and has one unit");
}

/// Table I is answered for every scheme there is.
#[test]
fn every_scheme_has_every_characteristic() {
    let reproduction = echo(false);
    for scheme in Scheme::over_one_link() {
        for question in answers::QUESTIONS {
            let answer = answers::answer(&reproduction.comparison, question, scheme);
            assert!(answer.is_some(), "{scheme}: {question}");
        }
    }
}

#[test]
fn a_scheme_copes_if_it_wins_back_half_of_what_reno_loses() {
    let reproduction = echo(false);
    let copes = |scheme| {
        let answer = answers::answer(&reproduction.comparison, cells::LONG, scheme).unwrap();
        (answer.yes, answer.won.unwrap())
    };
    assert_eq!(copes(Scheme::Freeze), (true, 0.75));
    assert_eq!(copes(Scheme::None), (false, 0.0));
    let node =
        |scheme| answers::answer(&reproduction.comparison, answers::NODE, scheme).unwrap().yes;
    // A link that recovers by itself changes nothing about TCP on the way (DDA-1).
    assert!(node(Scheme::Snoop) && node(Scheme::SplitTcp) && !node(Scheme::DelayedDupacks));
    // LLT-1.
    assert!(!node(Scheme::LlFreeze) && answers::works_encrypted(Scheme::LlFreeze));
    assert!(!answers::works_encrypted(Scheme::MTcp));
}

#[test]
fn the_paper_itself_meets_every_criterion() {
    let reproduction = echo(false);
    assert_eq!(verdicts(&reproduction), [true; 4]);
    let order = |name: &str| {
        let found = reproduction.criteria.iter().find(|c| c.name.contains(name)).unwrap();
        (found.met, found.of)
    };
    assert_eq!(order("figure 7's minima, means in 10 s"), (10, 10));
    assert_eq!(order("figure 7's recovery times, means in 1 s"), (10, 10));
    assert!(reproduction.comparison.printed().all(|cell| cell.mark == Mark::Near));
}

#[test]
fn the_opposite_meets_none() {
    assert_eq!(verdicts(&echo(true)), [false; 4]);
}

#[test]
fn the_report_is_whole_offline_and_the_same_again() {
    let html = echo(false).report.to_html();
    assert_eq!(html, echo(false).report.to_html());
    assert!(!html.contains("http") && !html.contains("<script") && !html.contains("url("));
    let xml = as_xml(&html);
    let document = roxmltree::Document::parse(&xml).unwrap();
    let charts = document.descendants().filter(|n| n.attribute("role") == Some("img"));
    // The seven schemes of figure 7, and figure 8.
    assert_eq!(charts.count(), 8);
    for n in 1..=11 {
        assert!(html.contains(&format!("INC-M{n}")), "{n}");
    }
    for scheme in Scheme::over_one_link() {
        assert!(html.contains(&format!("<th scope=\"row\">{scheme}")), "{scheme}");
    }
}

/// EXP-M1, EXP-M3: the claims of Table II and figure 8, in the simulator, with fewer runs. Congestion
/// coherence times out at handoffs, since it takes no account of them (CC-7).
#[test]
fn the_claims_hold_in_a_few_runs() {
    let request = request(&["table2", "figure8", "table1-semantics"], 3);
    let reproduction = (STUDY.reproduce)(&request, &()).unwrap();
    assert_eq!(verdicts(&reproduction), [true; 4], "{:?}", reproduction.criteria);
    for compared in &reproduction.comparison.cells {
        assert_eq!(compared.cell.ours.failures(), 0, "{}", compared.cell.label);
    }
    let table2 = reproduction.comparison.cells.iter().filter(|c| c.cell.label.table == "table2");
    let coherent = table2.filter(|c| c.cell.label.scheme == "congestion-coherence");
    for estimate in coherent.filter_map(|compared| compared.cell.ours.estimate()) {
        assert!(estimate.mean >= 1.0, "{estimate:?}");
    }
}

/// EXP-M2: after a handoff every scheme of figure 7 comes back to its top rate. The method is back
/// before snoop, whose sender waits for its timer, and stops nobody else's longer (INC-M6, INC-M7).
#[test]
fn the_method_falls_least_and_snoop_is_not_the_first_to_recover() {
    let request = request(&["figure7-minimum", "figure7-recovery", "figure7-4s-recovery"], 3);
    let reproduction = (STUDY.reproduce)(&request, &()).unwrap();
    let value = |table, row, column, scheme| {
        reproduction.comparison.mean([table, row, column, scheme]).unwrap()
    };
    for compared in &reproduction.comparison.cells {
        assert_eq!(compared.cell.ours.failures(), 0, "{}", compared.cell.label);
    }
    let minimum = value("figure7-minimum", "minimum", "in 10 s", "ll-freeze");
    assert!((48.0..50.5).contains(&minimum), "{minimum}");
    for scheme in ["snoop", "delayed-dupacks"] {
        let recovery = |scheme| value("figure7-4s-recovery", "recovery", "in 1 s", scheme);
        assert!(recovery("ll-freeze") + 1.0 < recovery(scheme), "{scheme}");
        assert!(minimum > value("figure7-minimum", "minimum", "in 10 s", scheme), "{scheme}");
    }
}

#[test]
fn every_text_of_the_report_is_asked_for() {
    let prose = prose().unwrap();
    reproduce_in(&prose, &Echo { reversed: false }, &request(&[], 2), &()).unwrap();
    assert_eq!(prose.unasked(), [""; 0]);
    assert_eq!(prose.unasked_common(), [""; 0]);
}
