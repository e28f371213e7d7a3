//! The report: what was published and what we get, as a document.

use super::cells::{REPEATED, SENSITIVITY};
use super::misses;
use super::setup::Experiment;
use crate::published::Published;
use crate::report::chart::{
    Chart, Line, Lines, Range, RangeSeries, Ranges, RatioPoint, Ratios, Span,
};
use crate::report::{Block, Entry, Figure, Note, Report, Section, Table, Tone};
use crate::reproduce::page::{self, inconsistencies, note, paragraph, said};
use crate::reproduce::{
    Compared, Comparison, Course, Criterion, Kind, Label, Mark, Measured, Order, Pair,
    RATIO_TOLERANCE, Request, print,
};
use crate::stats::{Estimate, Ratio};

/// What a report is made of.
pub(super) struct Content<'a> {
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

fn summary() -> String {
    let setup = Experiment::default().setup();
    let fitted: Vec<&str> = setup.of(Kind::Fitted).map(|p| p.name.as_str()).collect();
    format!(
        "A 100 kB file crosses a lossy hop and a wired path of the early Internet, with one handoff \
         on the way, by end-to-end TCP, by TCP split at the base station, and by SRP on the hop. \
         Published values and ours stand side by side, each a mean with its 95 % interval. What was \
         fitted ({}) was fitted to the three cells without pause and loss. Where an \
         assumption was made with other published values in sight, as that of the mean burst of \
         loss was, the set-up says so.",
        fitted.join(", ")
    )
}

pub(super) fn report(content: &Content<'_>) -> Report {
    let sections = vec![
        result(content),
        tables(content),
        figures(content),
        ratios(content.comparison),
        courses(content.courses),
        beside(content.comparison),
        misses(content.comparison),
        setup(content.published),
        said(content.published),
        inconsistencies(content.published),
        method(),
    ];
    page::report(content.published, &summary(), sections)
}

fn result(content: &Content<'_>) -> Section {
    page::result(content.criteria, Vec::new(), content.request, super::ID)
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
    Section::new("Tables", blocks)
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
    let Some(table) = content.published.tables.first() else {
        return Section::new("Figures", Vec::new());
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
        blocks.push(Block::Figure(Figure {
            caption: "Mean transfer time by pause, for each loss, with 95 % intervals. Hollow: \
                published. Filled: ours."
                .to_owned(),
            charts,
        }));
    }
    Section::new("Transfer times", blocks)
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

fn ratios(comparison: &Comparison) -> Section {
    if comparison.pairs.is_empty() {
        return Section::new("Ratios between schemes", Vec::new());
    }
    let points: Vec<RatioPoint> = comparison.pairs.iter().filter_map(point).collect();
    let table = Table {
        caption: "Ratios of mean transfer times".to_owned(),
        head: ["schemes", "pause, loss", "published", "ours", "ours / published", "35 %", "order"]
            .map(str::to_owned)
            .to_vec(),
        rows: comparison.pairs.iter().map(pair).collect(),
    };
    let mut blocks = vec![Block::Paragraph(
        "What the schemes are to each other depends less on the Internet of 1994 than seconds do. \
         Intervals are those of the delta method on the logarithm."
            .to_owned(),
    )];
    if !points.is_empty() {
        blocks.push(Block::Figure(Figure {
            caption: "Our ratios against published ones, with 95 % intervals. On the dashed line \
                both are equal; the band is 35 % to either side."
                .to_owned(),
            charts: vec![Chart::Ratios(Ratios {
                title: "Ratios of transfer times".to_owned(),
                band: RATIO_TOLERANCE,
                points,
            })],
        }));
    }
    blocks.push(Block::Table(table));
    Section::new("Ratios between schemes", blocks)
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

fn courses(courses: &[(Label, Course)]) -> Section {
    let mut blocks = Vec::new();
    for (label, course) in courses {
        blocks.push(Block::Figure(Figure {
            caption: format!(
                "The first run of {} at {}. Shaded: the handoff pause.",
                label.scheme,
                place(label)
            ),
            charts: vec![
                Chart::Lines(progress(label, course)),
                Chart::Lines(window(label, course)),
            ],
        }));
    }
    Section::new("Single runs", blocks)
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

fn beside(comparison: &Comparison) -> Section {
    let ours = comparison.cells.iter().filter(|c| !c.cell.compared);
    let ours: Vec<&Measured> = ours.map(|c| &c.cell).collect();
    let of = |take: &dyn Fn(&str) -> bool| {
        ours.iter().copied().filter(|m| take(&m.label.table)).collect::<Vec<_>>()
    };
    let single = of(&|table| table != REPEATED && table != SENSITIVITY);
    let repeated = of(&|table| table == REPEATED);
    let sensitivity = of(&|table| table == SENSITIVITY);
    let mut blocks = Vec::new();
    for (cells, caption) in [
        (single, "One handoff, by schemes that the paper does not measure, in s"),
        (repeated, "Handoffs 5 to 10 s apart, which the paper ran without printing numbers, in s"),
        (sensitivity, "One assumption changed, the rest as it was, in s"),
    ] {
        if !cells.is_empty() {
            blocks.push(Block::Table(wide(caption, &cells)));
        }
    }
    Section::new("What the paper does not print", blocks)
}

/// A table with one row for each row and column of `cells`, and one column for each scheme.
fn wide(caption: &str, cells: &[&Measured]) -> Table {
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
        caption: caption.to_owned(),
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

fn misses(comparison: &Comparison) -> Section {
    let off = |c: &&Compared| c.mark != Mark::Within || c.order == Some(Order::Wrong);
    let note = |c: &Compared| Note {
        name: format!("{}: {}", c.cell.label.scheme, place(&c.cell.label)),
        text: miss(comparison, c),
    };
    let mut reasons: Vec<(&str, Vec<Note>)> = Vec::new();
    for cell in comparison.printed().filter(off) {
        let reason = misses::reason(&cell.cell.label).unwrap_or("No reason has been found.");
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, notes)) => notes.push(note(cell)),
            None => reasons.push((reason, vec![note(cell)])),
        }
    }
    let lead = "Every printed cell whose mean of ours lies outside of the published interval, or \
        whose scheme is out of order, below the reason that is known.";
    let mut blocks = Vec::new();
    if !reasons.is_empty() {
        blocks.push(Block::Paragraph(lead.to_owned()));
    }
    for (reason, notes) in reasons {
        blocks.extend([Block::Paragraph(reason.to_owned()), Block::Notes(notes)]);
    }
    Section::new("What is off, and why", blocks)
}

fn miss(comparison: &Comparison, compared: &Compared) -> String {
    let cell = &compared.cell;
    let mut text = format!(
        "Published {}, ours {}.",
        print::estimate(cell.published),
        print::estimate(cell.ours.estimate())
    );
    if cell.ours.failures() > 0 {
        text += &format!(" {} of {} runs failed", cell.ours.failures(), cell.ours.runs());
        text += &format!(" ({}).", cell.reasons.join("; "));
    }
    let off = |pair: &&Pair| !pair.is_close() || pair.order == Order::Wrong;
    for pair in comparison.pairs.iter().filter(|p| p.has(&cell.label)).filter(off) {
        text += &format!(" {}: published {:.2}, ", name(pair), pair.published.value);
        text += &pair
            .ours
            .map_or_else(|| "ours unknown.".to_owned(), |r| format!("ours {:.2}.", r.value));
    }
    text
}

fn setup(published: &Published) -> Section {
    let setup = Experiment::default().setup();
    let of = |kind: Kind| Block::Parameters(setup.of(kind).cloned().collect());
    Section::new(
        "Set-up",
        vec![
            paragraph("Fitted, to the cells without pause and loss and to nothing else:"),
            of(Kind::Fitted),
            paragraph(
                "Assumed, since the paper does not say; none of them differs from cell to cell:",
            ),
            of(Kind::Assumed),
            paragraph("Taken from the paper:"),
            of(Kind::Stated),
            paragraph("All that the paper says of its set-up:"),
            page::stated(published),
        ],
    )
}

fn method() -> Section {
    let notes = vec![
        note(
            "runs",
            "Each run has a seed of its own, which follows from the seed of the whole, the \
            labels of the cell and the number of the run. Runs are independent of each other.",
        ),
        note(
            "interval",
            "95 %, by Student's t over the runs that came to their end. The others are \
            counted beside it; a cell with one of them is a miss.",
        ),
        note("within", "Our mean lies in the published interval."),
        note("overlaps", "Our interval and the published one overlap."),
        note(
            "ratio",
            "The ratio to every other scheme printed for the same pause and loss is within \
            35 % of the published ratio.",
        ),
        note(
            "order",
            "The scheme is in order with every other scheme printed for the same pause and \
            loss: the means are ordered as published, or the published intervals overlap, so that \
            the paper itself does not decide (undecided).",
        ),
        note("miss", "None of these."),
        note("unpublished", "The paper prints no value here."),
        note("not-run", "No run came to its end."),
    ];
    Section::new("How it was measured and marked", vec![Block::Notes(notes)])
}
