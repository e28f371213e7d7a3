//! A base station: a router that keeps the wired halves of its mobiles' connections.

use core::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::collections::BTreeMap;

use lasthop_session::handoff::{self, BaseEvent, SessionId, SessionState};
use lasthop_session::{self as session, Session};
use lasthop_tcp as tcp;
use lasthop_units::{Duration, Seed, Time};

use super::surrogate::{Surrogates, WiredEnd};
use super::transport::{BaseHop, Ends, HopKind, SRP_PORT, Scratch, send_udp, udp_source};
use super::{HANDOFF_PORT, HOP_PORT, mobile_of};
use crate::net::{Body, Context, LinkId, Node, Packet};

/// How a base station helps.
#[derive(Clone, Debug)]
pub struct BaseConfig {
    /// What runs on the hop.
    pub hop: HopKind,
    /// The wired halves: their buffers are the surrogates' buffers (MHP-11).
    pub wired: tcp::Config,
    /// Bounds of a mobile's session.
    pub session: session::Config,
    /// Patience and bounds of handoffs.
    pub handoff: handoff::Config,
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
    /// Packets for a mobile that is on its way to this base, or has left it.
    pub withheld: u64,
    /// Packets that came in damaged.
    pub corrupted: u64,
    /// Sessions that left for another base.
    pub handed_over: u64,
    /// Sessions that came from another base.
    pub taken_over: u64,
}

/// A base station with surrogates (MHP-3, MHP-4).
pub struct BaseStation {
    addr: Ipv4Addr,
    config: BaseConfig,
    seed: Seed,
    mobiles: BTreeMap<Ipv4Addr, Surrogates>,
    handoff: handoff::Base<SocketAddr>,
    /// Where mobiles' packets go for a while after they left.
    departed: BTreeMap<Ipv4Addr, (Ipv4Addr, Time)>,
    counts: BaseCounts,
    scratch: Scratch,
    out: Vec<u8>,
    generation: u64,
}

impl BaseStation {
    /// A base at `addr`.
    pub fn new(addr: Ipv4Addr, config: BaseConfig, seed: Seed) -> Self {
        let own = SocketAddr::V4(SocketAddrV4::new(addr, HANDOFF_PORT));
        Self {
            addr,
            handoff: handoff::Base::new(config.handoff, own),
            config,
            seed,
            mobiles: BTreeMap::new(),
            departed: BTreeMap::new(),
            counts: BaseCounts::default(),
            scratch: Scratch::default(),
            out: Vec::new(),
            generation: 0,
        }
    }

    /// Its address.
    pub fn addr(&self) -> Ipv4Addr {
        self.addr
    }

    /// What it did.
    pub fn counts(&self) -> &BaseCounts {
        &self.counts
    }

    /// The wired halves for a mobile, to watch.
    pub fn wired(&self, mobile: Ipv4Addr) -> impl Iterator<Item = &tcp::Connection> {
        self.mobiles.get(&mobile).into_iter().flat_map(Surrogates::wired)
    }

    /// The hop to a mobile, to watch.
    pub fn hop(&self, mobile: Ipv4Addr) -> Option<&BaseHop> {
        self.mobiles.get(&mobile).map(Surrogates::hop)
    }

    /// Mobiles that it serves.
    pub fn mobiles(&self) -> usize {
        self.mobiles.len()
    }

    fn new_hop(&mut self, mobile: Ipv4Addr) -> BaseHop {
        self.generation += 1;
        let name = format!("hop to {mobile}, {}", self.generation);
        BaseHop::new(&self.config.hop, self.seed.child(&name))
    }

    /// A packet of the hop came from a mobile, known or not.
    fn handle_hop(&mut self, now: Time, mut packet: Packet) {
        let mobile = packet.src;
        if !self.mobiles.contains_key(&mobile) {
            let hop = self.new_hop(mobile);
            let session = Session::base(self.config.session);
            let seed = self.seed.child(&format!("wired halves of {mobile}"));
            let new = Surrogates::new(mobile, hop, session, self.config.wired, seed);
            self.mobiles.insert(mobile, new);
        }
        if let Some(surrogates) = self.mobiles.get_mut(&mobile) {
            surrogates.handle_hop(now, &mut packet);
        }
    }

    /// Takes a packet for the station itself.
    fn handle_own(&mut self, now: Time, mut packet: Packet) {
        match packet.body {
            Body::Tcp(segment) if segment.dst_port == HOP_PORT => self.handle_hop(now, packet),
            Body::Udp { dst_port: SRP_PORT, .. } => self.handle_hop(now, packet),
            Body::Udp { dst_port: HANDOFF_PORT, .. } => {
                if let (Some(from), Some(bytes)) = (udp_source(&packet), packet.bytes_mut()) {
                    self.handoff.handle_datagram(now, SocketAddr::V4(from), bytes);
                }
            }
            _ => {}
        }
    }

    /// Takes a packet from a fixed host for a connection of a mobile's (MHP-4). Gives it back if it
    /// is not for this base to take.
    fn intercept(&mut self, now: Time, packet: Packet) -> Option<Packet> {
        let Body::Tcp(segment) = packet.body else { return Some(packet) };
        let Some(surrogates) = self.mobiles.get_mut(&packet.dst) else { return Some(packet) };
        let ends = WiredEnd {
            local: SocketAddrV4::new(packet.dst, segment.dst_port),
            remote: SocketAddrV4::new(packet.src, segment.src_port),
        };
        if surrogates.handle_wired(now, ends, &segment, &packet) {
            self.counts.intercepted += 1;
            None
        } else {
            Some(packet)
        }
    }

    fn forward(&mut self, ctx: &mut Context<'_>, mut packet: Packet) {
        if let Some(&(to, until)) = self.departed.get(&packet.dst)
            && ctx.now() < until
            && packet.tunnel.is_none()
        {
            self.counts.passed_on += 1;
            packet.encapsulate(self.addr, to);
        } else if packet.tcp().is_some_and(|s| s.dst_port != HOP_PORT && s.src_port != HOP_PORT)
            && self.is_mobile(packet.dst)
        {
            // The mobile's own TCP knows nothing of its connections to fixed hosts: a segment that
            // reached it would be answered by a reset.
            self.counts.withheld += 1;
            return;
        }
        if packet.pass_router() && ctx.send(packet).is_ok() {
            self.counts.forwarded += 1;
        }
    }

    fn is_mobile(&self, addr: Ipv4Addr) -> bool {
        self.mobiles.contains_key(&addr) || self.departed.contains_key(&addr)
    }

    fn handle_handoff(&mut self, now: Time) {
        while let Some(event) = self.handoff.poll_event() {
            match event {
                BaseEvent::Freeze(session) => {
                    let state = self.freeze(now, session);
                    self.handoff.frozen(now, session, state);
                }
                BaseEvent::Rebuild(state) => {
                    let session = state.session;
                    let stands = self.rebuild(now, state);
                    self.handoff.rebuilt(now, session, stands);
                }
                BaseEvent::Forward { session, to, lasts } => {
                    self.note_departure(now, session, to, lasts)
                }
                BaseEvent::Expired(state) => drop(self.rebuild(now, state)),
                BaseEvent::Resumed { .. } => {}
            }
        }
    }

    /// The state of a session that leaves; it is used here no more.
    fn freeze(&mut self, now: Time, session: SessionId) -> Option<SessionState> {
        let mobile = mobile_of(session);
        let surrogates = self.mobiles.remove(&mobile)?;
        self.counts.handed_over += 1;
        // Until the new base has the state, what comes for it is withheld.
        self.departed.insert(mobile, (self.addr, now));
        Some(surrogates.freeze(now, session))
    }

    fn rebuild(&mut self, now: Time, state: SessionState) -> bool {
        let mobile = mobile_of(state.session);
        let hop = self.new_hop(mobile);
        let seed = self.seed.child(&format!("wired halves of {mobile}"));
        let config = (self.config.session, self.config.wired);
        let built = Surrogates::rebuild(now, mobile, hop, config, seed, state);
        self.departed.remove(&mobile);
        self.mobiles.insert(mobile, built);
        self.counts.taken_over += 1;
        true
    }

    fn note_departure(&mut self, now: Time, session: SessionId, to: SocketAddr, lasts: Duration) {
        if let SocketAddr::V4(to) = to {
            self.departed.insert(mobile_of(session), (*to.ip(), now + lasts));
        }
    }

    /// Lets everything happen that can, then sends.
    fn settle(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.now();
        self.handle_handoff(now);
        for surrogates in self.mobiles.values_mut() {
            surrogates.drive(now);
            let ends = Ends { here: self.addr, there: surrogates.mobile() };
            surrogates.transmit(ctx, ends, &mut self.scratch);
        }
        while let Some(SocketAddr::V4(to)) = self.handoff.poll_transmit(now, &mut self.out) {
            let from = SocketAddrV4::new(self.addr, HANDOFF_PORT);
            send_udp(ctx, from, to, &self.out);
        }
    }
}

impl Node for BaseStation {
    fn handle_packet(&mut self, ctx: &mut Context<'_>, _link: LinkId, mut packet: Packet) {
        if packet.corrupted {
            self.counts.corrupted += 1;
            return;
        }
        let now = ctx.now();
        if packet.next_address() == self.addr && packet.decapsulate().is_none() {
            self.handle_own(now, packet);
        } else if let Some(packet) = self.intercept(now, packet) {
            self.forward(ctx, packet);
            return;
        }
        self.settle(ctx);
    }

    fn next_timeout(&self) -> Option<Time> {
        let surrogates = self.mobiles.values().filter_map(Surrogates::next_timeout);
        surrogates.chain(self.handoff.next_timeout()).min()
    }

    fn handle_timeout(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.now();
        self.handoff.handle_timeout(now);
        for surrogates in self.mobiles.values_mut() {
            surrogates.handle_timeout(now);
        }
        self.settle(ctx);
    }
}
