//! The parameters of agents in the path: the `[agent]` table. What is not said is left to the
//! machines' own defaults.

use std::time::Duration;

use lasthop_radio::Span;
use lasthop_units::{Bytes, parse_duration};
use serde::{Deserialize, Deserializer, de};

use super::complaint::Complaints;
use super::tcp::MOST_HELD;

/// Agents in the path.
#[derive(Clone, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct AgentSettings {
    /// What a surrogate holds in each direction of a connection (MHP-11).
    pub buffer: Option<Bytes>,
    /// SNP.
    pub snoop: SnoopSettings,
    /// OBB, OBM.
    pub obtcp: ObtcpSettings,
    /// MTC.
    pub m_tcp: MTcpSettings,
    /// The link's own recovery (DDA-1, CC-4, EBS-1).
    pub link: RecoverySettings,
    /// ALT.
    pub unsplit: UnsplitSettings,
}

/// Snoop (SNP).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct SnoopSettings {
    /// The duplicate acknowledgement that it acts on (SNP-4).
    pub threshold: Option<u32>,
    /// Its local timer.
    pub timer: Option<LocalTimer>,
    /// The shortest measured timer (SNP-6).
    pub tick: Option<Span>,
    /// The measured timer before the first sample.
    pub initial_timer: Option<Span>,
    /// Segments that are kept of a connection (SNP-7).
    pub cache: Option<u32>,
    /// How often it sends one segment again (SNP-6).
    pub tries: Option<u32>,
    /// SACK blocks tell which other segments are missing.
    pub use_sack: Option<bool>,
    /// What a silence swallowed goes again two for each that came.
    pub go_back: Option<bool>,
    /// While round trips tell of a deep queue, losses are left to the sender (SNP-7).
    pub heed_backlog: Option<bool>,
    /// SACK blocks are taken off acknowledgements that pass while a hole is being repaired.
    pub hide_sack: Option<bool>,
    /// Marks what a mobile lost on the hop (SNP-10).
    pub eln: Option<bool>,
}

/// Snoop's local timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocalTimer {
    /// By the hop's measured round trip.
    Measured,
    /// As ns-2 has it.
    Stock,
    /// Always so long.
    Pinned(Duration),
}

impl<'de> Deserialize<'de> for LocalTimer {
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

/// The agents of obTCP (OBB, OBM).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct ObtcpSettings {
    /// Both agents have a local timer (OBB-7).
    pub timers: Option<bool>,
    /// The shortest local timer.
    pub tick: Option<Span>,
    /// Segments that each agent keeps of a connection (OBB-8).
    pub cache: Option<u32>,
    /// The mobile router sends all that follows a gap again (OBM-8).
    pub go_back_n: Option<bool>,
    /// The duplicate acknowledgement that the mobile router acts on (OBM-5).
    pub threshold: Option<u32>,
    /// How often the mobile router sends a segment again upon duplicates.
    pub tries: Option<u32>,
    /// How often a gap is reported in all (OBM-6).
    pub snacks: Option<u32>,
    /// Duplicates that are made good when the base cannot help (OBM-7).
    pub replay: Option<u32>,
    /// New acknowledgements that show another loss bring its retransmission at once.
    pub partial_acks: Option<bool>,
    /// Retransmissions that overtake earlier ones show that those were lost.
    pub detect_lost_retransmissions: Option<bool>,
    /// While round trips tell of a deep queue, losses are left to the sender (OBB-4).
    pub heed_backlog: Option<bool>,
}

/// The agent of M-TCP (MTC).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct MTcpSettings {
    /// How long the mobile may owe an acknowledgement before it counts as disconnected (MTC-6).
    pub silence: Option<Span>,
    /// The same in round trips of the hop; the longer of the two counts.
    pub round_trips: Option<u32>,
    /// Segments that are kept of a connection for the hop (MTC-8).
    pub cache: Option<u32>,
    /// Segments under way to a mobile that has come back.
    pub window: Option<u32>,
    /// How often it is looked whether a disconnected mobile is back.
    pub probe: Option<Span>,
    /// How long the last byte is held when nothing comes (MTC-2).
    pub tail: Option<Span>,
}

/// The link's own recovery (DDA-1, DDA-6).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct RecoverySettings {
    /// Retransmissions of a frame.
    pub retries: Option<u32>,
    /// Frames that are kept.
    pub copies: Option<u32>,
    /// Frames are passed on in their order.
    pub in_order: Option<bool>,
    /// How long a gap is waited for where they are.
    pub hold: Option<Span>,
    /// How long an answer is waited for before the hop's round trip is known.
    pub initial_timeout: Option<Span>,
    /// The least time that an answer is waited for.
    pub least_timeout: Option<Span>,
    /// The least time between two notices of EBSN about one connection.
    pub notice_interval: Option<Span>,
}

/// Mobile TCP's unsplit alternative, at both ends of the hop (ALT).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct UnsplitSettings {
    /// Segments that are kept of a connection in each direction.
    pub cache: Option<u32>,
    /// How often one segment is sent again.
    pub tries: Option<u32>,
    /// The least time of the retransmission timer (MOB-34).
    pub tick: Option<Span>,
    /// The retransmission timer before there is a round trip to go by.
    pub initial_timer: Option<Span>,
    /// The longest time of the retransmission timer.
    pub longest_timer: Option<Span>,
    /// How long a request waits for a packet to ride on.
    pub ride: Option<Span>,
    /// How often a connection's identifier is offered where its beginning was not seen.
    pub offers: Option<u32>,
    /// Gaps that are kept apart.
    pub gaps: Option<u32>,
    /// SACK blocks are taken off acknowledgements that pass while a hole is being repaired.
    pub hide_sack: Option<bool>,
}

/// The least cache of obTCP's agents: the largest window of the paper's senders (OBB-8).
const OBTCP_CACHE: u32 = 16;

impl AgentSettings {
    /// The buffer of a surrogate if nothing is said.
    pub const BUFFER: Bytes = Bytes::from_kib(16);

    /// What a surrogate holds in each direction.
    pub fn buffer(&self) -> Bytes {
        self.buffer.unwrap_or(Self::BUFFER)
    }

    /// Complains about values that no agent can have.
    pub(crate) fn check(&self, wrong: &mut Complaints) {
        if self.buffer == Some(Bytes::ZERO) {
            let message = "a surrogate without a buffer relays nothing";
            let remedy = "give what a surrogate may hold in each direction, such as `16KiB`";
            wrong.add(&["agent", "buffer"], message, remedy);
        }
        if self.buffer.is_some_and(|buffer| buffer > MOST_HELD) {
            let message = "is more than 64 MiB, the most that a surrogate can hold";
            wrong.add(&["agent", "buffer"], message, "`16KiB` to `1MiB` are usual");
        }
        for (scheme, key, count) in [
            ("snoop", "threshold", self.snoop.threshold),
            ("snoop", "cache", self.snoop.cache),
            ("obtcp", "threshold", self.obtcp.threshold),
            ("obtcp", "snacks", self.obtcp.snacks),
            ("obtcp", "tries", self.obtcp.tries),
            ("m-tcp", "cache", self.m_tcp.cache),
            ("m-tcp", "window", self.m_tcp.window),
            ("link", "copies", self.link.copies),
            ("unsplit", "cache", self.unsplit.cache),
            ("unsplit", "gaps", self.unsplit.gaps),
        ] {
            if count == Some(0) {
                let message = "0 would help nobody";
                wrong.add(&["agent", scheme, key], message, "give 1 or more");
            }
        }
        if let Some(cache) = self.obtcp.cache.filter(|n| *n < OBTCP_CACHE) {
            let message = format!("{cache} is less than {OBTCP_CACHE}, a sender's largest window");
            wrong.add(&["agent", "obtcp", "cache"], message, "100 is usual");
        }
        if let Some(copies) = self.link.copies.filter(|n| *n > 256) {
            let message = format!("{copies} is more than the 256 that an acknowledgement can tell");
            wrong.add(&["agent", "link", "copies"], message, "256 is usual");
        }
        for (scheme, key, span) in [
            ("snoop", "tick", self.snoop.tick),
            ("snoop", "initial-timer", self.snoop.initial_timer),
            ("obtcp", "tick", self.obtcp.tick),
            ("m-tcp", "silence", self.m_tcp.silence),
            ("m-tcp", "probe", self.m_tcp.probe),
            ("link", "initial-timeout", self.link.initial_timeout),
            ("link", "least-timeout", self.link.least_timeout),
            ("unsplit", "tick", self.unsplit.tick),
            ("unsplit", "initial-timer", self.unsplit.initial_timer),
            ("unsplit", "longest-timer", self.unsplit.longest_timer),
        ] {
            if span.is_some_and(|s| s.0.is_zero()) {
                wrong.add(&["agent", scheme, key], "is zero, expected a time above it", "");
            }
        }
        if self.snoop.timer == Some(LocalTimer::Pinned(Duration::ZERO)) {
            let remedy = "`measured` follows the hop's round trip";
            wrong.add(&["agent", "snoop", "timer"], "is zero, expected a time above it", remedy);
        }
    }
}
