//! The network itself: whose turn it is, and what becomes of packets.

use core::net::Ipv4Addr;

use lasthop_radio::{ConfigError, Count, Link, LinkConfig, LinkStats, Radio, RadioConfig};
use lasthop_units::{Bytes, Duration, LinkEvent, Seed, Time};

use super::event::Agenda;
use super::packet::Pool;
use super::tap::Taps;
use super::timetable::Timetable;
use super::{
    Context, Event, Headers, Packet, RouteTable, SharedObserver, Sight, TapPoint, Trace,
    Undelivered,
};
use crate::Halt;

/// Something with links: a host, a router, an agent.
///
/// A node's world is its [`Context`]: it sends there at any time while it handles something.
/// Nodes that differ go into an enum that implements this by matching, so that no packet costs a
/// virtual call.
pub trait Node {
    /// A packet came out of `link`. One that is corrupted is still handed over (LNK-10).
    fn handle_packet(&mut self, ctx: &mut Context<'_>, link: LinkId, packet: Packet);

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    fn next_timeout(&self) -> Option<Time> {
        None
    }

    /// The time asked for has come.
    fn handle_timeout(&mut self, _ctx: &mut Context<'_>) {}

    /// Something is known of a link from below (LNK-14).
    fn handle_link_event(&mut self, _ctx: &mut Context<'_>, _link: LinkId, _event: LinkEvent) {}

    /// An [`Event::Token`] came: what it means is between the scenario and the node.
    fn handle_token(&mut self, _ctx: &mut Context<'_>, _token: u64) {}
}

/// Names a node of a network.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(u32);

/// Names a link of a network.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(u32);

impl NodeId {
    pub(super) const fn new(n: u32) -> Self {
        Self(n)
    }

    /// Its number: nodes count from zero as they are added.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl LinkId {
    pub(super) const fn new(n: u32) -> Self {
        Self(n)
    }

    /// Its number: links count from zero as they are added.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a network allows before it gives up on its nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Events in a run.
    pub events: u64,
    /// Events at one instant.
    pub at_once: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { events: 10_000_000_000, at_once: 1_000_000 }
    }
}

/// What holds for a whole network.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// What all randomness follows from (LNK-15).
    pub seed: Seed,
    /// How long packets are on links.
    pub headers: Headers,
    /// When to give up.
    pub limits: Limits,
}

impl Config {
    /// The usual lengths and limits.
    pub fn new(seed: Seed) -> Self {
        Self { seed, headers: Headers::default(), limits: Limits::default() }
    }
}

/// Nodes, the links between them and the clock.
pub struct Network<N> {
    nodes: Vec<N>,
    pub(super) core: Core,
    at_once: u32,
    limits: Limits,
    /// Nodes or links came that the timetable does not know.
    grown: bool,
}

/// Everything but the nodes, so that a node can be handed the rest.
pub(super) struct Core {
    pub(super) now: Time,
    pub(super) pool: Pool,
    headers: Headers,
    seed: Seed,
    links: Vec<Wire>,
    tables: Vec<RouteTable>,
    /// Sources: the agenda, then links, then nodes.
    timetable: Timetable,
    agenda: Agenda,
    trace: Trace,
    node_taps: Vec<Taps>,
    /// Somebody watches.
    tapped: bool,
}

/// A link in its place.
struct Wire {
    link: Link<Packet>,
    to: NodeId,
    from: NodeId,
    mtu: u32,
    /// No packet overtakes another (LNK-11).
    ordered: bool,
    changes: u32,
    /// The link before its conditions were replaced, until it is empty.
    before: Vec<Link<Packet>>,
    near: Taps,
    far: Taps,
}

/// The agenda's number in the timetable.
const AGENDA: usize = 0;

impl<N: Node> Network<N> {
    /// An empty network at time zero.
    pub fn new(config: Config) -> Self {
        let core = Core {
            now: Time::ZERO,
            pool: Pool::default(),
            headers: config.headers,
            seed: config.seed,
            links: Vec::new(),
            tables: Vec::new(),
            timetable: Timetable::default(),
            agenda: Agenda::default(),
            trace: Trace::default(),
            node_taps: Vec::new(),
            tapped: false,
        };
        Self { nodes: Vec::new(), core, at_once: 0, limits: config.limits, grown: true }
    }

    /// Adds a node that has no links yet.
    pub fn add_node(&mut self, node: N) -> NodeId {
        self.nodes.push(node);
        self.core.tables.push(RouteTable::default());
        self.core.node_taps.push(Taps::default());
        self.grown = true;
        NodeId::new((self.nodes.len() - 1) as u32)
    }

    /// Adds a link that carries packets from one node to another.
    ///
    /// # Errors
    ///
    /// The configuration describes no link.
    pub fn add_link(
        &mut self,
        from: NodeId,
        to: NodeId,
        config: &LinkConfig,
    ) -> Result<LinkId, ConfigError> {
        let seed = self.core.link_seed(self.core.links.len(), 0);
        let link = Link::new(config, seed, self.core.now)?;
        Ok(self.add_wire(link, from, to, config))
    }

    /// Adds both directions of a radio: the link down from `base` to `mobile`, and the link up.
    ///
    /// # Errors
    ///
    /// The configuration describes no radio.
    pub fn add_radio(
        &mut self,
        base: NodeId,
        mobile: NodeId,
        config: &RadioConfig,
    ) -> Result<[LinkId; 2], ConfigError> {
        let seed = self.core.link_seed(self.core.links.len(), 0);
        let [up, down] = Radio::new(config, seed, self.core.now)?.into_links();
        let down = self.add_wire(down, base, mobile, &config.down);
        let up = self.add_wire(up, mobile, base, &config.up);
        Ok([down, up])
    }

    fn add_wire(
        &mut self,
        link: Link<Packet>,
        from: NodeId,
        to: NodeId,
        config: &LinkConfig,
    ) -> LinkId {
        self.core.links.push(Wire {
            link,
            to,
            from,
            mtu: config.mtu,
            ordered: config.reorder.is_none(),
            changes: 0,
            before: Vec::new(),
            near: Taps::default(),
            far: Taps::default(),
        });
        self.grown = true;
        LinkId::new((self.core.links.len() - 1) as u32)
    }

    /// The present.
    pub fn now(&self) -> Time {
        self.core.now
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// How many links there are.
    pub fn links(&self) -> usize {
        self.core.links.len()
    }

    /// A node.
    pub fn node(&self, id: NodeId) -> &N {
        &self.nodes[id.index()]
    }

    /// The nodes from and to which a link carries.
    pub fn ends(&self, link: LinkId) -> Option<(NodeId, NodeId)> {
        self.core.ends(link)
    }

    /// Counters and the hash of all that happened.
    pub fn trace(&self) -> &Trace {
        &self.core.trace
    }

    /// Packets that exist at this moment.
    pub fn packets_in_flight(&self) -> usize {
        self.core.pool.in_use()
    }

    /// What a link really did to its packets since its conditions were last replaced.
    pub fn link_stats(&mut self, id: LinkId) -> LinkStats {
        let now = self.core.now;
        self.core.links[id.index()].link.stats(now)
    }

    /// What waits for a link's transmitter.
    pub fn link_queue(&mut self, id: LinkId) -> Count {
        let now = self.core.now;
        self.core.links[id.index()].link.queued(now)
    }

    /// Changes a node's route for a host.
    pub fn set_route(&mut self, node: NodeId, dst: Ipv4Addr, link: Option<LinkId>) {
        self.core.set_route(node, dst, link);
    }

    /// Changes a node's default route.
    pub fn set_default_route(&mut self, node: NodeId, link: Option<LinkId>) {
        self.core.set_default_route(node, link);
    }

    /// A node's forwarding table.
    pub fn routes(&self, node: NodeId) -> &RouteTable {
        &self.core.tables[node.index()]
    }

    /// Lets `event` happen at `at`, or at once if that is past. Of events at one time the one
    /// scheduled first comes first, and all come before packets and timers.
    pub fn schedule(&mut self, at: Time, event: Event) {
        self.core.agenda.add(at.max(self.core.now), event);
        self.grown = true;
    }

    /// Lets `observer` see every packet at `point` from here on.
    pub fn tap(&mut self, point: TapPoint, observer: SharedObserver) {
        let core = &mut self.core;
        core.tapped = true;
        match point {
            TapPoint::LinkIn(link) => core.links[link.index()].near.add(observer),
            TapPoint::LinkOut(link) => core.links[link.index()].far.add(observer),
            TapPoint::Node(node) => core.node_taps[node.index()].add(observer),
        }
    }

    /// Lets something happen at a node outside the order of events.
    pub fn with_node<R>(&mut self, id: NodeId, f: impl FnOnce(&mut N, &mut Context<'_>) -> R) -> R {
        self.settle();
        let mut ctx = Context { core: &mut self.core, node: id };
        let result = f(&mut self.nodes[id.index()], &mut ctx);
        self.wake(id);
        result
    }

    /// Lets every event up to and including `end` happen; the clock then reads `end`.
    ///
    /// # Errors
    ///
    /// A node misbehaves, or the run is longer than its limits allow.
    pub fn run_until(&mut self, end: Time) -> Result<(), Halt> {
        self.settle();
        loop {
            let (at, source) = self.core.timetable.next();
            if at > end || at == Time::NEVER {
                break;
            }
            self.count(at, source)?;
            let links = self.core.links.len();
            if source == AGENDA {
                self.happen();
            } else if source <= links {
                self.deliver(LinkId::new((source - 1) as u32));
            } else {
                self.fire(NodeId::new((source - 1 - links) as u32));
            }
        }
        self.core.now = self.core.now.max(end);
        Ok(())
    }

    /// Lets the timetable know all there is.
    fn settle(&mut self) {
        if !core::mem::take(&mut self.grown) {
            return;
        }
        let links = self.core.links.len();
        self.core.timetable.reset(1 + links + self.nodes.len());
        self.core.timetable.set(AGENDA, self.core.agenda.next_time());
        for link in 0..links {
            self.core.wake_link(link);
        }
        for (i, node) in self.nodes.iter().enumerate() {
            let at = node.next_timeout().unwrap_or(Time::NEVER).max(self.core.now);
            self.core.timetable.set(1 + links + i, at);
        }
    }

    /// Moves the clock and sees to it that it moves.
    #[inline]
    fn count(&mut self, at: Time, source: usize) -> Result<(), Halt> {
        self.core.trace.events += 1;
        if at > self.core.now {
            self.core.now = at;
            self.at_once = 0;
        }
        self.at_once += 1;
        if self.at_once > self.limits.at_once {
            let node = source.checked_sub(1 + self.core.links.len());
            return Err(Halt::Spinning { at, node });
        }
        if self.core.trace.events > self.limits.events {
            return Err(Halt::Events { at });
        }
        Ok(())
    }

    #[inline]
    fn deliver(&mut self, link: LinkId) {
        let Some((node, packet)) = self.core.pop(link) else { return };
        let mut ctx = Context { core: &mut self.core, node };
        self.nodes[node.index()].handle_packet(&mut ctx, link, packet);
        self.wake(node);
    }

    /// A node's entry may be early, never late: a timer that is put off again and again, as a
    /// retransmission timer is, costs nothing until the first of its times comes.
    #[inline]
    fn wake(&mut self, id: NodeId) {
        let Some(at) = self.nodes[id.index()].next_timeout() else { return };
        let source = 1 + self.core.links.len() + id.index();
        let at = at.max(self.core.now);
        if at < self.core.timetable.time(source) {
            self.core.timetable.set(source, at);
        }
    }

    fn fire(&mut self, id: NodeId) {
        let node = &mut self.nodes[id.index()];
        if node.next_timeout().is_some_and(|at| at <= self.core.now) {
            self.core.trace.timer(self.core.now, id.index());
            node.handle_timeout(&mut Context { core: &mut self.core, node: id });
        }
        let at = node.next_timeout().unwrap_or(Time::NEVER).max(self.core.now);
        self.core.timetable.set(1 + self.core.links.len() + id.index(), at);
    }

    fn happen(&mut self) {
        let next = self.core.agenda.pop();
        self.core.timetable.set(AGENDA, self.core.agenda.next_time());
        let Some((number, event)) = next else { return };
        self.core.trace.event(self.core.now, number);
        match event {
            Event::Signal { node, link, event } => {
                self.with_node(node, |n, ctx| n.handle_link_event(ctx, link, event));
            }
            Event::Token { node, token } => {
                self.with_node(node, |n, ctx| n.handle_token(ctx, token));
            }
            Event::Route { node, dst, link } => self.core.set_route(node, dst, link),
            Event::DefaultRoute { node, link } => self.core.set_default_route(node, link),
            Event::LinkDown(link) => self.core.pause(link, Duration::MAX),
            Event::Pause { link, duration } => self.core.pause(link, duration),
            Event::LinkUp(link) => {
                self.core.change(link, |wire, now, _| wire.link.resume(now));
            }
            Event::Pacing { link, pacing } => {
                self.core.change(link, |wire, now, _| wire.link.set_pacing(now, &pacing));
            }
            Event::Conditions { link, config } => self.core.replace(link, &config),
        }
    }
}

impl Core {
    fn link_seed(&self, link: usize, change: u32) -> Seed {
        self.seed.child(&format!("link-{link}-{change}"))
    }

    pub(super) fn ends(&self, link: LinkId) -> Option<(NodeId, NodeId)> {
        self.links.get(link.index()).map(|wire| (wire.from, wire.to))
    }

    pub(super) fn mtu(&self, link: LinkId) -> Option<Bytes> {
        self.links.get(link.index()).map(|wire| Bytes::new(u64::from(wire.mtu)))
    }

    #[inline]
    pub(super) fn route(&self, node: NodeId, dst: Ipv4Addr) -> Option<LinkId> {
        self.tables[node.index()].get(dst)
    }

    /// A link that is not the node's own is no route.
    pub(super) fn set_route(&mut self, node: NodeId, dst: Ipv4Addr, link: Option<LinkId>) {
        let link = self.own(node, link);
        if let Some(table) = self.tables.get_mut(node.index()) {
            table.set(dst, link);
        }
    }

    /// A link that is not the node's own is no route.
    pub(super) fn set_default_route(&mut self, node: NodeId, link: Option<LinkId>) {
        let link = self.own(node, link);
        if let Some(table) = self.tables.get_mut(node.index()) {
            table.set_default(link);
        }
    }

    fn own(&self, node: NodeId, link: Option<LinkId>) -> Option<LinkId> {
        link.filter(|&link| self.ends(link).is_some_and(|(from, _)| from == node))
    }

    #[inline]
    pub(super) fn push(
        &mut self,
        node: NodeId,
        link: LinkId,
        mut packet: Packet,
    ) -> Result<(), Undelivered> {
        let size = packet.seal(self.headers);
        self.trace.sent += 1;
        if self.tapped {
            self.show(node, link, &packet, Sight::Entered(link));
        }
        let wire = &mut self.links[link.index()];
        match wire.link.push(self.now, size, packet) {
            Ok(()) => {
                // Where order is kept, what is in the link already comes out first.
                let ordered = self.links[link.index()].ordered;
                if !ordered || self.timetable.time(1 + link.index()) == Time::NEVER {
                    self.wake_link(link.index());
                }
                Ok(())
            }
            Err(refused) => {
                let packet = refused.packet;
                self.trace.refused(self.now, node.index(), &packet);
                if self.tapped {
                    self.show(node, link, &packet, Sight::Refused(link, refused.reason));
                }
                Err(Undelivered::Refused(refused.reason))
            }
        }
    }

    #[cold]
    fn show(&self, node: NodeId, link: LinkId, packet: &Packet, sight: Sight) {
        let point = TapPoint::Node(node);
        self.node_taps[node.index()].show(self.now, point, sight, packet);
        let wire = &self.links[link.index()];
        let (point, taps) = match sight {
            Sight::Left(_) => (TapPoint::LinkOut(link), &wire.far),
            _ => (TapPoint::LinkIn(link), &wire.near),
        };
        taps.show(self.now, point, sight, packet);
    }

    #[cold]
    pub(super) fn drop_unroutable(
        &mut self,
        node: NodeId,
        mut packet: Packet,
    ) -> Result<(), Undelivered> {
        packet.seal(self.headers);
        self.trace.unroutable(self.now, node.index(), &packet);
        let point = TapPoint::Node(node);
        self.node_taps[node.index()].show(self.now, point, Sight::Unroutable, &packet);
        Err(Undelivered::NoRoute)
    }

    /// Takes out what has arrived, and where.
    #[inline]
    fn pop(&mut self, link: LinkId) -> Option<(NodeId, Packet)> {
        let wire = &mut self.links[link.index()];
        let node = wire.to;
        let popped = wire.pop(self.now);
        self.wake_link(link.index());
        let packet = popped?;
        self.trace.arrived(self.now, node.index(), &packet);
        if self.tapped {
            self.show(node, link, &packet, Sight::Left(link));
        }
        Some((node, packet))
    }

    #[inline]
    fn wake_link(&mut self, link: usize) {
        let at = self.links[link].next_time();
        self.timetable.set(1 + link, at.max(self.now));
    }

    fn pause(&mut self, link: LinkId, duration: Duration) {
        self.change(link, |wire, now, _| wire.pause(now, duration));
    }

    /// Other conditions, if they describe a link.
    fn replace(&mut self, link: LinkId, config: &LinkConfig) {
        self.change(link, |wire, now, seed| {
            if let Ok(new) = Link::new(config, seed, now) {
                wire.before.push(core::mem::replace(&mut wire.link, new));
                wire.mtu = config.mtu;
                // A shorter delay lets new packets overtake those sent before the change.
                wire.ordered = false;
            }
        });
    }

    fn change(&mut self, link: LinkId, f: impl FnOnce(&mut Wire, Time, Seed)) {
        let Some(wire) = self.links.get_mut(link.index()) else { return };
        wire.changes += 1;
        let changes = wire.changes;
        let seed = self.link_seed(link.index(), changes);
        f(&mut self.links[link.index()], self.now, seed);
        self.wake_link(link.index());
    }
}

impl Wire {
    #[inline]
    fn next_time(&self) -> Time {
        let mut next = self.link.next_time().unwrap_or(Time::NEVER);
        for before in &self.before {
            next = next.min(before.next_time().unwrap_or(Time::NEVER));
        }
        next
    }

    #[inline]
    fn pop(&mut self, now: Time) -> Option<Packet> {
        let earlier = if self.before.is_empty() { None } else { self.pop_before(now) };
        let delivery = match earlier {
            Some(delivery) => delivery,
            None => self.link.pop(now)?,
        };
        let mut packet = delivery.packet;
        if delivery.corrupted {
            packet.set_corrupted();
        }
        Some(packet)
    }

    fn pop_before(&mut self, now: Time) -> Option<lasthop_radio::Delivery<Packet>> {
        let mut found = None;
        for before in &mut self.before {
            found = found.or_else(|| before.pop(now));
        }
        self.before.retain(|before| before.held() > 0);
        found
    }

    fn pause(&mut self, now: Time, duration: Duration) {
        self.link.pause(now, duration);
        self.before.iter_mut().for_each(|before| before.pause(now, duration));
    }
}
