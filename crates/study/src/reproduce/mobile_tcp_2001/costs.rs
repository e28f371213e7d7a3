//! The report's section about processing costs (figures 10 to 14).

use super::content::Content;
use crate::report::chart::{Chart, Range, RangeSeries, Ranges};
use crate::report::{Block, Entry, Figure, Note, Section, Table};
use crate::reproduce::page::dash;
use crate::reproduce::processing::{self, Machine, Missing, Processing, Ratio, StackCost};
use crate::reproduce::prose::{Values, Words};
use crate::stats::Interval;

/// The stacks that are drawn, with their colours.
const DRAWN: [(&str, usize); 4] =
    [("tcp-ip", 0), ("mobile-tcp", 2), ("mobile-tcp-standard", 4), ("kernel-loopback", 1)];

/// What was measured, or how to have it measured.
pub(super) fn section(content: &Content<'_>) -> Section {
    let words = content.prose.section("costs");
    let Some(costs) = &content.request.processing else {
        return words.section(absent(&words));
    };
    let mut blocks = vec![machine(&words, costs), Block::Table(ratios(content, &words, costs))];
    if let Some(figure) = latencies(&words, costs) {
        blocks.push(figure);
    }
    for table in [lines, throughputs, shares, engines, bulk] {
        blocks.push(Block::Table(table(&words, costs)));
    }
    if !costs.not_measured.is_empty() {
        let note = |m: &Missing| Note { name: m.stack.clone(), text: m.why.clone() };
        blocks.push(words.paragraph("missing"));
        blocks.push(Block::Notes(costs.not_measured.iter().map(note).collect()));
    }
    blocks.retain(|block| !matches!(block, Block::Table(table) if table.rows.is_empty()));
    words.section(blocks)
}

fn absent(words: &Words<'_>) -> Vec<Block> {
    vec![
        words.paragraph("absent"),
        Block::Code("lasthop reproduce mobile-tcp-2001 --measure full --report FILE".to_owned()),
    ]
}

fn machine(words: &Words<'_>, costs: &Processing) -> Block {
    let Machine { cpu, cores, kernel, optimised, pinned } = &costs.machine;
    let values: Values<'_> = &[
        ("cpu", cpu),
        ("cores", cores),
        ("kernel", kernel),
        ("optimised", if *optimised { &"optimised" } else { &"not optimised" }),
        ("pinned", if *pinned { &"kept" } else { &"not kept" }),
        ("effort", &costs.effort),
    ];
    Block::Paragraph(words.filled("machine", values))
}

fn digits(value: f64) -> String {
    match value.abs() {
        v if v < 1.0 => format!("{value:.4}"),
        v if v < 100.0 => format!("{value:.2}"),
        _ => format!("{value:.0}"),
    }
}

fn spanned(value: f64, lo: Option<f64>, hi: Option<f64>) -> Entry {
    let small = lo.zip(hi).map(|(lo, hi)| format!("[{}, {}]", digits(lo), digits(hi)));
    Entry::with_small(digits(value), small.unwrap_or_default())
}

fn ratios(content: &Content<'_>, words: &Words<'_>, costs: &Processing) -> Table {
    let printed = |ratio: &Ratio| {
        let estimate = content.published.table("processing")?.estimate(ratio.name(), "value")?;
        let interval = estimate.interval().map(|i| (i.lo, i.hi));
        Some(spanned(estimate.mean, interval.map(|i| i.0), interval.map(|i| i.1)))
    };
    let row = |ratio: &Ratio| {
        vec![
            Entry::text(ratio.name()),
            printed(ratio).unwrap_or_else(dash),
            spanned(ratio.value, ratio.lo, ratio.hi),
            Entry::text(ratio.meaning.clone()),
        ]
    };
    Table {
        caption: words.text("ratios"),
        head: ["what", "published", "ours", "in words"].map(str::to_owned).to_vec(),
        rows: costs.ratios.iter().map(row).collect(),
    }
}

fn latencies(words: &Words<'_>, costs: &Processing) -> Option<Block> {
    let stacks: Vec<(&StackCost, usize)> =
        DRAWN.iter().filter_map(|(name, colour)| Some((costs.stack(name)?, *colour))).collect();
    let first = stacks.first()?.0;
    let drawn = stacks.iter().map(|(stack, colour)| {
        let point = |p: &processing::Point| {
            let interval = Interval { lo: p.latency_lo_ns / 1e3, hi: p.latency_hi_ns / 1e3 };
            Some(Range { mean: p.latency_ns / 1e3, interval: Some(interval) })
        };
        RangeSeries {
            name: stack.stack.clone(),
            colour: *colour,
            hollow: stack.stack.starts_with("kernel"),
            ranges: stack.points.iter().map(point).collect(),
        }
    });
    Some(Block::Figure(Figure {
        caption: words.text("latencies"),
        charts: vec![Chart::Ranges(Ranges {
            title: "protocol latency".to_owned(),
            x_label: "bytes".to_owned(),
            y_label: "µs".to_owned(),
            categories: first.points.iter().map(|p| p.size.to_string()).collect(),
            series: drawn.collect(),
        })],
    }))
}

fn lines(words: &Words<'_>, costs: &Processing) -> Table {
    let row = |stack: &StackCost| {
        let of = |e: processing::Estimate| spanned(e.value, Some(e.lo), Some(e.hi));
        let kb = stack.points.last().map_or_else(dash, |p| Entry::text(digits(p.cpu_ns_per_kb)));
        vec![
            Entry::with_small(stack.stack.clone(), stack.title.clone()),
            of(stack.latency.intercept_ns),
            of(stack.latency.slope_ns_per_byte),
            Entry::text(format!("{:.3}", stack.latency.r_squared)),
            of(stack.cpu.intercept_ns),
            of(stack.cpu.slope_ns_per_byte),
            kb,
        ]
    };
    let head = [
        "stack",
        "latency, ns",
        "ns a byte",
        "r²",
        "processor time, ns",
        "ns a byte",
        "ns for 1000 bytes, largest buffer",
    ];
    Table {
        caption: words.text("lines"),
        head: head.map(str::to_owned).to_vec(),
        rows: costs.stacks.iter().map(row).collect(),
    }
}

fn throughputs(words: &Words<'_>, costs: &Processing) -> Table {
    let row = |t: &processing::Throughput| {
        vec![
            Entry::text(t.stack.clone()),
            Entry::text(t.size.to_string()),
            Entry::text(t.kind.clone()),
            Entry::text(digits(t.bits_per_s / 1e6)),
        ]
    };
    Table {
        caption: words.text("throughputs"),
        head: ["stack", "bytes", "how", "Mbit/s"].map(str::to_owned).to_vec(),
        rows: costs.throughput.iter().map(row).collect(),
    }
}

fn shares(words: &Words<'_>, costs: &Processing) -> Table {
    let row = |share: &processing::Share| {
        vec![
            Entry::text(share.stack.clone()),
            Entry::text(share.size.to_string()),
            Entry::text(share.component.clone()),
            Entry::text(digits(share.ns)),
            Entry::text(format!("{:.1}", share.percent)),
        ]
    };
    Table {
        caption: words.text("shares"),
        head: ["stack", "bytes", "part", "ns", "%"].map(str::to_owned).to_vec(),
        rows: costs.shares.iter().map(row).collect(),
    }
}

fn bulk(words: &Words<'_>, costs: &Processing) -> Table {
    let row = |bulk: &processing::BulkCost| {
        vec![
            Entry::text(bulk.stack.clone()),
            Entry::text(bulk.write.to_string()),
            Entry::text(digits(bulk.cpu_ns_per_kb)),
        ]
    };
    Table {
        caption: words.text("bulk"),
        head: ["stack", "bytes in a write", "ns"].map(str::to_owned).to_vec(),
        rows: costs.bulk.iter().map(row).collect(),
    }
}

fn engines(words: &Words<'_>, costs: &Processing) -> Table {
    let row = |engine: &processing::EngineCost| {
        let allocations = engine.allocations_per_packet;
        vec![
            Entry::text(engine.engine.clone()),
            Entry::text(engine.size.to_string()),
            spanned(engine.ns_per_packet, Some(engine.lo_ns), Some(engine.hi_ns)),
            allocations.map_or_else(dash, |n| Entry::text(digits(n))),
        ]
    };
    Table {
        caption: words.text("engines"),
        head: ["engine", "bytes", "ns", "allocations"].map(str::to_owned).to_vec(),
        rows: costs.engine.iter().map(row).collect(),
    }
}
