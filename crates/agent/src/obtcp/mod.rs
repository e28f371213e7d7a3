//! obTCP: an agent at the base and an agent at the mobile router, each of which repairs one of the
//! two radio links between them and the mobile host (obtcp-2010 section III).
//!
//! The [`Base`] keeps copies of what it sends over the first link. The [`Router`] sees a gap in the
//! sequence numbers as soon as the packet after it arrives, names the missing bytes in a SNACK, and
//! the base sends them all again at once. What the base does not have was lost before it: it says
//! so in a congestion message, and the router lets the duplicate acknowledgements pass that make
//! the fixed host retransmit. Losses on the second link show as duplicate acknowledgements for
//! packets that the router has: it sends them again itself and keeps the duplicates back. Neither
//! repair waits for the other (OBM-11), and neither host is changed (OBM-12).
//!
//! Data towards the fixed host is not helped and passes untouched, as does everything that is not
//! TCP. Where the paper is silent, a parameter of [`Config`] decides.
//!
//! Acknowledgements that bring something new pass with the SACK blocks that they carry. A fixed
//! host that counts SACKed bytes can so retransmit what the agents repair as well.

mod base;
mod flow;
mod holes;
mod router;
mod stats;
#[cfg(test)]
mod tests;
mod timer;

pub use crate::rtt::RtoBounds;
pub use base::{Base, BaseStats};
pub use router::Router;
pub use stats::RouterStats;
pub use timer::LocalTimer;

use lasthop_units::{Bytes, Duration, deserialize_duration};
use lasthop_wire::agent::Ranges;
use lasthop_wire::tcp::{Segment, Seq};
use serde::{Deserialize, Deserializer};
use thiserror::Error;

use crate::cache::{Cache, Stored};
use timer::check_bounds;

/// The fewest segments that a cache may hold: the largest window of the paper's senders (OBB-8).
pub const LEAST_CACHE: usize = 16;

/// The largest window (RFC 7323 section 2.3). Sequence numbers this far apart do not belong to the
/// same stretch of a connection.
const REACH: i32 = 1 << 30;

/// What a full cache does with the next segment (OBB-8).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Eviction {
    /// It drops its lowest segment: the paper speaks of packets that were flushed early (OBB-5).
    /// A gap shows within a round trip of the hop, so the lowest is the least likely to be asked
    /// for.
    #[default]
    Lowest,
    /// It does not take the segment, as snoop.
    Newest,
}

/// What an agent remembers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// Segments that are kept of each connection, at least [`LEAST_CACHE`]; 100 as in ns-2's snoop.
    pub segments: usize,
    /// Bytes of payload that are kept of all connections: 64 MiB.
    pub bytes: Bytes,
    /// What a full cache does.
    pub eviction: Eviction,
    /// Connections that are known at a time; beyond, the one that was silent longest is removed.
    pub connections: usize,
    /// How long a connection may be silent before it is removed.
    pub idle: Duration,
}

impl Memory {
    /// For the windows of today's kernels: 1.5 MB of a connection.
    pub fn modern() -> Self {
        Self { segments: 1024, ..Self::default() }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            segments: 100,
            bytes: Bytes::from_mib(64),
            eviction: Eviction::default(),
            connections: 4096,
            idle: Duration::from_secs(3600),
        }
    }
}

/// Parameters of both agents. The default is the paper's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// What an agent remembers.
    #[serde(rename = "cache", deserialize_with = "memory_of")]
    pub memory: Memory,
    /// Each agent sends the oldest segment again when no acknowledgement comes. The paper has no such
    /// timer: a loss of the last packets of a flight waits for the fixed host's (OBB-7). Off by
    /// default.
    pub timers: bool,
    /// Their timers, then.
    #[serde(rename = "tick", deserialize_with = "timer_of")]
    pub timer: LocalTimer,
    /// While round trips tell of a queue that is deeper than the path is long, the base keeps no new
    /// segments: a loss there is congestion, as one on the wire (OBB-4). The paper is silent: off by
    /// default.
    pub heed_backlog: bool,
    /// Upon a duplicate acknowledgement the router sends all that it keeps after the missing packet
    /// again (section VII.B), not that packet alone (section III.B): off by default (OBM-8).
    pub go_back_n: bool,
    /// The duplicate acknowledgement that makes the router retransmit (OBM-5): the first. Those
    /// before it pass.
    #[serde(rename = "threshold")]
    pub dupacks: u32,
    /// How often the router sends a segment again upon duplicates until they pass.
    pub tries: u32,
    /// An acknowledgement that a retransmission brought about and that shows another kept segment
    /// missing, which was sent before that retransmission, has the router send it again at once. The
    /// paper waits for a duplicate. Off by default.
    pub partial_acks: bool,
    /// Gaps of a connection that the router knows at a time, at most [`Ranges::MAX`]. Nothing is done
    /// about one too many: the duplicates for it pass.
    #[serde(skip)]
    pub gaps: usize,
    /// How often a gap is reported in all. A timeout after the last report, duplicates pass
    /// (OBM-6): 2.
    pub snacks: u32,
    /// The time from a SNACK to its answer (OBM-6). The estimate comes from retransmissions that
    /// answered the first SNACK for their bytes.
    #[serde(skip)]
    pub rto: RtoBounds,
    /// How many of the duplicates that were kept back are made good when it turns out that the base
    /// cannot help: three, which a fixed host needs for its fast retransmit (OBM-7).
    pub replay: u32,
    /// The base sends missing bytes in the order in which they were asked for, and the hop keeps
    /// that order (LNK-11): bytes that come before others that were asked for earlier show that
    /// those were lost again, and those are asked for at once. The paper is silent: off by default,
    /// and such bytes wait for the timeout.
    pub detect_lost_retransmissions: bool,
}

fn memory_of<'de, D: Deserializer<'de>>(segments: D) -> Result<Memory, D::Error> {
    Ok(Memory { segments: usize::deserialize(segments)?, ..Memory::default() })
}

fn timer_of<'de, D: Deserializer<'de>>(tick: D) -> Result<LocalTimer, D::Error> {
    deserialize_duration(tick).map(LocalTimer::of_tick)
}

impl Config {
    /// For the TCP of today's kernels: larger windows, a timer that is shorter than theirs; and where
    /// the paper is silent, what tells of a loss is not left to a timer.
    pub fn modern() -> Self {
        Self {
            memory: Memory::modern(),
            timers: true,
            timer: LocalTimer::modern(),
            heed_backlog: true,
            partial_acks: true,
            detect_lost_retransmissions: true,
            ..Self::default()
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            memory: Memory::default(),
            timers: false,
            timer: LocalTimer::default(),
            heed_backlog: false,
            go_back_n: false,
            dupacks: 1,
            tries: 10,
            partial_acks: false,
            gaps: Ranges::MAX,
            snacks: 2,
            rto: RtoBounds::default(),
            replay: 3,
            detect_lost_retransmissions: false,
        }
    }
}

/// A parameter that no agent can work with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ConfigError {
    /// See [`LEAST_CACHE`].
    #[error("a cache of {0} segments; at least 16 are needed, the senders' largest window")]
    Cache(usize),
    /// No connection may be known.
    #[error("0 connections; at least 1 must be known")]
    Connections,
    /// No gap may be known, or more than a SNACK can name.
    #[error("{0} gaps of a connection; from 1 to 32 can be known")]
    Gaps(usize),
    /// This count is zero.
    #[error("{0} is 0; it must be at least 1")]
    Zero(&'static str),
    /// The bounds of a timeout are out of order, or it could be zero.
    #[error("a timeout from {least:?} to {most:?}; it must be above zero and in order")]
    Rto {
        /// The lower bound.
        least: Duration,
        /// The upper bound.
        most: Duration,
    },
}

impl Config {
    /// Whether agents can work with these.
    ///
    /// # Errors
    ///
    /// Names the parameter that is out of bounds.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.memory.segments < LEAST_CACHE {
            return Err(ConfigError::Cache(self.memory.segments));
        }
        if self.memory.connections == 0 {
            return Err(ConfigError::Connections);
        }
        self.timer.check()?;
        if !(1..=Ranges::MAX).contains(&self.gaps) {
            return Err(ConfigError::Gaps(self.gaps));
        }
        let counts = [("dupacks", self.dupacks), ("tries", self.tries), ("snacks", self.snacks)];
        match counts.into_iter().find(|(_, count)| *count == 0) {
            Some((name, _)) => Err(ConfigError::Zero(name)),
            None => check_bounds(&self.rto),
        }
    }
}

/// The sequence numbers of a connection that are in use, fewer than [`REACH`].
#[derive(Clone, Copy, Debug)]
struct Stretch {
    /// The highest acknowledgement.
    una: Option<Seq>,
    /// Where it begins: there, or with the first byte that came.
    floor: Seq,
    /// After the highest byte that came.
    next: Seq,
}

impl Stretch {
    const fn new(next: Seq) -> Self {
        Self { una: None, floor: next, next }
    }

    /// `seq` is near its end.
    const fn reaches(&self, seq: Seq) -> bool {
        seq.ahead_of(self.next).unsigned_abs() < REACH.unsigned_abs()
    }

    /// A segment can belong to it, if only as one that was acknowledged long ago.
    fn takes(&self, segment: &Segment) -> bool {
        self.reaches(segment.seq) && segment.end().ahead_of(self.floor) < REACH
    }

    /// A segment that it takes has come.
    fn extend(&mut self, segment: &Segment) {
        if segment.end().ahead_of(self.next) > 0 {
            self.next = segment.end();
        }
        if self.una.is_none() && segment.seq.ahead_of(self.floor) < 0 {
            self.floor = segment.seq;
        }
    }

    /// All bytes of a segment are acknowledged.
    fn is_past(&self, segment: &Segment) -> bool {
        self.una.is_some_and(|una| segment.end().ahead_of(una) <= 0)
    }

    /// How far an acknowledgement goes beyond the highest; none if what it acknowledges is not in
    /// use.
    fn advance_of(&self, ack: Seq) -> Option<i32> {
        let known = self.reaches(ack) && ack.ahead_of(self.next) <= 0;
        known.then(|| self.una.map_or(1, |una| ack.ahead_of(una)))
    }

    const fn acknowledge(&mut self, ack: Seq) {
        self.una = Some(ack);
        self.floor = ack;
    }

    /// The part of a range that is not acknowledged; none if the range lies elsewhere.
    fn clip(&self, (start, end): (Seq, Seq)) -> Option<(Seq, Seq)> {
        let len = end.ahead_of(start);
        let beyond = end.ahead_of(self.floor);
        let known = len > 0 && len < REACH && beyond > 0 && beyond < REACH;
        known.then(|| (if start.ahead_of(self.floor) < 0 { self.floor } else { start }, end))
    }
}

/// Keeps a segment, if it finds `room` for its bytes beside all that is kept; what became of it, and
/// how many others gave way.
fn keep<P, M>(
    cache: &mut Cache<P, M>,
    (eviction, room): (Eviction, u64),
    (seq, end): (Seq, Seq),
    packet: P,
    note: M,
) -> (Stored, u64) {
    let len = u64::try_from(end.ahead_of(seq)).unwrap_or(0);
    let most = cache.bytes().saturating_add(room);
    let mut evicted = 0;
    loop {
        let known = cache.starting(seq).map(|kept| kept.end.ahead_of(seq));
        let freed = known.map_or(0, |known| u64::try_from(known).unwrap_or(0));
        let large = (cache.bytes() + len).saturating_sub(freed) > most;
        if !large && (known.is_some() || !cache.is_full()) {
            break;
        }
        // A segment below all others would be the next to go.
        let lower = cache.front().is_some_and(|front| seq.ahead_of(front.seq) > 0);
        if len > most || eviction == Eviction::Newest || !lower {
            return (Stored::Refused, evicted);
        }
        cache.pop_front();
        evicted += 1;
    }
    (cache.store(seq, end, packet, note), evicted)
}
