//! What a run measured (MET-1 to MET-3, MET-7 to MET-9, MET-11 to MET-13).

use lasthop_radio::Pacing;
use lasthop_sim::measure::{BufferMeter, fairness};
use lasthop_sim::net::traffic::Record;
use lasthop_tcp::Stats;
use lasthop_units::{Bytes, Duration, Rate, Time};

use super::machine::Machine;
use super::network::{World, port};
use crate::run::Outcome;
use crate::scenario::{Flow, NodeIndex, Traffic};

/// Both ends of a flow, as far as they exist, and what their connections did.
struct Ends<'a> {
    opens: &'a Record,
    accepts: Option<&'a Record>,
    stats: [Stats; 2],
}

impl Ends<'_> {
    fn received(&self) -> Bytes {
        self.opens.received + self.accepts.map_or(Bytes::ZERO, |r| r.received)
    }

    fn total(&self, count: impl Fn(&Stats) -> u64) -> f64 {
        self.stats.iter().map(count).sum::<u64>() as f64
    }

    /// A byte arrived that is not the one that was written.
    fn differ(&self) -> bool {
        let records = [Some(self.opens), self.accepts];
        records.into_iter().flatten().any(|record| record.differs_at.is_some())
    }

    /// When all that the flow is about was done.
    fn done(&self, traffic: Traffic) -> Option<Time> {
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
            Traffic::Bulk | Traffic::OnOff { .. } => None,
        }
    }
}

impl World<'_> {
    /// What a flow's applications received so far.
    pub(super) fn received(&self, flow: usize) -> Bytes {
        self.ends(flow).map_or(Bytes::ZERO, |ends| ends.received())
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

    /// How evenly a flow's data comes to the end that accepts it (MET-3).
    pub(super) fn buffers(&self, flow: usize) -> Option<BufferMeter> {
        Some(self.ends(flow)?.accepts?.buffers.clone())
    }

    /// The wait for each buffer of a flow, and its deviation, from where rates count.
    fn measure_buffers(&self, index: usize, name: &str, metrics: &mut Metrics) {
        let Some(meter) = self.buffers(index) else { return };
        let counted = self.buffers_before.get(index).map(|before| meter.since(before));
        let meter = counted.unwrap_or(meter);
        let seconds = |time: Option<Duration>| time.map_or(f64::NAN, |time| time.as_secs_f64());
        metrics.add(name, "inter_buffer_s", seconds(meter.mean()));
        metrics.add(name, "jitter_s", seconds(meter.jitter()));
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

    fn ends(&self, index: usize) -> Option<Ends<'_>> {
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
            return Some((record, host.app().stats(number, |id| host.connection(id))));
        }
        let Machine::Mobile(mobile) = machine else { return None };
        let (_, record) = mobile.app().record(port(flow), client)?;
        Some((record, Stats::default()))
    }

    /// What was measured up to `now`.
    pub(super) fn outcome(&mut self, now: Time) -> Outcome {
        let mut metrics = Metrics::default();
        let mut rates = Vec::new();
        for (i, flow) in self.scenario.flows.iter().enumerate() {
            let Some(ends) = self.ends(i) else { continue };
            let bps = self.goodput(i, &ends, now);
            metrics.add(&flow.name, "goodput_bps", bps);
            rates.push(Rate::from_bps(bps as u64));
            measure_flow(flow, &ends, &mut metrics);
            let fixed = usize::from(self.scenario.node(flow.from).kind.is_mobile());
            metrics.add(&flow.name, "fixed_timeouts", ends.stats[fixed].timeouts as f64);
            if self.scenario.measure.bytes {
                metrics.add(&flow.name, "wrong", f64::from(u8::from(ends.differ())));
            }
            if matches!(flow.traffic, Traffic::Bulk | Traffic::File { .. }) {
                self.measure_buffers(i, &flow.name, &mut metrics);
            }
            self.watch.outcome(i, &flow.name, &mut metrics);
        }
        if rates.len() > 1 {
            metrics.0.push(("fairness".to_string(), fairness(&rates).unwrap_or(f64::NAN)));
        }
        self.watch.recovery(self.scenario, &self.moves, now, &mut metrics);
        self.measure_moves(&mut metrics);
        self.measure_agents(&mut metrics);
        self.measure_links(&mut metrics);
        let trace = self.network.trace().hash();
        Outcome { completed: self.complete(), trace, metrics: metrics.0 }
    }

    /// Bits that the flow's applications received in a second, from where rates count (MET-2).
    fn goodput(&self, index: usize, ends: &Ends<'_>, now: Time) -> f64 {
        let flow = &self.scenario.flows[index];
        let counting = Time::ZERO + flow.start.max(self.scenario.measure.from);
        let seconds = ends.done(flow.traffic).unwrap_or(now).since(counting).as_secs_f64();
        let before = self.before.get(index).copied().unwrap_or_default();
        let bits = (ends.received() - before).get() as f64 * 8.0;
        if seconds > 0.0 { bits / seconds } else { f64::NAN }
    }

    /// What the session's own part of each handoff took (MET-12).
    fn measure_moves(&self, metrics: &mut Metrics) {
        for helped in &self.helped {
            let Machine::Mobile(mobile) = self.network.node(self.node(helped.mobile)) else {
                continue;
            };
            let name = &self.scenario.node(helped.mobile).name;
            let took: Vec<f64> = mobile
                .handoffs()
                .iter()
                .filter_map(|h| h.latency())
                .map(|t| t.as_secs_f64())
                .collect();
            metrics.add(name, "handoffs", took.len() as f64);
            if !took.is_empty() {
                let mean = took.iter().sum::<f64>() / took.len() as f64;
                metrics.add(name, "handoff_s", mean);
            }
        }
    }

    /// What agents in the path did.
    fn measure_agents(&self, metrics: &mut Metrics) {
        for (node, id) in self.scenario.nodes.iter().zip(&self.nodes) {
            for (kind, counts) in self.network.node(*id).agents() {
                for (what, count) in counts {
                    metrics.add(&format!("{}.{kind}", node.name), what, count as f64);
                }
            }
        }
    }

    /// What links did (MET-7, MET-11): how busy their transmitters were from where rates count, and
    /// of hops and links that lose, what they carried and really lost.
    fn measure_links(&mut self, metrics: &mut Metrics) {
        for (i, (link, ids)) in self.scenario.links.iter().zip(&self.links).enumerate() {
            let is_hop = link.ends.iter().any(|end| self.scenario.node(*end).kind.is_mobile());
            let ways = [("forward", &link.radio.up), ("backward", &link.radio.down)];
            for (n, ((way, config), id)) in ways.into_iter().zip(ids).enumerate() {
                let name = format!("{}.{way}", link.name);
                let stats = self.network.link_stats(*id);
                let before = self.links_before.get(i).map(|b| b[n]).unwrap_or_default();
                let busy = stats.air_time.saturating_sub(before.air_time).as_secs_f64();
                let elapsed = stats.until.since(before.until).as_secs_f64();
                let limited = !matches!(config.pacing, Pacing::Rate(Rate::UNLIMITED));
                if limited && elapsed > 0.0 {
                    metrics.add(&name, "utilisation", busy / elapsed);
                }
                if is_hop || !config.losses.is_empty() {
                    metrics.add(&name, "packets", stats.sent.packets as f64);
                    metrics.add(&name, "bytes", stats.sent.bytes as f64);
                }
                if is_hop || limited {
                    metrics.add(&name, "queue_drops", stats.dropped.queue.packets as f64);
                }
                if !config.losses.is_empty() {
                    metrics.add(&name, "loss", stats.loss());
                }
                if config.ecn_mark.is_some() {
                    metrics.add(&name, "marked", stats.marked.packets as f64);
                }
            }
        }
    }
}

/// Metrics by name, in order.
#[derive(Default)]
pub(super) struct Metrics(Vec<(String, f64)>);

impl Metrics {
    pub(super) fn add(&mut self, of: &str, name: &str, value: f64) {
        self.0.push((format!("{of}.{name}"), value));
    }
}

fn measure_flow(flow: &Flow, ends: &Ends<'_>, metrics: &mut Metrics) {
    let mut add = |name: &str, value: f64| metrics.add(&flow.name, name, value);
    let start = Time::ZERO + flow.start;
    if flow.traffic.ends() {
        let done = ends.done(flow.traffic);
        add("time_s", done.map_or(f64::NAN, |at| at.since(start).as_secs_f64()));
    }
    add("received_bytes", ends.received().get() as f64);
    if matches!(flow.traffic, Traffic::RequestResponse { .. } | Traffic::Interactive { .. }) {
        let waits = &ends.opens.latencies;
        let waited: f64 = waits.iter().map(Duration::as_secs_f64).sum();
        // Without any answer this is no number, as it should be.
        add("latency_s", waited / waits.len() as f64);
        add("latency_median_s", quantile(waits, 0.5));
        add("latency_p95_s", quantile(waits, 0.95));
        add("answers", waits.len() as f64);
    }
    add("timeouts", ends.total(|s| s.timeouts));
    add("retransmits", ends.total(|s| s.retransmits));
    add("fast_retransmits", ends.total(|s| s.fast_retransmits));
    add("data_segments", ends.total(|s| s.data_segments_sent));
}

/// The time below which this share of them lies; no number if there is none.
fn quantile(times: &[Duration], share: f64) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let at = libm::ceil(sorted.len() as f64 * share) as usize;
    sorted.get(at.saturating_sub(1)).map_or(f64::NAN, Duration::as_secs_f64)
}
