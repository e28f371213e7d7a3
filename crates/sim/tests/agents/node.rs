//! What stands at the nodes of a schedule's network.

use core::net::Ipv4Addr;
use std::collections::VecDeque;

use lasthop_agent::{Agent, Side};
use lasthop_sim::agents::{AgentRouter, Help, Linked};
use lasthop_sim::net::traffic::{Record, Traffic};
use lasthop_sim::net::{Context, Host, LinkId, Node, Packet};
use lasthop_units::{LinkEvent, Stream, Time};

use crate::helper::{self, Helper};
use crate::settings::Settings;

/// How many packets that passed a station remembers, for [`Station::replay`].
const SEEN: usize = 12;

/// A router that may carry an agent, and remembers a few packets that passed.
pub(crate) struct Station {
    pub(crate) router: AgentRouter<Helper>,
    pub(crate) seen: VecDeque<Packet>,
    passed: u64,
}

impl Station {
    pub(crate) fn new(router: AgentRouter<Helper>) -> Self {
        Self { router, seen: VecDeque::new(), passed: 0 }
    }

    fn note(&mut self, packet: &Packet) {
        self.passed += 1;
        if packet.tcp().is_none() || packet.corrupted || !self.passed.is_multiple_of(3) {
            return;
        }
        if self.seen.len() == SEEN {
            self.seen.pop_front();
        }
        self.seen.push_back(packet.clone());
    }
}

/// A node.
pub(crate) enum Kind {
    Host(Box<Host<Traffic>>),
    Linked(Box<Linked<Host<Traffic>, Helper>>),
    Station(Box<Station>),
}

impl Kind {
    /// The host's flows.
    pub(crate) fn records(&self) -> Vec<&Record> {
        match self {
            Self::Host(host) => host.app().records().collect(),
            Self::Linked(linked) => linked.node().app().records().collect(),
            Self::Station(_) => Vec::new(),
        }
    }

    pub(crate) fn help(&mut self) -> Option<&mut Help<Helper>> {
        match self {
            Self::Station(station) => station.router.help_mut().first_mut(),
            Self::Host(_) | Self::Linked(_) => None,
        }
    }

    /// Why what the agent keeps is too much.
    pub(crate) fn exceeds(&self, settings: &Settings) -> Option<String> {
        match self {
            Self::Station(station) => {
                helper::exceeds(&station.router.help().first()?.agent, settings)
            }
            Self::Linked(linked) => helper::exceeds(linked.agent(), settings),
            Self::Host(_) => None,
        }
    }

    /// The agent at the node forgets all: another, fresh one stands in its place.
    pub(crate) fn restart(&mut self, settings: &Settings, random: &mut Stream) {
        if let Some(help) = self.help() {
            help.agent = helper::fresh(settings, random);
        }
    }

    /// Hands a packet to the node as if it had come by a link.
    pub(crate) fn inject(&mut self, ctx: &mut Context<'_>, link: LinkId, packet: Packet) {
        self.handle_packet(ctx, link, packet);
    }

    /// A packet that passed before.
    pub(crate) fn seen(&self, number: u64) -> Option<Packet> {
        let Self::Station(station) = self else { return None };
        let at = number.checked_rem(station.seen.len() as u64)?;
        station.seen.get(at as usize).cloned()
    }

    /// Does something with the node's agent and sends what it then has to send.
    pub(crate) fn with_agent(
        &mut self,
        ctx: &mut Context<'_>,
        act: impl FnOnce(&mut Helper, Time),
    ) {
        let now = ctx.now();
        if let Some(help) = self.help() {
            act(&mut help.agent, now);
            // Only packets: what an agent says at such a moment has nobody who waits for it.
            while let Some(output) = help.agent.poll_output() {
                if let lasthop_agent::Output::Packet { packet, .. } = output {
                    let _ = ctx.send(packet);
                }
            }
        }
    }
}

/// The mobile's side of a packet.
pub(crate) fn side_of(packet: &Packet, mobile: Ipv4Addr) -> Side {
    if packet.dst == mobile { Side::Fixed } else { Side::Mobile }
}

impl Node for Kind {
    fn handle_packet(&mut self, ctx: &mut Context<'_>, link: LinkId, packet: Packet) {
        match self {
            Self::Host(host) => host.handle_packet(ctx, link, packet),
            Self::Linked(linked) => linked.handle_packet(ctx, link, packet),
            Self::Station(station) => {
                station.note(&packet);
                station.router.handle_packet(ctx, link, packet);
            }
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        match self {
            Self::Host(host) => host.next_timeout(),
            Self::Linked(linked) => linked.next_timeout(),
            Self::Station(station) => station.router.next_timeout(),
        }
    }

    fn handle_timeout(&mut self, ctx: &mut Context<'_>) {
        match self {
            Self::Host(host) => host.handle_timeout(ctx),
            Self::Linked(linked) => linked.handle_timeout(ctx),
            Self::Station(station) => station.router.handle_timeout(ctx),
        }
    }

    fn handle_link_event(&mut self, ctx: &mut Context<'_>, link: LinkId, event: LinkEvent) {
        match self {
            Self::Host(host) => host.handle_link_event(ctx, link, event),
            Self::Linked(linked) => linked.handle_link_event(ctx, link, event),
            Self::Station(station) => station.router.handle_link_event(ctx, link, event),
        }
    }
}
