use core::net::Ipv4Addr;
use std::collections::VecDeque;

use lasthop_agent::{Agent, Output, Side};
use lasthop_units::{LinkEvent, Time};

use super::packet::{message_of, message_packet, segment_packet};
use crate::net::{Context, LinkId, Node, Packet};

/// A node with an agent between it and the network, on the agent's mobile side: a mobile whose link
/// recovers by itself (DDA-1, CC-4), or one with a scheme at its edge instead of in its TCP. A node
/// behind several agents is behind one after another.
#[derive(Clone, Debug)]
pub struct Linked<N, A> {
    node: N,
    agent: A,
    addr: Ipv4Addr,
    /// The agent at the other end of the link.
    peer: Ipv4Addr,
    /// By which packets came last.
    link: Option<LinkId>,
    /// What the node sends while it is attended to.
    sent: Vec<Packet>,
    /// What the agent has for the node, while the node is attended to.
    back: VecDeque<Packet>,
}

impl<N: Node, A: Agent<Packet>> Linked<N, A> {
    /// `node` at `addr` behind `agent`, which talks to the one at `peer`.
    pub const fn new(node: N, addr: Ipv4Addr, agent: A, peer: Ipv4Addr) -> Self {
        Self { node, agent, addr, peer, link: None, sent: Vec::new(), back: VecDeque::new() }
    }

    /// The node behind the agent.
    pub const fn node(&self) -> &N {
        &self.node
    }

    /// The agent.
    pub const fn agent(&self) -> &A {
        &self.agent
    }

    /// The node, to change between two packets.
    pub const fn node_mut(&mut self) -> &mut N {
        &mut self.node
    }

    /// The agent, to change between two packets.
    pub const fn agent_mut(&mut self) -> &mut A {
        &mut self.agent
    }

    /// The mobile is at another base: its agent is at `peer` from here on, and nothing that was
    /// under way to the old one counts.
    pub fn set_peer(&mut self, peer: Ipv4Addr) {
        self.peer = peer;
        self.agent.remove_mobile(self.addr.into());
    }

    /// Lets the node act, and puts what it sends through the agent.
    fn attend(&mut self, ctx: &mut Context<'_>, act: impl FnOnce(&mut N, &mut Context<'_>)) {
        let mut sent = core::mem::take(&mut self.sent);
        ctx.divert(&mut sent, |ctx| act(&mut self.node, ctx));
        for packet in sent.drain(..) {
            if self.agent.watches_queue() {
                let full = ctx.is_nearly_full(packet.next_address(), packet.ip_len());
                self.agent.handle_queue(full);
                self.agent.handle_packet(ctx.now(), Side::Mobile, packet);
                // The next packet finds the queue as this one leaves it.
                self.send_ahead(ctx);
            } else {
                self.agent.handle_packet(ctx.now(), Side::Mobile, packet);
            }
        }
        self.sent = sent;
    }

    /// Sends what the agent has for the link, and keeps what it has for the node.
    fn send_ahead(&mut self, ctx: &mut Context<'_>) {
        while let Some((towards, packet)) = self.next(ctx) {
            match (towards, packet) {
                (Side::Fixed, Some(packet)) => {
                    // Whoever drops it has counted it.
                    let _ = ctx.send(packet);
                }
                (Side::Mobile, Some(packet)) => self.back.push_back(packet),
                (_, None) => {}
            }
        }
    }

    /// What the agent has to hand on next; no packet if there is none that can be.
    fn next(&mut self, ctx: &Context<'_>) -> Option<(Side, Option<Packet>)> {
        Some(match self.agent.poll_output()? {
            Output::Packet { towards, packet } => (towards, Some(packet)),
            Output::Segment { towards, connection, segment } => {
                (towards, segment_packet(ctx, towards, connection, segment))
            }
            Output::Message { towards, message } => {
                (towards, message_packet(ctx, (self.addr, self.peer), &message))
            }
        })
    }

    /// Hands on all that the agent has to hand on. What that makes the node send passes the agent
    /// in turn.
    fn empty(&mut self, ctx: &mut Context<'_>) {
        loop {
            let back = self.back.pop_front().map(|packet| (Side::Mobile, Some(packet)));
            let Some((towards, packet)) = back.or_else(|| self.next(ctx)) else { return };
            match (towards, packet, self.link) {
                (Side::Fixed, Some(packet), _) => {
                    // Whoever drops it has counted it.
                    let _ = ctx.send(packet);
                }
                (Side::Mobile, Some(packet), Some(link)) => {
                    self.attend(ctx, |node, ctx| node.handle_packet(ctx, link, packet));
                }
                (Side::Mobile, ..) | (_, None, _) => {}
            }
        }
    }
}

impl<N: Node, A: Agent<Packet>> Node for Linked<N, A> {
    fn handle_packet(&mut self, ctx: &mut Context<'_>, link: LinkId, packet: Packet) {
        self.link = Some(link);
        if packet.corrupted {
            self.attend(ctx, |node, ctx| node.handle_packet(ctx, link, packet));
        } else if let Some(message) = message_of(&packet).filter(|_| packet.dst == self.addr) {
            self.agent.handle_message(ctx.now(), Side::Fixed, &message);
        } else {
            self.agent.handle_packet(ctx.now(), Side::Fixed, packet);
        }
        self.empty(ctx);
    }

    fn next_timeout(&self) -> Option<Time> {
        [self.node.next_timeout(), self.agent.next_timeout()].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, ctx: &mut Context<'_>) {
        let due = |at: Option<Time>| at.is_some_and(|at| at <= ctx.now());
        let (node, agent) = (due(self.node.next_timeout()), due(self.agent.next_timeout()));
        if node {
            self.attend(ctx, |node, ctx| node.handle_timeout(ctx));
        }
        if agent {
            self.agent.handle_timeout(ctx.now());
        }
        self.empty(ctx);
    }

    fn handle_link_event(&mut self, ctx: &mut Context<'_>, link: LinkId, event: LinkEvent) {
        self.agent.handle_link_event(ctx.now(), event);
        self.attend(ctx, |node, ctx| node.handle_link_event(ctx, link, event));
        self.empty(ctx);
    }

    fn handle_token(&mut self, ctx: &mut Context<'_>, token: u64) {
        self.attend(ctx, |node, ctx| node.handle_token(ctx, token));
        self.empty(ctx);
    }
}
