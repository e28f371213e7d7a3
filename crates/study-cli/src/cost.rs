//! `lasthop cost`: what protocol processing costs on this machine (EXP-H1 to EXP-H5).

use clap::Args;
use lasthop_cost::measure;
use lasthop_study::reproduce::processing::{Estimate, Processing};
use serde::Serialize;
use serde_json::{Value, json};

use crate::terminal;

#[derive(Args, Debug)]
pub(crate) struct Options {
    /// A few minutes in place of some ten seconds, and narrower intervals
    #[arg(long)]
    full: bool,

    /// One JSON object a line in place of tables
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let measured = measured(options.full);
    let text = if options.json { lines(&measured)? } else { tables(&measured) };
    terminal::print(&text)
}

/// Measures, and tells on the standard error how far it is.
pub(crate) fn measured(full: bool) -> Processing {
    let effort = if full { lasthop_cost::Options::full() } else { lasthop_cost::Options::quick() };
    measure(&effort, &mut |step| eprintln!("measuring: {step}"))
}

/// What was measured, as tables for people.
pub(crate) fn tables(measured: &Processing) -> String {
    let machine = &measured.machine;
    let mut text = format!("{}, {} cores, {}\n\n", machine.cpu, machine.cores, machine.kernel);
    text.push_str(&stacks(measured));
    for missing in &measured.not_measured {
        text.push_str(&format!("{}: not measured: {}\n", missing.stack, missing.why));
    }
    text.push_str(&engines(measured));
    text.push_str(&shares(measured));
    text.push_str("\nbeside the paper's (docs/processing.md)\n");
    for ratio in &measured.ratios {
        text.push_str(&format!("{:<48} {:>9.3}  {}\n", ratio.id, ratio.value, ratio.meaning));
    }
    text
}

/// Lines through the costs of buffers: half an exchange, and processor time of both ends.
fn stacks(measured: &Processing) -> String {
    let mut text = format!(
        "{:<26} {:>22} {:>22} {:>6}  {:>10} {:>12}\n",
        "a buffer there", "latency, ns", "ns a byte", "R^2", "CPU ns", "CPU ns a byte"
    );
    let interval = |e: &Estimate, digits: usize| {
        format!("{:.digits$} [{:.digits$}, {:.digits$}]", e.value, e.lo, e.hi)
    };
    for stack in &measured.stacks {
        text.push_str(&format!(
            "{:<26} {:>22} {:>22} {:>6.3}  {:>10.0} {:>12.3}\n",
            stack.stack,
            interval(&stack.latency.intercept_ns, 0),
            interval(&stack.latency.slope_ns_per_byte, 3),
            stack.latency.r_squared,
            stack.cpu.intercept_ns.value,
            stack.cpu.slope_ns_per_byte.value,
        ));
    }
    text
}

fn engines(measured: &Processing) -> String {
    let mut text = String::from("\na packet sent and acknowledged, the engine alone\n");
    for engine in &measured.engine {
        text.push_str(&format!(
            "{:<26} {:>5} bytes {:>6.0} ns [{:.0}, {:.0}]\n",
            engine.engine, engine.size, engine.ns_per_packet, engine.lo_ns, engine.hi_ns
        ));
    }
    text
}

fn shares(measured: &Processing) -> String {
    let mut text = String::from("\nshares of a stack's time\n");
    for share in &measured.shares {
        text.push_str(&format!(
            "{:<26} {:>5} bytes {:<14} {:>6.1} %\n",
            share.stack, share.size, share.component, share.percent
        ));
    }
    text
}

/// What was measured, one object a line; `what` says of what kind each is.
///
/// # Errors
///
/// A number that no JSON can hold.
pub(crate) fn lines(measured: &Processing) -> serde_json::Result<String> {
    let mut text = String::new();
    let mut add = |what: &str, value: Value| {
        let mut object = json!({ "what": what });
        if let (Some(all), Value::Object(fields)) = (object.as_object_mut(), value) {
            all.extend(fields);
        }
        text.push_str(&format!("{object}\n"));
    };
    add("machine", serde_json::to_value(&measured.machine)?);
    each("stack", &measured.stacks, &mut add)?;
    each("not-measured", &measured.not_measured, &mut add)?;
    each("share", &measured.shares, &mut add)?;
    each("engine", &measured.engine, &mut add)?;
    each("bulk", &measured.bulk, &mut add)?;
    each("throughput", &measured.throughput, &mut add)?;
    each("ratio", &measured.ratios, &mut add)?;
    Ok(text)
}

fn each<T: Serialize>(
    what: &str,
    all: &[T],
    add: &mut impl FnMut(&str, Value),
) -> serde_json::Result<()> {
    all.iter().try_for_each(|one| {
        add(what, serde_json::to_value(one)?);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is measured is told, in tables and as one object a line.
    #[test]
    fn every_stack_stands_in_the_table_and_in_the_lines() {
        let mut options = lasthop_cost::Options::tiny();
        options.namespaces = false;
        let measured = measure(&options, &mut |_| {});
        let (table, lines) = (tables(&measured), lines(&measured).unwrap());
        for stack in &measured.stacks {
            assert!(table.contains(&stack.stack), "{}", stack.stack);
        }
        let kinds: Vec<String> = lines
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["what"].to_string())
            .collect();
        for kind in ["machine", "stack", "share", "engine", "ratio"] {
            assert!(kinds.contains(&format!("\"{kind}\"")), "{kind}: {kinds:?}");
        }
    }
}
