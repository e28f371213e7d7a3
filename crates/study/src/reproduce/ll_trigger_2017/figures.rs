//! The report's figures and tables of what was run.

use lasthop_units::Scheme;

use super::answers::{self, Answer, QUESTIONS};
use super::cells::{FIGURE_7, FIGURE_7_LONG, FIGURE_8, LONG, TABLE_2, THROUGHPUT};
use super::content::Content;
use super::criteria::{LONGEST, difference};
use crate::report::chart::{Chart, Line, Lines, Range, RangeSeries, Ranges, Span};
use crate::report::{Block, Entry, Figure, Section, Table, Tone};
use crate::reproduce::page::dash;
use crate::reproduce::{Compared, Measured};
use crate::stats::Estimate;

/// Around which part of a run figure 7 is drawn, in seconds.
const DRAWN: (f64, f64) = (105.0, 140.0);

/// Table II.
pub(super) fn timeouts(content: &Content<'_>) -> Section {
    let words = content.prose.section("timeouts");
    let cells = cells(content, TABLE_2);
    let mut blocks = Vec::new();
    if !cells.is_empty() {
        let schemes: Vec<&str> = distinct(&cells, |m| &m.label.scheme);
        let rows: Vec<&str> = distinct(&cells, |m| &m.label.row);
        let row = |row: &&str| {
            let of = |scheme: &&str| {
                let own =
                    |m: &&&Compared| m.cell.label.row == *row && m.cell.label.scheme == *scheme;
                cells.iter().find(own).map_or_else(dash, |c| beside(&c.cell))
            };
            std::iter::once(Entry::text(*row)).chain(schemes.iter().map(of)).collect()
        };
        blocks.push(Block::Table(Table {
            caption: words.text("table"),
            head: head("handoff time", &schemes),
            rows: rows.iter().map(row).collect(),
        }));
    }
    words.section(blocks)
}

/// Figure 7, drawn and in numbers.
pub(super) fn rates(content: &Content<'_>) -> Section {
    let words = content.prose.section("rates");
    let mut blocks = Vec::new();
    if !content.shown.is_empty() {
        let chart = |(scheme, shown): &(String, super::Shown)| {
            let drawn = |(at, _): &&(f64, f64)| (DRAWN.0..DRAWN.1).contains(at);
            let points = shown.rate.iter().filter(drawn).map(|(at, r)| (at - DRAWN.0, *r));
            let (from, to) = shown.handoff;
            Chart::Lines(Lines {
                title: scheme.clone(),
                y_label: "kbit/s".to_owned(),
                spans: vec![Span { from: from - DRAWN.0, to: to - DRAWN.0 }],
                lines: vec![Line {
                    name: "mean in 1 s".to_owned(),
                    colour: 0,
                    steps: true,
                    points: points.collect(),
                }],
            })
        };
        blocks.push(Block::Figure(Figure {
            caption: words.text("figure"),
            charts: content.shown.iter().map(chart).collect(),
        }));
    }
    for (tables, caption) in [(FIGURE_7, "short"), (FIGURE_7_LONG, "long")] {
        let cells = tables.map(|table| cells(content, table)).concat();
        let schemes: Vec<&str> = distinct(&cells, |m| &m.label.scheme);
        if cells.is_empty() {
            continue;
        }
        let mut places: Vec<(&str, &str)> = Vec::new();
        for place in cells.iter().map(|c| (c.cell.label.row.as_str(), c.cell.label.column.as_str()))
        {
            if !places.contains(&place) {
                places.push(place);
            }
        }
        let row = |(row, column): &(&str, &str)| {
            let of = |scheme: &&str| {
                let own = |m: &&&Compared| {
                    let label = &m.cell.label;
                    [&label.row, &label.column, &label.scheme] == [row, column, scheme]
                };
                cells.iter().find(own).map_or_else(dash, |c| beside(&c.cell))
            };
            let place = Entry::with_small(*row, format!("mean {column}"));
            std::iter::once(place).chain(schemes.iter().map(of)).collect()
        };
        blocks.push(Block::Table(Table {
            caption: words.text(caption),
            head: head("", &schemes),
            rows: places.iter().map(row).collect(),
        }));
    }
    words.section(blocks)
}

/// Figure 8.
pub(super) fn throughput(content: &Content<'_>) -> Section {
    let words = content.prose.section("throughput");
    let cells = cells(content, FIGURE_8);
    let mut blocks = Vec::new();
    if !cells.is_empty() {
        let rows: Vec<&str> = distinct(&cells, |m| &m.label.row);
        let schemes: Vec<&str> = distinct(&cells, |m| &m.label.scheme);
        let series = |(colour, scheme): (usize, &&str)| RangeSeries {
            name: (*scheme).to_owned(),
            colour,
            hollow: false,
            ranges: rows.iter().map(|row| Some(range(at(&cells, row, scheme)?))).collect(),
        };
        blocks.push(Block::Figure(Figure {
            caption: words.text("figure"),
            charts: vec![Chart::Ranges(Ranges {
                title: THROUGHPUT.to_owned(),
                x_label: "handoff time".to_owned(),
                y_label: "kbit/s".to_owned(),
                categories: rows.iter().map(|row| (*row).to_owned()).collect(),
                series: schemes.iter().enumerate().map(series).collect(),
            })],
        }));
        let row = |seconds: u32| {
            let difference = difference(content.comparison, seconds)?;
            let row = format!("{seconds} s");
            let of = |scheme: &str| at(&cells, &row, scheme).map_or_else(dash, value);
            let text = Entry::text(format!("{difference:.2}"));
            Some(vec![Entry::text(row.clone()), of("snoop"), of("ll-freeze"), text])
        };
        blocks.push(Block::Table(Table {
            caption: words.text("table"),
            head: head("handoff time", &["snoop", "ll-freeze", "difference"]),
            rows: (1..=LONGEST).filter_map(row).collect(),
        }));
    }
    words.section(blocks)
}

/// Table I.
pub(super) fn characteristics(content: &Content<'_>) -> Section {
    let words = content.prose.section("characteristics");
    let measured = |scheme: &Scheme| answers::answer(content.comparison, LONG, *scheme).is_some();
    let schemes: Vec<Scheme> = Scheme::ALL.into_iter().filter(measured).collect();
    let mut blocks = Vec::new();
    if !schemes.is_empty() {
        let row = |scheme: &Scheme| {
            let cell = |question: &&str| {
                let ours = answers::answer(content.comparison, question, *scheme);
                let theirs = answers::printed(content.published, question, *scheme);
                ours.map_or_else(dash, |ours| answered(question, ours, theirs))
            };
            let encrypted = word(answers::works_encrypted(*scheme));
            std::iter::once(Entry::text(scheme.name()))
                .chain(QUESTIONS.iter().map(cell))
                .chain([Entry::text(encrypted)])
                .collect()
        };
        let questions: Vec<&str> = QUESTIONS
            .iter()
            .map(|q| if *q == answers::NODE { "changes to TCP on the way" } else { q })
            .chain(["encrypted payload"])
            .collect();
        blocks.push(Block::Table(Table {
            caption: words.text("table"),
            head: head("scheme", &questions),
            rows: schemes.iter().map(row).collect(),
        }));
    }
    words.section(blocks)
}

fn answered(question: &str, ours: Answer, theirs: Option<bool>) -> Entry {
    let tone = match theirs {
        Some(theirs) if theirs == ours.yes => Some(Tone::Good),
        Some(_) => Some(Tone::Bad),
        None => None,
    };
    let small = match (ours.value, ours.won) {
        (Some(share), Some(won)) => {
            // Rounded first, so that no zero gets a sign.
            format!("{share:.1} %, {} %", libm::round(100.0 * won) as i64)
        }
        (Some(early), None) if question == super::cells::SEMANTICS => format!("{early:.0} bytes"),
        _ => String::new(),
    };
    Entry { text: word(ours.yes).to_owned(), small, tone }
}

fn word(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

fn cells<'a>(content: &Content<'a>, table: &str) -> Vec<&'a Compared> {
    content.comparison.cells.iter().filter(|c| c.cell.label.table == table).collect()
}

fn at(cells: &[&Compared], row: &str, scheme: &str) -> Option<Estimate> {
    let own = |c: &&&Compared| c.cell.label.row == row && c.cell.label.scheme == scheme;
    cells.iter().find(own)?.cell.ours.estimate()
}

fn distinct<'a>(cells: &[&'a Compared], of: impl Fn(&'a Measured) -> &'a String) -> Vec<&'a str> {
    let mut all: Vec<&str> = Vec::new();
    for word in cells.iter().map(|c| of(&c.cell).as_str()) {
        if !all.contains(&word) {
            all.push(word);
        }
    }
    all
}

fn head(first: &str, others: &[&str]) -> Vec<String> {
    std::iter::once(&first).chain(others).map(|word| (*word).to_owned()).collect()
}

fn range(estimate: Estimate) -> Range {
    Range { mean: estimate.mean, interval: estimate.interval() }
}

fn value(estimate: Estimate) -> Entry {
    let small = estimate.interval().map(|i| format!("[{:.2}, {:.2}]", i.lo, i.hi));
    Entry::with_small(format!("{:.2}", estimate.mean), small.unwrap_or_default())
}

/// Our mean, with what is published in small print.
fn beside(cell: &Measured) -> Entry {
    let Some(ours) = cell.ours.estimate() else { return dash() };
    let mut small = cell.published.map(|p| format!("published {:.1}", p.mean)).unwrap_or_default();
    if cell.ours.failures() > 0 {
        let space = if small.is_empty() { "" } else { ", " };
        small += &format!("{space}{} of {} failed", cell.ours.failures(), cell.ours.runs());
    }
    Entry::with_small(format!("{:.1}", ours.mean), small)
}
