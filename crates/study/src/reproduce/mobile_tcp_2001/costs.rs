//! The report's section about processing costs (figures 10 to 14).

use super::Content;
use crate::report::chart::{Chart, Range, RangeSeries};
use crate::report::{Block, Entry, Note, Section};
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
    let mut blocks = vec![machine(&words, costs)];
    blocks.extend(ratios(content, &words, costs));
    blocks.extend(latencies(&words, costs));
    for table in [lines, throughputs, shares, engines, bulk] {
        blocks.extend(table(&words, costs));
    }
    if !costs.not_measured.is_empty() {
        let note = |m: &Missing| Note { name: m.stack.clone(), text: m.why.clone() };
        blocks.push(words.paragraph("missing"));
        blocks.push(Block::Notes(costs.not_measured.iter().map(note).collect()));
    }
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

fn ratios(content: &Content<'_>, words: &Words<'_>, costs: &Processing) -> Option<Block> {
    let printed = |ratio: &Ratio| {
        let estimate = content.published.table("processing")?.estimate(ratio.name(), "value")?;
        let (lo, hi) = estimate.interval().map(|i| (i.lo, i.hi)).unzip();
        Some(spanned(estimate.mean, lo, hi))
    };
    let row = |ratio: &Ratio| {
        vec![
            Entry::text(ratio.name()),
            printed(ratio).unwrap_or_else(Entry::dash),
            spanned(ratio.value, ratio.lo, ratio.hi),
            Entry::text(ratio.meaning.clone()),
        ]
    };
    let rows = costs.ratios.iter().map(row).collect();
    Block::table(words.text("ratios"), ["what", "published", "ours", "in words"], rows)
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
        let series = RangeSeries::new(&stack.stack, *colour, stack.points.iter().map(point));
        RangeSeries { hollow: stack.stack.starts_with("kernel"), ..series }
    });
    let sizes = first.points.iter().map(|p| p.size.to_string());
    let chart = Chart::ranges("protocol latency", ["bytes", "µs"], sizes, drawn);
    Block::figure(words.text("latencies"), vec![chart])
}

fn lines(words: &Words<'_>, costs: &Processing) -> Option<Block> {
    let row = |stack: &StackCost| {
        let of = |e: processing::Estimate| spanned(e.value, Some(e.lo), Some(e.hi));
        let kb = stack.points.last().map(|p| Entry::text(digits(p.cpu_ns_per_kb)));
        vec![
            Entry::with_small(stack.stack.clone(), stack.title.clone()),
            of(stack.latency.intercept_ns),
            of(stack.latency.slope_ns_per_byte),
            Entry::text(format!("{:.3}", stack.latency.r_squared)),
            of(stack.cpu.intercept_ns),
            of(stack.cpu.slope_ns_per_byte),
            kb.unwrap_or_else(Entry::dash),
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
    Block::table(words.text("lines"), head, costs.stacks.iter().map(row).collect())
}

fn throughputs(words: &Words<'_>, costs: &Processing) -> Option<Block> {
    let row = |t: &processing::Throughput| {
        let rate = digits(t.bits_per_s / 1e6);
        [t.stack.clone(), t.size.to_string(), t.kind.clone(), rate].map(Entry::text).to_vec()
    };
    let rows = costs.throughput.iter().map(row).collect();
    Block::table(words.text("throughputs"), ["stack", "bytes", "how", "Mbit/s"], rows)
}

fn shares(words: &Words<'_>, costs: &Processing) -> Option<Block> {
    let row = |share: &processing::Share| {
        let (ns, percent) = (digits(share.ns), format!("{:.1}", share.percent));
        [share.stack.clone(), share.size.to_string(), share.component.clone(), ns, percent]
            .map(Entry::text)
            .to_vec()
    };
    let rows = costs.shares.iter().map(row).collect();
    Block::table(words.text("shares"), ["stack", "bytes", "part", "ns", "%"], rows)
}

fn bulk(words: &Words<'_>, costs: &Processing) -> Option<Block> {
    let row = |bulk: &processing::BulkCost| {
        [bulk.stack.clone(), bulk.write.to_string(), digits(bulk.cpu_ns_per_kb)]
            .map(Entry::text)
            .to_vec()
    };
    let rows = costs.bulk.iter().map(row).collect();
    Block::table(words.text("bulk"), ["stack", "bytes in a write", "ns"], rows)
}

fn engines(words: &Words<'_>, costs: &Processing) -> Option<Block> {
    let row = |engine: &processing::EngineCost| {
        let allocations = engine.allocations_per_packet;
        vec![
            Entry::text(engine.engine.clone()),
            Entry::text(engine.size.to_string()),
            spanned(engine.ns_per_packet, Some(engine.lo_ns), Some(engine.hi_ns)),
            allocations.map_or_else(Entry::dash, |n| Entry::text(digits(n))),
        ]
    };
    let rows = costs.engine.iter().map(row).collect();
    Block::table(words.text("engines"), ["engine", "bytes", "ns", "allocations"], rows)
}
