//! A radio whose rate falls from 20 to 4 Mbit/s, and rises again.

use std::time::Instant;

use anyhow::Result;
use lasthop_lab::topology::Topology;
use lasthop_lab::transfer::{Direction, Transfer};
use lasthop_radio::{Direction as Way, LinkStats};
use lasthop_units::{Duration, Rate};

use super::{DELAY, RATE, Setting};
use crate::peer::Peer;
use crate::report::{Report, Row};
use crate::stage::{Stage, limit};

const FIGURE: &str = "step";
const LOW: Rate = Rate::from_mbps(4);
/// How long each rate lasts, start-up apart.
const PART: Duration = Duration::from_secs(8);
/// How soon the new rate is claimed, and how long a queue may stand.
const SOON: Duration = Duration::from_secs(1);
const SAMPLE: Duration = Duration::from_millis(50);
/// At the new rate: this share of the limit.
const SHARE: f64 = 0.9;
const SPAN: Duration = Duration::from_millis(250);

/// Runs the figure.
pub(crate) fn run(setting: &Setting, report: &mut Report) {
    for peer in [Peer::Srp, Peer::Kernel("cubic"), Peer::Kernel("bbr"), Peer::Quic] {
        setting.attempt(report, FIGURE, &peer, "20-4-20", || measure(setting, &peer));
    }
}

fn measure(setting: &Setting, peer: &Peer) -> Result<Row> {
    let stage = Stage::build(&setting.seeded(Topology::default(), FIGURE))?;
    let mut running = stage.start(peer, 0)?;
    let flow = stage.endless(running.client(), Direction::Download)?;
    let seen = watch(&stage, &flow);
    running.check()?;
    let (Seen { fall, rise, standing }, ended) = flow.end(seen)?;

    let after_fall = ended.received.between(fall + SOON, fall + 2 * SOON);
    let low = Rate::of(after_fall, SOON).as_bps() as f64 / limit(LOW, 0.0).as_bps() as f64;
    let full = limit(RATE, 0.0).scale(SHARE);
    let risen = ended.received.first_stretch(rise, SPAN, full).map(|m| m.duration_since(rise));
    let ours = peer.is_ours();
    Ok(Row::new(FIGURE, peer, "20-4-20")
        .number("low_share", low)
        .number("rise_s", risen.map(|d| d.as_secs_f64()))
        .number("standing_s", standing.as_secs_f64())
        .every_byte("sha256_ok", ended.is_right)
        .claim_if(ours, "at 4 Mbit/s after 1 s", low >= SHARE)
        .claim_if(ours, "at 20 Mbit/s within 1 s", risen.is_some_and(|d| d <= SOON))
        .claim_if(ours, "no queue above a round trip for over 1 s", standing <= SOON))
}

/// What was seen while the rate changed.
struct Seen {
    fall: Instant,
    rise: Instant,
    /// The longest time for which what waited would have taken over a round trip to send.
    standing: Duration,
}

fn watch(stage: &Stage, flow: &Transfer) -> Result<Seen> {
    let first = flow.first_byte()?;
    // Start-up is not what this figure is about.
    flow.until(first + PART)?;
    let mut queue = Standing::new(stage);
    let fall = change(stage, LOW);
    queue.watch(stage, flow, fall + PART, LOW)?;
    let rise = change(stage, RATE);
    queue.watch(stage, flow, rise + PART, RATE)?;
    Ok(Seen { fall, rise, standing: queue.longest })
}

fn change(stage: &Stage, rate: Rate) -> Instant {
    for way in [Way::Up, Way::Down] {
        stage.lab.radio.control.set_rate(way, rate);
    }
    Instant::now()
}

/// For how long a queue has stood.
struct Standing {
    longest: Duration,
    running: Duration,
    looked: Instant,
    stats: LinkStats,
}

impl Standing {
    fn new(stage: &Stage) -> Self {
        let stats = stage.radio(Direction::Download);
        Standing { longest: Duration::ZERO, running: Duration::ZERO, looked: Instant::now(), stats }
    }

    fn watch(&mut self, stage: &Stage, flow: &Transfer, end: Instant, rate: Rate) -> Result<()> {
        while self.looked < end {
            flow.until(self.looked + SAMPLE)?;
            let (stats, now) = (stage.radio(Direction::Download), Instant::now());
            let span = now - self.looked;
            let over = drain_time(&self.stats, &stats, span, rate) > 2 * DELAY;
            self.running = if over { self.running + span } else { Duration::ZERO };
            self.longest = self.longest.max(self.running);
            (self.looked, self.stats) = (now, stats);
        }
        Ok(())
    }
}

/// How long the mean queue between two looks takes to leave at `rate`.
fn drain_time(before: &LinkStats, after: &LinkStats, elapsed: Duration, rate: Rate) -> Duration {
    let byte_nanos = after.queue.byte_time.saturating_sub(before.queue.byte_time);
    let mean_bytes = byte_nanos as f64 / elapsed.as_nanos().max(1) as f64;
    Duration::from_secs_f64(mean_bytes * 8.0 / rate.as_bps() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_kilobytes_waiting_drain_in_twenty_milliseconds_at_four_megabit() {
        let before = LinkStats::default();
        let mut after = before;
        after.queue.byte_time = 10_000 * 50_000_000;
        assert_eq!(drain_time(&before, &after, SAMPLE, LOW), Duration::from_millis(20));
    }
}
