//! Associations between bases: one for each session whose wired halves have stayed behind.

use core::net::{Ipv4Addr, SocketAddrV4};
use std::collections::BTreeMap;

use lasthop_hop::seal::Keypair;
use lasthop_hop::{AssociationEvent, AssociationId, Base, CloseReason, HopConfig, Mobile, Streams};
use lasthop_session::station::Farewell;
use lasthop_session::{Config, Session};
use lasthop_units::{Bytes, Duration, Seed, Time};

use super::names::Way;
use crate::net::{Body, Context, Packet};
use crate::schemes::transport::{Scratch, send_udp, udp_source};

/// The UDP port of associations between bases.
const LINK_PORT: u16 = 4435;
/// Ports that they are made from.
const FIRST_PORT: u16 = 5000;
const PORTS: u32 = 10_000;
/// What the base with a wired half may send ahead of the mobile's taking it: it has to move along when
/// the mobile moves on.
const WINDOW: Bytes = Bytes::from_kib(256);
/// Then a base is gone.
const SILENCE: Duration = Duration::from_secs(8);

/// An association that this base made.
struct Link {
    to: Ipv4Addr,
    hop: Mobile<SocketAddrV4>,
    session: Session,
    up: bool,
}

/// What happened to one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::schemes) enum LinkEvent {
    /// One that this base made stands.
    Up(u32),
    /// It is lost, or cannot come about.
    Lost(u32, String),
    /// One that another base made is lost.
    PeerLost(AssociationId),
}

/// All of them.
pub(in crate::schemes) struct Links {
    addr: Ipv4Addr,
    seed: Seed,
    made: u32,
    links: BTreeMap<u32, Link>,
    listener: Base<SocketAddrV4>,
    peers: BTreeMap<AssociationId, Session>,
    /// Last words of those that this base has ended.
    words: Vec<(SocketAddrV4, SocketAddrV4, Vec<u8>)>,
}

fn config() -> HopConfig {
    HopConfig {
        stream_window: WINDOW,
        stream_memory: WINDOW,
        silence_limit: SILENCE,
        keepalive: SILENCE / 2,
        ..HopConfig::default()
    }
}

fn port(n: u32) -> u16 {
    // The remainder is below PORTS.
    FIRST_PORT + (n % PORTS) as u16
}

impl Links {
    pub(super) fn new(addr: Ipv4Addr, seed: Seed) -> Self {
        Self {
            addr,
            listener: Base::unsealed(config(), seed.child("listener")),
            seed,
            made: 0,
            links: BTreeMap::new(),
            peers: BTreeMap::new(),
            words: Vec::new(),
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = Way> {
        let links = self.links.keys().map(|n| Way::Link(*n));
        links.chain(self.peers.keys().map(|id| Way::Peer(*id)))
    }

    /// Makes an association to another base, which comes up by itself.
    pub(super) fn open(&mut self, now: Time, to: Ipv4Addr) -> Way {
        let n = self.made;
        self.made += 1;
        let seed = self.seed.child(&format!("link {n}"));
        let claim = *Keypair::generate(seed.child("claim")).public();
        let there = SocketAddrV4::new(to, LINK_PORT);
        let hop = Mobile::unsealed(config(), claim, there, seed, now);
        let session = Session::mobile(Config::mobile());
        self.links.insert(n, Link { to, hop, session, up: false });
        Way::Link(n)
    }

    pub(super) fn is_up(&self, n: u32) -> bool {
        self.links.get(&n).is_some_and(|link| link.up)
    }

    /// Ends an association that this base made.
    pub(super) fn close(&mut self, now: Time, n: u32, farewell: Farewell) {
        let Some(mut link) = self.links.remove(&n) else { return };
        if farewell == Farewell::Said {
            link.hop.close(CloseReason::Shutdown);
            let mut scratch = Scratch::default();
            while let Some(t) = link.hop.poll_transmit(now, scratch.room()) {
                let here = SocketAddrV4::new(self.addr, port(n));
                self.words.push((here, t.to, scratch.room()[..t.len].to_vec()));
            }
        }
    }

    /// Closes an association that another base made, which is notified.
    pub(super) fn dismiss(&mut self, id: AssociationId) {
        if let Some(association) = self.listener.association_mut(id) {
            association.close(CloseReason::Shutdown);
        }
    }

    /// The base at the other end.
    pub(in crate::schemes) fn peer(&self, id: Way) -> Option<Ipv4Addr> {
        match id {
            Way::Peer(id) => Some(*self.listener.peer(id)?.ip()),
            Way::Link(n) => Some(self.links.get(&n)?.to),
            Way::Mobile(_) => None,
        }
    }

    /// Takes in a datagram to this base's own address. One that is for none of these is ignored.
    pub(in crate::schemes) fn handle_packet(&mut self, now: Time, packet: &mut Packet) {
        let Body::Udp { dst_port: to, .. } = packet.body else { return };
        let (Some(from), Some(bytes)) = (udp_source(packet), packet.bytes_mut()) else { return };
        if to == LINK_PORT {
            return self.listener.handle_datagram(now, from, bytes);
        }
        let mut links = self.links.iter_mut();
        if let Some((_, link)) = links.find(|(n, _)| port(**n) == to) {
            link.hop.handle_datagram(now, from, bytes);
        }
    }

    /// What happened, in order.
    pub(in crate::schemes) fn poll_event(&mut self) -> Option<LinkEvent> {
        while let Some((id, event)) = self.listener.poll_event() {
            match event {
                AssociationEvent::Up => {
                    self.peers.insert(id, Session::anchor(Config::base()));
                }
                AssociationEvent::Moved => {}
                AssociationEvent::Lost(_) => return Some(LinkEvent::PeerLost(id)),
            }
        }
        while self.listener.poll_touched().is_some() {}
        self.links.iter_mut().find_map(|(n, link)| {
            let event = link.hop.poll_association_event()?;
            link.up = matches!(event, AssociationEvent::Up | AssociationEvent::Moved);
            Some(match event {
                AssociationEvent::Lost(why) => LinkEvent::Lost(*n, format!("{why:?}")),
                AssociationEvent::Up | AssociationEvent::Moved => LinkEvent::Up(*n),
            })
        })
    }

    /// Nothing more is to be had over an association that another base made.
    pub(in crate::schemes) fn remove(&mut self, id: AssociationId) {
        self.peers.remove(&id);
    }

    pub(super) fn session(
        &mut self,
        id: Way,
    ) -> Option<(&mut Session, &mut (dyn Streams + 'static))> {
        match id {
            Way::Link(n) => {
                let link = self.links.get_mut(&n)?;
                Some((&mut link.session, &mut link.hop))
            }
            Way::Peer(id) => Some((self.peers.get_mut(&id)?, self.listener.association_mut(id)?)),
            Way::Mobile(_) => None,
        }
    }

    pub(super) fn peek(&self, id: Way) -> Option<&Session> {
        match id {
            Way::Link(n) => Some(&self.links.get(&n)?.session),
            Way::Peer(id) => self.peers.get(&id),
            Way::Mobile(_) => None,
        }
    }

    pub(super) fn transmit(&mut self, ctx: &mut Context<'_>, scratch: &mut Scratch) {
        let now = ctx.now();
        for (from, to, word) in self.words.drain(..) {
            send_udp(ctx, from, to, &word);
        }
        for (n, link) in &mut self.links {
            while let Some(t) = link.hop.poll_transmit(now, scratch.room()) {
                let from = SocketAddrV4::new(self.addr, port(*n));
                send_udp(ctx, from, t.to, &scratch.room()[..t.len]);
            }
        }
        while let Some(t) = self.listener.poll_transmit(now, scratch.room()) {
            let from = SocketAddrV4::new(self.addr, LINK_PORT);
            send_udp(ctx, from, t.to, &scratch.room()[..t.len]);
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        let links = self.links.values();
        let links = links.flat_map(|link| [link.hop.next_timeout(), link.session.next_timeout()]);
        let peers = self.peers.values().map(Session::next_timeout);
        links.chain(peers).chain([self.listener.next_timeout()]).flatten().min()
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        let due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        for link in self.links.values_mut() {
            if due(link.hop.next_timeout()) {
                link.hop.handle_timeout(now);
            }
            if due(link.session.next_timeout()) {
                link.session.handle_timeout(now, &mut link.hop);
            }
        }
        if due(self.listener.next_timeout()) {
            self.listener.handle_timeout(now);
        }
        for (id, session) in &mut self.peers {
            if due(session.next_timeout())
                && let Some(streams) = self.listener.association_mut(*id)
            {
                session.handle_timeout(now, streams);
            }
        }
    }
}
