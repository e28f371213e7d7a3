//! What each way had, for people and for programs.

use std::fmt::Write;

use lasthop_lab::bond::Measured;
use lasthop_lab::voice::Call;
use lasthop_units::Duration;
use serde::Serialize;

use super::{LINKS, Options, Outcome, Scheme};
use crate::demo::report::{rounded, seconds};

/// A way as programs read it. What could not be measured is null.
#[derive(Default, Serialize)]
struct Line {
    scheme: String,
    goodput_down_bps: Option<u64>,
    goodput_up_bps: Option<u64>,
    /// Of what all links could carry.
    share_down: Option<f64>,
    share_up: Option<f64>,
    /// The longest time without a byte.
    gap_down_s: Option<f64>,
    gap_up_s: Option<f64>,
    /// Packets, both ways together.
    call_sent: Option<u64>,
    call_lost: Option<u64>,
    /// One way.
    call_delay_p99_s: Option<f64>,
    sha256_ok: Option<bool>,
    error: Option<String>,
}

/// A way as one JSON object on one line.
pub(super) fn json(scheme: Scheme, outcome: &Outcome) -> anyhow::Result<String> {
    let mut line = Line { scheme: scheme.to_string(), ..Line::default() };
    match outcome {
        Outcome::Measured(measured) => {
            let [down, up] = both(&measured.transfers);
            let bps = |m: Option<&Measured>| m.map(|m| m.goodput.as_bps());
            let share = |m: Option<&Measured>| m.map(|m| rounded(m.share_of_sum));
            let gap = |m: Option<&Measured>| m.map(|m| seconds(m.gap));
            (line.goodput_down_bps, line.goodput_up_bps) = (bps(down), bps(up));
            (line.share_down, line.share_up) = (share(down), share(up));
            (line.gap_down_s, line.gap_up_s) = (gap(down), gap(up));
            let call = measured.call.as_ref();
            line.call_sent = call.map(|call| call.sent);
            line.call_lost = call.map(Call::lost);
            line.call_delay_p99_s = call.and_then(|call| call.delay(990)).map(seconds);
            line.sha256_ok = Some(outcome.is_good());
        }
        Outcome::Unavailable(why) | Outcome::Failed(why) => line.error = Some(why.clone()),
    }
    Ok(serde_json::to_string(&line)?)
}

/// The download and the upload.
fn both(transfers: &[Measured]) -> [Option<&Measured>; 2] {
    [0, 1].map(|n| transfers.get(n))
}

/// A way in a few words.
pub(super) fn summary(outcome: &Outcome) -> String {
    let measured = match outcome {
        Outcome::Measured(measured) => measured,
        Outcome::Unavailable(why) => return format!("not here: {why}"),
        Outcome::Failed(why) => return format!("FAILED: {why}"),
    };
    let share = |m: Option<&Measured>| m.map_or(0.0, |m| m.share_of_sum * 100.0);
    let [down, up] = both(&measured.transfers).map(share);
    let mut text = format!("{down:.0} % of the sum down, {up:.0} % up");
    if let Some(call) = &measured.call {
        let _ = write!(text, ", {:.1} % of the call lost", call.residual_loss() * 100.0);
    }
    if !outcome.is_good() {
        text.push_str(", BYTES WRONG OR MISSING");
    }
    text
}

/// What the links are and what befalls them.
pub(super) fn title(options: &Options) -> String {
    let mut out = String::from("a download, an upload and a call at once by\n");
    for (n, link) in LINKS.iter().enumerate() {
        let tunnel = options.dark().lasting.as_secs_f64();
        let what = match (n, link.fades) {
            (0, _) => format!(", dark for {tunnel:.1} s"),
            (_, true) => ", fades of 17 ms for 10 % of the time".to_owned(),
            (_, false) => String::new(),
        };
        let _ = writeln!(out, "  {:<8} {} Mbit/s, {} ms{what}", link.name, link.mbps, link.ms);
    }
    out.push_str("one way, and behind them 100 Mbit/s and 25 ms");
    out
}

/// The table.
pub(super) fn table(title: &str, outcomes: &[(Scheme, Outcome)]) -> String {
    let mut out = format!(
        "\n{title}\n\n{:<13}{:>14}{:>16}{:>16}{:>18}\n{:<13}{:>7}{:>7}{:>8}{:>8}{:>8}{:>8}{:>8}\
         {:>10}  SHA-256\n",
        "",
        "Mbit/s",
        "% of the sum",
        "longest gap",
        "call",
        "",
        "down",
        "up",
        "down",
        "up",
        "down",
        "up",
        "lost",
        "99 % in",
    );
    for (scheme, outcome) in outcomes {
        let _ = match outcome {
            Outcome::Measured(measured) => writeln!(
                out,
                "{scheme:<13}{}",
                row(both(&measured.transfers), measured.call.as_ref(), outcome.is_good())
            ),
            other => writeln!(out, "{scheme:<13} {}", summary(other)),
        };
    }
    if outcomes.iter().any(|(scheme, _)| !scheme.has_packets()) {
        out.push_str("Multipath TCP carries no packets: a call cannot be had by it.\n");
    }
    out
}

fn row(transfers: [Option<&Measured>; 2], call: Option<&Call>, right: bool) -> String {
    let cells = |of: &dyn Fn(&Measured) -> String| transfers.map(|m| m.map_or("-".to_owned(), of));
    let ms = |time: Duration| format!("{:.0} ms", time.as_secs_f64() * 1e3);
    let rate = cells(&|m| format!("{:.1}", m.goodput.as_bps() as f64 / 1e6));
    let share = cells(&|m| format!("{:.1}", m.share_of_sum * 100.0));
    let gap = cells(&|m| ms(m.gap));
    let lost = call.map_or("-".to_owned(), |call| format!("{:.1} %", call.residual_loss() * 100.0));
    let delay = call.and_then(|call| call.delay(990)).map_or("-".to_owned(), ms);
    format!(
        "{:>7}{:>7}{:>8}{:>8}{:>8}{:>8}{lost:>8}{delay:>10}  {}",
        rate[0],
        rate[1],
        share[0],
        share[1],
        gap[0],
        gap[1],
        if right { "right" } else { "WRONG" }
    )
}

#[cfg(test)]
mod tests {
    use lasthop_lab::bond;
    use lasthop_units::Rate;

    use super::*;

    fn outcome(sha256_ok: bool, call: Option<Call>) -> Outcome {
        let measured = |mbps, sha256_ok| Measured {
            goodput: Rate::from_mbps(mbps),
            share_of_sum: 0.912,
            share_of_best: 1.5,
            gap: Duration::from_millis(120),
            sha256_ok,
        };
        let transfers = vec![measured(40, true), measured(30, sha256_ok)];
        Outcome::Measured(bond::Outcome { transfers, call })
    }

    #[test]
    fn a_json_line_has_exactly_the_promised_keys() {
        let keys = |outcome: &Outcome| {
            let line = json(Scheme::MptcpBbr, outcome).unwrap();
            let object: serde_json::Map<String, serde_json::Value> =
                serde_json::from_str(&line).unwrap();
            let keys: Vec<String> = object.keys().cloned().collect();
            (object, keys)
        };
        let (object, mut names) = keys(&outcome(true, Some(Call::default())));
        assert_eq!(object["scheme"], "mptcp-bbr");
        assert_eq!(
            (&object["goodput_up_bps"], &object["gap_down_s"]),
            (&30_000_000.into(), &0.12.into())
        );
        assert_eq!((&object["share_down"], &object["call_lost"]), (&0.912.into(), &0.into()));
        let (object, same) = keys(&Outcome::Failed("broke".to_owned()));
        assert_eq!(object["error"], "broke");
        assert!(object["sha256_ok"].is_null() && object["call_lost"].is_null());
        assert_eq!(names, same);
        names.sort_unstable();
        let wanted = [
            "call_delay_p99_s",
            "call_lost",
            "call_sent",
            "error",
            "gap_down_s",
            "gap_up_s",
            "goodput_down_bps",
            "goodput_up_bps",
            "scheme",
            "sha256_ok",
            "share_down",
            "share_up",
        ];
        assert_eq!(names, wanted);
    }

    #[test]
    fn one_wrong_byte_anywhere_is_told() {
        let outcomes = [
            (Scheme::Bond, outcome(true, Some(Call::default()))),
            (Scheme::SrpDish, outcome(false, Some(Call::default()))),
        ];
        let good = outcomes.each_ref().map(|(_, outcome)| outcome.is_good());
        assert_eq!(good, [true, false]);
        let text = table("t", &outcomes);
        let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(line("bond").contains("91.2") && line("bond").ends_with("right"), "{text}");
        assert!(line("srp-dish").ends_with("WRONG"), "{text}");
        assert!(summary(&outcomes[1].1).contains("WRONG"));
    }

    #[test]
    fn that_multipath_tcp_has_no_call_is_said_where_it_was_measured() {
        let told = |scheme| table("t", &[(scheme, outcome(true, None))]).contains("cannot be had");
        assert_eq!([Scheme::MptcpCubic, Scheme::SrpModem1].map(told), [true, false]);
    }
}
