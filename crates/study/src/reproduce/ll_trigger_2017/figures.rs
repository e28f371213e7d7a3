//! The report's figures and tables of what was run.

use lasthop_units::Scheme;

use super::answers::{self, Answer, QUESTIONS};
use super::cells::{FIGURE_7, FIGURE_7_LONG, FIGURE_8, LONG, TABLE_2, THROUGHPUT, TIMEOUTS};
use super::criteria::{LONGEST, difference};
use super::{Content, Shown};
use crate::report::chart::{Chart, Line, Span};
use crate::report::{Block, Entry, Section, Table, Tone};
use crate::reproduce::Measured;
use crate::reproduce::cell::once_each;
use crate::reproduce::page::{grid, head, rounded, series, with_failures};

/// Around which part of a run figure 7 is drawn, in seconds.
const DRAWN: (f64, f64) = (105.0, 140.0);

/// Table II.
pub(super) fn timeouts(content: &Content<'_>) -> Section {
    let words = content.prose.section("timeouts");
    let comparison = &content.comparison;
    let schemes = comparison.schemes(TABLE_2);
    let entry = |row: &str, scheme: &&str| beside(comparison.at([TABLE_2, row, TIMEOUTS, scheme]));
    let rows = grid(&comparison.rows(TABLE_2), &schemes, entry);
    words.section(Block::table(words.text("table"), head("handoff time", schemes), rows))
}

/// Figure 7, drawn and in numbers.
pub(super) fn rates(content: &Content<'_>) -> Section {
    let words = content.prose.section("rates");
    let chart = |(scheme, shown): &(String, Shown)| {
        let drawn = |(at, _): &&(f64, f64)| (DRAWN.0..DRAWN.1).contains(at);
        let points = shown.rate.iter().filter(drawn).map(|(at, r)| (at - DRAWN.0, *r));
        let (from, to) = shown.handoff;
        let span = Span { from: from - DRAWN.0, to: to - DRAWN.0 };
        let line = Line::steps("mean in 1 s", 0, points.collect());
        Chart::lines(scheme, "kbit/s", [span], [line])
    };
    let figure = Block::figure(words.text("figure"), content.own.iter().map(chart).collect());
    let tables = [(FIGURE_7, "short"), (FIGURE_7_LONG, "long")].map(|(tables, caption)| {
        let cells = || tables.into_iter().flat_map(|table| content.comparison.of_table(table));
        let labels = || cells().map(|c| &c.cell.label);
        let schemes = once_each(labels().map(|label| label.scheme.as_str()));
        let places = once_each(labels().map(|label| [label.row.as_str(), &label.column]));
        let row = |[row, column]: [&str; 2]| {
            let of = |scheme: &&str| {
                let at = |table: &str| content.comparison.at([table, row, column, scheme]);
                beside(tables.into_iter().find_map(at))
            };
            let place = Entry::with_small(row, format!("mean {column}"));
            std::iter::once(place).chain(schemes.iter().map(of)).collect()
        };
        let rows = places.into_iter().map(row).collect();
        Block::table(words.text(caption), head("", schemes.iter().copied()), rows)
    });
    words.section([figure].into_iter().chain(tables).flatten())
}

/// Figure 8.
pub(super) fn throughput(content: &Content<'_>) -> Section {
    let words = content.prose.section("throughput");
    let comparison = &content.comparison;
    let (rows, schemes) = (comparison.rows(FIGURE_8), comparison.schemes(FIGURE_8));
    if rows.is_empty() {
        return words.section([]);
    }
    let drawn = schemes
        .iter()
        .enumerate()
        .map(|(colour, scheme)| series(comparison, [FIGURE_8, THROUGHPUT, scheme], &rows, colour));
    let chart = Chart::ranges(THROUGHPUT, ["handoff time", "kbit/s"], rows.clone(), drawn);
    let row = |seconds: u32| {
        let difference = difference(comparison, seconds)?;
        let row = format!("{seconds} s");
        let of = |scheme: &str| {
            let cell = comparison.at([FIGURE_8, &row, THROUGHPUT, scheme]);
            let estimate = cell.and_then(|cell| cell.ours.estimate());
            estimate.map_or_else(Entry::dash, |estimate| rounded(estimate, 2))
        };
        let difference = Entry::text(format!("{difference:.2}"));
        Some(Entry::row(row.as_str(), [of("snoop"), of("ll-freeze"), difference]))
    };
    let columns = ["handoff time", "snoop", "ll-freeze", "difference"];
    let table = (1..=LONGEST).filter_map(row).collect();
    let figure = Block::figure(words.text("figure"), vec![chart]);
    words
        .section(figure.into_iter().chain([Table::new(words.text("table"), columns, table).into()]))
}

/// Table I.
pub(super) fn characteristics(content: &Content<'_>) -> Section {
    let words = content.prose.section("characteristics");
    let measured = |scheme: &Scheme| answers::answer(&content.comparison, LONG, *scheme).is_some();
    let row = |scheme: Scheme| {
        let cell = |question: &str| {
            let ours = answers::answer(&content.comparison, question, scheme);
            let theirs = answers::printed(content.published, question, scheme);
            ours.map_or_else(Entry::dash, |ours| answered(question, ours, theirs))
        };
        let encrypted = Entry::text(word(answers::works_encrypted(scheme)));
        Entry::row(scheme.name(), QUESTIONS.map(cell).into_iter().chain([encrypted]))
    };
    let rows = Scheme::over_one_link().filter(measured).map(row).collect();
    let questions =
        QUESTIONS.map(|q| if q == answers::NODE { "changes to TCP on the way" } else { q });
    let head = head("scheme", questions.into_iter().chain(["encrypted payload"]));
    words.section(Block::table(words.text("table"), head, rows))
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

/// Our mean, with what is published in small print.
fn beside(cell: Option<&Measured>) -> Entry {
    let Some((cell, ours)) = cell.and_then(|cell| Some((cell, cell.ours.estimate()?))) else {
        return Entry::dash();
    };
    let small = cell.published.map(|p| format!("published {:.1}", p.mean)).unwrap_or_default();
    with_failures(Entry::with_small(format!("{:.1}", ours.mean), small), cell)
}
