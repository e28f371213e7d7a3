//! The parameters of agents in the path: the `[agent]` table. What is not said is left to the
//! machines' own defaults.

use std::time::Duration;

use lasthop_agent::link::LinkConfig;
use lasthop_agent::m_tcp::MTcpConfig;
use lasthop_agent::{obtcp, snoop, unsplit};
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
    pub obtcp: obtcp::Config,
    /// MTC.
    pub m_tcp: MTcpConfig,
    /// The link's own recovery (DDA-1, CC-4, EBS-1).
    pub link: LinkConfig,
    /// ALT.
    pub unsplit: unsplit::Config,
}

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
            ("snoop", "threshold", self.snoop.dupacks as usize),
            ("snoop", "cache", self.snoop.segments),
            ("obtcp", "threshold", self.obtcp.dupacks as usize),
            ("obtcp", "snacks", self.obtcp.snacks as usize),
            ("obtcp", "tries", self.obtcp.tries as usize),
            ("m-tcp", "cache", self.m_tcp.buffer),
            ("m-tcp", "window", self.m_tcp.hop_window),
            ("link", "copies", self.link.copies),
            ("unsplit", "cache", self.unsplit.segments),
            ("unsplit", "gaps", self.unsplit.gaps),
        ] {
            if count == 0 {
                let message = "0 would help nobody";
                wrong.add(&["agent", scheme, key], message, "give 1 or more");
            }
        }
        let (cache, least) = (self.obtcp.memory.segments, obtcp::LEAST_CACHE);
        if cache < least {
            let message = format!("{cache} is less than {least}, a sender's largest window");
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
            ("snoop", "tick", self.snoop.tick),
            ("snoop", "initial-timer", self.snoop.initial),
            ("obtcp", "tick", self.obtcp.timer.rto.least),
            ("m-tcp", "silence", self.m_tcp.disconnect_after),
            ("m-tcp", "probe", self.m_tcp.probe_interval),
            ("link", "initial-timeout", self.link.initial_timeout),
            ("link", "least-timeout", self.link.least_timeout),
            ("unsplit", "tick", self.unsplit.tick),
            ("unsplit", "initial-timer", self.unsplit.initial),
            ("unsplit", "longest-timer", self.unsplit.longest),
        ] {
            if time.is_zero() {
                wrong.add(&["agent", scheme, key], "is zero, expected a time above it", "");
            }
        }
        if self.snoop.timer == snoop::Timer::Pinned(Duration::ZERO) {
            let remedy = "`measured` follows the hop's round trip";
            wrong.add(&["agent", "snoop", "timer"], "is zero, expected a time above it", remedy);
        }
    }
}
