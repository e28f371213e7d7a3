//! What flows of datagrams measured: what is lost for good, how much later than the path must be it comes, and what a
//! call is worth then.

use lasthop_radio::Pacing;
use lasthop_scenario::{Flow, NodeIndex, Traffic};
use lasthop_sim::net::traffic::{DatagramRecord, DatagramWork};
use lasthop_sim::net::{IP_HEADER, UDP_HEADER};
use lasthop_units::{Bytes, Duration, Rate, Time};

use super::addresses::port;
use super::datagram_work;
use super::metrics::Metrics;
use super::network::Running;
use crate::emodel;

/// What was handed in so shortly before a run's end may still be on its way, and does not count.
const SETTLED: Duration = Duration::from_secs(2);

impl Running<'_> {
    /// What a flow of datagrams measured up to `now`; the goodput of one that is a transfer.
    pub(super) fn measure_datagrams(
        &self,
        index: usize,
        now: Time,
        metrics: &mut Metrics,
    ) -> Option<Rate> {
        let flow = &self.scenario.flows[index];
        let sends = self.datagrams(flow.from, index, true)?;
        let takes = self.datagrams(flow.to, index, false)?;
        let from = Time::ZERO + flow.start.max(self.scenario.measure.from);
        let counted = from..now - SETTLED;
        let handed_in = sends.sent.iter().filter(|at| counted.contains(at)).count();
        let arrived = takes.arrived.iter().filter(|(at, _)| counted.contains(at));
        let least = self.least_delay(flow);
        let mut added: Vec<Duration> =
            arrived.map(|(_, took)| took.saturating_sub(least)).collect();
        added.sort_unstable();
        let mut add = |name: &str, value: f64| metrics.add(&flow.name, name, value);
        add("datagrams", sends.sent.len() as f64);
        add("received_bytes", takes.received.get() as f64);
        add("added_p50_s", quantile(&added, 0.5));
        add("added_p99_s", quantile(&added, 0.99));
        if matches!(flow.traffic, Traffic::QuicLike) {
            let before = self.before.get(index).copied().unwrap_or_default();
            let seconds = now.since(from).as_secs_f64();
            let bps = (takes.received - before).get() as f64 * 8.0 / seconds;
            add("goodput_bps", bps);
            add("lost", sends.lost as f64);
            add("timeouts", sends.timeouts as f64);
            return (seconds > 0.0).then(|| Rate::from_bps(bps as u64));
        }
        // Nothing was handed in: that is no number, as it should be.
        add("residual_loss", 1.0 - added.len() as f64 / handed_in as f64);
        if flow.traffic == Traffic::Voice {
            add("mos", emodel::call(least, &added, handed_in));
        }
        None
    }

    /// What a flow of datagrams has received so far, each piece of data once.
    pub(super) fn datagrams_received(&self, index: usize) -> Bytes {
        let flow = &self.scenario.flows[index];
        self.datagrams(flow.to, index, false).map_or(Bytes::ZERO, |record| record.received)
    }

    fn datagrams(&self, node: NodeIndex, flow: usize, sends: bool) -> Option<&DatagramRecord> {
        self.network.node(self.node(node)).apps()?.datagrams(port(flow), sends)
    }

    /// What a datagram of the flow is on its way if it waits for nothing: the links' delays, and its own time at
    /// rates that stay the same.
    fn least_delay(&self, flow: &Flow) -> Duration {
        let Some(size) = datagram_work::work(flow.traffic).map(size) else { return Duration::ZERO };
        let length = size + Bytes::new(u64::from(IP_HEADER + UDP_HEADER));
        let cell = self.scenario.handoff.as_ref().and_then(|h| h.cells.first()).copied();
        let way = self.scenario.way(flow.from, flow.to, cell);
        let links =
            way.iter().filter_map(|(node, link)| Some((node, self.scenario.link((*link)?))));
        links
            .map(|(node, link)| {
                let forward = link.ends[0] == *node;
                let radio = if forward { &link.radio.up } else { &link.radio.down };
                let air = match &radio.pacing {
                    Pacing::Rate(rate) => rate.time_for(length),
                    Pacing::Steps(_) | Pacing::Trace(_) => Duration::ZERO,
                };
                radio.delay + air
            })
            .sum()
    }
}

/// Bytes of payload in each datagram.
fn size(work: DatagramWork) -> Bytes {
    match work {
        DatagramWork::Constant { size, .. } => size,
        DatagramWork::Quic => DatagramWork::QUIC_SIZE,
    }
}

/// The time below which this share of sorted ones lies; no number if there is none.
pub(super) fn quantile(sorted: &[Duration], share: f64) -> f64 {
    let at = libm::ceil(sorted.len() as f64 * share) as usize;
    sorted.get(at.saturating_sub(1)).map_or(f64::NAN, Duration::as_secs_f64)
}
