//! The report's figures and tables of what was simulated.

use super::cells::{
    ALTERNATIVES, DELAY, DELAYS, ERRORS, ETHERNET, FIGURE_15, FIGURE_16, GAINS, GOODPUT, HANDOFF,
    JITTER, LONG_ROWS, LOSSY, MOBILE_TCP, SENSITIVITY, SETTLED, TCP, WIRELESS,
};
use super::content::Content;
use super::gains::{gain, normalised};
use super::ns2::Row;
use crate::report::chart::{Chart, Range, RangeSeries, Ranges};
use crate::report::{Block, Entry, Figure, Section, Table};
use crate::reproduce::page::{dash, measured};
use crate::reproduce::prose::Words;
use crate::reproduce::{Comparison, Gain, Label};
use crate::stats::Estimate;

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

fn colour(scheme: &str) -> usize {
    COLOURS.iter().find(|(name, _)| *name == scheme).map_or(0, |(_, colour)| *colour)
}

/// The labels of a table's cells, each once, in order.
fn distinct<'a>(
    comparison: &'a Comparison,
    table: &str,
    of: fn(&Label) -> &String,
) -> Vec<&'a str> {
    let mut labels: Vec<&str> = Vec::new();
    for compared in comparison.cells.iter().filter(|c| c.cell.label.table == table) {
        let label = of(&compared.cell.label).as_str();
        if !labels.contains(&label) {
            labels.push(label);
        }
    }
    labels
}

fn rows<'a>(comparison: &'a Comparison, table: &str) -> Vec<&'a str> {
    distinct(comparison, table, |label| &label.row)
}

fn schemes<'a>(comparison: &'a Comparison, table: &str) -> Vec<&'a str> {
    distinct(comparison, table, |label| &label.scheme)
}

fn range(estimate: Estimate) -> Range {
    Range { mean: estimate.mean, interval: estimate.interval() }
}

fn series(name: &str, colour: usize, hollow: bool, ranges: Vec<Option<Range>>) -> RangeSeries {
    RangeSeries { name: name.to_owned(), colour, hollow, ranges }
}

fn chart(title: &str, [x, y]: [&str; 2], rows: &[&str], series: Vec<RangeSeries>) -> Chart {
    Chart::Ranges(Ranges {
        title: title.to_owned(),
        x_label: x.to_owned(),
        y_label: y.to_owned(),
        categories: rows.iter().map(|row| stripped(row).to_owned()).collect(),
        series,
    })
}

/// A row's value without what it is of.
fn stripped(row: &str) -> &str {
    row.strip_prefix("PER ").or_else(|| row.strip_prefix("FR ")).unwrap_or(row)
}

fn percent(gain: Gain) -> Entry {
    let small = gain.interval.map(|i| format!("[{:.1}, {:.1}]", i.lo, i.hi)).unwrap_or_default();
    Entry::with_small(format!("{:.1}", gain.percent), small)
}

fn head<'a>(first: &'a str, rest: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    [first].into_iter().chain(rest).map(str::to_owned).collect()
}

/// The gains beside those that the text gives.
pub(super) fn printed(content: &Content<'_>) -> Section {
    let words = content.prose.section("gains");
    let row = |row: &&str| {
        let cell = content.comparison.at([GAINS, row, "gain", MOBILE_TCP])?;
        let over = |other: &str| {
            let gain = content.comparison.gain([FIGURE_15, row, GOODPUT], MOBILE_TCP, other);
            gain.map_or_else(dash, percent)
        };
        let printed = cell.published.map_or_else(dash, |p| Entry::text(format!("{:.0}", p.mean)));
        Some(vec![
            Entry::text(*row),
            printed,
            over(TCP),
            measured(cell),
            over("ms-tcp-200"),
            over("tcp-linux"),
        ])
    };
    let rows: Vec<_> = ERRORS.iter().filter_map(row).collect();
    let mut blocks = Vec::new();
    if !rows.is_empty() {
        blocks.push(Block::Table(Table {
            caption: words.text("table"),
            head: head(
                "packet error rate",
                ["published", "ours", "with equal fades", "over ms-tcp-200", "over tcp-linux"],
            ),
            rows,
        }));
    }
    words.section(blocks)
}

/// Figure 15.
pub(super) fn figure_15(content: &Content<'_>) -> Section {
    let words = content.prose.section("figure-15");
    let comparison = content.comparison;
    let (rows, schemes) = (rows(comparison, FIGURE_15), schemes(comparison, FIGURE_15));
    if rows.is_empty() {
        return words.section(Vec::new());
    }
    let cell = |row: &str, scheme: &str| comparison.at([FIGURE_15, row, GOODPUT, scheme]);
    let goodputs = schemes.iter().map(|scheme| {
        let at = |row: &&str| cell(row, scheme)?.ours.estimate().map(range);
        series(scheme, colour(scheme), false, rows.iter().map(at).collect())
    });
    let figure = Figure {
        caption: words.text("figure"),
        charts: vec![chart(
            "wireless, 0.66 Mbit/s",
            ["packet error rate", "kbit/s"],
            &rows,
            goodputs.collect(),
        )],
    };
    let table_row = |row: &&str| {
        let ours = schemes.iter().map(|scheme| cell(row, scheme).map_or_else(dash, measured));
        let gain = gain(comparison, [FIGURE_15, row, GOODPUT]).map_or_else(dash, percent);
        [Entry::text(*row)].into_iter().chain(ours).chain([gain]).collect()
    };
    let table = Table {
        caption: words.text("table"),
        head: head("packet error rate", schemes.iter().copied().chain(["gain"])),
        rows: rows.iter().map(table_row).collect(),
    };
    let mut blocks = vec![Block::Figure(figure), Block::Table(table)];
    blocks.extend(settled(content, &words));
    words.section(blocks)
}

/// Transfers of both lengths.
fn settled(content: &Content<'_>, words: &Words<'_>) -> Option<Block> {
    let comparison = content.comparison;
    let row = |row: &&str| {
        comparison.at([SETTLED, row, GOODPUT, TCP])?;
        let at = |table: &str, scheme: &str| {
            comparison.at([table, row, GOODPUT, scheme]).map_or_else(dash, measured)
        };
        Some(vec![
            Entry::text(*row),
            at(FIGURE_15, TCP),
            at(SETTLED, TCP),
            at(FIGURE_15, MOBILE_TCP),
            at(SETTLED, MOBILE_TCP),
        ])
    };
    let rows: Vec<_> = LONG_ROWS.iter().filter_map(row).collect();
    let length = if content.request.full { "100 000" } else { "20 000" };
    let columns = [(TCP, length), (TCP, "100 000"), (MOBILE_TCP, length), (MOBILE_TCP, "100 000")]
        .map(|(scheme, buffers)| format!("{scheme}, {buffers}"));
    (!rows.is_empty()).then(|| {
        Block::Table(Table {
            caption: words.text("lengths"),
            head: head("packet error rate", columns.iter().map(String::as_str)),
            rows,
        })
    })
}

/// Figure 16.
pub(super) fn figure_16(content: &Content<'_>) -> Section {
    let words = content.prose.section("figure-16");
    let comparison = content.comparison;
    let curves = [
        (WIRELESS, TCP, 0, false),
        (WIRELESS, MOBILE_TCP, 2, false),
        (ETHERNET, TCP, 0, true),
        (ETHERNET, MOBILE_TCP, 2, true),
    ];
    let at = |network: &str, scheme: &str, row: &str| normalised(comparison, network, row, scheme);
    let rows = rows(comparison, FIGURE_16);
    let drawn = curves.map(|(network, scheme, colour, hollow)| {
        let at = |row: &&str| {
            let ratio = at(network, scheme, row)?;
            Some(Range { mean: ratio.value, interval: ratio.interval })
        };
        series(&format!("{scheme}, {network}"), colour, hollow, rows.iter().map(at).collect())
    });
    if drawn.iter().all(|series| series.ranges.iter().all(Option::is_none)) {
        return words.section(Vec::new());
    }
    let figure = Figure {
        caption: words.text("figure"),
        charts: vec![chart(
            "normalised throughput",
            ["share of time in fades", "of the peak"],
            &rows,
            drawn.to_vec(),
        )],
    };
    let row = |row: &&str| {
        let values = curves.iter().map(|(network, scheme, ..)| {
            let goodput = comparison.at([FIGURE_16, row, network, scheme]).map(measured);
            let goodput = goodput.map(|e| format!("{} kbit/s", e.text)).unwrap_or_default();
            at(network, scheme, row).map_or_else(dash, |ratio| {
                Entry::with_small(format!("{:.3}", ratio.value), goodput)
            })
        });
        [Entry::text(*row)].into_iter().chain(values).collect()
    };
    let names = curves.map(|(network, scheme, ..)| format!("{scheme}, {network}"));
    let table = Table {
        caption: words.text("table"),
        head: head("fades", names.iter().map(String::as_str)),
        rows: rows.iter().map(row).collect(),
    };
    words.section(vec![Block::Figure(figure), Block::Table(table)])
}

/// Figures 17 and 18.
pub(super) fn delays(content: &Content<'_>) -> Section {
    let words = content.prose.section("delays");
    let comparison = content.comparison;
    let mut blocks = Vec::new();
    for ((table, network), number) in DELAYS.into_iter().zip([17, 18]) {
        let rows = rows(comparison, table);
        if rows.is_empty() {
            continue;
        }
        let drawn = |column: &str, title: &str| {
            let of = |scheme: &&str| {
                let at = |row: &&str| {
                    comparison.at([table, row, column, scheme])?.ours.estimate().map(range)
                };
                series(scheme, colour(scheme), false, rows.iter().map(at).collect())
            };
            let both = [TCP, MOBILE_TCP].iter().map(of).collect();
            chart(title, ["share of time in fades", "ms"], &rows, both)
        };
        blocks.push(Block::Figure(Figure {
            caption: words.filled("figure", &[("number", &number), ("network", &network)]),
            charts: vec![drawn(DELAY, "inter-buffer delay"), drawn(JITTER, "jitter")],
        }));
        let places = [(DELAY, TCP), (DELAY, MOBILE_TCP), (JITTER, TCP), (JITTER, MOBILE_TCP)];
        let row = |row: &&str| {
            let values = places.iter().map(|(column, scheme)| {
                comparison.at([table, row, column, scheme]).map_or_else(dash, measured)
            });
            [Entry::text(*row)].into_iter().chain(values).collect()
        };
        let names = places.map(|(column, scheme)| format!("{column}, {scheme}"));
        blocks.push(Block::Table(Table {
            caption: words.filled("table", &[("number", &number)]),
            head: head("fades", names.iter().map(String::as_str)),
            rows: rows.iter().map(row).collect(),
        }));
    }
    words.section(blocks)
}

/// TCP beside ns-2's.
pub(super) fn beside_ns2(content: &Content<'_>) -> Section {
    let words = content.prose.section("ns2");
    let entry = |row: &Row, share: &str| {
        let mut points = content.ns2.points(row, content.comparison);
        points.find(|p| p.share == share).map_or_else(dash, |point| {
            let (mean, half) = point.theirs;
            let mut entry = measured(point.ours);
            entry.small = format!("ns-2 {mean} ±{half}");
            entry
        })
    };
    let row = |row: &Row| {
        let apart = if row.apart { ", apart" } else { "" };
        let name = Entry::text(format!("{}, {}{apart}", row.sender, row.timer));
        let values = content.ns2.shares.iter().map(|share| entry(row, share));
        [name].into_iter().chain(values).collect::<Vec<_>>()
    };
    let rows: Vec<_> = content
        .ns2
        .rows
        .iter()
        .filter(|row| content.ns2.points(row, content.comparison).next().is_some())
        .map(row)
        .collect();
    let mut blocks = Vec::new();
    if !rows.is_empty() {
        blocks.push(words.paragraph("lead"));
        blocks.push(Block::Table(Table {
            caption: words.text("table"),
            head: head("sender", content.ns2.shares.iter().map(String::as_str)),
            rows,
        }));
    }
    words.section(blocks)
}

/// EXP-H9.
pub(super) fn handoffs(content: &Content<'_>) -> Section {
    let words = content.prose.section("handoffs");
    let comparison = content.comparison;
    let (rows, schemes) = (rows(comparison, HANDOFF), schemes(comparison, HANDOFF));
    let rates = distinct(comparison, HANDOFF, |label| &label.column);
    let mut blocks = Vec::new();
    for scheme in schemes {
        let row = |row: &&str| {
            let values = rates.iter().map(|rate| {
                comparison.at([HANDOFF, row, rate, scheme]).map_or_else(dash, measured)
            });
            [Entry::text(*row)].into_iter().chain(values).collect()
        };
        blocks.push(Block::Table(Table {
            caption: words.filled("table", &[("scheme", &scheme)]),
            head: head("buffer", rates.iter().copied()),
            rows: rows.iter().map(row).collect(),
        }));
    }
    blocks.extend(lossy_handoffs(comparison, &words));
    words.section(blocks)
}

/// EXP-Y4.
fn lossy_handoffs(comparison: &Comparison, words: &Words<'_>) -> Vec<Block> {
    let columns = distinct(comparison, LOSSY, |label| &label.column);
    let rows = rows(comparison, LOSSY);
    let table = |scheme: &&str| {
        let row = |row: &&str| {
            let values = columns.iter().map(|column| {
                comparison.at([LOSSY, row, column, scheme]).map_or_else(dash, measured)
            });
            [Entry::text(*row)].into_iter().chain(values).collect()
        };
        Block::Table(Table {
            caption: words.filled("lossy", &[("scheme", scheme)]),
            head: head("lost on each", columns.iter().copied()),
            rows: rows.iter().map(row).collect(),
        })
    };
    schemes(comparison, LOSSY).iter().map(table).collect()
}

/// EXP-H10.
pub(super) fn alternatives(content: &Content<'_>) -> Section {
    let words = content.prose.section("alternatives");
    let comparison = content.comparison;
    let schemes = schemes(comparison, ALTERNATIVES);
    let paths = distinct(comparison, ALTERNATIVES, |label| &label.column);
    let rows = rows(comparison, ALTERNATIVES);
    let mut blocks = Vec::new();
    for path in paths {
        let cell = |row: &str, scheme: &str| comparison.at([ALTERNATIVES, row, path, scheme]);
        let drawn = schemes.iter().map(|scheme| {
            let at = |row: &&str| cell(row, scheme)?.ours.estimate().map(range);
            series(scheme, colour(scheme), false, rows.iter().map(at).collect())
        });
        let away = if path == "far" { "50 ms" } else { "1 ms" };
        blocks.push(Block::Figure(Figure {
            caption: words.filled("figure", &[("away", &away)]),
            charts: vec![chart(path, ["packet error rate", "kbit/s"], &rows, drawn.collect())],
        }));
        let row = |row: &&str| {
            let values = schemes.iter().map(|scheme| cell(row, scheme).map_or_else(dash, measured));
            [Entry::text(*row)].into_iter().chain(values).collect()
        };
        blocks.push(Block::Table(Table {
            caption: words.filled("table", &[("away", &away)]),
            head: head("packet error rate", schemes.iter().copied()),
            rows: rows.iter().map(row).collect(),
        }));
    }
    words.section(blocks)
}

/// What the assumptions are worth.
pub(super) fn sensitivity(content: &Content<'_>) -> Section {
    let words = content.prose.section("sensitivity");
    let comparison = content.comparison;
    let changed = rows(comparison, SENSITIVITY);
    let columns = distinct(comparison, SENSITIVITY, |label| &label.column);
    let entry = |table: &str, row: &str, column: &str| {
        let of = |scheme: &str| {
            let cell = comparison.at([table, row, column, scheme]);
            cell.map_or_else(dash, measured).text
        };
        let gain = gain(comparison, [table, row, column]).map_or_else(dash, percent);
        Entry::with_small(gain.text, format!("{} over {}", of(MOBILE_TCP), of(TCP)))
    };
    let assumed = columns.iter().map(|column| entry(FIGURE_15, column, GOODPUT));
    let first = [Entry::text("as assumed")].into_iter().chain(assumed).collect();
    let rest = changed.iter().map(|row| {
        let own = columns.iter().map(|column| entry(SENSITIVITY, row, column));
        [Entry::text(*row)].into_iter().chain(own).collect()
    });
    let mut blocks = Vec::new();
    if !changed.is_empty() {
        blocks.push(Block::Table(Table {
            caption: words.text("table"),
            head: head("", columns.iter().copied()),
            rows: [first].into_iter().chain(rest).collect(),
        }));
    }
    words.section(blocks)
}
