use std::collections::BTreeSet;

use super::*;
use crate::reproduce::Failure;
use crate::reproduce::recorded::recorded;
use crate::reproduce::testing::{self, as_xml};

/// Gives what the paper prints, or 20 s, with a spread of a few percent.
struct Echo {
    /// Multiplies the times of SRP.
    srp: f64,
}

impl CellRunner<Case> for Echo {
    fn run(&self, cell: &Cell<Case>, run: u32, seed: Seed) -> Result<f64, Failure> {
        if cell.case.scheme == Contender::ITcp && run == 1 {
            return Err(Failure::Incomplete("<time> is over & out".to_owned()));
        }
        let factor = if cell.case.scheme == Contender::Srp { self.srp } else { 1.0 };
        let spread = 0.98 + 0.04 * seed.stream("echo").uniform();
        Ok(cell.published.map_or(20.0, |published| published.mean) * factor * spread)
    }

    fn course(&self, cell: &Cell<Case>, _: u32, _: Seed) -> Option<Course> {
        (cell.case.scheme == Contender::Srp).then(|| Course {
            cwnd: (0..100).map(|i| (f64::from(i) / 4.0, f64::from(i % 32) * 212.0)).collect(),
            sent: (0..100).map(|i| (f64::from(i) / 4.0, f64::from(i) * 1000.0)).collect(),
            delivered: (0..100).map(|i| (f64::from(i) / 4.0, f64::from(i) * 990.0)).collect(),
            pauses: vec![(6.0, 8.8)],
        })
    }
}

fn request(only: &[&str]) -> Request {
    testing::request(only, 8)
}

fn echo(srp: f64, only: &[&str]) -> Reproduction {
    reproduce_with(&Echo { srp }, &request(only), &()).unwrap()
}

fn verdicts(reproduction: &Reproduction) -> Vec<Option<bool>> {
    reproduction.criteria.iter().filter(|c| c.needed.is_some()).map(Criterion::verdict).collect()
}

/// 33 printed cells, and the missing row of Table 3.
#[test]
fn the_paper_prints_33_cells_and_lacks_three() {
    let cells = cells::all(&published().unwrap()).unwrap();
    let compared: Vec<_> = cells.iter().filter(|cell| cell.compared).collect();
    let missing: Vec<String> = compared
        .iter()
        .filter(|cell| cell.published.is_none())
        .map(|cell| cell.label.to_string())
        .collect();
    assert_eq!(compared.len(), 36);
    assert_eq!(missing, ["table3/5 s/0 %/srp", "table3/5 s/5 %/srp", "table3/5 s/10 %/srp"]);
    let labels: BTreeSet<&Label> = cells.iter().map(|cell| &cell.label).collect();
    assert_eq!(labels.len(), cells.len(), "each cell has a label of its own");
}

/// Every scheme meets repeated handoffs of every pause and loss, which the paper leaves
/// without numbers.
#[test]
fn repeated_handoffs_stand_beside_the_paper() {
    let cells = cells::all(&published().unwrap()).unwrap();
    let repeated = || cells.iter().filter(|cell| cell.case.handoffs == Handoffs::Repeated);
    assert_eq!(repeated().count(), 5 * 3 * 3);
    assert!(repeated().all(|cell| !cell.case.pause.is_zero() && cell.published.is_none()));
}

#[test]
fn a_changed_assumption_leaves_the_rest_of_the_world_alone() {
    let cells = cells::all(&published().unwrap()).unwrap();
    let varied = cells.iter().find(|cell| cell.label.row == "MTU 128 bytes").unwrap();
    let experiment = varied.case.experiment();
    assert_eq!(
        experiment,
        Experiment { mtu: lasthop_units::Bytes::new(128), ..Experiment::default() }
    );
    assert_eq!(cells[0].case.experiment(), Experiment::default());
}

#[test]
fn published_ratios_are_those_of_the_tables() {
    let reproduction = echo(1.0, &[]);
    let comparison = &reproduction.comparison;
    assert_eq!(comparison.pairs_of("tcp", "split-tcp").count(), 12);
    assert_eq!(comparison.pairs_of("tcp", "srp").count(), 9);
    assert_eq!(comparison.pairs_of("split-tcp", "srp").count(), 9);
    let last = comparison.pairs_of("tcp", "split-tcp").last().unwrap();
    assert!((last.published.value - 99.9 / 32.6).abs() < 1e-12);
}

#[test]
fn the_paper_itself_meets_every_criterion() {
    let reproduction = echo(1.0, &[]);
    assert_eq!(verdicts(&reproduction), [Some(true); 3]);
    let counts: Vec<usize> = reproduction.criteria.iter().map(|c| c.met).collect();
    // As often above its own means as below.
    assert_eq!(counts[..8], [33, 33, 30, 12, 9, 9, 3, 33]);
    let wholes = reproduction.criteria.iter().map(|c| (c.of, c.whole));
    assert!(wholes.into_iter().all(|(of, whole)| of == whole));
}

#[test]
fn a_slow_srp_fails_every_criterion() {
    let reproduction = echo(4.0, &[]);
    assert_eq!(verdicts(&reproduction), [Some(false), Some(false), Some(false)]);
    let strict = &reproduction.criteria[1];
    // Where the paper prints no srp, the order of the other two stands.
    assert!(strict.met >= 6 && strict.met < 30, "{strict:?}");
    assert!(reproduction.report.to_html().contains("No reason has been found."));
}

#[test]
fn a_choice_of_cells_decides_nothing_that_it_does_not_cover() {
    let reproduction = echo(1.0, &["srp/5%"]);
    assert_eq!(reproduction.comparison.cells.len(), 4 + 3);
    assert_eq!(verdicts(&reproduction), [None, None, None]);
    let whole = echo(1.0, &[]);
    let find = |r: &Reproduction| {
        let cells = &r.comparison.cells;
        cells
            .iter()
            .find(|c| c.cell.label.row == "1 s" && c.cell.label.scheme == "srp")
            .map(|c| c.cell.ours.clone())
    };
    let whole_srp =
        whole.comparison.cells.iter().find(|c| c.cell.label.to_string() == "table3/1 s/5 %/srp");
    assert_eq!(find(&reproduction), whole_srp.map(|c| c.cell.ours.clone()));
}

#[test]
fn the_report_is_whole_offline_and_the_same_again() {
    let html = echo(1.0, &[]).report.to_html();
    assert_eq!(html, echo(1.0, &[]).report.to_html());
    assert!(!html.contains("http") && !html.contains("<script") && !html.contains("url("));

    let xml = as_xml(&html);
    let document = roxmltree::Document::parse(&xml).unwrap();
    let elements = |name: &str| document.descendants().filter(|n| n.has_tag_name(name)).count();
    assert!(elements("title") > 1, "values are told on hovering");
    for node in document.descendants() {
        assert!(node.attribute("src").is_none());
        assert!(node.attribute("href").is_none_or(|href| href.starts_with('#')));
    }
    // Three panels, the ratios, two charts of a run; swatches are aria-hidden.
    let charts = document.descendants().filter(|n| n.attribute("role") == Some("img"));
    assert_eq!(charts.count(), 6);
    let finite = ["NaN", "inf"]
        .iter()
        .all(|word| !xml.split_once("<body").unwrap().1.contains(&format!("\"{word}")));
    assert!(finite, "a figure has a coordinate that is no number");
}

#[test]
fn each_printed_cell_parameter_and_inconsistency_is_in_the_report() {
    let html = echo(1.0, &[]).report.to_html();
    for table in published().unwrap().tables {
        for (row, column) in table.row.iter().flat_map(|r| table.column.iter().map(move |c| (r, c)))
        {
            assert!(html.contains(&format!("<th scope=\"row\">{}, {column}", row.label)));
            if let Some((mean, i)) = table.cell(&row.label, column).unwrap().value() {
                let printed =
                    format!("{mean:.1} <span class=\"small\">[{:.1}, {:.1}]</span>", i.lo, i.hi);
                assert!(html.contains(&printed), "{printed}");
            }
        }
    }
    for parameter in Experiment::default().setup(&prose().unwrap()).parameters {
        assert!(html.contains(&parameter.name), "{}", parameter.name);
    }
    for id in ["INC-Y1", "INC-Y2", "INC-Y3", "INC-Y4", "INC-Y5"] {
        assert!(html.contains(id), "{id}");
    }
    assert!(html.contains("1 of 8 failed"), "incomplete runs are told");
    assert!(html.contains("lasthop reproduce mhp-srp-1994 --runs 8 --seed 1"));
}

#[test]
fn what_looks_like_markup_in_a_text_is_text() {
    let mut reproduction = echo(1.0, &[]);
    reproduction.report.title = "<b>&".to_owned();
    let html = reproduction.report.to_html();
    assert!(html.contains("<h1>&lt;b&gt;&amp;</h1>"));
}

/// Has no simulation.
struct NotSimulated;

impl CellRunner<Case> for NotSimulated {
    fn run(&self, _: &Cell<Case>, _: u32, _: Seed) -> Result<f64, Failure> {
        Err(Failure::Unavailable("there is no simulation".to_owned()))
    }
}

#[test]
fn without_a_simulation_no_cell_is_run() {
    let reproduction = reproduce_with(&NotSimulated, &request(&["table1"]), &()).unwrap();
    assert!(reproduction.comparison.cells.iter().all(|cell| cell.mark == Mark::NotRun));
    let html = reproduction.report.to_html();
    assert!(roxmltree::Document::parse(&as_xml(&html)).is_ok());
}

/// EXP-Y1: what the issue of a reproduction is, with as many runs as the paper has.
#[test]
fn the_tables_are_reproduced_as_far_as_is_asked() {
    let request = Request { runs: 40, ..request(&["table1", "table2", "table3"]) };
    let reproduction = (STUDY.reproduce)(&request, &()).unwrap();
    for criterion in &reproduction.criteria {
        assert!(criterion.needed.is_none() || criterion.verdict() == Some(true), "{criterion:?}");
    }
    assert_eq!(reproduction.criteria, recorded("mhp-srp-1994"));
}

/// EXP-Y2: a transfer with many handoffs ends, by every scheme.
#[test]
fn transfers_with_repeated_handoffs_end() {
    let request = Request { runs: 5, ..request(&["repeated-handoffs/1s"]) };
    let reproduction = (STUDY.reproduce)(&request, &()).unwrap();
    assert_eq!(reproduction.comparison.cells.len(), 15);
    for cell in &reproduction.comparison.cells {
        assert_eq!(cell.cell.ours.failures(), 0, "{}", cell.cell.label);
    }
}

#[test]
fn every_text_of_the_report_is_asked_for() {
    let prose = prose().unwrap();
    reproduce_in(&prose, &Echo { srp: 1.0 }, &request(&[]), &()).unwrap();
    reproduce_in(&prose, &NotSimulated, &request(&[]), &()).unwrap();
    assert_eq!(prose.unasked(), [""; 0]);
}
