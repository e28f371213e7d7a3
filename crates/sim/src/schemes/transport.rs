//! The hop's transport at either end, whichever the scheme says, over packets of the network.

use core::net::{Ipv4Addr, SocketAddrV4};

use lasthop_hop::PacketLane;
use lasthop_hop::mobile_tcp;
use lasthop_hop::seal::Keypair;
use lasthop_hop::{
    AssociationEvent, AssociationId, BareBase, BareBounds, BareMobile, Base, BaseEnd, BaseLinks,
    CloseReason, HopConfig, Mobile, MobileEnd, MobileLink, PathId, Policy, RecvState, StreamError,
    StreamEvent, StreamId, StreamState, Streams, Transmit,
};
use lasthop_tcp as tcp;
use lasthop_units::{LinkEvent, Scheme, Seed, Time};
use lasthop_wire::mobile_tcp::ETHERTYPE;

use super::streams::TcpStreams;
use crate::net::{Body, Context, LinkId, Packet, Payload};

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

/// An end of the hop between one mobile and one base.
pub enum Hop<S, M> {
    /// TCP's.
    Tcp(Box<TcpStreams>),
    /// SRP's.
    Srp(Box<S>),
    /// Mobile TCP's; stations have their nodes' addresses.
    MobileTcp(Box<M>),
}

/// A mobile's end.
pub type MobileHop = Hop<Mobile<SocketAddrV4>, BareMobile<Ipv4Addr>>;

/// A base's end.
pub type BaseHop = Hop<Standing<Base<SocketAddrV4>>, Standing<BareBase<Ipv4Addr>>>;

/// A base's end for one mobile, and the association that stands.
pub struct Standing<B> {
    base: B,
    standing: Option<AssociationId>,
}

/// Whether the association, and with it all its streams, was lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Lost(pub(super) bool);

/// Whose packets they are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends<'a> {
    pub(super) here: Ipv4Addr,
    pub(super) there: Ipv4Addr,
    /// The links by which the association's paths after the first leave here; where none is known its
    /// packets go by this node's routes.
    pub(super) beside: &'a [LinkBeside],
}

/// A mobile's link beside the one that its routes know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkBeside {
    /// The mobile's address by this link.
    pub addr: Ipv4Addr,
    /// The link, from the mobile to a base.
    pub link: LinkId,
    /// The base that it leads to, and no other.
    pub base: Ipv4Addr,
}

impl Ends<'_> {
    /// The link of a path, if it is none that routes know.
    fn beside(&self, path: PathId) -> Option<LinkBeside> {
        let place = usize::from(path.0).checked_sub(1)?;
        self.beside.get(place).copied()
    }
}

/// How the hop's datagrams travel in the network.
trait Carrier: Copy {
    /// Who sent a packet; `None` if it is none of this carrier's.
    fn source(packet: &Packet) -> Option<Self>;

    /// A datagram that goes there from an address of the node's.
    fn packet(self, ctx: &mut Context<'_>, from: Ipv4Addr, datagram: &[u8]) -> Packet;
}

/// In UDP.
impl Carrier for SocketAddrV4 {
    fn source(packet: &Packet) -> Option<Self> {
        udp_source(packet)
    }

    fn packet(self, ctx: &mut Context<'_>, from: Ipv4Addr, datagram: &[u8]) -> Packet {
        udp_packet(ctx, Self::new(from, self.port()), self, datagram)
    }
}

/// As frames of Mobile TCP's.
impl Carrier for Ipv4Addr {
    fn source(packet: &Packet) -> Option<Self> {
        matches!(packet.body, Body::Frame { ethertype: ETHERTYPE }).then_some(packet.src)
    }

    fn packet(self, ctx: &mut Context<'_>, from: Ipv4Addr, datagram: &[u8]) -> Packet {
        let mut packet = ctx.packet(from, self, Body::Frame { ethertype: ETHERTYPE });
        packet.set_bytes(datagram);
        packet
    }
}

/// An end of an association.
trait End {
    type Address: Carrier;

    fn handle_datagram(&mut self, now: Time, from: Self::Address, datagram: &mut [u8]);

    fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit<Self::Address>>;

    fn next_timeout(&self) -> Option<Time>;

    fn handle_timeout(&mut self, now: Time);

    /// Takes note of what became of the association.
    fn take_events(&mut self) -> Lost;

    /// While no association stands there are none.
    fn streams(&self) -> Option<&dyn Streams>;

    fn streams_mut(&mut self) -> Option<&mut dyn Streams>;

    fn handle_packet(&mut self, now: Time, packet: &mut Packet) -> Lost {
        let from = Self::Address::source(packet);
        if let (Some(from), Some(bytes)) = (from, packet.bytes_mut()) {
            self.handle_datagram(now, from, bytes);
        }
        self.take_events()
    }

    fn take_timeout(&mut self, now: Time) -> Lost {
        self.handle_timeout(now);
        self.take_events()
    }

    fn transmit(&mut self, ctx: &mut Context<'_>, ends: Ends<'_>, room: &mut [u8]) {
        while let Some(Transmit { path, to, len }) = self.poll_transmit(ctx.now(), room) {
            let beside = ends.beside(path);
            let packet = to.packet(ctx, beside.map_or(ends.here, |b| b.addr), &room[..len]);
            // What the link does not take is lost, as on any network.
            let _ = ctx.send_by(beside.map(|b| b.link), packet);
        }
    }
}

impl<K: MobileLink<Address: Carrier>> End for MobileEnd<K> {
    type Address = K::Address;

    fn handle_datagram(&mut self, now: Time, from: K::Address, datagram: &mut [u8]) {
        self.handle_datagram(now, from, datagram);
    }

    fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit<K::Address>> {
        self.poll_transmit(now, out)
    }

    fn next_timeout(&self) -> Option<Time> {
        self.next_timeout()
    }

    fn handle_timeout(&mut self, now: Time) {
        self.handle_timeout(now);
    }

    fn take_events(&mut self) -> Lost {
        let mut lost = false;
        while let Some(event) = self.poll_association_event() {
            lost |= matches!(event, AssociationEvent::Lost(_));
        }
        Lost(lost)
    }

    fn streams(&self) -> Option<&dyn Streams> {
        Some(self)
    }

    fn streams_mut(&mut self) -> Option<&mut dyn Streams> {
        Some(self)
    }
}

impl<K: BaseLinks<Address: Carrier>> End for Standing<BaseEnd<K>> {
    type Address = K::Address;

    fn handle_datagram(&mut self, now: Time, from: K::Address, datagram: &mut [u8]) {
        self.base.handle_datagram(now, from, datagram);
    }

    fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit<K::Address>> {
        self.base.poll_transmit(now, out)
    }

    fn next_timeout(&self) -> Option<Time> {
        self.base.next_timeout()
    }

    fn handle_timeout(&mut self, now: Time) {
        self.base.handle_timeout(now);
    }

    fn take_events(&mut self) -> Lost {
        let Self { base, standing } = self;
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

    fn streams(&self) -> Option<&dyn Streams> {
        let association: &dyn Streams = self.base.association(self.standing?)?;
        Some(association)
    }

    fn streams_mut(&mut self) -> Option<&mut dyn Streams> {
        let association: &mut dyn Streams = self.base.association_mut(self.standing?)?;
        Some(association)
    }
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

    /// The hop's lane of packets, while its association stands.
    pub(super) fn lane(&mut self) -> Option<&mut PacketLane> {
        match self {
            Self::Srp(mobile) => mobile.packets(),
            Self::Tcp(_) | Self::MobileTcp(_) => None,
        }
    }

    /// Fixed hosts may open connections to that port: who asks for none needs not be asked (MOB-8).
    pub(super) fn listen(&mut self, port: u16) {
        if let Self::MobileTcp(mobile) = self {
            mobile.listen(port);
        }
    }

    pub(super) fn handle_link_event(&mut self, now: Time, path: PathId, event: LinkEvent) {
        match self {
            // Ordinary TCP listens to nobody.
            Self::Tcp(_) => {}
            Self::Srp(mobile) => mobile.handle_link_event(now, path, event),
            Self::MobileTcp(mobile) => mobile.handle_link_event(now, path, event),
        }
    }

    /// There is another link to the base. Only SRP uses more than one.
    pub(super) fn add_path(&mut self, now: Time, path: PathId, base: Ipv4Addr) {
        if let Self::Srp(mobile) = self {
            mobile.set_base_address(now, path, SocketAddrV4::new(base, SRP_PORT));
        }
    }
}

impl BaseHop {
    /// The base's end of a hop to one mobile.
    pub fn new(kind: &HopKind, seed: Seed) -> Self {
        let standing = None;
        match kind {
            HopKind::SplitTcp(config) | HopKind::ITcp(config) => {
                Self::Tcp(Box::new(TcpStreams::base(*config, seed.stream("iss"))))
            }
            HopKind::Srp(config) => {
                let base = Base::unsealed(config.clone(), seed);
                Self::Srp(Box::new(Standing { base, standing }))
            }
            HopKind::MobileTcp(config) => {
                let base = BareBase::new(config.clone(), BareBounds::default(), seed);
                Self::MobileTcp(Box::new(Standing { base, standing }))
            }
        }
    }

    /// The hop's lane of packets, while its association stands.
    pub(super) fn lane(&mut self) -> Option<&mut PacketLane> {
        match self {
            Self::Srp(end) => end.base.association_mut(end.standing?)?.packets(),
            Self::Tcp(_) | Self::MobileTcp(_) => None,
        }
    }

    /// Whether the mobile is known to accept connections on that port; `None` if it must be asked
    /// (MOB-8).
    pub fn listens(&self, port: u16) -> Option<bool> {
        match self {
            Self::MobileTcp(end) => end.base.listens(end.standing?, port),
            Self::Tcp(_) | Self::Srp(..) => None,
        }
    }
}

#[expect(private_bounds, reason = "both ends are aliases")]
impl<S: End, M: End> Hop<S, M> {
    /// Packets that are no segments ride on the hop, too.
    pub(super) fn has_lane(&self) -> bool {
        matches!(self, Self::Srp(_))
    }

    pub(super) fn handle_packet(&mut self, now: Time, packet: &mut Packet) -> Lost {
        match self {
            Self::Tcp(streams) => {
                if let Some(segment) = packet.tcp() {
                    let bytes = match packet.payload() {
                        Payload::Real(bytes) => bytes,
                        Payload::Virtual(_) => &[],
                    };
                    streams.handle_segment(now, segment, bytes);
                }
                Lost(false)
            }
            Self::Srp(end) => end.handle_packet(now, packet),
            Self::MobileTcp(end) => end.handle_packet(now, packet),
        }
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
    pub(super) fn transmit(
        &mut self,
        ctx: &mut Context<'_>,
        ends: Ends<'_>,
        scratch: &mut Scratch,
    ) {
        let room = scratch.room();
        match self {
            Self::Tcp(streams) => {
                while let Some(segment) = streams.poll_transmit(ctx.now(), room) {
                    let mut packet = ctx.packet(ends.here, ends.there, Body::Tcp(segment));
                    packet.set_bytes(&room[..segment.len as usize]);
                    // What the link does not take is lost, as on any network.
                    let _ = ctx.send(packet);
                }
            }
            Self::Srp(end) => end.transmit(ctx, ends, room),
            Self::MobileTcp(end) => end.transmit(ctx, ends, room),
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        match self {
            Self::Tcp(streams) => streams.next_timeout(),
            Self::Srp(end) => end.next_timeout(),
            Self::MobileTcp(end) => end.next_timeout(),
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Time) -> Lost {
        match self {
            Self::Tcp(streams) => {
                streams.handle_timeout(now);
                Lost(false)
            }
            Self::Srp(end) => end.take_timeout(now),
            Self::MobileTcp(end) => end.take_timeout(now),
        }
    }

    fn streams(&self) -> Option<&dyn Streams> {
        match self {
            Self::Tcp(streams) => Some(streams.as_ref()),
            Self::Srp(end) => end.streams(),
            Self::MobileTcp(end) => end.streams(),
        }
    }

    fn streams_mut(&mut self) -> Option<&mut dyn Streams> {
        match self {
            Self::Tcp(streams) => Some(streams.as_mut()),
            Self::Srp(end) => end.streams_mut(),
            Self::MobileTcp(end) => end.streams_mut(),
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

pub(super) fn send_udp(
    ctx: &mut Context<'_>,
    from: SocketAddrV4,
    to: SocketAddrV4,
    datagram: &[u8],
) {
    let packet = udp_packet(ctx, from, to, datagram);
    // What the link does not take is lost, as on any network.
    let _ = ctx.send(packet);
}

fn udp_packet(ctx: &Context<'_>, from: SocketAddrV4, to: SocketAddrV4, datagram: &[u8]) -> Packet {
    let body = Body::Udp { src_port: from.port(), dst_port: to.port() };
    let mut packet = ctx.packet(*from.ip(), *to.ip(), body);
    packet.set_bytes(datagram);
    packet
}

/// Who sent a UDP datagram.
pub(super) fn udp_source(packet: &Packet) -> Option<SocketAddrV4> {
    match packet.body {
        Body::Udp { src_port, .. } => Some(SocketAddrV4::new(packet.src, src_port)),
        Body::Tcp(_) | Body::Other { .. } | Body::Frame { .. } | Body::Compressed { .. } => None,
    }
}

/// While no association stands there are no streams.
impl<S: End, M: End> Streams for Hop<S, M> {
    fn open(&mut self) -> Result<StreamId, StreamError> {
        self.streams_mut().ok_or(StreamError::TooMany)?.open()
    }

    fn poll_event(&mut self) -> Option<StreamEvent> {
        self.streams_mut()?.poll_event()
    }

    fn send_space(&mut self, id: StreamId) -> Result<&mut [u8], StreamError> {
        self.streams_mut().ok_or(StreamError::Unknown)?.send_space(id)
    }

    fn commit(&mut self, id: StreamId, n: usize) {
        if let Some(streams) = self.streams_mut() {
            streams.commit(id, n);
        }
    }

    fn finish(&mut self, id: StreamId) {
        if let Some(streams) = self.streams_mut() {
            streams.finish(id);
        }
    }

    fn reset(&mut self, id: StreamId, code: u64) {
        if let Some(streams) = self.streams_mut() {
            streams.reset(id, code);
        }
    }

    fn received(&self, id: StreamId) -> &[u8] {
        self.streams().map_or(&[], |streams| streams.received(id))
    }

    fn consume(&mut self, id: StreamId, n: usize) {
        if let Some(streams) = self.streams_mut() {
            streams.consume(id, n);
        }
    }

    fn recv_state(&self, id: StreamId) -> RecvState {
        self.streams().map_or(RecvState::Open, |streams| streams.recv_state(id))
    }

    fn set_priority(&mut self, id: StreamId, priority: u32) {
        if let Some(streams) = self.streams_mut() {
            streams.set_priority(id, priority);
        }
    }

    fn set_client(&mut self, id: StreamId, client: u32) {
        if let Some(streams) = self.streams_mut() {
            streams.set_client(id, client);
        }
    }

    fn set_policy(&mut self, id: StreamId, policy: Policy) {
        if let Some(streams) = self.streams_mut() {
            streams.set_policy(id, policy);
        }
    }

    fn detach(&mut self, id: StreamId) -> Option<StreamState> {
        self.streams_mut()?.detach(id)
    }

    fn snapshot(&self, id: StreamId) -> Option<StreamState> {
        self.streams()?.snapshot(id)
    }

    fn arrived(&self, id: StreamId) -> Option<u64> {
        self.streams()?.arrived(id)
    }

    fn presumed(&self, id: StreamId) -> Option<u64> {
        self.streams()?.presumed(id)
    }
}
