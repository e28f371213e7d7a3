//! Processing costs (figures 10 to 14 of mobile-tcp-2001), as they were measured: plain data, taken
//! on a real machine by `lasthop-cost`. Nothing here reads a clock.

use serde::{Deserialize, Serialize};

use crate::published::Published;

/// All that was measured in one run, on one machine.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct Processing {
    /// Where.
    pub machine: Machine,
    /// How thoroughly: `quick` or `full`.
    pub effort: String,
    /// Each stack's latency and processor time over the size of buffers (EXP-H2 to EXP-H4).
    pub stacks: Vec<StackCost>,
    /// What could not be measured, and why.
    pub not_measured: Vec<Missing>,
    /// What the parts of a stack take of it (EXP-H5, figure 14).
    pub shares: Vec<Share>,
    /// What the engines alone cost: machine and packet format, no socket layer and no link.
    pub engine: Vec<EngineCost>,
    /// What bulk transfers one way cost, which exchanges do not show.
    #[serde(default)]
    pub bulk: Vec<BulkCost>,
    /// What exchanges give (EXP-H1, figure 10).
    pub throughput: Vec<Throughput>,
    /// What the paper has numbers of.
    pub ratios: Vec<Ratio>,
}

/// The machine that it was measured on.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// Its processor.
    pub cpu: String,
    /// How many cores may be used.
    pub cores: u32,
    /// Its kernel.
    pub kernel: String,
    /// The program was built with optimisation: without it no figure here means anything.
    pub optimised: bool,
    /// It stayed on one core.
    pub pinned: bool,
}

/// What a stack costs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StackCost {
    /// Its short name, such as `mobile-tcp`.
    pub stack: String,
    /// Its name for people.
    pub title: String,
    /// By the size of a buffer.
    pub points: Vec<Point>,
    /// The straight line through the latencies (figure 13).
    pub latency: Line,
    /// The same of processor time.
    pub cpu: Line,
}

/// What a buffer of one size costs.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Point {
    /// Bytes in a buffer.
    pub size: u32,
    /// Half an exchange, the median over rounds, in ns (MET-4).
    pub latency_ns: f64,
    /// Its lower quartile.
    pub latency_lo_ns: f64,
    /// Its upper quartile.
    pub latency_hi_ns: f64,
    /// Processor time of both ends for a buffer, in ns (MET-5).
    pub cpu_ns: f64,
    /// The same for 1000 bytes, which stands for energy (MET-6).
    pub cpu_ns_per_kb: f64,
    /// How many rounds there were.
    pub rounds: u32,
}

/// A straight line over the size of buffers.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Line {
    /// At no bytes, in ns.
    pub intercept_ns: Estimate,
    /// For each byte, in ns.
    pub slope_ns_per_byte: Estimate,
    /// How much of the variance it explains.
    pub r_squared: f64,
}

/// A value with its 95 % interval.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Estimate {
    /// The value.
    pub value: f64,
    /// Its interval's lower end.
    pub lo: f64,
    /// And upper.
    pub hi: f64,
}

/// What a part of a stack takes of it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Share {
    /// The stack.
    pub stack: String,
    /// Bytes in a buffer.
    pub size: u32,
    /// `socket-layer` (bookkeeping), `socket-copy`, `transport`, `ip`, `checksum`, `copy` (between the
    /// transport's buffers and the frame) or `link`.
    pub component: String,
    /// Its time for a buffer, both ends, in ns. A small difference of two larger numbers: it may be
    /// negative.
    pub ns: f64,
    /// Of the whole stack's, in per cent.
    pub percent: f64,
}

/// What a protocol's engine costs without anything around it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct EngineCost {
    /// Which: `mobile-tcp` or `tcp`.
    pub engine: String,
    /// Bytes in a packet.
    pub size: u32,
    /// For a packet sent, received and acknowledged, in ns.
    pub ns_per_packet: f64,
    /// Its lower quartile.
    pub lo_ns: f64,
    /// Its upper quartile.
    pub hi_ns: f64,
    /// Allocations for a packet, where they were counted.
    #[serde(default)]
    pub allocations_per_packet: Option<f64>,
}

/// What a bulk transfer costs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct BulkCost {
    /// The stack.
    pub stack: String,
    /// Bytes that the application hands over at once.
    pub write: u32,
    /// Processor time of both ends for 1000 bytes, in ns.
    pub cpu_ns_per_kb: f64,
}

/// What exchanges give in bits a second.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Throughput {
    /// The stack.
    pub stack: String,
    /// Bytes in a buffer.
    pub size: u32,
    /// `measured`, without a link's rate; or `computed-10M`, with the time on a 10 Mbit/s Ethernet;
    /// or `computed-10M-paper-cpu`, that with all latencies multiplied by the one factor that makes the
    /// intercept of `tcp-ip` the paper's.
    pub kind: String,
    /// The throughput of one direction.
    pub bits_per_s: f64,
}

/// A ratio or share, ready to stand beside the paper's.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Ratio {
    /// Its short name, such as `mobile-tcp-2001.figure13.intercept_ratio`.
    pub id: String,
    /// Its value.
    pub value: f64,
    /// Its interval, where it has one.
    #[serde(default)]
    pub lo: Option<f64>,
    /// Likewise.
    #[serde(default)]
    pub hi: Option<f64>,
    /// What it is, in words, and whether it is measured or computed.
    pub meaning: String,
}

impl Ratio {
    /// Its name without the paper's.
    pub fn name(&self) -> &str {
        self.id.strip_prefix("mobile-tcp-2001.").unwrap_or(&self.id)
    }

    /// Whether it is in the range that the paper prints, or within a third of its value; none where
    /// it prints neither.
    pub fn agrees(&self, published: &Published) -> Option<bool> {
        let printed = published.table("processing")?.estimate(self.name(), "value")?;
        let near = (self.value - printed.mean).abs() <= printed.mean.abs() / 3.0;
        Some(printed.interval().map_or(near, |range| range.contains(self.value)))
    }
}

/// A stack that could not be measured.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Missing {
    /// Which.
    pub stack: String,
    /// Why not, and what would help.
    pub why: String,
}

impl Processing {
    /// A stack's costs; none if it was not measured.
    pub fn stack(&self, name: &str) -> Option<&StackCost> {
        self.stacks.iter().find(|cost| cost.stack == name)
    }
}
