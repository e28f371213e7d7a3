//! The loss that a link really applied.

use lasthop_radio::LinkStats;
use lasthop_units::Duration;

/// MET-11: what a link really did to its packets, whatever it was told to do.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LossApplied {
    /// Packets that left the transmitter.
    pub sent: u64,
    /// Of these, packets that error processes lost or corrupted.
    pub hit: u64,
    /// Runs of consecutive packets that were hit.
    pub bursts: u64,
    /// The packet error rate: hit over sent.
    pub per: f64,
    /// The mean number of consecutive packets that were hit.
    pub burst_packets: f64,
    /// The share of clock time spent in fades.
    pub fade_share: f64,
    /// The bit corruption rate, estimated from the packet error rate by [H eq 5] with the mean
    /// fade and the mean air time of a packet as they came out. Below the fade share if the link
    /// was idle in fades (ERR-3). `None` on a link without fades.
    pub bcr: Option<f64>,
    /// Packets that the full queue dropped.
    pub queue_drops: u64,
    /// Packets lost because the link was silent.
    pub silence_drops: u64,
    /// Packets that were longer than the MTU.
    pub oversize_drops: u64,
    /// For how long was counted.
    pub elapsed: Duration,
}

impl LossApplied {
    /// All that a link's counts tell.
    pub fn of(stats: &LinkStats) -> Self {
        let start = LinkStats { since: stats.since, until: stats.since, ..LinkStats::default() };
        Self::between(&start, stats)
    }

    /// A phase of a run: what came after `earlier` and up to `later`, two looks at one link's
    /// counts.
    pub fn between(earlier: &LinkStats, later: &LinkStats) -> Self {
        let count = |f: fn(&LinkStats) -> u64| f(later).saturating_sub(f(earlier));
        let time = |f: fn(&LinkStats) -> Duration| f(later).saturating_sub(f(earlier));
        let (sent, hit) = (count(|s| s.sent.packets), count(|s| s.hit.packets));
        let (bursts, fades) = (count(|s| s.bursts), count(|s| s.fades));
        let (faded, air_time) = (time(|s| s.faded), time(|s| s.air_time));
        let elapsed = later.until.since(earlier.until);
        let per = ratio(hit as f64, sent as f64);
        let packet = ratio(air_time.as_secs_f64(), sent as f64);
        let fade = ratio(faded.as_secs_f64(), fades as f64);
        Self {
            sent,
            hit,
            bursts,
            per,
            burst_packets: ratio(hit as f64, bursts as f64),
            fade_share: ratio(faded.as_secs_f64(), elapsed.as_secs_f64()),
            bcr: (fade > 0.0).then(|| per / (1.0 + packet / fade)),
            queue_drops: count(|s| s.dropped.queue.packets),
            silence_drops: count(|s| s.dropped.silence.packets),
            oversize_drops: count(|s| s.dropped.oversize.packets),
            elapsed,
        }
    }

    /// Retransmissions on this hop for each packet that was sent on it.
    pub fn retransmitted_share(&self, retransmits: u64) -> f64 {
        ratio(retransmits as f64, self.sent as f64)
    }
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use lasthop_radio::{Errors, Link, LinkConfig, Loss, Pacing};
    use lasthop_units::{Bytes, Rate, Seed, Time};

    use super::*;

    /// A link that was saturated with packets of 1250 bytes at 1 Mbit/s, 10 ms each: its counts
    /// after half of the run and at its end.
    fn saturated(errors: Errors) -> (LinkStats, LinkStats) {
        let config = LinkConfig {
            pacing: Pacing::Rate(Rate::from_mbps(1)),
            losses: vec![Loss::lose(errors)],
            ..LinkConfig::default()
        };
        let mut link = Link::new(&config, Seed::from_u64(5), Time::ZERO).unwrap();
        let mut half = LinkStats::default();
        for n in 0..200_000 {
            let now = Time::from_millis(10 * n);
            link.push(now, Bytes::new(1250), ()).unwrap();
            while link.pop(now).is_some() {}
            if n == 100_000 {
                half = link.stats(now);
            }
        }
        (half, link.stats(Time::from_millis(2_000_000)))
    }

    /// MET-11: lone losses at 10 %, in bursts of 1/0.9.
    #[test]
    fn independent_loss_comes_out_as_it_was_set() {
        let (_, stats) = saturated(Errors::Uniform(0.1));
        let loss = LossApplied::of(&stats);
        assert!((loss.per - 0.1).abs() < 0.003, "{loss:?}");
        assert!((loss.burst_packets - 1.0 / 0.9).abs() < 0.01, "{loss:?}");
        assert_eq!((loss.bcr, loss.fade_share, loss.queue_drops), (None, 0.0, 0));
        assert_eq!(loss.elapsed, Duration::from_secs(2000));
    }

    /// MET-11, ERR-5: on a saturated link fades as long as packets hit about twice their share,
    /// and the bits corrupted are close to the share of time.
    #[test]
    fn fades_hit_more_packets_than_bits() {
        let (_, stats) = saturated(Errors::Fade { mean: Duration::from_millis(10), share: 0.05 });
        let loss = LossApplied::of(&stats);
        assert!((loss.fade_share - 0.05).abs() < 0.003, "{loss:?}");
        assert!((loss.bcr.unwrap() - 0.05).abs() < 0.005, "{loss:?}");
        assert!(loss.per > 0.08 && loss.per < 0.11, "{loss:?}");
        assert!(loss.burst_packets > 1.8 && loss.burst_packets < 2.3, "{loss:?}");
    }

    /// MET-11
    #[test]
    fn a_phase_is_counted_by_itself() {
        let (half, all) = saturated(Errors::Uniform(0.2));
        let (first, second) = (LossApplied::of(&half), LossApplied::between(&half, &all));
        assert_eq!(first.hit + second.hit, LossApplied::of(&all).hit);
        assert_eq!(first.elapsed + second.elapsed, Duration::from_secs(2000));
        assert!((second.per - 0.2).abs() < 0.01, "{second:?}");
        assert_eq!(second.retransmitted_share(second.sent), 1.0);
    }
}
