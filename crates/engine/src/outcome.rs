//! What a run measured (MET-1 to MET-3, MET-7 to MET-9, MET-11 to MET-13).

use lasthop_radio::Pacing;
use lasthop_scenario::{Flow, Outcome, Traffic};
use lasthop_sim::measure::fairness;
use lasthop_units::{Duration, Rate, Time};

use super::datagram_work;
use super::datagrams::quantile;
use super::ends::Ends;
use super::machine::Machine;
use super::metrics::Metrics;
use super::network::Running;
use super::watch::Watch;

impl Running<'_> {
    /// The wait for each buffer of a flow, and its deviation, from where rates count.
    fn measure_buffers(&self, index: usize, name: &str, metrics: &mut Metrics) {
        let Some(meter) = self.buffers(index) else { return };
        let counted = self.buffers_before.get(index).map(|before| meter.since(before));
        let meter = counted.unwrap_or(meter);
        let seconds = |time: Option<Duration>| time.map_or(f64::NAN, |time| time.as_secs_f64());
        metrics.add(name, "inter_buffer_s", seconds(meter.mean()));
        metrics.add(name, "jitter_s", seconds(meter.jitter()));
    }

    /// What was measured up to `now`.
    pub(super) fn outcome(&mut self, now: Time, watch: &Watch) -> Outcome {
        let mut metrics = Metrics::default();
        let mut rates = Vec::new();
        for (i, flow) in self.scenario.flows.iter().enumerate() {
            if datagram_work::work(flow.traffic).is_some() {
                rates.extend(self.measure_datagrams(i, now, &mut metrics));
                continue;
            }
            let limit = self.limit(flow);
            let Some(ends) = self.ends(i) else { continue };
            let bps = self.goodput(i, &ends, now);
            metrics.add(&flow.name, "goodput_bps", bps);
            rates.push(Rate::from_bps(bps as u64));
            if let Some(limit) = limit {
                metrics.add(&flow.name, "limit_bps", limit);
                metrics.add(&flow.name, "share_of_limit", bps / limit);
            }
            measure_flow(flow, &ends, &mut metrics);
            let fixed = usize::from(self.scenario.node(flow.from).kind.is_mobile());
            metrics.add(&flow.name, "fixed_timeouts", ends.stats[fixed].timeouts as f64);
            if self.scenario.measure.bytes {
                metrics.add(&flow.name, "wrong", f64::from(u8::from(ends.differ())));
            }
            if matches!(flow.traffic, Traffic::Bulk | Traffic::File { .. }) {
                self.measure_buffers(i, &flow.name, &mut metrics);
            }
            watch.outcome(i, &flow.name, &mut metrics);
        }
        if rates.len() > 1 {
            metrics.0.push(("fairness".to_string(), fairness(&rates).unwrap_or(f64::NAN)));
        }
        watch.recovery(self.scenario, &self.moves, now, &mut metrics);
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
            // What takes turns is one channel.
            let channels = if link.half_duplex { 1 } else { 2 };
            for (n, ((way, config), id)) in ways.into_iter().zip(ids).take(channels).enumerate() {
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
        let mut sorted = waits.to_vec();
        sorted.sort_unstable();
        let waited: f64 = waits.iter().map(Duration::as_secs_f64).sum();
        // Without any answer this is no number, as it should be.
        add("latency_s", waited / waits.len() as f64);
        add("latency_median_s", quantile(&sorted, 0.5));
        add("latency_p95_s", quantile(&sorted, 0.95));
        add("latency_p99_s", quantile(&sorted, 0.99));
        add("answers", waits.len() as f64);
    }
    add("timeouts", ends.total(|s| s.timeouts));
    add("retransmits", ends.total(|s| s.retransmits));
    add("fast_retransmits", ends.total(|s| s.fast_retransmits));
    add("data_segments", ends.total(|s| s.data_segments_sent));
}
