//! Both ends of each flow: what their applications and connections have done so far.

use lasthop_scenario::{NodeIndex, Traffic};
use lasthop_sim::measure::BufferMeter;
use lasthop_sim::net::traffic::Record;
use lasthop_tcp::Stats;
use lasthop_units::{Bytes, Time};

use super::addresses::port;
use super::machine::Machine;
use super::network::Running;

/// Both ends of a flow, as far as they exist, and what their connections did.
pub(super) struct Ends<'a> {
    pub(super) opens: &'a Record,
    pub(super) accepts: Option<&'a Record>,
    pub(super) stats: [Stats; 2],
}

impl Ends<'_> {
    pub(super) fn received(&self) -> Bytes {
        self.opens.received + self.accepts.map_or(Bytes::ZERO, |r| r.received)
    }

    pub(super) fn total(&self, count: impl Fn(&Stats) -> u64) -> f64 {
        self.stats.iter().map(count).sum::<u64>() as f64
    }

    /// A byte arrived that is not the one that was written.
    pub(super) fn differ(&self) -> bool {
        let records = [Some(self.opens), self.accepts];
        records.into_iter().flatten().any(|record| record.differs_at.is_some())
    }

    /// When all that the flow is about was done.
    pub(super) fn done(&self, traffic: Traffic) -> Option<Time> {
        let answered = |count: Option<u32>| {
            count.is_some_and(|count| self.opens.latencies.len() as u64 >= u64::from(count))
        };
        match traffic {
            Traffic::File { size } => {
                self.accepts.filter(|r| r.received >= size).and_then(|r| r.last_byte)
            }
            Traffic::RequestResponse { count, .. } | Traffic::Interactive { count, .. } => {
                answered(count).then_some(self.opens.last_byte).flatten()
            }
            Traffic::Bulk
            | Traffic::OnOff { .. }
            | Traffic::Udp { .. }
            | Traffic::Voice
            | Traffic::QuicLike => None,
        }
    }
}

impl Running<'_> {
    /// What a flow's applications received so far.
    pub(super) fn received(&self, flow: usize) -> Bytes {
        self.ends(flow).map_or_else(|| self.datagrams_received(flow), |ends| ends.received())
    }

    /// Bytes that are acknowledged to the end which opened a flow, and that the application at the
    /// other end has not got: end to end there are none, as each reads at once what is there.
    pub(super) fn acked_early(&self, flow: usize) -> Bytes {
        let early = |ends: Ends<'_>| {
            let got = ends.accepts.map_or(Bytes::ZERO, |record| record.received);
            Bytes::new(ends.stats[0].bytes_acked).saturating_sub(got)
        };
        self.ends(flow).map_or(Bytes::ZERO, early)
    }

    /// What the application that opened a flow has written so far, and what the other one has got.
    pub(super) fn progress(&self, flow: usize) -> [Bytes; 2] {
        let progress = |ends: Ends<'_>| {
            [ends.opens.written, ends.accepts.map_or(Bytes::ZERO, |record| record.received)]
        };
        self.ends(flow).map_or([Bytes::ZERO; 2], progress)
    }

    /// How evenly a flow's data comes to the end that accepts it (MET-3).
    pub(super) fn buffers(&self, flow: usize) -> Option<BufferMeter> {
        Some(self.ends(flow)?.accepts?.buffers.clone())
    }

    /// Whether every flow that has an end came to it.
    pub(super) fn complete(&self) -> bool {
        self.all(|traffic, ends| ends.done(traffic).is_some())
    }

    /// Whether every flow that has an end came to it, or to another.
    pub(super) fn over(&self) -> bool {
        self.all(|traffic, ends| ends.done(traffic).is_some() || ends.opens.end.is_some())
    }

    fn all(&self, which: impl Fn(Traffic, &Ends<'_>) -> bool) -> bool {
        self.scenario.flows.iter().enumerate().all(|(i, flow)| {
            !flow.traffic.ends() || self.ends(i).is_some_and(|ends| which(flow.traffic, &ends))
        })
    }

    /// The ends of a flow, once it has any.
    pub(super) fn ends(&self, index: usize) -> Option<Ends<'_>> {
        let flow = &self.scenario.flows[index];
        let (opens, first) = self.end(flow.from, index, true)?;
        let accepts = self.end(flow.to, index, false);
        let second = accepts.as_ref().map(|(_, stats)| *stats).unwrap_or_default();
        Some(Ends { opens, accepts: accepts.map(|(r, _)| r), stats: [first, second] })
    }

    fn end(&self, node: NodeIndex, flow: usize, client: bool) -> Option<(&Record, Stats)> {
        let machine = self.network.node(self.nodes[node.0]);
        if let Some(host) = machine.host() {
            let (number, record) = host.app().record(port(flow), client)?;
            return Some((record, host.app().stats(number, |id| host.connection_stats(id))));
        }
        let Machine::Mobile(mobile) = machine else { return None };
        let (_, record) = mobile.app().record(port(flow), client)?;
        Some((record, Stats::default()))
    }
}
