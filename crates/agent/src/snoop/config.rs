//! What can be set.

use alloc::format;
use alloc::string::String;

use lasthop_units::{Bytes, Duration, deserialize_duration, parse_duration};
use serde::{Deserialize, Deserializer, de};

use crate::rtt::RtoBounds;

/// How long snoop waits for an acknowledgement before it sends the oldest segment once more (SNP-6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timer {
    /// srtt + 4 rttvar (RFC 6298) after the segment crossed the hop last, but a [`Config::tick`] after
    /// the latest acknowledgement at least. Measured on segments that crossed the hop once and did
    /// not wait behind a hole: those of which the acknowledgement tells the hop's round trip and not
    /// how long a recovery took.
    Measured,
    /// Always this long after the latest acknowledgement or retransmission; a millisecond at least.
    Pinned(Duration),
    /// As ns-2.35 has it, for comparison: begins at 1.1 s, takes every acknowledgement for a sample,
    /// that of a resent segment or of one behind a hole too, and gives the new sample a weight of
    /// 7/8. Under heavy loss it grows to seconds.
    Stock,
}

impl<'de> Deserialize<'de> for Timer {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        match text.as_str() {
            "measured" => Ok(Self::Measured),
            "stock" => Ok(Self::Stock),
            _ => parse_duration(&text).map(Self::Pinned).map_err(|_| {
                let message = "is not `measured`, `stock` or a time such as `200ms`";
                de::Error::custom(format!("`{text}` {message}"))
            }),
        }
    }
}

/// The settings of a [`Snoop`](super::Snoop).
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// Duplicates of an acknowledgement after which the segment is sent again; those before pass to
    /// the fixed host. 1, as in the obTCP paper's figure 5; ns-2 acts on the second (SNP-4).
    #[serde(rename = "threshold")]
    pub dupacks: u32,
    /// The local timer.
    pub timer: Timer,
    /// The shortest time of a measured timer: 100 ms, as ns-2's (SNP-6).
    #[serde(deserialize_with = "deserialize_duration")]
    pub tick: Duration,
    /// A measured timer before the first sample: 1 s (RFC 6298 section 2.1).
    #[serde(rename = "initial-timer", deserialize_with = "deserialize_duration")]
    pub initial: Duration,
    /// How often snoop itself sends one segment again: 10 times (SNP-6). After that its duplicates
    /// pass to the fixed host, whose own retransmission allows as many once more.
    pub tries: u32,
    /// Segments of one connection that are kept: 100 (SNP-7). One that finds no room passes without.
    #[serde(rename = "cache")]
    pub segments: usize,
    /// Bytes of all connections that are kept, headers included: 64 MiB.
    #[serde(skip)]
    pub memory: Bytes,
    /// Connections that are known: 4096. The one that was silent longest gives way.
    #[serde(skip)]
    pub connections: usize,
    /// After how long without a packet a connection is forgotten: 5 minutes. What is forgotten too
    /// early is known again from its next segment on.
    #[serde(skip)]
    pub idle: Duration,
    /// SACK blocks tell which other segments are missing, and all of them are sent again at once
    /// instead of one per round trip; a resent one that is missing still is sent again without the
    /// timer. It takes the hop for one that does not reorder. Off, as in the papers (SNP-8).
    pub use_sack: bool,
    /// Where nothing came back between a copy that the timer sent and its acknowledgement, all that
    /// crossed before it is lost, and is sent again two segments for each that is acknowledged, as slow
    /// start does, instead of one a round trip. It takes the hop for one that does not reorder. Off,
    /// as in the papers (SNP-8). Of today's senders many take such a slow repair for a timer that was
    /// too short (RFC 5682), and leave it all to snoop.
    pub go_back: bool,
    /// While round trips tell of a queue that is deeper than the path is long, new segments are not kept
    /// either, as while the link's own queue is nearly full (SNP-7): most hops have a queue of which
    /// the agent hears nothing. Off, as in the papers.
    pub heed_backlog: bool,
    /// Takes the SACK blocks off a new acknowledgement that passes while the next hole is under
    /// repair. Off, so that packets pass as they came. A sender with SACK needs no duplicates to
    /// learn of a hole: the first partial acknowledgement tells it all, and it answers with a
    /// smaller window what snoop is about to repair. Blocks are advice (RFC 2018 section 8), so
    /// leaving them out harms nothing; but the header changes, which one that is signed (RFC 5925)
    /// does not survive.
    pub hide_sack: bool,
    /// Marks acknowledgements that ask a mobile for what was lost on the hop (SNP-10). Off: only
    /// senders that know the mark have a use for it, and the header changes.
    pub eln: bool,
}

impl Config {
    /// For the TCP of today's kernels, which waits 200 ms at least, has windows of more than 100
    /// segments, and with SACK sends on as long as anything is acknowledged: a timer of 20 ms, room
    /// for 1.5 MB of a connection, and repairs that take as few round trips as the sender's would.
    pub fn modern() -> Self {
        Self {
            tick: RtoBounds::default().least,
            segments: 1024,
            use_sack: true,
            go_back: true,
            heed_backlog: true,
            ..Self::default()
        }
    }
}

/// As the papers and ns-2 have it.
impl Default for Config {
    fn default() -> Self {
        Self {
            dupacks: 1,
            timer: Timer::Measured,
            tick: Duration::from_millis(100),
            initial: Duration::from_secs(1),
            tries: 10,
            segments: 100,
            memory: Bytes::from_mib(64),
            connections: 4096,
            idle: Duration::from_secs(300),
            use_sack: false,
            go_back: false,
            heed_backlog: false,
            hide_sack: false,
            eln: false,
        }
    }
}
