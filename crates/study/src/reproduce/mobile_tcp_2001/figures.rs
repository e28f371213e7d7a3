//! The report's figures and tables of what was simulated.

use super::Content;
use super::cells::{
    ALTERNATIVES, DELAY, DELAYS, ERRORS, ETHERNET, FIGURE_15, FIGURE_16, GAINS, GOODPUT, HANDOFF,
    JITTER, LONG_ROWS, LOSSY, MOBILE_TCP, SENSITIVITY, SETTLED, TCP, WIRELESS,
};
use super::gains::{gain, normalised};
use super::ns2::Row;
use crate::report::chart::{Chart, RangeSeries};
use crate::report::{Block, Entry, Section};
use crate::reproduce::Comparison;
use crate::reproduce::page::{at, colour, grid, head, measured, percent, series};
use crate::reproduce::prose::Words;

/// Schemes with their colours.
const COLOURS: [(&str, usize); 9] = [
    (TCP, 0),
    ("ms-tcp-200", 3),
    ("tcp-linux", 1),
    (MOBILE_TCP, 2),
    ("mobile-tcp-24", 4),
    ("snoop", 1),
    ("split-tcp", 3),
    ("srp", 4),
    ("mobile-tcp-unsplit", 5),
];

fn chart(title: &str, labels: [&str; 2], rows: &[&str], series: Vec<RangeSeries>) -> Chart {
    Chart::ranges(title, labels, rows.iter().map(|row| stripped(row)), series)
}

/// A row's value without what it is of.
fn stripped(row: &str) -> &str {
    row.strip_prefix("PER ").or_else(|| row.strip_prefix("FR ")).unwrap_or(row)
}

/// What schemes gave in the rows of a table and column.
fn curves(
    comparison: &Comparison,
    [table, column]: [&str; 2],
    rows: &[&str],
    schemes: &[&str],
) -> Vec<RangeSeries> {
    let curve =
        |scheme: &&str| series(comparison, [table, column, scheme], rows, colour(&COLOURS, scheme));
    schemes.iter().map(curve).collect()
}

/// The gains beside those that the text gives.
pub(super) fn printed(content: &Content<'_>) -> Section {
    let words = content.prose.section("gains");
    let row = |row: &&str| {
        let cell = content.comparison.at([GAINS, row, "gain", MOBILE_TCP])?;
        let over = |other: &str| {
            percent(content.comparison.gain([FIGURE_15, row, GOODPUT], MOBILE_TCP, other), 1)
        };
        let printed = cell.published.map(|p| Entry::text(format!("{:.0}", p.mean)));
        let printed = printed.unwrap_or_else(Entry::dash);
        let ours = [over(TCP), measured(cell), over("ms-tcp-200"), over("tcp-linux")];
        Some(Entry::row(*row, [printed].into_iter().chain(ours)))
    };
    let head = [
        "packet error rate",
        "published",
        "ours",
        "with equal fades",
        "over ms-tcp-200",
        "over tcp-linux",
    ];
    let rows = ERRORS.iter().filter_map(row).collect();
    words.section(Block::table(words.text("table"), head, rows))
}

/// Figure 15.
pub(super) fn figure_15(content: &Content<'_>) -> Section {
    let words = content.prose.section("figure-15");
    let comparison = &content.comparison;
    let (rows, schemes) = (comparison.rows(FIGURE_15), comparison.schemes(FIGURE_15));
    if rows.is_empty() {
        return words.section([]);
    }
    let goodputs = curves(comparison, [FIGURE_15, GOODPUT], &rows, &schemes);
    let chart = chart("wireless, 0.66 Mbit/s", ["packet error rate", "kbit/s"], &rows, goodputs);
    let row = |row: &&str| {
        let ours = schemes.iter().map(|scheme| at(comparison, [FIGURE_15, row, GOODPUT, scheme]));
        let gain = percent(gain(comparison, [FIGURE_15, row, GOODPUT]), 1);
        Entry::row(*row, ours.chain([gain]))
    };
    let head = head("packet error rate", schemes.iter().copied().chain(["gain"]));
    let blocks = [
        Block::figure(words.text("figure"), vec![chart]),
        Block::table(words.text("table"), head, rows.iter().map(row).collect()),
        settled(content, &words),
    ];
    words.section(blocks.into_iter().flatten())
}

/// Transfers of both lengths.
fn settled(content: &Content<'_>, words: &Words<'_>) -> Option<Block> {
    let comparison = &content.comparison;
    let mut rows = LONG_ROWS.to_vec();
    rows.retain(|row| comparison.at([SETTLED, row, GOODPUT, TCP]).is_some());
    let length = if content.request.full { "100 000" } else { "20 000" };
    let lengths = [(FIGURE_15, length), (SETTLED, "100 000")];
    let columns: Vec<_> = [TCP, MOBILE_TCP]
        .into_iter()
        .flat_map(|scheme| lengths.map(|(table, length)| (table, scheme, length)))
        .collect();
    let head = head(
        "packet error rate",
        columns.iter().map(|(_, scheme, buffers)| format!("{scheme}, {buffers}")),
    );
    let entry = |row: &str, (table, scheme, _): &(&str, &str, &str)| {
        at(comparison, [table, row, GOODPUT, scheme])
    };
    Block::table(words.text("lengths"), head, grid(&rows, &columns, entry))
}

/// Figure 16.
pub(super) fn figure_16(content: &Content<'_>) -> Section {
    let words = content.prose.section("figure-16");
    let comparison = &content.comparison;
    let curves = [
        (WIRELESS, TCP, 0, false),
        (WIRELESS, MOBILE_TCP, 2, false),
        (ETHERNET, TCP, 0, true),
        (ETHERNET, MOBILE_TCP, 2, true),
    ];
    let names = curves.map(|(network, scheme, ..)| format!("{scheme}, {network}"));
    let rows = comparison.rows(FIGURE_16);
    let drawn = curves.iter().zip(&names).map(|((network, scheme, colour, hollow), name)| {
        let at = |row: &&str| normalised(comparison, network, row, scheme);
        RangeSeries { hollow: *hollow, ..RangeSeries::new(name, *colour, rows.iter().map(at)) }
    });
    let drawn: Vec<RangeSeries> = drawn.collect();
    if drawn.iter().all(|series| series.ranges.iter().all(Option::is_none)) {
        return words.section([]);
    }
    let labels = ["share of time in fades", "of the peak"];
    let chart = chart("normalised throughput", labels, &rows, drawn);
    let entry = |row: &str, (network, scheme, ..): &(&str, &str, usize, bool)| {
        let goodput = comparison.at([FIGURE_16, row, network, scheme]).map(measured);
        let goodput = goodput.map(|e| format!("{} kbit/s", e.text)).unwrap_or_default();
        normalised(comparison, network, row, scheme).map_or_else(Entry::dash, |ratio| {
            Entry::with_small(format!("{:.3}", ratio.value), goodput)
        })
    };
    let blocks = [
        Block::figure(words.text("figure"), vec![chart]),
        Block::table(words.text("table"), head("fades", names), grid(&rows, &curves, entry)),
    ];
    words.section(blocks.into_iter().flatten())
}

/// Figures 17 and 18.
pub(super) fn delays(content: &Content<'_>) -> Section {
    let words = content.prose.section("delays");
    let comparison = &content.comparison;
    let blocks = DELAYS.into_iter().zip([17, 18]).flat_map(|((table, network), number)| {
        let rows = comparison.rows(table);
        if rows.is_empty() {
            return [None, None];
        }
        let drawn = |column: &str, title: &str| {
            let both = curves(comparison, [table, column], &rows, &[TCP, MOBILE_TCP]);
            chart(title, ["share of time in fades", "ms"], &rows, both)
        };
        let charts = vec![drawn(DELAY, "inter-buffer delay"), drawn(JITTER, "jitter")];
        let caption = words.filled("figure", &[("number", &number), ("network", &network)]);
        let places = [(DELAY, TCP), (DELAY, MOBILE_TCP), (JITTER, TCP), (JITTER, MOBILE_TCP)];
        let head = head("fades", places.map(|(column, scheme)| format!("{column}, {scheme}")));
        let entry = |row: &str, (column, scheme): &(&str, &str)| {
            at(comparison, [table, row, column, scheme])
        };
        let title = words.filled("table", &[("number", &number)]);
        [Block::figure(caption, charts), Block::table(title, head, grid(&rows, &places, entry))]
    });
    words.section(blocks.flatten())
}

/// TCP beside ns-2's.
pub(super) fn beside_ns2(content: &Content<'_>) -> Section {
    let words = content.prose.section("ns2");
    let ns2 = &content.own.ns2;
    let row = |row: &Row| {
        ns2.points(row, &content.comparison).next()?;
        let apart = if row.apart { ", apart" } else { "" };
        let values = ns2.shares.iter().map(|share| {
            let mut points = ns2.points(row, &content.comparison);
            points.find(|p| p.share == share).map_or_else(Entry::dash, |point| {
                let (mean, half) = point.theirs;
                Entry { small: format!("ns-2 {mean} ±{half}"), ..measured(point.ours) }
            })
        });
        Some(Entry::row(format!("{}, {}{apart}", row.sender, row.timer), values))
    };
    let rows = ns2.rows.iter().filter_map(row).collect();
    let table = Block::table(words.text("table"), head("sender", &ns2.shares), rows);
    words.section(table.into_iter().flat_map(|table| [words.paragraph("lead"), table]))
}

/// EXP-H9.
pub(super) fn handoffs(content: &Content<'_>) -> Section {
    let words = content.prose.section("handoffs");
    let of = |table, text, rows| by_scheme(&content.comparison, &words, table, text, rows);
    let latencies = of(HANDOFF, "table", "buffer");
    words.section(latencies.into_iter().chain(of(LOSSY, "lossy", "lost on each")))
}

/// A table of rows and columns for each scheme.
fn by_scheme(
    comparison: &Comparison,
    words: &Words<'_>,
    table: &str,
    text: &str,
    rows: &str,
) -> Vec<Block> {
    let columns = comparison.columns(table);
    let one = |scheme: &str| {
        let entry = |row: &str, column: &&str| at(comparison, [table, row, column, scheme]);
        let caption = words.filled(text, &[("scheme", &scheme)]);
        let head = head(rows, columns.iter().copied());
        Block::table(caption, head, grid(&comparison.rows(table), &columns, entry))
    };
    comparison.schemes(table).into_iter().filter_map(one).collect()
}

/// EXP-H10.
pub(super) fn alternatives(content: &Content<'_>) -> Section {
    let words = content.prose.section("alternatives");
    let comparison = &content.comparison;
    let (rows, schemes) = (comparison.rows(ALTERNATIVES), comparison.schemes(ALTERNATIVES));
    let blocks = comparison.columns(ALTERNATIVES).into_iter().flat_map(|path| {
        let drawn = curves(comparison, [ALTERNATIVES, path], &rows, &schemes);
        let away = if path == "far" { "50 ms" } else { "1 ms" };
        let caption = |text| words.filled(text, &[("away", &away)]);
        let chart = chart(path, ["packet error rate", "kbit/s"], &rows, drawn);
        let entry = |row: &str, scheme: &&str| at(comparison, [ALTERNATIVES, row, path, scheme]);
        let head = head("packet error rate", schemes.iter().copied());
        [
            Block::figure(caption("figure"), vec![chart]),
            Block::table(caption("table"), head, grid(&rows, &schemes, entry)),
        ]
    });
    words.section(blocks.flatten())
}

/// What the assumptions are worth.
pub(super) fn sensitivity(content: &Content<'_>) -> Section {
    let words = content.prose.section("sensitivity");
    let comparison = &content.comparison;
    let (changed, columns) = (comparison.rows(SENSITIVITY), comparison.columns(SENSITIVITY));
    let entry = |[table, row, column]: [&str; 3]| {
        let of = |scheme: &str| at(comparison, [table, row, column, scheme]).text;
        let gain = percent(gain(comparison, [table, row, column]), 1);
        Entry::with_small(gain.text, format!("{} over {}", of(MOBILE_TCP), of(TCP)))
    };
    let assumed = columns.iter().map(|column| entry([FIGURE_15, column, GOODPUT]));
    let first = Entry::row("as assumed", assumed);
    let rest = grid(&changed, &columns, |row, column| entry([SENSITIVITY, row, column]));
    let all = if rest.is_empty() { rest } else { [vec![first], rest].concat() };
    words.section(Block::table(words.text("table"), head("", columns), all))
}
