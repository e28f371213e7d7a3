//! Long transfers over SRP: how much of what the radio could carry arrives, how long packets wait in
//! its queue, how it comes back after a silence, and how streams share it.

#![allow(clippy::expect_used, reason = "a test says where it cannot go on")]

use core::net::Ipv4Addr;

use lasthop_hop::HopConfig;
use lasthop_radio::{
    Direction, Errors, LinkConfig, LinkStats, Loss, Pacing, Pause, QueueLimit, RadioConfig,
};
use lasthop_session::{Config as Session, handoff};
use lasthop_sim::net::host::Content;
use lasthop_sim::net::traffic::{Client, Service, Traffic, User, Wish, Work};
use lasthop_sim::net::{Config, Context, Host, LinkId, Network, Node, NodeId, Packet};
use lasthop_sim::schemes::{
    BaseConfig, BaseStation, Carriage, HopKind, MobileConfig, MobileStation,
};
use lasthop_tcp as tcp;
use lasthop_units::{Duration, Rate, Seed, Time};

enum AnyNode {
    Fixed(Box<Host<Traffic>>),
    Mobile(Box<MobileStation<Traffic>>),
    Base(Box<BaseStation>),
}

impl Node for AnyNode {
    fn handle_packet(&mut self, ctx: &mut Context<'_>, link: LinkId, packet: Packet) {
        match self {
            Self::Fixed(host) => host.handle_packet(ctx, link, packet),
            Self::Mobile(mobile) => mobile.handle_packet(ctx, link, packet),
            Self::Base(base) => base.handle_packet(ctx, link, packet),
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        match self {
            Self::Fixed(host) => host.next_timeout(),
            Self::Mobile(mobile) => mobile.next_timeout(),
            Self::Base(base) => base.next_timeout(),
        }
    }

    fn handle_timeout(&mut self, ctx: &mut Context<'_>) {
        match self {
            Self::Fixed(host) => host.handle_timeout(ctx),
            Self::Mobile(mobile) => mobile.handle_timeout(ctx),
            Self::Base(base) => base.handle_timeout(ctx),
        }
    }
}

const FIXED: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const MOBILE: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 1);
const BASE: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 2);

/// The share of a full Ethernet frame's IP packet that is TCP payload with time stamps: the unit in
/// which goodput is compared with kernel TCP's.
const PAYLOAD_SHARE: f64 = 1448.0 / 1500.0;

/// 20 Mbit/s, 20 ms one way, 100 packets: the radio on which every claim is made.
fn radio(loss: f64) -> RadioConfig {
    let losses = if loss > 0.0 { vec![Loss::lose(Errors::Uniform(loss))] } else { Vec::new() };
    RadioConfig::both(LinkConfig {
        pacing: Pacing::Rate(Rate::from_mbps(20)),
        delay: Duration::from_millis(20),
        queue: QueueLimit::Packets(100),
        mtu: 1500,
        losses,
        ..LinkConfig::default()
    })
}

/// The bits of payload that fit through that radio in a time, pauses left out.
fn limit(loss: f64, over: Duration) -> f64 {
    20e6 * over.as_secs_f64() * PAYLOAD_SHARE * (1.0 - loss)
}

/// Connections between a mobile and a fixed host that never run dry, behind a wire that holds nothing
/// up.
struct Transfer {
    network: Network<AnyNode>,
    receiver: NodeId,
    /// The link that the content crosses.
    link: LinkId,
    connections: u16,
}

impl Transfer {
    /// As many connections as there are priorities, which the mobile's user gives them; 0 is none.
    fn new(radio: &RadioConfig, direction: Direction, priorities: &[u32]) -> Self {
        let seed = Seed::from_u64(1);
        let ports = 1..=priorities.len() as u16;
        let config = tcp::Config::modern();
        let client = |port| {
            let dst = (if direction == Direction::Up { FIXED } else { MOBILE }, port);
            // When the hop stands.
            Client { at: Time::from_millis(200), dst, config, work: Work::Bulk }
        };
        let sending = ports.clone().fold(Traffic::new(seed), |all, port| all.start(client(port)));
        let receiving = ports
            .clone()
            .fold(Traffic::new(seed), |all, port| all.serve(port, config, Service::Discard));
        let [mobile, fixed] = match direction {
            Direction::Up => [sending, receiving],
            Direction::Down => [receiving, sending],
        };
        let given = ports.zip(priorities).filter(|(_, priority)| **priority > 0);
        let wish = |(port, &priority)| (Time::ZERO, Wish::Priority { port, priority });
        let user = User { window: None, says: given.map(wish).collect() };
        let mobile = mobile.carrying(Content::Real).used_by(user);
        let hop = HopKind::Srp(HopConfig::default());
        let (session, handoff) = (Session::mobile(), handoff::Config::mobile());
        let own =
            MobileConfig { hop: hop.clone(), carriage: Carriage::default(), session, handoff };
        let mobile = MobileStation::new(MOBILE, BASE, own, seed.child("mobile"), mobile);
        let (session, handoff) = (Session::base(), handoff::Config::base());
        let own = BaseConfig {
            hop,
            carriage: Carriage::default(),
            wired: config,
            session,
            handoff,
            anchors: false,
        };
        let base = BaseStation::new(BASE, own, seed.child("base"));
        let fixed = Host::new(FIXED, seed.child("fixed"), fixed.carrying(Content::Real));

        let mut network = Network::new(Config::new(seed));
        let fixed = network.add_node(AnyNode::Fixed(Box::new(fixed)));
        let base = network.add_node(AnyNode::Base(Box::new(base)));
        let mobile = network.add_node(AnyNode::Mobile(Box::new(mobile)));
        let wire = LinkConfig {
            pacing: Pacing::Rate(Rate::from_mbps(1000)),
            delay: Duration::from_millis(1),
            queue: QueueLimit::Packets(1000),
            ..LinkConfig::default()
        };
        network.add_link(fixed, base, &wire).expect("a link");
        network.add_link(base, fixed, &wire).expect("a link");
        let [down, up] = network.add_radio(base, mobile, radio).expect("a radio");
        for (addr, node) in [(FIXED, fixed), (BASE, base), (MOBILE, mobile)] {
            network.route_to(addr, node);
        }
        let (receiver, link) = match direction {
            Direction::Up => (fixed, up),
            Direction::Down => (mobile, down),
        };
        Self { network, receiver, link, connections: priorities.len() as u16 }
    }

    /// Runs to `at`; the bits that each connection has brought, every one of which is right.
    fn received(&mut self, at: Time) -> Vec<f64> {
        self.network.run_until(at).expect("no halt");
        let traffic = match self.network.node(self.receiver) {
            AnyNode::Fixed(host) => host.app(),
            AnyNode::Mobile(mobile) => mobile.app(),
            AnyNode::Base(_) => panic!("a base receives nothing"),
        };
        let of = |port| {
            let record = traffic.records().find(|record| record.port == port);
            record.map_or(0.0, |record| {
                assert_eq!(record.differs_at, None, "a wrong byte arrived");
                record.received.get() as f64 * 8.0
            })
        };
        (1..=self.connections).map(of).collect()
    }

    /// The bits that each connection brings in the ten seconds after the first two, and what the radio
    /// did to packets in all twelve.
    fn measure(mut self) -> (Vec<f64>, LinkStats) {
        let [before, after] = [2, 12].map(|at| self.received(Time::from_secs(at)));
        let bits = after.iter().zip(before).map(|(after, before)| after - before).collect();
        (bits, self.network.link_stats(self.link))
    }
}

/// SRP-4, SRP-7: random loss costs only itself, and the radio's queue stays short, both ways.
#[test]
fn srp_fills_a_radio_that_loses_up_to_30_percent() {
    for direction in Direction::ALL {
        for loss in [0.0, 0.05, 0.1, 0.2, 0.3] {
            let (bits, stats) = Transfer::new(&radio(loss), direction, &[0]).measure();
            let share = bits[0] / limit(stats.loss(), Duration::from_secs(10));
            let (drops, wait) = (stats.queue_drop_share(), stats.mean_wait());
            let found = format!("{direction}, {loss}: {share:.3} of the limit, {stats:?}");
            assert!(share >= 0.96, "{found}");
            assert!(drops <= 0.03, "{found}");
            // Half a round trip.
            assert!(wait < Duration::from_millis(20), "{found}");
        }
    }
}

/// LNK-7, SRP-13: SRP resumes at once when a silence ends, though nobody says that it did.
#[test]
fn srp_resumes_at_once_after_a_silence() {
    const TICK: Duration = Duration::from_millis(10);
    let mut radio = radio(0.05);
    let pause = Pause::once(Duration::from_secs(4), Duration::from_millis(2800));
    radio.up.pauses.push(pause);
    radio.down.pauses.push(pause);
    let mut transfer = Transfer::new(&radio, Direction::Down, &[0]);
    let back = Time::from_millis(6800);
    let silent = transfer.received(back)[0];
    assert!(silent > 0.5 * limit(0.05, Duration::from_secs(4)), "hardly anything came before");
    let ticks = (0..=100).map(|n| transfer.received(back + TICK * n)[0]).collect::<Vec<_>>();
    assert!(ticks[12] > silent, "nothing came in 120 ms");
    let full = 0.9 * limit(0.05, TICK * 10);
    // Waiting bytes may arrive faster than the radio can bring them.
    let is_full = |w: &[f64]| (full..=full / 0.81).contains(&(w[10] - w[0]));
    assert!(ticks.windows(11).any(is_full), "the full rate did not come in a second");
}

/// LNK-15: one configuration, one run.
#[test]
fn the_same_transfer_twice_is_the_same_transfer() {
    let run = || {
        let mut transfer = Transfer::new(&radio(0.1), Direction::Down, &[0, 0]);
        let received = transfer.received(Time::from_secs(3));
        (received, transfer.network.trace().clone())
    };
    assert_eq!(run(), run());
}

/// UFB-3, RWC-4, RWC-5 over SRP: streams of one association have goodput as their priorities, both
/// ways though the mobile alone was told, with loss or without, and no less in all.
#[test]
fn srp_streams_share_the_hop_by_priority() {
    for direction in Direction::ALL {
        for loss in [0.0, 0.05] {
            let measure = |all: &[u32; 2]| Transfer::new(&radio(loss), direction, all).measure();
            let alone: f64 = measure(&[0, 0]).0.iter().sum();
            for priorities in [[1, 1], [2, 1], [1, 3], [3, 2]] {
                let (bits, _) = measure(&priorities);
                let sum: f64 = bits.iter().sum();
                let whole = f64::from(priorities.iter().sum::<u32>());
                for (bits, priority) in bits.iter().zip(priorities) {
                    let due = f64::from(priority) / whole;
                    let share = bits / sum;
                    assert!(
                        (share / due - 1.0).abs() < 0.1,
                        "{direction} {loss} {priorities:?}: {share}"
                    );
                }
                let all = sum / alone;
                assert!((all - 1.0).abs() < 0.05, "{direction} {loss} {priorities:?}: {all}");
            }
        }
    }
}
