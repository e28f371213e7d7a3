//! The report: what was published and what we get, as a document.

use super::cells::{REPEATED, SENSITIVITY};
use super::misses;
use super::setup::Experiment;
use crate::published::Published;
use crate::report::chart::{
    Chart, Line, Lines, Range, RangeSeries, Ranges, RatioPoint, Ratios, Span,
};
use crate::report::{Block, Entry, Figure, Note, Report, Section, Table, Tone};
use crate::reproduce::page::{self, inconsistencies, said};
use crate::reproduce::prose::{Prose, Values, Words};
use crate::reproduce::{
    Compared, Comparison, Course, Criterion, Kind, Label, Mark, Measured, Order, Pair,
    RATIO_TOLERANCE, ReproduceError, Request, Setup, print,
};
use crate::stats::{Estimate, Ratio};

/// What a report is made of.
pub(super) struct Content<'a> {
    pub(super) prose: &'a Prose,
    pub(super) published: &'a Published,
    pub(super) request: &'a Request,
    pub(super) comparison: &'a Comparison,
    pub(super) criteria: &'a [Criterion],
    pub(super) courses: &'a [(Label, Course)],
}

/// The schemes of the paper with their colours, and those beside them.
const COLOURS: [(&str, usize); 5] =
    [("tcp", 0), ("split-tcp", 1), ("srp", 2), ("srp-today", 3), ("i-tcp", 4)];

/// The row and column of the cells that parameters were fitted to.
pub(super) const BASE: [&str; 2] = ["0 s", "0 %"];

pub(super) fn report(content: &Content<'_>) -> Result<Report, ReproduceError> {
    let (prose, published) = (content.prose, content.published);
    let setup = Experiment::default().setup(prose);
    let fitted: Vec<&str> = setup.of(Kind::Fitted).map(|p| p.name.as_str()).collect();
    let sections = vec![
        page::result(prose, content.criteria, Vec::new(), content.request, super::ID),
        tables(content),
        figures(content),
        ratios(prose, content.comparison),
        courses(prose, content.courses),
        beside(prose, content.comparison),
        misses(prose, content.comparison),
        parameters(prose, &setup, published),
        said(prose, published),
        inconsistencies(prose, published),
        prose.section("method").noted(),
    ];
    page::report(prose, published, &[("fitted", &fitted.join(", "))], sections)
}

fn tables(content: &Content<'_>) -> Section {
    let mut blocks = Vec::new();
    for published in &content.published.tables {
        let cells =
            || content.comparison.cells.iter().filter(|c| c.cell.label.table == published.id);
        if cells().next().is_none() {
            continue;
        }
        let head =
            ["pause, loss", "published", "ours", "runs", "failed", "order", "ratios", "mark"];
        blocks.push(Block::Table(Table {
            caption: format!("{}, {} in {}", published.title, published.quantity, published.unit),
            head: head.map(str::to_owned).to_vec(),
            rows: cells().map(row).collect(),
        }));
    }
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
        compared.order.map_or_else(|| Entry::text("-"), order),
        compared.ratio.map_or_else(|| Entry::text("-"), closeness),
        Entry::mark(compared.mark.name(), tone(compared.mark)),
    ]
}

fn place(label: &Label) -> String {
    format!("{}, {}", label.row, label.column)
}

fn value(estimate: Option<Estimate>) -> Entry {
    let Some(estimate) = estimate else {
        return Entry::text("-");
    };
    let interval = estimate.interval();
    let small = interval.map(|i| format!("[{:.1}, {:.1}]", i.lo, i.hi)).unwrap_or_default();
    Entry::with_small(format!("{:.1}", estimate.mean), small)
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

fn tone(mark: Mark) -> Tone {
    match mark {
        Mark::Within | Mark::Overlaps | Mark::Near => Tone::Good,
        Mark::Ratio | Mark::Order => Tone::Fair,
        Mark::Miss | Mark::NotRun => Tone::Bad,
        Mark::Unpublished => Tone::Neutral,
    }
}

fn figures(content: &Content<'_>) -> Section {
    let words = content.prose.section("figures");
    let Some(table) = content.published.tables.first() else {
        return words.section(Vec::new());
    };
    let charts: Vec<Chart> = table
        .column
        .iter()
        .map(|column| ranges(content, column))
        .filter(|chart| chart.series.iter().any(|s| s.ranges.iter().any(Option::is_some)))
        .map(Chart::Ranges)
        .collect();
    let mut blocks = Vec::new();
    if !charts.is_empty() {
        blocks.push(Block::Figure(Figure { caption: words.text("figure"), charts }));
    }
    words.section(blocks)
}

fn ranges(content: &Content<'_>, column: &str) -> Ranges {
    let rows: Vec<String> =
        content.published.tables.iter().flat_map(|t| &t.row).fold(Vec::new(), |mut rows, row| {
            if !rows.contains(&row.label) {
                rows.push(row.label.clone());
            }
            rows
        });
    let series =
        COLOURS.iter().take(content.published.tables.len()).flat_map(|(scheme, colour)| {
            let at = |row: &String| {
                let cell = |c: &&Compared| {
                    let label = &c.cell.label;
                    c.cell.compared
                        && (label.scheme.as_str(), &label.row, label.column.as_str())
                            == (*scheme, row, column)
                };
                content.comparison.cells.iter().find(cell)
            };
            let series = |name: String,
                          hollow: bool,
                          of: &dyn Fn(&Measured) -> Option<Estimate>| {
                let ranges = rows.iter().map(|row| at(row).and_then(|c| of(&c.cell)).map(range));
                RangeSeries { name, colour: *colour, hollow, ranges: ranges.collect() }
            };
            [
                series(format!("{scheme}, published"), true, &|cell| cell.published),
                series(format!("{scheme}, ours"), false, &|cell| cell.ours.estimate()),
            ]
        });
    Ranges {
        title: format!("{column} loss"),
        x_label: "handoff pause".to_owned(),
        y_label: "transfer time in s".to_owned(),
        series: series.collect(),
        categories: rows.clone(),
    }
}

fn range(estimate: Estimate) -> Range {
    Range { mean: estimate.mean, interval: estimate.interval() }
}

fn ratios(prose: &Prose, comparison: &Comparison) -> Section {
    let words = prose.section("ratios");
    if comparison.pairs.is_empty() {
        return words.section(Vec::new());
    }
    let points: Vec<RatioPoint> = comparison.pairs.iter().filter_map(point).collect();
    let table = Table {
        caption: words.text("table"),
        head: ["schemes", "pause, loss", "published", "ours", "ours / published", "35 %", "order"]
            .map(str::to_owned)
            .to_vec(),
        rows: comparison.pairs.iter().map(pair).collect(),
    };
    let mut blocks = vec![words.paragraph("lead")];
    if !points.is_empty() {
        blocks.push(Block::Figure(Figure {
            caption: words.text("figure"),
            charts: vec![Chart::Ratios(Ratios {
                title: "Ratios of transfer times".to_owned(),
                band: RATIO_TOLERANCE,
                points,
            })],
        }));
    }
    blocks.push(Block::Table(table));
    words.section(blocks)
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
    vec![
        Entry::text(name(pair)),
        Entry::text(place(&pair.first)),
        ratio(Some(pair.published)),
        ratio(pair.ours),
        Entry::text(quotient.unwrap_or_else(|| "-".to_owned())),
        closeness(pair.is_close()),
        order(pair.order),
    ]
}

fn ratio(ratio: Option<Ratio>) -> Entry {
    let Some(ratio) = ratio else {
        return Entry::text("-");
    };
    let small = ratio.interval.map(|i| format!("[{:.2}, {:.2}]", i.lo, i.hi)).unwrap_or_default();
    Entry::with_small(format!("{:.2}", ratio.value), small)
}

fn courses(prose: &Prose, courses: &[(Label, Course)]) -> Section {
    let words = prose.section("courses");
    let mut blocks = Vec::new();
    for (label, course) in courses {
        blocks.push(Block::Figure(Figure {
            caption: words.filled("figure", &[("scheme", &label.scheme), ("place", &place(label))]),
            charts: vec![
                Chart::Lines(progress(label, course)),
                Chart::Lines(window(label, course)),
            ],
        }));
    }
    words.section(blocks)
}

fn progress(label: &Label, course: &Course) -> Lines {
    Lines {
        title: format!("{}: bytes", label.scheme),
        y_label: "kB".to_owned(),
        spans: spans(course),
        lines: vec![
            line("sent", 0, false, &course.sent),
            line("delivered", 2, false, &course.delivered),
        ],
    }
}

fn window(label: &Label, course: &Course) -> Lines {
    Lines {
        title: format!("{}: window", label.scheme),
        y_label: "kB".to_owned(),
        spans: spans(course),
        lines: vec![line("cwnd", 1, true, &course.cwnd)],
    }
}

fn spans(course: &Course) -> Vec<Span> {
    course.pauses.iter().map(|&(from, to)| Span { from, to }).collect()
}

fn line(name: &str, colour: usize, steps: bool, points: &[(f64, f64)]) -> Line {
    let points = points.iter().map(|(at, bytes)| (*at, bytes / 1000.0)).collect();
    Line { name: name.to_owned(), colour, steps, points }
}

fn beside(prose: &Prose, comparison: &Comparison) -> Section {
    let words = prose.section("beside");
    let ours = comparison.cells.iter().filter(|c| !c.cell.compared);
    let ours: Vec<&Measured> = ours.map(|c| &c.cell).collect();
    let of = |take: &dyn Fn(&str) -> bool| {
        ours.iter().copied().filter(|m| take(&m.label.table)).collect::<Vec<_>>()
    };
    let single = of(&|table| table != REPEATED && table != SENSITIVITY);
    let repeated = of(&|table| table == REPEATED);
    let sensitivity = of(&|table| table == SENSITIVITY);
    let mut blocks = Vec::new();
    for (cells, caption) in
        [(single, "single"), (repeated, "repeated"), (sensitivity, "sensitivity")]
    {
        if !cells.is_empty() {
            blocks.push(Block::Table(wide(words.text(caption), &cells)));
        }
    }
    words.section(blocks)
}

/// A table with one row for each row and column of `cells`, and one column for each scheme.
fn wide(caption: String, cells: &[&Measured]) -> Table {
    let (mut schemes, mut places) = (Vec::new(), Vec::new());
    for cell in cells {
        let at = (&cell.label.row, &cell.label.column);
        if !schemes.contains(&&cell.label.scheme) {
            schemes.push(&cell.label.scheme);
        }
        if !places.contains(&at) {
            places.push(at);
        }
    }
    let entry = |at: (&String, &String), scheme: &String| {
        let here = |m: &&&Measured| {
            (&m.label.row, &m.label.column, &m.label.scheme) == (at.0, at.1, scheme)
        };
        cells.iter().find(here).map_or_else(|| Entry::text("-"), |m| measured(m))
    };
    let row = |at: &(&String, &String)| {
        let place = Entry::with_small(at.0.clone(), at.1.clone());
        std::iter::once(place).chain(schemes.iter().map(|scheme| entry(*at, scheme))).collect()
    };
    Table {
        caption,
        head: std::iter::once(String::new()).chain(schemes.iter().map(|s| (*s).clone())).collect(),
        rows: places.iter().map(row).collect(),
    }
}

fn measured(cell: &Measured) -> Entry {
    let mut entry = value(cell.ours.estimate());
    if cell.ours.failures() > 0 {
        let space = if entry.small.is_empty() { "" } else { ", " };
        entry.small += &format!("{space}{} of {} failed", cell.ours.failures(), cell.ours.runs());
    }
    entry
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
    words.section(vec![
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
