use core::time::Duration;

use lasthop_units::Bytes;

/// Bounds and habits of one end of a hop. The defaults suit hops from 100 kbit/s to 1 Gbit/s with
/// round trips up to a second; nothing needs to be told about the path.
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
    /// What all streams of an association may hold at most, in each direction.
    pub association_memory: Bytes,
    /// Streams that one association may have open at once.
    pub streams_max: usize,
    /// Silence after which the association and its streams are given up.
    pub silence_limit: Duration,
    /// Longest that an idle association says nothing: keeps address translators from forgetting it.
    pub keepalive: Duration,
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
            streams_max: 4096,
            silence_limit: Duration::from_secs(1800),
            keepalive: Duration::from_secs(15),
        }
    }
}

/// What each end tells the other of its bounds before the first stream.
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
}

impl Limits {
    /// What a configuration promises.
    pub fn of(config: &HopConfig) -> Self {
        Self {
            stream_window: config.stream_window,
            association_window: config.association_window,
            streams_max: config.streams_max as u64,
            first_stream: 0,
            standing: None,
        }
    }
}
