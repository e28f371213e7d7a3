//! Mobile IP in a network (MIP-1..9): a fixed host and a mobile that moves from one base to another,
//! with a packet every 5 ms in each direction, so that what is lost can be counted.
//!
//! The path: fixed host - home agent's router - a core router - two base stations - the mobile.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::cell::RefCell;
use std::net::Ipv4Addr;
use std::rc::Rc;

use lasthop_radio::{LinkConfig, Pacing, RadioConfig};
use lasthop_sim::mobile_ip::{
    AdvertiserConfig, BaseIp, ForeignAgent, ForeignAgentConfig, HandoffTiming, HomeAgent,
    HomeAgentConfig, HomeRouter, MobileConfig, MobileIp, MobileRegistration, Passage, Prefix,
    Upcall,
};
use lasthop_sim::net::{
    Body, Config, Context, Datagram, Event, LinkId, Network, Node, NodeId, Observer, Packet,
    Router, Sight, TapPoint,
};
use lasthop_sim::signals::{Outage, Signals, SignalsConfig};
use lasthop_units::{Duration, LinkEvent, Rate, Seed, Time};

const FIXED: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const HOME_AGENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const CORE: Ipv4Addr = Ipv4Addr::new(10, 255, 0, 1);
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
const SECOND: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 1);
const MOBILE: Ipv4Addr = Ipv4Addr::new(10, 0, 9, 9);
/// Behind the mobile, if it is a router.
const PASSENGER: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 5);
const GAP: Duration = Duration::from_millis(5);
const PAYLOAD: u32 = 100;
const DOWN_AT: Time = Time::from_millis(5000);
const UP_AT: Time = Time::from_millis(5300);
const END: Time = Time::from_secs(12);

/// Sends a numbered packet every [`GAP`] and notes when which came.
struct Ends {
    own: Ipv4Addr,
    peer: Ipv4Addr,
    next: Time,
    sent: u16,
    came: Vec<(u16, Time)>,
    /// The source of what came.
    from: Option<Ipv4Addr>,
}

impl Ends {
    fn new(own: Ipv4Addr, peer: Ipv4Addr) -> Self {
        Self { own, peer, next: Time::from_secs(2), sent: 0, came: vec![], from: None }
    }

    fn send(&mut self, ctx: &mut Context<'_>) {
        while self.next <= ctx.now() {
            let body = Body::Udp { src_port: self.sent, dst_port: 9 };
            let mut packet = ctx.packet(self.own, self.peer, body);
            packet.set_virtual(PAYLOAD);
            let _ = ctx.send(packet);
            self.sent += 1;
            self.next += GAP;
        }
    }

    fn take(&mut self, now: Time, packet: &Packet) {
        if let Body::Udp { src_port, .. } = packet.body {
            assert!(packet.tunnel.is_none() && packet.dst == self.own);
            self.from = Some(packet.src);
            self.came.push((src_port, now));
        }
    }

    fn sent_at(number: u16) -> Time {
        Time::from_secs(2) + GAP * u32::from(number)
    }

    /// The first and the last packet that never came, by sending time.
    fn lost(&self) -> Option<(Time, Time)> {
        let mut came = vec![false; self.sent.into()];
        self.came.iter().for_each(|&(n, _)| came[usize::from(n)] = true);
        // What is still on its way at the end is not lost.
        let settled = self.sent.saturating_sub(200);
        let mut lost = (0..settled).filter(|&n| !came[usize::from(n)]);
        let first = lost.next()?;
        Some((Self::sent_at(first), Self::sent_at(lost.next_back().unwrap_or(first))))
    }
}

/// A base whose agent sees all that passes between the mobile and the world.
struct Base {
    ip: BaseIp,
    router: Router,
    down: u32,
    up: u32,
}

struct Mobile {
    ip: MobileIp,
    ends: Ends,
    upcalls: Vec<(Time, Upcall)>,
}

enum Any {
    Fixed(Ends),
    Home(Box<HomeRouter>),
    Router(Router),
    Base(Box<Base>),
    Mobile(Box<Mobile>),
}

impl Node for Base {
    fn handle_packet(&mut self, ctx: &mut Context<'_>, link: LinkId, packet: Packet) {
        match self.ip.handle_packet(ctx, link, packet) {
            Passage::Taken => {}
            Passage::ToMobile(packet) => {
                assert!(packet.tunnel.is_none());
                self.down += 1;
                self.ip.deliver(ctx, packet);
            }
            Passage::FromMobile(packet) => {
                self.up += 1;
                self.router.handle_packet(ctx, link, packet);
            }
            Passage::Other(packet) => self.router.handle_packet(ctx, link, packet),
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        self.ip.next_timeout()
    }

    fn handle_timeout(&mut self, ctx: &mut Context<'_>) {
        self.ip.handle_timeout(ctx);
    }
}

impl Mobile {
    fn note(&mut self, now: Time) {
        while let Some(upcall) = self.ip.poll_upcall() {
            self.upcalls.push((now, upcall));
        }
    }
}

impl Node for Mobile {
    fn handle_packet(&mut self, ctx: &mut Context<'_>, link: LinkId, packet: Packet) {
        if let Some(packet) = self.ip.handle_packet(ctx, link, packet) {
            self.ends.take(ctx.now(), &packet);
        }
        self.note(ctx.now());
    }

    fn next_timeout(&self) -> Option<Time> {
        self.ip.next_timeout().into_iter().chain([self.ends.next]).min()
    }

    fn handle_timeout(&mut self, ctx: &mut Context<'_>) {
        self.ip.handle_timeout(ctx);
        self.note(ctx.now());
        self.ends.send(ctx);
    }

    fn handle_link_event(&mut self, ctx: &mut Context<'_>, link: LinkId, event: LinkEvent) {
        self.ip.handle_link_event(ctx, link, event);
        self.note(ctx.now());
    }
}

impl Node for Any {
    fn handle_packet(&mut self, ctx: &mut Context<'_>, link: LinkId, packet: Packet) {
        match self {
            Self::Fixed(ends) => ends.take(ctx.now(), &packet),
            Self::Home(node) => node.handle_packet(ctx, link, packet),
            Self::Router(node) => node.handle_packet(ctx, link, packet),
            Self::Base(node) => node.handle_packet(ctx, link, packet),
            Self::Mobile(node) => node.handle_packet(ctx, link, packet),
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        match self {
            Self::Fixed(ends) => Some(ends.next),
            Self::Home(node) => node.next_timeout(),
            Self::Router(node) => node.next_timeout(),
            Self::Base(node) => node.next_timeout(),
            Self::Mobile(node) => node.next_timeout(),
        }
    }

    fn handle_timeout(&mut self, ctx: &mut Context<'_>) {
        match self {
            Self::Fixed(ends) => ends.send(ctx),
            Self::Home(node) => node.handle_timeout(ctx),
            Self::Router(node) => node.handle_timeout(ctx),
            Self::Base(node) => node.handle_timeout(ctx),
            Self::Mobile(node) => node.handle_timeout(ctx),
        }
    }

    fn handle_link_event(&mut self, ctx: &mut Context<'_>, link: LinkId, event: LinkEvent) {
        if let Self::Mobile(node) = self {
            node.handle_link_event(ctx, link, event);
        }
    }
}

/// What differs between the runs.
#[derive(Clone, Copy)]
struct Plan {
    seed: u64,
    /// Milliseconds from the home agent to the core.
    home_delay: u64,
    processing: Duration,
    period: Duration,
    forward: bool,
    solicit: bool,
    router: bool,
    /// The lifetime that the mobile asks for.
    lifetime: Duration,
    /// The mobile loses the bases at 5 s and finds none again.
    vanish: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            seed: 1,
            home_delay: 20,
            processing: Duration::ZERO,
            period: Duration::from_secs(1),
            forward: false,
            solicit: false,
            router: false,
            lifetime: Duration::from_secs(300),
            vanish: false,
        }
    }
}

struct Built {
    network: Network<Any>,
    fixed: NodeId,
    home: NodeId,
    bases: [NodeId; 2],
    mobile: NodeId,
    radios: [[LinkId; 2]; 2],
    to_home: LinkId,
    to_bases: [LinkId; 2],
}

fn wire(rate: u64, delay: u64) -> LinkConfig {
    LinkConfig {
        pacing: Pacing::Rate(Rate::from_mbps(rate)),
        delay: Duration::from_millis(delay),
        ..LinkConfig::default()
    }
}

fn base(address: Ipv4Addr, plan: &Plan) -> Any {
    let seed = Seed::from_u64(plan.seed).child(&address.to_string());
    let config = ForeignAgentConfig {
        advertise: AdvertiserConfig { period: plan.period, ..AdvertiserConfig::default() },
        forward: plan.forward.then_some(Duration::from_secs(5)),
        ..ForeignAgentConfig::new(address)
    };
    let ip = BaseIp::new(ForeignAgent::new(config, seed, Time::ZERO));
    Any::Base(Box::new(Base { ip, router: Router::new([address]), down: 0, up: 0 }))
}

fn build(plan: &Plan) -> Built {
    let seed = Seed::from_u64(plan.seed);
    let mut network = Network::new(Config::new(seed));
    let network_behind = plan.router.then(|| Prefix::new(PASSENGER, 16));
    let end = if plan.router { PASSENGER } else { MOBILE };

    let config =
        HomeAgentConfig { processing: plan.processing, ..HomeAgentConfig::new(HOME_AGENT) };
    let mut agent = HomeAgent::new(config, seed.child("home"), Time::ZERO);
    agent.serve(MOBILE, network_behind).unwrap();
    let config = MobileConfig {
        network: network_behind,
        lifetime: plan.lifetime,
        solicit: plan.solicit,
        notify_previous: plan.forward,
        ..MobileConfig::new(MOBILE, HOME_AGENT)
    };
    let ip = MobileIp::new(MobileRegistration::new(config, Time::ZERO));
    let mobile = Mobile { ip, ends: Ends::new(end, FIXED), upcalls: vec![] };

    let fixed = network.add_node(Any::Fixed(Ends::new(FIXED, end)));
    let home = network.add_node(Any::Home(Box::new(HomeRouter::new(agent))));
    let core = network.add_node(Any::Router(Router::new([CORE])));
    let bases = [FIRST, SECOND].map(|address| network.add_node(base(address, plan)));
    let mobile = network.add_node(Any::Mobile(Box::new(mobile)));

    let mut both = |a, b, delay| {
        [(a, b), (b, a)].map(|(from, to)| network.add_link(from, to, &wire(100, delay)).unwrap())
    };
    // Packets for the mobile's home network pass its agent; what the mobile sends does not.
    let [out, _] = both(fixed, home, 5);
    let [to_core, to_home] = both(home, core, plan.home_delay);
    let [to_fixed, _] = both(core, fixed, 2);
    let wires = bases.map(|base| both(core, base, 3));
    let radio = RadioConfig::both(wire(2, 1));
    let radios = bases.map(|base| network.add_radio(base, mobile, &radio).unwrap());

    network.set_default_route(fixed, Some(out));
    network.set_default_route(home, Some(to_core));
    network.set_default_route(core, Some(to_home));
    network.set_route(core, FIXED, Some(to_fixed));
    for (n, address) in [FIRST, SECOND].into_iter().enumerate() {
        let [to_base, from_base] = wires[n];
        network.set_route(core, address, Some(to_base));
        network.set_default_route(bases[n], Some(from_base));
        network.with_node(bases[n], |node, _| {
            if let Any::Base(base) = node {
                base.ip.add_radio(radios[n]);
            }
        });
        network.with_node(mobile, |node, _| {
            if let Any::Mobile(mobile) = node {
                mobile.ip.add_radio(radios[n]);
            }
        });
    }
    for link in radios[1] {
        network.schedule(Time::ZERO, Event::LinkDown(link));
    }
    signal(&mut network, mobile, radios[0][1], Time::ZERO, LinkEvent::Up);
    let to_bases = wires.map(|[to_base, _]| to_base);
    Built { network, fixed, home, bases, mobile, radios, to_home, to_bases }
}

fn signal(network: &mut Network<Any>, node: NodeId, link: LinkId, at: Time, event: LinkEvent) {
    network.schedule(at, Event::Signal { node, link, event });
}

/// The mobile leaves the first base at 5 s and is within reach of the second from 5.3 s. What the
/// link says of it comes from the signals, at once and truthfully.
fn travel(built: &mut Built, plan: &Plan) {
    // At one time the link changes before anybody hears of it.
    for link in built.radios[0] {
        built.network.schedule(DOWN_AT, Event::LinkDown(link));
    }
    for link in built.radios[1].into_iter().filter(|_| !plan.vanish) {
        built.network.schedule(UP_AT, Event::LinkUp(link));
    }
    let (up, base) = if plan.vanish { (END, FIRST) } else { (UP_AT, SECOND) };
    let mut signals =
        Signals::new(SignalsConfig::default(), FIRST, Seed::from_u64(plan.seed), Time::ZERO)
            .unwrap();
    signals.plan(Time::ZERO, &Outage { down: DOWN_AT, up, base }).unwrap();
    while let Some((at, heard)) = signals.poll_signal(END) {
        let radio = usize::from(at > DOWN_AT && base == SECOND);
        let event = heard.link_event().unwrap();
        signal(&mut built.network, built.mobile, built.radios[radio][1], at, event);
    }
}

impl Built {
    fn run(plan: Plan) -> Self {
        let mut built = build(&plan);
        travel(&mut built, &plan);
        built.network.run_until(END).unwrap();
        built
    }

    fn fixed(&self) -> &Ends {
        match self.network.node(self.fixed) {
            Any::Fixed(ends) => ends,
            _ => unreachable!(),
        }
    }

    fn mobile(&self) -> &Mobile {
        match self.network.node(self.mobile) {
            Any::Mobile(mobile) => mobile,
            _ => unreachable!(),
        }
    }

    fn home(&self) -> &HomeRouter {
        match self.network.node(self.home) {
            Any::Home(home) => home,
            _ => unreachable!(),
        }
    }

    fn base(&self, n: usize) -> &Base {
        match self.network.node(self.bases[n]) {
            Any::Base(base) => base,
            _ => unreachable!(),
        }
    }

    /// The handoffs that completed, with the base and the time.
    fn handoffs(&self) -> Vec<(Time, Ipv4Addr, HandoffTiming)> {
        let complete = |(at, upcall): &(Time, Upcall)| match *upcall {
            Upcall::HandoffComplete { base, timing } => Some((*at, base, timing)),
            _ => None,
        };
        self.mobile().upcalls.iter().filter_map(complete).collect()
    }

    fn handoff(&self) -> HandoffTiming {
        match self.handoffs()[..] {
            [_, (_, _, timing)] => timing,
            ref other => panic!("not one handoff: {other:?}"),
        }
    }
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// MIP-1, MIP-2: hear, ask through the agent, and the reply ends it; the home agent knows the place.
#[test]
fn mip_2_the_mobile_registers_with_each_base_that_it_meets() {
    let mut built = Built::run(Plan::default());
    let handoffs = built.handoffs();
    let bases: Vec<_> = handoffs.iter().map(|(_, base, _)| *base).collect();
    assert_eq!(bases, [FIRST, SECOND]);
    assert_eq!(built.home().agent().stats().accepted, 2);
    let bound = built.network.with_node(built.home, |node, ctx| match node {
        Any::Home(home) => home.agent().clone().binding(ctx.now(), MOBILE),
        _ => None,
    });
    assert_eq!(bound.map(|binding| binding.care_of), Some(SECOND));
    assert!(built.base(1).ip.agent().is_visitor(END, MOBILE));
}

/// MIP-3: to the mobile by way of its home and a tunnel, from the mobile straight.
#[test]
fn mip_3_the_way_there_is_a_detour_and_the_way_back_is_straight() {
    let built = Built::run(Plan::default());
    let delay = |ends: &Ends| {
        let &(number, came) = ends.came.last().unwrap();
        came - Ends::sent_at(number)
    };
    // 5 + 20 + 3 + 1 ms and transmissions, against 1 + 3 + 2 ms.
    let (there, back) = (delay(&built.mobile().ends), delay(built.fixed()));
    assert!(there > ms(29) && there < ms(31), "{there:?}");
    assert!(back > ms(6) && back < ms(8), "{back:?}");
    let sent = u64::from(built.fixed().sent);
    assert!(built.home().tunnelled() <= sent && built.home().tunnelled() + 2 >= sent);
}

#[derive(Default)]
struct Lengths {
    tunnelled: Vec<u64>,
    plain: Vec<u64>,
}

impl Observer for Lengths {
    fn handle_packet(&mut self, _: Time, _: TapPoint, _: Sight, packet: &Datagram) {
        if packet.dst == MOBILE && packet.payload_len() == PAYLOAD {
            let list = if packet.tunnel.is_some() { &mut self.tunnelled } else { &mut self.plain };
            list.push(packet.ip_len().get());
        }
    }
}

/// MIP-3: the tunnel costs 20 bytes, as far as the base and no farther.
#[test]
fn mip_3_a_tunnelled_packet_is_20_bytes_longer_up_to_the_base() {
    let plan = Plan::default();
    let mut built = build(&plan);
    let (wired, radio) =
        (Rc::new(RefCell::new(Lengths::default())), Rc::new(RefCell::new(Lengths::default())));
    built.network.tap(TapPoint::LinkOut(built.to_bases[0]), wired.clone());
    built.network.tap(TapPoint::LinkIn(built.radios[0][0]), radio.clone());
    built.network.run_until(Time::from_secs(4)).unwrap();
    let (wired, radio) = (wired.borrow(), radio.borrow());
    assert!(wired.tunnelled.len() > 300 && wired.tunnelled.iter().all(|&len| len == 148));
    assert!(radio.plain.len() > 300 && radio.plain.iter().all(|&len| len == 128));
    assert!(wired.plain.is_empty() && radio.tunnelled.is_empty());
}

/// MIP-4: packets that pass the home agent before it has the new binding are lost, all of them, and
/// none after it.
#[test]
fn mip_4_packets_are_lost_until_the_home_agent_knows() {
    let built = Built::run(Plan::default());
    let timing = built.handoff();
    let (first, last) = built.mobile().ends.lost().unwrap();
    // From the home agent to the radio takes about 23 ms; the reply needs 24 ms to the mobile.
    let reached_radio = first + ms(5 + 20 + 3);
    assert!(reached_radio + ms(1) >= DOWN_AT - GAP && reached_radio <= DOWN_AT + GAP, "{first}");
    let bound = timing.complete - ms(24);
    let passed_home = last + ms(5);
    assert!(passed_home >= bound - GAP - ms(2) && passed_home <= bound, "{last} {bound}");
    let lost = ((last - first).as_nanos() / GAP.as_nanos()) as usize + 1;
    let ends = &built.mobile().ends;
    let missing = usize::from(built.fixed().sent) - ends.came.len();
    assert!(missing >= lost && missing <= lost + 10, "no packet in between came: {missing} {lost}");
}

/// MIP-4: forwarding by the old agent is off by default; with it, what still comes to the old base
/// after the move is known there is saved.
#[test]
fn mip_4_forwarding_by_the_old_base_saves_packets() {
    let lost = |forward| {
        let built = Built::run(Plan { forward, home_delay: 60, ..Plan::default() });
        let missing = usize::from(built.fixed().sent) - built.mobile().ends.came.len();
        (missing, built.handoff().registration())
    };
    let ((without, round_trip), (with, _)) = (lost(false), lost(true));
    // The old base hears of the move 3 + 3 ms after the request; the home agent after 63 ms, and
    // what it sent just before that takes 63 ms more.
    let saved = (without - with) as u32 * GAP;
    assert!(round_trip > ms(120));
    assert!(saved > ms(100) && saved < ms(130), "{saved:?}");
}

/// MIP-5: between the link's part and the IP part the mobile can send, and hears nothing.
#[test]
fn mip_5_the_mobile_can_send_before_it_can_be_reached() {
    let built = Built::run(Plan { home_delay: 100, ..Plan::default() });
    let timing = built.handoff();
    assert_eq!(timing.up, UP_AT);
    let (first, last) = built.fixed().lost().unwrap();
    assert!(first >= DOWN_AT - ms(5) && last < UP_AT, "{first} to {last}");
    let between = |at: &Time| *at > UP_AT && *at < timing.complete;
    let sent = built.fixed().came.iter().filter(|&&(n, _)| between(&Ends::sent_at(n))).count();
    let heard = built.mobile().ends.came.iter().filter(|(_, at)| between(at)).count();
    let gap = timing.complete - UP_AT;
    assert!(gap > ms(206));
    assert!(sent as u128 >= gap.as_nanos() / GAP.as_nanos() - 1);
    assert_eq!(heard, 0);
}

/// MIP-6: the layers above are told when a handoff begins and when it is over, and where they are.
#[test]
fn mip_6_upper_layers_hear_of_the_handoff_twice() {
    let built = Built::run(Plan::default());
    let timing = built.handoff();
    let after: Vec<_> = built.mobile().upcalls.iter().skip(1).copied().collect();
    assert_eq!(
        after,
        [
            (DOWN_AT, Upcall::HandoffInProgress),
            (timing.complete, Upcall::HandoffComplete { base: SECOND, timing }),
        ]
    );
}

/// MIP-7: after the handoff all packets for the mobile, and from it, pass its new base, where an
/// agent can take them; the fixed host sees one address all the time.
#[test]
fn mip_7_packets_pass_the_new_base_and_the_fixed_host_sees_one_address() {
    let built = Built::run(Plan::default());
    let complete = built.handoff().complete;
    let later = |ends: &Ends| ends.came.iter().filter(|&&(_, at)| at > complete).count() as u32;
    let (down, up) = (later(&built.mobile().ends), built.base(1).down);
    assert!(down > 1000 && up >= down && up <= down + 2, "{up} {down}");
    assert!(built.base(1).up >= later(built.fixed()));
    assert_eq!(built.fixed().from, Some(MOBILE));
    assert!(built.base(0).down > 500, "before, they passed the old one");
}

/// MIP-8, MET-12: the latency is the link's part, the wait for an advertisement and one round trip
/// to the home agent; period and processing are parameters.
#[test]
fn mip_8_the_handoff_latency_is_the_sum_of_its_parts() {
    let mut waits = Duration::ZERO;
    for seed in 0..30 {
        let processing = ms(40);
        let plan = Plan { seed, processing, period: ms(400), ..Plan::default() };
        let timing = Built::run(plan).handoff();
        assert_eq!(timing.link(), UP_AT - DOWN_AT);
        // Mobile to home agent and back, 1 + 3 + 20 ms each way, with short transmissions.
        let registration = timing.registration();
        assert!(registration >= ms(88) && registration < ms(90), "{registration:?}");
        assert!(timing.advertisement() <= ms(452), "{:?}", timing.advertisement());
        let parts = timing.link() + timing.advertisement() + registration;
        assert_eq!(parts, timing.latency());
        waits += timing.advertisement();
    }
    let mean = waits / 30;
    assert!(mean > ms(140) && mean < ms(260), "half a period on average: {mean:?}");
}

/// MIP-2, MIP-8: a mobile that asks need not wait.
#[test]
fn mip_8_a_solicitation_cuts_the_wait_to_one_crossing() {
    let timing = Built::run(Plan { solicit: true, ..Plan::default() }).handoff();
    assert!(timing.advertisement() < ms(4), "{:?}", timing.advertisement());
}

/// MIP-1: a mobile that nobody hears of any more is forgotten when its lifetime ends.
#[test]
fn mip_1_an_unrenewed_binding_ends_with_its_lifetime() {
    let lifetime = Duration::from_secs(4);
    let mut built = Built::run(Plan { lifetime, vanish: true, ..Plan::default() });
    let tunnelled = built.home().tunnelled();
    built.network.run_until(END + ms(500)).unwrap();
    assert_eq!(built.home().tunnelled(), tunnelled);
    assert_eq!(built.home().agent().stats().expired, 1);
    assert!(built.home().agent().stats().accepted >= 2, "renewed while it could be");
}

/// MIP-9: one router registers for the whole network behind it, whose hosts see nothing.
#[test]
fn mip_9_a_passenger_moves_with_its_router() {
    let built = Built::run(Plan { router: true, ..Plan::default() });
    let complete = built.handoff().complete;
    assert_eq!(built.home().agent().stats().accepted, 2);
    assert!(built.mobile().ends.came.iter().any(|&(_, at)| at > complete));
    assert_eq!(built.fixed().from, Some(PASSENGER));
    assert!(built.base(1).down > 1000);
}

/// LNK-15: a run follows from its seed.
#[test]
fn the_same_seed_gives_the_same_trace() {
    let hash = |seed| Built::run(Plan { seed, ..Plan::default() }).network.trace().hash();
    assert_eq!(hash(1), hash(1));
    assert_ne!(hash(1), hash(2));
}

/// Messages take air time: registration goes over the same links as everything else.
#[test]
fn registration_passes_the_links_like_any_packet() {
    #[derive(Default)]
    struct Requests(Vec<u64>);
    impl Observer for Requests {
        fn handle_packet(&mut self, _: Time, _: TapPoint, _: Sight, packet: &Datagram) {
            if packet.dst == HOME_AGENT {
                self.0.push(packet.ip_len().get());
            }
        }
    }
    let mut built = build(&Plan::default());
    let requests = Rc::new(RefCell::new(Requests::default()));
    built.network.tap(TapPoint::LinkOut(built.to_home), requests.clone());
    built.network.run_until(Time::from_secs(3)).unwrap();
    assert_eq!(requests.borrow().0, [74]);
}
