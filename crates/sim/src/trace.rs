//! What happened, as a number: two runs of one seed have the same hash or something is not
//! deterministic.

use lasthop_units::Time;

use crate::content::mix;

/// A step worth recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A node handed a datagram to its link.
    Sent,
    /// A link let a datagram out at its far end.
    Arrived,
    /// A datagram's destination is nobody's address.
    Unroutable,
    /// A node's timer fired.
    Timer,
}

/// Counters and a running hash over every step of a run.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Trace {
    hash: u64,
    /// Datagrams handed to links.
    pub sent: u64,
    /// Datagrams that came out of links.
    pub arrived: u64,
    /// Datagrams for nobody.
    pub unroutable: u64,
    /// Timers fired.
    pub timers: u64,
    /// Print every step to standard error.
    pub verbose: bool,
}

impl Trace {
    /// The hash of everything so far.
    pub const fn hash(&self) -> u64 {
        self.hash
    }

    /// Records that `node`, or nobody, saw `step` with `bytes` at `now`.
    pub(crate) fn step(&mut self, now: Time, node: Option<usize>, step: Step, bytes: &[u8]) {
        match step {
            Step::Sent => self.sent += 1,
            Step::Arrived => self.arrived += 1,
            Step::Unroutable => self.unroutable += 1,
            Step::Timer => self.timers += 1,
        }
        let who = node.map_or(0, |n| n as u64 + 1);
        let head = now.as_nanos() ^ mix((who << 8) | step as u64);
        self.hash = mix(self.hash ^ head).wrapping_add(sample(bytes));
        if self.verbose {
            let who = node.map_or("nobody".into(), |n| format!("node {n}"));
            eprintln!("{now} {who}: {step:?} {} B", bytes.len());
        }
    }
}

/// Every bit of a sealed datagram depends on all that came before it, so its ends stand for it.
fn sample(bytes: &[u8]) -> u64 {
    let word = |part: &[u8]| {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        u64::from_le_bytes(word)
    };
    let n = bytes.len();
    let first = word(&bytes[..n.min(8)]);
    let last = word(&bytes[n - n.min(8)..]);
    mix(first ^ mix(last ^ n as u64))
}
