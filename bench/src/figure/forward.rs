//! What it costs to take packets through a process, by the ways that Linux has: why agents use the
//! one that they use.
//!
//! A bridge joins the cables of two hosts. Packets cross it by the kernel's own forwarding, through
//! `lasthop agent none`, which takes and sends whole frames by `AF_PACKET`, through a process that is
//! asked by the packet filter (`NFQUEUE`), or through DPDK's `testpmd`, which gets frames before the
//! bridge does by `AF_XDP`, in copy mode. The process has one core. What the kernel does for a
//! packet that arrives at the bridge it does on the sender's, as where interrupts go elsewhere; what
//! it does for one that leaves, up to the far host's interface, is on the process's.

mod cores;
pub(crate) mod nfqueue;
mod path;
mod traffic;

use std::fmt;

use anyhow::Result;
use lasthop_units::Duration;

use super::Setting;
use crate::process::cpu_of;
use crate::report::{Report, Row};
use path::Path;
use traffic::{Delays, FULL, Load, SMALL};

const FIGURE: &str = "forward";
const CELL: &str = "one-core";
/// Claimed of the agent: small packets a second, bits a second in full ones, and the time added to
/// each.
const PACKETS: f64 = 150e3;
const BITS: f64 = 1e9;
const ADDED_US: f64 = 100.0;
/// Packets a second that are offered, one after the other; the best of what arrives counts, since
/// more than a core can do makes it do less.
const OFFERED: [f64; 7] = [100e3, 150e3, 200e3, 250e3, 350e3, 500e3, 800e3];

/// A way across.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// The kernel's bridge and nothing else.
    Bridge,
    /// The agent without a scheme.
    Agent,
    /// A process that is asked about each packet.
    Nfqueue,
    /// A process that maps the rings of both interfaces, and asks them without end.
    AfXdp,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Bridge => "bridge",
            Self::Agent => "agent-af-packet",
            Self::Nfqueue => "nfqueue",
            Self::AfXdp => "testpmd-af-xdp",
        })
    }
}

/// Runs all cells; the bridge first, beside which time is added.
pub(crate) fn run(setting: &Setting, report: &mut Report) {
    let mut bridge = None;
    for way in [Way::Bridge, Way::Agent, Way::Nfqueue, Way::AfXdp] {
        setting.attempt_named(report, FIGURE, way, way == Way::Agent, CELL, || {
            measure(setting, way, &mut bridge)
        });
    }
}

fn measure(setting: &Setting, way: Way, bridge: &mut Option<f64>) -> Result<Row> {
    let span = Duration::from_millis(setting.choose(400, 2000));
    let mut path = Path::build(way)?;
    let delays = traffic::delays(path.hosts(), setting.choose(1000, 5000))?;
    let small = best(&mut path, SMALL, span)?;
    let full = best(&mut path, FULL, span)?;
    path.check()?;
    let bits = full.rate * FULL as f64 * 8.0;
    let Delays { median, p99 } = delays;
    if way == Way::Bridge {
        *bridge = Some(median);
    }
    let added = bridge.map(|bridge| median - bridge);
    let ours = way == Way::Agent;
    Ok(Row::new(FIGURE, way, CELL)
        .number("packets_s", small.rate)
        .number("us_a_packet", small.cpu_us)
        .number("gbit_s", bits / 1e9)
        .number("us_a_full", full.cpu_us)
        .number("median_us", median)
        .number("p99_us", p99)
        .number("added_us", added)
        .claim_if(ours, "packets/s >= 150000", small.rate >= PACKETS)
        .claim_if(ours, "1 Gbit/s", bits >= BITS)
        .claim_if(ours, "added < 100 us", added.is_some_and(|added| added < ADDED_US)))
}

/// What arrived when most did.
#[derive(Clone, Copy, Default, Debug)]
struct Most {
    /// Packets a second.
    rate: f64,
    /// CPU time of the process for each, if there is a process.
    cpu_us: Option<f64>,
}

fn best(path: &mut Path, size: usize, span: Duration) -> Result<Most> {
    let mut most = Most::default();
    for rate in OFFERED {
        let process = path.process();
        let cpu = || process.map(cpu_of).transpose();
        let before = cpu()?;
        let Load { arrived, took } = traffic::offer(path.hosts(), size, rate, span)?;
        let after = cpu()?;
        let rate = arrived as f64 / took.as_secs_f64();
        if rate > most.rate {
            let spent = after.zip(before).map(|(after, before)| (after - before).as_secs_f64());
            most = Most { rate, cpu_us: spent.map(|s| s * 1e6 / arrived.max(1) as f64) };
        }
    }
    Ok(most)
}
