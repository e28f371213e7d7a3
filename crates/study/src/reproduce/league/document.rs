//! The league as a report: the tables, what they say, and the scenario files with their reasons.

use lasthop_units::Scheme;

use super::cells::{GROUNDS, PACKETS};
use super::gain::{MARGIN, Verdict};
use super::print::{Told, verdicts};
use super::{Board, Cell, ID};
use crate::report::chart::{Chart, RangeSeries, Rows};
use crate::report::{Block, Entry, Note, Report, Table, Tone};
use crate::reproduce::page::{self, head, value};
use crate::reproduce::prose::Prose;
use crate::reproduce::{Criterion, ReproduceError, Request};

pub(super) fn report(
    prose: &Prose,
    request: &Request,
    cells: &[Cell],
    criteria: &[Criterion],
) -> Result<Report, ReproduceError> {
    let board = Board::new(cells);
    let uploads = glance(prose, &board, "upload-", "uploads").into_iter();
    let uploads = uploads.chain(goodputs(prose, &board, "upload-"));
    let mut sections = vec![
        prose.section("helps").section(helps(prose, &board, criteria)),
        prose.section("downloads").section(goodputs(prose, &board, "")),
        prose.section("others").section(others(prose, &board)),
        prose.section("uploads").section(uploads),
        prose.section("packets").section(packets(prose, &Board::of_packets(cells))),
    ];
    let absent = absent(cells);
    if !absent.is_empty() {
        sections.push(prose.section("absent").section([Block::Notes(absent)]));
    }
    let sheets = GROUNDS.iter().map(|ground| ground.sheet).chain([PACKETS]);
    let files = sheets.flat_map(|sheet| {
        [Block::Paragraph(sheet.path.to_owned()), Block::Code(sheet.text.to_owned())]
    });
    sections.push(prose.section("scenarios").section(files));
    let command = [
        Block::Code(request.command(ID)),
        Block::Paragraph(format!("lasthop {}", request.version)),
    ];
    sections.push(prose.section("again").section(command));
    let words = prose.section("title");
    let title = words.section([]).title;
    let report =
        Report { title, subtitle: words.text("subtitle"), summary: prose.summary(&[]), sections };
    prose.check()?;
    Ok(report)
}

fn goodputs(prose: &Prose, board: &Board<'_>, before: &str) -> Vec<Block> {
    let (words, senders) = (prose.section("goodputs"), prose.section("senders"));
    let (goodput, timeouts) = (format!("{before}goodput"), format!("{before}timeouts"));
    let value = |cell: &Cell, sender: &str, condition: &str, scheme: &str| {
        let expired = board.at(&timeouts, sender, condition, scheme).and_then(Cell::mean);
        let small = expired.map_or_else(String::new, |n| format!("{n:.0}"));
        Entry { small, ..mean(cell) }
    };
    let gain = |cell: &Cell| {
        cell.gain.map_or_else(Entry::dash, |gain| Entry {
            tone: Some(tone(gain.verdict())),
            ..Entry::with_interval(gain.ratio.value, gain.ratio.interval, 2)
        })
    };
    let mut blocks = Vec::new();
    for sender in &board.senders {
        let caption = words.filled("goodput", &[("sender", &senders.text(sender))]);
        blocks.extend(table(board, &goodput, sender, &caption, |cell, condition, scheme| {
            value(cell, sender, condition, scheme)
        }));
    }
    for sender in &board.senders {
        let caption = words.filled("gain", &[("sender", &senders.text(sender))]);
        blocks.extend(table(board, &goodput, sender, &caption, |cell, _, _| gain(cell)));
    }
    let margin = format!("{:.0}", 100.0 * MARGIN);
    blocks.push(Block::Paragraph(words.filled("marks", &[("margin", &margin)])));
    blocks
}

fn helps(prose: &Prose, board: &Board<'_>, criteria: &[Criterion]) -> Vec<Block> {
    let row = |told: Told| {
        let Told { condition, sender, helps, harms } = told;
        [condition, sender, helps, harms].map(Entry::text).to_vec()
    };
    let caption = prose.section("helps").text("table");
    let rows = verdicts(board).into_iter().map(row).collect();
    let table = Table::new(caption, ["condition", "sender", "helps", "harms"], rows);
    let mut blocks = vec![page::verdicts(criteria)];
    blocks.extend(glance(prose, board, "", "downloads"));
    blocks.push(table.into());
    blocks
}

/// Goodput at a glance: a chart for each condition.
fn glance(prose: &Prose, board: &Board<'_>, before: &str, loads: &str) -> Option<Block> {
    let senders = prose.section("senders");
    let name = format!("{before}goodput");
    let chart = |condition: &&str| {
        let series = |(colour, sender): (usize, &&str)| {
            let estimate =
                |scheme: &&str| board.at(&name, sender, condition, scheme)?.ours.estimate();
            let ranges = board.schemes.iter().map(estimate);
            RangeSeries {
                hollow: colour > 0,
                ..RangeSeries::new(senders.text(sender), colour, ranges)
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
    let caption = prose.section("glance").filled("figure", &[("loads", &loads)]);
    Block::figure(caption, charts)
}

fn others(prose: &Prose, board: &Board<'_>) -> Vec<Block> {
    let (words, senders) = (prose.section("others"), prose.section("senders"));
    let mut blocks = Vec::new();
    for name in ["delay", "fairness", "overhead"] {
        for sender in &board.senders {
            let caption = words.filled(name, &[("sender", &senders.text(sender))]);
            blocks.extend(table(board, name, sender, &caption, |cell, _, _| {
                value(cell.ours.estimate())
            }));
        }
    }
    blocks
}

/// Packets that are not TCP's: a table for each measure of each kind.
fn packets(prose: &Prose, board: &Board<'_>) -> Vec<Block> {
    let words = prose.section("packets");
    let mut blocks = Vec::new();
    for (sender, names) in [
        ("voice", &["call-mos", "call-lost", "call-p50", "call-p99"][..]),
        ("quic-like", &["quic-rate", "quic-p50", "quic-p99"]),
    ] {
        for name in names {
            let caption = words.text(name);
            blocks.extend(table(board, name, sender, &caption, |cell, _, _| {
                value(cell.ours.estimate())
            }));
        }
    }
    blocks
}

/// A mean without its interval.
fn mean(cell: &Cell) -> Entry {
    cell.mean().map_or_else(Entry::dash, |mean| Entry::text(format!("{mean:.1}")))
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
    let row = |scheme: &&str| {
        let entries = board.conditions.iter().map(|condition| {
            match board.at(name, sender, condition, scheme) {
                None => Entry::text(""),
                Some(cell) if cell.not_applicable.is_some() => Entry::text("n/a"),
                Some(cell) => entry(cell, condition, scheme),
            }
        });
        Entry::row(*scheme, entries)
    };
    let rows = board.schemes.iter().map(row).collect();
    Some(Table::new(caption, head("scheme", board.conditions.iter().copied()), rows).into())
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
