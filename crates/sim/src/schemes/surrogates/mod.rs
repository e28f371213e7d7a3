//! The surrogates of a base's mobiles (MHP-3, MHP-8..MHP-14): each mobile's hop and session, and the
//! wired half of each connection. The machine of handoffs acts on them through [`wires`].

use core::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::collections::BTreeMap;

use lasthop_session::station::{Associations, Bridge, Name, Wires};
use lasthop_session::{self as session, ConnId, Event, Refusal, ResetReason, Session, Target};
use lasthop_tcp::{self as tcp, Ports, Socket, reset_for};
use lasthop_units::{Duration, Seed, Stream as Numbers, Time};
use lasthop_wire::tcp::{Flags, Segment, Seq};

use super::lane::{self, Carriage};
use super::session_of;
use super::transport::{BaseHop, Ends, HopKind, Scratch};
use crate::net::host::OutgoingDatagram;
use crate::net::{Body, Context, Packet, Payload};

mod half;
mod links;
mod names;
mod sessions;
mod wires;

use half::Half;
pub(super) use links::LinkEvent;
pub(super) use names::Way;
use names::WiredEnd;
use sessions::{Carried, Sessions};

/// Wired halves have these ports.
const FIRST_PORT: u16 = 30_000;
const PORTS: u16 = 30_000;
/// Wired halves of one base, those that are ending included.
const WIRED_MAX: usize = 1 << 16;
/// Mobiles that a base serves at most.
const MOBILES_MAX: usize = 1 << 16;
/// Resets that wait to be sent, at most: what is beyond is as good as lost.
const RESETS_MAX: usize = 256;

static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// What all surrogates of a base have in common.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) hop: HopKind,
    pub(super) carriage: Carriage,
    pub(super) session: session::Config,
    pub(super) wired: tcp::Config,
    /// Wired halves have the base's own address, and stay when their mobile leaves (`anchor`).
    pub(super) anchors: bool,
    /// How long stray packets are passed on to where a session went (MHP-22).
    pub(super) forward: Duration,
}

/// What has a connection's name at an association.
enum Entry {
    Half(Box<Half>),
    /// Its wired half is at another base. True once one end was reset.
    Bridge(Box<Bridge<Way>>, bool),
}

/// A mobile whose session is not here.
#[derive(Clone, Copy, Debug)]
pub(super) enum Departure {
    /// It has come, and its session has yet to.
    Coming,
    /// Its state is frozen, and nobody's yet.
    Leaving,
    /// That base has it. What comes here is passed on for a while (MHP-22).
    Gone { to: Ipv4Addr, until: Time },
}

impl Departure {
    fn holds(&self, now: Time) -> bool {
        match self {
            Self::Coming | Self::Leaving => true,
            Self::Gone { until, .. } => now < *until,
        }
    }
}

/// See the module's text.
pub(super) struct Surrogates {
    addr: Ipv4Addr,
    setup: Setup,
    seed: Seed,
    now: Time,
    /// Hops that were made so far.
    hops: u64,
    sessions: Sessions,
    entries: BTreeMap<u64, Entry>,
    /// The next entry's key.
    next: u64,
    names: BTreeMap<Name<Way>, u64>,
    by_ends: BTreeMap<WiredEnd, u64>,
    departed: BTreeMap<Ipv4Addr, Departure>,
    /// Entries whose bytes may move.
    dirty: Vec<u64>,
    resets: Vec<(WiredEnd, Segment)>,
    numbers: Numbers,
}

impl Surrogates {
    pub(super) fn new(addr: Ipv4Addr, setup: Setup, seed: Seed) -> Self {
        Self {
            addr,
            setup,
            now: Time::ZERO,
            hops: 0,
            sessions: Sessions::new(addr, seed.child("links")),
            entries: BTreeMap::new(),
            next: 0,
            names: BTreeMap::new(),
            by_ends: BTreeMap::new(),
            departed: BTreeMap::new(),
            dirty: Vec::new(),
            resets: Vec::new(),
            numbers: seed.stream("iss"),
            seed,
        }
    }

    /// Sets the time at which everything happens that is called for until it is set again.
    pub(super) fn set_now(&mut self, now: Time) {
        self.now = now;
    }

    pub(super) fn now(&self) -> Time {
        self.now
    }

    /// Gives a mobile a hop and a session, or a new hop if it comes in a later handoff than before: its
    /// end is a new one, too (MHP-18). What its session carries goes on over it. False if there is no
    /// room.
    pub(super) fn welcome(&mut self, mobile: Ipv4Addr, attempt: u32) -> bool {
        let known = self.sessions.mobiles.get(&mobile);
        if known.is_some_and(|known| attempt <= known.attempt) {
            return true;
        }
        if known.is_none() && self.sessions.mobiles.len() >= MOBILES_MAX {
            return false;
        }
        self.hops += 1;
        let name = format!("hop to {mobile}, {}", self.hops);
        let hop = BaseHop::new(&self.setup.hop, self.seed.child(&name));
        let fresh = Carried::new(hop, Session::base(self.setup.session), attempt);
        let connections = self.wired(Way::Mobile(mobile));
        match self.sessions.mobiles.get_mut(&mobile) {
            Some(known) if !known.away => {
                if self.setup.hop.keeps_estimates() {
                    known.estimates = known.take_estimates(&connections);
                }
                let state = known.session.freeze(self.now, &mut known.hop, session_of(mobile));
                (known.hop, known.attempt) = (fresh.hop, attempt);
                known.session.adopt(self.now, state);
                known.session.set_handoff(attempt);
            }
            known => {
                let away = known.is_some() || attempt > 0;
                if away {
                    self.departed.insert(mobile, Departure::Coming);
                }
                self.sessions.mobiles.insert(mobile, Carried { away, ..fresh });
            }
        }
        true
    }

    /// Whether that mobile has a hop here, and maybe its session elsewhere.
    pub(super) fn knows(&self, mobile: Ipv4Addr) -> bool {
        self.sessions.mobiles.contains_key(&mobile)
    }

    /// Whether that mobile's session is here.
    pub(super) fn serves(&self, mobile: Ipv4Addr) -> bool {
        self.departure(mobile).is_none()
            && self.sessions.mobiles.get(&mobile).is_some_and(|known| !known.away)
    }

    /// Mobiles whose sessions are here.
    pub(super) fn mobiles(&self) -> usize {
        self.sessions.mobiles.keys().filter(|mobile| self.serves(**mobile)).count()
    }

    /// Why that mobile's session is not here, while that matters.
    pub(super) fn departure(&self, mobile: Ipv4Addr) -> Option<Departure> {
        let departure = *self.departed.get(&mobile)?;
        departure.holds(self.now).then_some(departure)
    }

    fn depart(&mut self, mobile: Ipv4Addr, departure: Departure) {
        let now = self.now;
        self.departed.retain(|_, departure| departure.holds(now));
        self.departed.insert(mobile, departure);
    }

    pub(super) fn hop(&self, mobile: Ipv4Addr) -> Option<&BaseHop> {
        self.sessions.mobiles.get(&mobile).filter(|known| !known.away).map(|known| &known.hop)
    }

    fn halves(&self) -> impl Iterator<Item = &Half> {
        self.entries.values().filter_map(|entry| match entry {
            Entry::Half(half) => Some(half.as_ref()),
            Entry::Bridge(..) => None,
        })
    }

    fn halves_mut(&mut self) -> impl Iterator<Item = (u64, &mut Half)> {
        self.entries.iter_mut().filter_map(|(key, entry)| match entry {
            Entry::Half(half) => Some((*key, half.as_mut())),
            Entry::Bridge(..) => None,
        })
    }

    /// The wired halves for a mobile.
    pub(super) fn wired_of(&self, mobile: Ipv4Addr) -> impl Iterator<Item = &tcp::Connection> {
        let halves = self.halves().filter(move |half| half.mobile == mobile);
        halves.map(|half| half.socket.connection())
    }

    pub(super) fn sessions(&mut self) -> &mut Sessions {
        &mut self.sessions
    }

    /// Gives the lane of a mobile's hop a packet for it; gives it back where there is none, or it is none for a lane.
    pub(super) fn carry(&mut self, packet: Packet) -> Option<Packet> {
        let Some(known) = self.sessions.mobiles.get_mut(&packet.dst).filter(|known| !known.away)
        else {
            return Some(packet);
        };
        if !known.hop.has_lane() {
            return Some(packet);
        }
        let Some(datagram) = lane::datagram_of(&packet) else { return Some(packet) };
        let carriage = &self.setup.carriage;
        lane::send(self.now, known.hop.lane(), carriage, packet.dst, packet.src, &datagram);
        None
    }

    /// The next packet that came on a lane: from where, and what it carries.
    pub(super) fn poll_carried(&mut self) -> Option<(Ipv4Addr, OutgoingDatagram)> {
        let mut hops = self.sessions.mobiles.values_mut().filter(|known| !known.away);
        hops.find_map(|known| {
            let lane = known.hop.lane()?;
            loop {
                // What is no datagram is dropped.
                if let Some(datagram) = lane::take(lane)? {
                    return Some(datagram);
                }
            }
        })
    }

    /// Takes a packet of a mobile's hop.
    pub(super) fn handle_hop(&mut self, mobile: Ipv4Addr, packet: &mut Packet) {
        if let Some(known) = self.sessions.mobiles.get_mut(&mobile)
            && !known.away
        {
            let lost = known.hop.handle_packet(self.now, packet);
            known.on_lost(lost);
        }
    }

    /// Takes a segment from a fixed host, for a wired half or for none.
    pub(super) fn handle_wired(&mut self, segment: &Segment, packet: &Packet) {
        let ends = WiredEnd {
            local: SocketAddrV4::new(packet.dst, segment.dst_port),
            remote: SocketAddrV4::new(packet.src, segment.src_port),
        };
        let key = self.by_ends.get(&ends).copied();
        let Some((key, Entry::Half(half))) = key.and_then(|k| Some((k, self.entries.get_mut(&k)?)))
        else {
            return self.handle_stranger(ends, segment);
        };
        match packet.payload() {
            Payload::Real(bytes) => half.socket.handle_segment(self.now, segment, bytes),
            // Nobody looks at a virtual stream's bytes; these are as good as any.
            Payload::Virtual(len) => {
                let bytes = ZEROS.get(..len as usize).unwrap_or_default();
                half.socket.handle_segment(self.now, segment, bytes);
            }
        }
        self.dirty.push(key);
    }

    /// A segment for no wired half: a fixed host opens a connection (MHP-6), or is told that there
    /// is none, as the mobile itself would tell it.
    fn handle_stranger(&mut self, ends: WiredEnd, segment: &Segment) {
        let opens = segment.flags.contains(Flags::SYN)
            && !segment.flags.intersects(Flags::ACK.with(Flags::RST).with(Flags::FIN));
        if let Some(known) = self.sessions.mobiles.get_mut(ends.local.ip()) {
            // A handoff ends what was requested from the mobile.
            known.offered.retain(|id, _| known.session.stream(*id).is_some());
            let mut offered = known.offered.iter();
            let offered = offered.find(|(_, (of, _))| *of == ends).map(|(id, _)| *id);
            match offered {
                // The mobile is being asked; the fixed host's patience is its own.
                Some(_) if opens => return,
                Some(id) if segment.flags.contains(Flags::RST) => {
                    return known.session.reset(&mut known.hop, id, ResetReason::Aborted);
                }
                None if opens => {
                    let (to, from) = (SocketAddr::V4(ends.local), SocketAddr::V4(ends.remote));
                    // Without a hop the mobile is out of reach, and the SYN as good as lost.
                    if let Ok(id) = known.session.offer(self.now, &mut known.hop, to, from) {
                        known.offered.insert(id, (ends, *segment));
                    }
                    return;
                }
                _ => {}
            }
        }
        // A bare acknowledgement asks for nothing: the answer to a FIN that was sent again.
        if segment.seq_len() > 0 {
            self.answer(ends, reset_for(segment));
        }
    }

    fn answer(&mut self, ends: WiredEnd, reset: Option<Segment>) {
        if self.resets.len() < RESETS_MAX {
            self.resets.extend(reset.map(|reset| (ends, reset)));
        }
    }

    /// The mobile agrees: the fixed host's SYN is answered.
    fn take_offered(&mut self, name: Name<Way>) {
        let Some((ends, syn)) = self.sessions.offered(name) else { return };
        let ports = Ports { local: ends.local.port(), remote: ends.remote.port() };
        let iss = Seq(self.numbers.next_u64() as u32);
        if let Ok(socket) = Socket::accept(self.setup.wired, ports, &syn, iss, self.now) {
            self.add(Half::new(*ends.local.ip(), ends, socket, Some(name)));
        }
    }

    fn refuse_offered(&mut self, name: Name<Way>, refusal: Refusal) {
        if let Some((ends, syn)) = self.sessions.offered(name)
            && refusal == Refusal::Refused
        {
            self.answer(ends, reset_for(&syn));
        }
    }

    fn add(&mut self, half: Half) {
        let key = self.next;
        self.next += 1;
        self.by_ends.insert(half.ends, key);
        self.names.extend(half.name.map(|name| (name, key)));
        self.entries.insert(key, Entry::Half(Box::new(half)));
        self.dirty.push(key);
    }

    /// Takes a wired half out, which says nothing more.
    fn take(&mut self, key: u64) -> Option<Half> {
        match self.entries.remove(&key)? {
            Entry::Half(half) => {
                self.by_ends.remove(&half.ends);
                half.name.and_then(|name| self.names.remove(&name));
                Some(*half)
            }
            Entry::Bridge(bridge, _) => {
                for name in [bridge.near, bridge.far].into_iter().flatten() {
                    self.names.remove(&name);
                }
                None
            }
        }
    }

    /// What the session of an association says of a connection.
    pub(super) fn handle_event(&mut self, id: Way, event: Event) {
        match event {
            Event::Connect { id: conn, target, .. } => self.connect((id, conn), &target),
            Event::Readable(conn) | Event::Writable(conn) | Event::Acknowledged(conn) => {
                self.dirty.extend(self.names.get(&(id, conn)));
            }
            Event::Reset { id: conn, .. } => {
                let Some(key) = self.names.get(&(id, conn)).copied() else { return };
                match self.entries.get_mut(&key) {
                    Some(Entry::Half(half)) => half.socket.abort(),
                    Some(Entry::Bridge(_, reset)) => *reset = true,
                    None => {}
                }
                self.dirty.push(key);
            }
            Event::Closed(conn) => {
                self.sessions.end(id, conn);
                self.handle_closed((id, conn));
            }
            Event::Opened { id: conn, .. } => self.take_offered((id, conn)),
            Event::Failed { id: conn, refusal } => self.refuse_offered((id, conn), refusal),
        }
    }

    fn handle_closed(&mut self, name: Name<Way>) {
        let Some(key) = self.names.remove(&name) else { return };
        match self.entries.get_mut(&key) {
            Some(Entry::Half(half)) => {
                (half.name, half.over) = (None, true);
                self.dirty.push(key);
            }
            Some(Entry::Bridge(bridge, reset)) => {
                bridge.end(name);
                let Some((rest, conn)) = bridge.rest() else {
                    self.entries.remove(&key);
                    return;
                };
                let Some((session, mut streams)) = self.sessions.session(rest) else { return };
                match *reset {
                    true => session.reset(&mut streams, conn, ResetReason::Aborted),
                    false => session.finish(&mut streams, conn),
                }
            }
            None => {}
        }
    }

    /// Opens the wired half from the mobile's own address (MHP-3), or from the base's.
    fn connect(&mut self, name: Name<Way>, target: &Target) {
        // A wired half that came along half-open goes on opening.
        if self.names.contains_key(&name) {
            return;
        }
        let Way::Mobile(mobile) = name.0 else {
            return self.refuse(name, Refusal::NetworkUnreachable);
        };
        let Target::Addr(SocketAddr::V4(remote)) = *target else {
            let refusal = match target {
                Target::Name(..) => Refusal::NameNotFound,
                Target::Addr(_) => Refusal::NetworkUnreachable,
            };
            return self.refuse(name, refusal);
        };
        let local = if self.setup.anchors { self.addr } else { mobile };
        let Some(ends) = self.free_ends(name.1, local, remote) else {
            return self.refuse(name, Refusal::TooMany);
        };
        let ports = Ports { local: ends.local.port(), remote: remote.port() };
        let iss = Seq(self.numbers.next_u64() as u32);
        let socket = Socket::connect(self.setup.wired, ports, iss, self.now);
        self.add(Half { connecting: true, ..Half::new(mobile, ends, socket, Some(name)) });
    }

    fn refuse(&mut self, (id, conn): Name<Way>, refusal: Refusal) {
        if let Some((session, mut streams)) = self.sessions.session(id) {
            session.refuse(&mut streams, conn, refusal);
        }
    }

    fn free_ends(&self, id: ConnId, local: Ipv4Addr, remote: SocketAddrV4) -> Option<WiredEnd> {
        if self.entries.len() >= WIRED_MAX {
            return None;
        }
        let first = (id.0 / 2 % u64::from(PORTS)) as u16;
        let ports = (0..PORTS).map(|n| FIRST_PORT + (first + n) % PORTS);
        let mut ends = ports.map(|port| WiredEnd { local: SocketAddrV4::new(local, port), remote });
        ends.find(|ends| !self.by_ends.contains_key(ends))
    }

    /// Passes on what can be passed on; whether anything was looked at.
    pub(super) fn attend(&mut self) -> bool {
        let Some(key) = self.dirty.pop() else { return false };
        let more = match self.entries.get_mut(&key) {
            Some(Entry::Half(half)) => {
                half.relay(&mut self.sessions);
                false
            }
            Some(Entry::Bridge(bridge, _)) => bridge.pump(&mut self.sessions),
            None => false,
        };
        self.dirty.extend(more.then_some(key));
        true
    }

    /// Sends what hops have to send, and adds to `out` what the wired halves have.
    pub(super) fn transmit(
        &mut self,
        ctx: &mut Context<'_>,
        scratch: &mut Scratch,
        out: &mut Vec<Packet>,
    ) {
        let now = ctx.now();
        self.sessions.transmit(ctx, self.addr, scratch);
        for (ends, reset) in self.resets.drain(..) {
            out.push(ctx.packet(*ends.local.ip(), *ends.remote.ip(), Body::Tcp(reset)));
        }
        let mut closed = Vec::new();
        for (key, half) in self.halves_mut() {
            let (src, dst) = (*half.ends.local.ip(), *half.ends.remote.ip());
            while let Some(segment) = half.socket.poll_transmit(now, scratch.room()) {
                let mut packet = ctx.packet(src, dst, Body::Tcp(segment));
                packet.set_bytes(&scratch.room()[..segment.len as usize]);
                out.push(packet);
            }
            if half.over && half.socket.connection().is_closed() {
                closed.push(key);
            }
        }
        for key in closed {
            self.take(key);
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        let halves = self.halves().filter_map(|half| half.socket.next_timeout());
        halves.chain(self.sessions.next_timeout()).min()
    }

    pub(super) fn handle_timeout(&mut self) {
        let now = self.now;
        self.sessions.handle_timeout(now);
        let mut due = Vec::new();
        for (key, half) in self.halves_mut() {
            if half.socket.next_timeout().is_some_and(|at| at <= now) {
                half.socket.handle_timeout(now);
                due.push(key);
            }
        }
        self.dirty.extend(due);
    }
}

/// Whose packets those between a base and a mobile are; its addresses tell the base by which link.
fn ends(here: Ipv4Addr, there: Ipv4Addr) -> Ends<'static> {
    Ends { here, there, beside: &[] }
}
