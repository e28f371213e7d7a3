//! What stands at the ends of links.

use core::net::Ipv4Addr;

use lasthop_agent::snoop::{Config as SnoopConfig, Snoop};
use lasthop_sim::agents::{AgentRouter, Help, Peers};
use lasthop_sim::net::traffic::{Client, Service, Traffic, Work};
use lasthop_sim::net::{Context, Host, LinkId, Node, Packet, Router};
use lasthop_tcp::{Config, Connection, Stats};
use lasthop_units::{Seed, Time};

/// The port of the flow's receiver.
const PORT: u16 = 5001;

/// The token that shuts a place's gate, and the one that opens it.
pub(super) const SHUT: u64 = 1;
pub(super) const OPEN: u64 = 0;

/// A node, and perhaps a gate before it.
pub(super) struct GatedNode {
    role: Role,
    gate: Option<Gate>,
}

/// What comes out of `link` is lost while the gate is shut: an outage as ns-2's error models make
/// one, at the far end of a link whose queue drains meanwhile. (A radio's own pause drops earlier.)
struct Gate {
    link: LinkId,
    shut: bool,
}

enum Role {
    Host(Box<Host<Traffic>>),
    Router(Router),
    Base(Box<AgentRouter<Snoop<Packet>>>),
}

impl GatedNode {
    /// A host at `here` that sends to `there` without end, from time zero on.
    pub(super) fn source(here: Ipv4Addr, there: Ipv4Addr, tcp: Config, seed: Seed) -> Self {
        let client = Client { at: Time::ZERO, dst: (there, PORT), config: tcp, work: Work::Bulk };
        Self::host(here, Traffic::new(seed).start(client), seed)
    }

    /// A host at `here` that takes everything.
    pub(super) fn sink(here: Ipv4Addr, tcp: Config, seed: Seed) -> Self {
        Self::host(here, Traffic::new(seed).serve(PORT, tcp, Service::Discard), seed)
    }

    /// Forwards.
    pub(super) fn router() -> Self {
        Self { role: Role::Router(Router::default()), gate: None }
    }

    /// Forwards at `addr`, with a snoop for `mobile`.
    pub(super) fn base(addr: Ipv4Addr, mobile: Ipv4Addr, snoop: SnoopConfig) -> Self {
        let mut router = AgentRouter::new(addr);
        router.add(Help {
            mobiles: vec![mobile],
            peers: Peers::default(),
            hop: None,
            agent: Snoop::new(snoop),
        });
        Self { role: Role::Base(Box::new(router)), gate: None }
    }

    fn host(addr: Ipv4Addr, traffic: Traffic, seed: Seed) -> Self {
        Self { role: Role::Host(Box::new(Host::new(addr, seed, traffic))), gate: None }
    }

    /// Puts an open gate at the end of `link`, for [`SHUT`] and [`OPEN`] to move.
    pub(super) fn add_gate(&mut self, link: LinkId) {
        self.gate = Some(Gate { link, shut: false });
    }

    /// What the host's connection did, if there is one.
    pub(super) fn flow(&self) -> Option<&Stats> {
        match &self.role {
            Role::Host(host) => host.connections().next().map(|(_, flow)| Connection::stats(flow)),
            Role::Router(_) | Role::Base(_) => None,
        }
    }
}

impl Node for GatedNode {
    #[inline]
    fn handle_packet(&mut self, ctx: &mut Context<'_>, link: LinkId, packet: Packet) {
        if self.gate.as_ref().is_some_and(|gate| gate.shut && gate.link == link) {
            return;
        }
        match &mut self.role {
            Role::Host(host) => host.handle_packet(ctx, link, packet),
            Role::Router(router) => router.handle_packet(ctx, link, packet),
            Role::Base(base) => base.handle_packet(ctx, link, packet),
        }
    }

    #[inline]
    fn next_timeout(&self) -> Option<Time> {
        match &self.role {
            Role::Host(host) => host.next_timeout(),
            Role::Router(_) => None,
            Role::Base(base) => base.next_timeout(),
        }
    }

    fn handle_timeout(&mut self, ctx: &mut Context<'_>) {
        match &mut self.role {
            Role::Host(host) => host.handle_timeout(ctx),
            Role::Router(router) => router.handle_timeout(ctx),
            Role::Base(base) => base.handle_timeout(ctx),
        }
    }

    fn handle_token(&mut self, _ctx: &mut Context<'_>, token: u64) {
        if let Some(gate) = &mut self.gate {
            gate.shut = token == SHUT;
        }
    }
}
