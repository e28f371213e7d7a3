use core::time::Duration;

use lasthop_units::{Bytes, Rate};
use lasthop_wire::frame::PACKET_MAX;

use crate::memory::Memory;
use crate::path_id::PathNumbers;

/// Bounds and habits of one end of a hop. The defaults suit hops from 100 kbit/s to 1 Gbit/s with
/// round trips up to a second; nothing needs to be configured about the path.
#[derive(Clone, Debug)]
pub struct HopConfig {
    /// Carrier payload that every hop is expected to pass.
    pub datagram_base: Bytes,
    /// Largest carrier payload that is tried: the first interface's MTU less the carrier's headers.
    pub datagram_max: Bytes,
    /// Bytes that the carrier puts before each payload on the radio: 28 for UDP over IPv4.
    pub carrier_overhead: Bytes,
    /// What a new stream may receive before it is read, to begin with. It grows by need.
    pub stream_window: Bytes,
    /// What one stream may hold unread, or unacknowledged, at most.
    pub stream_memory: Bytes,
    /// What all streams of an association may receive before they are read, to begin with.
    pub association_window: Bytes,
    /// What all streams of an association may hold at most, in each direction; some of it only those that hold little
    /// ([`reserve`](Self::reserve)).
    pub association_memory: Bytes,
    /// What all associations with a clone of this may hold together.
    pub memory: Memory,
    /// What a stream takes from its writer ahead of sending it, as time at the present rate, which
    /// streams share. What is taken must move at a handoff; what is not stays with the writer.
    pub ahead: Duration,
    /// But at least this.
    pub ahead_min: Bytes,
    /// Datagrams in the first round trip. More than the default suits a path that is known to be
    /// wired and fast.
    pub initial_datagrams: u32,
    /// Streams that one association may have open at once.
    pub streams_max: usize,
    /// Silence after which the association and its streams are given up.
    pub silence_limit: Duration,
    /// Longest that an idle mobile says nothing: keeps address translators from forgetting the association. A base says
    /// nothing by itself while its mobile does.
    pub keepalive: Duration,
    /// What decides how much is on its way.
    pub discipline: Discipline,
    /// The longest packet of the datagram lane that is taken; zero if none. By a fixed window none is.
    pub packet_max: Bytes,
}

/// What decides how much is on its way, and when to ask again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Discipline {
    /// The hop is measured and datagrams are paced to it; tails and silences are probed.
    #[default]
    Paced,
    /// A fixed window and a timer, as in the 1994 paper.
    Windowed(Window),
}

/// The parameters that SRP had in 1994, as far as they are known (SRP-2, SRP-6, SRP-8, SRP-9).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// Segments beyond the last in sequence that a stream may send: the length of the bitmap.
    pub segments: u32,
    /// Segments in sequence that one acknowledgement answers; one out of sequence is answered at
    /// once.
    pub ack_every: u32,
    /// How long an acknowledgement may wait for more segments.
    pub ack_delay: Duration,
    /// The timer before there is a round trip to go by.
    pub rto_initial: Duration,
    /// The shortest timer.
    pub rto_min: Duration,
    /// The longest that the timer is backed off to: loss is no congestion on a hop.
    pub rto_max: Duration,
    /// Timers are rounded up to a multiple of this.
    pub granularity: Duration,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            segments: 32,
            ack_every: 1,
            ack_delay: Duration::from_millis(200),
            rto_initial: Duration::from_secs(1),
            rto_min: Duration::from_millis(20),
            rto_max: Duration::from_secs(1),
            granularity: Duration::from_millis(10),
        }
    }
}

impl Default for HopConfig {
    fn default() -> Self {
        Self {
            datagram_base: Bytes::new(1200),
            datagram_max: Bytes::new(1472),
            carrier_overhead: Bytes::new(28),
            stream_window: Bytes::from_kib(512),
            stream_memory: Bytes::from_mib(64),
            association_window: Bytes::from_mib(4),
            association_memory: Bytes::from_mib(256),
            memory: Memory::default(),
            ahead: Duration::from_millis(250),
            ahead_min: Bytes::from_kib(256),
            initial_datagrams: 32,
            streams_max: 4096,
            silence_limit: Duration::from_secs(1800),
            keepalive: Duration::from_secs(15),
            discipline: Discipline::Paced,
            packet_max: Bytes::new(PACKET_MAX as u64),
        }
    }
}

/// What a byte of credit may come to cost: buffers are powers of two, and ranges of what has come out
/// of order take memory too. In quarters.
const CREDIT_COST: u64 = 10;
/// No new stream is granted more than one of so many parts of the association's first window.
const STREAMS_AT_FIRST: u64 = 4;

/// What `credit` may come to cost.
pub(crate) fn cost_of_credit(credit: u64) -> u64 {
    credit.saturating_mul(CREDIT_COST) / 4
}

/// The credit that may cost `memory`.
pub(crate) fn credit_for(memory: u64) -> u64 {
    memory / CREDIT_COST * 4
}

impl HopConfig {
    /// What of the association's memory only streams that hold little may use: an eighth, at most 64 KiB.
    pub fn reserve(&self) -> Bytes {
        Bytes::new(self.association_memory.get() / 8).min(Bytes::from_kib(64))
    }

    /// What all streams may receive before they are read when the association begins: nobody has been
    /// promised more than there is, so it costs no more than the minimum of every association.
    pub(crate) fn first_window(&self) -> Bytes {
        self.association_window.min(Bytes::new(credit_for(self.memory.minimum().get())))
    }

    /// What a stream may receive before it is read when it begins.
    pub(crate) fn first_stream_window(&self) -> Bytes {
        match self.memory.bound() {
            Some(_) => {
                self.stream_window.min(Bytes::new(self.first_window().get() / STREAMS_AT_FIRST))
            }
            None => self.stream_window,
        }
    }

    /// The longest packet that this end takes, whatever was announced.
    pub(crate) fn packets_taken(&self) -> Bytes {
        match self.discipline {
            Discipline::Paced => self.packet_max,
            Discipline::Windowed(_) => Bytes::ZERO,
        }
    }
}

/// The bounds that each end sends the other before the first stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Credit that every stream starts with.
    pub stream_window: Bytes,
    /// Credit for all streams together to start with.
    pub association_window: Bytes,
    /// Streams that the peer may have open at once.
    pub streams_max: u64,
    /// The first stream that this end will open.
    pub first_stream: u64,
    /// The association that the mobile takes to be standing when it asks for a new one, by the base's
    /// name for it; in the answer, the same if the base knows it too.
    pub standing: Option<u32>,
    /// If an association stands, the least packet numbers that this end will use under the new keys.
    pub first_numbers: PathNumbers,
    /// What the path was worth to what this end received before, and its least round trip: a hint, for an
    /// association that begins.
    pub resume: Option<(Rate, Duration)>,
    /// The longest packet of the datagram lane that the peer may send; zero if none.
    pub packet_max: Bytes,
}

impl Limits {
    /// What a configuration promises.
    pub fn of(config: &HopConfig) -> Self {
        Self {
            stream_window: config.first_stream_window(),
            association_window: config.first_window(),
            streams_max: config.streams_max as u64,
            first_stream: 0,
            standing: None,
            first_numbers: PathNumbers::NONE,
            resume: None,
            packet_max: config.packets_taken(),
        }
    }
}
