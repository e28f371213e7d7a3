//! The demonstration's results, for people and for programs.

use std::fmt::Write;
use std::time::Duration;

use lasthop_lab::cell::Measured;
use lasthop_lab::condition::Condition;
use lasthop_lab::scheme::Scheme;
use lasthop_lab::transfer::Direction;
use serde::Serialize;

use super::{Cell, Outcome};

/// The share of the limit that srp is to reach.
const WANTED: f64 = 0.96;
const FIRST: usize = 17;
const COLUMN: usize = 16;

/// A cell as programs read it. What could not be measured is null, with the reason in `error`.
#[derive(Serialize)]
struct Line<'a> {
    scheme: String,
    cell: String,
    direction: String,
    goodput_bps: Option<u64>,
    share_of_limit: Option<f64>,
    queue_drop_share: Option<f64>,
    recovery_s: Option<f64>,
    sha256_ok: Option<bool>,
    /// From the radio's return to nine tenths of the limit.
    full_rate_s: Option<f64>,
    /// The share of packets that the radio lost.
    loss: Option<f64>,
    /// How long packets waited for the transmitter.
    mean_queue_ms: Option<f64>,
    bytes: Option<u64>,
    error: Option<&'a str>,
}

/// A cell as one JSON object on one line.
pub(super) fn json(cell: &Cell, outcome: &Outcome) -> anyhow::Result<String> {
    let (measured, error) = match outcome {
        Outcome::Measured(m) => (Some(m), None),
        Outcome::Unavailable(why) | Outcome::Failed(why) => (None, Some(why.as_str())),
    };
    let failed = matches!(outcome, Outcome::Failed(_));
    let (scheme, name) = (cell.scheme.to_string(), cell.condition.to_string());
    line(scheme, name, cell.direction, (measured.map(|m| &**m), failed), error)
}

/// A transfer that was measured, as one JSON object on one line.
pub(super) fn measured_line(scheme: &str, cell: &str, of: &Measured) -> anyhow::Result<String> {
    line(scheme.to_owned(), cell.to_owned(), Direction::Download, (Some(of), false), None)
}

fn line(
    scheme: String,
    cell: String,
    direction: Direction,
    (measured, failed): (Option<&Measured>, bool),
    error: Option<&str>,
) -> anyhow::Result<String> {
    let line = Line {
        scheme,
        cell,
        direction: direction.to_string(),
        goodput_bps: measured.map(|m| m.goodput.as_bps()),
        share_of_limit: measured.and_then(|m| m.share_of_limit).map(rounded),
        queue_drop_share: measured.map(|m| rounded(m.queue_drop_share)),
        recovery_s: measured.and_then(|m| m.recovery).map(seconds),
        sha256_ok: measured.map(|m| m.sha256_ok).or(failed.then_some(false)),
        full_rate_s: measured.and_then(|m| m.full_rate).map(seconds),
        loss: measured.map(|m| rounded(m.loss)),
        mean_queue_ms: measured.map(|m| seconds(m.radio.mean_wait() * 1000)),
        bytes: measured.map(|m| m.total.get()),
        error,
    };
    Ok(serde_json::to_string(&line)?)
}

pub(super) fn rounded(x: f64) -> f64 {
    (x * 1e4).round() / 1e4
}

pub(super) fn seconds(d: Duration) -> f64 {
    rounded(d.as_secs_f64())
}

/// A transfer that was measured, in a few words.
pub(super) fn transfer(m: &Measured) -> String {
    let share = m.share_of_limit.map_or(String::new(), |s| format!(", {:.1} %", s * 100.0));
    let back = m
        .recovery
        .map_or(String::new(), |r| format!(", back {:.2} s after the silence", r.as_secs_f64()));
    let hash = if m.sha256_ok { "" } else { ", WRONG BYTES" };
    format!("{}{share} of the limit{back}{hash}", m.goodput)
}

/// A cell in a few words.
pub(super) fn summary(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Measured(m) => transfer(m),
        Outcome::Unavailable(why) => format!("not here: {why}"),
        Outcome::Failed(why) => format!("FAILED: {why}"),
    }
}

/// All tables.
pub(super) fn tables(cells: &[Cell], outcomes: &[Option<Outcome>]) -> String {
    let table = Table::new(cells, outcomes);
    let mut out = String::new();
    let direction = cells.first().map(|c| c.direction).unwrap_or_default();
    let _ = writeln!(
        out,
        "\nGoodput in % of the limit: radio rate x (1 - loss as it fell) x 1448/1500 ({direction})"
    );
    table.print(&mut out, share);
    let _ = writeln!(out, "\nDropped at the radio's queue, in % of the packets offered to it");
    table.print(&mut out, |_, m| format!("{:.1}", m.queue_drop_share * 100.0));
    if table.columns.iter().any(|c| matches!(c, Condition::Silence { .. })) {
        let _ = writeln!(out, "\nAfter the silence, in s: first new byte / full rate");
        table.only_silences().print(&mut out, |_, m| {
            format!("{} / {}", moment(m.recovery, m), moment(m.full_rate, m))
        });
    }
    notes(&mut out, cells, outcomes);
    out
}

fn share(cell: &Cell, m: &Measured) -> String {
    let Some(share) = m.share_of_limit else { return "-".into() };
    let mark = if cell.scheme == Scheme::Srp && share < WANTED { " !" } else { "" };
    format!("{:.1}{mark}", share * 100.0)
}

/// A time after the silence; what did not happen took longer than anybody watched.
fn moment(d: Option<Duration>, m: &Measured) -> String {
    match (d, m.watched) {
        (Some(d), _) => format!("{:.2}", d.as_secs_f64()),
        (None, Some(watched)) => format!("> {:.0}", watched.as_secs_f64()),
        (None, None) => "-".into(),
    }
}

fn notes(out: &mut String, cells: &[Cell], outcomes: &[Option<Outcome>]) {
    let measured = || {
        cells.iter().zip(outcomes).filter_map(|(cell, o)| match o {
            Some(Outcome::Measured(m)) => Some((cell, m)),
            _ => None,
        })
    };
    let right = measured().filter(|(_, m)| m.sha256_ok).count();
    let _ = writeln!(
        out,
        "\nSHA-256 of every byte received: right in {right} of {} cells",
        cells.len()
    );
    let low = |c: &Cell, m: &Measured| {
        c.scheme == Scheme::Srp && m.share_of_limit.is_some_and(|s| s < WANTED)
    };
    if measured().any(|(c, m)| low(c, m)) {
        let _ = writeln!(out, "! srp is to reach {:.0} % here", WANTED * 100.0);
    }
    let mut reasons: Vec<String> = Vec::new();
    for (cell, outcome) in cells.iter().zip(outcomes) {
        let reason = match outcome {
            Some(Outcome::Measured(m)) if m.sha256_ok => continue,
            Some(Outcome::Measured(_)) => {
                format!("{}/{}: WRONG BYTES", cell.scheme, cell.condition)
            }
            // The same for the whole row.
            Some(Outcome::Unavailable(why)) => format!("{}: {why}", cell.scheme),
            Some(Outcome::Failed(why)) => format!("{}/{}: {why}", cell.scheme, cell.condition),
            None => continue,
        };
        if !reasons.contains(&reason) {
            let _ = writeln!(out, "{reason}");
            reasons.push(reason);
        }
    }
}

/// Rows of schemes, columns of conditions, as far as they were asked for.
struct Table<'a> {
    rows: Vec<&'a Scheme>,
    columns: Vec<Condition>,
    cells: &'a [Cell],
    outcomes: &'a [Option<Outcome>],
}

impl<'a> Table<'a> {
    fn new(cells: &'a [Cell], outcomes: &'a [Option<Outcome>]) -> Self {
        let mut table = Self { rows: Vec::new(), columns: Vec::new(), cells, outcomes };
        for cell in cells {
            if !table.columns.contains(&cell.condition) {
                table.columns.push(cell.condition);
            }
            if !table.rows.contains(&&cell.scheme) {
                table.rows.push(&cell.scheme);
            }
        }
        let order = super::rows();
        table.rows.sort_by_key(|row| order.iter().position(|r| r == *row));
        table
    }

    fn only_silences(&self) -> Self {
        let silences = self.columns.iter().filter(|c| matches!(c, Condition::Silence { .. }));
        Self { rows: self.rows.clone(), columns: silences.copied().collect(), ..*self }
    }

    fn print(&self, out: &mut String, show: impl Fn(&Cell, &Measured) -> String) {
        let _ = write!(out, "{:FIRST$}", "");
        for column in &self.columns {
            let _ = write!(out, "{:>COLUMN$}", title(*column));
        }
        out.push('\n');
        for row in &self.rows {
            let _ = write!(out, "{row:FIRST$}");
            for column in &self.columns {
                let _ = write!(out, "{:>COLUMN$}", self.entry(row, *column, &show));
            }
            out.push('\n');
        }
    }

    fn entry(
        &self,
        row: &Scheme,
        column: Condition,
        show: &impl Fn(&Cell, &Measured) -> String,
    ) -> String {
        let found = self.cells.iter().zip(self.outcomes);
        let mut found = found.filter(|(c, _)| c.scheme == *row && c.condition == column);
        match found.next() {
            Some((cell, Some(Outcome::Measured(m)))) => show(cell, m),
            Some((_, Some(Outcome::Unavailable(_)))) => "not here".into(),
            Some((_, Some(Outcome::Failed(_)))) => "failed".into(),
            Some((_, None)) | None => String::new(),
        }
    }
}

fn title(condition: Condition) -> String {
    match condition {
        Condition::Loss(percent) => format!("{percent} % loss"),
        Condition::Fades(percent) => format!("{percent} % fades"),
        Condition::Silence { ms, loss } => {
            format!("{} s at {loss} %", f64::from(ms) / 1000.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use lasthop_lab::transfer::Direction;
    use lasthop_units::Rate;

    use super::*;

    fn cell(scheme: Scheme, condition: Condition) -> Cell {
        Cell { scheme, condition, direction: Direction::Download }
    }

    fn measured(share: f64) -> Outcome {
        let m = Measured {
            goodput: Rate::from_mbps(18),
            share_of_limit: Some(share),
            sha256_ok: true,
            ..Measured::default()
        };
        Outcome::Measured(Box::new(m))
    }

    #[test]
    fn every_json_line_has_the_promised_keys() {
        let cell = cell(Scheme::Srp, Condition::Loss(5));
        for outcome in
            [measured(0.97), Outcome::Unavailable("no".into()), Outcome::Failed("why".into())]
        {
            let line = json(&cell, &outcome).unwrap();
            assert!(!line.contains('\n'));
            let object: serde_json::Value = serde_json::from_str(&line).unwrap();
            for key in [
                "scheme",
                "cell",
                "direction",
                "goodput_bps",
                "share_of_limit",
                "queue_drop_share",
                "recovery_s",
                "sha256_ok",
            ] {
                assert!(object.get(key).is_some(), "{key} in {line}");
            }
        }
        assert!(json(&cell, &measured(0.97)).unwrap().contains("\"goodput_bps\":18000000"));
    }

    #[test]
    fn the_table_marks_srp_below_what_it_is_to_reach_and_tells_what_is_missing() {
        let loss = Condition::Loss(5);
        let cells = [
            cell(Scheme::Kernel("bbr".into()), loss),
            cell(Scheme::Kernel("cubic".into()), loss),
            cell(Scheme::Srp, loss),
        ];
        let outcomes = [
            Some(Outcome::Unavailable("no bbr".into())),
            Some(measured(0.02)),
            Some(measured(0.9)),
        ];
        let text = tables(&cells, &outcomes);
        let line = |start: &str| text.lines().find(|l| l.starts_with(start)).unwrap().to_owned();
        assert!(line("kernel-cubic").ends_with(" 2.0"));
        assert!(line("kernel-bbr").ends_with("not here"));
        assert!(line("srp").ends_with("90.0 !"));
        assert!(text.contains("right in 2 of 3 cells"));
        assert!(text.contains("kernel-bbr: no bbr"));
        assert!(!text.contains("After the silence"));
    }
}
