//! From a scenario to a network, and from the network to what it measured.

use core::net::Ipv4Addr;
use std::collections::VecDeque;

use lasthop_radio::Count;
use lasthop_sim::net::traffic::{Client, Record, Traffic as Play};
use lasthop_sim::net::{
    Config, Context, Event, Host, LinkId, Network, Node, NodeId, Packet, Router, SharedObserver,
    TapPoint,
};
use lasthop_sim::schemes::{BaseStation, MobileHop, MobileStation};
use lasthop_sim::signals::{
    Outage, Prediction, Quality, Signal, Signals, SignalsConfig, SignalsError,
};
use lasthop_tcp::{Probe, Stats};
use lasthop_units::{Bytes, Duration, LinkEvent, Seed, Time};

use super::apps::{self, Apps};
use super::helped::{self, Helped};
use super::tcp::config;
use crate::run::{Outcome, RunError};
use crate::scenario::{
    Flow, Handoff, LinkIndex, NodeIndex, Scenario, Signal as SaidSignal, Traffic,
};

/// Flow n goes to this port and n.
const FIRST_PORT: u16 = 5000;

/// Services begin to listen at zero, and nobody calls before.
const FIRST: Duration = Duration::from_nanos(1);

/// What stands at a node.
enum Machine {
    Host(Box<Host<Apps>>),
    Router(Router),
    /// A mobile with a session.
    Mobile(Box<MobileStation<Apps>>),
    /// A base with surrogates.
    Base(Box<BaseStation>),
}

impl Node for Machine {
    #[inline]
    fn handle_packet(&mut self, ctx: &mut Context<'_>, link: LinkId, packet: Packet) {
        match self {
            Self::Host(host) => host.handle_packet(ctx, link, packet),
            Self::Router(router) => router.handle_packet(ctx, link, packet),
            Self::Mobile(mobile) => mobile.handle_packet(ctx, link, packet),
            Self::Base(base) => base.handle_packet(ctx, link, packet),
        }
    }

    #[inline]
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

    fn handle_link_event(&mut self, ctx: &mut Context<'_>, link: LinkId, event: LinkEvent) {
        match self {
            Self::Host(host) => host.handle_link_event(ctx, link, event),
            Self::Router(router) => router.handle_link_event(ctx, link, event),
            Self::Mobile(mobile) => mobile.handle_link_event(ctx, link, event),
            Self::Base(base) => base.handle_link_event(ctx, link, event),
        }
    }

    fn handle_token(&mut self, ctx: &mut Context<'_>, token: u64) {
        if let Self::Mobile(mobile) = self {
            mobile.handle_token(ctx, token);
        }
    }
}

/// A scenario on its way.
pub(super) struct World<'a> {
    scenario: &'a Scenario,
    network: Network<Machine>,
    nodes: Vec<NodeId>,
    /// Each link in both directions: from its first end, and back.
    links: Vec<[LinkId; 2]>,
    helped: Vec<Helped>,
    /// What each flow had received when rates began to count.
    before: Vec<Bytes>,
}

/// Both ends of a flow, as far as they exist, and what their connections did.
struct Ends<'a> {
    opens: &'a Record,
    accepts: Option<&'a Record>,
    stats: [Stats; 2],
}

impl Ends<'_> {
    fn received(&self) -> Bytes {
        self.opens.received + self.accepts.map_or(Bytes::ZERO, |r| r.received)
    }

    fn total(&self, count: impl Fn(&Stats) -> u64) -> f64 {
        self.stats.iter().map(count).sum::<u64>() as f64
    }

    /// When all that the flow is about was done.
    fn done(&self, traffic: Traffic) -> Option<Time> {
        let answered = |count: Option<u32>| {
            count.is_some_and(|count| self.opens.latencies.len() as u64 >= u64::from(count))
        };
        match traffic {
            Traffic::File { size } => {
                self.accepts.filter(|r| r.received >= size).and_then(|r| r.last_byte)
            }
            Traffic::RequestResponse { count, .. } | Traffic::Interactive { count, .. } => {
                answered(count).then_some(self.opens.last_byte).flatten()
            }
            Traffic::Bulk | Traffic::OnOff { .. } => None,
        }
    }
}

impl<'a> World<'a> {
    /// Builds the network, its routes and all that is to happen to it.
    pub(super) fn new(scenario: &'a Scenario, seed: Seed) -> Result<Self, RunError> {
        let mut network = Network::new(Config::new(seed.child("network")));
        let helped = helped::helped(scenario)?;
        let machine = |index: usize| machine(scenario, &helped, NodeIndex(index), seed);
        let nodes: Vec<NodeId> =
            (0..scenario.nodes.len()).map(|i| network.add_node(machine(i))).collect();
        let mut links = Vec::with_capacity(scenario.links.len());
        for link in &scenario.links {
            let [first, second] = link.ends.map(|end| nodes[end.0]);
            let [back, there] = network
                .add_radio(second, first, &link.radio)
                .map_err(|e| RunError::Failed(format!("link `{}`: {e}", link.name)))?;
            links.push([there, back]);
        }
        let mut world = Self { scenario, network, nodes, links, helped, before: Vec::new() };
        world.route();
        world.signal(seed)?;
        Ok(world)
    }

    /// Sets the routes of the beginning, and schedules the moves.
    fn route(&mut self) {
        let handoff = self.scenario.handoff.as_ref();
        let mut cell = handoff.and_then(|h| h.cells.first().copied());
        let mut routes = self.routes(cell);
        for (node, table) in routes.iter().enumerate() {
            for (owner, link) in table.iter().enumerate() {
                self.network.set_route(self.nodes[node], address(owner), *link);
            }
        }
        let Some(handoff) = handoff else { return };
        for &idle in handoff.cells.iter().filter(|c| Some(**c) != cell) {
            self.switch(Time::ZERO, idle, false);
        }
        for (at, next) in handoff.moves() {
            let down = Time::ZERO + at;
            let up = down + handoff.pause;
            if let Some(cell) = cell {
                self.switch(down, cell, false);
            }
            self.switch(up, next, true);
            let after = self.routes(Some(next));
            self.reroute(handoff, up, &routes, &after);
            cell = Some(next);
            routes = after;
        }
    }

    /// Tells the mobile what is known of its links (LNK-14) and, where it is helped, of its bases
    /// (MIP-6).
    fn signal(&mut self, seed: Seed) -> Result<(), RunError> {
        let Some(handoff) = &self.scenario.handoff else { return Ok(()) };
        let settings = signals(&self.scenario.signals);
        let failed = |e: SignalsError| RunError::Failed(format!("signals: {e}"));
        let mut signals =
            Signals::new(settings, address(handoff.mobile.0), seed.child("signals"), Time::ZERO)
                .map_err(failed)?;
        let base = |cell: LinkIndex| self.scenario.link(cell).far_end(handoff.mobile);
        let mut cell = handoff.cells.first().copied();
        for (at, next) in handoff.moves() {
            let (down, up) = (Time::ZERO + at, Time::ZERO + at + handoff.pause);
            let outage = Outage { down, up, base: address(base(next).0) };
            signals.plan(Time::ZERO, &outage).map_err(failed)?;
            while let Some(due) = signals.next_timeout().filter(|t| *t <= up) {
                while let Some((at, signal)) = signals.poll_signal(due) {
                    self.tell(handoff.mobile, cell.unwrap_or(next), next, at, signal);
                }
            }
            // Who is helped hears of its base once packets find it there.
            signals.handle_complete(up + handoff.registration, address(base(next).0));
            while let Some(due) = signals.next_timeout() {
                while let Some((at, signal)) = signals.poll_signal(due) {
                    self.tell(handoff.mobile, cell.unwrap_or(next), next, at, signal);
                }
            }
            cell = Some(next);
        }
        Ok(())
    }

    fn tell(
        &mut self,
        mobile: NodeIndex,
        old: LinkIndex,
        new: LinkIndex,
        at: Time,
        signal: Signal,
    ) {
        let node = self.nodes[mobile.0];
        if let Signal::HandoffComplete { base } = signal {
            if self.helped.iter().any(|h| h.mobile == mobile) {
                let token = u64::from(base.to_bits());
                self.network.schedule(at, Event::Token { node, token });
            }
            return;
        }
        let Some(event) = signal.link_event() else { return };
        let link = if event == LinkEvent::Up { new } else { old };
        let ends = self.links[link.0];
        let outward = usize::from(self.scenario.link(link).ends[0] != mobile);
        self.network.schedule(at, Event::Signal { node, link: ends[outward], event });
    }

    fn switch(&mut self, at: Time, cell: LinkIndex, up: bool) {
        for link in self.links[cell.0] {
            let event = if up { Event::LinkUp(link) } else { Event::LinkDown(link) };
            self.network.schedule(at, event);
        }
    }

    /// The mobile knows its new base as soon as it has a link; the others hear of it later (MIP-8).
    fn reroute(&mut self, handoff: &Handoff, at: Time, before: &Routes, after: &Routes) {
        for (node, (old, new)) in before.iter().zip(after).enumerate() {
            let delay = match NodeIndex(node) == handoff.mobile {
                true => Duration::ZERO,
                false => handoff.registration,
            };
            for (owner, link) in new.iter().enumerate() {
                if old[owner] != *link {
                    let dst = address(owner);
                    let event = Event::Route { node: self.nodes[node], dst, link: *link };
                    self.network.schedule(at + delay, event);
                }
            }
        }
    }

    /// Which link leads from each node to each host, while `cell` serves.
    fn routes(&self, cell: Option<LinkIndex>) -> Routes {
        let count = self.scenario.nodes.len();
        let mut routes = vec![vec![None; count]; count];
        for owner in 0..count {
            let base = self.helped.iter().any(|h| h.bases.contains(&NodeIndex(owner)));
            if base || self.scenario.nodes[owner].kind.is_host() {
                self.towards(owner, cell, &mut routes);
            }
        }
        routes
    }

    fn towards(&self, owner: usize, cell: Option<LinkIndex>, routes: &mut Routes) {
        let mut open = VecDeque::from([NodeIndex(owner)]);
        let mut known = vec![false; routes.len()];
        known[owner] = true;
        while let Some(here) = open.pop_front() {
            for (i, link) in self.scenario.links.iter().enumerate() {
                if !link.ends.contains(&here) || !serves(self.scenario, LinkIndex(i), cell) {
                    continue;
                }
                let there = link.far_end(here);
                if !known[there.0] {
                    known[there.0] = true;
                    let [forward, backward] = self.links[i];
                    let way = if link.ends[0] == there { forward } else { backward };
                    routes[there.0][owner] = Some(way);
                    open.push_back(there);
                }
            }
        }
    }

    /// Lets everything up to `end` happen.
    pub(super) fn run_until(&mut self, end: Time) -> Result<(), RunError> {
        let from = Time::ZERO + self.scenario.measure.from;
        if self.before.is_empty() && from <= end {
            self.advance(from)?;
            let received = |i| self.ends(i).map_or(Bytes::ZERO, |ends| ends.received());
            self.before = (0..self.scenario.flows.len()).map(received).collect();
        }
        self.advance(end)
    }

    fn advance(&mut self, end: Time) -> Result<(), RunError> {
        self.network.run_until(end).map_err(|halt| RunError::Failed(halt.to_string()))
    }

    /// A node of the network.
    pub(super) fn node(&self, index: NodeIndex) -> NodeId {
        self.nodes[index.0]
    }

    /// A link of the network: from its first end, and back.
    pub(super) fn link(&self, index: LinkIndex) -> [LinkId; 2] {
        self.links[index.0]
    }

    /// Lets somebody watch.
    pub(super) fn tap(&mut self, point: TapPoint, observer: SharedObserver) {
        self.network.tap(point, observer);
    }

    /// What waits for each direction of a link.
    pub(super) fn queues(&mut self, link: usize) -> [Count; 2] {
        self.links[link].map(|id| self.network.link_queue(id))
    }

    /// The state of a flow's connection at the end that opened it, while there is one.
    pub(super) fn probe(&self, flow: usize) -> Option<Probe> {
        let node = self.node(self.scenario.flows[flow].from);
        match self.network.node(node) {
            Machine::Host(host) => {
                let connection = host.app().flow(port(flow))?;
                host.connection(connection).map(|c| c.probe())
            }
            // Its connections are the hop's; of several the latest stands for all.
            Machine::Mobile(mobile) => match mobile.hop() {
                MobileHop::Tcp(streams) => streams.sockets().last().map(|s| s.connection().probe()),
                MobileHop::Srp(_) => None,
            },
            Machine::Router(_) | Machine::Base(_) => None,
        }
    }

    /// What a flow's applications received so far.
    pub(super) fn received(&self, flow: usize) -> Bytes {
        self.ends(flow).map_or(Bytes::ZERO, |ends| ends.received())
    }

    /// A flow's name.
    pub(super) fn name(&self, flow: usize) -> &str {
        &self.scenario.flows[flow].name
    }

    /// Whether every flow that has an end came to it.
    pub(super) fn complete(&self) -> bool {
        self.all(|traffic, ends| ends.done(traffic).is_some())
    }

    /// Whether every flow that has an end came to it, or to another.
    pub(super) fn over(&self) -> bool {
        self.all(|traffic, ends| ends.done(traffic).is_some() || ends.opens.end.is_some())
    }

    fn all(&self, which: impl Fn(Traffic, &Ends<'_>) -> bool) -> bool {
        self.scenario.flows.iter().enumerate().all(|(i, flow)| {
            !flow.traffic.ends() || self.ends(i).is_some_and(|ends| which(flow.traffic, &ends))
        })
    }

    fn ends(&self, index: usize) -> Option<Ends<'_>> {
        let flow = &self.scenario.flows[index];
        let (opens, first) = self.end(flow.from, index, true)?;
        let accepts = self.end(flow.to, index, false);
        let second = accepts.as_ref().map(|(_, stats)| *stats).unwrap_or_default();
        Some(Ends { opens, accepts: accepts.map(|(r, _)| r), stats: [first, second] })
    }

    fn end(&self, node: NodeIndex, flow: usize, client: bool) -> Option<(&Record, Stats)> {
        match self.network.node(self.nodes[node.0]) {
            Machine::Host(host) => {
                let (number, record) = host.app().record(port(flow), client)?;
                Some((record, host.app().stats(number, |id| host.connection(id))))
            }
            Machine::Mobile(mobile) => {
                let (_, record) = mobile.app().record(port(flow), client)?;
                Some((record, Stats::default()))
            }
            Machine::Router(_) | Machine::Base(_) => None,
        }
    }

    /// What was measured up to `now`.
    pub(super) fn outcome(&mut self, now: Time) -> Outcome {
        let mut metrics = Vec::new();
        for (i, flow) in self.scenario.flows.iter().enumerate() {
            if let Some(ends) = self.ends(i) {
                self.measure(i, flow, &ends, now, &mut metrics);
            }
        }
        self.measure_moves(&mut metrics);
        self.measure_links(&mut metrics);
        let trace = self.network.trace().hash();
        Outcome { completed: self.complete(), trace, metrics }
    }

    fn measure(
        &self,
        index: usize,
        flow: &Flow,
        ends: &Ends<'_>,
        now: Time,
        metrics: &mut Vec<(String, f64)>,
    ) {
        let mut add =
            |name: &str, value: f64| metrics.push((format!("{}.{name}", flow.name), value));
        let done = ends.done(flow.traffic);
        let start = Time::ZERO + flow.start;
        if flow.traffic.ends() {
            add("time_s", done.map_or(f64::NAN, |at| at.since(start).as_secs_f64()));
        }
        let counting = start.max(Time::ZERO + self.scenario.measure.from);
        let seconds = done.unwrap_or(now).since(counting).as_secs_f64();
        let before = self.before.get(index).copied().unwrap_or_default();
        let bits = (ends.received() - before).get() as f64 * 8.0;
        add("goodput_bps", if seconds > 0.0 { bits / seconds } else { f64::NAN });
        add("received_bytes", ends.received().get() as f64);
        if matches!(flow.traffic, Traffic::RequestResponse { .. } | Traffic::Interactive { .. }) {
            let waits = &ends.opens.latencies;
            let waited: f64 = waits.iter().map(Duration::as_secs_f64).sum();
            // Without any answer this is no number, as it should be.
            add("latency_s", waited / waits.len() as f64);
            add("latency_median_s", quantile(waits, 0.5));
            add("latency_p95_s", quantile(waits, 0.95));
            add("answers", waits.len() as f64);
        }
        add("timeouts", ends.total(|s| s.timeouts));
        add("retransmits", ends.total(|s| s.retransmits));
        add("fast_retransmits", ends.total(|s| s.fast_retransmits));
        add("data_segments", ends.total(|s| s.data_segments_sent));
    }

    /// What the session's own part of each handoff took (MET-12).
    fn measure_moves(&self, metrics: &mut Vec<(String, f64)>) {
        for helped in &self.helped {
            let Machine::Mobile(mobile) = self.network.node(self.node(helped.mobile)) else {
                continue;
            };
            let name = &self.scenario.node(helped.mobile).name;
            let took: Vec<f64> = mobile
                .handoffs()
                .iter()
                .filter_map(|h| h.latency())
                .map(|t| t.as_secs_f64())
                .collect();
            metrics.push((format!("{name}.handoffs"), took.len() as f64));
            if !took.is_empty() {
                let mean = took.iter().sum::<f64>() / took.len() as f64;
                metrics.push((format!("{name}.handoff_s"), mean));
            }
        }
    }

    /// What links that lose really lost (MET-11).
    fn measure_links(&mut self, metrics: &mut Vec<(String, f64)>) {
        for (link, ids) in self.scenario.links.iter().zip(&self.links) {
            let ways = [("forward", &link.radio.up), ("backward", &link.radio.down)];
            for ((way, config), id) in ways.into_iter().zip(ids) {
                if !config.losses.is_empty() {
                    let loss = self.network.link_stats(*id).loss();
                    metrics.push((format!("{}.{way}.loss", link.name), loss));
                }
            }
        }
    }
}

/// The time below which this share of them lies; no number if there is none.
fn quantile(times: &[Duration], share: f64) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let at = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(at.saturating_sub(1)).map_or(f64::NAN, Duration::as_secs_f64)
}

/// The simulator's signals from the scenario's.
fn signals(said: &crate::scenario::Signals) -> SignalsConfig {
    let quality = |s: &SaidSignal| Quality { delay: s.delay, miss: s.miss };
    let prediction = |s: &SaidSignal| Prediction {
        lead: Some(s.lead).filter(|lead| !lead.is_zero()),
        quality: quality(s),
        false_alarms: None,
    };
    SignalsConfig {
        predicted: prediction(&said.predicted),
        imminent: prediction(&said.imminent),
        down: quality(&said.down),
        up: quality(&said.up),
        complete: quality(&said.complete),
    }
}

/// By node and owner of the address.
type Routes = Vec<Vec<Option<LinkId>>>;

/// Nodes count up from 10.0.0.1.
pub(super) fn address(node: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a00_0001 + node as u32)
}

/// Whether a link carries while `cell` serves.
pub(super) fn serves(scenario: &Scenario, link: LinkIndex, cell: Option<LinkIndex>) -> bool {
    let cells = scenario.handoff.as_ref().map(|h| h.cells.as_slice()).unwrap_or_default();
    !cells.contains(&link) || cell == Some(link)
}

fn machine(scenario: &Scenario, helped: &[Helped], index: NodeIndex, seed: Seed) -> Machine {
    let node = scenario.node(index);
    if let Some(help) = helped.iter().find(|h| h.bases.contains(&index)) {
        let own = seed.child("base").child(&node.name);
        let mut base = BaseStation::new(address(index.0), help.base_config(), own);
        for served in helped.iter().filter(|h| h.first_base() == index) {
            base.serve(address(served.mobile.0));
        }
        return Machine::Base(Box::new(base));
    }
    if !node.kind.is_host() {
        return Machine::Router(Router::new([address(index.0)]));
    }
    let own = seed.child("host").child(&node.name);
    let mut play = Play::new(own);
    for (i, flow) in scenario.flows.iter().enumerate() {
        let mtu = match helped.iter().find(|h| [flow.from, flow.to].contains(&h.mobile)) {
            Some(h) => helped::wired_mtu(scenario, flow, &h.bases, h.mobile),
            None => path_mtu(scenario, flow),
        };
        if flow.from == index {
            play = play.start(Client {
                at: Time::ZERO + flow.start.max(FIRST),
                dst: (address(flow.to.0), port(i)),
                config: config(&flow.tcp.from, mtu),
                work: apps::work(flow.traffic),
            });
        } else if flow.to == index {
            let service = apps::service(flow.traffic);
            play = play.serve(port(i), config(&flow.tcp.to, mtu), service);
        }
    }
    let apps = Apps::new(play);
    match helped.iter().find(|h| h.mobile == index) {
        Some(h) => {
            let (base, config) = (address(h.first_base().0), h.mobile_config());
            let mobile = MobileStation::new(address(index.0), base, config, own, apps);
            Machine::Mobile(Box::new(mobile))
        }
        None => Machine::Host(Box::new(Host::new(address(index.0), own, apps))),
    }
}

/// Each flow has a port of its own.
fn port(flow: usize) -> u16 {
    FIRST_PORT.saturating_add(u16::try_from(flow).unwrap_or(u16::MAX))
}

/// The largest datagram that every link which may carry the flow takes (LNK-3).
fn path_mtu(scenario: &Scenario, flow: &Flow) -> u32 {
    let cells: Vec<Option<LinkIndex>> = match &scenario.handoff {
        Some(handoff) => handoff.cells.iter().copied().map(Some).collect(),
        None => vec![None],
    };
    let least = |cell: &Option<LinkIndex>| {
        least_mtu(scenario, flow.from, flow.to, |link| serves(scenario, link, *cell))
    };
    cells.iter().map(least).min().unwrap_or(u32::MAX)
}

/// The largest datagram that the links between two nodes carry, by way of those that are `usable`.
pub(super) fn least_mtu(
    scenario: &Scenario,
    from: NodeIndex,
    to: NodeIndex,
    usable: impl Fn(LinkIndex) -> bool,
) -> u32 {
    let mut open = vec![(from, u32::MAX)];
    let mut known = vec![false; scenario.nodes.len()];
    while let Some((here, least)) = open.pop() {
        if here == to {
            return least;
        }
        known[here.0] = true;
        for (i, link) in scenario.links.iter().enumerate() {
            let there = link.far_end(here);
            let leads = link.ends.contains(&here) && usable(LinkIndex(i));
            if leads && !known[there.0] {
                let mtu = link.radio.up.mtu.min(link.radio.down.mtu);
                open.push((there, least.min(mtu)));
            }
        }
    }
    u32::MAX
}
