//! What happened, as counters and as a number: two runs of one seed have the same hash, on any
//! machine, or something is not deterministic.

use lasthop_units::Time;

/// A step worth recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceStep {
    /// A packet came out of a link at a node.
    Arrived,
    /// A link did not take a packet.
    Refused,
    /// A node has no route for a packet.
    Unroutable,
    /// A node's timer fired.
    Timer,
    /// A scheduled event happened.
    Event,
}

/// Counters and a running hash over a network's run.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Trace {
    hash: u64,
    /// Events of any kind.
    pub events: u64,
    /// Packets handed to links.
    pub sent: u64,
    /// Packets that came out of links.
    pub arrived: u64,
    /// Packets that links did not take; those lost later are in the links' own statistics.
    pub refused: u64,
    /// Packets that a node had no route for.
    pub unroutable: u64,
    /// Timers fired.
    pub timers: u64,
}

impl Trace {
    /// The hash of everything so far: of time, node, step and packet header of each [`TraceStep`].
    pub const fn hash(&self) -> u64 {
        self.hash
    }

    #[inline]
    pub(super) fn arrived(&mut self, now: Time, node: usize, digest: u64) {
        self.arrived += 1;
        self.step(now, node, TraceStep::Arrived, digest);
    }

    pub(super) fn refused(&mut self, now: Time, node: usize, digest: u64) {
        self.refused += 1;
        self.step(now, node, TraceStep::Refused, digest);
    }

    pub(super) fn unroutable(&mut self, now: Time, node: usize, digest: u64) {
        self.unroutable += 1;
        self.step(now, node, TraceStep::Unroutable, digest);
    }

    pub(super) fn timer(&mut self, now: Time, node: usize) {
        self.timers += 1;
        self.step(now, node, TraceStep::Timer, 0);
    }

    pub(super) fn event(&mut self, now: Time, number: u64) {
        self.step(now, 0, TraceStep::Event, number);
    }

    #[inline]
    fn step(&mut self, now: Time, node: usize, step: TraceStep, digest: u64) {
        let who = ((node as u64) << 8 | step as u64).wrapping_mul(WHO);
        self.hash = fold(self.hash ^ now.as_nanos(), digest ^ who);
    }
}

const WHO: u64 = 0xa076_1d64_78bd_642f;
const LEFT: u64 = 0xe703_7ed1_a0b4_28db;
const RIGHT: u64 = 0x8ebc_6af0_9c88_c6e3;

/// Two words into one in which every bit depends on all of both.
#[inline]
pub(super) const fn fold(a: u64, b: u64) -> u64 {
    let wide = (a ^ LEFT) as u128 * (b ^ RIGHT) as u128;
    (wide >> 64) as u64 ^ wide as u64
}
