//! The league as text: tables for people, one object a line for programs.

use std::fmt::Write;

use serde::Serialize;

use super::gain::Verdict;
use super::{Board, Cell, ID};
use crate::reproduce::Label;
use crate::reproduce::lines::{self, ends};
use crate::reproduce::print::digits;

/// How wide a column of a table is.
const COLUMN: usize = 13;

/// One cell as `--json` prints it, with the names that the cells of papers have. Values are null
/// where nothing was measured.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    place: &'a Label,
    unit: &'a str,
    ours: Option<f64>,
    ours_lo: Option<f64>,
    ours_hi: Option<f64>,
    /// All runs, failed ones included.
    runs: u32,
    failures: u32,
    /// `helps`, `harms` or `no difference` for goodput; `n/a` where the scheme has no place.
    mark: Option<&'static str>,
    gain: Option<f64>,
    gain_lo: Option<f64>,
    gain_hi: Option<f64>,
    limit_bps: Option<u64>,
    /// Why the scheme has no place.
    reason: Option<&'static str>,
}

/// Each cell as one JSON object a line, with its kind.
///
/// # Errors
/// None that this data can cause; serialising is fallible by its type.
pub fn json_lines(cells: &[Cell]) -> Result<String, serde_json::Error> {
    let mut out = String::new();
    cells.iter().try_for_each(|cell| lines::add(&mut out, "cell", ID, line(cell)))?;
    Ok(out)
}

fn line(cell: &Cell) -> Line<'_> {
    let ours = cell.ours.estimate();
    let (ours_lo, ours_hi) = ends(ours.and_then(|e| e.interval()));
    let gain = cell.gain.map(|gain| gain.ratio);
    let (gain_lo, gain_hi) = ends(gain.and_then(|ratio| ratio.interval));
    let verdict = cell.gain.map(|gain| gain.verdict().name());
    Line {
        place: &cell.label,
        unit: cell.measure.unit(),
        ours: ours.map(|e| e.mean),
        ours_lo,
        ours_hi,
        runs: cell.ours.runs(),
        failures: cell.ours.failures(),
        mark: cell.not_applicable.map(|_| "n/a").or(verdict),
        gain: gain.map(|r| r.value),
        gain_lo,
        gain_hi,
        limit_bps: cell.limit.map(|rate| rate.as_bps()),
        reason: cell.not_applicable,
    }
}

/// All tables.
pub fn tables(cells: &[Cell]) -> String {
    let board = Board::new(cells);
    let mut out = String::new();
    for (way, before) in [("downloads", ""), ("uploads", "upload-")] {
        goodputs(&mut out, &board, way, before);
        gains(&mut out, &board, way, before);
    }
    for (title, name) in [
        ("mean delay of a keystroke's echo beside a download, in ms", "delay"),
        ("fairness index of four downloads of one mobile", "fairness"),
        ("bytes that a hop carries for each byte that a download delivers", "overhead"),
        ("mean delay of a keystroke's echo beside an upload, in ms", "upload-delay"),
        ("bytes that a hop carries for each byte that an upload delivers", "upload-overhead"),
    ] {
        let value = |cell: &Cell| {
            cell.mean().map_or_else(|| "-".to_owned(), |mean| format!("{mean:.*}", digits(mean)))
        };
        table(&mut out, &board, title, name, |sender, condition, scheme| {
            board.at(name, sender, condition, scheme).map(value)
        });
    }
    packets(&mut out, &Board::of_packets(cells));
    out
}

/// Calls and transfers of datagrams: two values of a cell in each column.
fn packets(out: &mut String, board: &Board<'_>) {
    let mut pair = |title: &str, names: [&str; 2], digits: [usize; 2]| {
        table(out, board, title, names[0], |sender, condition, scheme| {
            let told = |n: usize| {
                let mean = board.at(names[n], sender, condition, scheme).and_then(Cell::mean);
                mean.map_or_else(|| "-".to_owned(), |mean| format!("{mean:.*}", digits[n]))
            };
            Some(format!("{} {:>6}", told(0), told(1)))
        });
    };
    let added = "delay beyond the path's own, median and 99 %, in ms";
    pair("a call: mean opinion score, and lost packets in %", ["call-mos", "call-lost"], [2, 2]);
    pair(&format!("a call: {added}"), ["call-p50", "call-p99"], [1, 1]);
    pair(&format!("a transfer of datagrams: {added}"), ["quic-p50", "quic-p99"], [1, 1]);
    table(
        out,
        board,
        "a transfer of datagrams: goodput in Mbit/s",
        "quic-rate",
        |sender, condition, scheme| {
            let cell = board.at("quic-rate", sender, condition, scheme)?;
            Some(cell.mean().map_or_else(|| "-".to_owned(), |rate| format!("{rate:.2}")))
        },
    );
}

fn goodputs(out: &mut String, board: &Board<'_>, way: &str, before: &str) {
    let title = format!("{way}: goodput in % of the limit, and timeouts");
    let goodput = format!("{before}goodput");
    let timeouts = format!("{before}timeouts");
    table(out, board, &title, &goodput, |sender, condition, scheme| {
        let share = board.at(&goodput, sender, condition, scheme)?;
        let expired = board.at(&timeouts, sender, condition, scheme).and_then(Cell::mean);
        let expired = expired.map_or_else(|| "-".to_owned(), |n| format!("{n:.0}"));
        Some(share.mean().map_or_else(|| "-".to_owned(), |s| format!("{s:.1} {expired:>4}")))
    });
}

fn gains(out: &mut String, board: &Board<'_>, way: &str, before: &str) {
    let title = format!("{way}: goodput over that without help");
    let goodput = format!("{before}goodput");
    table(out, board, &title, &goodput, |sender, condition, scheme| {
        let cell = board.at(&goodput, sender, condition, scheme)?;
        let told = cell.gain.map(|gain| {
            let verdict = match gain.verdict() {
                Verdict::Helps => "helps",
                Verdict::NoDifference => "     ",
                Verdict::Harms => "harms",
            };
            format!("{:.2} {verdict}", gain.ratio.value)
        });
        Some(told.unwrap_or_else(|| "-".to_owned()))
    });
}

/// A table for each sender: a row for each scheme, a column for each condition. `tell` tells of a
/// cell; what it knows nothing of was not run.
fn table(
    out: &mut String,
    board: &Board<'_>,
    title: &str,
    name: &str,
    tell: impl Fn(&str, &str, &str) -> Option<String>,
) {
    for sender in board.senders.iter().filter(|sender| board.has(name, sender)) {
        let _ = writeln!(out, "{title}: {sender}");
        let mut row = |first: &str, rest: &dyn Fn(&str) -> String| {
            let mut line = format!("{first:<21}");
            for condition in &board.conditions {
                let _ = write!(line, "{:>COLUMN$}", rest(condition));
            }
            let _ = writeln!(out, "{}", line.trim_end());
        };
        row("", &|condition| condition.to_owned());
        for scheme in &board.schemes {
            row(scheme, &|condition| {
                let cell = board.at(name, sender, condition, scheme);
                if cell.is_some_and(|cell| cell.not_applicable.is_some()) {
                    return "n/a".to_owned();
                }
                tell(sender, condition, scheme).unwrap_or_default()
            });
        }
        out.push('\n');
    }
}

/// What helps downloads under a condition with a sender, and what harms them.
pub(super) struct Told {
    pub(super) condition: String,
    pub(super) sender: String,
    pub(super) helps: String,
    pub(super) harms: String,
}

/// What helps and what harms downloads, for each condition and sender that was run.
pub(super) fn verdicts(board: &Board<'_>) -> Vec<Told> {
    let mut told = Vec::new();
    for condition in &board.conditions {
        for sender in &board.senders {
            let at = |scheme: &&str| board.at("goodput", sender, condition, scheme);
            if board.schemes.iter().all(|scheme| at(scheme).is_none()) {
                continue;
            }
            let of = |verdict: Verdict| {
                let is = |scheme: &&&str| {
                    at(scheme).and_then(|c| c.gain).is_some_and(|gain| gain.verdict() == verdict)
                };
                let names: Vec<&str> = board.schemes.iter().filter(is).copied().collect();
                if names.is_empty() { "-".to_owned() } else { names.join(", ") }
            };
            told.push(Told {
                condition: (*condition).to_owned(),
                sender: (*sender).to_owned(),
                helps: of(Verdict::Helps),
                harms: of(Verdict::Harms),
            });
        }
    }
    told
}
