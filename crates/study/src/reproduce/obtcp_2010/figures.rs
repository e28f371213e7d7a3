//! The report's figures and tables of what was simulated.

use super::cells::{DRAWN, FIGURE_22_TABLE};
use super::gains::{gains, mean};
use super::points::Points;
use super::{Content, Series};
use crate::analysis::obtcp::Batch;
use crate::analysis::obtcp::reference::{Curve, Reference};
use crate::published::{Published, Row};
use crate::report::chart::{Chart, Line, RangeSeries};
use crate::report::{Block, Entry, Section, Table};
use crate::reproduce::page::{at, head, measured, percent, series, value};
use crate::reproduce::{Gain, print};
use crate::stats::{Estimate, Interval};

/// A figure that is simulated: where it stands, and what is swept.
struct Drawn {
    id: &'static str,
    axis: &'static str,
}

const FIGURES: [Drawn; 6] = [
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
    let blocks = FIGURES.iter().flat_map(|drawn| {
        let rows = content.comparison.rows(drawn.id);
        let title = words.text(drawn.id);
        let caption = |text: &str| words.filled(text, &[("title", &title)]);
        let charts = || vec![goodputs(content, drawn, &rows), percents(content, drawn, &rows)];
        let figure = (!rows.is_empty()).then(|| Block::figure(caption("figure"), charts()));
        [
            figure.flatten(),
            goodput_table(content, drawn, &rows, caption("goodput")),
            gain_table(content, drawn, &rows, caption("gain")),
        ]
    });
    words.section(blocks.flatten())
}

fn goodputs(content: &Content<'_>, drawn: &Drawn, rows: &[&str]) -> Chart {
    let ours = SHOWN.iter().map(|(scheme, colour)| {
        series(&content.comparison, [drawn.id, DRAWN, scheme], rows, *colour)
    });
    let point = |row: &str| content.own.points.at(drawn.id, row);
    let snoop = rows.iter().map(|row| Some(point(row)?.snoop()));
    let obtcp = rows.iter().map(|row| Some(point(row)?.obtcp()));
    let models = [
        RangeSeries::new("snoop by (16)", 1, snoop).hollow(),
        RangeSeries::new("obTCP by (20)", 2, obtcp).hollow(),
    ];
    let ns2 = content.own.reference.curve(drawn.id, "snoop").map(|curve| {
        let points = rows.iter().map(|row| estimate(curve, row));
        RangeSeries::new("ns-2's snoop", 4, points).hollow()
    });
    let all = ours.chain(models).chain(ns2);
    Chart::ranges("goodput", [drawn.axis, "kB/s"], rows.iter().copied(), all)
}

fn percents(content: &Content<'_>, drawn: &Drawn, rows: &[&str]) -> Chart {
    let ours = GAINING.iter().map(|(scheme, colour)| {
        let place = |row| [drawn.id, row, DRAWN];
        let gains = rows.iter().map(|row| content.comparison.gain(place(row), scheme, "snoop"));
        RangeSeries::new(*scheme, *colour, gains)
    });
    let model = rows.iter().map(|row| Some(content.own.points.at(drawn.id, row)?.gain()));
    let by_model = RangeSeries::new("by (16) and (20)", 0, model).hollow();
    let all = ours.chain([by_model]);
    Chart::ranges("gain over snoop", [drawn.axis, "%"], rows.iter().copied(), all)
}

/// What ns-2 has at a point of a curve.
fn estimate(curve: &Curve, row: &str) -> Option<Estimate> {
    let point = curve.at(row)?;
    let interval = |half: f64| Interval { lo: point.mean - half, hi: point.mean + half };
    Some(match point.half {
        Some(half) => Estimate::of_printed(point.mean, interval(half), NS2_RUNS),
        None => Estimate::new(point.mean, 1, None),
    })
}

/// Of how few runs ns-2's intervals may be; they are drawn as they are told, whatever this is.
const NS2_RUNS: u32 = 3;

fn goodput_table(
    content: &Content<'_>,
    drawn: &Drawn,
    rows: &[&str],
    caption: String,
) -> Option<Block> {
    let (points, reference) = (&content.own.points, &content.own.reference);
    let ns2 = ["reno", "snoop", "snoop-pinned"];
    let curves: Vec<&Curve> =
        ns2.iter().filter_map(|scheme| reference.curve(drawn.id, scheme)).collect();
    let columns = SCHEMES.into_iter().chain(["(16)", "(20)"]).map(str::to_owned);
    let columns = columns.chain(curves.iter().map(|curve| format!("ns-2: {}", curve.scheme)));
    let row = |row: &&str| {
        let ours = SCHEMES.map(|scheme| at(&content.comparison, [drawn.id, row, DRAWN, scheme]));
        let point = points.at(drawn.id, row);
        let model = [
            point.map(|p| {
                let doubted = if p.doubts().is_empty() { "" } else { "doubted" };
                Entry::with_small(format!("{:.1}", p.snoop()), doubted)
            }),
            point.map(|p| Entry::text(format!("{:.1}", p.obtcp()))),
        ];
        let model = model.map(|entry| entry.unwrap_or_else(Entry::dash));
        let others = curves.iter().map(|curve| value(estimate(curve, row)));
        Entry::row(*row, ours.into_iter().chain(model).chain(others))
    };
    Block::table(caption, head(drawn.axis, columns), rows.iter().map(row).collect())
}

fn gain_table(
    content: &Content<'_>,
    drawn: &Drawn,
    rows: &[&str],
    caption: String,
) -> Option<Block> {
    let over_snoop = GAINING.iter().map(|(scheme, _)| (*scheme, *scheme, "snoop"));
    let columns: Vec<(&str, &str, &str)> =
        over_snoop.chain([("obtcp over snoop-ns2", "obtcp", "snoop-ns2")]).collect();
    let row = |row: &&str| {
        let ours = columns.iter().map(|(_, scheme, over)| {
            percent(content.comparison.gain([drawn.id, row, DRAWN], scheme, over), 0)
        });
        let point = content.own.points.at(drawn.id, row);
        let model = point.map_or_else(Entry::dash, |p| Entry::text(format!("{:.0}", p.gain())));
        Entry::row(*row, ours.chain([model]))
    };
    let names = columns.iter().map(|(name, ..)| *name).chain(["by (16) and (20)"]);
    Block::table(caption, head(drawn.axis, names), rows.iter().map(row).collect())
}

/// The gains that the text gives, beside the largest of ours and of the model's.
pub(super) fn maxima(content: &Content<'_>) -> Section {
    let words = content.prose.section("gains");
    let Some(table) = content.published.table("gains") else {
        return words.section([]);
    };
    let row = |(row, (figure, at)): (&Row, (&str, Option<&str>))| {
        let largest = |scheme: &str| {
            let gains = gains(&content.comparison, figure, scheme, "snoop");
            let here = gains.into_iter().filter(|(row, _)| at.is_none_or(|at| row == at));
            here.max_by(|(_, a), (_, b)| a.percent.total_cmp(&b.percent))
        };
        largest("obtcp").or_else(|| largest("obtcp-gbn"))?;
        let told = |(row, gain): (String, Gain)| {
            Entry::with_small(percent(Some(gain), 0).text, format!("at {row}"))
        };
        let ours = ["obtcp", "obtcp-timers", "obtcp-gbn-timers", "obtcp-all"]
            .map(|scheme| largest(scheme).map_or_else(Entry::dash, told));
        let printed = row.cell.first().and_then(|cell| cell.alone());
        let printed = printed.map_or_else(Entry::dash, |p| Entry::text(format!("{p:.0}")));
        let model = by_model(&content.own.points, figure, at);
        Some(Entry::row(&row.label, [printed].into_iter().chain(ours).chain([model])))
    };
    let rows = table.row.iter().zip(GIVEN).filter_map(row).collect();
    let head = [
        "where",
        "published",
        "obtcp",
        "obtcp-timers",
        "obtcp-gbn-timers",
        "obtcp-all",
        "by (16) and (20)",
    ];
    words.section(Block::table(words.text("table"), head, rows))
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
    best.map_or_else(Entry::dash, |(gain, row)| {
        Entry::with_small(format!("{gain:.0}"), format!("at {row}"))
    })
}

/// Figure 22.
pub(super) fn round_trips(content: &Content<'_>) -> Section {
    let words = content.prose.section("round-trips");
    let drawn = &content.own.round_trips;
    let line = |(i, (scheme, series)): (usize, &(String, Series))| {
        let first = series.first().map_or(0.0, |(at, _)| *at);
        let points = series.iter().map(|(at, value)| (at - first, *value)).collect();
        Line::steps(scheme, i + 1, points)
    };
    let chart = drawn
        .iter()
        .any(|(_, series)| !series.is_empty())
        .then(|| Chart::lines("smoothed round trip", "ms", [], drawn.iter().enumerate().map(line)));
    let cells = content.comparison.of_table(FIGURE_22_TABLE).map(|c| &c.cell);
    let rows = cells
        .map(|m| Entry::row(&m.label.scheme, [Entry::text(&m.label.column), measured(m)]))
        .collect();
    let blocks = [
        Block::figure(words.text("figure"), chart.into_iter().collect()),
        Block::table(words.text("table"), ["scheme", "which", "ours"], rows),
    ];
    words.section(blocks.into_iter().flatten())
}

/// Figure 24.
pub(super) fn model(content: &Content<'_>) -> Section {
    let words = content.prose.section("model");
    let (comparison, points) = (&content.comparison, &content.own.points);
    let rows = comparison.rows("figure24");
    if rows.is_empty() {
        return words.section([]);
    }
    let last = points.at("figure24", "0.1");
    let fitted = last.and_then(|point| point.first_batch_for(40.0)).unwrap_or(Batch::ONE);
    let row = |row: &&str| {
        let at = |scheme: &str| mean(comparison, "figure24", row, scheme);
        let point = points.at("figure24", row)?;
        let off = |ours: Option<f64>, model: f64| {
            let text = ours.map(|ours| format!("{:+.1}", 100.0 * (ours / model - 1.0)));
            text.map_or_else(Entry::dash, Entry::text)
        };
        let plain = |value: f64| Entry::text(format!("{value:.1}"));
        let gain = comparison.gain(["figure24", row, DRAWN], "obtcp", "snoop");
        Some(vec![
            Entry::text(*row),
            plain(point.snoop()),
            at("snoop").map_or_else(Entry::dash, plain),
            off(at("snoop"), point.snoop()),
            plain(point.obtcp()),
            plain(point.obtcp_with(Batch::ONE)),
            plain(point.obtcp_with(fitted)),
            at("obtcp").map_or_else(Entry::dash, plain),
            off(at("obtcp"), point.obtcp()),
            percent(gain, 0),
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
    let rows = rows.iter().filter_map(row).collect();
    words.section([Table::new(words.text("table"), head, rows).into()])
}

/// Tables 5 and 6.
pub(super) fn tables(content: &Content<'_>) -> Section {
    let words = content.prose.section("tables");
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
    let blocks = ["table5", "table6"].into_iter().filter_map(|table| {
        let rows = LOSSES.iter().filter_map(|p1| shared(content, table, p1)).collect();
        Block::table(words.filled("table", &[("title", &words.text(table))]), head, rows)
    });
    words.section(blocks)
}

const LOSSES: [&str; 5] = ["0", "0.005", "0.01", "0.05", "0.1"];

fn shared(content: &Content<'_>, table: &str, p1: &str) -> Option<Vec<Entry>> {
    let find = |of: &str, scheme: &str| {
        content.comparison.at([&format!("{table}-{of}"), p1, table, scheme])
    };
    let any = ["goodput", "fairness", "utilisation"]
        .into_iter()
        .any(|of| ["obtcp", "snoop", "both"].iter().any(|scheme| find(of, scheme).is_some()));
    if !any {
        return None;
    }
    let both = |(of, scheme): (&str, &str)| {
        let printed = printed(content.published, table, of, scheme, p1);
        let ours = find(of, scheme);
        [printed.map(|p| Entry::text(p.to_string())), ours.map(measured)]
            .map(|entry| entry.unwrap_or_else(Entry::dash))
    };
    let short = |of: &str| {
        let mean = find(of, "both+timers").and_then(|m| m.ours.estimate()).map(|e| e.mean);
        mean.map_or_else(|| "-".to_owned(), |m| format!("{m:.*}", print::digits(m)))
    };
    let columns =
        [("goodput", "obtcp"), ("goodput", "snoop"), ("fairness", "both"), ("utilisation", "both")];
    let timers = Entry::text(format!("{}, {}", short("fairness"), short("utilisation")));
    let ours = columns.into_iter().flat_map(both).chain([timers]);
    Some(Entry::row(p1, ours.chain(in_ns2(&content.own.reference, table, p1))))
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
        None => [Entry::dash(), Entry::dash()],
    }
}
