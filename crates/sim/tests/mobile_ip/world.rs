//! A fixed host, a home agent's router, a core router, two base stations and a mobile.

use std::net::Ipv4Addr;

use lasthop_radio::{LinkConfig, Pacing, RadioConfig};
use lasthop_sim::mobile_ip::{
    AdvertiserConfig, BaseIp, ForeignAgent, ForeignAgentConfig, HandoffTiming, HomeAgent,
    HomeAgentConfig, HomeRouter, MobileConfig, MobileIp, MobileRegistration, Passage, Prefix,
    Upcall,
};
use lasthop_sim::net::{
    Body, Config, Context, Event, LinkId, Network, Node, NodeId, Packet, Router,
};
use lasthop_sim::signals::{Outage, Signals, SignalsConfig};
use lasthop_units::{Duration, LinkEvent, Rate, Seed, Time};

pub(crate) const FIXED: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub(crate) const HOME_AGENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const CORE: Ipv4Addr = Ipv4Addr::new(10, 255, 0, 1);
pub(crate) const FIRST: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
pub(crate) const SECOND: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 1);
pub(crate) const MOBILE: Ipv4Addr = Ipv4Addr::new(10, 0, 9, 9);
/// Behind the mobile, if it is a router.
pub(crate) const PASSENGER: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 5);
pub(crate) const GAP: Duration = Duration::from_millis(5);
pub(crate) const PAYLOAD: u32 = 100;
pub(crate) const DOWN_AT: Time = Time::from_millis(5000);
pub(crate) const UP_AT: Time = Time::from_millis(5300);
pub(crate) const END: Time = Time::from_secs(12);

/// Sends a numbered packet every [`GAP`] and notes when which came.
pub(crate) struct Ends {
    own: Ipv4Addr,
    peer: Ipv4Addr,
    next: Time,
    pub(crate) sent: u16,
    pub(crate) came: Vec<(u16, Time)>,
    /// The source of what came.
    pub(crate) from: Option<Ipv4Addr>,
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

    pub(crate) fn sent_at(number: u16) -> Time {
        Time::from_secs(2) + GAP * u32::from(number)
    }

    /// The first and the last packet that never came, by sending time.
    pub(crate) fn lost(&self) -> Option<(Time, Time)> {
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
pub(crate) struct Base {
    pub(crate) ip: BaseIp,
    router: Router,
    pub(crate) down: u32,
    pub(crate) up: u32,
}

pub(crate) struct Mobile {
    ip: MobileIp,
    pub(crate) ends: Ends,
    pub(crate) upcalls: Vec<(Time, Upcall)>,
}

pub(crate) enum Any {
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
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// Milliseconds from the home agent to the core.
    pub(crate) home_delay: u64,
    pub(crate) processing: Duration,
    pub(crate) period: Duration,
    pub(crate) forward: bool,
    pub(crate) solicit: bool,
    pub(crate) router: bool,
    /// The lifetime that the mobile asks for.
    pub(crate) lifetime: Duration,
    /// The mobile loses the bases at 5 s and finds none again.
    pub(crate) vanish: bool,
    /// The home agent has a radio of its own and advertises there.
    pub(crate) home_link: bool,
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
            home_link: false,
        }
    }
}

pub(crate) struct Built {
    pub(crate) network: Network<Any>,
    pub(crate) fixed: NodeId,
    pub(crate) home: NodeId,
    pub(crate) bases: [NodeId; 2],
    pub(crate) mobile: NodeId,
    pub(crate) radios: [[LinkId; 2]; 2],
    /// Down until it is scheduled to come up.
    pub(crate) home_radio: Option<[LinkId; 2]>,
    pub(crate) to_home: LinkId,
    pub(crate) to_bases: [LinkId; 2],
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

pub(crate) fn build(plan: &Plan) -> Built {
    let seed = Seed::from_u64(plan.seed);
    let mut network = Network::new(Config::new(seed));
    let network_behind = plan.router.then(|| Prefix::new(PASSENGER, 16));
    let end = if plan.router { PASSENGER } else { MOBILE };

    let config = HomeAgentConfig {
        processing: plan.processing,
        advertise: plan.home_link.then(AdvertiserConfig::default),
        ..HomeAgentConfig::new(HOME_AGENT)
    };
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
    let home_radio = plan.home_link.then(|| home_radio(&mut network, home, mobile));
    for link in radios[1].into_iter().chain(home_radio.into_iter().flatten()) {
        network.schedule(Time::ZERO, Event::LinkDown(link));
    }
    signal(&mut network, mobile, radios[0][1], Time::ZERO, LinkEvent::Up);
    let to_bases = wires.map(|[to_base, _]| to_base);
    Built { network, fixed, home, bases, mobile, radios, home_radio, to_home, to_bases }
}

fn home_radio(network: &mut Network<Any>, home: NodeId, mobile: NodeId) -> [LinkId; 2] {
    let radio = network.add_radio(home, mobile, &RadioConfig::both(wire(2, 1))).unwrap();
    network.with_node(home, |node, _| {
        if let Any::Home(home) = node {
            home.set_home_link(radio[0]);
        }
    });
    network.with_node(mobile, |node, _| {
        if let Any::Mobile(mobile) = node {
            mobile.ip.add_radio(radio);
        }
    });
    radio
}

pub(crate) fn signal(
    network: &mut Network<Any>,
    node: NodeId,
    link: LinkId,
    at: Time,
    event: LinkEvent,
) {
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
        let event = heard.link_event();
        signal(&mut built.network, built.mobile, built.radios[radio][1], at, event);
    }
}

impl Built {
    pub(crate) fn run(plan: Plan) -> Self {
        let mut built = build(&plan);
        travel(&mut built, &plan);
        built.network.run_until(END).unwrap();
        built
    }

    pub(crate) fn fixed(&self) -> &Ends {
        match self.network.node(self.fixed) {
            Any::Fixed(ends) => ends,
            _ => unreachable!(),
        }
    }

    pub(crate) fn mobile(&self) -> &Mobile {
        match self.network.node(self.mobile) {
            Any::Mobile(mobile) => mobile,
            _ => unreachable!(),
        }
    }

    pub(crate) fn home(&self) -> &HomeRouter {
        match self.network.node(self.home) {
            Any::Home(home) => home,
            _ => unreachable!(),
        }
    }

    pub(crate) fn base(&self, n: usize) -> &Base {
        match self.network.node(self.bases[n]) {
            Any::Base(base) => base,
            _ => unreachable!(),
        }
    }

    /// The handoffs that completed, with the base and the time.
    pub(crate) fn handoffs(&self) -> Vec<(Time, Ipv4Addr, HandoffTiming)> {
        let complete = |(at, upcall): &(Time, Upcall)| match *upcall {
            Upcall::HandoffComplete { base, timing } => Some((*at, base, timing)),
            _ => None,
        };
        self.mobile().upcalls.iter().filter_map(complete).collect()
    }

    pub(crate) fn handoff(&self) -> HandoffTiming {
        match self.handoffs()[..] {
            [_, (_, _, timing)] => timing,
            ref other => panic!("not one handoff: {other:?}"),
        }
    }
}
