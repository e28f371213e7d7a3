use core::net::{IpAddr, Ipv4Addr};

use lasthop_agent::{Agent, Output, Side};
use lasthop_units::{LinkEvent, Time};
use lasthop_wire::agent::Message;

use super::packet::{message_of, message_packet, segment_packet};
use crate::net::{Body, Context, LinkId, Node, Packet, RouterStats};

/// Where the agents are that an agent talks to.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Peers {
    /// On the fixed side, such as a mobile router's base.
    pub fixed: Option<Ipv4Addr>,
    /// On the mobile side, such as a base's mobile router.
    pub mobile: Option<Ipv4Addr>,
}

/// One agent at a router, and whom it helps.
#[derive(Clone, Debug)]
pub struct Help<A> {
    /// The mobile hosts whose connections pass through the agent.
    pub mobiles: Vec<Ipv4Addr>,
    /// Whom it talks to.
    pub peers: Peers,
    /// The hop whose link events it receives; all of the router's if none.
    pub hop: Option<LinkId>,
    /// The agent.
    pub agent: A,
}

impl<A> Help<A> {
    /// Which side a packet comes from, if it is one of a mobile that is helped. Between two of them
    /// it is the receiver that is helped.
    fn side(&self, packet: &Packet) -> Option<Side> {
        if self.mobiles.contains(&packet.dst) {
            Some(Side::Fixed)
        } else if self.mobiles.contains(&packet.src) {
            Some(Side::Mobile)
        } else {
            None
        }
    }

    fn peer(&self, side: Side) -> Option<Ipv4Addr> {
        match side {
            Side::Fixed => self.peers.fixed,
            Side::Mobile => self.peers.mobile,
        }
    }

    /// Which side a message for this agent comes from.
    fn side_of_message(&self, src: Ipv4Addr, message: &Message) -> Option<Side> {
        let concerned = match message {
            Message::Snack { connection, .. }
            | Message::Congestion { connection, .. }
            | Message::BadState { connection } => {
                self.mobiles.iter().any(|mobile| connection.mobile.ip() == IpAddr::V4(*mobile))
            }
            Message::LinkAck { .. } | Message::Request { .. } | Message::UnknownCid { .. } => true,
        };
        let from = |side: &Side| self.peer(*side) == Some(src);
        [Side::Mobile, Side::Fixed].into_iter().find(from).filter(|_| concerned)
    }
}

/// A router with agents in it. A packet of a mobile that is helped passes through the agent, every
/// other packet by the forwarding table alone.
#[derive(Clone, Debug)]
pub struct AgentRouter<A> {
    addr: Ipv4Addr,
    help: Vec<Help<A>>,
    stats: RouterStats,
}

impl<A: Agent<Packet>> AgentRouter<A> {
    /// A router at `addr`.
    pub const fn new(addr: Ipv4Addr) -> Self {
        Self { addr, help: Vec::new(), stats: RouterStats { ..EMPTY } }
    }

    /// Adds an agent. Where two would help the same mobile, it passes through the first.
    pub fn add(&mut self, help: Help<A>) {
        self.help.push(help);
    }

    /// What it did as a router.
    pub const fn stats(&self) -> &RouterStats {
        &self.stats
    }

    /// Its agents.
    pub fn help(&self) -> &[Help<A>] {
        &self.help
    }

    /// Its agents, to change between two packets.
    pub fn help_mut(&mut self) -> &mut [Help<A>] {
        &mut self.help
    }

    /// A mobile has gone to another base (SNP-11).
    pub fn remove_mobile(&mut self, mobile: Ipv4Addr) {
        for help in self.help.iter_mut().filter(|help| help.mobiles.contains(&mobile)) {
            help.agent.remove_mobile(IpAddr::V4(mobile));
        }
    }

    fn forward(&mut self, ctx: &mut Context<'_>, packet: Packet) {
        match ctx.send(packet) {
            Ok(()) => self.stats.forwarded += 1,
            Err(_) => self.stats.dropped += 1,
        }
    }

    fn handle_own(&mut self, ctx: &mut Context<'_>, packet: &Packet) {
        self.stats.consumed += 1;
        let Some(message) = message_of(packet) else { return };
        let side = |help: &Help<A>| help.side_of_message(packet.src, &message);
        let found = self.help.iter().enumerate().find_map(|(i, help)| Some((i, side(help)?)));
        if let Some((i, side)) = found {
            self.help[i].agent.handle_message(ctx.now(), side, &message);
            self.empty(ctx, i);
        }
    }

    /// Sends all that an agent has to send.
    fn empty(&mut self, ctx: &mut Context<'_>, i: usize) {
        while let Some(output) = self.help.get_mut(i).and_then(|help| help.agent.poll_output()) {
            let packet = match output {
                Output::Packet { packet, .. } => Some(packet),
                Output::Segment { towards, connection, segment } => {
                    segment_packet(ctx, towards, connection, segment)
                }
                Output::Message { towards, message } => {
                    let to = self.recipient(i, towards, &message);
                    to.and_then(|to| message_packet(ctx, (self.addr, to), &message))
                }
            };
            match packet {
                Some(packet) => self.forward(ctx, packet),
                None => self.stats.dropped += 1,
            }
        }
    }

    /// A hop's bad state is for the source itself, all else for an agent.
    fn recipient(&self, i: usize, towards: Side, message: &Message) -> Option<Ipv4Addr> {
        let source = match message {
            Message::BadState { connection } => Some(match towards {
                Side::Fixed => connection.fixed.ip(),
                Side::Mobile => connection.mobile.ip(),
            }),
            _ => None,
        };
        match source {
            Some(IpAddr::V4(source)) => Some(source),
            Some(IpAddr::V6(_)) => None,
            None => self.help.get(i)?.peer(towards),
        }
    }
}

const EMPTY: RouterStats =
    RouterStats { forwarded: 0, consumed: 0, corrupted: 0, expired: 0, dropped: 0 };

impl<A: Agent<Packet>> Node for AgentRouter<A> {
    fn handle_packet(&mut self, ctx: &mut Context<'_>, _link: LinkId, mut packet: Packet) {
        if packet.corrupted {
            self.stats.corrupted += 1;
            return;
        }
        if packet.next_address() == self.addr {
            self.handle_own(ctx, &packet);
            return;
        }
        // What is compressed ends here, unless an agent makes it whole again.
        let compressed = matches!(packet.body, Body::Compressed { .. });
        if !packet.pass_router() && !compressed {
            self.stats.expired += 1;
            return;
        }
        let side = |help: &Help<A>| help.side(&packet);
        match self.help.iter().enumerate().find_map(|(i, help)| Some((i, side(help)?))) {
            Some((i, side)) => {
                let agent = &mut self.help[i].agent;
                if side == Side::Fixed && agent.watches_queue() {
                    let full = ctx.is_nearly_full(packet.next_address(), packet.ip_len());
                    agent.handle_queue(full);
                }
                agent.handle_packet(ctx.now(), side, packet);
                self.empty(ctx, i);
            }
            None if compressed => self.stats.expired += 1,
            None => self.forward(ctx, packet),
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        self.help.iter().filter_map(|help| help.agent.next_timeout()).min()
    }

    fn handle_timeout(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.now();
        for i in 0..self.help.len() {
            if self.help[i].agent.next_timeout().is_some_and(|at| at <= now) {
                self.help[i].agent.handle_timeout(now);
                self.empty(ctx, i);
            }
        }
    }

    fn handle_link_event(&mut self, ctx: &mut Context<'_>, link: LinkId, event: LinkEvent) {
        for i in 0..self.help.len() {
            if self.help[i].hop.is_none_or(|hop| hop == link) {
                self.help[i].agent.handle_link_event(ctx.now(), event);
                self.empty(ctx, i);
            }
        }
    }

    /// The token is the address of a mobile that has gone to another base.
    fn handle_token(&mut self, _ctx: &mut Context<'_>, token: u64) {
        if let Ok(mobile) = u32::try_from(token) {
            self.remove_mobile(Ipv4Addr::from_bits(mobile));
        }
    }
}
