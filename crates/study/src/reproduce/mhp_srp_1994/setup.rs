//! The set-up: what the paper states, what was fitted, and what had to be assumed.

use lasthop_units::{Bytes, Duration, Rate};

use crate::reproduce::Setup;

/// Which end sends the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// The mobile host.
    Upload,
    /// The fixed host.
    Download,
}

/// What bursts of loss and the gaps between them are counted in.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Bursts {
    /// Time: bursts of this mean length come and go whether anything is sent or not.
    Time(Duration),
    /// Packets: a burst lasts for so many, on average, and waits for them.
    Packets(f64),
}

/// How TCP answers to loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flavour {
    /// Without fast recovery, as systems of the time had it.
    Tahoe,
    /// With fast recovery.
    Reno,
}

/// The world of the experiment: every number that a run needs beside its cell's pause and loss.
#[derive(Clone, PartialEq, Debug)]
pub struct Experiment {
    /// The size of the file.
    pub file: Bytes,
    /// Which end sends it.
    pub direction: Direction,
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
    pub flavour: Flavour,
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
            direction: Direction::Upload,
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
            flavour: Flavour::Tahoe,
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
    pub fn setup(&self) -> Setup {
        let mut setup = Setup::default();
        self.path(&mut setup);
        self.ends(&mut setup);
        self.handoff(&mut setup);
        setup
    }

    fn path(&self, setup: &mut Setup) {
        let burst = match self.bursts {
            Bursts::Time(mean) => millis(mean),
            Bursts::Packets(mean) => format!("{mean} packets"),
        };
        setup
            .stated(
                "what lies under the hop",
                self.wireless_rate,
                "section 3.1: an Ethernet; the rate is that of Ethernets of the time",
            )
            .fitted(
                "time of the hop for each packet, either way",
                format!("{:.1} ms", self.per_packet.as_secs_f64() * 1e3),
                "split-tcp and srp without pause and loss",
            )
            .assumed(
                "directions of the hop",
                if self.half_duplex { "take turns" } else { "independent" },
                "the mobile's IP layer simulates the hop for packets in and out alike; were \
                 directions independent, srp could not be a fifth faster than split-tcp without \
                 loss, as its segments are no fuller",
            )
            .assumed("delay of the hop, one way", millis(self.wireless_delay), "unsaid")
            .assumed("MTU of the hop", self.mtu, "the paper says 128 or 256 bytes, not which")
            .stated("gap between bursts of loss", "exponential", "section 3.1, item 2")
            .assumed(
                "length of a burst",
                match self.bursts {
                    Bursts::Time(_) => "exponential",
                    Bursts::Packets(_) => "geometric",
                },
                "section 3.1, item 2, has a geometric distribution without a unit, whose \
                 counterpart in time is the exponential one",
            )
            .assumed(
                "bursts and gaps are counted in",
                match self.bursts {
                    Bursts::Time(_) => "time",
                    Bursts::Packets(_) => "packets",
                },
                "the unit is unsaid; counted in packets, a burst outlasts TCP's timeouts, and \
                 transfers take minutes (see the sensitivity table)",
            )
            .assumed(
                "mean burst",
                burst,
                "unsaid; chosen from values between 0.05 and 0.25 s with Table 1's cells with loss in \
                 sight, which are to that extent no predictions (see the sensitivity table)",
            )
            .assumed("directions of loss", "both", "unsaid")
            .stated(
                "narrowest wired link",
                self.wired_rate,
                "section 3.1: a T1 to the Internet; that nothing narrower follows is assumed",
            )
            .assumed("wired round trip", millis(self.wired_rtt), "Kentucky to Berkeley; unsaid")
            .fitted(
                "loss of the wired path",
                format!("{:.2} %", self.wired_loss * 100.0),
                "tcp without pause and loss",
            );
    }

    fn ends(&self, setup: &mut Setup) {
        setup
            .assumed("size of the file", self.file, "the paper says 100k bytes")
            .assumed(
                "direction",
                match self.direction {
                    Direction::Upload => "mobile to fixed host",
                    Direction::Download => "fixed host to mobile",
                },
                "section 3.2 has the file go to a peer at the destination, which Table 1's caption puts \
                 at Berkeley",
            )
            .assumed(
                "end of a transfer",
                "last byte at the receiver",
                "unsaid; at the sender, split schemes would leave out their wired half",
            )
            .assumed(
                "TCP",
                match self.flavour {
                    Flavour::Tahoe => "Tahoe",
                    Flavour::Reno => "Reno",
                },
                "SunOS 4 of the time has no fast recovery",
            )
            .assumed("TCP window", self.window, "the default of SunOS 4")
            .assumed("TCP timer granularity", millis(self.tick), "BSD's slow timer")
            .assumed("TCP least timeout", millis(self.min_rto), "two ticks of BSD's slow timer")
            .assumed("wired MSS of split schemes", self.wired_mss, "BSD's choice off its own net")
            .assumed("agent buffer, each direction", self.agent_buffer, "unsaid")
            .assumed(
                "SRP window",
                format!("{} segments", self.srp_window),
                "the paper names a bitmap without its length: two words of 32 bits",
            )
            .fitted(
                "segments for each acknowledgement of srp",
                self.srp_ack_every,
                "srp without pause and loss; a quarter of its window",
            )
            .assumed("SRP timer granularity", millis(self.srp_tick), "unsaid")
            .assumed(
                "SRP longest timeout",
                millis(self.srp_max_rto),
                "loss on the hop is no congestion, so backoff has little use",
            );
    }

    fn handoff(&self, setup: &mut Setup) {
        setup
            .assumed(
                "start of the handoff",
                format!("{}, uniform", between(self.first_handoff)),
                "section 3.2 has a value in this range that is fixed for an experiment; which one \
                 belongs to the tables is not said",
            )
            .assumed(
                "spacing of repeated handoffs",
                format!("{}, uniform, constant in a run", between(self.spacing)),
                "section 3.1 gives the range only",
            )
            .assumed(
                "path between bases",
                format!("{}, {}", self.base_rate, millis(self.base_delay)),
                "an Ethernet through the campus router; unsaid",
            )
            .assumed(
                "limit of a run",
                format!("{} s", self.limit.as_secs()),
                "what takes longer counts as incomplete",
            );
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
    Variation { name: "fixed host to mobile", apply: |w| w.direction = Direction::Download },
    Variation { name: "directions independent", apply: |w| w.half_duplex = false },
    Variation { name: "bursts of 60 ms", apply: |w| w.bursts = Bursts::Time(ms(60)) },
    Variation { name: "bursts of 120 ms", apply: |w| w.bursts = Bursts::Time(ms(120)) },
    Variation { name: "bursts of 300 ms", apply: |w| w.bursts = Bursts::Time(ms(300)) },
    Variation { name: "bursts of 3 packets", apply: |w| w.bursts = Bursts::Packets(3.0) },
    Variation { name: "wired RTT 40 ms", apply: |w| w.wired_rtt = ms(40) },
    Variation { name: "wired RTT 160 ms", apply: |w| w.wired_rtt = ms(160) },
    Variation { name: "Reno", apply: |w| w.flavour = Flavour::Reno },
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
        let setup = Experiment::default().setup();
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
