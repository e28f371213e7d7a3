//! A base station: a router that keeps the wired halves of its mobiles' connections.

use core::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::collections::BTreeMap;

use lasthop_session as session;
use lasthop_session::handoff::{self, Open};
use lasthop_session::station::Station;
use lasthop_tcp as tcp;
use lasthop_units::{Seed, Time};
use lasthop_wire::mhp::handoff::{Datagram, Message};
use lasthop_wire::tcp::Segment;

use super::surrogates::{Departure, LinkEvent, Setup, Surrogates, Way};
use super::transport::{BaseHop, HopKind, SRP_PORT, Scratch, send_udp, udp_source};
use super::{Carriage, HANDOFF_PORT, HOP_PORT, mobile_of, session_of};
use crate::net::host::send_datagram;
use crate::net::{Body, Context, LinkId, Node, Packet};

/// Rounds in which bytes and events pass until nothing moves: more are a machine's mistake.
const ROUNDS_MAX: usize = 1 << 16;

/// How a base station helps.
#[derive(Clone, Debug)]
pub struct BaseConfig {
    /// What runs on the hop.
    pub hop: HopKind,
    /// How packets for a mobile are carried there; of connections the mobile says so.
    pub carriage: Carriage,
    /// The wired halves: their buffers are the surrogates' buffers (MHP-11).
    pub wired: tcp::Config,
    /// Bounds of a mobile's session.
    pub session: session::Config,
    /// Patience and bounds of handoffs.
    pub handoff: handoff::Config,
    /// Wired halves have the base's own address and stay when their mobile leaves (`anchor`); they have
    /// the mobile's and go along (`migrate`, MHP-3) otherwise. Those of connections that fixed hosts
    /// open always go along.
    pub anchors: bool,
}

/// What a base station did beside forwarding.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct BaseCounts {
    /// Packets forwarded.
    pub forwarded: u64,
    /// Packets from fixed hosts taken for a wired half (MHP-4).
    pub intercepted: u64,
    /// Packets passed on to the base where their session went (MHP-22).
    pub passed_on: u64,
    /// Segments for a mobile whose state is on its way to another base, and those of old hops.
    pub withheld: u64,
    /// Packets that came in damaged.
    pub corrupted: u64,
    /// Sessions that left for another base.
    pub handed_over: u64,
    /// Sessions that came from another base.
    pub taken_over: u64,
    /// Wired halves that stayed when their session left.
    pub anchored: u64,
}

/// A segment of a hop, whichever end opened the connection.
fn is_hop(segment: &Segment) -> bool {
    segment.dst_port == HOP_PORT || segment.src_port == HOP_PORT
}

/// A base station with surrogates (MHP-3, MHP-4).
pub struct BaseStation {
    addr: Ipv4Addr,
    station: Station<SocketAddr, Open, Way, u64>,
    surrogates: Surrogates,
    /// Whose addresses by further links these are.
    beside: BTreeMap<Ipv4Addr, Ipv4Addr>,
    /// What the wired halves are sending.
    wired_out: Vec<Packet>,
    counts: BaseCounts,
    scratch: Scratch,
    out: Vec<u8>,
}

/// What a base or a mobile is called in handoffs.
fn name(addr: Ipv4Addr) -> SocketAddr {
    SocketAddr::V4(SocketAddrV4::new(addr, HANDOFF_PORT))
}

impl BaseStation {
    /// A base at `addr`.
    pub fn new(addr: Ipv4Addr, config: BaseConfig, seed: Seed) -> Self {
        let BaseConfig { hop, carriage, wired, session, handoff, anchors } = config;
        let setup = Setup { hop, carriage, session, wired, anchors, forward: handoff.forward };
        Self {
            addr,
            station: Station::new(handoff, name(addr), Open),
            surrogates: Surrogates::new(addr, setup, seed),
            beside: BTreeMap::new(),
            wired_out: Vec::new(),
            counts: BaseCounts::default(),
            scratch: Scratch::default(),
            out: Vec::new(),
        }
    }

    /// Its address.
    pub fn addr(&self) -> Ipv4Addr {
        self.addr
    }

    /// A mobile has registered in this cell (MIP-2): what fixed hosts send it is intercepted from
    /// here on. One that registers nowhere is known from its first packet of the hop.
    pub fn serve(&mut self, mobile: Ipv4Addr) {
        self.welcome(mobile, 0);
    }

    /// A mobile has this address, too, by a link beside the one that routes know.
    pub fn add_address(&mut self, mobile: Ipv4Addr, beside: Ipv4Addr) {
        self.beside.insert(beside, mobile);
    }

    /// A mobile is in this cell, since the handoff of that number.
    fn welcome(&mut self, mobile: Ipv4Addr, attempt: u32) {
        let known = self.surrogates.knows(mobile);
        if self.surrogates.welcome(mobile, attempt) && !known {
            let (now, id) = (self.surrogates.now(), Way::Mobile(mobile));
            self.station.handle_up(&mut self.surrogates, now, id, name(mobile));
            self.station.name(name(mobile), session_of(mobile));
        }
    }

    /// What it did.
    pub fn counts(&self) -> BaseCounts {
        let session::station::Counts { here, given, anchored, .. } = self.station.counts();
        BaseCounts { taken_over: here, handed_over: given, anchored, ..self.counts }
    }

    /// The wired halves for a mobile, to watch.
    pub fn wired(&self, mobile: Ipv4Addr) -> impl Iterator<Item = &tcp::Connection> {
        self.surrogates.wired_of(mobile)
    }

    /// The hop to a mobile, to watch.
    pub fn hop(&self, mobile: Ipv4Addr) -> Option<&BaseHop> {
        self.surrogates.hop(mobile)
    }

    /// Mobiles that it serves.
    pub fn mobiles(&self) -> usize {
        self.surrogates.mobiles()
    }

    /// A packet of the hop came from a mobile, known or not. What one that has left still had on its
    /// way is of no use.
    fn handle_hop(&mut self, mut packet: Packet) {
        let mobile = self.beside.get(&packet.src).copied().unwrap_or(packet.src);
        if self.surrogates.departure(mobile).is_none() {
            self.serve(mobile);
            self.surrogates.handle_hop(mobile, &mut packet);
        }
    }

    /// A mobile or another base says something of a handoff.
    fn handle_handoff(&mut self, now: Time, from: Ipv4Addr, bytes: &[u8]) {
        let Ok(said) = Datagram::decode(bytes) else { return };
        let mobile = mobile_of(said.session);
        if from == mobile {
            let comes = matches!(said.message, Message::Greet { .. });
            self.welcome(mobile, if comes { said.attempt } else { 0 });
            return self.station.handle_mobile(&mut self.surrogates, now, name(from), bytes);
        }
        // A mobile that this base never knew has nothing here: it asks the next base for what it had
        // asked this one.
        if matches!(said.message, Message::Handover { .. }) && !self.surrogates.knows(mobile) {
            self.serve(mobile);
        }
        self.station.handle_base(now, name(from), bytes);
    }

    /// Takes a packet for the station itself.
    fn handle_own(&mut self, now: Time, mut packet: Packet) {
        match packet.body {
            Body::Tcp(segment) if is_hop(&segment) => self.handle_hop(packet),
            Body::Tcp(segment) => self.handle_wired(&segment, &packet),
            Body::Udp { dst_port: SRP_PORT, .. } | Body::Frame { .. } => self.handle_hop(packet),
            Body::Udp { dst_port: HANDOFF_PORT, .. } => {
                if let (Some(from), Some(bytes)) = (udp_source(&packet), packet.bytes_mut()) {
                    self.handle_handoff(now, *from.ip(), bytes);
                }
            }
            Body::Udp { .. } => {
                self.surrogates.sessions().links.handle_packet(now, &mut packet);
            }
            _ => {}
        }
    }

    fn handle_wired(&mut self, segment: &Segment, packet: &Packet) {
        self.surrogates.handle_wired(segment, packet);
        self.counts.intercepted += 1;
    }

    /// Takes a packet from a fixed host for a connection of a mobile's (MHP-4), or of this base's. Gives
    /// it back if it is not for this base to take.
    fn intercept(&mut self, packet: Packet) -> Option<Packet> {
        let Body::Tcp(segment) = packet.body else { return Some(packet) };
        if packet.dst == self.addr {
            self.handle_wired(&segment, &packet);
            return None;
        }
        if !self.surrogates.serves(packet.dst) {
            return Some(packet);
        }
        if is_hop(&segment) {
            // From a base that the mobile has left, and of no use to anybody.
            self.counts.withheld += 1;
            return None;
        }
        self.handle_wired(&segment, &packet);
        None
    }

    /// Passes a packet on; `sender` is the base that had passed it on before.
    fn forward(&mut self, ctx: &mut Context<'_>, mut packet: Packet, sender: Option<Ipv4Addr>) {
        match self.surrogates.departure(packet.dst) {
            // Two bases that both gave the mobile away would send it back and forth.
            Some(Departure::Gone { to, .. }) if sender == Some(to) => {
                self.counts.withheld += 1;
                return;
            }
            // The mobile's own TCP knows nothing of its connections to fixed hosts: a segment that
            // reached it would be answered by a reset.
            Some(Departure::Coming | Departure::Leaving) if packet.tcp().is_some() => {
                self.counts.withheld += 1;
                return;
            }
            Some(Departure::Gone { to, .. }) if packet.tunnel.is_none() => {
                self.counts.passed_on += 1;
                packet.encapsulate(self.addr, to);
            }
            _ => {}
        }
        if packet.pass_router() && ctx.send(packet).is_ok() {
            self.counts.forwarded += 1;
        }
    }

    /// Takes what associations say; whether there was anything.
    fn poll_associations(&mut self, now: Time) -> bool {
        let mut some = false;
        let Self { station, surrogates, .. } = self;
        while let Some(event) = surrogates.sessions().links.poll_event() {
            some = true;
            match event {
                LinkEvent::Up(n) => {
                    station.handle_linked(surrogates, now, Way::Link(n));
                }
                LinkEvent::Lost(n, why) => {
                    station.handle_link_lost(surrogates, Way::Link(n), &why);
                }
                LinkEvent::PeerLost(id) => {
                    station.handle_lost(surrogates, now, Way::Peer(id));
                    surrogates.sessions().links.remove(id);
                }
            }
        }
        for id in surrogates.sessions().all() {
            while let Some(event) = surrogates.sessions().poll_event(now, id) {
                some = true;
                station.handle_event(id, &event);
                surrogates.handle_event(id, event);
            }
            let from = match id {
                Way::Mobile(mobile) => Some(mobile),
                Way::Peer(_) | Way::Link(_) => surrogates.sessions().links.peer(id),
            };
            let Some(from) = from.map(name) else { continue };
            while let Some(message) = surrogates.sessions().poll_message(id) {
                some = true;
                match id {
                    Way::Peer(_) => station.handle_peer(surrogates, now, id, from, &message),
                    _ => station.handle_link(surrogates, now, id, from, &message),
                }
            }
            while let Some(wanted) = surrogates.sessions().poll_wanted(id) {
                some = true;
                station.handle_wanted(surrogates, now, id, from, wanted);
            }
        }
        some
    }

    /// Lets bytes and events pass until nothing moves.
    fn drive(&mut self, now: Time) {
        for _ in 0..ROUNDS_MAX {
            let mut some = self.poll_associations(now);
            // One at a time: what it does may be seen by others.
            some |= self.surrogates.attend();
            if some {
                continue;
            }
            // Wired halves that have come are there before their connections are asked for.
            while self.station.advance(&mut self.surrogates, now) {
                some = true;
            }
            if !some {
                break;
            }
        }
        self.surrogates.sessions().hand_on_estimates();
        // No operator reads them here.
        while self.station.poll_note().is_some() {}
    }

    /// Lets everything happen that can, then sends.
    fn run_machines(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.now();
        while let Some((from, datagram)) = self.surrogates.poll_carried() {
            send_datagram(ctx, from, &datagram);
        }
        loop {
            self.drive(now);
            self.surrogates.transmit(ctx, &mut self.scratch, &mut self.wired_out);
            if self.wired_out.is_empty() {
                break;
            }
            self.send_wired(ctx);
        }
        while let Some(SocketAddr::V4(to)) = self.station.poll_transmit(now, &mut self.out) {
            let from = SocketAddrV4::new(self.addr, HANDOFF_PORT);
            send_udp(ctx, from, to, &self.out);
        }
    }
}

impl BaseStation {
    /// Sends what wired halves have sent; a mobile of this base may be at the other end, too
    /// (MHP-7).
    fn send_wired(&mut self, ctx: &mut Context<'_>) {
        let mut packets = core::mem::take(&mut self.wired_out);
        for packet in packets.drain(..) {
            if let Some(packet) = self.intercept(packet) {
                // What the link does not take is lost, as on any network.
                let _ = ctx.send(packet);
            }
        }
        self.wired_out = packets;
    }
}

impl Node for BaseStation {
    fn handle_packet(&mut self, ctx: &mut Context<'_>, _link: LinkId, mut packet: Packet) {
        if packet.corrupted {
            self.counts.corrupted += 1;
            return;
        }
        let now = ctx.now();
        self.surrogates.set_now(now);
        let mut sender = None;
        if packet.next_address() == self.addr {
            sender = packet.decapsulate().map(|tunnel| tunnel.src);
        }
        if packet.tunnel.is_some() {
            return self.forward(ctx, packet, None);
        }
        if packet.dst == self.addr {
            self.handle_own(now, packet);
        } else if let Some(packet) = self.intercept(packet)
            && let Some(packet) = self.surrogates.carry(packet)
        {
            return self.forward(ctx, packet, sender);
        }
        self.run_machines(ctx);
    }

    fn next_timeout(&self) -> Option<Time> {
        [self.surrogates.next_timeout(), self.station.next_timeout(true)]
            .into_iter()
            .flatten()
            .min()
    }

    fn handle_timeout(&mut self, ctx: &mut Context<'_>) {
        self.surrogates.set_now(ctx.now());
        self.surrogates.handle_timeout();
        self.run_machines(ctx);
    }
}
