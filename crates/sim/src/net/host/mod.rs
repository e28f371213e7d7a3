//! A host: TCP connections by their four-tuples, UDP ports, and an application on top.

mod app;
mod flow;
mod key;
mod multipath;
mod sockets;
mod stack;

use core::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use lasthop_tcp as tcp;
use lasthop_tcp::multipath::Scheduler;
use lasthop_units::{LinkEvent, Seed, Time};
use lasthop_wire::agent;

pub use app::{App, Ending, Event, Io, OutgoingDatagram};
use key::Key;
pub use sockets::Sockets;
use stack::Stack;

use crate::net::{Body, Context, LinkId, Node, Packet, Payload};

/// Names a connection of a host, and never another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlowId {
    slot: u32,
    generation: u32,
}

impl FlowId {
    /// The connection of a session's that has this number.
    pub(crate) const fn carried(number: u64) -> Self {
        Self { slot: number as u32, generation: (number >> 32) as u32 }
    }

    /// The number of the session's connection.
    pub(crate) const fn as_carried(self) -> u64 {
        (self.generation as u64) << 32 | self.slot as u64
    }

    /// Its place among the host's connections: small, and used again after its end.
    pub const fn slot(self) -> usize {
        self.slot as usize
    }
}

/// Whether a connection's bytes exist. Both ends must be of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// Only their number.
    Virtual,
    /// Every one of them.
    Real,
}

/// What a host did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct HostStats {
    /// Connections opened by the host.
    pub opened: u64,
    /// Connections accepted.
    pub accepted: u64,
    /// Connections refused because there were too many.
    pub refused: u64,
    /// Resets that answered segments for nobody.
    pub resets_sent: u64,
    /// Packets that came in damaged (LNK-10).
    pub corrupted: u64,
    /// Packets for another host, for no port or of no known protocol.
    pub stray: u64,
    /// Packets taken out of a tunnel.
    pub decapsulated: u64,
}

/// The most connections that a host holds at once.
const MOST_FLOWS: usize = 1 << 16;

/// An IP host with an application.
///
/// Every packet goes by the host's forwarding table: a fixed host needs a default route only.
pub struct Host<A> {
    stack: Stack,
    app: A,
}

impl<A: App> Host<A> {
    /// A host at `addr` whose initial sequence numbers follow from `seed`.
    pub fn new(addr: Ipv4Addr, seed: Seed, app: A) -> Self {
        Self { stack: Stack::new(addr, seed.stream("iss"), MOST_FLOWS), app }
    }

    /// Encrypts the packets of connections from or to this port, as IPsec between two hosts does:
    /// agents on the way can read nothing of them. For connections that are opened or accepted from
    /// then on.
    pub fn encrypt(&mut self, port: u16) {
        self.stack.encrypt(port);
    }

    /// Connections are multipath from now on, those that are opened to a peer with further ways and those that
    /// such a peer opens.
    pub fn use_multipath(&mut self, scheduler: Scheduler) {
        self.stack.ways.scheduler = Some(scheduler);
    }

    /// There is another way to the peer that has this address: from one of this host's to another of the peer's.
    /// Whoever opens a connection opens a subflow by each.
    pub fn add_way(&mut self, peer: Ipv4Addr, (local, remote): (Ipv4Addr, Ipv4Addr)) {
        self.stack.ways.further.entry(peer).or_default().push((local, remote));
    }

    /// The host has another address, and what it sends from there leaves by this link.
    pub fn add_address(&mut self, addr: Ipv4Addr, link: LinkId) {
        self.stack.ways.links.insert(addr, link);
    }

    /// The application.
    pub fn app(&self) -> &A {
        &self.app
    }

    /// What the host did.
    pub fn stats(&self) -> &HostStats {
        &self.stack.stats
    }

    /// A connection, to watch.
    pub fn connection(&self, flow: FlowId) -> Option<&tcp::Connection> {
        self.stack.connection(flow)
    }

    /// What a connection did, on all of its paths.
    pub fn connection_stats(&self, flow: FlowId) -> Option<tcp::Stats> {
        Sockets::stats(&self.stack, flow)
    }

    /// All connections, to watch.
    pub fn connections(&self) -> impl Iterator<Item = (FlowId, &tcp::Connection)> + '_ {
        self.stack.flows.iter().enumerate().filter_map(|(slot, flow)| {
            let flow = flow.as_ref()?;
            Some((self.stack.id(slot as u32), flow.machine.connection()))
        })
    }

    /// The flow that is to be attended to first, if any.
    #[inline]
    fn handle_tcp(&mut self, ctx: &mut Context<'_>, packet: &Packet) -> Option<u32> {
        let segment = packet.tcp()?;
        let key = Key::new((packet.dst, segment.dst_port), (packet.src, segment.src_port));
        if let Some(slot) = self.stack.find(key) {
            if let Some(Some(flow)) = self.stack.flows.get_mut(slot as usize) {
                flow.machine.handle_segment(ctx.now(), key, segment, packet);
                flow.dirty = true;
            }
            return Some(slot);
        } else if let Some((flow, port)) = self.stack.handle_stranger(ctx, key, segment) {
            self.notify(ctx, flow, Event::Accepted { port });
        }
        None
    }

    fn handle_udp(&mut self, ctx: &Context<'_>, port: u16, packet: &Packet) {
        match bad_state(port, packet) {
            Some(key) => self.stack.handle_bad_state(ctx.now(), key),
            None => {
                let taken = match (packet.body, packet.payload()) {
                    (Body::Udp { src_port, .. }, Payload::Real(bytes)) => {
                        let from = SocketAddrV4::new(packet.src, src_port);
                        self.app.handle_datagram(ctx.now(), from, port, bytes)
                    }
                    _ => false,
                };
                self.stack.stats.stray += u64::from(!taken);
            }
        }
    }

    /// Sends what the application has to send beside its connections.
    #[inline]
    fn send_datagrams(&mut self, ctx: &mut Context<'_>) {
        while let Some(datagram) = self.app.poll_datagram(ctx.now()) {
            send_datagram(ctx, self.stack.addr, &datagram);
        }
    }

    #[inline]
    fn notify(&mut self, ctx: &mut Context<'_>, flow: FlowId, event: Event) {
        let Self { stack, app, .. } = self;
        app.handle_event(&mut Io { stack, ctx }, flow, event);
    }

    /// Attends to every flow to which something happened, until nothing more happens.
    #[inline]
    fn process_events(&mut self, ctx: &mut Context<'_>) {
        while let Some(slot) = self.stack.dirty.pop() {
            self.attend(ctx, slot);
        }
        self.send_datagrams(ctx);
    }

    /// Tells the application what happened, then sends what is due.
    fn attend(&mut self, ctx: &mut Context<'_>, slot: u32) {
        let Some(Some(flow)) = self.stack.flows.get_mut(slot as usize) else { return };
        let closed = flow.machine.has_events() && self.handle_events(ctx, slot);
        self.report_readiness(ctx, slot);
        let Some(Some(flow)) = self.stack.flows.get_mut(slot as usize) else { return };
        flow.dirty = false;
        if !self.stack.ways.further.is_empty() {
            self.stack.open_subflows(ctx.now(), slot);
        }
        let Stack { flows, ways, scratch, .. } = &mut self.stack;
        let Some(Some(flow)) = flows.get_mut(slot as usize) else { return };
        let whose = (&flow.key, flow.encrypted);
        flow.machine.transmit(ctx, whose, ways, scratch);
        if let Some(at) = flow.machine.next_timeout() {
            self.stack.hasten_timer(slot, at);
        }
        if closed {
            self.close(ctx, slot);
        }
    }

    /// Tells the application what happened to a flow; whether it is over.
    #[inline(never)]
    fn handle_events(&mut self, ctx: &mut Context<'_>, slot: u32) -> bool {
        let id = self.stack.id(slot);
        let mut closed = false;
        while let Some(event) = self.poll_event(slot) {
            closed |= event == tcp::Event::Closed;
            match event {
                tcp::Event::Connected => self.notify(ctx, id, Event::Connected),
                tcp::Event::PeerFinished => {
                    self.report_readiness(ctx, slot);
                    self.notify(ctx, id, Event::PeerFinished);
                }
                tcp::Event::Finished => self.notify(ctx, id, Event::Finished),
                tcp::Event::Reset => self.note(slot, Ending::Reset),
                tcp::Event::GaveUp => self.note(slot, Ending::GaveUp),
                tcp::Event::Closed => {}
            }
        }
        closed
    }

    #[cold]
    fn close(&mut self, ctx: &mut Context<'_>, slot: u32) {
        if let Some(Some(flow)) = self.stack.flows.get(slot as usize) {
            let ending = flow.ending;
            self.notify(ctx, self.stack.id(slot), Event::Closed(ending));
        }
        self.stack.remove(slot);
    }

    fn poll_event(&mut self, slot: u32) -> Option<tcp::Event> {
        self.stack.flows.get_mut(slot as usize)?.as_mut()?.machine.poll_event()
    }

    fn note(&mut self, slot: u32, ending: Ending) {
        if let Some(Some(flow)) = self.stack.flows.get_mut(slot as usize) {
            flow.ending = ending;
        }
    }

    /// Says what can be read and written.
    #[inline]
    fn report_readiness(&mut self, ctx: &mut Context<'_>, slot: u32) {
        let Some(Some(flow)) = self.stack.flows.get_mut(slot as usize) else { return };
        let readable = flow.machine.readable().get() > 0;
        let writable = flow.blocked && flow.machine.is_writable();
        if readable {
            let id = self.stack.id(slot);
            self.notify(ctx, id, Event::Readable);
        }
        if writable {
            if let Some(Some(flow)) = self.stack.flows.get_mut(slot as usize) {
                flow.blocked = false;
            }
            let id = self.stack.id(slot);
            self.notify(ctx, id, Event::Writable);
        }
    }
}

/// The connection, as the packet's receiver names it, whose hop an agent says to be bad (EBS-1).
fn bad_state(port: u16, packet: &Packet) -> Option<Key> {
    let (agent::PORT, Payload::Real(bytes)) = (port, packet.payload()) else { return None };
    let Ok(agent::Message::BadState { connection }) = agent::Message::parse(bytes) else {
        return None;
    };
    let (SocketAddr::V4(fixed), SocketAddr::V4(mobile)) = (connection.fixed, connection.mobile)
    else {
        return None;
    };
    let (local, remote) = if *fixed.ip() == packet.dst { (fixed, mobile) } else { (mobile, fixed) };
    Some(Key::new((*local.ip(), local.port()), (*remote.ip(), remote.port())))
}

/// Sends a UDP datagram from this host; what the link does not take is lost, as on any network.
pub(crate) fn send_datagram(ctx: &mut Context<'_>, from: Ipv4Addr, datagram: &OutgoingDatagram) {
    let body = Body::Udp { src_port: datagram.from, dst_port: datagram.to.port() };
    let mut packet = ctx.packet(from, *datagram.to.ip(), body);
    packet.set_bytes(&datagram.bytes);
    let _ = ctx.send(packet);
}

impl<A: App> Node for Host<A> {
    #[inline]
    fn handle_packet(&mut self, ctx: &mut Context<'_>, _link: LinkId, mut packet: Packet) {
        if packet.corrupted {
            self.stack.stats.corrupted += 1;
            return;
        }
        if packet.tunnel.is_some() {
            self.stack.unwrap(&mut packet);
        }
        if packet.tunnel.is_some() || !self.stack.is_own(packet.dst) {
            self.stack.stats.stray += 1;
            return;
        }
        let mut first = None;
        match packet.body {
            Body::Tcp(_) => first = self.handle_tcp(ctx, &packet),
            Body::Udp { dst_port, .. } => self.handle_udp(ctx, dst_port, &packet),
            Body::Other { .. } | Body::Frame { .. } | Body::Compressed { .. } => {
                self.stack.stats.stray += 1;
            }
        }
        drop(packet);
        if let Some(slot) = first {
            self.attend(ctx, slot);
        }
        self.process_events(ctx);
    }

    #[inline]
    fn next_timeout(&self) -> Option<Time> {
        let app = self.app.next_timeout().unwrap_or(Time::NEVER);
        Some(app.min(self.stack.next_timeout())).filter(|&at| at != Time::NEVER)
    }

    fn handle_timeout(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.now();
        self.stack.handle_timeout(now);
        if self.app.next_timeout().is_some_and(|at| at <= now) {
            let Self { stack, app, .. } = self;
            app.handle_timeout(&mut Io { stack, ctx });
        }
        self.process_events(ctx);
    }

    /// Every connection is notified: the link below is the host's only way out (LNK-14).
    fn handle_link_event(&mut self, ctx: &mut Context<'_>, _link: LinkId, event: LinkEvent) {
        let Self { stack, app, .. } = self;
        stack.report_link_event(ctx, event);
        app.handle_link_event(&mut Io { stack, ctx }, event);
        self.process_events(ctx);
    }
}
