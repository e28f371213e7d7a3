//! The hop's transport at either end, whichever the scheme says, over packets of the network.

use core::net::{Ipv4Addr, SocketAddrV4};

use lasthop_hop::CloseReason;
use lasthop_hop::mobile_tcp::{self, MobileTcp};
use lasthop_hop::seal::Keypair;
use lasthop_hop::{
    Association, AssociationEvent, AssociationId, BareBase, BareBounds, BareMobile, Base, BaseEnd,
    BaseLinks, HopConfig, Mobile, MobileEnd, MobileLink, Movable, RecvState, StreamError,
    StreamEvent, StreamId, StreamState, Streams,
};
use lasthop_tcp as tcp;
use lasthop_units::{LinkEvent, Scheme, Seed, Time};
use lasthop_wire::mobile_tcp::ETHERTYPE;

use super::streams::TcpStreams;
use crate::net::{Body, Context, Packet, Payload};

/// The UDP port of SRP, at bases and at mobiles.
pub const SRP_PORT: u16 = 4433;
/// Room for the longest datagram of a hop.
const LONGEST: usize = 16 * 1024;

/// What the hop's halves of connections run on.
#[derive(Clone, Debug)]
pub enum HopKind {
    /// TCP, a new connection after each handoff (SPL-1, SPL-3).
    SplitTcp(tcp::Config),
    /// TCP that goes on after a handoff with what it knew before (ITCP-3, ITCP-4).
    ITcp(tcp::Config),
    /// SRP, unsealed.
    Srp(HopConfig),
    /// Mobile TCP in frames of the hop, with no IP and unsealed (MOB-1).
    MobileTcp(mobile_tcp::Config),
}

impl HopKind {
    /// The scheme that it is part of.
    pub fn scheme(&self) -> Scheme {
        match self {
            Self::SplitTcp(_) => Scheme::SplitTcp,
            Self::ITcp(_) => Scheme::ITcp,
            Self::Srp(_) => Scheme::Srp,
            Self::MobileTcp(_) => Scheme::MobileTcp,
        }
    }

    /// What the hop's transport has learned of the path counts on the next hop, too.
    pub(super) fn keeps_estimates(&self) -> bool {
        matches!(self, Self::ITcp(_))
    }
}

/// A mobile's end of the hop to one base.
pub enum MobileHop {
    /// TCP's.
    Tcp(Box<TcpStreams>),
    /// SRP's.
    Srp(Box<Mobile<SocketAddrV4>>),
    /// Mobile TCP's; stations have their nodes' addresses.
    MobileTcp(Box<BareMobile<Ipv4Addr>>),
}

/// Whether the association, and with it all its streams, was lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Lost(pub(super) bool);

/// A base's end of the hop to one mobile.
pub enum BaseHop {
    /// TCP's.
    Tcp(Box<TcpStreams>),
    /// SRP's, and the association that stands.
    Srp(Box<Base<SocketAddrV4>>, Option<AssociationId>),
    /// Mobile TCP's, and the mobile's life that is known.
    MobileTcp(Box<BareBase<Ipv4Addr>>, Option<AssociationId>),
}

/// Whose packets they are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) here: Ipv4Addr,
    pub(super) there: Ipv4Addr,
}

impl MobileHop {
    /// A hop to the base at `base`; its handshake, if it has one, begins at once.
    pub fn new(kind: &HopKind, base: Ipv4Addr, seed: Seed, now: Time) -> Self {
        match kind {
            HopKind::SplitTcp(config) | HopKind::ITcp(config) => {
                Self::Tcp(Box::new(TcpStreams::mobile(*config, seed.stream("iss"))))
            }
            HopKind::Srp(config) => {
                let claim = *Keypair::generate(seed.child("claim")).public();
                let base = SocketAddrV4::new(base, SRP_PORT);
                Self::Srp(Box::new(Mobile::unsealed(config.clone(), claim, base, seed, now)))
            }
            HopKind::MobileTcp(config) => {
                Self::MobileTcp(Box::new(BareMobile::new(config.clone(), base, seed, now)))
            }
        }
    }

    /// Fixed hosts may open connections to that port: who asks for none needs not be asked (MOB-8).
    pub(super) fn listen(&mut self, port: u16) {
        if let Self::MobileTcp(mobile) = self {
            mobile.listen(port);
        }
    }

    pub(super) fn handle_packet(&mut self, now: Time, packet: &mut Packet) -> Lost {
        match self {
            Self::Tcp(streams) => handle_segment(streams, now, packet),
            Self::Srp(mobile) => {
                let from = udp_source(packet);
                if let (Some(from), Some(bytes)) = (from, packet.bytes_mut()) {
                    mobile.handle_datagram(now, from, bytes);
                }
                return take_lost(mobile.as_mut());
            }
            Self::MobileTcp(mobile) => {
                let from = station(packet);
                if let (Some(from), Some(bytes)) = (from, packet.bytes_mut()) {
                    mobile.handle_datagram(now, from, bytes);
                }
                return take_lost(mobile.as_mut());
            }
        }
        Lost(false)
    }

    /// What TCP behind a stream has learned of the path.
    pub(super) fn estimates(&self, id: StreamId) -> Option<tcp::Estimates> {
        match self {
            Self::Tcp(streams) => streams.estimates(id),
            Self::Srp(_) | Self::MobileTcp(_) => None,
        }
    }

    /// Lets the TCP behind a stream take that for its own.
    pub(super) fn adopt(&mut self, id: StreamId, estimates: tcp::Estimates) {
        if let Self::Tcp(streams) = self {
            streams.adopt(id, estimates);
        }
    }

    /// Sends all that is to be sent.
    pub(super) fn transmit(&mut self, ctx: &mut Context<'_>, ends: Ends, scratch: &mut Scratch) {
        let now = ctx.now();
        match self {
            Self::Tcp(streams) => send_segments(streams, ctx, ends, scratch),
            Self::Srp(mobile) => {
                while let Some(t) = mobile.poll_transmit(now, &mut scratch.0) {
                    send_datagram(ctx, ends.here, t.to, &scratch.0[..t.len]);
                }
            }
            Self::MobileTcp(mobile) => {
                while let Some(t) = mobile.poll_transmit(now, &mut scratch.0) {
                    send_frame(ctx, ends.here, t.to, &scratch.0[..t.len]);
                }
            }
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        match self {
            Self::Tcp(streams) => streams.next_timeout(),
            Self::Srp(mobile) => mobile.next_timeout(),
            Self::MobileTcp(mobile) => mobile.next_timeout(),
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Time) -> Lost {
        match self {
            Self::Tcp(streams) => streams.handle_timeout(now),
            Self::Srp(mobile) => {
                mobile.handle_timeout(now);
                return take_lost(mobile.as_mut());
            }
            Self::MobileTcp(mobile) => {
                mobile.handle_timeout(now);
                return take_lost(mobile.as_mut());
            }
        }
        Lost(false)
    }

    pub(super) fn handle_link_event(&mut self, now: Time, event: LinkEvent) {
        match self {
            // Ordinary TCP listens to nobody.
            Self::Tcp(_) => {}
            Self::Srp(mobile) => mobile.handle_link_event(now, event),
            Self::MobileTcp(mobile) => mobile.handle_link_event(now, event),
        }
    }
}

impl BaseHop {
    /// The base's end of a hop to one mobile.
    pub fn new(kind: &HopKind, seed: Seed) -> Self {
        match kind {
            HopKind::SplitTcp(config) | HopKind::ITcp(config) => {
                Self::Tcp(Box::new(TcpStreams::base(*config, seed.stream("iss"))))
            }
            HopKind::Srp(config) => Self::Srp(Box::new(Base::unsealed(config.clone(), seed)), None),
            HopKind::MobileTcp(config) => {
                let base = BareBase::new(config.clone(), BareBounds::default(), seed);
                Self::MobileTcp(Box::new(base), None)
            }
        }
    }

    pub(super) fn handle_packet(&mut self, now: Time, packet: &mut Packet) -> Lost {
        match self {
            Self::Tcp(streams) => handle_segment(streams, now, packet),
            Self::Srp(base, standing) => {
                let from = udp_source(packet);
                if let (Some(from), Some(bytes)) = (from, packet.bytes_mut()) {
                    base.handle_datagram(now, from, bytes);
                }
                return note_associations(base.as_mut(), standing);
            }
            Self::MobileTcp(base, standing) => {
                let from = station(packet);
                if let (Some(from), Some(bytes)) = (from, packet.bytes_mut()) {
                    base.handle_datagram(now, from, bytes);
                }
                return note_associations(base.as_mut(), standing);
            }
        }
        Lost(false)
    }

    /// What TCP behind a stream has learned of the path.
    pub(super) fn estimates(&self, id: StreamId) -> Option<tcp::Estimates> {
        match self {
            Self::Tcp(streams) => streams.estimates(id),
            Self::Srp(..) | Self::MobileTcp(..) => None,
        }
    }

    /// Lets the TCP behind a stream take that for its own.
    pub(super) fn adopt(&mut self, id: StreamId, estimates: tcp::Estimates) {
        if let Self::Tcp(streams) = self {
            streams.adopt(id, estimates);
        }
    }

    pub(super) fn transmit(&mut self, ctx: &mut Context<'_>, ends: Ends, scratch: &mut Scratch) {
        let now = ctx.now();
        match self {
            Self::Tcp(streams) => send_segments(streams, ctx, ends, scratch),
            Self::Srp(base, _) => {
                while let Some(t) = base.poll_transmit(now, &mut scratch.0) {
                    send_datagram(ctx, ends.here, t.to, &scratch.0[..t.len]);
                }
            }
            Self::MobileTcp(base, _) => {
                while let Some(t) = base.poll_transmit(now, &mut scratch.0) {
                    send_frame(ctx, ends.here, t.to, &scratch.0[..t.len]);
                }
            }
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        match self {
            Self::Tcp(streams) => streams.next_timeout(),
            Self::Srp(base, _) => base.next_timeout(),
            Self::MobileTcp(base, _) => base.next_timeout(),
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Time) -> Lost {
        match self {
            Self::Tcp(streams) => streams.handle_timeout(now),
            Self::Srp(base, standing) => {
                base.handle_timeout(now);
                return note_associations(base.as_mut(), standing);
            }
            Self::MobileTcp(base, standing) => {
                base.handle_timeout(now);
                return note_associations(base.as_mut(), standing);
            }
        }
        Lost(false)
    }

    /// Whether the mobile is known to accept connections on that port; `None` if it must be asked
    /// (MOB-8).
    pub fn listens(&self, port: u16) -> Option<bool> {
        match self {
            Self::MobileTcp(base, standing) => base.listens((*standing)?, port),
            Self::Tcp(_) | Self::Srp(..) => None,
        }
    }

    fn association(&self) -> Option<&Association<SocketAddrV4>> {
        let Self::Srp(base, Some(standing)) = self else { return None };
        base.associations().find(|(id, _, _)| id == standing).map(|(_, _, found)| found)
    }

    fn connections(&self) -> Option<&MobileTcp> {
        let Self::MobileTcp(base, Some(standing)) = self else { return None };
        Some(base.association(*standing)?.transport())
    }

    fn streams(&mut self) -> Option<&mut dyn Movable> {
        match self {
            Self::Tcp(streams) => Some(streams.as_mut()),
            Self::Srp(base, standing) => {
                let found = base.association_mut((*standing)?)?;
                Some(found)
            }
            Self::MobileTcp(base, standing) => {
                let found = base.association_mut((*standing)?)?;
                Some(found)
            }
        }
    }
}

/// Room for one datagram at a time.
pub(super) struct Scratch(Box<[u8]>);

impl Default for Scratch {
    fn default() -> Self {
        Self(vec![0; LONGEST].into_boxed_slice())
    }
}

impl Scratch {
    pub(super) fn room(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

fn take_lost<K: MobileLink>(mobile: &mut MobileEnd<K>) -> Lost {
    let mut lost = false;
    while let Some(event) = mobile.poll_association_event() {
        lost |= matches!(event, AssociationEvent::Lost(_));
    }
    Lost(lost)
}

fn note_associations<K: BaseLinks>(
    base: &mut BaseEnd<K>,
    standing: &mut Option<AssociationId>,
) -> Lost {
    let mut lost = false;
    while let Some((id, event)) = base.poll_event() {
        match event {
            AssociationEvent::Up => *standing = Some(id),
            // The mobile has come back with a new one, on which it says what becomes of connections.
            AssociationEvent::Lost(CloseReason::Replaced) => {
                standing.take_if(|standing| *standing == id);
            }
            AssociationEvent::Lost(_) if *standing == Some(id) => {
                lost = true;
                *standing = None;
            }
            AssociationEvent::Lost(_) | AssociationEvent::Moved => {}
        }
    }
    while base.poll_touched().is_some() {}
    Lost(lost)
}

fn handle_segment(streams: &mut TcpStreams, now: Time, packet: &Packet) {
    if let (Some(segment), Payload::Real(bytes)) = (packet.tcp(), packet.payload()) {
        streams.handle_segment(now, segment, bytes);
    } else if let Some(segment) = packet.tcp() {
        streams.handle_segment(now, segment, &[]);
    }
}

fn send_segments(
    streams: &mut TcpStreams,
    ctx: &mut Context<'_>,
    ends: Ends,
    scratch: &mut Scratch,
) {
    let now = ctx.now();
    while let Some(segment) = streams.poll_transmit(now, &mut scratch.0) {
        let len = segment.len as usize;
        send_segment(ctx, ends, segment, &scratch.0[..len]);
    }
}

pub(super) fn send_segment(
    ctx: &mut Context<'_>,
    ends: Ends,
    segment: lasthop_wire::tcp::Segment,
    payload: &[u8],
) {
    let mut packet = ctx.packet(ends.here, ends.there, Body::Tcp(segment));
    packet.set_bytes(payload);
    // What the link does not take is lost, as on any network.
    let _ = ctx.send(packet);
}

pub(super) fn send_datagram(
    ctx: &mut Context<'_>,
    here: Ipv4Addr,
    to: SocketAddrV4,
    datagram: &[u8],
) {
    send_udp(ctx, SocketAddrV4::new(here, to.port()), to, datagram);
}

pub(super) fn send_udp(
    ctx: &mut Context<'_>,
    from: SocketAddrV4,
    to: SocketAddrV4,
    datagram: &[u8],
) {
    let body = Body::Udp { src_port: from.port(), dst_port: to.port() };
    let mut packet = ctx.packet(*from.ip(), *to.ip(), body);
    packet.set_bytes(datagram);
    let _ = ctx.send(packet);
}

/// Sends a packet of Mobile TCP's as it is.
fn send_frame(ctx: &mut Context<'_>, here: Ipv4Addr, to: Ipv4Addr, bytes: &[u8]) {
    let mut packet = ctx.packet(here, to, Body::Frame { ethertype: ETHERTYPE });
    packet.set_bytes(bytes);
    let _ = ctx.send(packet);
}

/// Which station of the hop sent a frame of Mobile TCP's.
fn station(packet: &Packet) -> Option<Ipv4Addr> {
    matches!(packet.body, Body::Frame { ethertype: ETHERTYPE }).then_some(packet.src)
}

/// Who sent a UDP datagram.
pub(super) fn udp_source(packet: &Packet) -> Option<SocketAddrV4> {
    match packet.body {
        Body::Udp { src_port, .. } => Some(SocketAddrV4::new(packet.src, src_port)),
        Body::Tcp(_) | Body::Other { .. } | Body::Frame { .. } | Body::Compressed { .. } => None,
    }
}

lasthop_hop::streams_of!([] MobileHop, Movable, |it| it.inner(), it.inner_mut());

impl MobileHop {
    fn inner(&self) -> &dyn Movable {
        match self {
            Self::Tcp(streams) => streams.as_ref(),
            Self::Srp(mobile) => mobile.as_ref(),
            Self::MobileTcp(mobile) => mobile.as_ref(),
        }
    }

    fn inner_mut(&mut self) -> &mut dyn Movable {
        match self {
            Self::Tcp(streams) => streams.as_mut(),
            Self::Srp(mobile) => mobile.as_mut(),
            Self::MobileTcp(mobile) => mobile.as_mut(),
        }
    }
}

/// While no association stands there are no streams.
impl Streams for BaseHop {
    fn open(&mut self) -> Result<StreamId, StreamError> {
        self.streams().ok_or(StreamError::TooMany)?.open()
    }

    fn poll_event(&mut self) -> Option<StreamEvent> {
        self.streams()?.poll_event()
    }

    fn send_space(&mut self, id: StreamId) -> Result<&mut [u8], StreamError> {
        self.streams().ok_or(StreamError::Unknown)?.send_space(id)
    }

    fn commit(&mut self, id: StreamId, n: usize) {
        if let Some(streams) = self.streams() {
            streams.commit(id, n);
        }
    }

    fn finish(&mut self, id: StreamId) {
        if let Some(streams) = self.streams() {
            streams.finish(id);
        }
    }

    fn reset(&mut self, id: StreamId, code: u64) {
        if let Some(streams) = self.streams() {
            streams.reset(id, code);
        }
    }

    fn received(&self, id: StreamId) -> &[u8] {
        match self {
            Self::Tcp(streams) => streams.received(id),
            Self::Srp(..) => self.association().map_or(&[], |a| a.received(id)),
            Self::MobileTcp(..) => self.connections().map_or(&[], |c| c.received(id)),
        }
    }

    fn consume(&mut self, id: StreamId, n: usize) {
        if let Some(streams) = self.streams() {
            streams.consume(id, n);
        }
    }

    fn recv_state(&self, id: StreamId) -> RecvState {
        match self {
            Self::Tcp(streams) => streams.recv_state(id),
            Self::Srp(..) => self.association().map_or(RecvState::Open, |a| a.recv_state(id)),
            Self::MobileTcp(..) => self.connections().map_or(RecvState::Open, |c| c.recv_state(id)),
        }
    }

    fn set_priority(&mut self, id: StreamId, priority: u32) {
        if let Some(streams) = self.streams() {
            streams.set_priority(id, priority);
        }
    }
}

impl Movable for BaseHop {
    fn detach(&mut self, id: StreamId) -> Option<StreamState> {
        self.streams()?.detach(id)
    }

    fn snapshot(&self, id: StreamId) -> Option<StreamState> {
        match self {
            Self::Tcp(streams) => streams.snapshot(id),
            Self::Srp(..) => self.association()?.snapshot(id),
            Self::MobileTcp(..) => self.connections()?.snapshot(id),
        }
    }
}
