//! The network itself: whose turn it is, and what becomes of packets.

use core::net::Ipv4Addr;

use lasthop_radio::{ConfigError, Count, Link, LinkConfig, LinkStats, Radio, RadioConfig};
use lasthop_units::{Duration, LinkEvent, Seed, Time};
use thiserror::Error;

use super::shared::{Core, Source};
use super::{
    Context, Event, Headers, LinkId, NodeId, Packet, RouteTable, SharedObserver, TapPoint, Trace,
};

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

/// A network that cannot go on: some node misbehaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Halt {
    /// The run's events are used up.
    #[error("{at}: the run took more events than it may")]
    Events {
        /// When.
        at: Time,
    },
    /// Time does not go on.
    #[error("{at}: time does not go on; the last event was of node {node:?}")]
    Spinning {
        /// When.
        at: Time,
        /// Whose timer fired last; none if something else happened last.
        node: Option<usize>,
    },
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

impl<N: Node> Network<N> {
    /// An empty network at time zero.
    pub fn new(config: Config) -> Self {
        let core = Core::new(config.headers, config.seed);
        Self { nodes: Vec::new(), core, at_once: 0, limits: config.limits, grown: true }
    }

    /// Adds a node that has no links yet.
    pub fn add_node(&mut self, node: N) -> NodeId {
        self.nodes.push(node);
        self.core.add_node();
        self.grown = true;
        NodeId::new((self.nodes.len() - 1) as u32)
    }

    /// Adds a link that carries packets from one node to another. What it draws follows from the
    /// numbers of its ends and, where several join them, from which of those it is.
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
        let seed = self.core.link_seed(&format!("from {} to {}", from.index(), to.index()));
        let link = Link::new(config, seed, self.core.now)?;
        Ok(self.add_wire(link, [from, to], config, seed))
    }

    /// Adds both directions of a radio: the link down from `base` to `mobile`, and the link up. What
    /// they draw follows from the numbers of their ends, as [`Network::add_link`] has it.
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
        let name = format!("between {} and {}", base.index(), mobile.index());
        self.add_named_radio(&name, base, mobile, config)
    }

    /// The same with a name, from which follows what it draws: whatever else is in the network, and
    /// in which order it came (LNK-15).
    ///
    /// # Errors
    ///
    /// The configuration describes no radio.
    pub fn add_named_radio(
        &mut self,
        name: &str,
        base: NodeId,
        mobile: NodeId,
        config: &RadioConfig,
    ) -> Result<[LinkId; 2], ConfigError> {
        let seed = self.core.link_seed(name);
        let [up, down] = Radio::new(config, seed, self.core.now)?.into_links();
        let down = self.add_wire(down, [base, mobile], &config.down, seed.child("changed down"));
        let up = self.add_wire(up, [mobile, base], &config.up, seed.child("changed up"));
        Ok([down, up])
    }

    /// Adds both directions of a half-duplex radio, down and up: they take turns on one channel, so
    /// that what is done to either link happens to both, and each tells what the channel did.
    ///
    /// # Errors
    ///
    /// The configuration describes no channel.
    pub fn add_half_duplex_radio(
        &mut self,
        name: &str,
        base: NodeId,
        mobile: NodeId,
        config: &LinkConfig,
    ) -> Result<[LinkId; 2], ConfigError> {
        let seed = self.core.link_seed(name);
        let channel = Link::new(config, seed, self.core.now)?;
        let up = self.add_wire(channel, [mobile, base], config, seed.child("changed"));
        // Nothing is ever on this one.
        let idle = Link::new(&LinkConfig::default(), seed, self.core.now)?;
        let down = self.add_wire(idle, [base, mobile], config, seed);
        self.core.share(down, up);
        Ok([down, up])
    }

    fn add_wire(
        &mut self,
        link: Link<Packet>,
        ends: [NodeId; 2],
        config: &LinkConfig,
        seed: Seed,
    ) -> LinkId {
        self.grown = true;
        self.core.add_wire(link, ends, config, seed)
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

    /// A node, to change between two events.
    pub fn node_mut(&mut self, id: NodeId) -> &mut N {
        &mut self.nodes[id.index()]
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
        self.core.channel(id).map(|wire| wire.link.stats(now)).unwrap_or_default()
    }

    /// What waits for a link's transmitter.
    pub fn link_queue(&mut self, id: LinkId) -> Count {
        let now = self.core.now;
        self.core.channel(id).map(|wire| wire.link.queued(now)).unwrap_or_default()
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
        self.core.schedule(at, event);
    }

    /// Lets `observer` see every packet at `point` from here on.
    pub fn tap(&mut self, point: TapPoint, observer: SharedObserver) {
        self.core.tap(point, observer);
    }

    /// Lets something happen at a node outside the order of events.
    pub fn with_node<R>(&mut self, id: NodeId, f: impl FnOnce(&mut N, &mut Context<'_>) -> R) -> R {
        self.update_timetables();
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
        self.update_timetables();
        loop {
            let (at, source) = self.core.next();
            if at > end || at == Time::NEVER {
                break;
            }
            self.count(at, source)?;
            match source {
                Source::Link(link) => self.deliver(link),
                Source::Agenda => self.happen(),
                Source::Node(node) => self.fire(node),
            }
        }
        self.core.now = self.core.now.max(end);
        Ok(())
    }

    /// Lets the timetables know all there is.
    fn update_timetables(&mut self) {
        if core::mem::take(&mut self.grown) {
            self.core.update_timetables();
            for (n, node) in self.nodes.iter().enumerate() {
                self.core.set_timer(NodeId::new(n as u32), node.next_timeout());
            }
        }
    }

    /// Moves the clock and sees to it that it moves.
    #[inline]
    fn count(&mut self, at: Time, source: Source) -> Result<(), Halt> {
        let trace = &mut self.core.trace;
        trace.events += 1;
        self.at_once = if at > self.core.now { 1 } else { self.at_once + 1 };
        self.core.now = at.max(self.core.now);
        if self.at_once > self.limits.at_once || trace.events > self.limits.events {
            return Err(self.halt(at, source));
        }
        Ok(())
    }

    #[cold]
    fn halt(&self, at: Time, source: Source) -> Halt {
        if self.at_once <= self.limits.at_once {
            return Halt::Events { at };
        }
        let node = match source {
            Source::Node(node) => Some(node.index()),
            Source::Agenda | Source::Link(_) => None,
        };
        Halt::Spinning { at, node }
    }

    #[inline(always)]
    fn deliver(&mut self, channel: LinkId) {
        let Some((link, node, packet)) = self.core.pop(channel) else { return };
        let place = &mut self.nodes[node.index()];
        place.handle_packet(&mut Context { core: &mut self.core, node }, link, packet);
        if let Some(at) = place.next_timeout() {
            self.core.hasten_timer(node, at);
        }
    }

    fn wake(&mut self, id: NodeId) {
        if let Some(at) = self.nodes[id.index()].next_timeout() {
            self.core.hasten_timer(id, at);
        }
    }

    #[inline(never)]
    fn fire(&mut self, id: NodeId) {
        let node = &mut self.nodes[id.index()];
        if node.next_timeout().is_some_and(|at| at <= self.core.now) {
            self.core.trace.timer(self.core.now, id.index());
            node.handle_timeout(&mut Context { core: &mut self.core, node: id });
        }
        self.core.set_timer(id, node.next_timeout());
    }

    #[inline(never)]
    fn happen(&mut self) {
        let next = self.core.take_event();
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
