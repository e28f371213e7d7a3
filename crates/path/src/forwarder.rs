//! What is done with a frame between the two interfaces.

use lasthop_agent::{Packet as _, Side};
use lasthop_units::{LinkEvent, Time};
use lasthop_wire::agent::Message;

use super::beside::{self, Received};
use super::chain::{Chain, Exit};
use super::flows::Flows;
use super::frame::Frame;
use super::peer::{Peer, PeerEvent};
use super::pool::Pool;
use super::port::Port;
use super::ranks::Ranks;
use super::stations::Stations;

/// Everything that a frame meets between the interface that it comes from and the one that it leaves by.
pub(super) struct Forwarder {
    pub(super) stations: Stations,
    pub(super) chain: Chain,
    pub(super) flows: Flows,
    pub(super) ranks: Ranks,
    pub(super) outside: Outside,
    /// Frames between agents that were not understood.
    pub(super) malformed: u64,
}

/// The two interfaces, and the agent at the far end of the hop.
pub(super) struct Outside {
    pub(super) fixed: Port,
    pub(super) mobile: Port,
    pub(super) hop: Side,
    pub(super) peer: Option<Peer>,
    pub(super) pool: Pool,
}

impl Outside {
    /// The interface of that side.
    pub(super) fn port(&mut self, side: Side) -> &mut Port {
        match side {
            Side::Fixed => &mut self.fixed,
            Side::Mobile => &mut self.mobile,
        }
    }

    /// Hands over to the kernel what waits.
    pub(super) fn send(&mut self) {
        self.fixed.send();
        self.mobile.send();
    }

    /// Says to the far end of the hop that this agent is there, if it is time.
    fn send_hello(&mut self, now: Time) {
        if let Some(hello) = self.peer.as_mut().and_then(|peer| peer.poll_hello(now)) {
            let hello = beside::hello(self.port(self.hop).mac, &hello, &self.pool);
            self.port(self.hop).push(hello);
        }
    }
}

impl Exit for Outside {
    fn packet(&mut self, towards: Side, frame: Frame) {
        let numbered = frame.frame().filter(|_| towards == self.hop);
        let port = self.port(towards);
        let wrapped = numbered.and_then(|n| beside::wrap(&frame, n, port.mtu));
        port.push(wrapped.unwrap_or(frame));
    }

    fn message(&mut self, towards: Side, message: &Message) {
        let to = self.peer.as_ref().and_then(Peer::mac).unwrap_or(beside::GROUP);
        let from = self.port(towards).mac;
        if let Some(frame) = beside::message(from, to, message, &self.pool) {
            self.port(towards).push(frame);
        }
    }
}

impl Forwarder {
    /// A frame came to the interface of that side.
    pub(super) fn handle_frame(&mut self, now: Time, from: Side, frame: Frame) {
        if beside::is_beside(frame.bytes()) {
            self.handle_beside(now, from, &frame);
        } else if self.stations.crosses(from, frame.bytes()) {
            self.forward(now, from, frame);
        }
    }

    /// Something of the agent at the other end of the hop.
    fn handle_beside(&mut self, now: Time, from: Side, frame: &Frame) {
        let Outside { hop, peer, pool, .. } = &mut self.outside;
        let Some(peer) = peer.as_mut().filter(|_| from == *hop) else { return };
        let (mac, received) = match beside::unwrap(frame.bytes(), pool) {
            Ok(received) => received,
            Err(error) => {
                self.malformed += 1;
                tracing::debug!(%error, "malformed frame from the other agent");
                return;
            }
        };
        match received {
            Received::Hello(hello) => {
                let event = peer.handle_hello(now, mac, hello);
                self.handle_peer(now, event);
            }
            Received::Message(message) => {
                peer.handle_frame(now, mac);
                self.chain.handle_message(now, from, &message, &mut self.outside);
            }
            // Its Ethernet addresses are the packet's own, but only the peer numbers packets.
            Received::Numbered(frame) => {
                if let Some(mac) = peer.mac() {
                    peer.handle_frame(now, mac);
                }
                if self.stations.crosses(from, frame.bytes()) {
                    self.forward(now, from, frame);
                }
            }
        }
    }

    fn handle_peer(&mut self, now: Time, event: Option<PeerEvent>) {
        let Some(event) = event else { return };
        match event {
            PeerEvent::Came => tracing::info!("peer agent up"),
            PeerEvent::Restarted => tracing::info!("peer agent restarted"),
            PeerEvent::Gone => tracing::warn!("peer agent down"),
        }
        self.chain.set_peer(now, event != PeerEvent::Gone, &mut self.outside);
    }

    fn forward(&mut self, now: Time, from: Side, frame: Frame) {
        if let Some(tcp) = frame.tcp()
            && let Some(begun) = self.flows.record(now, from, &tcp)
        {
            self.ranks.begin(begun);
            self.apply_ranks(now);
        }
        if from == Side::Fixed && self.chain.watches_queue() {
            self.chain.handle_queue(self.outside.mobile.is_congested());
        }
        self.chain.handle_frame(now, from, frame, &mut self.outside);
    }

    /// Tells the machines of priorities that have changed.
    pub(super) fn apply_ranks(&mut self, now: Time) {
        self.ranks.apply(now, &mut self.chain);
        self.chain.forward(now, &mut self.outside);
    }

    /// The hop's state changed.
    pub(super) fn handle_link_event(&mut self, now: Time, event: LinkEvent) {
        self.chain.handle_link_event(now, event, &mut self.outside);
    }

    /// Connections that are over, or of which nothing was seen for long, are removed.
    pub(super) fn expire(&mut self, now: Time) {
        for key in self.flows.expire(now) {
            self.ranks.end(key);
        }
        self.apply_ranks(now);
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        let peer = self.outside.peer.as_ref().map(Peer::next_timeout);
        [self.chain.next_timeout(), peer].into_iter().flatten().min()
    }

    /// The time asked for has come.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        if self.chain.next_timeout().is_some_and(|at| at <= now) {
            self.chain.handle_timeout(now, &mut self.outside);
        }
        let event = self.outside.peer.as_mut().and_then(|peer| peer.handle_timeout(now));
        self.outside.send_hello(now);
        self.handle_peer(now, event);
    }
}
