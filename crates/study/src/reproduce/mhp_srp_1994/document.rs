//! The report: what was published and what we get, as a document.

use super::cells::{NO_PAUSE, REPEATED, SENSITIVITY};
use super::misses;
use crate::published::Published;
use crate::report::chart::{Chart, Line, RangeSeries, RatioPoint, Ratios, Span};
use crate::report::{Block, Entry, Note, Section, Tone};
use crate::reproduce::cell::once_each;
use crate::reproduce::page::{self, head, rounded, with_failures};
use crate::reproduce::prose::{Prose, Values, Words};
use crate::reproduce::{
    Compared, Comparison, Course, Kind, Label, Mark, Measured, Order, Pair, RATIO_TOLERANCE,
    ReproduceError, Reproduction, Setup, print,
};
use crate::stats::{Estimate, Ratio};

/// What a report is made of, with the runs that are drawn.
pub(super) type Content<'a> = page::Content<'a, Vec<(Label, Course)>>;

/// The schemes of the paper with their colours.
const COLOURS: [(&str, usize); 3] = [("tcp", 0), ("split-tcp", 1), ("srp", 2)];

/// The row and column of the cells that parameters were fitted to.
pub(super) const BASE: [&str; 2] = [NO_PAUSE, "0 %"];

pub(super) fn reproduction(content: Content<'_>) -> Result<Reproduction, ReproduceError> {
    let prose = content.prose;
    let setup = prose.setup();
    let fitted: Vec<&str> = setup.of(Kind::Fitted).map(|p| p.name.as_str()).collect();
    let sections = vec![
        tables(&content),
        figures(&content),
        ratios(prose, &content.comparison),
        courses(prose, &content.own),
        beside(prose, &content.comparison),
        misses(prose, &content.comparison),
        parameters(prose, &setup, content.published),
    ];
    content.reproduction(&[("fitted", &fitted.join(", "))], Vec::new(), sections)
}

fn tables(content: &Content<'_>) -> Section {
    let blocks = content.published.tables.iter().filter_map(|published| {
        let caption = format!("{}, {} in {}", published.title, published.quantity, published.unit);
        let head =
            ["pause, loss", "published", "ours", "runs", "failed", "order", "ratios", "mark"];
        let rows = content.comparison.of_table(&published.id).map(row).collect();
        Block::table(caption, head, rows)
    });
    content.prose.section("tables").section(blocks)
}

fn row(compared: &Compared) -> Vec<Entry> {
    let cell = &compared.cell;
    let is_base = [cell.label.row.as_str(), &cell.label.column] == BASE;
    let fitted = if is_base && cell.published.is_some() { "fitted" } else { "" };
    vec![
        Entry::with_small(place(&cell.label), fitted),
        value(cell.published),
        value(cell.ours.estimate()),
        Entry::text(cell.ours.runs().to_string()),
        Entry::text(cell.ours.failures().to_string()),
        compared.order.map_or_else(Entry::dash, order),
        compared.ratio.map_or_else(Entry::dash, closeness),
        Entry::mark(compared.mark.name(), compared.mark.tone()),
    ]
}

fn place(label: &Label) -> String {
    format!("{}, {}", label.row, label.column)
}

fn value(estimate: Option<Estimate>) -> Entry {
    estimate.map_or_else(Entry::dash, |estimate| rounded(estimate, 1))
}

fn order(order: Order) -> Entry {
    let tone = match order {
        Order::Right => Tone::Good,
        Order::Undecided => Tone::Fair,
        Order::Wrong => Tone::Bad,
    };
    Entry::mark(print::order_name(order), tone)
}

fn closeness(close: bool) -> Entry {
    if close { Entry::mark("close", Tone::Good) } else { Entry::mark("off", Tone::Bad) }
}

fn figures(content: &Content<'_>) -> Section {
    let words = content.prose.section("figures");
    let columns = content.published.tables.first().map_or(&[][..], |table| &table.column);
    let charts = columns.iter().filter_map(|column| ranges(content, column)).collect();
    words.section(Block::figure(words.text("figure"), charts))
}

/// The times at a loss, published and ours; none where nothing is known.
fn ranges(content: &Content<'_>, column: &str) -> Option<Chart> {
    let tables = &content.published.tables;
    let rows = once_each(tables.iter().flat_map(|t| &t.row).map(|row| row.label.as_str()));
    let series = COLOURS.iter().flat_map(|(scheme, colour)| {
        let cells = rows.iter().map(|row| {
            let compared = content.comparison.measured().filter(|m| m.compared);
            compared.into_iter().find(|m| m.label.words()[1..] == [*row, column, *scheme])
        });
        let cells: Vec<Option<&Measured>> = cells.collect();
        let series = |whose: &str, of: fn(&Measured) -> Option<Estimate>| {
            let ranges = cells.iter().map(|cell| cell.and_then(of));
            RangeSeries::new(format!("{scheme}, {whose}"), *colour, ranges)
        };
        [
            series("published", |cell| cell.published).hollow(),
            series("ours", |cell| cell.ours.estimate()),
        ]
    });
    let series: Vec<RangeSeries> = series.collect();
    let is_known = series.iter().any(|s| s.ranges.iter().any(Option::is_some));
    let labels = ["handoff pause", "transfer time in s"];
    is_known.then(|| Chart::ranges(format!("{column} loss"), labels, rows, series))
}

fn ratios(prose: &Prose, comparison: &Comparison) -> Section {
    let words = prose.section("ratios");
    if comparison.pairs.is_empty() {
        return words.section([]);
    }
    let points: Vec<RatioPoint> = comparison.pairs.iter().filter_map(point).collect();
    let chart = (!points.is_empty()).then(|| {
        let title = "Ratios of transfer times".to_owned();
        Chart::Ratios(Ratios { title, band: RATIO_TOLERANCE, points })
    });
    let head = ["schemes", "pause, loss", "published", "ours", "ours / published", "35 %", "order"];
    let blocks = [
        Some(words.paragraph("lead")),
        Block::figure(words.text("figure"), chart.into_iter().collect()),
        Block::table(words.text("table"), head, comparison.pairs.iter().map(pair).collect()),
    ];
    words.section(blocks.into_iter().flatten())
}

fn name(pair: &Pair) -> String {
    format!("{} / {}", pair.first.scheme, pair.second.scheme)
}

fn point(pair: &Pair) -> Option<RatioPoint> {
    let colour = match (pair.first.scheme.as_str(), pair.second.scheme.as_str()) {
        ("tcp", "split-tcp") => 1,
        ("tcp", "srp") => 2,
        _ => 3,
    };
    let (name, place) = (name(pair), place(&pair.first));
    Some(RatioPoint { name, place, colour, published: pair.published, ours: pair.ours? })
}

fn pair(pair: &Pair) -> Vec<Entry> {
    let quotient = pair.ours.map(|ours| format!("{:.2}", ours.value / pair.published.value));
    let ratio = |ratio: Ratio| Entry::with_interval(ratio.value, ratio.interval, 2);
    vec![
        Entry::text(name(pair)),
        Entry::text(place(&pair.first)),
        ratio(pair.published),
        pair.ours.map_or_else(Entry::dash, ratio),
        quotient.map_or_else(Entry::dash, Entry::text),
        closeness(pair.is_close()),
        order(pair.order),
    ]
}

fn courses(prose: &Prose, courses: &[(Label, Course)]) -> Section {
    let words = prose.section("courses");
    let blocks = courses.iter().filter_map(|(label, course)| {
        let values: Values<'_> = &[("scheme", &label.scheme), ("place", &place(label))];
        Block::figure(words.filled("figure", values), drawn(label, course).to_vec())
    });
    words.section(blocks)
}

/// How far a transfer came, and its window.
fn drawn(label: &Label, course: &Course) -> [Chart; 2] {
    let chart = |title: &str, lines: Vec<Line>| {
        let spans = course.pauses.iter().map(|&(from, to)| Span { from, to });
        Chart::lines(format!("{}: {title}", label.scheme), "kB", spans, lines)
    };
    let line = |name, colour, points: &[(f64, f64)]| {
        let points = points.iter().map(|(at, bytes)| (*at, bytes / 1000.0)).collect();
        Line::steps(name, colour, points)
    };
    let slope = |name, colour, points| Line { steps: false, ..line(name, colour, points) };
    [
        chart(
            "bytes",
            vec![slope("sent", 0, &course.sent), slope("delivered", 2, &course.delivered)],
        ),
        chart("window", vec![line("cwnd", 1, &course.cwnd)]),
    ]
}

fn beside(prose: &Prose, comparison: &Comparison) -> Section {
    let words = prose.section("beside");
    let table = |caption: &str, take: fn(&str) -> bool| {
        let ours = comparison.measured().filter(|m| !m.compared && take(&m.label.table));
        wide(words.text(caption), &ours.collect::<Vec<_>>())
    };
    let blocks = [
        table("single", |table| table != REPEATED && table != SENSITIVITY),
        table("repeated", |table| table == REPEATED),
        table("sensitivity", |table| table == SENSITIVITY),
    ];
    words.section(blocks.into_iter().flatten())
}

/// A table with one row for each row and column of `cells`, and one column for each scheme.
fn wide(caption: String, cells: &[&Measured]) -> Option<Block> {
    let schemes = once_each(cells.iter().map(|m| m.label.scheme.as_str()));
    let places = once_each(cells.iter().map(|m| [m.label.row.as_str(), &m.label.column]));
    let row = |[row, column]: [&str; 2]| {
        let entry = |scheme: &&str| {
            let mut here = cells.iter().filter(|m| m.label.words()[1..] == [row, column, scheme]);
            here.next().map_or_else(Entry::dash, |m| with_failures(value(m.ours.estimate()), m))
        };
        let place = Entry::with_small(row, column);
        std::iter::once(place).chain(schemes.iter().map(entry)).collect()
    };
    let rows = places.into_iter().map(row).collect();
    Block::table(caption, head("", schemes.iter().copied()), rows)
}

fn misses(prose: &Prose, comparison: &Comparison) -> Section {
    let words = prose.section("misses");
    let off = |c: &&Compared| c.mark != Mark::Within || c.order == Some(Order::Wrong);
    let note = |c: &Compared| Note {
        name: format!("{}: {}", c.cell.label.scheme, place(&c.cell.label)),
        text: miss(&words, comparison, c),
    };
    let mut reasons: Vec<(&str, Vec<Note>)> = Vec::new();
    for cell in comparison.printed().filter(off) {
        let reason = misses::reason(&cell.cell.label).unwrap_or("unknown");
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, notes)) => notes.push(note(cell)),
            None => reasons.push((reason, vec![note(cell)])),
        }
    }
    let mut blocks = Vec::new();
    if !reasons.is_empty() {
        blocks.push(words.paragraph("lead"));
    }
    for (reason, notes) in reasons {
        blocks.extend([words.paragraph(reason), Block::Notes(notes)]);
    }
    words.section(blocks)
}

fn miss(words: &Words<'_>, comparison: &Comparison, compared: &Compared) -> String {
    let cell = &compared.cell;
    let (published, ours) =
        (print::estimate(cell.published), print::estimate(cell.ours.estimate()));
    let mut told = vec![words.filled("miss", &[("published", &published), ("ours", &ours)])];
    if cell.ours.failures() > 0 {
        let values: Values<'_> = &[
            ("failures", &cell.ours.failures()),
            ("runs", &cell.ours.runs()),
            ("reasons", &cell.reasons.join("; ")),
        ];
        told.push(words.filled("failed", values));
    }
    let off = |pair: &&Pair| !pair.is_close() || pair.order == Order::Wrong;
    for pair in comparison.pairs.iter().filter(|p| p.has(&cell.label)).filter(off) {
        let published = format!("{:.2}", pair.published.value);
        let ours = pair.ours.map_or_else(|| "unknown".to_owned(), |r| format!("{:.2}", r.value));
        let values: Values<'_> =
            &[("schemes", &name(pair)), ("published", &published), ("ours", &ours)];
        told.push(words.filled("ratio", values));
    }
    told.join(" ")
}

fn parameters(prose: &Prose, setup: &Setup, published: &Published) -> Section {
    let words = prose.section("setup");
    let of = |kind: Kind| Block::Parameters(setup.of(kind).cloned().collect());
    words.section([
        words.paragraph("fitted"),
        of(Kind::Fitted),
        words.paragraph("assumed"),
        of(Kind::Assumed),
        words.paragraph("stated"),
        of(Kind::Stated),
        words.paragraph("said"),
        page::stated(published),
    ])
}
