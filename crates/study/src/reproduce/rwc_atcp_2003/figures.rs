//! The report's figures and tables of what was run.

use super::cells::{GOODPUT, IDLE, NEVER, SENSITIVITY, TRANSFERS, Transfer};
use super::content::Content;
use super::gains::{gain, ideal, largest, lengths};
use super::{Series, Shown};
use crate::report::chart::{Chart, Line, Lines, Range, RangeSeries, Ranges, Span};
use crate::report::{Block, Entry, Figure, Section, Table, Tone};
use crate::reproduce::page::{dash, measured, value};
use crate::reproduce::prose::Words;
use crate::reproduce::{Compared, Gain, Mark};

/// Schemes with their colours.
const COLOURS: [(&str, usize); 4] =
    [("none", 0), ("fast-rtx-handoff", 1), ("freeze", 2), ("atcp", 3)];

/// Rates over disconnections are drawn as means over so many bins, for so many seconds.
const BINS: usize = 50;
const DRAWN: f64 = 45.0;

/// The windows and rates of RWC beside the printed ones.
pub(super) fn downloads(content: &Content<'_>) -> Section {
    let words = content.prose.section("downloads");
    let mut blocks = Vec::new();
    let charts: Vec<Chart> = content.downloads.iter().map(rates).collect();
    if !charts.is_empty() {
        blocks.push(Block::Figure(Figure { caption: words.text("figure"), charts }));
    }
    for table in ["example", "windows", "figure2", "figure3", "figure3-change", "figure4"] {
        let cells: Vec<&Compared> =
            content.comparison.cells.iter().filter(|c| c.cell.label.table == table).collect();
        if !cells.is_empty() {
            blocks.push(Block::Table(Table {
                caption: words.text(table),
                head: ["when", "flow", "published", "ours", "mark"].map(str::to_owned).to_vec(),
                rows: cells.into_iter().map(row).collect(),
            }));
        }
    }
    words.section(blocks)
}

fn row(compared: &Compared) -> Vec<Entry> {
    let cell = &compared.cell;
    let tone = match compared.mark {
        Mark::Within | Mark::Overlaps | Mark::Near => Tone::Good,
        Mark::Ratio | Mark::Order => Tone::Fair,
        Mark::Miss | Mark::NotRun => Tone::Bad,
        Mark::Unpublished => Tone::Neutral,
    };
    vec![
        Entry::text(cell.label.row.clone()),
        Entry::text(cell.label.column.clone()),
        value(cell.published),
        measured(cell),
        Entry::mark(compared.mark.name(), tone),
    ]
}

fn rates(shown: &Shown) -> Chart {
    let line = |(i, (name, points)): (usize, &(String, Series))| Line {
        name: name.clone(),
        colour: i,
        steps: true,
        points: points.clone(),
    };
    Chart::Lines(Lines {
        title: shown.title.clone(),
        y_label: "Mbit/s".to_owned(),
        spans: Vec::new(),
        lines: shown.rates.iter().enumerate().map(line).collect(),
    })
}

/// The largest gains beside those that the text gives.
pub(super) fn maxima(content: &Content<'_>) -> Section {
    let words = content.prose.section("gains");
    let printed = |n: usize| {
        let table = content.published.table("gains")?;
        table.row.get(n)?.cell.first()?.alone()
    };
    let rows: Vec<Vec<Entry>> = TRANSFERS
        .iter()
        .zip([0, 1, 2, 2])
        .filter_map(|(transfer, given)| {
            let of = |scheme| {
                largest(content.comparison, transfer, scheme).map_or_else(dash, |(row, gain)| {
                    Entry::with_small(format!("{:.0}", gain.percent), format!("at {row}"))
                })
            };
            largest(content.comparison, transfer, "atcp")?;
            let at = |row| {
                gain(content.comparison, [transfer.table, row, GOODPUT], "atcp")
                    .map_or_else(dash, percent)
            };
            Some(vec![
                Entry::text(transfer.title),
                printed(given).map_or_else(dash, |p| Entry::text(format!("{p:.0}"))),
                of("atcp"),
                of("freeze"),
                of("fast-rtx-handoff"),
                at("1 s"),
                at("3 s"),
            ])
        })
        .collect();
    let mut blocks = Vec::new();
    if !rows.is_empty() {
        let head = [
            "where",
            "published, at most",
            "atcp, at most",
            "freeze",
            "fast-rtx-handoff",
            "atcp at 1 s",
            "atcp at 3 s",
        ];
        blocks.push(Block::Table(Table {
            caption: words.text("table"),
            head: head.map(str::to_owned).to_vec(),
            rows,
        }));
    }
    words.section(blocks)
}

/// Figures 6 and 7 and their counterparts of a WWAN.
pub(super) fn transfers(content: &Content<'_>) -> Section {
    let words = content.prose.section("transfers");
    let mut blocks = Vec::new();
    let run = |t: &&Transfer| !lengths(content.comparison, t).is_empty();
    for transfer in TRANSFERS.iter().filter(run) {
        blocks.push(Block::Figure(Figure {
            caption: words.filled("figure", &[("transfer", &transfer.title)]),
            charts: vec![percents(content, transfer), goodputs(content, transfer)],
        }));
        blocks.push(Block::Table(table(content, &words, transfer)));
        blocks.push(Block::Table(idle(content, &words, transfer)));
    }
    words.section(blocks)
}

fn colour(scheme: &str) -> usize {
    COLOURS.iter().find(|(name, _)| *name == scheme).map_or(0, |(_, colour)| *colour)
}

fn percents(content: &Content<'_>, transfer: &Transfer) -> Chart {
    let rows = lengths(content.comparison, transfer);
    let bound = |row: &str| {
        let reno = content.comparison.at([transfer.table, row, GOODPUT, "none"])?;
        let reno = reno.ours.estimate()?.mean;
        let mean = 100.0 * (ideal(content.comparison, transfer, row)?.mean / reno - 1.0);
        Some(Range { mean, interval: None })
    };
    let helped = transfer.schemes.iter().filter(|s| **s != "none").map(|scheme| {
        let at = |row: &&str| {
            let gain = gain(content.comparison, [transfer.table, row, GOODPUT], scheme)?;
            Some(Range { mean: gain.percent, interval: gain.interval })
        };
        let ranges = rows.iter().map(at).collect();
        series(scheme, colour(scheme), false, ranges)
    });
    let bound = series("at most", 0, true, rows.iter().map(|row| bound(row)).collect());
    Chart::Ranges(Ranges {
        title: "gain over Reno".to_owned(),
        x_label: "disconnection".to_owned(),
        y_label: "%".to_owned(),
        categories: rows.iter().map(|row| (*row).to_owned()).collect(),
        series: helped.chain([bound]).collect(),
    })
}

fn goodputs(content: &Content<'_>, transfer: &Transfer) -> Chart {
    let rows = lengths(content.comparison, transfer);
    let ours = transfer.schemes.iter().map(|scheme| {
        let at = |row: &&str| {
            let m = content.comparison.at([transfer.table, row, GOODPUT, scheme])?;
            let estimate = m.ours.estimate()?;
            Some(Range { mean: estimate.mean, interval: estimate.interval() })
        };
        series(scheme, colour(scheme), false, rows.iter().map(at).collect())
    });
    let bound = |row: &&str| {
        let mean = ideal(content.comparison, transfer, row)?.mean;
        Some(Range { mean, interval: None })
    };
    let bound = series("at most", 0, true, rows.iter().map(bound).collect());
    Chart::Ranges(Ranges {
        title: "goodput".to_owned(),
        x_label: "disconnection".to_owned(),
        y_label: "kbit/s".to_owned(),
        categories: rows.iter().map(|row| (*row).to_owned()).collect(),
        series: ours.chain([bound]).collect(),
    })
}

fn series(name: &str, colour: usize, hollow: bool, ranges: Vec<Option<Range>>) -> RangeSeries {
    RangeSeries { name: name.to_owned(), colour, hollow, ranges }
}

fn table(content: &Content<'_>, words: &Words<'_>, transfer: &Transfer) -> Table {
    let helped: Vec<&str> = transfer.schemes.iter().copied().filter(|s| *s != "none").collect();
    let ns2 = content.ns2.of(transfer.table);
    let row = |row: &&str| {
        let at = |scheme: &str| content.comparison.at([transfer.table, row, GOODPUT, scheme]);
        let ours = transfer.schemes.iter().map(|scheme| at(scheme).map_or_else(dash, measured));
        let gains = helped.iter().map(|scheme| {
            gain(content.comparison, [transfer.table, row, GOODPUT], scheme)
                .map_or_else(dash, percent)
        });
        let most = ideal(content.comparison, transfer, row);
        let most = most.map_or_else(dash, |most| Entry::text(format!("{:.0}", most.mean)));
        let beside = ns2.iter().find(|point| point.length == **row);
        let beside = beside.map_or_else(dash, |point| {
            Entry::with_small(format!("{:.0}", point.mean), format!("±{:.0}", point.half))
        });
        let beside = Some(beside).filter(|_| !ns2.is_empty());
        [Entry::text(*row)]
            .into_iter()
            .chain(ours)
            .chain(gains)
            .chain([most])
            .chain(beside)
            .collect()
    };
    let rows = [NEVER].into_iter().chain(lengths(content.comparison, transfer));
    let rows = rows.filter(|row| {
        content.comparison.at([transfer.table, row, GOODPUT, "none"]).is_some()
            || content.comparison.at([transfer.table, row, GOODPUT, "atcp"]).is_some()
    });
    let head = ["disconnection".to_owned()]
        .into_iter()
        .chain(transfer.schemes.iter().map(|s| (*s).to_owned()))
        .chain(helped.iter().map(|s| format!("{s}: gain in %")))
        .chain(["at most".to_owned()])
        .chain(Some("Reno in ns-2".to_owned()).filter(|_| !ns2.is_empty()));
    Table {
        caption: words.filled("table", &[("transfer", &transfer.title)]),
        head: head.collect(),
        rows: rows.collect::<Vec<_>>().iter().map(row).collect(),
    }
}

fn idle(content: &Content<'_>, words: &Words<'_>, transfer: &Transfer) -> Table {
    let table = transfer.idle();
    let row = |row: &&str| {
        let at = |scheme: &&str| content.comparison.at([&table, row, IDLE, scheme]);
        let ours = transfer.schemes.iter().map(|scheme| at(scheme).map_or_else(dash, measured));
        [Entry::text(*row)].into_iter().chain(ours).collect()
    };
    Table {
        caption: words.filled("idle", &[("transfer", &transfer.title)]),
        head: ["disconnection"]
            .into_iter()
            .chain(transfer.schemes.iter().copied())
            .map(str::to_owned)
            .collect(),
        rows: lengths(content.comparison, transfer).iter().map(row).collect(),
    }
}

/// One run of each scheme over the same disconnections.
pub(super) fn courses(content: &Content<'_>) -> Section {
    let words = content.prose.section("courses");
    let chart = |shown: &Shown| {
        let line = |(scheme, points): &(String, Series)| Line {
            name: scheme.clone(),
            colour: colour(scheme),
            steps: true,
            points: means(points),
        };
        let cuts = shown.cuts.iter().filter(|(from, _)| *from < DRAWN);
        Chart::Lines(Lines {
            title: shown.title.clone(),
            y_label: "Mbit/s".to_owned(),
            spans: cuts.map(|&(from, to)| Span { from, to: to.min(DRAWN) }).collect(),
            lines: shown.rates.iter().map(line).collect(),
        })
    };
    let charts: Vec<Chart> = content.transfers.iter().map(chart).collect();
    let mut blocks = Vec::new();
    if !charts.is_empty() {
        blocks.push(Block::Figure(Figure { caption: words.text("figure"), charts }));
    }
    words.section(blocks)
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
    let mut rows: Vec<&str> = Vec::new();
    let own = content.comparison.cells.iter().filter(|c| c.cell.label.table == SENSITIVITY);
    for compared in own {
        if !rows.contains(&compared.cell.label.row.as_str()) {
            rows.push(&compared.cell.label.row);
        }
    }
    let places = ["down, 0.5 s", "down, 1 s", "down, 3 s", "up, 0.5 s", "up, 1 s", "up, 3 s"];
    let entry = |table: &str, row: &str, column: &str, scheme: &str| {
        gain(content.comparison, [table, row, column], scheme).map_or_else(dash, percent)
    };
    let both = |entries: [Entry; 2]| {
        let [atcp, freeze] = entries;
        Entry { small: format!("freeze {}", freeze.text), ..atcp }
    };
    let gains = |of: &dyn Fn(&str, &str) -> Entry| -> Vec<Entry> {
        let at = |place: &str| match place.starts_with("down") {
            true => both([of(place, "atcp"), of(place, "freeze")]),
            false => of(place, "atcp"),
        };
        places.iter().map(|place| at(place)).collect()
    };
    let assumed = gains(&|place, scheme| {
        let (way, length) = place.split_once(", ").unwrap_or_default();
        let table = if way == "down" { "figure7" } else { "figure6" };
        entry(table, length, GOODPUT, scheme)
    });
    let changed = rows.iter().map(|row| {
        let own = gains(&|place, scheme| entry(SENSITIVITY, row, place, scheme));
        [Entry::text(*row)].into_iter().chain(own).collect()
    });
    let first = [Entry::text("as assumed")].into_iter().chain(assumed).collect();
    let mut blocks = Vec::new();
    if !rows.is_empty() {
        blocks.push(Block::Table(Table {
            caption: words.text("table"),
            head: [""].into_iter().chain(places).map(str::to_owned).collect(),
            rows: [first].into_iter().chain(changed).collect(),
        }));
    }
    words.section(blocks)
}

fn percent(gain: Gain) -> Entry {
    let small = gain.interval.map(|i| format!("[{:.0}, {:.0}]", i.lo, i.hi)).unwrap_or_default();
    Entry::with_small(format!("{:.0}", gain.percent), small)
}
