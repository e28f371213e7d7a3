//! The report's figures and tables of what was simulated.

use super::Series;
use super::cells::FIGURE_22_TABLE;
use super::content::Content;
use super::gains::{cell, gains, mean, rows};
use super::points::Points;
use crate::analysis::obtcp::Batch;
use crate::analysis::obtcp::reference::{Curve, Reference};
use crate::published::Published;
use crate::report::chart::{Chart, Line, Lines, Range, RangeSeries, Ranges};
use crate::report::{Block, Entry, Figure, Section, Table};
use crate::reproduce::page::{dash, measured, value};
use crate::reproduce::{Gain, Measured, print};
use crate::stats::Estimate;

/// A figure that is simulated: where it stands, and what is swept.
struct Drawn {
    id: &'static str,
    axis: &'static str,
}

const DRAWN: [Drawn; 6] = [
    Drawn { id: "figure14", axis: "d2" },
    Drawn { id: "figure15", axis: "d2" },
    Drawn { id: "figure17", axis: "p1" },
    Drawn { id: "figure18", axis: "d1 = d2" },
    Drawn { id: "figure20", axis: "d1" },
    Drawn { id: "figure21", axis: "d2" },
];

/// The schemes that charts show, with their colours.
const SHOWN: [(&str, usize); 4] = [("none", 0), ("snoop", 1), ("obtcp", 2), ("obtcp-all", 3)];
/// All schemes of section VI, in the order of tables.
const SCHEMES: [&str; 8] = [
    "none",
    "snoop",
    "snoop-ns2",
    "obtcp",
    "obtcp-timers",
    "obtcp-gbn",
    "obtcp-gbn-timers",
    "obtcp-all",
];
/// Those that gain on snoop, with their colours.
const GAINING: [(&str, usize); 4] =
    [("obtcp", 2), ("obtcp-timers", 4), ("obtcp-gbn-timers", 5), ("obtcp-all", 3)];

/// Figures 14 to 21.
pub(super) fn section_6(content: &Content<'_>) -> Section {
    let words = content.prose.section("goodputs");
    let mut blocks = Vec::new();
    for drawn in DRAWN.iter().filter(|d| !rows(content.comparison, d.id).is_empty()) {
        let title = words.text(drawn.id);
        let caption = |text: &str| words.filled(text, &[("title", &title)]);
        blocks.push(Block::Figure(Figure {
            caption: caption("figure"),
            charts: vec![goodputs(content, drawn), percents(content, drawn)],
        }));
        blocks.push(Block::Table(goodput_table(content, drawn, caption("goodput"))));
        blocks.push(Block::Table(gain_table(content, drawn, caption("gain"))));
    }
    words.section(blocks)
}

fn goodputs(content: &Content<'_>, drawn: &Drawn) -> Chart {
    let rows = rows(content.comparison, drawn.id);
    let ours = SHOWN.iter().map(|(scheme, colour)| {
        let at = |row: &&str| cell(content.comparison, drawn.id, row, scheme);
        series(scheme, *colour, false, rows.iter().map(|row| at(row)?.ours.estimate()))
    });
    let point = |row: &str| content.points.at(drawn.id, row);
    let alone = |value: f64| Estimate::new(value, 1, None);
    let models = [
        series("snoop by (16)", 1, true, rows.iter().map(|row| Some(alone(point(row)?.snoop())))),
        series("obTCP by (20)", 2, true, rows.iter().map(|row| Some(alone(point(row)?.obtcp())))),
    ];
    let ns2 = content
        .reference
        .curve(drawn.id, "snoop")
        .map(|curve| series("ns-2's snoop", 4, true, rows.iter().map(|row| estimate(curve, row))));
    Chart::Ranges(Ranges {
        title: "goodput".to_owned(),
        x_label: drawn.axis.to_owned(),
        y_label: "kB/s".to_owned(),
        categories: rows.iter().map(|row| (*row).to_owned()).collect(),
        series: ours.chain(models).chain(ns2).collect(),
    })
}

fn percents(content: &Content<'_>, drawn: &Drawn) -> Chart {
    let rows = rows(content.comparison, drawn.id);
    let ours = GAINING.iter().map(|(scheme, colour)| {
        let gains = gains(content.comparison, drawn.id, scheme, "snoop");
        let at = |row: &&str| {
            let (_, gain) = gains.iter().find(|(at, _)| at == *row)?;
            Some(Range { mean: gain.percent, interval: gain.interval })
        };
        let ranges = rows.iter().map(at).collect();
        RangeSeries { name: (*scheme).to_owned(), colour: *colour, hollow: false, ranges }
    });
    let model = |row: &&str| {
        let gain = content.points.at(drawn.id, row)?.gain();
        Some(Range { mean: gain, interval: None })
    };
    let by_model = RangeSeries {
        name: "by (16) and (20)".to_owned(),
        colour: 0,
        hollow: true,
        ranges: rows.iter().map(model).collect(),
    };
    Chart::Ranges(Ranges {
        title: "gain over snoop".to_owned(),
        x_label: drawn.axis.to_owned(),
        y_label: "%".to_owned(),
        categories: rows.iter().map(|row| (*row).to_owned()).collect(),
        series: ours.chain([by_model]).collect(),
    })
}

fn series(
    name: &str,
    colour: usize,
    hollow: bool,
    values: impl Iterator<Item = Option<Estimate>>,
) -> RangeSeries {
    let range = |e: Estimate| Range { mean: e.mean, interval: e.interval() };
    let ranges = values.map(|value| value.map(range)).collect();
    RangeSeries { name: name.to_owned(), colour, hollow, ranges }
}

/// What ns-2 has at a point of a curve.
fn estimate(curve: &Curve, row: &str) -> Option<Estimate> {
    let point = curve.at(row)?;
    let interval =
        |half: f64| crate::stats::Interval { lo: point.mean - half, hi: point.mean + half };
    Some(match point.half {
        Some(half) => Estimate::of_printed(point.mean, interval(half), NS2_RUNS),
        None => Estimate::new(point.mean, 1, None),
    })
}

/// Of how few runs ns-2's intervals may be; they are drawn as they are told, whatever this is.
const NS2_RUNS: u32 = 3;

fn goodput_table(content: &Content<'_>, drawn: &Drawn, caption: String) -> Table {
    let ns2 = ["reno", "snoop", "snoop-pinned"];
    let heads = [drawn.axis].into_iter().map(str::to_owned).chain(SCHEMES.map(str::to_owned));
    let beside = ["(16)", "(20)"].map(str::to_owned);
    let ns2_heads = ns2.iter().filter_map(|scheme| {
        content.reference.curve(drawn.id, scheme).map(|_| format!("ns-2: {scheme}"))
    });
    let row = |row: &&str| {
        let ours = SCHEMES.map(|scheme| {
            cell(content.comparison, drawn.id, row, scheme).map_or_else(dash, measured)
        });
        let point = content.points.at(drawn.id, row);
        let model = [
            point.map_or_else(dash, |p| {
                let doubted = if p.doubts().is_empty() { "" } else { "doubted" };
                Entry::with_small(format!("{:.1}", p.snoop()), doubted)
            }),
            point.map_or_else(dash, |p| Entry::text(format!("{:.1}", p.obtcp()))),
        ];
        let others = ns2.iter().filter_map(|scheme| {
            let curve = content.reference.curve(drawn.id, scheme)?;
            Some(value(estimate(curve, row)))
        });
        [Entry::text(*row)].into_iter().chain(ours).chain(model).chain(others).collect()
    };
    Table {
        caption,
        head: heads.chain(beside).chain(ns2_heads).collect(),
        rows: rows(content.comparison, drawn.id).iter().map(row).collect(),
    }
}

fn gain_table(content: &Content<'_>, drawn: &Drawn, caption: String) -> Table {
    let over = |scheme: &str, over: &str| gains(content.comparison, drawn.id, scheme, over);
    let columns: Vec<(String, Vec<(String, Gain)>)> = GAINING
        .iter()
        .map(|(scheme, _)| ((*scheme).to_owned(), over(scheme, "snoop")))
        .chain([("obtcp over snoop-ns2".to_owned(), over("obtcp", "snoop-ns2"))])
        .collect();
    let row = |row: &&str| {
        let ours = columns.iter().map(|(_, gains)| {
            gains.iter().find(|(at, _)| at == *row).map_or_else(dash, |(_, gain)| percent(gain))
        });
        let model = content
            .points
            .at(drawn.id, row)
            .map_or_else(dash, |p| Entry::text(format!("{:.0}", p.gain())));
        [Entry::text(*row)].into_iter().chain(ours).chain([model]).collect()
    };
    let names = columns.iter().map(|(name, _)| name.clone());
    Table {
        caption,
        head: [drawn.axis.to_owned()]
            .into_iter()
            .chain(names)
            .chain(["by (16) and (20)".to_owned()])
            .collect(),
        rows: rows(content.comparison, drawn.id).iter().map(row).collect(),
    }
}

fn percent(gain: &Gain) -> Entry {
    let small = gain.interval.map(|i| format!("[{:.0}, {:.0}]", i.lo, i.hi)).unwrap_or_default();
    Entry::with_small(format!("{:.0}", gain.percent), small)
}

/// The gains that the text gives, beside the largest of ours and of the model's.
pub(super) fn maxima(content: &Content<'_>) -> Section {
    let words = content.prose.section("gains");
    let Some(table) = content.published.table("gains") else {
        return words.section(Vec::new());
    };
    let rows: Vec<Vec<Entry>> = table
        .row
        .iter()
        .zip(GIVEN)
        .filter_map(|(row, (figure, at))| {
            let largest = |scheme: &str| {
                let gains = gains(content.comparison, figure, scheme, "snoop");
                let here = gains.into_iter().filter(|(row, _)| at.is_none_or(|at| row == at));
                here.max_by(|(_, a), (_, b)| a.percent.total_cmp(&b.percent))
            };
            largest("obtcp").or_else(|| largest("obtcp-gbn"))?;
            let told = |gain: Option<(String, Gain)>| {
                let at = |(row, gain): (String, Gain)| Entry {
                    text: percent(&gain).text,
                    small: format!("at {row}"),
                    tone: None,
                };
                gain.map_or_else(dash, at)
            };
            let printed = row.cell.first().and_then(|cell| cell.alone());
            Some(vec![
                Entry::text(row.label.clone()),
                Entry::text(printed.map_or_else(|| "-".to_owned(), |p| format!("{p:.0}"))),
                told(largest("obtcp")),
                told(largest("obtcp-timers")),
                told(largest("obtcp-gbn-timers")),
                told(largest("obtcp-all")),
                by_model(content.points, figure, at),
            ])
        })
        .collect();
    let mut blocks = Vec::new();
    if !rows.is_empty() {
        blocks.push(Block::Table(Table {
            caption: words.text("table"),
            head: [
                "where",
                "published",
                "obtcp",
                "obtcp-timers",
                "obtcp-gbn-timers",
                "obtcp-all",
                "by (16) and (20)",
            ]
            .map(str::to_owned)
            .to_vec(),
            rows,
        }));
    }
    words.section(blocks)
}

/// Where the rows of the published gains are in our cells.
const GIVEN: [(&str, Option<&str>); 6] = [
    ("figure14", None),
    ("figure15", None),
    ("figure17", None),
    ("figure18", None),
    ("figure24", Some("0.001")),
    ("figure24", Some("0.1")),
];

fn by_model(points: &Points, figure: &str, at: Option<&str>) -> Entry {
    let here = points.iter().filter(|(f, row, _)| *f == figure && at.is_none_or(|at| at == *row));
    let best = here.map(|(_, row, point)| (point.gain(), row)).max_by(|a, b| a.0.total_cmp(&b.0));
    best.map_or_else(dash, |(gain, row)| {
        Entry::with_small(format!("{gain:.0}"), format!("at {row}"))
    })
}

/// Figure 22.
pub(super) fn round_trips(content: &Content<'_>) -> Section {
    let words = content.prose.section("round-trips");
    let of = |m: &&Measured| m.label.table == FIGURE_22_TABLE;
    let cells: Vec<&Measured> =
        content.comparison.cells.iter().map(|c| &c.cell).filter(of).collect();
    let mut blocks = Vec::new();
    if content.round_trips.iter().any(|(_, series)| !series.is_empty()) {
        let line = |(i, (scheme, series)): (usize, &(String, Series))| {
            let first = series.first().map_or(0.0, |(at, _)| *at);
            let points = series.iter().map(|(at, value)| (at - first, *value)).collect();
            Line { name: scheme.clone(), colour: i + 1, steps: true, points }
        };
        blocks.push(Block::Figure(Figure {
            caption: words.text("figure"),
            charts: vec![Chart::Lines(Lines {
                title: "smoothed round trip".to_owned(),
                y_label: "ms".to_owned(),
                spans: Vec::new(),
                lines: content.round_trips.iter().enumerate().map(line).collect(),
            })],
        }));
    }
    if !cells.is_empty() {
        blocks.push(Block::Table(Table {
            caption: words.text("table"),
            head: ["scheme", "which", "ours"].map(str::to_owned).to_vec(),
            rows: cells
                .iter()
                .map(|m| {
                    let label = &m.label;
                    vec![
                        Entry::text(label.scheme.clone()),
                        Entry::text(label.column.clone()),
                        measured(m),
                    ]
                })
                .collect(),
        }));
    }
    words.section(blocks)
}

/// Figure 24.
pub(super) fn model(content: &Content<'_>) -> Section {
    let words = content.prose.section("model");
    let rows = rows(content.comparison, "figure24");
    if rows.is_empty() {
        return words.section(Vec::new());
    }
    let last = content.points.at("figure24", "0.1");
    let fitted = last.and_then(|point| point.first_batch_for(40.0)).unwrap_or(Batch::ONE);
    let row = |row: &&str| {
        let at = |scheme: &str| mean(content.comparison, "figure24", row, scheme);
        let point = content.points.at("figure24", row)?;
        let off = |ours: Option<f64>, model: f64| {
            let text = ours
                .map_or_else(|| "-".to_owned(), |o| format!("{:+.1}", 100.0 * (o / model - 1.0)));
            Entry::text(text)
        };
        let plain = |value: f64| Entry::text(format!("{value:.1}"));
        let gain = gains(content.comparison, "figure24", "obtcp", "snoop");
        let gain = gain.iter().find(|(at, _)| at == *row);
        let gain = gain.map_or_else(dash, |(_, gain)| percent(gain));
        Some(vec![
            Entry::text(*row),
            plain(point.snoop()),
            at("snoop").map_or_else(dash, plain),
            off(at("snoop"), point.snoop()),
            plain(point.obtcp()),
            plain(point.obtcp_with(Batch::ONE)),
            plain(point.obtcp_with(fitted)),
            at("obtcp").map_or_else(dash, plain),
            off(at("obtcp"), point.obtcp()),
            gain,
            Entry::text(format!("{:.0}", point.gain())),
        ])
    };
    let head = [
        "p1",
        "(16)",
        "snoop",
        "off by %",
        "(20), n1 = 1/(1-p1)",
        "(20), n1 = 1",
        "(20), n1 for 40 % at 0.1",
        "obtcp",
        "off by %",
        "gain",
        "by (16) and (20)",
    ];
    let table = Table {
        caption: words.text("table"),
        head: head.map(str::to_owned).to_vec(),
        rows: rows.iter().filter_map(row).collect(),
    };
    words.section(vec![Block::Table(table)])
}

/// Tables 5 and 6.
pub(super) fn tables(content: &Content<'_>) -> Section {
    let words = content.prose.section("tables");
    let mut blocks = Vec::new();
    for table in ["table5", "table6"] {
        let rows: Vec<Vec<Entry>> =
            LOSSES.iter().filter_map(|p1| shared(content, table, p1)).collect();
        if rows.is_empty() {
            continue;
        }
        let head = [
            "p1",
            "obTCP",
            "ours",
            "snoop",
            "ours",
            "ω",
            "ours",
            "ψ",
            "ours",
            "ω, ψ with timers",
            "ns-2, two snoop flows",
            "ω, ψ",
        ];
        blocks.push(Block::Table(Table {
            caption: words.filled("table", &[("title", &words.text(table))]),
            head: head.map(str::to_owned).to_vec(),
            rows,
        }));
    }
    words.section(blocks)
}

const LOSSES: [&str; 5] = ["0", "0.005", "0.01", "0.05", "0.1"];

fn shared(content: &Content<'_>, table: &str, p1: &str) -> Option<Vec<Entry>> {
    let find = |of: &str, scheme: &str| {
        let id = format!("{table}-{of}");
        let mut cells = content.comparison.cells.iter().map(|c| &c.cell);
        cells.find(|m| m.label.table == id && m.label.row == p1 && m.label.scheme == scheme)
    };
    let any = ["goodput", "fairness", "utilisation"]
        .into_iter()
        .any(|of| ["obtcp", "snoop", "both"].iter().any(|scheme| find(of, scheme).is_some()));
    if !any {
        return None;
    }
    let both = |of: &str, scheme: &str| {
        let printed = printed(content.published, table, of, scheme, p1);
        [
            printed.map_or_else(dash, |p| Entry::text(p.to_string())),
            find(of, scheme).map_or_else(dash, measured),
        ]
    };
    let short = |of: &str| {
        let mean = find(of, "both+timers").and_then(|m| m.ours.estimate()).map(|e| e.mean);
        mean.map_or_else(|| "-".to_owned(), |m| format!("{m:.*}", print::digits(m)))
    };
    let mut row = vec![Entry::text(p1)];
    row.extend(both("goodput", "obtcp"));
    row.extend(both("goodput", "snoop"));
    row.extend(both("fairness", "both"));
    row.extend(both("utilisation", "both"));
    row.push(Entry::text(format!("{}, {}", short("fairness"), short("utilisation"))));
    row.extend(in_ns2(content.reference, table, p1));
    Some(row)
}

fn printed(published: &Published, table: &str, of: &str, scheme: &str, p1: &str) -> Option<f64> {
    let name = if of == "goodput" { scheme } else { of };
    let table = published.table(&format!("{table}-{name}"))?;
    table.row.iter().find(|row| row.label == p1)?.cell.first()?.alone()
}

fn in_ns2(reference: &Reference, table: &str, p1: &str) -> [Entry; 2] {
    match reference.pair(table, p1, ["snoop", "snoop"]) {
        Some(pair) => [
            Entry::text(format!("{:.1}, {:.1}", pair.goodput[0], pair.goodput[1])),
            Entry::text(format!("{:.3}, {:.1}", pair.fairness, pair.utilisation)),
        ],
        None => [dash(), dash()],
    }
}
