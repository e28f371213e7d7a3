//! What can be set.

use lasthop_units::{Bytes, Duration, deserialize_duration};
use serde::Deserialize;

/// The settings of an [`Unsplit`](super::Unsplit). The paper names none of them.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// Segments of one connection that are kept in each direction: 256. One that finds no room
    /// passes without.
    #[serde(rename = "cache")]
    pub segments: usize,
    /// Bytes of all connections that are kept, headers included: 64 MiB.
    #[serde(skip)]
    pub memory: Bytes,
    /// Connections that are known, from 1 to 32,768: 4096. The one that was silent longest gives way,
    /// but not within 10 s of its last packet: further ones cross the hop as they are meanwhile.
    #[serde(skip)]
    pub connections: usize,
    /// After how long without a packet a connection is forgotten, 10 s at least: 5 minutes. One that
    /// goes on after that begins anew, and its first packet may be lost.
    #[serde(skip)]
    pub idle: Duration,
    /// Where the count of CIDs begins. A half that restarts should begin elsewhere, such as at a
    /// random number: the other goes on with the CIDs that it has.
    #[serde(skip)]
    pub first_cid: u16,
    /// How often one segment is sent again: 10 times.
    pub tries: u32,
    /// The least time of the retransmission timer: 200 ms, the grain of the paper's one timer
    /// (MOB-34).
    #[serde(deserialize_with = "deserialize_duration")]
    pub tick: Duration,
    /// The longest time of the retransmission timer, which doubles with each try: 2 s. A hop that
    /// carries again is tried at once where the link says so.
    #[serde(rename = "longest-timer", deserialize_with = "deserialize_duration")]
    pub longest: Duration,
    /// The retransmission timer before the first round trip of a connection: 500 ms.
    #[serde(rename = "initial-timer", deserialize_with = "deserialize_duration")]
    pub initial: Duration,
    /// How long a request waits for a packet to ride on before it goes by itself: 1 ms. The mobile's
    /// TCP answers each packet behind a gap at once (RFC 5681 section 4.2), so that there it seldom
    /// waits.
    #[serde(deserialize_with = "deserialize_duration")]
    pub ride: Duration,
    /// How often a CID is offered on the packets of a connection whose beginning has not been seen: 8
    /// times, at first after a `tick`, then after twice as long each time.
    pub offers: u32,
    /// The longest IP packet that the hop carries, in bytes: 1500. An offer goes only on a packet that
    /// stays as short.
    #[serde(skip)]
    pub mtu: u32,
    /// Gaps that a receiving half keeps apart: 32. What lies above more than that counts as missing.
    pub gaps: usize,
    /// Takes the SACK blocks off a new acknowledgement that passes while a hole is under repair. Off,
    /// so that packets pass as they came; see [`snoop`](crate::snoop::Config::hide_sack).
    pub hide_sack: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            segments: 256,
            memory: Bytes::from_mib(64),
            connections: 4096,
            idle: Duration::from_secs(300),
            first_cid: 1,
            tries: 10,
            tick: Duration::from_millis(200),
            longest: Duration::from_secs(2),
            initial: Duration::from_millis(500),
            ride: Duration::from_millis(1),
            offers: 8,
            mtu: 1500,
            gaps: 32,
            hide_sack: false,
        }
    }
}
