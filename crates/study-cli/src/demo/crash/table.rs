//! What became of the connections and what the server saw, for people and for programs.

use std::fmt::Write;

use lasthop_lab::crash::{KINDS, Plan, Tally};
use lasthop_lab::traffic::Traffic;
use lasthop_units::{Bytes, Duration};
use serde::Serialize;

use super::Outcome;
use crate::demo::report::seconds;

/// A way to die as programs read it. What could not be seen is null.
#[derive(Default, Serialize)]
struct Line {
    way: String,
    connections: Option<usize>,
    whole: Option<usize>,
    reset: Option<usize>,
    wrong: Option<usize>,
    /// From the mobile's arrival at the other base until the last that went on did.
    resumed_s: Option<f64>,
    server_saw_rst: Option<bool>,
    server_saw_new_syn: Option<bool>,
    /// Bytes.
    acked_beyond_mobile: Option<u64>,
    stuck: Option<usize>,
    /// Whether every packet at the server belonged to the connections that were there before.
    same_four_tuple: Option<bool>,
    downloads: Option<Part>,
    uploads: Option<Part>,
    idle: Option<Part>,
    error: Option<String>,
}

/// The connections of a kind.
#[derive(Serialize)]
struct Part {
    connections: usize,
    whole: usize,
    reset: usize,
    wrong: usize,
    stuck: usize,
    /// From the mobile's arrival until half of those that went on did, and the last.
    half_resumed_s: Option<f64>,
    resumed_s: Option<f64>,
}

impl Part {
    fn new(tally: &Tally) -> Self {
        Self {
            connections: tally.connections(),
            whole: tally.whole(),
            reset: tally.reset,
            wrong: tally.wrong,
            stuck: tally.stuck,
            half_resumed_s: tally.half().map(seconds),
            resumed_s: tally.last().map(seconds),
        }
    }
}

/// A way to die as one JSON object on one line.
pub(super) fn json(outcome: &Outcome) -> anyhow::Result<String> {
    let mut line = Line { way: outcome.way.to_string(), ..Line::default() };
    match &outcome.result {
        Ok(of) => {
            let all = of.tally();
            line.connections = Some(all.connections());
            line.whole = Some(all.whole());
            (line.reset, line.wrong, line.stuck) =
                (Some(all.reset), Some(all.wrong), Some(all.stuck));
            line.resumed_s = all.last().map(seconds);
            line.server_saw_rst = Some(of.seen.any_reset());
            line.server_saw_new_syn = Some(!of.seen.openings.is_empty());
            line.acked_beyond_mobile = Some(of.acked_beyond_mobile);
            line.same_four_tuple = Some(of.same_four_tuple);
            [line.downloads, line.uploads, line.idle] =
                of.tallies.each_ref().map(|tally| Some(Part::new(tally)));
        }
        Err(why) => line.error = Some(why.clone()),
    }
    Ok(serde_json::to_string(&line)?)
}

/// A way to die in a few words: the verdict.
pub(super) fn summary(outcome: &Outcome) -> String {
    let way = outcome.way;
    let of = match &outcome.result {
        Ok(of) => of,
        Err(why) => return format!("{way}: FAILED: {why}"),
    };
    let tally = of.tally();
    let (whole, connections) = (tally.whole(), tally.connections());
    let mut text = if whole == connections {
        format!("{way}: all {connections} connections went on")
    } else {
        format!("{way}: {whole} of {connections} connections went on")
    };
    if let (Some(half), Some(last)) = (tally.half(), tally.last()) {
        let _ = write!(text, ", half within {}, the last after {}", time(half), time(last));
    }
    let mut not = |what: &str, count: &dyn Fn(&Tally) -> usize| {
        let kinds = KINDS.iter().zip(&of.tallies).filter(|(_, tally)| count(tally) > 0);
        let kinds: Vec<String> =
            kinds.map(|(kind, tally)| format!("{} {kind}", count(tally))).collect();
        if !kinds.is_empty() {
            let _ = write!(text, ", {what}: {}", kinds.join(", "));
        }
    };
    not("RESET", &|tally| tally.reset);
    not("WRONG BYTES", &|tally| tally.wrong);
    not("STUCK", &|tally| tally.stuck);
    if of.seen.any_reset() {
        text.push_str("; the server saw a RESET");
    }
    if !of.seen.openings.is_empty() || !of.same_four_tuple {
        text.push_str("; the server saw a NEW CONNECTION");
    }
    if of.is_good() {
        text.push_str("; the server noticed nothing but a pause");
    }
    if of.acked_beyond_mobile > 0 {
        let bytes = Bytes::new(of.acked_beyond_mobile);
        let _ = write!(text, "; the server took {bytes} for arrived that the mobile NEVER HAD");
    }
    text
}

fn time(d: Duration) -> String {
    format!("{:.2} s", d.as_secs_f64())
}

/// The table, and what it comes to.
pub(super) fn table(plan: &Plan, outcomes: &[Outcome]) -> String {
    let mut out = format!(
        "\nbase 1 dies, and the mobile is at base 2 {} later; hop round trip {:.0} ms\n\
         {:<6}{:>15}{:>9}{:>7}{:>7}{:>7}{:>14}{:>12}\n",
        time(plan.dead_zone),
        plan.topology.hop_round_trip().as_secs_f64() * 1e3,
        "base 1",
        "connections",
        "went on",
        "reset",
        "wrong",
        "stuck",
        "half within",
        "last after",
    );
    for Outcome { way, result } in outcomes {
        match result {
            Ok(of) => {
                let way = way.to_string();
                let first = std::iter::once(way.as_str()).chain(std::iter::repeat(""));
                for ((first, kind), tally) in first.zip(KINDS).zip(&of.tallies) {
                    let _ = writeln!(out, "{first:<6}{}", row(kind, tally));
                }
            }
            Err(why) => {
                let _ = writeln!(out, "{way:<6} FAILED: {why}");
            }
        }
    }
    out.push('\n');
    for outcome in outcomes {
        let _ = writeln!(out, "{}", summary(outcome));
        for (why, count) in outcome.result.iter().flat_map(|of| &of.broken) {
            let _ = writeln!(out, "  {count} x {why}");
        }
    }
    out
}

fn row(kind: Traffic, tally: &Tally) -> String {
    let after = |d: Option<Duration>| d.map_or("-".to_owned(), time);
    format!(
        "{:>15}{:>9}{:>7}{:>7}{:>7}{:>14}{:>12}",
        format!("{} {kind}", tally.connections()),
        tally.whole(),
        tally.reset,
        tally.wrong,
        tally.stuck,
        after(tally.half()),
        after(tally.last()),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use lasthop_lab::capture::Seen;
    use lasthop_lab::crash::{Aftermath, Way};

    use super::*;

    fn aftermath(uploads_reset: usize) -> Aftermath {
        let all = |whole, reset| {
            let resumed = (1..=whole).map(|n| Duration::from_millis(500 + n)).collect();
            Tally { resumed, reset, ..Tally::default() }
        };
        Aftermath {
            tallies: [all(34, 0), all(33 - uploads_reset as u64, uploads_reset), all(33, 0)],
            seen: Seen::default(),
            same_four_tuple: true,
            acked_beyond_mobile: 0,
            broken: BTreeMap::new(),
        }
    }

    fn outcome(way: Way, of: Aftermath) -> Outcome {
        Outcome { way, result: Ok(of) }
    }

    #[test]
    fn a_json_line_has_exactly_the_promised_keys() {
        let object = |outcome: &Outcome| -> serde_json::Map<String, serde_json::Value> {
            serde_json::from_str(&json(outcome).unwrap()).unwrap()
        };
        let seen = object(&outcome(Way::Kill, aftermath(2)));
        let numbers = |names: [&str; 5]| names.map(|name| seen[name].as_u64().unwrap());
        let wanted = [100, 98, 2, 0, 0];
        let names = ["connections", "whole", "reset", "wrong", "acked_beyond_mobile"];
        assert_eq!(numbers(names), wanted);
        assert_eq!((&seen["way"], &seen["resumed_s"]), (&"kill".into(), &0.534.into()));
        let uploads = &seen["uploads"];
        assert_eq!((&uploads["whole"], &uploads["reset"]), (&31.into(), &2.into()));
        assert_eq!(
            (&seen["server_saw_rst"], &seen["server_saw_new_syn"]),
            (&false.into(), &false.into())
        );
        let failed = object(&Outcome { way: Way::Cut, result: Err("broke".to_owned()) });
        assert_eq!((&failed["way"], &failed["error"]), (&"cut".into(), &"broke".into()));
        assert!(failed["whole"].is_null() && failed["server_saw_rst"].is_null());
        let mut names: Vec<&String> = failed.keys().collect();
        assert_eq!(names, seen.keys().collect::<Vec<_>>());
        names.sort_unstable();
        let wanted = [
            "acked_beyond_mobile",
            "connections",
            "downloads",
            "error",
            "idle",
            "reset",
            "resumed_s",
            "same_four_tuple",
            "server_saw_new_syn",
            "server_saw_rst",
            "stuck",
            "uploads",
            "way",
            "whole",
            "wrong",
        ];
        assert_eq!(names, wanted);
    }

    #[test]
    fn one_connection_that_was_reset_is_told_with_its_kind() {
        let outcomes = [outcome(Way::Kill, aftermath(0)), outcome(Way::Cut, aftermath(1))];
        assert_eq!(outcomes.each_ref().map(Outcome::is_good), [true, false]);
        let text = table(&Plan::new(Way::Kill, 100), &outcomes);
        let lines: Vec<&str> = text.lines().filter(|line| line.contains(" upload ")).collect();
        let cells = |n: usize| lines[n].split_ascii_whitespace().collect::<Vec<_>>();
        assert_eq!(cells(0)[..5], ["33", "upload", "33", "0", "0"], "{text}");
        assert_eq!(cells(1)[..5], ["33", "upload", "32", "1", "0"], "{text}");
        let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(line("kill:").contains("all 100") && line("kill:").contains("0.53 s"), "{text}");
        assert!(line("kill:").ends_with("nothing but a pause"), "{text}");
        assert!(line("cut:").contains("99 of 100"), "{text}");
        assert!(line("cut:").ends_with("RESET: 1 upload"), "{text}");
    }

    #[test]
    fn what_the_server_noticed_is_no_success_even_where_all_go_on() {
        let mut reset = aftermath(0);
        let who = lasthop_lab::capture::FourTuple {
            client: "10.0.9.100:1".parse().unwrap(),
            server: "10.0.1.2:80".parse().unwrap(),
        };
        reset.seen.resets_in.insert(who, 1);
        let opened = Aftermath {
            seen: Seen { openings: [(who, 1)].into(), ..Seen::default() },
            ..aftermath(0)
        };
        let others = Aftermath { same_four_tuple: false, ..aftermath(0) };
        let acked = Aftermath { acked_beyond_mobile: 5000, ..aftermath(0) };
        for (of, told) in [
            (reset, "a RESET"),
            (opened, "NEW CONNECTION"),
            (others, "NEW CONNECTION"),
            (acked, "NEVER HAD"),
        ] {
            let outcome = outcome(Way::Cut, of);
            assert!(!outcome.is_good());
            assert!(summary(&outcome).contains(told), "{}", summary(&outcome));
        }
        let stuck = || Tally { stuck: 1, ..Tally::default() };
        let stuck = Aftermath { tallies: [stuck(), stuck(), stuck()], ..aftermath(0) };
        assert!(
            summary(&outcome(Way::Kill, stuck)).contains("STUCK: 1 download, 1 upload, 1 idle")
        );
    }
}
