//! The league as a report: the tables, what they say, and the scenario files with their reasons.

use super::cells::GROUNDS;
use super::gain::{MARGIN, Verdict};
use super::print::verdicts;
use super::{Board, Cell, ID};
use crate::report::{Block, Entry, Note, Report, Section, Table, Tone, Verdict as Count};
use crate::reproduce::print::{self, digits};
use crate::reproduce::{Criterion, Request};

const SUMMARY: &str = "Every scheme meets the same network, the same two senders and, run by run, the \
same luck. Goodput is told as a share of the limit, the most that the radio allows: its rate without \
headers, less what it loses, in the time that it carries. Below it stand the expiries of the two hosts' \
own retransmission timers; what a surrogate's own connection over the hop does is not among them.";

const GAINS: &str = "The mean of the ratios of goodput with help to goodput without, over pairs of runs \
that draw alike, with its 95 % interval by Student's t on logarithms. With this many comparisons a few \
intervals miss 1 by chance.";

pub(super) fn report(request: &Request, cells: &[Cell], criteria: &[Criterion]) -> Report {
    let board = Board::new(cells);
    let mut sections = vec![
        Section::new("Downloads", goodputs(&board, "")),
        Section::new("What helps", helps(&board, criteria)),
        Section::new("Delay, fairness, overhead", others(&board)),
        Section::new("Uploads", goodputs(&board, "upload-")),
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
        let small = expired.map_or_else(String::new, |n| format!("{n:.0} timeouts"));
        Entry::with_small(print::estimate(cell.ours.estimate()), small)
    };
    let gain = |cell: &Cell| match cell.gain {
        None => Entry::text("-"),
        Some(gain) => {
            let word = format!("{:.2} {}", gain.ratio.value, gain.verdict().name());
            let mut entry = Entry::mark(&word, tone(gain.verdict()));
            if let Some(i) = gain.ratio.interval {
                entry.small = format!("[{:.2}, {:.2}]", i.lo, i.hi);
            }
            entry
        }
    };
    let mut blocks = Vec::new();
    for sender in &board.senders {
        let name = sender_name(sender);
        let caption = format!("{name}: goodput in % of the limit, and timeouts");
        blocks.extend(table(board, &goodput, sender, &caption, |cell, condition, scheme| {
            value(cell, sender, condition, scheme)
        }));
    }
    for sender in &board.senders {
        let caption = format!("{}: goodput over that without help", sender_name(sender));
        blocks.extend(table(board, &goodput, sender, &caption, |cell, _, _| gain(cell)));
    }
    blocks.push(Block::Paragraph(format!(
        "{GAINS} Differences below {:.0} % are called none.",
        100.0 * MARGIN
    )));
    blocks
}

fn helps(board: &Board<'_>, criteria: &[Criterion]) -> Vec<Block> {
    let notes = verdicts(board).into_iter().map(|(name, text)| Note { name, text }).collect();
    vec![
        Block::Notes(notes),
        Block::Paragraph("What has to be right for the league to be believed:".to_owned()),
        Block::Verdicts(criteria.iter().map(Count::of).collect()),
    ]
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
            blocks.extend(table(board, name, sender, &caption, |cell, _, _| value(cell)));
        }
    }
    blocks
}

fn value(cell: &Cell) -> Entry {
    let Some(estimate) = cell.ours.estimate() else { return Entry::text("-") };
    let n = digits(estimate.mean);
    let small = estimate.interval().map(|i| format!("[{:.n$}, {:.n$}]", i.lo, i.hi));
    Entry::with_small(format!("{:.n$}", estimate.mean), small.unwrap_or_default())
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
