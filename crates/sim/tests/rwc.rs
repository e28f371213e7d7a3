//! Receiver window control (rwc-atcp-2003 section IV): user priorities divide what a mobile
//! receives, over TCP as the paper has it, and over SRP.

use core::net::Ipv4Addr;

use lasthop_hop::HopConfig;
use lasthop_radio::{Errors, LinkConfig, Loss, Pacing, QueueLimit};
use lasthop_session::{Config as Session, handoff};
use lasthop_sim::net::traffic::{Client, Service, Traffic, User, Wish, Work};
use lasthop_sim::net::{
    Config, Context, Headers, Host, LinkId, Network, Node, NodeId, Packet, Router,
};
use lasthop_sim::schemes::{
    BaseConfig, BaseStation, Carriage, HopKind, MobileConfig, MobileStation,
};
use lasthop_tcp as tcp;
use lasthop_tcp::mobility::{Freeze, Mobility};
use lasthop_units::{Bytes, Duration, Rate, Seed, Time};

enum AnyNode {
    Host(Box<Host<Traffic>>),
    Router(Router),
    Mobile(Box<MobileStation<Traffic>>),
    Base(Box<BaseStation>),
}

impl Node for AnyNode {
    fn handle_packet(&mut self, ctx: &mut Context<'_>, link: LinkId, packet: Packet) {
        match self {
            Self::Host(host) => host.handle_packet(ctx, link, packet),
            Self::Router(router) => router.handle_packet(ctx, link, packet),
            Self::Mobile(mobile) => mobile.handle_packet(ctx, link, packet),
            Self::Base(base) => base.handle_packet(ctx, link, packet),
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        match self {
            Self::Host(host) => host.next_timeout(),
            Self::Router(router) => router.next_timeout(),
            Self::Mobile(mobile) => mobile.next_timeout(),
            Self::Base(base) => base.next_timeout(),
        }
    }

    fn handle_timeout(&mut self, ctx: &mut Context<'_>) {
        match self {
            Self::Host(host) => host.handle_timeout(ctx),
            Self::Router(router) => router.handle_timeout(ctx),
            Self::Mobile(mobile) => mobile.handle_timeout(ctx),
            Self::Base(base) => base.handle_timeout(ctx),
        }
    }
}

const MOBILE: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 1);
const BASE: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 2);

/// The ports of the mobile that the two flows go to.
const PORTS: [u16; 2] = [1, 2];

/// A sender that knows nothing of priorities.
fn sender() -> tcp::Config {
    tcp::Config { cwnd_max: None, ..tcp::Config::ns2() }
}

/// The paper's user: 32 packets to divide, both flows alike, then the first with priority 2.
fn user() -> User {
    let first = |priority| Wish::Priority { port: PORTS[0], priority };
    User { window: Some(32), says: vec![(Time::ZERO, first(1)), (Time::from_secs(5), first(2))] }
}

fn connect(network: &mut Network<AnyNode>, (from, to): (NodeId, NodeId), config: &LinkConfig) {
    network.add_link(from, to, config).unwrap_or_else(|e| panic!("{e}"));
}

/// Two fixed hosts, a router and the mobile: figure 1.
struct Figure1 {
    network: Network<AnyNode>,
    mobile: NodeId,
}

impl Figure1 {
    fn new(seed: u64, loss: f64, sender: tcp::Config, mobile: Traffic) -> Self {
        Self::with_works(seed, loss, sender, [Work::Bulk; 2], mobile)
    }

    fn with_works(
        seed: u64,
        loss: f64,
        sender: tcp::Config,
        works: [Work; 2],
        mobile: Traffic,
    ) -> Self {
        let mobile = Host::new(MOBILE, Seed::from_u64(seed).child("mobile"), mobile);
        let nodes = [AnyNode::Host(Box::new(mobile)), AnyNode::Router(Router::default())];
        Self::with_nodes(seed, loss, sender, works, nodes)
    }

    /// `mobile` and what stands between it and the fixed hosts.
    fn with_nodes(
        seed: u64,
        loss: f64,
        sender: tcp::Config,
        works: [Work; 2],
        [mobile, router]: [AnyNode; 2],
    ) -> Self {
        let seed = Seed::from_u64(seed);
        let mut network = Network::new(Config { headers: Headers::Free, ..Config::new(seed) });
        let link = |mbps, delay_ms| LinkConfig {
            pacing: Pacing::Rate(Rate::from_mbps(mbps)),
            delay: Duration::from_millis(delay_ms),
            queue: QueueLimit::Packets(50),
            ..LinkConfig::default()
        };
        let mut bottleneck = link(2, 30);
        if loss > 0.0 {
            bottleneck.losses = vec![Loss::lose(Errors::Uniform(loss))];
        }
        let mobile = network.add_node(mobile);
        let router = network.add_node(router);
        connect(&mut network, (router, mobile), &bottleneck);
        connect(&mut network, (mobile, router), &link(2, 30));
        for (port, work) in PORTS.into_iter().zip(works) {
            let addr = Ipv4Addr::new(10, 0, 0, port as u8);
            let seed = seed.child(&format!("fixed {port}"));
            let dst = (MOBILE, port);
            let client = Client { at: Time::ZERO, dst, config: sender, work };
            let host = Host::new(addr, seed, Traffic::new(seed).start(client));
            let host = network.add_node(AnyNode::Host(Box::new(host)));
            connect(&mut network, (host, router), &link(10, 2));
            connect(&mut network, (router, host), &link(10, 2));
            network.route_to(addr, host);
        }
        network.route_to(MOBILE, mobile);
        network.route_to(BASE, router);
        Self { network, mobile }
    }

    /// Runs to `at`; bytes that each flow has received.
    fn received(&mut self, at: Time) -> [u64; 2] {
        self.network.run_until(at).unwrap_or_else(|e| panic!("{e}"));
        let traffic = match self.network.node(self.mobile) {
            AnyNode::Host(host) => host.app(),
            AnyNode::Mobile(mobile) => mobile.app(),
            AnyNode::Router(_) | AnyNode::Base(_) => panic!("no mobile"),
        };
        PORTS.map(|port| {
            let mut records = traffic.records();
            records.find(|record| record.port == port).map_or(0, |record| record.received.get())
        })
    }

    /// Mean rates in Mb/s from 1 to 5 s and from 6 to 10 s.
    fn means(&mut self) -> [[f64; 2]; 2] {
        let [one, five, six, ten] =
            [1, 5, 6, 10].map(|second| self.received(Time::from_secs(second)));
        let mean = |from: [u64; 2], to: [u64; 2]| {
            [0, 1].map(|flow| (to[flow] - from[flow]) as f64 * 8.0 / 4e6)
        };
        [mean(one, five), mean(six, ten)]
    }
}

/// The mobile, whose services take everything; its window is the ns-2 agent's if no user divides it.
fn mobile(user: Option<User>) -> Traffic {
    let traffic = PORTS.iter().fold(Traffic::new(Seed::from_u64(9)), |traffic, port| {
        traffic.serve(*port, tcp::Config::ns2(), Service::Discard)
    });
    match user {
        Some(user) => traffic.used_by(user),
        None => traffic,
    }
}

fn assert_near(rates: [f64; 2], expected: [f64; 2], tolerance: f64) {
    for (rate, expected) in rates.iter().zip(expected) {
        assert!((rate / expected - 1.0).abs() <= tolerance, "{rates:?} is not {expected:?}");
    }
}

/// EXP-R1: no loss, no change of priorities: 1 Mb/s each throughout.
#[test]
fn without_a_change_of_priorities_both_flows_have_a_megabit() {
    let mut alike = user();
    alike.says.truncate(1);
    let [before, after] = Figure1::new(1, 0.0, sender(), mobile(Some(alike))).means();
    assert_near(before, [1.0, 1.0], 0.03);
    assert_near(after, [1.0, 1.0], 0.03);
}

/// EXP-R1 with no RWC at all: the senders' own windows of 16 packets divide the link alike.
#[test]
fn without_rwc_equal_senders_have_a_megabit() {
    let sender = tcp::Config { cwnd_max: Some(tcp::Window::Segments(16)), ..sender() };
    let [before, after] = Figure1::new(1, 0.0, sender, mobile(None)).means();
    assert_near(before, [1.0, 1.0], 0.03);
    assert_near(after, [1.0, 1.0], 0.03);
}

/// EXP-R2, RWC-6, RWC-7: the receiver alone divides the link, 21 to 11 of 32 packets: 1.31 and
/// 0.69 Mb/s, as the paper has it, and as ns-2 has it where the senders' windows are set.
#[test]
fn a_priority_of_two_gives_one_flow_21_packets_of_32() {
    let [before, after] = Figure1::new(1, 0.0, sender(), mobile(Some(user()))).means();
    assert_near(before, [1.0, 1.0], 0.03);
    assert_near(after, [1.31, 0.69], 0.03);
}

/// EXP-R3: with 0.1 % loss the preferred flow still gains; ns-2 has 1.289 and 0.702 Mb/s.
#[test]
fn a_little_loss_changes_little() {
    let mut mean = [0.0; 2];
    for seed in 0..30 {
        let [_, after] = Figure1::new(seed, 0.001, sender(), mobile(Some(user()))).means();
        mean = [mean[0] + after[0] / 30.0, mean[1] + after[1] / 30.0];
    }
    assert_near(mean, [1.289, 0.702], 0.03);
}

/// RWC-11: where the congestion window is what limits both senders, priorities change nothing.
#[test]
fn senders_that_the_window_does_not_limit_stay_alike() {
    let sender = tcp::Config { cwnd_max: Some(tcp::Window::Segments(6)), ..sender() };
    let [before, after] = Figure1::new(1, 0.0, sender, mobile(Some(user()))).means();
    assert_near(after, before, 0.01);
    assert_near(after, [after[0], after[0]], 0.01);
}

/// RWC-10: a flow that ends leaves its window to the other.
#[test]
fn a_flow_that_ends_leaves_its_window() {
    let works = [Work::Bulk, Work::File(Bytes::new(400_000))];
    let mut figure = Figure1::with_works(1, 0.0, sender(), works, mobile(Some(user())));
    let mut windows = |second| -> Vec<u64> {
        figure.received(Time::from_secs(second));
        let AnyNode::Host(host) = figure.network.node(figure.mobile) else { panic!("a router") };
        host.connections().map(|(_, c)| c.probe().rcv_wnd.get() / 1000).collect()
    };
    assert_eq!(windows(2), [16, 16]);
    assert_eq!(windows(5), [32]);
}

/// UFB-1, UFB-5, FRZ-5: a mobile that can freeze does so half a second before the disconnection
/// that its user sees coming, and goes on when the user's time is over, though the link never said
/// anything.
#[test]
fn a_hint_of_a_disconnection_reaches_the_connections() {
    let hint =
        Wish::Disconnection { after: Duration::from_secs(3), lasting: Duration::from_millis(600) };
    let freezing = tcp::Config { mobility: Mobility::Freeze(Freeze::default()), ..sender() };
    let user = User { window: None, says: vec![(Time::from_secs(2), hint)] };
    let mobile = Traffic::new(Seed::from_u64(9))
        .serve(PORTS[0], freezing, Service::Discard)
        .serve(PORTS[1], sender(), Service::Discard)
        .used_by(user);
    let sender = tcp::Config { cwnd_max: Some(tcp::Window::Segments(16)), ..sender() };
    let mut figure = Figure1::new(1, 0.0, sender, mobile);
    let [warned, frozen, over, after] =
        [4500, 4700, 5600, 6600].map(|ms| figure.received(Time::from_millis(ms)));
    assert!(frozen[0] - warned[0] > 10_000, "what is in flight is taken");
    assert_eq!(over[0], frozen[0]);
    assert!(over[1] - frozen[1] > 100_000, "the other flow goes on");
    assert!(after[0] - over[0] > 100_000, "{after:?}");
}

/// UFB-2, UFB-3: the same user before a mobile whose connections go over SRP: the session passes
/// priorities on to the hop's streams, and the fixed hosts are held back by the base.
#[test]
fn a_session_divides_its_hop_for_the_same_user() {
    let seed = Seed::from_u64(1);
    let hop = HopKind::Srp(HopConfig::default());
    let config = MobileConfig {
        hop: hop.clone(),
        carriage: Carriage::default(),
        session: Session::mobile(),
        handoff: handoff::Config::mobile(),
    };
    let mobile =
        MobileStation::new(MOBILE, BASE, config, seed.child("mobile"), mobile(Some(user())));
    let config = BaseConfig {
        hop,
        carriage: Carriage::default(),
        wired: tcp::Config::ns2(),
        session: Session::base(),
        handoff: handoff::Config::base(),
        anchors: false,
    };
    let base = BaseStation::new(BASE, config, seed.child("base"));
    let nodes = [AnyNode::Mobile(Box::new(mobile)), AnyNode::Base(Box::new(base))];
    // The first SYN comes before the hop stands.
    let rto = tcp::Rto { initial: Duration::from_millis(300), ..sender().rto };
    let sender = tcp::Config { rto, ..sender() };
    let mut figure = Figure1::with_nodes(1, 0.0, sender, [Work::Bulk; 2], nodes);
    let [before, after] = figure.means();
    assert_near(before, [before[1], before[0]], 0.05);
    assert_near(after, [2.0 * after[1], after[0] / 2.0], 0.05);
    let [before, after] = [before, after].map(|rates| rates[0] + rates[1]);
    assert!((after / before - 1.0).abs() < 0.05, "{before} {after}");
}
