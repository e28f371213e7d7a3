//! From a scenario to a network, and from the network to what it measured.

use core::net::Ipv4Addr;
use std::collections::VecDeque;

use lasthop_radio::Count;
use lasthop_sim::net::traffic::{Client, Record, Traffic as Play};
use lasthop_sim::net::{
    Config, Context, Event, Host, LinkId, Network, Node, NodeId, Packet, Router, SharedObserver,
    TapPoint,
};
use lasthop_tcp::{Probe, Stats};
use lasthop_units::{Bytes, Duration, LinkEvent, Seed, Time};

use super::apps::{self, Apps};
use super::tcp::config;
use crate::run::{Outcome, RunError};
use crate::scenario::{Flow, Handoff, LinkIndex, NodeIndex, Scenario, Traffic};

/// Flow n goes to this port and n.
const FIRST_PORT: u16 = 5000;

/// Services begin to listen at zero, and nobody calls before.
const FIRST: Duration = Duration::from_nanos(1);

/// What stands at a node.
enum Machine {
    Host(Box<Host<Apps>>),
    Router(Router),
}

impl Node for Machine {
    #[inline]
    fn handle_packet(&mut self, ctx: &mut Context<'_>, link: LinkId, packet: Packet) {
        match self {
            Self::Host(host) => host.handle_packet(ctx, link, packet),
            Self::Router(router) => router.handle_packet(ctx, link, packet),
        }
    }

    #[inline]
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

    fn handle_link_event(&mut self, ctx: &mut Context<'_>, link: LinkId, event: LinkEvent) {
        match self {
            Self::Host(host) => host.handle_link_event(ctx, link, event),
            Self::Router(router) => router.handle_link_event(ctx, link, event),
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
        let machine = |index: usize| machine(scenario, NodeIndex(index), seed);
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
        let mut world = Self { scenario, network, nodes, links, before: Vec::new() };
        world.route();
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
            if self.scenario.nodes[owner].kind.is_host() {
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
        let Machine::Host(host) = self.network.node(node) else { return None };
        let connection = host.app().flow(port(flow))?;
        host.connection(connection).map(|c| c.probe())
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
        let Machine::Host(host) = self.network.node(self.nodes[node.0]) else { return None };
        let (number, record) = host.app().record(port(flow), client)?;
        Some((record, host.app().stats(number, |id| host.connection(id))))
    }

    /// What was measured up to `now`.
    pub(super) fn outcome(&self, now: Time) -> Outcome {
        let mut metrics = Vec::new();
        for (i, flow) in self.scenario.flows.iter().enumerate() {
            if let Some(ends) = self.ends(i) {
                self.measure(i, flow, &ends, now, &mut metrics);
            }
        }
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
            add("answers", waits.len() as f64);
        }
        add("timeouts", ends.total(|s| s.timeouts));
        add("retransmits", ends.total(|s| s.retransmits));
        add("fast_retransmits", ends.total(|s| s.fast_retransmits));
        add("data_segments", ends.total(|s| s.data_segments_sent));
    }
}

/// By node and owner of the address.
type Routes = Vec<Vec<Option<LinkId>>>;

/// Nodes count up from 10.0.0.1.
fn address(node: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a00_0001 + node as u32)
}

/// Whether a link carries while `cell` serves.
fn serves(scenario: &Scenario, link: LinkIndex, cell: Option<LinkIndex>) -> bool {
    let cells = scenario.handoff.as_ref().map(|h| h.cells.as_slice()).unwrap_or_default();
    !cells.contains(&link) || cell == Some(link)
}

fn machine(scenario: &Scenario, index: NodeIndex, seed: Seed) -> Machine {
    let node = scenario.node(index);
    if !node.kind.is_host() {
        return Machine::Router(Router::new([address(index.0)]));
    }
    let own = seed.child("host").child(&node.name);
    let mut play = Play::new(own);
    for (i, flow) in scenario.flows.iter().enumerate() {
        let mtu = path_mtu(scenario, flow);
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
    Machine::Host(Box::new(Host::new(address(index.0), own, Apps::new(play))))
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
    let least = |cell: &Option<LinkIndex>| least_mtu(scenario, flow, *cell);
    cells.iter().map(least).min().unwrap_or(u32::MAX)
}

fn least_mtu(scenario: &Scenario, flow: &Flow, cell: Option<LinkIndex>) -> u32 {
    let mut open = vec![(flow.from, u32::MAX)];
    let mut known = vec![false; scenario.nodes.len()];
    while let Some((here, least)) = open.pop() {
        if here == flow.to {
            return least;
        }
        known[here.0] = true;
        for (i, link) in scenario.links.iter().enumerate() {
            let there = link.far_end(here);
            let usable = link.ends.contains(&here) && serves(scenario, LinkIndex(i), cell);
            if usable && !known[there.0] {
                let mtu = link.radio.up.mtu.min(link.radio.down.mtu);
                open.push((there, least.min(mtu)));
            }
        }
    }
    u32::MAX
}
