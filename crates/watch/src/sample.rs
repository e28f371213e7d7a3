//! What is shown of a process at a moment.

use std::collections::BTreeMap;

use lasthop_control::{
    AgentReport, AssociationReport, BaseReport, ConnectionReport, Counters, HandoffReport,
    Handoffs, PathReport, PeerReport,
};
use serde::Serialize;

/// A report, with rates by comparison with the one before. Made by
/// [`History::feed`](crate::history::History::feed).
#[derive(Clone, Default, Debug, Serialize)]
pub struct Sample {
    /// `base`, `mobile` or `agent`.
    pub role: String,
    /// The program's version.
    pub version: String,
    /// `srp`, `mobile-tcp` or `split-tcp`; empty at an agent.
    pub hop: String,
    /// Seconds since the process was started.
    pub uptime_s: f64,
    /// Whether it is another process than in the sample before.
    pub restarted: bool,
    /// What happened since the start.
    pub counters: Counters,
    /// Everything together.
    pub total: Total,
    /// Its associations.
    pub associations: Vec<Association>,
    /// Its connections, in the order of the report.
    pub connections: Vec<Connection>,
    /// Connections that are not in the list, for brevity.
    pub connections_hidden: usize,
    /// The programs whose connections they are, by name; those of nobody known come last.
    pub programs: Vec<Program>,
    /// Of a mobile: its bases.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bases: Vec<BaseReport>,
    /// Of a base: the other bases.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<PeerReport>,
    /// Handoffs since the start, where they are configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handoffs: Option<Handoffs>,
    /// Of a mobile: the latest handoff.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handoff: Option<HandoffReport>,
    /// Of an agent: what it is and does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<Agent>,
}

/// Bits per second in the last interval; absent until there is one.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Rates {
    /// From here into the hop.
    pub to_hop_bps: Option<u64>,
    /// Out of the hop.
    pub from_hop_bps: Option<u64>,
}

impl Rates {
    /// Both directions together.
    pub fn sum(self) -> Option<u64> {
        match (self.to_hop_bps, self.from_hop_bps) {
            (None, None) => None,
            (to, from) => Some(to.unwrap_or(0).saturating_add(from.unwrap_or(0))),
        }
    }

    /// These and `other` together; what neither knows stays unknown.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let add = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (a, b) => a.or(b),
        };
        Self {
            to_hop_bps: add(self.to_hop_bps, other.to_hop_bps),
            from_hop_bps: add(self.from_hop_bps, other.from_hop_bps),
        }
    }
}

/// Everything that crosses the hop.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize)]
pub struct Total {
    /// Of all associations; at an agent, of the interface to the mobiles.
    #[serde(flatten)]
    pub rates: Rates,
    /// The greatest share that an association loses of what it sends.
    pub loss: Option<f64>,
    /// The longest queue of an association, milliseconds.
    pub queue_ms: Option<f64>,
    /// The longest smoothed round trip of an association, milliseconds.
    pub srtt_ms: Option<f64>,
    /// Of all associations that carry packets; absent while none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets: Option<Packets>,
}

/// Packets beside the streams, of all associations together.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize)]
pub struct Packets {
    /// Sent per second in the last interval; absent until there is one.
    pub to_hop_per_s: Option<f64>,
    /// Received per second in the last interval; absent until there is one.
    pub from_hop_per_s: Option<f64>,
    /// Flows that have packets queued or on their way.
    pub flows: u64,
    /// Bytes that are queued, on their way, or waiting for others.
    pub bytes_held: u64,
    /// Packets that were dropped before they were sent, so far.
    pub dropped: u64,
    /// Packets that were lost and too old to be sent again, so far.
    pub given_up: u64,
    /// Packets that came too late, so far.
    pub late: u64,
}

/// An association and its rates.
#[derive(Clone, Default, Debug, Serialize)]
pub struct Association {
    /// What the process reports, but for the paths. A loss that it does not know is that of the last interval.
    #[serde(flatten)]
    pub report: AssociationReport,
    /// Of application bytes and of packets.
    #[serde(flatten)]
    pub rates: Rates,
    /// What a mobile's configuration calls the base at the other end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// The paths that it uses together, where it has several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<Path>,
}

/// One of the paths of an association, and its rates.
#[derive(Clone, Default, Debug, Serialize)]
pub struct Path {
    /// What the process reports.
    #[serde(flatten)]
    pub report: PathReport,
    /// Of bytes with all headers.
    #[serde(flatten)]
    pub rates: Rates,
}

/// A connection and its rates.
#[derive(Clone, Default, Debug, Serialize)]
pub struct Connection {
    /// What tells it from the others, as long as the process lasts.
    pub name: String,
    /// What the process reports.
    #[serde(flatten)]
    pub report: ConnectionReport,
    /// Of application bytes.
    #[serde(flatten)]
    pub rates: Rates,
}

impl Connection {
    /// Bytes so far, in both directions.
    pub fn bytes(&self) -> u64 {
        self.report.bytes_to_hop.saturating_add(self.report.bytes_from_hop)
    }
}

/// The connections of a program together.
#[derive(Clone, Default, Debug, Serialize)]
pub struct Program {
    /// Its name; absent for the connections of nobody known.
    pub name: Option<String>,
    /// Its connections at this moment.
    pub connections: u64,
    /// Their priority, if it is the same for all.
    pub priority: Option<u32>,
    /// Whether their priorities differ.
    pub mixed: bool,
    /// Of the connections that there are.
    #[serde(flatten)]
    pub rates: Rates,
    /// What the connections that there are have carried so far, in both directions.
    pub bytes: u64,
}

/// An agent and its rates.
#[derive(Clone, Default, Debug, Serialize)]
pub struct Agent {
    /// What the process reports.
    #[serde(flatten)]
    pub report: AgentReport,
    /// Of the packets that the agent takes, at the interface to the mobiles.
    #[serde(flatten)]
    pub rates: Rates,
    /// How fast the counters grow, per second.
    pub counters_per_s: BTreeMap<String, f64>,
}

impl Sample {
    /// Rates towards the mobile and away from it, whichever end of the hop this is.
    pub fn down_and_up(&self, rates: Rates) -> (Option<u64>, Option<u64>) {
        match self.role.as_str() {
            "mobile" => (rates.from_hop_bps, rates.to_hop_bps),
            _ => (rates.to_hop_bps, rates.from_hop_bps),
        }
    }

    /// Keeps the `most` fastest connections, of equal ones the youngest, and counts the others.
    pub fn truncate(&mut self, most: usize) {
        let hidden = self.connections.len().saturating_sub(most);
        if hidden == 0 {
            return;
        }
        let mut order: Vec<usize> = (0..self.connections.len()).collect();
        let rank = |i: &usize| {
            let c = &self.connections[*i];
            (std::cmp::Reverse(c.rates.sum()), c.report.age_s.max(0.0).to_bits())
        };
        order.sort_by_key(rank);
        let mut kept = vec![false; self.connections.len()];
        order.iter().take(most).for_each(|i| kept[*i] = true);
        let mut kept = kept.into_iter();
        self.connections.retain(|_| kept.next().unwrap_or(false));
        self.connections_hidden = self.connections_hidden.saturating_add(hidden);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(name: &str, bps: Option<u64>, age_s: f64) -> Connection {
        Connection {
            name: name.into(),
            report: ConnectionReport { age_s, ..ConnectionReport::default() },
            rates: Rates { to_hop_bps: None, from_hop_bps: bps },
        }
    }

    #[test]
    fn the_fastest_connections_are_kept_in_their_order() {
        let connections = vec![
            connection("old", Some(0), 9.0),
            connection("fast", Some(100), 5.0),
            connection("young", Some(0), 1.0),
            connection("unknown", None, 0.0),
            connection("faster", Some(200), 5.0),
        ];
        let mut sample = Sample { connections, ..Sample::default() };
        sample.truncate(9);
        assert_eq!(sample.connections_hidden, 0);
        sample.truncate(3);
        let names: Vec<&str> = sample.connections.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["fast", "young", "faster"]);
        assert_eq!(sample.connections_hidden, 2);
    }

    #[test]
    fn rates_add_up_without_inventing_what_is_unknown() {
        let a = Rates { to_hop_bps: Some(1), from_hop_bps: None };
        let b = Rates { to_hop_bps: Some(2), from_hop_bps: None };
        assert_eq!(a.and(b), Rates { to_hop_bps: Some(3), from_hop_bps: None });
        assert_eq!((a.sum(), Rates::default().sum()), (Some(1), None));
        let full = Rates { to_hop_bps: Some(u64::MAX), from_hop_bps: Some(1) };
        assert_eq!(full.sum(), Some(u64::MAX));
    }
}
