//! The report's figures and tables of what was run.

use super::cells::{GOODPUT, IDLE, NEVER, SENSITIVITY, TRANSFERS, Transfer};
use super::gains::{gain, ideal, largest, lengths};
use super::{Content, Series, Shown};
use crate::report::chart::{Chart, Line, RangeSeries, Span};
use crate::report::{Block, Entry, Section, Table};
use crate::reproduce::Compared;
use crate::reproduce::page::{self, at, colour, head, measured, percent, value};
use crate::reproduce::prose::Words;

/// Schemes with their colours.
const COLOURS: [(&str, usize); 4] =
    [("none", 0), ("fast-rtx-handoff", 1), ("freeze", 2), ("atcp", 3)];

/// Rates over disconnections are drawn as means over so many bins, for so many seconds.
const BINS: usize = 50;
const DRAWN: f64 = 45.0;

/// The windows and rates of RWC beside the printed ones.
pub(super) fn downloads(content: &Content<'_>) -> Section {
    let words = content.prose.section("downloads");
    let charts = content.own.downloads.iter().map(rates).collect();
    let tables = ["example", "windows", "figure2", "figure3", "figure3-change", "figure4"];
    let tables = tables.map(|table| {
        let rows = content.comparison.of_table(table).map(row).collect();
        Block::table(words.text(table), ["when", "flow", "published", "ours", "mark"], rows)
    });
    let figure = Block::figure(words.text("figure"), charts);
    words.section([figure].into_iter().chain(tables).flatten())
}

fn row(compared: &Compared) -> Vec<Entry> {
    let cell = &compared.cell;
    vec![
        Entry::text(cell.label.row.clone()),
        Entry::text(cell.label.column.clone()),
        value(cell.published),
        measured(cell),
        Entry::mark(compared.mark.name(), compared.mark.tone()),
    ]
}

fn rates(shown: &Shown) -> Chart {
    let line =
        |(i, (name, points)): (usize, &(String, Series))| Line::steps(name, i, points.clone());
    Chart::lines(&shown.title, "Mbit/s", [], shown.rates.iter().enumerate().map(line))
}

/// The largest gains beside those that the text gives.
pub(super) fn maxima(content: &Content<'_>) -> Section {
    let words = content.prose.section("gains");
    let comparison = &content.comparison;
    let printed = |n: usize| content.published.table("gains")?.row.get(n)?.cell.first()?.alone();
    let row = |(transfer, given): (&Transfer, usize)| {
        let of = |scheme| {
            largest(comparison, transfer, scheme).map_or_else(Entry::dash, |(row, gain)| {
                Entry::with_small(format!("{:.0}", gain.percent), format!("at {row}"))
            })
        };
        largest(comparison, transfer, "atcp")?;
        let at = |row| percent(gain(comparison, [transfer.table, row, GOODPUT], "atcp"), 0);
        let printed = printed(given);
        let printed = printed.map_or_else(Entry::dash, |p| Entry::text(format!("{p:.0}")));
        let ours = [of("atcp"), of("freeze"), of("fast-rtx-handoff"), at("1 s"), at("3 s")];
        Some(Entry::row(transfer.title, [printed].into_iter().chain(ours)))
    };
    let rows = TRANSFERS.iter().zip([0, 1, 2, 2]).filter_map(row).collect();
    let head = [
        "where",
        "published, at most",
        "atcp, at most",
        "freeze",
        "fast-rtx-handoff",
        "atcp at 1 s",
        "atcp at 3 s",
    ];
    words.section(Block::table(words.text("table"), head, rows))
}

/// Figures 6 and 7 and their counterparts of a WWAN.
pub(super) fn transfers(content: &Content<'_>) -> Section {
    let words = content.prose.section("transfers");
    let blocks = TRANSFERS.iter().flat_map(|transfer| {
        let rows = lengths(&content.comparison, transfer);
        if rows.is_empty() {
            return Vec::new();
        }
        let charts = vec![percents(content, transfer, &rows), goodputs(content, transfer, &rows)];
        let caption = words.filled("figure", &[("transfer", &transfer.title)]);
        let figure = Block::figure(caption, charts);
        let tables =
            [table(content, &words, transfer, &rows), idle(content, &words, transfer, &rows)];
        figure.into_iter().chain(tables.map(Block::from)).collect()
    });
    words.section(blocks)
}

fn percents(content: &Content<'_>, transfer: &Transfer, rows: &[&str]) -> Chart {
    let comparison = &content.comparison;
    let bound = |row: &&str| {
        let reno = comparison.mean([transfer.table, row, GOODPUT, "none"])?;
        Some(100.0 * (ideal(comparison, transfer, row)?.mean / reno - 1.0))
    };
    let helped = transfer.helped().map(|scheme| {
        let at = |row: &&str| gain(comparison, [transfer.table, row, GOODPUT], scheme);
        RangeSeries::new(scheme, colour(&COLOURS, scheme), rows.iter().map(at))
    });
    let bound = RangeSeries::new("at most", 0, rows.iter().map(bound)).hollow();
    let labels = ["disconnection", "%"];
    Chart::ranges("gain over Reno", labels, rows.iter().copied(), helped.chain([bound]))
}

fn goodputs(content: &Content<'_>, transfer: &Transfer, rows: &[&str]) -> Chart {
    let comparison = &content.comparison;
    let ours = transfer.schemes.iter().map(|scheme| {
        let place = [transfer.table, GOODPUT, scheme];
        page::series(comparison, place, rows, colour(&COLOURS, scheme))
    });
    let bound = |row: &&str| Some(ideal(comparison, transfer, row)?.mean);
    let bound = RangeSeries::new("at most", 0, rows.iter().map(bound)).hollow();
    let labels = ["disconnection", "kbit/s"];
    Chart::ranges("goodput", labels, rows.iter().copied(), ours.chain([bound]))
}

fn table(content: &Content<'_>, words: &Words<'_>, transfer: &Transfer, rows: &[&str]) -> Table {
    let comparison = &content.comparison;
    let ns2 = content.own.ns2.of(transfer.table);
    let plain = |value: f64| Entry::text(format!("{value:.0}"));
    let row = |row: &str| {
        let place = |scheme| [transfer.table, row, GOODPUT, scheme];
        let ours = transfer.schemes.iter().map(|scheme| at(comparison, place(scheme)));
        let gains = transfer
            .helped()
            .map(|scheme| percent(gain(comparison, [transfer.table, row, GOODPUT], scheme), 0));
        let most = ideal(comparison, transfer, row);
        let most = most.map_or_else(Entry::dash, |most| plain(most.mean));
        let beside = ns2.iter().find(|point| point.length == row);
        let beside = beside.map_or_else(Entry::dash, |point| Entry {
            small: format!("±{:.0}", point.half),
            ..plain(point.mean)
        });
        let beside = Some(beside).filter(|_| !ns2.is_empty());
        Entry::row(row, ours.chain(gains).chain([most]).chain(beside))
    };
    let all = [NEVER].into_iter().chain(rows.iter().copied()).filter(|row| {
        let is_there = |scheme| comparison.at([transfer.table, row, GOODPUT, scheme]).is_some();
        is_there("none") || is_there("atcp")
    });
    let schemes = transfer.schemes.iter().map(|s| (*s).to_owned());
    let columns = schemes
        .chain(transfer.helped().map(|s| format!("{s}: gain in %")))
        .chain(["at most".to_owned()])
        .chain(Some("Reno in ns-2".to_owned()).filter(|_| !ns2.is_empty()));
    let caption = words.filled("table", &[("transfer", &transfer.title)]);
    Table::new(caption, head("disconnection", columns), all.map(row).collect())
}

fn idle(content: &Content<'_>, words: &Words<'_>, transfer: &Transfer, rows: &[&str]) -> Table {
    let table = transfer.idle();
    let entry = |row: &str, scheme: &&str| at(&content.comparison, [&table, row, IDLE, scheme]);
    let caption = words.filled("idle", &[("transfer", &transfer.title)]);
    let head = head("disconnection", transfer.schemes.iter().copied());
    Table::new(caption, head, page::grid(rows, transfer.schemes, entry))
}

/// One run of each scheme over the same disconnections.
pub(super) fn courses(content: &Content<'_>) -> Section {
    let words = content.prose.section("courses");
    let chart = |shown: &Shown| {
        let line = |(scheme, points): &(String, Series)| {
            Line::steps(scheme, colour(&COLOURS, scheme), means(points))
        };
        let cuts = shown.cuts.iter().filter(|(from, _)| *from < DRAWN);
        let spans = cuts.map(|&(from, to)| Span { from, to: to.min(DRAWN) });
        Chart::lines(&shown.title, "Mbit/s", spans, shown.rates.iter().map(line))
    };
    let charts = content.own.transfers.iter().map(chart).collect();
    words.section(Block::figure(words.text("figure"), charts))
}

fn means(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let drawn = points.iter().take_while(|(at, _)| *at < DRAWN).count();
    let mean = |bins: &[(f64, f64)]| {
        (bins[0].0, bins.iter().map(|(_, rate)| rate).sum::<f64>() / bins.len() as f64)
    };
    points[..drawn].chunks(BINS).map(mean).collect()
}

/// What the assumptions are worth.
pub(super) fn sensitivity(content: &Content<'_>) -> Section {
    let words = content.prose.section("sensitivity");
    let rows = content.comparison.rows(SENSITIVITY);
    let places = ["down, 0.5 s", "down, 1 s", "down, 3 s", "up, 0.5 s", "up, 1 s", "up, 3 s"];
    let entry =
        |place: [&str; 3], scheme: &str| percent(gain(&content.comparison, place, scheme), 0);
    let gains = |of: &dyn Fn(&str, &str) -> Entry| {
        places.map(|place| match place.starts_with("down") {
            true => {
                Entry { small: format!("freeze {}", of(place, "freeze").text), ..of(place, "atcp") }
            }
            false => of(place, "atcp"),
        })
    };
    let assumed = gains(&|place, scheme| {
        let (way, length) = place.split_once(", ").unwrap_or_default();
        let table = if way == "down" { "figure7" } else { "figure6" };
        entry([table, length, GOODPUT], scheme)
    });
    let changed = rows.iter().map(|row| {
        Entry::row(*row, gains(&|place, scheme| entry([SENSITIVITY, row, place], scheme)))
    });
    let all = [Entry::row("as assumed", assumed)].into_iter().chain(changed);
    // What is assumed is told beside changes only.
    let all = all.filter(|_| !rows.is_empty()).collect();
    words.section(Block::table(words.text("table"), head("", places), all))
}
