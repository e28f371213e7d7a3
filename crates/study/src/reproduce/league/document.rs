//! The league as a report: the tables, what they say, and the scenario files with their reasons.

use super::cells::GROUNDS;
use super::gain::{MARGIN, Verdict};
use super::print::{Told, verdicts};
use super::{Board, Cell, ID};
use crate::report::chart::{Chart, Range, RangeSeries, Rows};
use crate::report::{Block, Entry, Figure, Note, Report, Section, Table, Tone};
use crate::reproduce::page::{self, dash, value};
use crate::reproduce::{Criterion, Request};
use crate::scenario::Scheme;

const SUMMARY: &str = "Every scheme meets the same network, the same two senders and, run by run, the \
same luck. Goodput is told as a share of the limit, the most that the radio allows: its rate without \
headers, less what it loses, in the time that it carries. Below it stand the expiries of the two hosts' \
own retransmission timers; what a surrogate's own connection over the hop does is not among them.";

const GAINS: &str = "The mean of the ratios of goodput with help to goodput without, over pairs of runs \
that draw alike, with its 95 % interval by Student's t on logarithms. With this many comparisons a few \
intervals miss 1 by chance.";

pub(super) fn report(request: &Request, cells: &[Cell], criteria: &[Criterion]) -> Report {
    let board = Board::new(cells);
    let uploads = glance(&board, "upload-", "uploads").into_iter();
    let uploads = uploads.chain(goodputs(&board, "upload-")).collect();
    let mut sections = vec![
        Section::new("What helps", helps(&board, criteria)),
        Section::new("Downloads", goodputs(&board, "")),
        Section::new("Delay, fairness, overhead", others(&board)),
        Section::new("Uploads", uploads),
    ];
    let absent = absent(cells);
    if !absent.is_empty() {
        sections.push(Section::new("Not applicable", vec![Block::Notes(absent)]));
    }
    let files = GROUNDS.iter().flat_map(|ground| {
        let path = Block::Paragraph(ground.sheet.path.to_owned());
        [path, Block::Code(ground.sheet.text.to_owned())]
    });
    sections.push(Section::new("The scenarios", files.collect()));
    let command = vec![
        Block::Code(request.command(ID)),
        Block::Paragraph(format!("lasthop {}", request.version)),
    ];
    sections.push(Section::new("To run it again", command));
    Report {
        title: "The league".to_owned(),
        subtitle:
            "Every scheme over every kind of hop, with a sender of the papers' time and one of \
                   today"
                .to_owned(),
        summary: SUMMARY.to_owned(),
        sections,
    }
}

fn sender_name(sender: &str) -> &str {
    match sender {
        "reno" => "Reno without SACK, window of 32 packets",
        "cubic" => "CUBIC with SACK and time stamps",
        other => other,
    }
}

fn goodputs(board: &Board<'_>, before: &str) -> Vec<Block> {
    let (goodput, timeouts) = (format!("{before}goodput"), format!("{before}timeouts"));
    let value = |cell: &Cell, sender: &str, condition: &str, scheme: &str| {
        let expired = board.at(&timeouts, sender, condition, scheme).and_then(Cell::mean);
        let small = expired.map_or_else(String::new, |n| format!("{n:.0}"));
        Entry { small, ..mean(cell) }
    };
    let gain = |cell: &Cell| match cell.gain {
        None => Entry::text("-"),
        Some(gain) => {
            let ratio = format!("{:.2}", gain.ratio.value);
            let mut entry = Entry::mark(&ratio, tone(gain.verdict()));
            if let Some(i) = gain.ratio.interval {
                entry.small = format!("[{:.2}, {:.2}]", i.lo, i.hi);
            }
            entry
        }
    };
    let mut blocks = Vec::new();
    for sender in &board.senders {
        let name = sender_name(sender);
        let caption = format!("{name}: goodput in % of the limit; in small print timeouts");
        blocks.extend(table(board, &goodput, sender, &caption, |cell, condition, scheme| {
            value(cell, sender, condition, scheme)
        }));
    }
    for sender in &board.senders {
        let caption = format!("{}: goodput over that without help", sender_name(sender));
        blocks.extend(table(board, &goodput, sender, &caption, |cell, _, _| gain(cell)));
    }
    blocks.push(Block::Paragraph(format!(
        "{GAINS} A full circle says that the scheme helps, an empty one that it harms, a dash that it \
         makes no difference; one below {:.0} % is none.",
        100.0 * MARGIN
    )));
    blocks
}

fn helps(board: &Board<'_>, criteria: &[Criterion]) -> Vec<Block> {
    let row = |told: Told| {
        let Told { condition, sender, helps, harms } = told;
        [condition, sender, helps, harms].map(Entry::text).to_vec()
    };
    let table = Table {
        caption: "What helps a download, and what harms it".to_owned(),
        head: ["condition", "sender", "helps", "harms"].map(str::to_owned).to_vec(),
        rows: verdicts(board).into_iter().map(row).collect(),
    };
    let mut blocks = vec![page::verdicts(criteria)];
    blocks.extend(glance(board, "", "downloads"));
    blocks.push(Block::Table(table));
    blocks
}

/// Goodput at a glance: a chart for each condition.
fn glance(board: &Board<'_>, before: &str, loads: &str) -> Option<Block> {
    let name = format!("{before}goodput");
    let chart = |condition: &&str| {
        let series = |(colour, sender): (usize, &&str)| {
            let range = |scheme: &&str| {
                let estimate = board.at(&name, sender, condition, scheme)?.ours.estimate()?;
                Some(Range { mean: estimate.mean, interval: estimate.interval() })
            };
            RangeSeries {
                name: sender_name(sender).to_owned(),
                colour,
                hollow: colour > 0,
                ranges: board.schemes.iter().map(range).collect(),
            }
        };
        let series: Vec<RangeSeries> = board.senders.iter().enumerate().map(series).collect();
        let has_any = series.iter().any(|s| s.ranges.iter().any(Option::is_some));
        has_any.then(|| {
            Chart::Rows(Rows {
                title: (*condition).to_owned(),
                x_label: "goodput in % of the limit".to_owned(),
                at_least: 100.0,
                names: board.schemes.iter().map(|scheme| (*scheme).to_owned()).collect(),
                series,
                base: board.schemes.iter().position(|scheme| *scheme == Scheme::None.name()),
            })
        })
    };
    let charts: Vec<Chart> = board.conditions.iter().filter_map(chart).collect();
    let caption = format!(
        "Goodput of {loads} in per cent of what the radio allows, with 95 % intervals. Dashed: the \
         same sender without help."
    );
    (!charts.is_empty()).then_some(Block::Figure(Figure { caption, charts }))
}

fn others(board: &Board<'_>) -> Vec<Block> {
    let mut blocks = Vec::new();
    for (name, title) in [
        ("delay", "mean delay of a keystroke's echo beside a download, in ms"),
        ("fairness", "fairness index of four downloads of one mobile"),
        ("overhead", "bytes that a hop carries for each byte that a download delivers"),
    ] {
        for sender in &board.senders {
            let caption = format!("{}: {title}", sender_name(sender));
            blocks.extend(table(board, name, sender, &caption, |cell, _, _| {
                value(cell.ours.estimate())
            }));
        }
    }
    blocks
}

/// A mean without its interval.
fn mean(cell: &Cell) -> Entry {
    cell.mean().map_or_else(dash, |mean| Entry::text(format!("{mean:.1}")))
}

/// A table of one sender, if anything of it was run.
fn table(
    board: &Board<'_>,
    name: &str,
    sender: &str,
    caption: &str,
    entry: impl Fn(&Cell, &str, &str) -> Entry,
) -> Option<Block> {
    if !board.has(name, sender) {
        return None;
    }
    let mut head = vec!["scheme".to_owned()];
    head.extend(board.conditions.iter().map(|condition| (*condition).to_owned()));
    let row = |scheme: &&str| {
        let mut row = vec![Entry::text(*scheme)];
        row.extend(board.conditions.iter().map(|condition| {
            match board.at(name, sender, condition, scheme) {
                None => Entry::text(""),
                Some(cell) if cell.not_applicable.is_some() => Entry::text("n/a"),
                Some(cell) => entry(cell, condition, scheme),
            }
        }));
        row
    };
    let rows = board.schemes.iter().map(row).collect();
    Some(Block::Table(Table { caption: caption.to_owned(), head, rows }))
}

/// Why schemes have no place somewhere, each once.
fn absent(cells: &[Cell]) -> Vec<Note> {
    let mut notes: Vec<Note> = Vec::new();
    for cell in cells {
        let Some(reason) = cell.not_applicable else { continue };
        let name = format!("{} under {}", cell.place.scheme, cell.place.condition);
        if notes.iter().all(|note| note.name != name) {
            notes.push(Note { name, text: reason.to_owned() });
        }
    }
    notes
}

fn tone(verdict: Verdict) -> Tone {
    match verdict {
        Verdict::Helps => Tone::Good,
        Verdict::NoDifference => Tone::Neutral,
        Verdict::Harms => Tone::Bad,
    }
}
