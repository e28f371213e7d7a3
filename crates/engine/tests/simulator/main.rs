//! Scenarios in the simulator, and what it measures of them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says where it cannot go on")]

mod beside;
mod counters;
mod datagrams;
mod edge;
mod emodel;
mod links;
mod order;
mod random;
mod schemes;
mod tcp;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use lasthop_engine::Simulator;
use lasthop_scenario::{Engine, Outcome, Outputs, Study};
use lasthop_units::{Seed, Time};

const CELLS: &str = r#"
give-up = "300s"
[node]
server = "fixed-host"
backbone = "router"
east = "base"
west = "base"
phone = "mobile-host"
[link.wire]
between = ["server", "backbone"]
rate = "10Mbit/s"
delay = "10ms"
[link.to-east]
between = ["backbone", "east"]
rate = "10Mbit/s"
[link.to-west]
between = ["backbone", "west"]
rate = "10Mbit/s"
[link.radio-east]
between = ["phone", "east"]
rate = "1Mbit/s"
delay = "5ms"
[link.radio-west]
between = ["phone", "west"]
rate = "1Mbit/s"
delay = "5ms"
[flow.upload]
from = "phone"
to = "server"
traffic = { file = { size = "1MB" } }
[handoff]
cells = ["radio-east", "radio-west"]
first = "2s"
pause = "1s"
"#;

/// A server, a wire, a base, a hop and a phone, each in a scenario file's own words.
#[derive(Clone, Copy)]
struct OneHop<'a> {
    /// A name, or a list of them with its brackets.
    scheme: &'a str,
    duration: &'a str,
    /// Rate and delay of the wire.
    wire: [&'a str; 2],
    /// Rate and delay of the hop.
    radio: [&'a str; 2],
    /// What more is said of the hop, line by line.
    more: &'a str,
}

impl OneHop<'_> {
    /// A scenario with this behind it.
    fn with(&self, rest: &str) -> String {
        let Self { scheme, duration, wire: [wire, wire_delay], radio: [radio, delay], more } = self;
        let scheme = match scheme.starts_with('[') {
            true => (*scheme).to_owned(),
            false => format!("\"{scheme}\""),
        };
        format!(
            r#"
scheme = {scheme}
duration = "{duration}"
[node]
server = "fixed-host"
base = "base"
phone = "mobile-host"
[link.wire]
between = ["server", "base"]
rate = "{wire}"
delay = "{wire_delay}"
[link.radio]
between = ["base", "phone"]
rate = "{radio}"
delay = "{delay}"
{more}
{rest}
"#
        )
    }
}

/// A download over a slow wire and a slower hop, with more of the hop and behind all.
fn download(scheme: &str, stack: &str, more: &str, rest: &str) -> String {
    let hop = OneHop {
        scheme,
        duration: "100s",
        wire: ["10Mbit/s", "25ms"],
        radio: ["2Mbit/s", "10ms"],
        more,
    };
    hop.with(&format!(
        "[flow.download]\nfrom = \"server\"\nto = \"phone\"\n[tcp]\nstack = \"{stack}\"\n{rest}"
    ))
}

/// What is said of a scenario that does not read.
fn refusal(text: &str) -> String {
    Study::parse(Path::new("x.toml"), text).expect_err("accepted").to_string()
}

fn run(text: &str, seed: u64) -> Outcome {
    let study = Study::parse(Path::new("x.toml"), text).unwrap_or_else(|e| panic!("{e}"));
    let seed = Seed::from_u64(seed);
    let scenario = study.scenario(&study.points()[0], seed).expect("a scenario");
    let stop = AtomicBool::new(false);
    let outputs = Outputs { directory: None, stop: &stop };
    Simulator.run(&scenario, seed, &outputs).unwrap_or_else(|e| panic!("{e}"))
}

fn metric(outcome: &Outcome, name: &str) -> f64 {
    let found = outcome.metrics.iter().find(|(n, _)| n == name);
    found.unwrap_or_else(|| panic!("no {name} in {:?}", outcome.metrics)).1
}

/// LNK-7, MIP-7: a transfer survives the pause and goes on through the other base.
#[test]
fn a_transfer_moves_to_the_other_base() {
    let still = run(&CELLS.replace("pause = \"1s\"", "pause = \"0s\""), 1);
    let moved = run(CELLS, 1);
    assert!(still.completed && moved.completed);
    assert_eq!(metric(&moved, "upload.received_bytes"), 1e6);
    let cost = metric(&moved, "upload.time_s") - metric(&still, "upload.time_s");
    assert!((1.0..10.0).contains(&cost), "the move costs {cost} s");
    // The wire's share of the old cell would not be enough: a broken new cell must be felt.
    let dead = CELLS.replace("between = [\"phone\", \"west\"]", "$0\nloss = \"100%\"");
    let dead = dead.replace("$0", "between = [\"phone\", \"west\"]");
    let lost = run(&dead, 1);
    assert!(!lost.completed && metric(&lost, "upload.time_s").is_nan());
}

/// MIP-8: until the registration is through, packets for the mobile are lost.
#[test]
fn a_slow_registration_costs_time() {
    let fast = metric(&run(CELLS, 1), "upload.time_s");
    let slow = CELLS.replace("pause = \"1s\"", "pause = \"1s\"\nregistration = \"3s\"");
    let slow = metric(&run(&slow, 1), "upload.time_s");
    assert!(slow > fast + 1.0, "{slow} s against {fast} s");
}

/// LNK-12: with one cell the handoffs are disconnections.
#[test]
fn with_one_cell_the_mobile_comes_back() {
    let text = CELLS
        .replace("\"radio-east\", \"radio-west\"]", "\"radio-east\"]\nevery = \"3s\"\ncount = 2");
    let text = text.replace(
        "[link.radio-west]\nbetween = [\"phone\", \"west\"]",
        "[link.spare]\nbetween = [\"west\", \"pad\"]",
    );
    let text = text.replace("west = \"base\"", "west = \"base\"\npad = \"mobile-host\"");
    let text = text.replace("[handoff]", "[handoff]\nmobile = \"phone\"");
    let outcome = run(&text, 1);
    assert!(outcome.completed && metric(&outcome, "upload.timeouts") >= 2.0, "{outcome:?}");
}

#[test]
fn the_same_seed_has_the_same_trace_and_another_has_not() {
    let text = CELLS.replace("rate = \"1Mbit/s\"", "rate = \"1Mbit/s\"\nloss = \"2%\"");
    assert_eq!(run(&text, 1), run(&text, 1));
    assert_ne!(run(&text, 1).trace, run(&text, 2).trace);
}

/// MET-10: the smoothed round trip of bulk traffic is that of a full queue: 50 packets of 12 ms.
#[test]
fn every_kind_of_traffic_is_measured() {
    let flow = |traffic: &str| {
        let text = CELLS.replace("{ file = { size = \"1MB\" } }", traffic);
        let text = text.replace("give-up = \"300s\"", "duration = \"20s\"");
        run(&text.replace("pause = \"1s\"", "pause = \"0s\""), 1)
    };
    let bulk = flow("\"bulk\"");
    let goodput = metric(&bulk, "upload.goodput_bps");
    assert!((0.8e6..1.0e6).contains(&goodput), "{goodput}");
    let srtt = metric(&bulk, "upload.srtt_s");
    assert!((0.2..0.7).contains(&srtt), "{srtt}");
    let web =
        flow("{ request-response = { request = \"200 B\", response = \"10kB\", count = 5 } }");
    assert!(web.completed && metric(&web, "upload.answers") == 5.0, "{web:?}");
    let latency = metric(&web, "upload.latency_s");
    assert!((0.08..0.5).contains(&latency), "{latency}");
    let typed = flow("{ interactive = { every = \"200ms\", count = 20 } }");
    let latency = metric(&typed, "upload.latency_s");
    assert!((0.03..0.05).contains(&latency), "{latency}");
    let voice = flow("{ on-off = { rate = \"64kbit/s\", on = \"1s\", off = \"1s\" } }");
    let goodput = metric(&voice, "upload.goodput_bps");
    assert!((28e3..36e3).contains(&goodput), "{goodput}");
}

#[test]
fn rates_count_from_where_the_scenario_says() {
    let text = CELLS.replace("{ file = { size = \"1MB\" } }", "\"bulk\"");
    let text = text.replace("give-up = \"300s\"", "duration = \"10s\"");
    let silent = text.replace("first = \"2s\"\npause = \"1s\"", "first = \"0s\"\npause = \"5s\"");
    let from = |from: &str| {
        metric(&run(&format!("{silent}\n[measure]\nfrom = \"{from}\""), 1), "upload.goodput_bps")
    };
    assert!(from("8s") > from("0s") * 1.5, "{} against {}", from("8s"), from("0s"));
}

/// MET-3: buffers of 1460 B through 1 Mbit/s come 12 ms apart, evenly; after a pause they do not.
#[test]
fn the_wait_for_each_buffer_and_its_jitter_are_measured() {
    let text = CELLS.replace("{ file = { size = \"1MB\" } }", "\"bulk\"");
    let text = text.replace("give-up = \"300s\"", "duration = \"8s\"");
    let of = |text: &str| {
        let outcome = run(text, 1);
        (metric(&outcome, "upload.inter_buffer_s"), metric(&outcome, "upload.jitter_s"))
    };
    let text = format!("{text}[tcp]\nmax-window = 20\n[measure]\nfrom = \"1s\"\n");
    let still = text.replace("first = \"2s\"", "first = \"7900ms\"");
    let (wait, jitter) = of(&still);
    assert!((0.0115..0.0130).contains(&wait) && jitter < 0.005, "{wait} s, {jitter} s");
    let (paused, uneven) = of(&text);
    assert!(paused > 1.1 * wait && uneven > 10.0 * jitter, "{paused} s, {uneven} s");
}

/// LNK-3: both ends use segments that the hop carries.
#[test]
fn segments_fit_the_smallest_link_of_the_path() {
    let text = CELLS.replace("rate = \"1Mbit/s\"", "rate = \"1Mbit/s\"\nmtu = 256");
    let outcome = run(&text, 1);
    assert!(outcome.completed);
    assert!(metric(&outcome, "upload.data_segments") >= 1e6 / 216.0);
}

const SCHEMES: [&str; 6] = ["none", "split-tcp", "i-tcp", "srp", "srp-1994", "mobile-tcp"];

/// The scenario with a scheme, by its name or by that of its profile.
fn helped_by(scheme: &str, text: &str) -> String {
    match scheme {
        "srp-1994" => format!("scheme = \"srp\"\n{text}\n[srp]\nprofile = \"1994\"\n"),
        _ => format!("scheme = \"{scheme}\"\n{text}"),
    }
}

/// MHP-18, MET-12: every scheme carries the file through the handoffs, and the same seed gives the
/// same run.
#[test]
fn every_scheme_carries_a_file_through_its_handoffs() {
    for scheme in SCHEMES {
        let text = helped_by(scheme, CELLS);
        let outcome = run(&text, 1);
        assert!(outcome.completed, "{scheme}: {outcome:?}");
        assert_eq!(outcome, run(&text, 1), "{scheme}");
        assert_ne!(outcome.trace, run(&text, 2).trace, "{scheme}");
        if scheme != "none" {
            assert!(metric(&outcome, "phone.handoffs") >= 1.0, "{scheme}: {outcome:?}");
            assert!(metric(&outcome, "phone.handoff_s") < 1.0, "{scheme}: {outcome:?}");
        }
    }
}

/// In `anchor` mode the base that the mobile has left passes its bytes on; in `migrate` mode they go the
/// new way alone.
#[test]
fn an_anchor_passes_the_bytes_on() {
    for scheme in SCHEMES.into_iter().filter(|s| *s != "none") {
        let of = |mode: &str| run(&helped_by(scheme, &format!("{CELLS}mode = \"{mode}\"\n")), 1);
        let (anchor, migrate) = (of("anchor"), of("migrate"));
        assert!(anchor.completed && migrate.completed, "{scheme}: {anchor:?}, {migrate:?}");
        let to_east = |outcome| metric(outcome, "to-east.forward.utilisation");
        assert!(to_east(&anchor) > 0.03, "{scheme}: {anchor:?}");
        assert!(to_east(&migrate) < 0.01, "{scheme}: {migrate:?}");
    }
}

/// MHP-6, MHP-17: a connection that a fixed host opens arrives whenever it begins, also when the
/// mobile has agreed to it and leaves before its base has heard so.
#[test]
fn a_connection_that_begins_at_a_handoff_arrives() {
    let download = "from = \"server\"\nto = \"phone\"\n";
    let text = CELLS.replace("from = \"phone\"\nto = \"server\"\n", download);
    let text = text.replace("1MB", "50kB") + "[measure]\nbytes = true\n";
    for scheme in SCHEMES {
        for start in (1940..2000).step_by(3) {
            let begins = format!("start = \"{start}ms\"\n{download}");
            let outcome = run(&helped_by(scheme, &text.replace(download, &begins)), 1);
            assert!(outcome.completed, "{scheme} from {start} ms: {outcome:?}");
            assert!(metric(&outcome, "upload.wrong") < 0.5, "{scheme} from {start} ms");
        }
    }
}

/// MIP-6, MIP-8: a mobile that is not told of its new base hears of it from the base.
#[test]
fn a_session_that_is_not_told_finds_its_base() {
    let text = format!("{CELLS}every = \"4s\"\ncount = 3\n[signals]\ncomplete.miss = \"100%\"\n");
    for scheme in SCHEMES.into_iter().filter(|s| *s != "none") {
        let outcome = run(&helped_by(scheme, &text), 1);
        assert!(outcome.completed, "{scheme}: {outcome:?}");
        assert!(metric(&outcome, "phone.handoffs") >= 1.0, "{scheme}: {outcome:?}");
    }
}

/// MHP-21: a session gives an opening up no sooner than the TCP that it stands for.
#[test]
fn a_session_opens_as_patiently_as_its_tcp() {
    let text = CELLS.replace("first = \"2s\"\npause = \"1s\"", "first = \"0s\"\npause = \"400s\"");
    let text = text.replace("\"300s\"", "\"2000s\"") + "[tcp]\ngive-up-after = 0\n";
    for scheme in ["none", "split-tcp", "i-tcp"] {
        let outcome = run(&helped_by(scheme, &text), 1);
        assert!(outcome.completed, "{scheme}: {outcome:?}");
    }
}

/// MET-11: the loss that a link really applied is among the metrics, and helped flows pay less.
#[test]
fn a_lossy_hop_costs_srp_less_than_unhelped_tcp() {
    let lossy = CELLS.replace("rate = \"1Mbit/s\"", "rate = \"1Mbit/s\"\nloss = \"5%\"");
    let time = |scheme: &str| {
        let outcome = run(&helped_by(scheme, &lossy), 1);
        let loss = metric(&outcome, "radio-east.forward.loss");
        assert!((0.03..0.07).contains(&loss), "{loss}");
        metric(&outcome, "upload.time_s")
    };
    let (none, srp) = (time("none"), time("srp"));
    assert!(srp < none, "{srp} against {none}");
}

/// Requests and answers, opened by the mobile and by the fixed host (MHP-6).
#[test]
fn questions_are_answered_whoever_asks() {
    let ask = "traffic = { request-response = { request = \"200B\", response = \"2kB\", \
        think = \"100ms\", count = 10 } }";
    for scheme in SCHEMES {
        for (from, to) in [("phone", "server"), ("server", "phone")] {
            let flow = format!("[flow.talk]\nfrom = \"{from}\"\nto = \"{to}\"\n{ask}\n");
            let start = CELLS.find("[flow").expect("a flow");
            let rest = &CELLS[start + 1..];
            let end = rest.find("\n[").map_or("", |at| &rest[at..]);
            let text = helped_by(scheme, &format!("{}{flow}{end}", &CELLS[..start]));
            let outcome = run(&text, 1);
            assert!(outcome.completed, "{scheme} from {from}: {outcome:?}");
            assert!((metric(&outcome, "talk.answers") - 10.0).abs() < 0.5);
            assert!(
                metric(&outcome, "talk.latency_p95_s") >= metric(&outcome, "talk.latency_median_s")
            );
        }
    }
}

/// What cannot be built is refused with a reason and a remedy.
#[test]
fn help_that_cannot_be_given_is_refused() {
    let second = "[flow.other]\nfrom = \"phone\"\nto = \"server\"\nscheme = \"none\"\ntraffic = { file = { size = \"1kB\" } }\n[handoff]";
    for (from, to, told) in [
        ("east = \"base\"", "east = \"router\"", "needs a base at the other end of link"),
        ("[handoff]", second, "is not helped, but flow `upload`"),
    ] {
        let text = helped_by("srp", &CELLS.replacen(from, to, 1));
        let study = Study::parse(Path::new("x.toml"), &text).unwrap_or_else(|e| panic!("{e}"));
        let scenario = study.scenario(&study.points()[0], Seed::from_u64(1)).expect("builds");
        let error = Simulator.check(&scenario).expect_err("accepted").to_string();
        assert!(error.contains(told), "{error}");
    }
}

/// MET-9: captures, series and rates are files of the run, and change nothing in it.
#[test]
fn a_run_is_the_same_whether_it_is_recorded_or_not() {
    let wish =
        "[measure]\nseries = \"100ms\"\nbins = \"1s\"\ncaptures = [\"server\", \"radio-east\"]";
    let study = Study::parse(Path::new("x.toml"), &format!("{CELLS}{wish}")).expect("reads");
    let seed = Seed::from_u64(1);
    let scenario = study.scenario(&study.points()[0], seed).expect("builds");
    let place = tempfile::tempdir().expect("a directory");
    let stop = AtomicBool::new(false);
    let outputs = Outputs { directory: Some(place.path().join("run")), stop: &stop };
    let recorded = Simulator.run(&scenario, seed, &outputs).expect("runs");
    let bare = run(CELLS, 1);
    assert_eq!((recorded.trace, recorded.completed), (bare.trace, bare.completed));
    for (name, value) in &bare.metrics {
        assert!(metric(&recorded, name) == *value, "{name}");
    }
    // MET-9: what the pause of a second did to the rate.
    assert!(metric(&recorded, "upload.rate_min_bps") < 1.0, "{recorded:?}");
    assert!((1.0..8.0).contains(&metric(&recorded, "upload.recovery_s")), "{recorded:?}");
    let file = |name: &str| place.path().join("run").join(name);
    let size = std::fs::metadata(file("capture.pcapng")).expect("a capture").len();
    assert!(size > 1_000_000, "{size}");
    let series = std::fs::read_to_string(file("series.csv")).expect("series");
    assert!(series.contains("upload,cwnd") && series.contains("radio-east.forward"), "{series}");
    for whole in ["upload,written_bytes,1000000", "upload,received_bytes,1000000"] {
        assert!(series.contains(whole), "{whole}: {series}");
    }
    let rates = std::fs::read_to_string(file("rates.csv")).expect("rates");
    let bits = rates.lines().skip(1).filter_map(|l| l.rsplit(',').next()?.parse::<f64>().ok());
    let sum: f64 = bits.sum();
    assert!((sum / 8e6 - 1.0).abs() < 0.01, "{rates}");
}

/// A sender of ns-2's has no bound on what waits, and here every byte is held.
#[test]
fn bytes_that_exist_are_held_within_bounds() {
    let endless = CELLS.replace("traffic = { file = { size = \"1MB\" } }", "");
    let endless = endless.replace("give-up = \"300s\"", "duration = \"10s\"");
    let text = endless + "[tcp]\nstack = \"ns2\"\n[measure]\nbytes = true\n";
    let download = "from = \"server\"\nto = \"phone\"\n";
    for scheme in SCHEMES {
        for text in [&text, &text.replace("from = \"phone\"\nto = \"server\"\n", download)] {
            let outcome = run(&helped_by(scheme, text), 1);
            assert!(metric(&outcome, "upload.received_bytes") > 1e5, "{scheme}: {outcome:?}");
            assert!(metric(&outcome, "upload.wrong") < 0.5, "{scheme}");
        }
    }
}
