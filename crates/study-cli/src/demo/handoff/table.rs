//! What the moves cost and what the server saw, for people and for programs.

use std::collections::BTreeMap;
use std::fmt::Write;

use lasthop_lab::journey::{Crossing, Plan, STAGES};
use lasthop_lab::roam::Mode;
use lasthop_units::Duration;
use serde_json::json;

use super::Outcome;

/// A move as one JSON object on one line.
pub(super) fn json(mode: Mode, crossing: &Crossing) -> String {
    let pauses = crossing.pauses.iter().map(|(name, d)| (*name, d.map(seconds)));
    let stages = crossing.stages.iter().map(|(name, d)| (*name, seconds(*d)));
    json!({
        "mode": mode.to_string(),
        "handoff": crossing.number,
        "dead_zone_s": seconds(crossing.dead_zone),
        "added_pause_s": crossing.added_pause().map(seconds),
        "pauses_s": pauses.collect::<BTreeMap<_, _>>(),
        "stages_s": stages.collect::<BTreeMap<_, _>>(),
        "sha256_ok": crossing.sha256_ok,
        "server_saw_rst": crossing.seen.any_reset(),
        "server_saw_new_syn": !crossing.seen.openings.is_empty(),
        "same_four_tuple": crossing.same_four_tuple,
        "predicted": crossing.predicted,
    })
    .to_string()
}

fn seconds(d: Duration) -> f64 {
    (d.as_secs_f64() * 1e4).round() / 1e4
}

/// A move in a few words.
pub(super) fn summary(crossing: &Crossing) -> String {
    let Crossing { number, from, to, .. } = crossing;
    let pause = match crossing.added_pause() {
        Some(pause) => format!("on again {} ms after", pause.as_millis()),
        None => "STUCK after".to_owned(),
    };
    let mut line = format!(
        "move {number}, {from} -> {to}: {pause} a dead zone of {:.2} s",
        crossing.dead_zone.as_secs_f64()
    );
    if !crossing.sha256_ok {
        line.push_str(", BYTES WRONG OR MISSING");
    }
    if crossing.seen.any_reset() {
        line.push_str(", the server saw a RESET");
    }
    if !crossing.seen.openings.is_empty() {
        line.push_str(", the server saw a NEW CONNECTION");
    }
    crossing.broken.iter().for_each(|what| line.push_str(&format!(", {what}")));
    line
}

/// The most that a move may add to the dead zone: three hop round trips and one between bases, or
/// if it was predicted one and a half hop round trips.
fn bound(plan: &Plan) -> Duration {
    let hop = plan.topology.hop_round_trip();
    match plan.warning {
        None => hop * 3 + plan.topology.base_round_trip(),
        Some(_) => hop * 3 / 2,
    }
}

/// All tables.
pub(super) fn tables(outcomes: &[Outcome]) -> String {
    outcomes.iter().map(table).collect()
}

fn table(outcome: &Outcome) -> String {
    let Outcome { plan, mode, crossings, failure } = outcome;
    let hop = plan.topology.hop_round_trip().as_secs_f64();
    let mut out = format!(
        "\n{mode} over {}, hop round trip {:.0} ms, between bases {:.0} ms{}\n",
        plan.settings.hop,
        hop * 1e3,
        plan.topology.base_round_trip().as_secs_f64() * 1e3,
        if plan.warning.is_some() { ", predicted" } else { "" },
    );
    let _ = writeln!(
        out,
        "{:>5}  {:<7}{:>10}{:>13}{:>12}  {:<8}{:<7}{:<9}same four-tuple",
        "move", "bases", "dead zone", "added pause", "round trips", "SHA-256", "reset", "new SYN"
    );
    for crossing in crossings {
        let _ = writeln!(out, "{}", row(crossing, hop, bound(plan)));
    }
    let mut pauses: Vec<Duration> = crossings.iter().filter_map(Crossing::added_pause).collect();
    pauses.sort_unstable();
    if let (Some(median), Some(most)) = (pauses.get(pauses.len() / 2), pauses.last()) {
        let within = pauses.iter().filter(|pause| **pause <= bound(plan)).count();
        let _ = writeln!(
            out,
            "pause beyond the dead zone: median {:.0} ms ({:.2} hop round trips), most {:.0} ms \
             ({:.2}); within the bound of {:.0} ms: {within} of {}",
            median.as_secs_f64() * 1e3,
            median.as_secs_f64() / hop,
            most.as_secs_f64() * 1e3,
            most.as_secs_f64() / hop,
            bound(plan).as_secs_f64() * 1e3,
            crossings.len(),
        );
    }
    out.push_str(&stages(crossings, hop));
    for what in crossings.iter().flat_map(|crossing| &crossing.broken).chain(failure) {
        let _ = writeln!(out, "{what}");
    }
    out
}

/// Where the time of a move goes: medians over all of them.
fn stages(crossings: &[Crossing], hop: f64) -> String {
    let mut out =
        format!("\n{:<44}{:>10}{:>14}\n", "from the new radio on, until", "median", "round trips");
    let mut line = |what: &str, of: &dyn Fn(&Crossing) -> Option<Duration>| {
        let mut times: Vec<Duration> = crossings.iter().filter_map(of).collect();
        times.sort_unstable();
        if let Some(median) = times.get(times.len() / 2).map(Duration::as_secs_f64) {
            let _ = writeln!(out, "{what:<44}{:>7.0} ms{:>14.2}", median * 1e3, median / hop);
        }
    };
    for (name, _) in STAGES {
        line(name, &|crossing| crossing.stages.iter().find(|(n, _)| *n == name).map(|(_, at)| *at));
    }
    let flows = crossings.first().map_or(&[][..], |crossing| &crossing.pauses);
    for (name, _) in flows {
        let first = format!("first byte of the {name}");
        line(&first, &|crossing| crossing.pauses.iter().find(|(n, _)| n == name)?.1);
    }
    out
}

fn row(crossing: &Crossing, hop: f64, bound: Duration) -> String {
    let pause = crossing.added_pause();
    let late = if pause.is_none_or(|pause| pause > bound) { "!" } else { " " };
    let yes = |yes: bool| if yes { "YES" } else { "no" };
    format!(
        "{:>5}  {:<7}{:>8.2} s{:>12}{late}{:>12}  {:<8}{:<7}{:<9}{}",
        crossing.number,
        format!("{}->{}", crossing.from, crossing.to),
        crossing.dead_zone.as_secs_f64(),
        pause.map_or("none".to_owned(), |p| format!("{:.0} ms", p.as_secs_f64() * 1e3)),
        pause.map_or("-".to_owned(), |p| format!("{:.2}", p.as_secs_f64() / hop)),
        if crossing.sha256_ok { "right" } else { "WRONG" },
        yes(crossing.seen.any_reset()),
        yes(!crossing.seen.openings.is_empty()),
        if crossing.same_four_tuple { "yes" } else { "NO" },
    )
}

#[cfg(test)]
mod tests {
    use lasthop_lab::capture::Seen;

    use super::*;

    fn crossing(pause: Option<u64>) -> Crossing {
        Crossing {
            number: 1,
            from: 1,
            to: 2,
            dead_zone: Duration::from_millis(1000),
            predicted: false,
            pauses: vec![
                ("download", Some(Duration::from_millis(50))),
                ("upload", pause.map(Duration::from_millis)),
            ],
            connections: 1,
            took: Duration::ZERO,
            stages: vec![(STAGES[1].0, Duration::from_millis(30))],
            sha256_ok: true,
            seen: Seen::default(),
            same_four_tuple: true,
            broken: Vec::new(),
            said: String::new(),
        }
    }

    #[test]
    fn a_json_line_has_exactly_the_promised_keys() {
        let line = json(Mode::Migrate, &crossing(Some(70)));
        let object: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(&line).unwrap();
        let mut keys: Vec<&str> = object.keys().map(String::as_str).collect();
        keys.sort_unstable();
        let wanted = [
            "added_pause_s",
            "dead_zone_s",
            "handoff",
            "mode",
            "pauses_s",
            "predicted",
            "same_four_tuple",
            "server_saw_new_syn",
            "server_saw_rst",
            "sha256_ok",
            "stages_s",
        ];
        assert_eq!(keys, wanted);
        assert_eq!(object["added_pause_s"], 0.07);
        assert_eq!(object["pauses_s"], json!({"download": 0.05, "upload": 0.07}));
        assert_eq!(object["stages_s"], json!({STAGES[1].0: 0.03}));
        assert_eq!(object["mode"], "migrate");
        assert!(json(Mode::Anchor, &crossing(None)).contains("\"added_pause_s\":null"));
    }

    #[test]
    fn the_table_marks_what_took_too_long_and_what_is_wrong() {
        let mut wrong = crossing(Some(300));
        wrong.sha256_ok = false;
        wrong.seen.resets_in.insert(
            lasthop_lab::capture::FourTuple {
                client: ([10, 0, 0, 1], 1).into(),
                server: ([10, 0, 0, 2], 2).into(),
            },
            1,
        );
        let outcome = Outcome {
            plan: Plan { handoffs: 2, ..Plan::default() },
            mode: Mode::Anchor,
            crossings: vec![crossing(Some(70)), wrong],
            failure: None,
        };
        assert!(!outcome.is_good());
        let text = tables(&[outcome]);
        let rows: Vec<&str> = text.lines().filter(|line| line.contains("->")).collect();
        assert!(rows[0].contains("70 ms ") && rows[0].contains("right"), "{text}");
        assert!(rows[1].contains("300 ms!") && rows[1].contains("WRONG"), "{text}");
        assert!(rows[1].contains("YES"), "{text}");
        assert!(text.contains("within the bound of 128 ms: 1 of 2"), "{text}");
        let stage = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(stage(STAGES[1].0).ends_with("30 ms          0.75"), "{text}");
        assert!(stage("first byte of the upload").ends_with("300 ms          7.50"), "{text}");
        assert!(!text.contains(STAGES[0].0), "{text}");
    }

    #[test]
    fn a_connection_that_stands_still_is_no_short_pause() {
        assert_eq!(crossing(None).added_pause(), None);
        assert!(!crossing(None).is_good());
        assert!(summary(&crossing(None)).contains("STUCK"));
    }
}
