//! Whole files: what they become, and what is said about those that are wrong.

use std::path::Path;
use std::time::Duration;

use lasthop_radio::{Errors, Loss, Pacing};
use lasthop_units::{Bytes, Rate, Seed};

use super::*;

/// A file that is right, with one thing on each line that a test may want to change.
const GOOD: &str = r#"
name = "two bases"
scheme = "none"
give-up = "600s"

[node]
server = "fixed-host"
backbone = "router"
east = "base"
west = { kind = "base" }
phone = "mobile-host"

[link.wire]
between = ["server", "backbone"]
rate = "10Mbit/s"

[link.to-east]
between = ["backbone", "east"]
[link.to-west]
between = ["backbone", "west"]

[link.radio-east]
between = ["east", "phone"]
rate = "2Mbit/s"
delay = "20ms"
loss = "1%"
backward.loss = "none"

[link.radio-west]
between = ["west", "phone"]
rate = "2Mbit/s"

[[flow]]
from = "phone"
to = "server"
traffic = { file = { size = "100kB" } }

[tcp]
stack = "bsd-1990s"
mobile = { mss = 216 }

[handoff]
cells = ["radio-east", "radio-west"]
first = { uniform = ["4s", "8s"] }
pause = "2.8s"
"#;

fn parse(text: &str) -> Result<Study, ScenarioError> {
    Study::parse(Path::new("x.toml"), text)
}

fn good(text: &str) -> Study {
    match parse(text) {
        Ok(study) => study,
        Err(e) => panic!("{e}"),
    }
}

fn problems(text: &str) -> Vec<Problem> {
    match parse(text) {
        Ok(_) => panic!("accepted: {text}"),
        Err(e) => e.problems().to_vec(),
    }
}

/// The one problem of [`GOOD`] with `from` replaced by `to`, and the line on which `to` stands.
fn changed(from: &str, to: &str) -> (Problem, usize) {
    assert!(GOOD.contains(from), "{from} is not in the file");
    let text = GOOD.replacen(from, to, 1);
    let at = text.find(to).expect("there");
    let found = problems(&text);
    assert_eq!(found.len(), 1, "{found:#?}");
    (found[0].clone(), tree::line(&text, at))
}

/// A surrogate has to read what it ends.
#[test]
fn encryption_is_refused_where_a_surrogate_ends_the_connection() {
    for (scheme, refused) in [("split-tcp", true), ("srp", true), ("snoop", false)] {
        let text = GOOD.replacen("scheme = \"none\"", &format!("scheme = \"{scheme}\""), 1);
        let text = text.replacen("to = \"server\"", "to = \"server\"\nencrypted = true", 1);
        let found = parse(&text).map_or_else(|e| e.problems().to_vec(), |_| Vec::new());
        let said = found.iter().any(|p| {
            p.key.starts_with("flow.")
                && p.key.ends_with(".encrypted")
                && p.message.contains(scheme)
        });
        assert_eq!(said, refused, "{scheme}: {found:#?}");
    }
}

/// As [`changed`], with what must be said: the key, a part of the message, a part of the remedy.
fn refuses(from: &str, to: &str, key: &str, message: &str, remedy: &str) {
    let (problem, line) = changed(from, to);
    assert_eq!(problem.line, line, "{problem}");
    assert_eq!(problem.key, key, "{problem}");
    assert!(problem.message.contains(message), "{problem}");
    assert!(problem.remedy.clone().unwrap_or_default().contains(remedy), "{problem}");
}

fn first(study: &Study, seed: u64) -> Arc<Scenario> {
    study.scenario(&study.points()[0], Seed::from_u64(seed)).expect("builds")
}

fn link<'a>(scenario: &'a Scenario, name: &str) -> &'a Link {
    scenario.links.iter().find(|link| link.name == name).expect("a link")
}

#[test]
fn a_file_becomes_nodes_links_flows_and_handoffs() {
    let study = good(GOOD);
    assert_eq!((study.name(), study.runs(), study.seed()), ("two bases", 1, 1));
    let scenario = first(&study, 1);
    assert_eq!(scenario.end, End::Complete(Duration::from_secs(600)));
    let names: Vec<&str> = scenario.nodes.iter().map(|n| n.name.as_str()).collect();
    assert_eq!(names, ["backbone", "east", "phone", "server", "west"]);
    assert_eq!(scenario.nodes[4].kind, NodeKind::Base);
    let radio = link(&scenario, "radio-east");
    assert_eq!(radio.radio.up.losses, [Loss::lose(Errors::Uniform(0.01))]);
    assert_eq!(radio.radio.down.losses, []);
    assert_eq!(radio.radio.down.pacing, Pacing::Rate(Rate::from_mbps(2)));
    assert_eq!(radio.far_end(NodeIndex(2)), NodeIndex(1));
    let flow = &scenario.flows[0];
    assert_eq!((flow.name.as_str(), flow.from, flow.to), ("0", NodeIndex(2), NodeIndex(3)));
    assert_eq!(flow.traffic, Traffic::File { size: Bytes::new(100_000) });
    assert_eq!((flow.tcp.from.mss, flow.tcp.to.mss), (Some(216), None));
    assert_eq!(flow.tcp.to.stack, Some(Stack::Bsd1990s));
    let handoff = scenario.handoff.as_ref().expect("a handoff");
    assert_eq!(handoff.mobile, NodeIndex(2));
    let moves: Vec<_> = handoff.moves(Seed::from_u64(1)).collect();
    let [Move { at, pause, cell }] = moves[..] else { panic!("{moves:?}") };
    assert_eq!((at, pause), (handoff.first, handoff.pause));
    assert_eq!(scenario.link(cell).name, "radio-west");
}

/// LNK-15: pauses that vary stay in their ranges, and so do their starts.
#[test]
fn pauses_vary_within_a_run_as_far_as_the_scenario_says() {
    let cells = vec![LinkIndex(0)];
    let second = Duration::from_secs(1);
    let handoff = Handoff {
        mobile: NodeIndex(0),
        cells,
        first: second,
        pause: second * 2,
        pause_spread: 0.3,
        every: second * 10,
        start_spread: second * 4,
        count: 1000,
        registration: Duration::ZERO,
        mode: HandoffMode::Migrate,
    };
    let moves: Vec<_> = handoff.moves(Seed::from_u64(1)).collect();
    assert_eq!(moves, handoff.moves(Seed::from_u64(1)).collect::<Vec<_>>());
    assert_ne!(moves, handoff.moves(Seed::from_u64(2)).collect::<Vec<_>>());
    let in_cycle = |(n, m): (usize, &Move)| (m.at - second * 10 * n as u32).as_secs_f64();
    let starts: Vec<f64> = moves.iter().enumerate().map(in_cycle).collect();
    let pauses: Vec<f64> = moves.iter().map(|m| m.pause.as_secs_f64()).collect();
    for (values, [lo, hi]) in [(starts, [1.0, 5.0]), (pauses, [1.4, 2.6])] {
        assert!(values.iter().all(|v| (lo..hi).contains(v)));
        let mean = values.iter().sum::<f64>() / 1000.0;
        assert!((mean / (lo + hi) * 2.0 - 1.0).abs() < 0.05, "{mean}");
    }
}

#[test]
fn pauses_that_may_vanish_or_meet_are_refused() {
    let whole = "pause-spread = \"100%\"\npause =";
    refuses("pause =", whole, "handoff.pause-spread", "nothing of a pause", "less than 100%");
    let late = "every = \"5s\"\ncount = 2\nstart-spread = \"3s\"\npause =";
    refuses("pause =", late, "handoff.every", "5s is shorter than the pause of 5.8s", "to start");
}

/// LNK-15: what a run draws follows from its seed.
#[test]
fn random_values_are_drawn_for_each_run() {
    let study = good(GOOD);
    let start = |seed| first(&study, seed).handoff.as_ref().expect("a handoff").first;
    assert_eq!(start(1), start(1));
    assert_ne!(start(1), start(2));
    for seed in 0..50 {
        assert!((Duration::from_secs(4)..Duration::from_secs(8)).contains(&start(seed)));
    }
}

/// LNK-7: a pause of no length is none.
#[test]
fn a_pause_of_no_length_is_no_handoff() {
    assert!(first(&good(&GOOD.replace("\"2.8s\"", "\"0s\"")), 1).handoff.is_none());
}

#[test]
fn unknown_keys_are_answered_with_the_nearest_and_the_list() {
    refuses(
        "delay = ",
        "dealy = ",
        "link.radio-east.dealy",
        "unknown key",
        "did you mean `delay`?",
    );
    let found = problems(&GOOD.replacen("between = [\"west", "betwen = [\"west", 1));
    let keys: Vec<&str> = found.iter().map(|p| p.key.as_str()).collect();
    assert_eq!(keys, ["link.radio-west", "link.radio-west.betwen"], "{found:#?}");
    assert!(found[0].message.contains("`between` is missing"), "{}", found[0]);
}

#[test]
fn every_table_refuses_what_it_does_not_know() {
    let cases = [
        ("scheme =", "schema =", "schema", "did you mean `scheme`?"),
        ("mss =", "msss =", "tcp.mobile.msss", "did you mean `mss`?"),
        ("stack =", "stak =", "tcp.stak", "did you mean `stack`?"),
        ("size =", "sise =", "flow.0.traffic.file.sise", "did you mean `size`?"),
        ("pause =", "paus =", "handoff.paus", "did you mean `pause`?"),
        ("to = \"server\"", "too = \"server\"", "flow.0.too", "did you mean `to`?"),
        ("{ kind =", "{ kid =", "node.west.kid", "did you mean `kind`?"),
    ];
    for (from, to, key, remedy) in cases {
        let text = GOOD.replacen(from, to, 1);
        let line = tree::line(&text, text.find(to).expect("there"));
        let found = problems(&text);
        let problem = found.iter().find(|p| p.key == key).unwrap_or_else(|| panic!("{found:#?}"));
        assert_eq!(problem.line, line, "{problem}");
        assert!(problem.remedy.clone().unwrap_or_default().contains(remedy), "{problem}");
    }
}

#[test]
fn values_that_cannot_be_read_say_what_was_expected() {
    refuses(
        "\"2Mbit/s\"\ndelay",
        "\"fast\"\ndelay",
        "link.radio-east.rate",
        "`fast` is not a rate",
        "",
    );
    refuses("\"1%\"", "\"101%\"", "link.radio-east.loss", "`101%` is not a loss", "");
    refuses("\"20ms\"", "20", "link.radio-east.delay", "the number 20, expected a text", "unit");
    refuses("\"600s\"", "\"-5s\"", "give-up", "`-5s` is not a duration", "");
    refuses("\"100kB\"", "true", "flow.0.traffic.file.size", "found true, expected a text", "");
    refuses("216", "\"small\"", "tcp.mobile.mss", "the text `small`", "");
}

/// MOB-25, LNK-11: Mobile TCP takes each gap for a loss, so that its hop must keep its order; other
/// links, and other schemes, may do as they like.
#[test]
fn a_hop_that_reorders_is_refused_under_mobile_tcp() {
    let hop = |scheme: &str, way: &str| {
        let text = GOOD.replacen("scheme = \"none\"", &format!("scheme = \"{scheme}\""), 1);
        let at = "[link.radio-east]\n";
        assert!(text.contains(at));
        let text = text.replacen(at, &format!("{at}{way}reorder = \"2% by 20ms\"\n"), 1);
        parse(&text).map_or_else(|e| e.problems().to_vec(), |_| Vec::new())
    };
    for way in ["", "backward."] {
        let found = hop("mobile-tcp", way);
        assert_eq!(found.len(), 1, "{found:#?}");
        assert!(found[0].key.starts_with("link.radio-east"), "{}", found[0]);
        assert!(found[0].message.contains("takes each gap for a loss"), "{}", found[0]);
        assert!(found[0].remedy.clone().unwrap_or_default().contains("srp"), "{}", found[0]);
        assert!(hop("srp", way).is_empty());
    }
    let wire = GOOD.replacen("scheme = \"none\"", "scheme = \"mobile-tcp\"", 1);
    good(&wire.replacen("[link.wire]\n", "[link.wire]\nreorder = \"2% by 20ms\"\n", 1));
}

/// MOB-13, MOB-20: values that no packet could say are refused by name.
#[test]
fn mobile_tcp_is_refused_what_it_cannot_say() {
    for (key, value, told) in [
        ("window", "\"33KiB\"", "is more than 32767 B"),
        ("window", "\"0 B\"", "0 moves nothing"),
        ("send-buffer", "\"65MiB\"", "is more than 64 MiB"),
        ("packet", "15", "15 bytes are less than the 16 of a header"),
        ("packet", "70000", "70000 is more than 65535"),
        ("pad", "70000", "70000 is more than 65535"),
        ("ack-every", "0", "0 moves nothing"),
        ("tick", "\"10us\"", "is shorter than 1ms"),
        ("inflight", "\"0 B\"", "0 moves nothing"),
    ] {
        let text = format!("{GOOD}[mobile-tcp]\n{key} = {value}\n");
        let found = problems(&text);
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!(found[0].key, format!("mobile-tcp.{key}"));
        assert_eq!(found[0].line, text.lines().count());
        assert!(found[0].message.contains(told), "{}", found[0]);
    }
    let text = GOOD.replacen("scheme = \"none\"", "scheme = \"mobile-tcp\"", 1);
    for (key, value) in [("packet", 500), ("pad", 240)] {
        let narrow = text.replacen("[link.radio-east]\n", "[link.radio-east]\nmtu = 256\n", 1);
        let found = problems(&format!("{narrow}[mobile-tcp]\n{key} = {value}\n"));
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!(found[0].key, format!("mobile-tcp.{key}"));
        assert!(found[0].message.contains("than the 256 that link `radio-east`"), "{}", found[0]);
    }
    let all = "[mobile-tcp]\nwindow = \"16KiB\"\nsend-buffer = \"64KiB\"\npacket = 1460\n\
               tick = \"200ms\"\nack-every = 2\npad = 24\nrto = \"1s\"\nbackoff = \"1s\"\ngive-up = 12\n\
               inflight = \"8KiB\"\n";
    let scenario = first(&good(&format!("{GOOD}{all}")), 1);
    assert_eq!((scenario.mobile_tcp.pad, scenario.mobile_tcp.give_up), (Some(24), Some(12)));
}

#[test]
fn names_that_are_none_of_a_list_get_the_list() {
    let schemes = "none, split-tcp, i-tcp, srp, bond, bond-redundant, mobile-tcp, \
                   mobile-tcp-unsplit, snoop, obtcp, delayed-dupacks, m-tcp, \
                   congestion-coherence, ebsn, fast-rtx-handoff, freeze, ll-freeze, atcp, rwc, \
                   mptcp-minrtt, mptcp-ecf, mptcp-blest";
    let none = "scheme = \"none\"";
    refuses(none, "scheme = \"snop\"", "scheme", "`snop` is unknown", "mean `snoop`?");
    refuses(none, "scheme = \"ufo\"", "scheme", "`ufo` is unknown", schemes);
    refuses("\"mobile-host\"", "\"mobil-host\"", "node.phone", "unknown", "`mobile-host`");
    refuses("\"bsd-1990s\"", "\"bsd\"", "tcp.stack", "`bsd` is unknown", "modern, bsd-1990s, ns2");
    let traffic = "{ fil = { size = \"100kB\" } }";
    refuses("{ file = { size = \"100kB\" } }", traffic, "flow.0.traffic", "unknown", "`file`");
}

#[test]
fn impossible_values_are_refused_with_their_place() {
    let rate = "rate = \"0Mbit/s\"\ndelay";
    refuses("rate = \"2Mbit/s\"\ndelay", rate, "link.radio-east.rate", "carries nothing", "pause");
    refuses("delay = \"20ms\"", "mtu = 67", "link.radio-east.mtu", "67 is less than 68", "");
    let loss = "loss = \"burst 5% length 0.5\"";
    refuses("loss = \"1%\"", loss, "link.radio-east.loss", "burst length", "docs/radio.md");
    let down = "backward.loss = \"fade 10% mean 1ns\"";
    refuses("backward.loss = \"none\"", down, "link.radio-east.backward.loss", "fade", "");
    refuses("give-up = \"600s\"", "give-up = \"0s\"", "give-up", "is zero", "");
    refuses("\"100kB\"", "\"0 B\"", "flow.0.traffic.file.size", "nothing would be sent", "");
    let once = "once = true\nto = \"server\"";
    refuses("to = \"server\"", once, "flow.0.once", "is for datagrams", "voice");
    refuses("mss = 216", "mss = 4", "tcp.mobile.mss", "4 is not between", "");
    let huge = "mss = 216, send-buffer = \"1025MiB\"";
    refuses("mss = 216", huge, "tcp.mobile.send-buffer", "is more than 1 GiB", "4MiB");
    let hop = "hop = { send-buffer = \"65MiB\" }";
    refuses("mobile = { mss = 216 }", hop, "tcp.hop.send-buffer", "is more than 64 MiB", "");
    let agent = "agent.buffer = \"65MiB\"";
    refuses("scheme = \"none\"", agent, "agent.buffer", "is more than 64 MiB", "16KiB");
    let empty = "first = { uniform = [\"8s\", \"4s\"] }";
    refuses("first = { uniform = [\"4s\", \"8s\"] }", empty, "handoff.first", "is empty", "");
    let late = "first = { uniform = [\"4s\", \"700s\"] }";
    refuses(
        "first = { uniform = [\"4s\", \"8s\"] }",
        late,
        "handoff.first",
        "not before",
        "longer",
    );
    let found = problems(&GOOD.replacen("pause = ", "count = 3\npause = ", 1));
    assert_eq!((found[0].key.as_str(), found[0].line), ("handoff", 42), "{}", found[0]);
    assert!(found[0].message.contains("`every` is missing"), "{}", found[0]);
}

#[test]
fn a_channel_that_both_directions_take_turns_on_has_one_description() {
    let turns = GOOD.replacen("backward.loss = \"none\"", "half-duplex = true", 1);
    let scenario = first(&good(&turns), 1);
    assert!(link(&scenario, "radio-east").half_duplex && !link(&scenario, "wire").half_duplex);
    for (said, key) in [
        ("backward.loss = \"none\"", "backward"),
        ("forward = { delay = \"1ms\" }", "forward"),
        ("shared-fades = true", "shared-fades"),
    ] {
        let to = format!("half-duplex = true\n{said}");
        let found = problems(&GOOD.replacen("backward.loss = \"none\"", &to, 1));
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!((found[0].key.clone(), found[0].line), (format!("link.radio-east.{key}"), 28));
        assert!(found[0].message.contains("one channel"), "{}", found[0]);
        assert!(found[0].remedy.clone().unwrap_or_default().contains("half-duplex"));
    }
    let wrong = "half-duplex = \"yes\"";
    refuses("backward.loss = \"none\"", wrong, "link.radio-east.half-duplex", "true or false", "");
}

#[test]
fn names_that_nobody_has_are_refused() {
    refuses("[\"server\", ", "[\"sever\", ", "link.wire.between", "no node `sever`", "`server`");
    refuses("to = \"server\"", "to = \"servr\"", "flow.0.to", "no node `servr`", "`server`");
    refuses("to = \"server\"", "to = \"east\"", "flow.0.to", "`east` is no host", "fixed-host");
    let cells = "cells = [\"radio-eats\", \"radio-west\"]";
    refuses(
        "cells = [\"radio-east\", \"radio-west\"]",
        cells,
        "handoff.cells",
        "no link",
        "radio-east",
    );
    let cells = "cells = [\"radio-east\", \"radio-west\", \"wire\"]";
    refuses(
        "cells = [\"radio-east\", \"radio-west\"]",
        cells,
        "handoff.cells",
        "does not end at the mobile",
        "",
    );
}

#[test]
fn a_mobile_with_several_links_says_which_one_a_scheme_uses() {
    let second = "[link.dish]\nbetween = [\"phone\", \"east\"]\n\n[[flow]]";
    let alone = GOOD.replacen("[[flow]]", second, 1).replacen(
        "cells = [\"radio-east\", \"radio-west\"]",
        "cells = [\"radio-east\"]",
        1,
    );
    // Without the other base there is nothing to change to.
    let alone = alone.replacen("[\"west\", \"phone\"]", "[\"west\", \"other\"]", 1);
    let alone = alone.replacen(
        "phone = \"mobile-host\"",
        "other = \"fixed-host\"\nphone = { kind = \"mobile-host\" }",
        1,
    );
    let naming = |links: &str| {
        alone.replacen(
            "kind = \"mobile-host\"",
            &format!("kind = \"mobile-host\", links = {links}"),
            1,
        )
    };
    let found = problems(&alone);
    assert_eq!((found.len(), found[0].key.as_str()), (1, "flow.0.scheme"), "{found:#?}");
    let message = &found[0].message;
    assert!(message.contains("none goes by one link, and `phone` uses 2: "), "{message}");
    assert!(found[0].remedy.clone().unwrap_or_default().contains("`node.phone.links`"));
    let bond = first(&good(&alone.replacen("scheme = \"none\"", "scheme = \"bond\"", 1)), 1);
    let used = |scenario: &Scenario| {
        let set = scenario.link_sets.first().expect("a set");
        let name = |link: &LinkIndex| scenario.link(*link).name.clone();
        (set.used.iter().map(name).collect::<Vec<_>>(), set.idle.len())
    };
    assert_eq!(used(&bond), (vec!["dish".to_owned(), "radio-east".to_owned()], 0));
    let one = first(&good(&naming("[\"radio-east\"]")), 1);
    assert_eq!(used(&one), (vec!["radio-east".to_owned()], 1));
    for (links, message) in [
        ("[\"dihs\"]", "there is no link `dihs`"),
        ("[\"wire\"]", "link `wire` does not end at `phone`"),
        ("[\"dish\", \"dish\"]", "names link `dish` twice"),
    ] {
        let found = problems(&naming(links));
        assert_eq!(found[0].key, "node.phone.links", "{found:#?}");
        assert!(found.iter().any(|p| p.message.contains(message)), "{found:#?}");
    }
    refuses(
        "west = { kind = \"base\" }",
        "west = { kind = \"base\", links = [\"wire\"] }",
        "node.west.links",
        "only a mobile host",
        "mobile-host",
    );
}

#[test]
fn loops_doubled_links_and_missing_ways_are_refused() {
    let extra = |between: &str| format!("[link.extra]\nbetween = [{between}]\n\n[[flow]]");
    let line = |text: &str, what: &str| tree::line(text, text.find(what).expect("there"));
    let cases = [
        ("\"server\", \"east\"", "loop server - east - backbone", "take out one"),
        ("\"backbone\", \"server\"", "as link `wire` does already", "keep one"),
        ("\"server\", \"server\"", "joined to itself", "two different"),
    ];
    for (between, message, remedy) in cases {
        let text = GOOD.replacen("[[flow]]", &extra(between), 1);
        let found = problems(&text);
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!(found[0].key, "link.extra.between");
        assert_eq!(found[0].line, line(&text, &format!("between = [{between}")), "{}", found[0]);
        assert!(found[0].message.contains(message), "{}", found[0]);
        assert!(found[0].remedy.clone().unwrap_or_default().contains(remedy), "{}", found[0]);
    }
    let text = GOOD.replace("between = [\"backbone\", \"west\"]", "between = [\"east\", \"east\"]");
    assert!(problems(&text).iter().any(|p| p.message.contains("joined to itself")));
    let cut = GOOD.replace("[link.to-west]\nbetween = [\"backbone\", \"west\"]\n", "");
    let found = problems(&cut);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].message.contains("no way leads from `phone` to `server`"), "{}", found[0]);
    assert!(found[0].message.contains("while cell `radio-west` serves"), "{}", found[0]);
}

#[test]
fn a_missing_trace_is_refused() {
    let text = GOOD.replacen("rate = \"2Mbit/s\"\ndelay", "trace = \"lte.trace\"\ndelay", 1);
    let found = problems(&text);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0].key, "link.radio-east.trace");
    assert_eq!(found[0].line, tree::line(&text, text.find("trace =").expect("there")));
    assert!(found[0].message.contains("cannot read lte.trace"), "{}", found[0]);
    assert!(found[0].message.contains("relative to the scenario's directory"), "{}", found[0]);
}

#[test]
fn a_trace_is_part_of_what_a_point_is() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("x.toml");
    let text = GOOD.replacen("rate = \"2Mbit/s\"\ndelay", "trace = \"lte.trace\"\ndelay", 1);
    let hash = |trace: &str| {
        std::fs::write(directory.path().join("lte.trace"), trace).expect("writes");
        Study::parse(&path, &text).expect("reads").points()[0].hash()
    };
    assert_eq!(hash("1\n2\n"), hash("1\n2\n"));
    assert_ne!(hash("1\n2\n"), hash("1\n3\n"));
}

#[test]
fn all_problems_are_reported_at_once() {
    let text = GOOD
        .replacen("dela", "deal", 1)
        .replacen("\"1%\"", "\"lots\"", 1)
        .replacen("mss = 216", "mss = -1", 1)
        .replacen("from = \"phone\"", "from = 5", 1);
    let keys: Vec<String> = problems(&text).into_iter().map(|p| p.key).collect();
    let expected =
        ["link.radio-east.dealy", "link.radio-east.loss", "flow.0.from", "tcp.mobile.mss"];
    assert_eq!(keys, expected);
    let text = GOOD
        .replacen("to = \"server\"", "to = \"nobody\"", 1)
        .replacen("\"100kB\"", "\"0 B\"", 1)
        .replacen("mss = 216", "mss = 2", 1);
    let keys: Vec<String> = problems(&text).into_iter().map(|p| p.key).collect();
    assert_eq!(keys, ["flow.0.to", "flow.0.traffic.file.size", "tcp.mobile.mss"]);
}

#[test]
fn the_message_names_file_line_key_and_remedy() {
    let text = GOOD.replacen("delay = ", "dealy = ", 1);
    let said = parse(&text).expect_err("accepted").to_string();
    assert!(
        said.starts_with("x.toml:25: link.radio-east.dealy: unknown key `dealy`; did you"),
        "{said}"
    );
}

#[test]
fn what_is_no_toml_is_reported_with_its_line() {
    let found = problems("duration = \"1s\"\nrate 5\n");
    assert_eq!(found[0].line, 2, "{}", found[0]);
    let found = problems("duration = \"1s\"\nduration = \"2s\"\n");
    assert_eq!(found[0].line, 2, "{}", found[0]);
}

#[test]
fn an_end_is_needed_and_bulk_traffic_never_completes() {
    let none = problems(&GOOD.replace("give-up = \"600s\"", ""));
    assert!(none[0].message.contains("nothing says when a run ends"), "{}", none[0]);
    let both = problems(&GOOD.replace("give-up", "duration = \"1s\"\ngive-up"));
    assert_eq!(both[0].key, "give-up");
    let bulk = GOOD.replace("traffic = { file = { size = \"100kB\" } }", "traffic = \"bulk\"");
    let found = problems(&bulk);
    assert!(found[0].message.contains("never completes"), "{}", found[0]);
}

fn swept(sweep: &str) -> Study {
    good(&format!("{GOOD}\n[sweep]\n{sweep}"))
}

fn labels(study: &Study) -> Vec<String> {
    study.points().iter().map(Point::label).collect()
}

#[test]
fn a_sweep_is_the_cross_product_of_its_axes() {
    let study =
        swept("\"link.radio-east.loss\" = [\"0%\", \"5%\"]\nhandoff.pause = [\"1s\", \"5s\"]");
    let expected = [
        "link.radio-east.loss=0% handoff.pause=1s",
        "link.radio-east.loss=0% handoff.pause=5s",
        "link.radio-east.loss=5% handoff.pause=1s",
        "link.radio-east.loss=5% handoff.pause=5s",
    ];
    assert_eq!(labels(&study), expected);
    let last = study.scenario(&study.points()[3], Seed::from_u64(1)).expect("builds");
    assert_eq!(last.handoff.as_ref().expect("a handoff").pause, Duration::from_secs(5));
    assert_eq!(link(&last, "radio-east").radio.up.losses, [Loss::lose(Errors::Uniform(0.05))]);
}

#[test]
fn ranges_go_by_steps_by_count_and_by_factors() {
    let values = |range: &str| {
        let study = swept(&format!("\"handoff.pause\" = {range}"));
        labels(&study).iter().map(|l| l.replace("handoff.pause=", "")).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        values("{ from = \"1s\", to = \"2s\", step = \"250ms\" }"),
        "1s 1250ms 1500ms 1750ms 2s"
    );
    assert_eq!(values("{ from = \"1s\", to = \"2s\", count = 3 }"), "1s 1500ms 2s");
    let study = swept(
        "\"link.radio-east.loss\" = { from = \"0.01%\", to = \"10%\", count = 4, log = true }",
    );
    let expected = ["0.01%", "0.1%", "1%", "10%"].map(|v| format!("link.radio-east.loss={v}"));
    assert_eq!(labels(&study), expected);
    let study =
        swept("\"link.radio-east.loss\" = { from = \"0%\", to = \"0.3%\", step = \"0.1%\" }");
    let expected = ["0%", "0.1%", "0.2%", "0.3%"].map(|v| format!("link.radio-east.loss={v}"));
    assert_eq!(labels(&study), expected);
}

#[test]
fn an_axis_with_a_name_sets_several_paths_together() {
    let study = swept(
        "hop = [\n{ label = \"slow\", \"link.radio-east.rate\" = \"64kbit/s\", \
         \"link.radio-east.delay\" = \"2ms\" },\n{ link.radio-east.rate = \"8Mbit/s\" }]",
    );
    assert_eq!(labels(&study), ["hop=slow", "hop=1"]);
    let slow = first(&study, 1);
    assert_eq!(link(&slow, "radio-east").radio.up.pacing, Pacing::Rate(Rate::from_kbps(64)));
    assert_eq!(link(&slow, "radio-east").radio.up.delay, Duration::from_millis(2));
}

#[test]
fn what_is_wrong_in_a_sweep_is_reported_where_the_sweep_says_it() {
    let cases = [
        ("\"link.radio-east.loss\" = [\"0%\", \"150%\"]", "link.radio-east.loss", "`150%` is not"),
        ("\"link.radio-east.los\" = [\"0%\"]", "link.radio-east.los", "unknown key `los`"),
        ("\"lnk.radio-east.loss\" = [\"0%\"]", "sweep.lnk.radio-east.loss", "no key `lnk`"),
        ("\"scheme\" = [\"none\", \"obtpc\"]", "scheme", "`obtpc` is unknown"),
        ("\"scheme\" = \"none\"", "sweep.scheme", "single value"),
        ("\"scheme\" = []", "sweep.scheme", "no values"),
        ("\"runs\" = [1, 2]", "sweep.runs", "cannot be swept"),
        ("\"flow.3.scheme\" = [\"none\"]", "sweep.flow.3.scheme", "`flow` is not a table"),
        (
            "\"handoff.pause\" = { from = \"1s\", to = \"2s\", step = 3 }",
            "sweep.handoff.pause",
            "one kind",
        ),
        (
            "\"handoff.pause\" = { from = \"2s\", to = \"1s\", step = \"1s\" }",
            "sweep.handoff.pause",
            "never lead",
        ),
        (
            "\"handoff.pause\" = { from = \"1s\", to = \"1s\", stp = 1, count = 2 }",
            "sweep.handoff.pause",
            "unknown key `stp`",
        ),
    ];
    for (sweep, key, message) in cases {
        let text = format!("{GOOD}\n[sweep]\n{sweep}\n");
        let line = tree::line(&text, text.find(sweep).expect("there"));
        let found = problems(&text);
        let problem = found.iter().find(|p| p.key == key).unwrap_or_else(|| panic!("{found:#?}"));
        assert!(problem.message.contains(message), "{problem}");
        assert_eq!(problem.line, line, "{problem}");
    }
}

#[test]
fn a_sweep_too_large_to_list_is_refused() {
    let range = "{ from = 1, to = 50000, step = 1 }";
    let text = format!("{GOOD}\n[sweep]\n\"tcp.mss\" = {range}\n\"tcp.ack-every\" = {range}");
    assert!(problems(&text)[0].message.contains("more than 100000 points"));
}

/// The canonical text of a point is what results directories are addressed by: it must not change.
#[test]
fn a_points_hash_is_that_of_its_canonical_text_and_never_changes() {
    let text = "duration = \"1s\"\n[node]\na = \"fixed-host\"\nb = \"mobile-host\"\n\
                [link.l]\nbetween = [\"a\", \"b\"]\nmtu = 1_500\n[flow.f]\nfrom = \"a\"\nto = \"b\"\n";
    let study = good(text);
    let point = &study.points()[0];
    assert_eq!(
        point.canonical(),
        "{\"duration\":\"1s\",\"flow\":{\"f\":{\"from\":\"a\",\"to\":\"b\"}},\
         \"link\":{\"l\":{\"between\":[\"a\",\"b\"],\"mtu\":1500}},\
         \"node\":{\"a\":\"fixed-host\",\"b\":\"mobile-host\"}}"
    );
    assert_eq!(point.hash().to_string(), "7c4a63e8318928365fd4329ec36f0af0");
    let other = format!("name = \"other\"\nruns = 7 # comment\nseed = 3\n{text}");
    assert_eq!(good(&other).points()[0].hash(), point.hash());
    let more = good(&text.replace("1_500", "1400"));
    assert_ne!(more.points()[0].hash(), point.hash());
}

#[test]
fn a_point_has_one_hash_whether_a_sweep_or_a_file_sets_its_values() {
    let study = swept("\"handoff.pause\" = [\"1s\", \"2.8s\"]");
    assert_eq!(study.points()[1].hash(), good(GOOD).points()[0].hash());
    assert_ne!(study.points()[0].hash(), study.points()[1].hash());
}

#[test]
fn runs_and_seeds_are_whole_numbers() {
    let found = problems(&format!("runs = 0\nseed = \"x\"\n{GOOD}"));
    assert_eq!(
        found.iter().map(|p| (p.line, p.key.as_str())).collect::<Vec<_>>(),
        [(1, "runs"), (2, "seed")]
    );
}
