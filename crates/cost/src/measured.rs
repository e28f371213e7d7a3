//! What a measurement says, as plain data.

use serde::Serialize;

/// All that was measured in one run, on one machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// Where.
    pub machine: Machine,
    /// `quick` or `full`.
    pub effort: String,
    /// Each stack's latency and CPU time over buffer size (EXP-H2, EXP-H3, EXP-H4).
    pub stacks: Vec<StackCost>,
    /// What could not be measured here, and why.
    pub not_measured: Vec<Missing>,
    /// Where the time goes (EXP-H5, figure 14).
    pub shares: Vec<Share>,
    /// Transports alone: machine and packet format, no socket layer and no link.
    pub engine: Vec<EngineCost>,
    /// Bulk transfer one way, which ping-pong does not show.
    pub bulk: Vec<BulkCost>,
    /// Throughput of the bidirectional test (EXP-H1, figure 10).
    pub throughput: Vec<Throughput>,
    /// What is held against the paper.
    pub ratios: Vec<Ratio>,
}

/// The machine, as far as it matters.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// Cores that are online.
    pub cores: u32,
    /// The kernel's release.
    pub kernel: String,
    /// The program was compiled with optimisation: without it no figure here means anything.
    pub optimised: bool,
    /// The measuring thread stayed on one core.
    pub pinned: bool,
}

/// What could not be measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Missing {
    /// The stack, as in [`StackCost::stack`].
    pub stack: String,
    /// Why not, and what would help.
    pub why: String,
}

/// What one stack costs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StackCost {
    /// Its name, as in the [crate]'s table.
    pub stack: String,
    /// What it is, for people.
    pub title: String,
    /// By size of the buffer.
    pub points: Vec<Point>,
    /// The straight line through the latencies (figure 13).
    pub latency: Line,
    /// The same through the CPU times.
    pub cpu: Line,
}

/// What buffers of one size cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Bytes in a buffer.
    pub size: u32,
    /// Half a ping-pong: from one application to the other. Median of the rounds.
    pub latency_ns: f64,
    /// The lower quartile of the rounds.
    pub latency_lo_ns: f64,
    /// The upper quartile of the rounds.
    pub latency_hi_ns: f64,
    /// CPU time of both ends per buffer: one send and one receive. Median of the rounds.
    pub cpu_ns: f64,
    /// CPU time per 1000 bytes, which stands for the energy of figure 12.
    pub cpu_ns_per_kb: f64,
    /// How many rounds.
    pub rounds: u32,
}

/// A straight line through [`Point`]s, by least squares.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Line {
    /// What a buffer costs whatever its size.
    pub intercept_ns: Estimate,
    /// What each of its bytes adds.
    pub slope_ns_per_byte: Estimate,
    /// How much of the variation the line explains.
    pub r_squared: f64,
}

/// A value with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The value.
    pub value: f64,
    /// Lower end of the interval.
    pub lo: f64,
    /// Upper end.
    pub hi: f64,
}

/// How much of a stack's time one component takes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Share {
    /// The stack.
    pub stack: String,
    /// Bytes in a buffer.
    pub size: u32,
    /// `socket-layer` (bookkeeping), `socket-copy`, `transport`, `ip`, `checksum`, `copy` (between the
    /// transport's buffers and the frame) or `link`.
    pub component: String,
    /// Time per buffer, both ends. A small difference of two larger numbers: may come out negative.
    pub ns: f64,
    /// The same in percent of the whole stack.
    pub percent: f64,
}

/// What a transport alone costs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EngineCost {
    /// `mobile-tcp` or `tcp`.
    pub engine: String,
    /// Bytes of data in a packet.
    pub size: u32,
    /// Sending a packet, taking it at the other end, and the acknowledgement's share. Median.
    pub ns_per_packet: f64,
    /// The lower quartile of the rounds.
    pub lo_ns: f64,
    /// The upper quartile of the rounds.
    pub hi_ns: f64,
    /// Memory allocations per packet, where the process counts them
    /// ([`Options::allocations`](crate::Options::allocations)).
    pub allocations_per_packet: Option<f64>,
}

/// What a bulk transfer costs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BulkCost {
    /// The stack.
    pub stack: String,
    /// Bytes that the application hands over at once.
    pub write: u32,
    /// CPU time of both ends per 1000 bytes. Median of the rounds.
    pub cpu_ns_per_kb: f64,
}

/// Throughput of the bidirectional test with buffers of one size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Throughput {
    /// The stack.
    pub stack: String,
    /// Bytes in a buffer.
    pub size: u32,
    /// `measured`: nothing limits the link. `computed-10M`: the measured latency plus the time of the
    /// frame on 10 Mbit/s Ethernet. `computed-10M-paper-cpu`: the same with all measured latencies
    /// multiplied by the one factor that makes the intercept of `tcp-ip` the paper's 123 us.
    pub kind: String,
    /// Application bytes received, in bits per second.
    pub bits_per_s: f64,
}

/// A number that is held against the paper's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// Its id; that of the published value where there is one.
    pub id: String,
    /// The value.
    pub value: f64,
    /// Lower end of its interval, if known.
    pub lo: Option<f64>,
    /// Upper end.
    pub hi: Option<f64>,
    /// What it is, and whether it is measured or computed.
    pub meaning: String,
}
