mod marks;

use core::net::Ipv4Addr;
use std::cell::RefCell;
use std::rc::Rc;

use lasthop_radio::{Errors, LinkConfig, Loss, Pacing, QueueLimit};
use lasthop_tcp as tcp;
use lasthop_units::{Bytes, Duration, Rate, Seed, Time};
use lasthop_wire::tcp::Flags;

use super::*;
use crate::net::{
    self, Body, Config, Context, Datagram, Host, LinkId, Network, Node, NodeId, Observer, Packet,
    Router, Sight, TapPoint,
};

const FH: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const MH: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 1);
const PORT: u16 = 80;

enum AnyNode {
    Host(Box<Host<Traffic>>),
    Router(Router),
}

impl Node for AnyNode {
    fn handle_packet(&mut self, ctx: &mut Context<'_>, link: LinkId, packet: Packet) {
        match self {
            Self::Host(host) => host.handle_packet(ctx, link, packet),
            Self::Router(router) => router.handle_packet(ctx, link, packet),
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        match self {
            Self::Host(host) => host.next_timeout(),
            Self::Router(router) => router.next_timeout(),
        }
    }

    fn handle_timeout(&mut self, ctx: &mut Context<'_>) {
        match self {
            Self::Host(host) => host.handle_timeout(ctx),
            Self::Router(router) => router.handle_timeout(ctx),
        }
    }
}

/// A fixed host, a base station and a mobile host.
struct Path {
    network: Network<AnyNode>,
    hosts: [NodeId; 2],
    down: LinkId,
    up: LinkId,
}

impl Path {
    fn new(seed: u64, radio: &LinkConfig, fixed: Traffic, mobile: Traffic) -> Self {
        let seed = Seed::from_u64(seed);
        let mut network = Network::new(Config::new(seed));
        let fh = Host::new(FH, seed.child("fh"), fixed);
        let mh = Host::new(MH, seed.child("mh"), mobile);
        let fh = network.add_node(AnyNode::Host(Box::new(fh)));
        let bs = network.add_node(AnyNode::Router(Router::default()));
        let mh = network.add_node(AnyNode::Host(Box::new(mh)));
        let wire = LinkConfig {
            pacing: Pacing::Rate(Rate::from_mbps(10)),
            delay: Duration::from_millis(20),
            queue: QueueLimit::Packets(100),
            ..LinkConfig::default()
        };
        let add = |network: &mut Network<AnyNode>, a, b, config: &LinkConfig| {
            network.add_link(a, b, config).expect("a link")
        };
        add(&mut network, fh, bs, &wire);
        add(&mut network, bs, fh, &wire);
        let down = add(&mut network, bs, mh, radio);
        let up = add(&mut network, mh, bs, radio);
        network.route_to(FH, fh);
        network.route_to(MH, mh);
        Self { network, hosts: [fh, mh], down, up }
    }

    fn run(&mut self, seconds: u64) {
        self.network.run_until(Time::from_secs(seconds)).expect("no halt");
    }

    fn host(&self, which: usize) -> &Host<Traffic> {
        match self.network.node(self.hosts[which]) {
            AnyNode::Host(host) => host,
            AnyNode::Router(_) => panic!("a router"),
        }
    }

    fn record(&self, which: usize) -> &Record {
        self.host(which).app().records().next().expect("a record")
    }
}

fn radio() -> LinkConfig {
    LinkConfig {
        pacing: Pacing::Rate(Rate::from_mbps(2)),
        delay: Duration::from_millis(10),
        queue: QueueLimit::Packets(100),
        ..LinkConfig::default()
    }
}

fn reno() -> tcp::Config {
    tcp::Config { time_wait: Duration::from_millis(10), ..tcp::Config::ns2() }
}

fn nothing() -> Traffic {
    Traffic::new(Seed::from_u64(9))
}

fn client(dst: Ipv4Addr, work: Work) -> Traffic {
    nothing().start(Client { at: Time::from_secs(1), dst: (dst, PORT), config: reno(), work })
}

fn service(service: Service) -> Traffic {
    nothing().serve(PORT, reno(), service)
}

const FILE: Bytes = Bytes::new(200_000);

/// MET-1: both ends know when a file was complete: the receiver by its last byte, the sender by
/// the last acknowledgement, half a round trip later.
#[test]
fn a_file_arrives_and_both_ends_know_when() {
    let mut path = Path::new(1, &radio(), client(MH, Work::File(FILE)), service(Service::Discard));
    path.run(30);
    let (sender, receiver) = (path.record(0), path.record(1));
    assert_eq!((sender.written, receiver.received), (FILE, FILE));
    assert!(sender.is_complete() && receiver.is_complete());
    let (last, acked) = (receiver.last_byte.expect("a byte"), sender.acknowledged.expect("done"));
    let half = acked.since(last);
    assert!(half > Duration::from_millis(29) && half < Duration::from_millis(45), "{half:?}");
    assert_eq!(sender.end.map(|(_, ending)| ending), Some(Ending::Orderly));
    assert_eq!(path.host(0).connections().count() + path.host(1).connections().count(), 0);
    assert_eq!(path.network.packets_in_flight(), 0);
}

#[test]
fn a_file_arrives_over_a_lossy_radio() {
    let lossy = LinkConfig { losses: vec![Loss::lose(Errors::burst(0.05, 2.0))], ..radio() };
    let mut path = Path::new(1, &lossy, service(Service::Serve(FILE)), client(FH, Work::Download));
    path.run(300);
    assert_eq!(path.record(1).received, FILE);
    assert!(path.record(1).receive_time().is_some());
}

/// MET-13: a transfer that does not come to its end is not complete.
#[test]
fn a_transfer_cut_short_is_incomplete() {
    let mut path = Path::new(1, &radio(), client(MH, Work::File(FILE)), service(Service::Discard));
    path.network.schedule(Time::from_millis(1500), net::Event::LinkDown(path.down));
    path.run(30);
    assert!(!path.record(0).is_complete() && !path.record(1).is_complete());
    assert_eq!(path.record(0).send_time(), None);
}

#[test]
fn a_port_without_a_listener_answers_with_a_reset() {
    let mut path = Path::new(1, &radio(), client(MH, Work::Bulk), nothing());
    path.run(5);
    assert_eq!(path.record(0).end.map(|(_, ending)| ending), Some(Ending::Reset));
    assert_eq!(path.host(1).stats().resets_sent, 1);
}

/// MET-2: an endless flow fills the radio: 1000 of 1040 bytes are payload.
#[test]
fn a_bulk_flow_fills_the_radio() {
    let mut path = Path::new(1, &radio(), client(MH, Work::Bulk), service(Service::Discard));
    path.run(61);
    let rate = path.record(1).throughput(path.network.now()).as_bps() as f64;
    assert!((rate / (2e6 * 1000.0 / 1040.0) - 1.0).abs() < 0.02, "{rate}");
}

#[test]
fn requests_have_a_latency_each() {
    let think = Span::Constant(Duration::from_millis(100));
    let (request, response) = (Bytes::new(200), Bytes::new(5000));
    let work = Work::Requests { request, response, think, count: Some(20) };
    let respond = service(Service::Respond { request, response });
    let mut path = Path::new(1, &radio(), respond, client(FH, work));
    path.run(60);
    let record = path.record(1);
    assert_eq!((record.latencies.len(), record.unanswered), (20, 0));
    assert_eq!(record.received, Bytes::new(100_000));
    assert!(record.latencies.iter().all(|l| *l > Duration::from_millis(60)));
    assert!(record.is_complete());
}

#[test]
fn keystrokes_are_echoed_after_a_round_trip() {
    let every = Span::Exponential(Duration::from_millis(200));
    let work = Work::Keystrokes { every, count: Some(100) };
    let mut path = Path::new(1, &radio(), service(Service::Echo), client(FH, work));
    path.run(120);
    let record = path.record(1);
    assert_eq!((record.latencies.len(), record.unanswered), (100, 0));
    let round_trip = Duration::from_millis(60)..Duration::from_millis(63);
    assert!(record.latencies.iter().all(|l| round_trip.contains(l)), "{:?}", record.latencies);
}

#[test]
fn an_on_off_flow_sends_its_share_of_the_time() {
    let span = |ms| Span::Exponential(Duration::from_millis(ms));
    let (rate, piece) = (Rate::from_kbps(400), Bytes::new(500));
    let work = Work::OnOff { on: span(500), off: span(1500), rate, piece };
    let mut path = Path::new(1, &radio(), client(MH, work), service(Service::Discard));
    path.run(2001);
    let rate = path.record(1).throughput(path.network.now()).as_bps() as f64;
    assert!((rate / 100e3 - 1.0).abs() < 0.1, "{rate}");
}

/// The longest packet and the MSS options on SYNs.
#[derive(Default)]
struct Sizes {
    longest: u64,
    mss: Vec<Option<u16>>,
}

impl Observer for Sizes {
    fn handle_packet(&mut self, _now: Time, _point: TapPoint, _sight: Sight, packet: &Datagram) {
        self.longest = self.longest.max(packet.ip_len().get());
        if let Body::Tcp(segment) = &packet.body
            && segment.flags.contains(Flags::SYN)
        {
            self.mss.push(segment.options.mss);
        }
    }
}

fn sizes_over_a_small_mtu(fixed: Traffic, mobile: Traffic) -> (Path, Rc<RefCell<Sizes>>) {
    let mut path = Path::new(1, &LinkConfig { mtu: 256, ..radio() }, fixed, mobile);
    let sizes = Rc::new(RefCell::new(Sizes::default()));
    for link in 0..4 {
        path.network.tap(TapPoint::LinkIn(LinkId::new(link)), sizes.clone());
    }
    path.run(60);
    (path, sizes)
}

/// LNK-3: a mobile that sends takes its segment size from its interface.
#[test]
fn a_mobile_sender_uses_small_segments_over_the_whole_path() {
    let mobile = client(FH, Work::File(FILE));
    let (path, sizes) = sizes_over_a_small_mtu(service(Service::Discard), mobile);
    assert_eq!(path.record(0).received, FILE);
    assert_eq!(sizes.borrow().longest, 256);
}

/// LNK-3: a mobile that receives says so in its SYN's MSS option, whoever opens the connection;
/// a fixed host knows nothing else of the path.
#[test]
fn a_mobile_receiver_announces_small_segments_in_its_syn() {
    let downloads = (service(Service::Serve(FILE)), client(FH, Work::Download));
    let pushes = (client(MH, Work::File(FILE)), service(Service::Discard));
    for (fixed, mobile) in [downloads, pushes] {
        let (mut path, sizes) = sizes_over_a_small_mtu(fixed, mobile);
        assert_eq!(path.record(1).received, FILE);
        assert_eq!(sizes.borrow().longest, 256);
        assert!(
            sizes.borrow().mss.contains(&Some(216)) && sizes.borrow().mss.contains(&Some(1000))
        );
        assert_eq!(path.network.link_stats(path.down).dropped.oversize.packets, 0);
        assert_eq!(path.network.link_stats(path.up).dropped.oversize.packets, 0);
    }
}

/// LNK-15: one seed, one hash, initial sequence numbers and traffic included.
#[test]
fn a_run_follows_from_its_seed() {
    let run = |seed| {
        let lossy = LinkConfig { losses: vec![Loss::lose(Errors::Uniform(0.02))], ..radio() };
        let mut path = Path::new(seed, &lossy, client(MH, Work::Bulk), service(Service::Discard));
        path.run(20);
        (path.network.trace().hash(), path.record(1).clone())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).0, run(2).0);
}
