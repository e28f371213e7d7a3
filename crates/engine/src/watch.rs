//! What is looked at now and then while a run lasts: senders' windows and round trips, and rates
//! over time (MET-9, MET-10).

use lasthop_scenario::{Move, Scenario};
use lasthop_sim::measure::{Handoff as Outage, HandoffEffect, RateSeries};
use lasthop_units::{Bytes, Duration, Time};

use super::metrics::Metrics;
use super::network::Running;

/// How often windows and round trips are looked at.
const LOOKS: Duration = Duration::from_millis(100);

/// Means and series of a run's flows.
pub(super) struct Watch {
    next_look: Time,
    flows: Vec<Means>,
    bins: Option<Bins>,
}

/// Sums of what was seen of one flow's sender.
#[derive(Clone, Copy, Default)]
struct Means {
    looks: u64,
    cwnd: u128,
    timed: u64,
    srtt: Duration,
    /// The most bytes that the sender took to be received although the other application had not
    /// got them yet.
    early: Bytes,
}

struct Bins {
    next: Time,
    seen: Vec<Bytes>,
    series: Vec<RateSeries>,
}

impl Watch {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let flows = scenario.flows.len();
        Self {
            next_look: Time::ZERO + scenario.measure.from + LOOKS,
            flows: vec![Means::default(); flows],
            bins: scenario.measure.bins.map(|bin| Bins {
                next: Time::ZERO + bin,
                seen: vec![Bytes::ZERO; flows],
                series: vec![RateSeries::new(bin); flows],
            }),
        }
    }

    /// Looks at what is due.
    pub(super) fn sample(&mut self, now: Time, running: &Running<'_>) {
        if self.next_look <= now {
            for flow in 0..running.scenario.flows.len() {
                let Some(probe) = running.probe(flow) else { continue };
                let early = running.acked_early(flow);
                let means = &mut self.flows[flow];
                means.early = means.early.max(early);
                means.looks += 1;
                means.cwnd += u128::from(probe.cwnd.get());
                if let Some(srtt) = probe.srtt {
                    means.timed += 1;
                    means.srtt += srtt;
                }
            }
            self.next_look = now + LOOKS;
        }
        let received: Vec<Bytes> = match &self.bins {
            Some(bins) if bins.next <= now => {
                (0..running.scenario.flows.len()).map(|flow| running.received(flow)).collect()
            }
            _ => return,
        };
        let Some(bins) = &mut self.bins else { return };
        for ((seen, series), received) in bins.seen.iter_mut().zip(&mut bins.series).zip(received) {
            // What came in the bin that ends now belongs to it, and not to the one that begins.
            series.add(now - Duration::from_nanos(1), received - *seen);
            *seen = received;
            bins.next = now + series.bin();
        }
    }

    /// When to look again.
    pub(super) fn next(&self) -> Time {
        self.next_look.min(self.bins.as_ref().map_or(Time::NEVER, |bins| bins.next))
    }

    /// The rates so far, by flow; none unless the scenario has bins.
    pub(super) fn rates(&self) -> &[RateSeries] {
        self.bins.as_ref().map(|bins| bins.series.as_slice()).unwrap_or_default()
    }

    /// What was seen of a flow's sender, on average (MET-10).
    pub(super) fn outcome(&self, flow: usize, name: &str, metrics: &mut Metrics) {
        let Some(means) = self.flows.get(flow).filter(|m| m.looks > 0) else { return };
        metrics.add(name, "acked_early_bytes", means.early.get() as f64);
        metrics.add(name, "cwnd_bytes", means.cwnd as f64 / means.looks as f64);
        if means.timed > 0 {
            metrics.add(name, "srtt_s", means.srtt.as_secs_f64() / means.timed as f64);
        }
    }

    /// What each flow's rate did around the handoffs (MET-9): the lowest of all, and the mean time
    /// to recover. A handoff that a flow did not recover from leaves it without a mean (MET-13).
    pub(super) fn recovery(
        &self,
        scenario: &Scenario,
        moves: &[Move],
        now: Time,
        metrics: &mut Metrics,
    ) {
        let Some(handoff) = &scenario.handoff else { return };
        let begun: Vec<&Move> = moves.iter().filter(|m| Time::ZERO + m.at < now).collect();
        let starts: Vec<Time> = begun.iter().map(|m| Time::ZERO + m.at).collect();
        for (flow, series) in scenario.flows.iter().zip(self.rates()) {
            let top = series.top(Time::ZERO + flow.start, starts.first().copied().unwrap_or(now));
            let effects: Vec<HandoffEffect> = starts
                .iter()
                .enumerate()
                .filter_map(|(n, start)| {
                    let end = Some(*start + begun[n].pause + handoff.registration);
                    let until = starts.get(n + 1).copied().unwrap_or(now);
                    HandoffEffect::of(&Outage { start: *start, end }, series, top, until)
                })
                .collect();
            let Some(least) = effects.iter().map(|e| e.minimum).min() else { continue };
            let mean = |f: fn(&HandoffEffect) -> Option<Duration>| {
                let times: Option<Vec<f64>> =
                    effects.iter().map(|e| f(e).map(|t| t.as_secs_f64())).collect();
                times.map_or(f64::NAN, |t| t.iter().sum::<f64>() / t.len() as f64)
            };
            metrics.add(&flow.name, "rate_min_bps", least.as_bps() as f64);
            metrics.add(&flow.name, "recovery_s", mean(|e| e.from_start));
            metrics.add(&flow.name, "recovery_from_end_s", mean(|e| e.from_end));
            let lost = effects.iter().filter(|e| e.from_start.is_none()).count();
            metrics.add(&flow.name, "unrecovered", lost as f64);
            metrics.add(&flow.name, "idle_s", idle(series, &begun, now).as_secs_f64());
        }
    }
}

/// How long after the radio's return nothing arrives, on average over the pauses; until the next
/// pause at most, so that the times of several pauses do not overlap.
fn idle(series: &RateSeries, moves: &[&Move], now: Time) -> Duration {
    let mut sum = Duration::ZERO;
    for (n, this) in moves.iter().enumerate() {
        let up = Time::ZERO + this.at + this.pause;
        let until = moves.get(n + 1).map_or(now, |next| Time::ZERO + next.at).min(now);
        let first = series.bins(up, until).find(|(_, rate)| rate.as_bps() > 0);
        let first = first.map_or(until, |(start, _)| start);
        sum += first.min(until).since(up);
    }
    sum / u32::try_from(moves.len()).unwrap_or(u32::MAX).max(1)
}
