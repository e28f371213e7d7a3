//! The set-up: what the paper states, what was fitted, and what had to be assumed.

use lasthop_sim::schemes::journey::Way;
use lasthop_tcp::Algorithm;
use lasthop_units::{Bytes, Duration, Rate};

use crate::reproduce::Setup;
use crate::reproduce::prose::Prose;

/// What bursts of loss and the gaps between them are counted in.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Bursts {
    /// Time: bursts of this mean length come and go whether anything is sent or not.
    Time(Duration),
    /// Packets: a burst lasts for so many, on average, and waits for them.
    Packets(f64),
}

/// The world of the experiment: every number that a run needs beside its cell's pause and loss.
#[derive(Clone, PartialEq, Debug)]
pub struct Experiment {
    /// The size of the file.
    pub file: Bytes,
    /// Which end sends it.
    pub direction: Way,
    /// The largest packet on the hop, headers included.
    pub mtu: Bytes,
    /// The rate of what lies under the hop.
    pub wireless_rate: Rate,
    /// What each packet, in either direction, keeps the hop busy for beside its bits.
    pub per_packet: Duration,
    /// Both directions of the hop take turns.
    pub half_duplex: bool,
    /// The one-way delay of the hop.
    pub wireless_delay: Duration,
    /// Bursts of loss.
    pub bursts: Bursts,
    /// The rate of the wired path's narrowest link.
    pub wired_rate: Rate,
    /// The round trip of the wired path.
    pub wired_rtt: Duration,
    /// The part of packets that the wired path loses.
    pub wired_loss: f64,
    /// The largest segment on the wired half of a split connection.
    pub wired_mss: Bytes,
    /// How TCP answers to loss.
    pub flavour: Algorithm,
    /// TCP's receive window.
    pub window: Bytes,
    /// The granularity of TCP's timers.
    pub tick: Duration,
    /// The least retransmission timeout of TCP.
    pub min_rto: Duration,
    /// What an agent holds of each direction.
    pub agent_buffer: Bytes,
    /// The rate between two bases.
    pub base_rate: Rate,
    /// The one-way delay between two bases.
    pub base_delay: Duration,
    /// The first handoff begins between these, after the connection's start.
    pub first_handoff: [Duration; 2],
    /// Repeated handoffs begin so far from each other.
    pub spacing: [Duration; 2],
    /// SRP's window, in segments.
    pub srp_window: u32,
    /// Segments in sequence that one acknowledgement of SRP's answers.
    pub srp_ack_every: u32,
    /// The granularity of SRP's timer.
    pub srp_tick: Duration,
    /// The longest timeout of SRP.
    pub srp_max_rto: Duration,
    /// A run that takes longer has failed.
    pub limit: Duration,
}

impl Default for Experiment {
    fn default() -> Self {
        Self {
            file: Bytes::new(102_400),
            direction: Way::Up,
            mtu: Bytes::new(256),
            wireless_rate: Rate::from_mbps(10),
            per_packet: Duration::from_micros(20_900),
            half_duplex: true,
            wireless_delay: Duration::from_millis(1),
            bursts: Bursts::Time(Duration::from_millis(200)),
            wired_rate: Rate::from_bps(1_544_000),
            wired_rtt: Duration::from_millis(80),
            wired_loss: 0.017,
            wired_mss: Bytes::new(512),
            flavour: Algorithm::Tahoe,
            window: Bytes::new(4096),
            tick: Duration::from_millis(500),
            min_rto: Duration::from_secs(1),
            agent_buffer: Bytes::from_kib(16),
            base_rate: Rate::from_bps(10_000_000),
            base_delay: Duration::from_millis(2),
            first_handoff: [Duration::from_secs(4), Duration::from_secs(8)],
            spacing: [Duration::from_secs(5), Duration::from_secs(10)],
            srp_window: 64,
            srp_ack_every: 16,
            srp_tick: Duration::from_millis(10),
            srp_max_rto: Duration::from_secs(1),
            limit: Duration::from_secs(1000),
        }
    }
}

impl Experiment {
    /// The set-up in words, with the source or reason of each value.
    pub(super) fn setup(&self, prose: &Prose) -> Setup {
        let (law, unit, burst) = match self.bursts {
            Bursts::Time(mean) => ("exponential", "time", millis(mean)),
            Bursts::Packets(mean) => ("geometric", "packets", format!("{mean} packets")),
        };
        let direction = match self.direction {
            Way::Up => "mobile to fixed host",
            Way::Down => "fixed host to mobile",
        };
        let flavour = format!("{:?}", self.flavour);
        prose.setup(&[
            ("wireless-rate", &self.wireless_rate),
            ("per-packet", &format!("{:.1}", self.per_packet.as_secs_f64() * 1e3)),
            ("directions", if self.half_duplex { &"take turns" } else { &"independent" }),
            ("wireless-delay", &millis(self.wireless_delay)),
            ("mtu", &self.mtu),
            ("burst-law", &law),
            ("burst-unit", &unit),
            ("burst", &burst),
            ("wired-rate", &self.wired_rate),
            ("wired-rtt", &millis(self.wired_rtt)),
            ("wired-loss", &format!("{:.2}", self.wired_loss * 100.0)),
            ("file", &self.file),
            ("direction", &direction),
            ("flavour", &flavour),
            ("window", &self.window),
            ("tick", &millis(self.tick)),
            ("min-rto", &millis(self.min_rto)),
            ("wired-mss", &self.wired_mss),
            ("agent-buffer", &self.agent_buffer),
            ("srp-window", &self.srp_window),
            ("srp-ack-every", &self.srp_ack_every),
            ("srp-tick", &millis(self.srp_tick)),
            ("srp-max-rto", &millis(self.srp_max_rto)),
            ("first-handoff", &between(self.first_handoff)),
            ("spacing", &between(self.spacing)),
            ("base-rate", &self.base_rate),
            ("base-delay", &millis(self.base_delay)),
            ("limit", &self.limit.as_secs()),
        ])
    }
}

fn millis(duration: Duration) -> String {
    format!("{} ms", duration.as_millis())
}

fn between([from, to]: [Duration; 2]) -> String {
    format!("{} to {} s", from.as_secs(), to.as_secs())
}

/// An assumption, changed: the rest of the experiment stays, fitted values too.
#[derive(Clone, Copy, Debug)]
pub struct Variation {
    /// What is different.
    pub name: &'static str,
    /// Makes it so.
    pub apply: fn(&mut Experiment),
}

/// The assumptions whose weight the sensitivity table shows.
pub const VARIATIONS: [Variation; 15] = [
    Variation { name: "MTU 128 bytes", apply: |w| w.mtu = Bytes::new(128) },
    Variation { name: "100 000 bytes", apply: |w| w.file = Bytes::new(100_000) },
    Variation { name: "fixed host to mobile", apply: |w| w.direction = Way::Down },
    Variation { name: "directions independent", apply: |w| w.half_duplex = false },
    Variation { name: "bursts of 60 ms", apply: |w| w.bursts = Bursts::Time(ms(60)) },
    Variation { name: "bursts of 120 ms", apply: |w| w.bursts = Bursts::Time(ms(120)) },
    Variation { name: "bursts of 300 ms", apply: |w| w.bursts = Bursts::Time(ms(300)) },
    Variation { name: "bursts of 3 packets", apply: |w| w.bursts = Bursts::Packets(3.0) },
    Variation { name: "wired RTT 40 ms", apply: |w| w.wired_rtt = ms(40) },
    Variation { name: "wired RTT 160 ms", apply: |w| w.wired_rtt = ms(160) },
    Variation { name: "Reno", apply: |w| w.flavour = Algorithm::Reno },
    Variation { name: "window 16 KiB", apply: |w| w.window = Bytes::from_kib(16) },
    Variation { name: "agent buffer 64 KiB", apply: |w| w.agent_buffer = Bytes::from_kib(64) },
    Variation { name: "SRP window 32", apply: |w| w.srp_window = 32 },
    Variation { name: "SRP acknowledges each second segment", apply: |w| w.srp_ack_every = 2 },
];

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::Kind;

    #[test]
    fn only_what_the_base_cells_allow_is_fitted() {
        let setup = Experiment::default().setup(&super::super::prose().unwrap());
        let fitted: Vec<&str> = setup.of(Kind::Fitted).map(|p| p.name.as_str()).collect();
        assert_eq!(
            fitted,
            [
                "time of the hop for each packet, either way",
                "loss of the wired path",
                "segments for each acknowledgement of srp"
            ]
        );
        assert!(setup.of(Kind::Fitted).all(|p| p.reason.contains("without pause and loss")));
        assert!(setup.parameters.iter().all(|p| !p.reason.is_empty() && !p.value.is_empty()));
    }

    #[test]
    fn every_variation_changes_the_world() {
        for variation in VARIATIONS {
            let mut experiment = Experiment::default();
            (variation.apply)(&mut experiment);
            assert_ne!(experiment, Experiment::default(), "{}", variation.name);
        }
    }
}
