//! Runs a plan, with its agents or without.

use core::net::{IpAddr, Ipv4Addr};

use lasthop_agent::{Agent, Side};
use lasthop_radio::LinkConfig;
use lasthop_sim::agents::{AgentRouter, Help, Linked, Peers};
use lasthop_sim::net::host::{Content, Ending};
use lasthop_sim::net::traffic::{Client, Record, Service, Traffic, Work};
use lasthop_sim::net::{Config, Event, Host, Limits, LinkId, Network, NodeId};
use lasthop_units::{Bytes, Duration, LinkEvent, Stream, Time};

use crate::garbage;
use crate::helper::{self, Helper};
use crate::node::{Kind, Station, side_of};
use crate::plan::{AgentAt, Flow, Knowledge, News, Plan, Trouble, calm, carried};

const FIXED: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const BASES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 3), Ipv4Addr::new(10, 0, 0, 4)];
const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 5);
const MOBILE: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
/// The port of the first flow's service.
const PORT: u16 = 5001;
/// What is looked at, and how often.
const STEP: Duration = Duration::from_millis(250);

/// How a run ended.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Outcome {
    /// When all flows had come over whole; none if they had not by the end.
    pub(crate) done: Option<Time>,
    /// What must never be.
    pub(crate) broken: Option<String>,
    /// What was missing at the end.
    pub(crate) missing: String,
    /// Stands for all that happened.
    pub(crate) hash: u64,
}

pub(crate) struct Run<'a> {
    plan: &'a Plan,
    helped: bool,
    network: Network<Kind>,
    fixed: NodeId,
    gateway: NodeId,
    bases: Vec<NodeId>,
    router: Option<NodeId>,
    mobile: NodeId,
    /// From the gateway to each base, and back.
    wires: Vec<[LinkId; 2]>,
    /// From each base to what moves, and back.
    radios: Vec<[LinkId; 2]>,
    last: Option<[LinkId; 2]>,
    at: usize,
    random: Stream,
}

/// Runs a plan until all is done or `end`.
pub(crate) fn run(plan: &Plan, helped: bool, end: Time) -> Outcome {
    let mut run = Run::new(plan, helped);
    let mut broken;
    let mut troubles = plan.troubles.iter().peekable();
    let mut calmed = false;
    loop {
        let now = run.network.now();
        let trouble = troubles.peek().map(|(at, _)| Time::ZERO + *at).filter(|at| *at >= now);
        let until = (now + STEP).min(trouble.unwrap_or(Time::NEVER));
        if let Err(halt) = run.network.run_until(until) {
            broken = Some(halt.to_string());
            break;
        }
        while let Some((_, trouble)) = troubles.next_if(|(at, _)| Time::ZERO + *at <= until) {
            run.happen(trouble);
        }
        if !calmed && until >= Time::ZERO + plan.calm {
            calmed = true;
            run.calm();
        }
        broken = run.broken();
        if broken.is_some() || run.missing().is_none() && calmed || until >= end {
            break;
        }
    }
    let missing = run.missing();
    Outcome {
        done: missing.is_none().then(|| run.completed()),
        broken,
        missing: missing.unwrap_or_default(),
        hash: run.network.trace().hash(),
    }
}

impl<'a> Run<'a> {
    fn new(plan: &'a Plan, helped: bool) -> Self {
        let limits = Limits { events: 20_000_000, at_once: 100_000 };
        let mut network = Network::new(Config { limits, ..Config::new(plan.seed) });
        let mut random = plan.seed.stream("agents");
        let at = |place| plan.settings(place).filter(|_| helped);
        let mut station = |addr, place: AgentAt, peers: Peers, network: &mut Network<Kind>| {
            let mut router = AgentRouter::new(addr);
            if let Some(settings) = at(place) {
                let agent = helper::fresh(settings, &mut random);
                router.add(Help { mobiles: vec![MOBILE], peers, hop: None, agent });
            }
            network.add_node(Kind::Station(Box::new(Station::new(router))))
        };
        let (fixed_host, mobile_host) = hosts(plan);
        let beyond = if plan.mobile_router { ROUTER } else { MOBILE };
        let fixed = network.add_node(Kind::Host(Box::new(fixed_host)));
        let gateway = station(GATEWAY, AgentAt::Gateway, Peers::default(), &mut network);
        let to_mobile = Peers { fixed: None, mobile: Some(beyond) };
        let bases: Vec<_> = (0..plan.bases)
            .map(|n| station(BASES[n], AgentAt::Base(n), to_mobile, &mut network))
            .collect();
        let to_base = Peers { fixed: Some(BASES[0]), mobile: None };
        let router =
            plan.mobile_router.then(|| station(ROUTER, AgentAt::Router, to_base, &mut network));
        let mobile = network.add_node(match at(AgentAt::Mobile) {
            Some(settings) => {
                let agent = helper::fresh(settings, &mut random);
                Kind::Linked(Box::new(Linked::new(mobile_host, MOBILE, agent, BASES[0])))
            }
            None => Kind::Host(Box::new(mobile_host)),
        });
        let mut add = |from, to, config: &LinkConfig| {
            [(from, to), (to, from)]
                .map(|(from, to)| network.add_link(from, to, config).expect("a link that can be"))
        };
        add(fixed, gateway, &plan.wired);
        let wires: Vec<_> = bases.iter().map(|base| add(gateway, *base, &plan.wired)).collect();
        let moving = router.unwrap_or(mobile);
        let radios: Vec<_> = bases.iter().map(|base| add(*base, moving, &plan.radio)).collect();
        let last = router.map(|router| add(router, mobile, &plan.last));
        let mut run = Self {
            plan,
            helped,
            network,
            fixed,
            gateway,
            bases,
            router,
            mobile,
            wires,
            radios,
            last,
            at: 0,
            random,
        };
        run.find_routes();
        for link in run.radios[1..].iter().flatten() {
            run.network.schedule(Time::ZERO, Event::LinkDown(*link));
        }
        run
    }

    fn find_routes(&mut self) {
        let mut owners = vec![(FIXED, self.fixed), (GATEWAY, self.gateway), (MOBILE, self.mobile)];
        owners.extend(self.bases.iter().enumerate().map(|(n, base)| (BASES[n], *base)));
        owners.extend(self.router.map(|router| (ROUTER, router)));
        for (addr, node) in owners {
            self.network.route_to(addr, node);
        }
        let now = self.network.now();
        self.reroute(now, now);
    }

    /// What moves is at another base: the mobile's side knows at once, the gateway later.
    fn reroute(&mut self, at: Time, gateway_at: Time) {
        let moving = self.router.unwrap_or(self.mobile);
        let ([_, up], [down, _]) = (self.radios[self.at], self.wires[self.at]);
        for dst in [FIXED, GATEWAY] {
            let event = Event::Route { node: moving, dst, link: Some(up) };
            self.network.schedule(at, event);
        }
        for dst in [MOBILE, ROUTER] {
            let event = Event::Route { node: self.gateway, dst, link: Some(down) };
            self.network.schedule(gateway_at, event);
        }
    }

    fn node(&self, place: AgentAt) -> Option<NodeId> {
        match place {
            AgentAt::Gateway => Some(self.gateway),
            AgentAt::Base(n) => self.bases.get(n).copied(),
            AgentAt::Router => self.router,
            AgentAt::Mobile => Some(self.mobile),
        }
    }

    fn happen(&mut self, trouble: &Trouble) {
        match trouble {
            Trouble::Disconnect { lasts, down, up, warned } => {
                let now = self.network.now();
                for link in self.radios[self.at] {
                    self.network.schedule(now, Event::Pause { link, duration: *lasts });
                }
                if let Some(lead) = *warned {
                    self.tell(now, *down, LinkEvent::Imminent { lead });
                }
                self.tell(now, *down, LinkEvent::Down);
                self.tell(now + *lasts, *up, LinkEvent::Up);
            }
            Trouble::Handoff { silence, rerouted, knowledge, down, up } => {
                self.hand_off(*silence, *rerouted, *knowledge, (*down, *up));
            }
            Trouble::Restart(place) => self.restart(*place),
            Trouble::Garbage { place, number, from_fixed } => {
                self.litter(*place, *number, *from_fixed);
            }
            Trouble::Replay { place, number } => self.replay(*place, *number),
            Trouble::Prime { number } => self.prime(*number),
        }
    }

    /// Those who hear of it hear of it, each when it is time.
    fn tell(&mut self, at: Time, news: News, event: LinkEvent) {
        let [down, up] = self.radios[self.at];
        let mobile = self.last.map_or(up, |[_, up]| up);
        let all = [
            (news.mobile, Some(self.mobile), mobile),
            (news.base, Some(self.bases[self.at]), down),
            (news.router, self.router, up),
        ];
        for (late, node, link) in all {
            if let (Some(late), Some(node)) = (late, node) {
                self.network.schedule(at + late, Event::Signal { node, link, event });
            }
        }
    }

    fn hand_off(
        &mut self,
        silence: Duration,
        rerouted: Duration,
        knowledge: Knowledge,
        (down, up): (News, News),
    ) {
        let (now, old) = (self.network.now(), self.at);
        let there = now + silence;
        for link in self.radios[old] {
            self.network.schedule(now, Event::LinkDown(link));
        }
        self.tell(now, down, LinkEvent::Down);
        self.at = 1 - old;
        for link in self.radios[self.at] {
            self.network.schedule(there, Event::LinkUp(link));
        }
        self.reroute(there, there + rerouted);
        self.tell(there, up, LinkEvent::Up);
        self.tell(there + rerouted, up, LinkEvent::Complete);
        if self.helped {
            self.move_knowledge(old, knowledge);
        }
    }

    fn move_knowledge(&mut self, old: usize, knowledge: Knowledge) {
        let mobile = IpAddr::V4(MOBILE);
        let (new, peer) = (self.bases[self.at], BASES[self.at]);
        let mut taken = None;
        self.network.with_node(self.bases[old], |kind, _| match (knowledge, kind.help()) {
            (Knowledge::Forget, Some(help)) => help.agent.remove_mobile(mobile),
            (Knowledge::TakeOver, Some(help)) => {
                let settings = self.plan.agents.base.as_ref();
                let fresh = settings.map(|s| helper::fresh(s, &mut self.random));
                taken = fresh.map(|fresh| core::mem::replace(&mut help.agent, fresh));
            }
            _ => {}
        });
        self.network.with_node(new, |kind, ctx| {
            kind.with_agent(ctx, |agent, now| {
                if let Some(mut old) = taken {
                    helper::take_over(agent, now, &mut old, mobile);
                }
                helper::arrived(agent, now, mobile);
            });
        });
        let moving = self.router.unwrap_or(self.mobile);
        self.network.with_node(moving, |kind, _| match kind {
            Kind::Linked(linked) => linked.set_peer(peer),
            Kind::Station(_) => {
                if let Some(help) = kind.help() {
                    help.peers.fixed = help.peers.fixed.map(|_| peer);
                    if matches!(help.agent, Helper::Link(_) | Helper::Unsplit(_)) {
                        help.agent.remove_mobile(mobile);
                    }
                }
            }
            Kind::Host(_) => {}
        });
    }

    fn restart(&mut self, place: AgentAt) {
        let (Some(node), Some(settings), true) =
            (self.node(place), self.plan.settings(place), self.helped)
        else {
            return;
        };
        let random = &mut self.random;
        self.network.with_node(node, |kind, _| kind.restart(settings, random));
    }

    fn litter(&mut self, place: AgentAt, number: u64, from_fixed: bool) {
        let Some(node) = self.node(place) else { return };
        let mut random = self.plan.seed.child("garbage").stream(&number.to_string());
        let base = BASES[self.at];
        let beyond = if self.plan.mobile_router { ROUTER } else { MOBILE };
        let (here, peer) = match place {
            AgentAt::Gateway => (GATEWAY, FIXED),
            AgentAt::Base(n) => (BASES[n], beyond),
            AgentAt::Router => (ROUTER, base),
            AgentAt::Mobile => (MOBILE, base),
        };
        let link = if from_fixed { self.wires[0][0] } else { self.radios[0][1] };
        self.network.with_node(node, |kind, ctx| {
            let like = kind.seen(random.next_u64());
            let made = match &like {
                Some(like) if random.chance(0.6) => garbage::segment(ctx, &mut random, like),
                _ => {
                    let like = like.as_ref().map(|like| (like, MOBILE));
                    garbage::message(ctx, &mut random, (peer, here), like)
                }
            };
            if let Some(packet) = made {
                kind.inject(ctx, link, packet);
            }
        });
    }

    fn replay(&mut self, place: AgentAt, number: u64) {
        let Some(node) = self.node(place) else { return };
        self.network.with_node(node, |kind, ctx| {
            let Some(packet) = kind.seen(number) else { return };
            // Addressed to the station itself it would only be another message.
            let link = match side_of(&packet, MOBILE) {
                Side::Fixed => self.wires[0][0],
                Side::Mobile => self.radios[0][1],
            };
            kind.inject(ctx, link, packet);
        });
    }

    /// The base where the mobile is not gets a packet that the gateway has seen.
    fn prime(&mut self, number: u64) {
        let Some(&other) = self.bases.get(1 - self.at) else { return };
        let seen = self.network.with_node(self.gateway, |kind, _| kind.seen(number));
        let Some(packet) = seen.filter(|packet| packet.dst == MOBILE) else { return };
        self.network.with_node(other, |kind, ctx| {
            kind.with_agent(ctx, |agent, now| helper::prime(agent, now, &packet));
        });
    }

    /// From here on links do nothing wrong. Whoever missed that the hop carries hears nothing more.
    fn calm(&mut self) {
        let now = self.network.now();
        let mut calmed = |link: LinkId, config: &LinkConfig| {
            let config = Box::new(calm(config));
            self.network.schedule(now, Event::Conditions { link, config });
        };
        self.wires.iter().flatten().for_each(|link| calmed(*link, &self.plan.wired));
        self.radios.iter().flatten().for_each(|link| calmed(*link, &self.plan.radio));
        self.last.iter().flatten().for_each(|link| calmed(*link, &self.plan.last));
    }

    fn records(&self) -> (Vec<&Record>, Vec<&Record>) {
        (self.network.node(self.fixed).records(), self.network.node(self.mobile).records())
    }

    /// The two ends of a flow: at the fixed host and at the mobile. Each has a port of its own.
    fn ends(&self, index: usize) -> (Option<&Record>, Option<&Record>) {
        let (fixed, mobile) = self.records();
        let port = PORT + index as u16;
        let of = |all: Vec<&'_ Record>| all.into_iter().position(|r| r.port == port);
        let (f, m) = (of(fixed.clone()), of(mobile.clone()));
        (f.map(|n| fixed[n]), m.map(|n| mobile[n]))
    }

    /// What is not over yet.
    fn missing(&self) -> Option<String> {
        (0..self.plan.flows.len()).find_map(|n| {
            let (up, down) = carried(&self.plan.flows[n]);
            let (Some(fixed), Some(mobile)) = self.ends(n) else {
                return Some(format!("flow {n} has not begun at both ends"));
            };
            let whole = whole(fixed, up) && whole(mobile, down);
            let told = (down == 0 || fixed.acknowledged.is_some())
                && (up == 0 || mobile.acknowledged.is_some());
            (!whole || !told).then(|| {
                format!(
                    "flow {n}: up {} of {up}, down {} of {down}; fixed {:?} {:?} {:?}, mobile {:?} \
                     {:?} {:?}",
                    fixed.received,
                    mobile.received,
                    fixed.peer_finished,
                    fixed.acknowledged,
                    fixed.end,
                    mobile.peer_finished,
                    mobile.acknowledged,
                    mobile.end
                )
            })
        })
    }

    /// When the last flow was over.
    fn completed(&self) -> Time {
        let (fixed, mobile) = self.records();
        let ends = fixed.iter().chain(&mobile);
        ends.flat_map(|r| [r.peer_finished, r.acknowledged]).flatten().max().unwrap_or(Time::ZERO)
    }

    /// What must never be, whatever happens.
    fn broken(&self) -> Option<String> {
        let (fixed, mobile) = self.records();
        for record in fixed.iter().chain(&mobile) {
            if let Some(at) = record.differs_at {
                return Some(format!("byte {at} of port {} is another one", record.port));
            }
        }
        for (n, flow) in self.plan.flows.iter().enumerate() {
            let (up, down) = carried(flow);
            let (fixed, mobile) = self.ends(n);
            for (record, most) in [(fixed, up), (mobile, down)] {
                let Some(record) = record else { continue };
                if record.received > Bytes::new(most)
                    || record.peer_finished.is_some() && record.received < Bytes::new(most)
                {
                    return Some(format!("flow {n}: {} came, not {most} bytes", record.received));
                }
                if let Some((at, ending)) = record.end.filter(|(_, e)| *e != Ending::Orderly) {
                    return Some(format!("flow {n} ended with {ending:?} at {at:?}"));
                }
            }
        }
        if !self.helped {
            return None;
        }
        self.plan.places().into_iter().find_map(|place| {
            let kind = self.network.node(self.node(place)?);
            kind.exceeds(self.plan.settings(place)?)
        })
    }
}

/// A flow's receiver has all, and knows that it is all.
fn whole(record: &Record, bytes: u64) -> bool {
    record.received == Bytes::new(bytes) && record.peer_finished.is_some()
}

/// The hosts with their clients and services.
fn hosts(plan: &Plan) -> (Host<Traffic>, Host<Traffic>) {
    let [fixed_seed, mobile_seed] = ["fixed", "mobile"].map(|name| plan.seed.child(name));
    let mut fixed = Traffic::new(fixed_seed).carrying(Content::Real);
    let mut mobile = Traffic::new(mobile_seed).carrying(Content::Real);
    for (n, flow) in (0..).zip(&plan.flows) {
        let port = PORT + n;
        let client = |dst, at: Duration, config, work| Client {
            at: Time::ZERO + at,
            dst: (dst, port),
            config,
            work,
        };
        match *flow {
            Flow::Upload { bytes, at } => {
                let work = Work::File(Bytes::new(bytes));
                mobile = mobile.start(client(FIXED, at, plan.mobile, work));
                fixed = fixed.serve(port, plan.fixed, Service::Discard);
            }
            Flow::Download { bytes, at } => {
                mobile = mobile.start(client(FIXED, at, plan.mobile, Work::Download));
                fixed = fixed.serve(port, plan.fixed, Service::Serve(Bytes::new(bytes)));
            }
            Flow::Push { bytes, at } => {
                let work = Work::File(Bytes::new(bytes));
                fixed = fixed.start(client(MOBILE, at, plan.fixed, work));
                mobile = mobile.serve(port, plan.mobile, Service::Discard);
            }
            Flow::Requests { request, response, count, at } => {
                let (request, response) = (Bytes::new(request), Bytes::new(response));
                let think = lasthop_sim::net::traffic::Span::Constant(Duration::from_millis(20));
                let work = Work::Requests { request, response, think, count: Some(count) };
                mobile = mobile.start(client(FIXED, at, plan.mobile, work));
                let service = Service::Respond { request, response };
                fixed = fixed.serve(port, plan.fixed, service);
            }
        }
    }
    (Host::new(FIXED, fixed_seed, fixed), Host::new(MOBILE, mobile_seed, mobile))
}
