//! What stands at a node of the network.

use core::net::Ipv4Addr;

use lasthop_agent::edge::Rule;
use lasthop_agent::m_tcp::MTcp;
use lasthop_sim::agents::{AgentRouter, Linked};
use lasthop_sim::net::{Context, Host, LinkId, Node, Packet, Router};
use lasthop_sim::schemes::{BaseStation, MobileStation};
use lasthop_units::{LinkEvent, Time};

use super::agents::Helper;
use super::apps::Apps;
use super::counters::{counts, kind};

/// What stands at a node.
pub(super) enum Machine {
    Host(Box<Host<Apps>>),
    /// A host behind an agent: one of its link, or at its edge. Of several, that of the link is
    /// outermost.
    Linked(Box<Linked<Machine, Helper>>),
    Router(Router),
    /// A router with agents in it.
    Agents(Box<AgentRouter<Helper>>),
    /// A mobile with a session.
    Mobile(Box<MobileStation<Apps>>),
    /// A base with surrogates.
    Base(Box<BaseStation>),
}

/// What a kind of agent counted: names and numbers.
type Counts = Vec<(&'static str, u64)>;

impl Machine {
    /// The host, if there is one with its own TCP.
    pub(super) fn host(&self) -> Option<&Host<Apps>> {
        match self {
            Self::Host(host) => Some(host),
            Self::Linked(linked) => linked.node().host(),
            _ => None,
        }
    }

    /// Its applications, if it has any.
    pub(super) fn apps(&self) -> Option<&Apps> {
        match self {
            Self::Mobile(mobile) => Some(mobile.app()),
            _ => Some(self.host()?.app()),
        }
    }

    /// What its agents counted, those of one kind together, by their names.
    pub(super) fn agents(&self) -> Vec<(&'static str, Counts)> {
        let mut all: Vec<(&'static str, Counts)> = Vec::new();
        for helper in self.helpers() {
            match all.iter_mut().find(|(of, _)| *of == kind(helper)) {
                Some((_, sums)) => {
                    for ((_, sum), (_, count)) in sums.iter_mut().zip(counts(helper)) {
                        *sum += count;
                    }
                }
                None => all.push((kind(helper), counts(helper))),
            }
        }
        all
    }

    fn helpers(&self) -> Vec<&Helper> {
        match self {
            Self::Linked(linked) => {
                let mut helpers = vec![linked.agent()];
                helpers.extend(linked.node().helpers());
                helpers
            }
            Self::Agents(router) => router.help().iter().map(|help| &help.agent).collect(),
            _ => Vec::new(),
        }
    }
}

impl Machine {
    /// M-TCP's agent for a mobile, if it is here.
    pub(super) fn supervisor(&mut self, mobile: Ipv4Addr) -> Option<&mut MTcp<Packet>> {
        let Self::Agents(router) = self else { return None };
        router.help_mut().iter_mut().find_map(|help| match &mut help.agent {
            Helper::MTcp(agent) if help.mobiles.contains(&mobile) => Some(&mut **agent),
            _ => None,
        })
    }

    /// Lets a mobile router's agent for a mobile talk to the agent at another base.
    pub(super) fn set_base(&mut self, mobile: Ipv4Addr, base: Ipv4Addr) {
        let Self::Agents(router) = self else { return };
        for help in router.help_mut().iter_mut().filter(|help| help.mobiles.contains(&mobile)) {
            help.peers.fixed = Some(base);
        }
    }

    /// Lets the agent at a mobile's edge that divides windows divide them anew (RWC-1).
    pub(super) fn set_rules(&mut self, now: Time, rules: Vec<Rule>) {
        let Self::Linked(linked) = self else { return };
        match linked.agent_mut() {
            Helper::Windows(agent) => agent.set_rules(now, rules),
            _ => linked.node_mut().set_rules(now, rules),
        }
    }

    /// Lets the agent for a mobile hear of this link only.
    pub(super) fn set_hop(&mut self, mobile: Ipv4Addr, hop: LinkId) {
        let Self::Agents(router) = self else { return };
        for help in router.help_mut().iter_mut().filter(|help| help.mobiles.contains(&mobile)) {
            help.hop = Some(hop);
        }
    }
}

/// Lets whatever stands at the node do something.
macro_rules! with {
    ($machine:expr, $node:ident => $does:expr) => {
        match $machine {
            Machine::Host($node) => $does,
            Machine::Linked($node) => $does,
            Machine::Router($node) => $does,
            Machine::Agents($node) => $does,
            Machine::Mobile($node) => $does,
            Machine::Base($node) => $does,
        }
    };
}

impl Node for Machine {
    #[inline]
    fn handle_packet(&mut self, ctx: &mut Context<'_>, link: LinkId, packet: Packet) {
        with!(self, node => node.handle_packet(ctx, link, packet));
    }

    #[inline]
    fn next_timeout(&self) -> Option<Time> {
        with!(self, node => node.next_timeout())
    }

    fn handle_timeout(&mut self, ctx: &mut Context<'_>) {
        with!(self, node => node.handle_timeout(ctx));
    }

    fn handle_link_event(&mut self, ctx: &mut Context<'_>, link: LinkId, event: LinkEvent) {
        with!(self, node => node.handle_link_event(ctx, link, event));
    }

    /// The address of the new base for a mobile, of the mobile that left for an agent.
    fn handle_token(&mut self, ctx: &mut Context<'_>, token: u64) {
        match self {
            Self::Mobile(mobile) => mobile.handle_token(ctx, token),
            Self::Agents(router) => router.handle_token(ctx, token),
            Self::Linked(linked) => {
                linked.set_peer(Ipv4Addr::from_bits(token as u32));
            }
            Self::Host(_) | Self::Router(_) | Self::Base(_) => {}
        }
    }
}
