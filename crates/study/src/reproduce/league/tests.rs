use std::collections::BTreeSet;
use std::path::Path;

use lasthop_engine::Simulator;
use lasthop_scenario::{Engine, Study};

use super::cells::GROUNDS;
use super::*;
use crate::reproduce::testing::request;

fn league(runs: u32, only: &[&str]) -> League {
    reproduce(&request(only, runs), &()).unwrap()
}

fn mean(league: &League, label: &str) -> f64 {
    let cell = league.cells.iter().find(|cell| cell.label.to_string() == label);
    cell.and_then(Cell::mean).unwrap_or_else(|| panic!("{label} has no value"))
}

#[test]
fn every_scheme_has_a_cell_under_every_condition() {
    let labels = labels().unwrap();
    let of_packets = |l: &Label| l.row == "voice" || l.row == "quic-like";
    let columns = labels.iter().filter(|l| !of_packets(l)).map(|l| l.column.as_str());
    let columns: BTreeSet<&str> = columns.collect();
    let conditions = [
        "clean",
        "fades",
        "gaps",
        "gaps untold",
        "handoffs",
        "loss 0.1 %",
        "loss 1 %",
        "loss 5 %",
        "two hops",
    ];
    assert_eq!(columns.into_iter().collect::<Vec<_>>(), conditions);
    for table in ["goodput", "timeouts", "delay", "overhead", "fairness", "upload-goodput"] {
        let cells = labels.iter().filter(|l| l.table == table).count();
        assert_eq!(cells, Scheme::over_one_link().count() * conditions.len() * 2, "{table}");
    }
    for (table, kind) in [("call-mos", "voice"), ("call-lost", "voice"), ("quic-rate", "quic-like")]
    {
        let cells = labels.iter().filter(|l| l.table == table && l.row == kind).count();
        assert_eq!(cells, 4 * 4, "{table}: four losses and four schemes");
    }
}

/// A scheme is left out where the engine itself refuses it, and nowhere else.
#[test]
fn a_scheme_is_not_applicable_only_where_it_is_refused() {
    for ground in &GROUNDS {
        let (before, list) = ground.sheet.text.split_once("scheme = [").unwrap();
        for scheme in Scheme::over_one_link() {
            let text = format!("{before}scheme = [\"{scheme}\"]\n");
            let accepted = Study::parse(Path::new("one.toml"), &text).is_ok_and(|study| {
                let scenario = study.scenario(&study.points()[0], Seed::from_u64(1)).unwrap();
                Simulator.check(&scenario).is_ok()
            });
            let listed = list.contains(&format!("\"{scheme}\""));
            assert_eq!(accepted, listed, "{scheme} in {}", ground.sheet.path);
        }
    }
}

#[test]
fn a_limit_is_what_the_radio_can_carry() {
    let entries = cells::all().unwrap();
    let limit = |condition: &str| {
        let entry = entries.iter().find(|(place, _)| place.condition == condition);
        let case = entry.and_then(|(_, case)| case.as_ref().ok()).unwrap();
        runner::limit(&case.scenario, case.radios).unwrap().as_bps() as f64 / 1e6
    };
    let clean = 2.0 * 1460.0 / 1500.0;
    for (condition, share) in [
        ("clean", 1.0),
        ("loss 5 %", 0.95),
        ("fades", 0.9),
        ("gaps", 0.91),
        ("handoffs", 0.955),
        ("two hops", 0.95),
    ] {
        assert!((limit(condition) - share * clean).abs() < 1e-5, "{condition}");
    }
}

/// EXP-S2, SNP-3: a lossy hop is what agents in the path and split connections are for.
#[test]
fn helpers_against_losses_beat_no_help_at_5_percent() {
    let league = league(2, &["goodput/reno/loss5%"]);
    let none = mean(&league, "goodput/reno/loss 5 %/none");
    for scheme in Scheme::over_one_link().filter(|s| repairs_losses(*s)) {
        if scheme.traits().needs_mobile_router {
            continue;
        }
        let helped = mean(&league, &format!("goodput/reno/loss 5 %/{scheme}"));
        assert!(helped > 1.2 * none, "{scheme}: {helped} against {none}");
    }
}

/// 3DA-1, FRZ-3, LLT-6, ATR-3: the mobile's own schemes are for disconnections.
#[test]
fn schemes_of_the_mobile_beat_no_help_over_disconnections() {
    let league = league(3, &["goodput/gaps"]);
    for sender in ["reno", "cubic"] {
        let none = mean(&league, &format!("goodput/{sender}/gaps/none"));
        for scheme in Scheme::ALL.into_iter().filter(|s| s.traits().place == Where::Mobile) {
            let helped = mean(&league, &format!("goodput/{sender}/gaps/{scheme}"));
            assert!(helped > 1.02 * none, "{scheme}: {helped} against {none}");
        }
    }
}

/// OBB-1: behind a mobile router, agents at both hops beat one that sees both as one.
#[test]
fn obtcp_beats_snoop_over_two_lossy_hops() {
    let league = league(2, &["goodput/reno/twohops"]);
    let of = |scheme: &str| mean(&league, &format!("goodput/reno/two hops/{scheme}"));
    assert!(of("obtcp") > 1.2 * of("snoop") && of("snoop") > 1.2 * of("none"));
}

/// SRP-30: a call over the hop's lane loses less, and is better to hear, than without help or with a helper
/// that only TCP has.
#[test]
fn a_call_by_srp_loses_less_than_one_that_nobody_repairs() {
    let league = league(2, &["voice"]);
    for loss in [5, 10, 20] {
        let of = |what: &str, scheme: &str| {
            mean(&league, &format!("{what}/voice/loss {loss} %/{scheme}"))
        };
        for other in ["none", "snoop"] {
            let [ours, theirs] = ["srp", other].map(|scheme| of("call-lost", scheme));
            assert!(ours < theirs / 20.0, "{loss} %: {ours} against {other}'s {theirs}");
            let [ours, theirs] = ["srp", other].map(|scheme| of("call-mos", scheme));
            assert!(ours > theirs + 0.3, "{loss} %: {ours} against {other}'s {theirs}");
        }
        assert_eq!(of("call-lost", "snoop"), of("call-lost", "none"), "snoop sees TCP alone");
    }
}

/// SRP-33: a transfer that takes losses for congestion does not see those that the lane repairs.
#[test]
fn a_transfer_of_datagrams_by_srp_is_faster_over_every_loss() {
    let league = league(1, &["quic-rate"]);
    for (loss, times) in [(5, 3.0), (10, 4.0), (20, 5.0)] {
        let of =
            |scheme: &str| mean(&league, &format!("quic-rate/quic-like/loss {loss} %/{scheme}"));
        for other in ["none", "snoop", "delayed-dupacks"] {
            assert!(of("srp") > times * of(other), "{loss} %: {} {}", of("srp"), of(other));
        }
    }
}

#[test]
fn no_goodput_is_above_the_limit() {
    let league = league(1, &["none", "srp", "snoop", "rwc"]);
    let goodputs = league.cells.iter().filter(|cell| cell.measure == Measure::Goodput);
    for cell in goodputs.filter(|cell| cell.not_applicable.is_none()) {
        let share = cell.mean().unwrap_or_else(|| panic!("{} has no value", cell.label));
        assert!((0.0..=100.0 + ABOVE).contains(&share), "{}: {share}", cell.label);
    }
    let first = &league.criteria[0];
    assert_eq!(first.met, first.of);
}

#[test]
fn a_choice_runs_what_it_needs_and_nothing_else() {
    let league = league(1, &["fairness/reno/clean/none", "goodput/cubic/clean/srp"]);
    let labels: Vec<String> = league.cells.iter().map(|cell| cell.label.to_string()).collect();
    for label in ["fairness/reno/clean/none", "goodput/cubic/clean/none", "goodput/cubic/clean/srp"]
    {
        assert!(labels.iter().any(|l| l == label), "{label} is not among {labels:?}");
    }
    assert_eq!(labels.len(), 9, "{labels:?}");
    assert!(mean(&league, "fairness/reno/clean/none") > 0.8);
    assert!(reproduce(&request(&["snoop/nowhere"], 1), &()).is_err());
}

#[test]
fn tables_lines_and_report_tell_of_every_cell() {
    let league =
        league(1, &["gaps/none", "gaps/obtcp", "gaps/freeze", "voice/loss5%", "quic-like"]);
    let text = tables(&league.cells);
    assert!(text.contains("a call: mean opinion score, and lost packets in %: voice"), "{text}");
    assert!(text.contains("a transfer of datagrams: goodput in Mbit/s: quic-like"), "{text}");
    assert!(text.contains("obtcp") && text.contains("n/a"), "{text}");
    assert!(text.contains("downloads: goodput in % of the limit, and timeouts: cubic"), "{text}");
    let lines = json_lines(&league.cells).unwrap();
    assert_eq!(lines.lines().count(), league.cells.len());
    for line in lines.lines() {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        let is_absent = value["scheme"] == "obtcp";
        assert_eq!(value["mark"] == "n/a", is_absent, "{line}");
        assert_eq!(value["ours"].is_null(), is_absent, "{line}");
    }
    let html = league.report.to_html();
    assert!(html.contains("papers/league/hop.toml") && html.contains("needs a mobile router"));
    assert!(html.contains("docs/examples/sim-packets.toml") && html.contains("mean opinion score"));
}

/// Cells with values of their own, without a simulation.
fn made_up() -> Vec<Cell> {
    let mut dice = Seed::from_u64(1).stream("dice");
    let mut cells = Vec::new();
    for (place, case) in cells::all().unwrap() {
        for cell in labels_of(&place) {
            cells.push(match &case {
                Ok(_) => {
                    let mut cell = empty(&place, cell);
                    (0..3).for_each(|_| cell.ours.push(50.0 + 10.0 * dice.uniform()));
                    cell
                }
                Err(reason) => nowhere(&place, cell, reason),
            });
        }
    }
    gain::compare(&mut cells);
    cells
}

#[test]
fn every_text_of_the_report_is_asked_for() {
    let prose = prose().unwrap();
    let cells = made_up();
    document::report(&prose, &request(&[], 3), &cells, &criteria(&cells)).unwrap();
    assert_eq!(prose.unasked(), [""; 0]);
}
