//! A base station: a router that keeps the wired halves of its mobiles' connections.

use core::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::collections::BTreeMap;

use lasthop_session::handoff::{self, BaseEvent, SessionId, SessionState};
use lasthop_session::{self as session, Session};
use lasthop_tcp as tcp;
use lasthop_units::{Duration, Seed, Time};
use lasthop_wire::tcp::Segment;

use super::surrogate::{Setup, Surrogates, WiredEnd};
use super::transport::{BaseHop, Ends, HopKind, SRP_PORT, Scratch, send_udp, udp_source};
use super::{HANDOFF_PORT, HOP_PORT, mobile_of};
use crate::net::{Body, Context, LinkId, Node, Packet};

/// Mobiles that a base serves at most.
const MOBILES_MAX: usize = 1 << 16;

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
    /// Segments for a mobile whose state is on its way to another base, and those of old hops.
    pub withheld: u64,
    /// Packets that came in damaged.
    pub corrupted: u64,
    /// Sessions that left for another base.
    pub handed_over: u64,
    /// Sessions that came from another base.
    pub taken_over: u64,
}

/// A mobile that is here no more.
#[derive(Clone, Copy, Debug)]
enum Departure {
    /// Its state is frozen, and nobody's yet.
    Leaving,
    /// That base has it. What comes here is passed on for a while (MHP-22).
    Gone { to: Ipv4Addr, until: Time },
}

impl Departure {
    fn holds(&self, now: Time) -> bool {
        match self {
            Self::Leaving => true,
            Self::Gone { until, .. } => now < *until,
        }
    }
}

/// A segment of a hop, whichever end opened the connection.
fn is_hop(segment: &Segment) -> bool {
    segment.dst_port == HOP_PORT || segment.src_port == HOP_PORT
}

/// A base station with surrogates (MHP-3, MHP-4).
pub struct BaseStation {
    addr: Ipv4Addr,
    config: BaseConfig,
    seed: Seed,
    mobiles: BTreeMap<Ipv4Addr, Surrogates>,
    handoff: handoff::Base<SocketAddr>,
    /// Mobiles that are leaving, or left a while ago.
    departed: BTreeMap<Ipv4Addr, Departure>,
    /// Resets of connections that ended as their mobile left.
    resets: Vec<(WiredEnd, Segment)>,
    /// What the wired halves are sending.
    wired_out: Vec<Packet>,
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
            resets: Vec::new(),
            wired_out: Vec::new(),
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

    /// A mobile has registered in this cell (MIP-2): what fixed hosts send it is intercepted from
    /// here on. One that registers nowhere is known from its first packet of the hop.
    pub fn serve(&mut self, mobile: Ipv4Addr) {
        if !self.mobiles.contains_key(&mobile) && self.mobiles.len() < MOBILES_MAX {
            let hop = self.new_hop(mobile);
            let session = Session::base(self.config.session);
            let new = Surrogates::new(mobile, hop, session, self.setup(), self.numbers(mobile));
            self.mobiles.insert(mobile, new);
        }
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

    fn setup(&self) -> Setup {
        Setup {
            session: self.config.session,
            wired: self.config.wired,
            keeps_estimates: self.config.hop.keeps_estimates(),
        }
    }

    fn numbers(&self, mobile: Ipv4Addr) -> Seed {
        self.seed.child(&format!("wired halves of {mobile}, {}", self.generation))
    }

    /// A packet of the hop came from a mobile, known or not. What one that has left still had on its
    /// way is of no use.
    fn handle_hop(&mut self, now: Time, mut packet: Packet) {
        let mobile = packet.src;
        if self.departure(now, mobile).is_some() {
            return;
        }
        self.serve(mobile);
        if let Some(surrogates) = self.mobiles.get_mut(&mobile) {
            surrogates.handle_hop(now, &mut packet);
        }
    }

    /// Takes a packet for the station itself.
    fn handle_own(&mut self, now: Time, mut packet: Packet) {
        match packet.body {
            Body::Tcp(segment) if is_hop(&segment) => self.handle_hop(now, packet),
            Body::Udp { dst_port: SRP_PORT, .. } | Body::Frame { .. } => {
                self.handle_hop(now, packet);
            }
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
        if is_hop(&segment) {
            // From a base that the mobile has left, and of no use to anybody.
            self.counts.withheld += 1;
            return None;
        }
        let ends = WiredEnd {
            local: SocketAddrV4::new(packet.dst, segment.dst_port),
            remote: SocketAddrV4::new(packet.src, segment.src_port),
        };
        surrogates.handle_wired(now, ends, &segment, &packet);
        self.counts.intercepted += 1;
        None
    }

    /// Passes a packet on; `sender` is the base that had passed it on before.
    fn forward(&mut self, ctx: &mut Context<'_>, mut packet: Packet, sender: Option<Ipv4Addr>) {
        match self.departure(ctx.now(), packet.dst) {
            // Two bases that both gave the mobile away would send it back and forth.
            Some(Departure::Gone { to, .. }) if sender == Some(to) => {
                self.counts.withheld += 1;
                return;
            }
            // The mobile's own TCP knows nothing of its connections to fixed hosts: a segment that
            // reached it would be answered by a reset.
            Some(Departure::Leaving) if packet.tcp().is_some() => {
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

    fn departure(&self, now: Time, mobile: Ipv4Addr) -> Option<Departure> {
        let departure = *self.departed.get(&mobile)?;
        departure.holds(now).then_some(departure)
    }

    fn depart(&mut self, now: Time, mobile: Ipv4Addr, departure: Departure) {
        self.departed.retain(|_, departure| departure.holds(now));
        self.departed.insert(mobile, departure);
    }

    fn handle_handoff(&mut self, now: Time) {
        while let Some(event) = self.handoff.poll_event() {
            match event {
                BaseEvent::Freeze { session, .. } => {
                    let state = self.freeze(now, session);
                    self.handoff.frozen(now, session, Some(state));
                }
                BaseEvent::Rebuild { state, .. } => {
                    let session = state.session;
                    self.rebuild(now, state);
                    self.counts.taken_over += 1;
                    self.handoff.rebuilt(now, session, true);
                }
                BaseEvent::Forward { session, to, lasts } => {
                    self.note_departure(now, session, to, lasts)
                }
                BaseEvent::Copy(session) => {
                    let copy = self.mobiles.get(&mobile_of(session));
                    let copy = copy.map(|surrogates| {
                        surrogates.preview(now, session, self.config.handoff.state_max)
                    });
                    self.handoff.copied(now, session, copy);
                }
                // Nobody came for it; the mobile still may, until its connections time out.
                BaseEvent::Expired(state) => self.rebuild(now, state),
                BaseEvent::Over { session, .. } => drop(self.freeze(now, session)),
                BaseEvent::Resumed { .. }
                | BaseEvent::Begins { .. }
                | BaseEvent::Lost { .. }
                | BaseEvent::Refused { .. } => {}
            }
        }
    }

    /// The state of a session that leaves; it is used here no more. A mobile that this base never
    /// heard has none: the mobile asks the next base for what it had asked this one.
    fn freeze(&mut self, now: Time, session: SessionId) -> SessionState {
        let mobile = mobile_of(session);
        let Some(surrogates) = self.mobiles.remove(&mobile) else {
            return SessionState {
                session,
                connections: Vec::new(),
                ended: Vec::new(),
                forgotten: 0,
                turn: 0,
                hop: Vec::new(),
            };
        };
        self.counts.handed_over += 1;
        // Until the new base has the state, what comes for it is withheld.
        self.depart(now, mobile, Departure::Leaving);
        surrogates.freeze(now, session, &mut self.resets)
    }

    fn rebuild(&mut self, now: Time, state: SessionState) {
        let mobile = mobile_of(state.session);
        let hop = self.new_hop(mobile);
        let seed = self.numbers(mobile);
        let built = Surrogates::rebuild(now, mobile, hop, self.setup(), seed, state);
        self.departed.remove(&mobile);
        self.mobiles.insert(mobile, built);
    }

    fn note_departure(&mut self, now: Time, session: SessionId, to: SocketAddr, lasts: Duration) {
        if let SocketAddr::V4(to) = to {
            let gone = Departure::Gone { to: *to.ip(), until: now + lasts };
            self.depart(now, mobile_of(session), gone);
        }
    }

    /// Lets everything happen that can, then sends.
    fn settle(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.now();
        self.handle_handoff(now);
        for (ends, reset) in self.resets.drain(..) {
            self.wired_out.push(ctx.packet(*ends.local.ip(), *ends.remote.ip(), Body::Tcp(reset)));
        }
        loop {
            for surrogates in self.mobiles.values_mut() {
                surrogates.drive(now);
                let ends = Ends { here: self.addr, there: surrogates.mobile() };
                surrogates.transmit(ctx, ends, &mut self.scratch, &mut self.wired_out);
            }
            if self.wired_out.is_empty() {
                break;
            }
            self.send_wired(ctx);
        }
        while let Some(SocketAddr::V4(to)) = self.handoff.poll_transmit(now, &mut self.out) {
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
            if let Some(packet) = self.intercept(ctx.now(), packet) {
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
        let mut sender = None;
        if packet.next_address() == self.addr {
            sender = packet.decapsulate().map(|tunnel| tunnel.src);
        }
        if packet.tunnel.is_some() {
            return self.forward(ctx, packet, None);
        }
        if packet.dst == self.addr {
            self.handle_own(now, packet);
        } else if let Some(packet) = self.intercept(now, packet) {
            return self.forward(ctx, packet, sender);
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
