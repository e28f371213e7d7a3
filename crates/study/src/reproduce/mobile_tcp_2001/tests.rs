use std::collections::BTreeSet;

use lasthop_scenario::{End, Traffic};
use lasthop_units::{Bytes, Duration, Seed};

use super::cells::{
    ALTERNATIVES, DELAYS, FIGURE_15, FIGURE_16, GOODPUT, MOBILE_TCP, NO_LOSS, PADDED, SHARES, TCP,
};
use super::*;
use crate::reproduce::testing::{Changed, as_xml, change, request};
use crate::reproduce::{Cell, Criterion, Failure, Label, Mark};

/// Gives what the paper's text says, and curves of the shapes that it describes.
struct Echo {
    /// Everything is the other way round.
    reversed: bool,
}

impl Echo {
    /// The error rate in per cent that a row stands for.
    fn errors(label: &Label) -> f64 {
        let number = |row: &str| row.trim_end_matches(" %").parse::<f64>().ok();
        let per = label.row.strip_prefix("PER ").and_then(number);
        let fades = label.row.strip_prefix("FR ").and_then(number);
        per.or(fades.map(|share| 2.168 * share)).unwrap_or_default()
    }

    /// The gain in per cent: a line through the paper's three.
    fn gain(errors: f64) -> f64 {
        match errors {
            e if e < 5.0 => 8.0,
            e if e <= 10.0 => 75.0,
            _ => 400.0,
        }
    }

    fn goodput(&self, label: &Label) -> f64 {
        let errors = Self::errors(label);
        let share = (1.0 - errors / 100.0) * if label.column == "ethernet" { 0.9 } else { 1.0 };
        let peak = if label.column == "ethernet" && errors == 0.0 { 0.9 } else { 1.0 };
        let gain = 1.0 + Self::gain(errors) / 100.0;
        let mobile = label.scheme.starts_with("mobile-tcp") != self.reversed;
        let own = match label.scheme.as_str() {
            "tcp-linux" => 0.9,
            PADDED if self.reversed => 0.9,
            _ => 1.0,
        };
        600.0 * share / peak * own * if mobile { gain } else { 1.0 }
    }
}

impl CellRunner<Case> for Echo {
    fn run(&self, cell: &Cell<Case>, run: u32, _: Seed) -> Result<f64, Failure> {
        let label = &cell.label;
        let mobile = label.scheme.starts_with("mobile-tcp") != self.reversed;
        if label.row == "PER 50 %" && !mobile && run % 2 == 1 {
            return Err(Failure::Incomplete("<given> up & over".to_owned()));
        }
        Ok(match label.table.as_str() {
            "gains" => Self::gain(Self::errors(label)),
            "figure17" | "figure18" if mobile => 20.0,
            "figure17" | "figure18" => 30.0,
            "handoff" => {
                let buffer: f64 = label.row.trim_end_matches(" KiB").parse().unwrap();
                buffer * if label.scheme.ends_with("foreseen") != self.reversed { 0.5 } else { 1.0 }
            }
            "lossy handoff" => f64::from(u8::from(self.reversed)),
            _ => self.goodput(label),
        })
    }
}

fn echo(reversed: bool, only: &[&str]) -> Reproduction {
    reproduce_with(&Echo { reversed }, &request(only, 4), &()).unwrap()
}

fn find<'a>(reproduction: &'a Reproduction, name: &str) -> &'a Criterion {
    let mut all = reproduction.criteria.iter();
    all.find(|c| c.name.contains(name)).unwrap_or_else(|| panic!("no criterion {name}"))
}

/// Every point of every figure, and each with a label of its own.
#[test]
fn each_figure_has_its_cells() {
    let labels = (STUDY.labels)().unwrap();
    let unique: BTreeSet<&Label> = labels.iter().collect();
    assert_eq!(unique.len(), labels.len());
    let count = |table: &str| labels.iter().filter(|label| label.table == table).count();
    assert_eq!(count(FIGURE_15), 8 * 5);
    assert_eq!(count("gains"), 3);
    assert_eq!(count(FIGURE_16), SHARES.len() * 4);
    for (table, _) in DELAYS {
        assert_eq!(count(table), SHARES.len() * 4);
    }
    assert_eq!(count("settled"), 8);
    assert_eq!(count("ns2"), 60);
    assert!(count("sensitivity") > 0 && count("alternatives") > 0);
    assert_eq!(count("handoff") % 12, 0);
    assert_eq!(count("lossy handoff"), 4 * 4 * 3);
}

/// EXP-H6: what is stated of the set-up is in every scenario of figures 15 to 18.
#[test]
fn every_transfer_has_the_stated_set_up() {
    for cell in cells::all(&published().unwrap()).unwrap() {
        let figures = [FIGURE_15, FIGURE_16, "figure17", "figure18", "settled"];
        let (Case::Metric { scenario, .. }, true) =
            (&cell.case, figures.contains(&cell.label.table.as_str()))
        else {
            continue;
        };
        let tcp = &scenario.flows[0].tcp;
        assert_eq!(tcp.from.mss, Some(1460), "{}", cell.label);
        let window = tcp.to.receive_buffer.map(|b| b.bytes(1460).get());
        assert_eq!(window, Some(16 * 1024), "{}", cell.label);
        let radio = scenario.links.iter().find(|link| link.name == "radio").unwrap();
        let faded = |losses: &[lasthop_radio::Loss]| match losses {
            [] => None,
            [loss] => match loss.errors {
                lasthop_radio::Errors::Fade { mean, share } => Some((mean.as_nanos(), share)),
                _ => panic!("{}: no fades", cell.label),
            },
            _ => panic!("{}: more than fades", cell.label),
        };
        let [up, down] = [&radio.radio.up, &radio.radio.down].map(|way| faded(&way.losses));
        assert_eq!(up, down, "{}", cell.label);
        assert_eq!(up.is_none(), cell.label.row.ends_with(" 0 %"), "{}", cell.label);
        if let Some((mean, share)) = up {
            // 1250 bytes at 0.66 Mbit/s, in either network.
            assert_eq!(mean, 15_151_515, "{}", cell.label);
            let number = |row: &str| row.trim_end_matches(" %").parse::<f64>().unwrap() / 100.0;
            let fades =
                fades::Fades { mean: lasthop_units::Duration::from_nanos(mean as u64), share };
            match cell.label.row.strip_prefix("PER ") {
                Some(row) => {
                    let packet = lasthop_units::Duration::from_nanos(17_696_970);
                    assert!(
                        (fades.error_rate(packet) - number(row)).abs() < 1e-6,
                        "{}",
                        cell.label
                    );
                }
                None => {
                    let row = cell.label.row.strip_prefix("FR ").unwrap();
                    assert!((share - number(row)).abs() < 1e-12, "{}", cell.label);
                }
            }
        }
    }
}

#[test]
fn the_published_shapes_meet_every_criterion() {
    let reproduction = echo(false, &[]);
    for criterion in &reproduction.criteria {
        if criterion.name.contains("ns-2") {
            continue;
        }
        assert_ne!(criterion.verdict(), Some(false), "{criterion:?}");
        assert_eq!(criterion.of, criterion.whole, "{criterion:?}");
    }
}

#[test]
fn reversed_shapes_meet_none() {
    let reproduction = echo(true, &[]);
    let independent = [
        "equations",
        "ns-2",
        "settled",
        "coarse",
        "larger buffer",
        "peak on Ethernet",
        "at most 10 %",
    ];
    for criterion in &reproduction.criteria {
        if independent.iter().any(|name| criterion.name.contains(name)) {
            continue;
        }
        assert_ne!(criterion.verdict(), Some(true), "{criterion:?}");
    }
}

#[test]
fn gains_that_the_text_gives_are_marked_and_the_rest_is_not() {
    let reproduction = echo(false, &["gains", FIGURE_16]);
    let marks =
        |mark: Mark| reproduction.comparison.cells.iter().filter(|c| c.mark == mark).count();
    assert_eq!(marks(Mark::Near), 3);
    assert_eq!(marks(Mark::Near) + marks(Mark::Unpublished), reproduction.comparison.cells.len());
}

/// MET-13: unfinished transfers are told, and decide nothing but what they are asked about.
#[test]
fn unfinished_transfers_are_told() {
    let reproduction = echo(false, &[FIGURE_15]);
    assert_eq!(find(&reproduction, "TCP does not complete").verdict(), Some(true));
    assert_eq!(find(&reproduction, "Mobile TCP completes").verdict(), Some(true));
    assert!(reproduction.report.to_html().contains("2 of 4 failed"));
}

#[test]
fn the_report_is_whole_and_the_same_again() {
    let html = echo(false, &[]).report.to_html();
    assert_eq!(html, echo(false, &[]).report.to_html());
    assert!(!html.contains("http") && !html.contains("<script") && !html.contains("url("));
    let xml = as_xml(&html);
    let document = roxmltree::Document::parse(&xml).unwrap();
    let charts = document.descendants().filter(|n| n.attribute("role") == Some("img")).count();
    // Figures 15 and 16, two each of 17 and 18, and the two paths of section 6.
    assert_eq!(charts, 1 + 1 + 4 + 2);
    for parameter in published().unwrap().parameters {
        assert!(html.contains(&parameter.name), "{}", parameter.name);
    }
    for id in 1..=10 {
        assert!(html.contains(&format!("INC-H{id}")), "INC-H{id}");
    }
    assert!(html.contains("lasthop reproduce mobile-tcp-2001 --runs 4 --seed 1"));
    assert!(html.contains("lasthop reproduce mobile-tcp-2001 --measure full"));
}

/// Costs as somebody measured them.
const PROCESSING: &str = r#"{
    "machine": { "cpu": "A <fast> one", "cores": 4, "kernel": "6.1", "optimised": true, "pinned": false },
    "effort": "quick",
    "stacks": [{
        "stack": "mobile-tcp", "title": "Mobile TCP",
        "points": [{ "size": 100, "latency_ns": 900.0, "latency_lo_ns": 800.0,
            "latency_hi_ns": 1000.0, "cpu_ns": 950.0, "cpu_ns_per_kb": 9500.0, "rounds": 5 }],
        "latency": { "intercept_ns": { "value": 321.0, "lo": 300.0, "hi": 340.0 },
            "slope_ns_per_byte": { "value": 0.25, "lo": 0.2, "hi": 0.3 }, "r_squared": 0.999 },
        "cpu": { "intercept_ns": { "value": 600.0, "lo": 500.0, "hi": 700.0 },
            "slope_ns_per_byte": { "value": 0.5, "lo": 0.4, "hi": 0.6 }, "r_squared": 0.99 }
    }],
    "not_measured": [{ "stack": "kernel-veth", "why": "no privilege" }],
    "shares": [{ "stack": "tcp-ip", "size": 100, "component": "ip", "ns": 40.0, "percent": 21.5 }],
    "engine": [{ "engine": "mobile-tcp", "size": 1460, "ns_per_packet": 210.0, "lo_ns": 200.0,
        "hi_ns": 220.0, "allocations_per_packet": null }],
    "bulk": [{ "stack": "mobile-tcp", "write": 65536, "cpu_ns_per_kb": 300.0 }],
    "throughput": [{ "stack": "mobile-tcp", "size": 100, "kind": "computed-10M", "bits_per_s": 5e6 }],
    "ratios": [{ "id": "mobile-tcp-2001.figure13.intercept_ratio", "value": 0.41, "lo": 0.4,
        "hi": null, "meaning": "fixed part" }],
    "something-new": 1
}"#;

/// What was measured elsewhere stands beside what the paper prints.
#[test]
fn processing_costs_stand_beside_the_papers() {
    let processing: Processing = serde_json::from_str(PROCESSING).unwrap();
    assert_eq!(processing.stack("mobile-tcp").unwrap().latency.intercept_ns.value, 321.0);
    let mut request = request(&[FIGURE_16], 2);
    request.processing = Some(processing);
    let result = reproduce_with(&Echo { reversed: false }, &request, &()).unwrap();
    let told = find(&result, "processing costs");
    // 0.41 is not within a third of 0.2764.
    assert_eq!((told.met, told.of, told.verdict()), (0, 1, None));
    let html = result.report.to_html();
    assert!(roxmltree::Document::parse(&as_xml(&html)).is_ok());
    for text in ["figure13.intercept_ratio", "0.2764", "0.41", "no privilege", "21.5", "A &lt;fast"]
    {
        assert!(html.contains(text), "{text}");
    }
    assert!(!html.contains("--measure full"));
}

/// With files of a part of their size, and a part of the time where it ends by time.
fn shorter(times: u32) -> impl CellRunner<Case> {
    let change = move |case: &mut Case| {
        change(case, |scenario| {
            for flow in &mut scenario.flows {
                if let Traffic::File { size } = &mut flow.traffic {
                    *size = Bytes::new(size.get() / u64::from(times));
                }
            }
            if let End::After(length) = &mut scenario.end {
                let part = length.mul_f64(1.0 / f64::from(times));
                *length = part.max(Duration::from_secs(20));
            }
        });
    };
    Changed { runner: Simulated, change }
}

/// MET-2, EXP-H6, EXP-H8, over a tenth of the length: what is wide enough to show in it.
#[test]
fn short_transfers_have_the_shapes_that_are_claimed() {
    let runner = shorter(10);
    let places = ["figure15", "figure17", "figure18"];
    let rows = ["PER0%", "PER10%", "PER20%", "FR3%", "FR10%"];
    let all = (STUDY.labels)().unwrap();
    let only: Vec<String> = places
        .iter()
        .flat_map(|table| rows.map(|row| format!("{table}/{row}")))
        .filter(|only| {
            let only: crate::reproduce::Only = only.parse().unwrap();
            all.iter().any(|label| only.takes(label))
        })
        .collect();
    let only: Vec<&str> = only.iter().map(String::as_str).collect();
    let result = reproduce_with(&runner, &request(&only, 4), &()).unwrap();
    for compared in &result.comparison.cells {
        assert_eq!(compared.cell.ours.failures(), 0, "{:?}", compared.cell);
    }
    let gain = |row| gains::gain(&result.comparison, [FIGURE_15, row, GOODPUT]).unwrap().percent;
    assert!((0.0..5.0).contains(&gain(NO_LOSS)));
    let whole =
        |scheme| result.comparison.whole([FIGURE_15, NO_LOSS, GOODPUT, scheme]).unwrap().mean;
    let cost = 1.0 - whole(PADDED) / whole(MOBILE_TCP);
    assert!((0.0..0.05).contains(&cost), "24 bytes more cost {cost}");
    assert!(gain("PER 10 %") > 40.0 && gain("PER 20 %") > 2.0 * gain("PER 10 %"));
    for name in ["buffers wait less", "wait varies less", "coarse timers"] {
        let criterion = find(&result, name);
        assert_eq!(criterion.met, criterion.of, "{criterion:?}");
        assert!(criterion.of > 0, "{criterion:?}");
    }
}

/// MET-2, EXP-H7: the same fades leave Mobile TCP a smaller part of its peak on the faster hop.
#[test]
fn the_faster_hop_keeps_less_of_its_peak() {
    let only = ["FR0%", "FR1%", "FR3%", "FR5%"].map(|row| format!("{FIGURE_16}/{row}"));
    let only: Vec<&str> = only.iter().map(String::as_str).collect();
    let result = reproduce_with(&Simulated, &request(&only, 4), &()).unwrap();
    let criterion = find(&result, "Mobile TCP keeps less of its peak on Ethernet");
    assert_eq!((criterion.met, criterion.of), (3, 3), "{criterion:?}");
}

/// EXP-H9, MOB-44: a handoff takes the longer the more has to move, and is shorter where it was foreseen.
#[test]
fn what_was_sent_ahead_shortens_a_handoff() {
    let result = reproduce_with(&Simulated, &request(&["handoff"], 2), &()).unwrap();
    for (name, all) in [("a larger buffer", 9), ("a foreseen handoff is shorter", 12)] {
        let criterion = find(&result, name);
        assert_eq!((criterion.met, criterion.of), (all, all), "{criterion:?}");
    }
}

/// EXP-Y4: whatever is lost between the bases, no byte is wrong, either way.
#[test]
fn lost_messages_of_handoffs_change_no_byte() {
    let result = reproduce_with(&Simulated, &request(&["lossyhandoff"], 2), &()).unwrap();
    let criterion = find(&result, "handoffs changed no byte");
    assert_eq!((criterion.met, criterion.of), (2 * 4 * 4, 2 * 4 * 4), "{criterion:?}");
}

/// EXP-H10, over a tenth of the length: on a fading hop recovery that is made for it does better than
/// TCP's, split or not.
#[test]
fn recovery_made_for_the_hop_is_above_tcps() {
    let rows = ["PER2%", "PER10%", "PER20%"];
    let only = rows.map(|row| format!("{ALTERNATIVES}/{row}"));
    let only: Vec<&str> = only.iter().map(String::as_str).collect();
    let runner = shorter(10);
    let result = reproduce_with(&runner, &request(&only, 4), &()).unwrap();
    let criterion = find(&result, "above TCP on the same split hop");
    assert_eq!((criterion.met, criterion.of), (6, 6), "{criterion:?}");
    let mean = |row, path, scheme| {
        result.comparison.whole([ALTERNATIVES, row, path, scheme]).unwrap().mean
    };
    for (row, path) in [("PER 10 %", "near"), ("PER 10 %", "far"), ("PER 20 %", "near")] {
        let [plain, unsplit] = [TCP, "mobile-tcp-unsplit"].map(|s| mean(row, path, s));
        assert!(unsplit > plain, "{row}, {path}: {unsplit} against {plain} kbit/s");
    }
}

/// EXP-H6: transfers at 50 % of errors, over a hundredth of the length.
#[test]
fn mobile_tcp_finishes_where_tcp_does_not() {
    let runner = shorter(20);
    let only = [TCP, MOBILE_TCP].map(|scheme| format!("figure15/PER50%/{scheme}"));
    let only: Vec<&str> = only.iter().map(String::as_str).collect();
    let result = reproduce_with(&runner, &request(&only, 6), &()).unwrap();
    assert_eq!(find(&result, "Mobile TCP completes").verdict(), Some(true));
    assert_eq!(find(&result, "TCP does not complete").verdict(), Some(true));
}

/// The TCP beside which Mobile TCP stands is ns-2's where it can be held against it.
#[test]
fn tcp_over_fades_is_ns2s() {
    let only = ["ns2/FR1%", "ns2/FR5%"];
    let result = reproduce_with(&Simulated, &request(&only, 4), &()).unwrap();
    let criterion = find(&result, "ns-2's interval");
    assert_eq!((criterion.met, criterion.of), (10, 10));
}

#[test]
fn every_text_of_the_report_is_asked_for() {
    let prose = prose().unwrap();
    let mut request = request(&[], 2);
    reproduce_in(&prose, &Echo { reversed: false }, &request, &()).unwrap();
    request.processing = Some(serde_json::from_str(PROCESSING).unwrap());
    request.full = true;
    reproduce_in(&prose, &Echo { reversed: false }, &request, &()).unwrap();
    assert_eq!(prose.unasked(), [""; 0]);
}
