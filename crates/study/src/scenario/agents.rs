//! The parameters of agents in the path: the `[agent]` table. What is not said is left to the
//! machines' own defaults.

use std::time::Duration;

use lasthop_agent::link::LinkConfig;
use lasthop_agent::m_tcp::MTcpConfig;
use lasthop_agent::{snoop, unsplit};
use lasthop_radio::Span;
use lasthop_units::Bytes;
use serde::Deserialize;

use super::complaint::Complaints;
use super::tcp::MOST_HELD;

/// Agents in the path.
#[derive(Clone, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct AgentSettings {
    /// What a surrogate holds in each direction of a connection (MHP-11).
    pub buffer: Option<Bytes>,
    /// SNP.
    pub snoop: snoop::Config,
    /// OBB, OBM.
    pub obtcp: ObtcpSettings,
    /// MTC.
    pub m_tcp: MTcpConfig,
    /// The link's own recovery (DDA-1, CC-4, EBS-1).
    pub link: LinkConfig,
    /// ALT.
    pub unsplit: unsplit::Config,
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
        let counted = |count: Option<u32>| count.map(|n| n as usize);
        for (scheme, key, count) in [
            ("snoop", "threshold", Some(self.snoop.dupacks as usize)),
            ("snoop", "cache", Some(self.snoop.segments)),
            ("obtcp", "threshold", counted(self.obtcp.threshold)),
            ("obtcp", "snacks", counted(self.obtcp.snacks)),
            ("obtcp", "tries", counted(self.obtcp.tries)),
            ("m-tcp", "cache", Some(self.m_tcp.buffer)),
            ("m-tcp", "window", Some(self.m_tcp.hop_window)),
            ("link", "copies", Some(self.link.copies)),
            ("unsplit", "cache", Some(self.unsplit.segments)),
            ("unsplit", "gaps", Some(self.unsplit.gaps)),
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
        if self.link.copies > 256 {
            let message = format!(
                "{} is more than the 256 that an acknowledgement can tell",
                self.link.copies
            );
            wrong.add(&["agent", "link", "copies"], message, "256 is usual");
        }
        for (scheme, key, time) in [
            ("snoop", "tick", Some(self.snoop.tick)),
            ("snoop", "initial-timer", Some(self.snoop.initial)),
            ("obtcp", "tick", self.obtcp.tick.map(|tick| tick.0)),
            ("m-tcp", "silence", Some(self.m_tcp.disconnect_after)),
            ("m-tcp", "probe", Some(self.m_tcp.probe_interval)),
            ("link", "initial-timeout", Some(self.link.initial_timeout)),
            ("link", "least-timeout", Some(self.link.least_timeout)),
            ("unsplit", "tick", Some(self.unsplit.tick)),
            ("unsplit", "initial-timer", Some(self.unsplit.initial)),
            ("unsplit", "longest-timer", Some(self.unsplit.longest)),
        ] {
            if time == Some(Duration::ZERO) {
                wrong.add(&["agent", scheme, key], "is zero, expected a time above it", "");
            }
        }
        if self.snoop.timer == snoop::Timer::Pinned(Duration::ZERO) {
            let remedy = "`measured` follows the hop's round trip";
            wrong.add(&["agent", "snoop", "timer"], "is zero, expected a time above it", remedy);
        }
    }
}
