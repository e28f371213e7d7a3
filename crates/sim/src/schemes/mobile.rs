//! A mobile host whose connections a session carries (MHP-1, MHP-2): applications see what they
//! would see of a host.

use core::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use lasthop_hop::PathId;
use lasthop_session::handoff::{self, Broken, MobileEvent};
use lasthop_session::{
    self as session, ConnId, Event as Told, Opening, RecvState, Refusal, ResetReason, Session,
    Target,
};
use lasthop_tcp::{self as tcp, Estimates};
use lasthop_units::{Bytes, Duration, LinkEvent, Seed, Time};

use super::moved;
use super::transport::{Ends, HopKind, LinkBeside, Lost, MobileHop, Scratch, send_udp, udp_source};
use super::{BaseNotice, Carriage, HANDOFF_PORT, SRP_PORT, lane, session_of};
use crate::content::Content as Bytestream;
use crate::net::host::{App, Content, Ending, Event, FlowId, Io, Sockets, send_datagram};
use crate::net::{Body, Context, LinkId, Node, Packet};

/// How a mobile is helped.
#[derive(Clone, Debug)]
pub struct MobileConfig {
    /// What runs on the hop.
    pub hop: HopKind,
    /// How its connections and packets are carried there.
    pub carriage: Carriage,
    /// Bounds of its session.
    pub session: session::Config,
    /// Patience of handoffs.
    pub handoff: handoff::Config,
}

/// One handoff, as the mobile saw it (MET-12).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handoff {
    /// The mobile was notified of its new base.
    pub told: Time,
    /// The session went on; none if it has not.
    pub resumed: Option<Time>,
}

impl Handoff {
    /// What the session's own part of the handoff took.
    pub fn latency(&self) -> Option<Duration> {
        self.resumed.map(|t| t.since(self.told))
    }
}

/// A mobile host with an application.
pub struct MobileStation<A> {
    carried: Carried,
    app: A,
}

/// The session and what it runs on.
struct Carried {
    addr: Ipv4Addr,
    config: MobileConfig,
    seed: Seed,
    base: Ipv4Addr,
    /// Links to bases beside the one that routes know, in the order of the hop's paths.
    beside: Vec<LinkBeside>,
    hop: MobileHop,
    hops: u64,
    session: Session,
    handoff: handoff::Mobile<SocketAddr>,
    handoffs: Vec<Handoff>,
    broken: Option<Broken>,
    flows: BTreeMap<ConnId, Flow>,
    /// Ports that fixed hosts may open connections to (MHP-6).
    listeners: BTreeSet<u16>,
    /// What the hop before knew, until its connections are reopened.
    estimates: BTreeMap<ConnId, Estimates>,
    events: VecDeque<(FlowId, Event)>,
    now: Time,
    scratch: Scratch,
    out: Vec<u8>,
}

/// What is remembered of a connection.
struct Flow {
    /// A virtual stream's bytes, and how many of them were made up.
    content: Bytestream,
    made: u64,
    ended: bool,
    blocked: bool,
    ending: Ending,
}

impl<A: App> MobileStation<A> {
    /// A mobile at `addr` in the cell of `base`, with an application.
    pub fn new(addr: Ipv4Addr, base: Ipv4Addr, config: MobileConfig, seed: Seed, app: A) -> Self {
        let hop = MobileHop::new(&config.hop, base, seed.child("hop 0"), Time::ZERO);
        let first = SocketAddr::V4(SocketAddrV4::new(base, HANDOFF_PORT));
        let carried = Carried {
            addr,
            seed,
            base,
            beside: Vec::new(),
            hop,
            hops: 0,
            session: {
                let mut session = Session::mobile(config.session);
                session.set_listening(true);
                session
            },
            handoff: handoff::Mobile::new(config.handoff, session_of(addr), first),
            config,
            handoffs: Vec::new(),
            broken: None,
            flows: BTreeMap::new(),
            listeners: BTreeSet::new(),
            estimates: BTreeMap::new(),
            events: VecDeque::new(),
            now: Time::ZERO,
            scratch: Scratch::default(),
            out: Vec::new(),
        };
        Self { carried, app }
    }

    /// There is another link, beside the one that routes know and those added before. A hop that can uses all of those that
    /// lead to the base where the mobile is.
    pub fn add_link(&mut self, now: Time, link: LinkBeside) {
        let carried = &mut self.carried;
        carried.beside.push(link);
        carried.add_paths(now, carried.beside.len() - 1);
    }

    /// Its application.
    pub fn app(&self) -> &A {
        &self.app
    }

    /// Its handoffs, in order.
    pub fn handoffs(&self) -> &[Handoff] {
        &self.carried.handoffs
    }

    /// Why its session broke, if it did.
    pub fn broken(&self) -> Option<Broken> {
        self.carried.broken
    }

    /// The hop, to watch.
    pub fn hop(&self) -> &MobileHop {
        &self.carried.hop
    }

    /// The lower layer says that the mobile will be in the cell of `base` in about `lead` (MOB-39).
    pub fn handle_imminent(&mut self, ctx: &mut Context<'_>, base: Ipv4Addr, lead: Duration) {
        let candidate = SocketAddr::V4(SocketAddrV4::new(base, HANDOFF_PORT));
        self.carried.handoff.handle_imminent(ctx.now(), candidate, lead);
        self.run_machines(ctx);
    }

    /// The upcall of the IP layer: the mobile is in the cell of `base` (MHP-15, MIP-6).
    pub fn handle_handoff(&mut self, ctx: &mut Context<'_>, base: Ipv4Addr) {
        let carried = &mut self.carried;
        if base != carried.base {
            carried.handoffs.push(Handoff { told: ctx.now(), resumed: None });
        }
        let base = SocketAddr::V4(SocketAddrV4::new(base, HANDOFF_PORT));
        carried.handoff.handle_upcall(ctx.now(), base);
        self.run_machines(ctx);
    }

    /// Lets everything happen that can, then sends.
    fn run_machines(&mut self, ctx: &mut Context<'_>) {
        self.carried.now = ctx.now();
        loop {
            self.carried.take_events();
            let Some((flow, event)) = self.carried.events.pop_front() else { break };
            let Self { carried, app } = self;
            app.handle_event(&mut Io::new(carried, ctx), flow, event);
            if let Event::Closed(_) = event {
                self.carried.flows.remove(&conn_of(flow));
            }
        }
        self.carry_datagrams(ctx);
        self.carried.transmit(ctx);
    }
}

impl<A: App> MobileStation<A> {
    /// Hands on the datagrams that came on the hop's lane, and gives it those that the application sends; where the hop
    /// has none they go by themselves.
    fn carry_datagrams(&mut self, ctx: &mut Context<'_>) {
        let Self { carried, app } = self;
        let (now, addr) = (ctx.now(), carried.addr);
        while let Some(datagram) = carried.hop.lane().and_then(lane::take) {
            if let Some((from, datagram)) = datagram {
                let from = SocketAddrV4::new(from, datagram.from);
                app.handle_datagram(now, from, datagram.to.port(), &datagram.bytes);
            }
        }
        while let Some(datagram) = app.poll_datagram(now) {
            match carried.hop.has_lane() {
                true => {
                    let Carried { hop, config, .. } = &mut *carried;
                    lane::send(now, hop.lane(), &config.carriage, addr, addr, &datagram);
                }
                false => send_datagram(ctx, addr, &datagram),
            }
        }
    }
}

impl Carried {
    /// The path that leaves by a link.
    fn path_of(&self, link: LinkId) -> PathId {
        let place = self.beside.iter().position(|beside| beside.link == link);
        place.map_or(PathId::FIRST, |place| PathId(place as u8 + 1))
    }

    fn is_own(&self, addr: Ipv4Addr) -> bool {
        addr == self.addr || self.beside.iter().any(|beside| beside.addr == addr)
    }

    fn take_events(&mut self) {
        while let Some(event) = self.handoff.poll_event() {
            match event {
                // Over two bases at once nothing is received: they are carried on when all stands.
                MobileEvent::Suspend { .. } => self.suspend(),
                MobileEvent::Resumed { base } => {
                    self.resume(base);
                    let pending = self.handoffs.iter_mut().filter(|h| h.resumed.is_none());
                    pending.for_each(|h| h.resumed = Some(self.now));
                }
                MobileEvent::Refused { .. } | MobileEvent::Unexpected { .. } => {}
                MobileEvent::TakeOver => {
                    let orphans = self.session.orphans(&self.hop);
                    self.handoff.tell_orphans(orphans, Duration::ZERO);
                }
                // The session is lost (MHP-21); another one begins with the base at hand.
                MobileEvent::Broken(why) => {
                    self.broken = Some(why);
                    self.session.reset_all(&mut self.hop, ResetReason::AssociationLost);
                    self.resume(self.handoff.base());
                }
            }
        }
        while let Some(event) = self.session.poll_event(self.now, &mut self.hop) {
            self.note(event);
        }
        self.hand_on_estimates();
    }

    fn suspend(&mut self) {
        if self.config.hop.keeps_estimates() {
            for id in self.flows.keys() {
                let stream = self.session.stream(*id);
                if let Some(estimates) = stream.and_then(|stream| self.hop.estimates(stream)) {
                    // The silence has an explanation: no doublings travel.
                    let rtt = tcp::RttState { backoff: 0, ..estimates.rtt };
                    self.estimates.insert(*id, Estimates { rtt, ..estimates });
                }
            }
        }
        self.session.suspend(self.now, &mut self.hop);
    }

    /// Reopened connections go on with what was known of their path (ITCP-3).
    fn hand_on_estimates(&mut self) {
        let Self { estimates, session, hop, .. } = self;
        moved::hand_on(estimates, session, |stream, known| hop.adopt(stream, known));
    }

    /// A new connection to the new base (MHP-18).
    fn resume(&mut self, base: SocketAddr) {
        let SocketAddr::V4(base) = base else { return };
        self.base = *base.ip();
        self.hops += 1;
        let seed = self.seed.child(&format!("hop {}", self.hops));
        self.hop = MobileHop::new(&self.config.hop, self.base, seed, self.now);
        self.add_paths(self.now, 0);
        self.listeners.iter().for_each(|port| self.hop.listen(*port));
        self.session.set_handoff(self.handoff.attempt());
        self.session.resume(self.now, &mut self.hop, session_of(self.addr));
        self.session.handle_resumed(self.now, &mut self.hop);
    }

    /// The hop may use links from this one on that lead to its base.
    fn add_paths(&mut self, now: Time, from: usize) {
        for (n, link) in self.beside.iter().enumerate().skip(from) {
            if link.base == self.base {
                self.hop.add_path(now, PathId(n as u8 + 1), self.base);
            }
        }
    }

    /// A fixed host opens a connection (MHP-6).
    fn take_offer(&mut self, id: ConnId, target: &Target) {
        let port = target.port();
        if !self.listeners.contains(&port) {
            return self.session.refuse(&mut self.hop, id, Refusal::Refused);
        }
        self.add_flow(id);
        self.events.push_back((flow_of(id), Event::Accepted { port }));
        self.events.push_back((flow_of(id), Event::Connected));
        let bound = SocketAddr::V4(SocketAddrV4::new(self.addr, port));
        self.session.accept(&mut self.hop, id, bound);
    }

    fn add_flow(&mut self, id: ConnId) {
        let content = Bytestream::new(self.seed, &format!("stream {id}"));
        let flow = Flow { content, made: 0, ended: false, blocked: false, ending: Ending::Orderly };
        self.flows.insert(id, flow);
        self.session.set_policy(&mut self.hop, id, self.config.carriage.policy);
    }

    /// All streams of the hop are gone, and with them the connections that they carried.
    fn on_lost(&mut self, lost: Lost) {
        if lost == Lost(true) {
            self.session.reset_all(&mut self.hop, ResetReason::AssociationLost);
        }
    }

    fn note(&mut self, event: Told) {
        let flow = flow_of(event.id());
        match event {
            Told::Opened { .. } => {
                self.events.push_back((flow, Event::Connected));
            }
            Told::Failed { id, .. } | Told::Reset { id, .. } => {
                if let Some(f) = self.flows.get_mut(&id) {
                    f.ending = Ending::Reset;
                }
            }
            Told::Readable(id) => {
                if !self.session.received(&self.hop, id).is_empty() {
                    self.events.push_back((flow, Event::Readable));
                }
                self.note_end(id);
            }
            Told::Acknowledged(_) => {}
            Told::Writable(id) => {
                if self.flows.get_mut(&id).is_some_and(|f| core::mem::take(&mut f.blocked)) {
                    self.events.push_back((flow, Event::Writable));
                }
            }
            Told::Closed(id) => {
                self.estimates.remove(&id);
                let flow_state = self.flows.get_mut(&id);
                let ending = flow_state.as_ref().map_or(Ending::Orderly, |f| f.ending);
                // What closes without a reset has come to its end, though the session may remove it
                // with the last byte that is read.
                if ending == Ending::Orderly
                    && flow_state.is_some_and(|f| !core::mem::replace(&mut f.ended, true))
                {
                    self.events.push_back((flow, Event::PeerFinished));
                }
                self.events.push_back((flow, Event::Closed(ending)));
            }
            Told::Connect { id, target, .. } => self.take_offer(id, &target),
        }
    }

    /// Tells of the peer's end once everything before it was read.
    fn note_end(&mut self, id: ConnId) {
        if self.session.recv_state(&self.hop, id) != RecvState::Finished {
            return;
        }
        if let Some(flow) = self.flows.get_mut(&id)
            && !flow.ended
        {
            flow.ended = true;
            self.events.push_back((flow_of(id), Event::PeerFinished));
        }
    }

    fn transmit(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.now();
        // Between two bases nothing of the old hop's is of use to anybody.
        if !self.handoff.is_pending() {
            let ends = Ends { here: self.addr, there: self.base, beside: &self.beside };
            self.hop.transmit(ctx, ends, &mut self.scratch);
        }
        while let Some(SocketAddr::V4(to)) = self.handoff.poll_transmit(now, &mut self.out) {
            let from = SocketAddrV4::new(self.addr, HANDOFF_PORT);
            send_udp(ctx, from, to, &self.out);
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        let pending = self.handoff.is_pending();
        let hop = if pending { None } else { self.hop.next_timeout() };
        let session = self.session.next_timeout();
        [hop, session, self.handoff.next_timeout()].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Time) {
        self.now = now;
        if self.hop.next_timeout().is_some_and(|t| t <= now) && !self.handoff.is_pending() {
            let lost = self.hop.handle_timeout(now);
            self.on_lost(lost);
        }
        if self.session.next_timeout().is_some_and(|t| t <= now) {
            self.session.handle_timeout(now, &mut self.hop);
        }
        self.handoff.handle_timeout(now);
    }

    fn handle_packet(&mut self, now: Time, packet: &mut Packet) {
        self.now = now;
        let from_base = packet.src == self.base && !self.handoff.is_pending();
        match packet.body {
            Body::Udp { dst_port: HANDOFF_PORT, .. } => {
                if let (Some(from), Some(bytes)) = (udp_source(packet), packet.bytes_mut()) {
                    self.handoff.handle_datagram(now, SocketAddr::V4(from), bytes);
                }
            }
            Body::Tcp(_) | Body::Udp { src_port: SRP_PORT, .. } | Body::Frame { .. }
                if from_base =>
            {
                let lost = self.hop.handle_packet(now, packet);
                self.on_lost(lost);
            }
            // What a base let pass by mistake, and what an old hop still sends.
            _ => {}
        }
    }
}

impl<A: App> Node for MobileStation<A> {
    fn handle_packet(&mut self, ctx: &mut Context<'_>, _link: LinkId, mut packet: Packet) {
        if packet.corrupted || !self.carried.is_own(packet.dst) {
            return;
        }
        // Where the hop has no lane datagrams come as they are.
        let bare = !self.carried.hop.has_lane() && packet.src != self.carried.base;
        if let Some(datagram) = lane::datagram_of(&packet).filter(|_| bare) {
            let (from, port) = (SocketAddrV4::new(packet.src, datagram.from), datagram.to.port());
            self.app.handle_datagram(ctx.now(), from, port, &datagram.bytes);
        }
        self.carried.handle_packet(ctx.now(), &mut packet);
        drop(packet);
        self.run_machines(ctx);
    }

    fn next_timeout(&self) -> Option<Time> {
        [self.carried.next_timeout(), self.app.next_timeout()].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.now();
        self.carried.handle_timeout(now);
        if self.app.next_timeout().is_some_and(|t| t <= now) {
            let Self { carried, app } = self;
            app.handle_timeout(&mut Io::new(carried, ctx));
        }
        self.run_machines(ctx);
    }

    fn handle_link_event(&mut self, ctx: &mut Context<'_>, link: LinkId, event: LinkEvent) {
        let Self { carried, app } = self;
        if !carried.handoff.is_pending() {
            let path = carried.path_of(link);
            carried.hop.handle_link_event(ctx.now(), path, event);
        }
        app.handle_link_event(&mut Io::new(carried, ctx), event);
        self.run_machines(ctx);
    }

    fn handle_token(&mut self, ctx: &mut Context<'_>, token: u64) {
        match BaseNotice::of_token(token) {
            BaseNotice::Here(base) => self.handle_handoff(ctx, base),
            BaseNotice::Imminent(base, lead) => self.handle_imminent(ctx, base, lead),
        }
    }
}

fn flow_of(id: ConnId) -> FlowId {
    FlowId::carried(id.0)
}

fn conn_of(flow: FlowId) -> ConnId {
    ConnId(flow.as_carried())
}

impl Sockets for Carried {
    fn addr(&self) -> Ipv4Addr {
        self.addr
    }

    fn connect(
        &mut self,
        ctx: &mut Context<'_>,
        (dst, port): (Ipv4Addr, u16),
        _config: tcp::Config,
        _content: Content,
    ) -> Option<FlowId> {
        let target = Target::Addr(SocketAddr::V4(SocketAddrV4::new(dst, port)));
        let opened = self.session.connect(ctx.now(), &mut self.hop, &target, Opening::Faithful);
        let id = opened.ok()?;
        self.add_flow(id);
        Some(flow_of(id))
    }

    /// The connection of TCP's is the surrogate's: it has the base's configuration.
    fn listen(&mut self, port: u16, _config: tcp::Config, _content: Content) {
        self.listeners.insert(port);
        self.hop.listen(port);
    }

    /// The hop carries real bytes: those of a virtual stream are made up.
    fn write(&mut self, flow: FlowId, n: Bytes) -> Bytes {
        let id = conn_of(flow);
        let Self { session, hop, flows, .. } = self;
        let Some(state) = flows.get_mut(&id) else { return Bytes::ZERO };
        let mut taken = 0;
        while taken < n.get() {
            let Ok(room) = session.send_space(hop, id) else { break };
            let len = room.len().min((n.get() - taken) as usize);
            if len == 0 {
                break;
            }
            state.content.fill(state.made, &mut room[..len]);
            session.commit(hop, id, len);
            state.made += len as u64;
            taken += len as u64;
        }
        state.blocked = taken < n.get();
        Bytes::new(taken)
    }

    fn write_bytes(&mut self, flow: FlowId, data: &[u8]) -> usize {
        let id = conn_of(flow);
        let taken = self.session.write(&mut self.hop, id, data).unwrap_or(0);
        if let Some(state) = self.flows.get_mut(&id) {
            state.blocked = taken < data.len();
        }
        taken
    }

    fn received(&self, flow: FlowId) -> &[u8] {
        self.session.received(&self.hop, conn_of(flow))
    }

    fn readable(&self, flow: FlowId) -> Bytes {
        Bytes::from(self.received(flow).len())
    }

    fn consume(&mut self, flow: FlowId, n: Bytes) -> Bytes {
        let id = conn_of(flow);
        let n = n.as_usize().min(self.session.received(&self.hop, id).len());
        self.session.consume(&mut self.hop, id, n);
        // A piece may end at a seam of its buffer with more behind it.
        if n > 0 && !self.session.received(&self.hop, id).is_empty() {
            self.events.push_back((flow, Event::Readable));
        }
        self.note_end(id);
        Bytes::from(n)
    }

    fn finish(&mut self, flow: FlowId) {
        self.session.finish(&mut self.hop, conn_of(flow));
    }

    fn abort(&mut self, flow: FlowId) {
        if let Some(state) = self.flows.get_mut(&conn_of(flow)) {
            state.ended = true;
        }
        self.session.reset(&mut self.hop, conn_of(flow), ResetReason::Aborted);
    }

    /// There is no connection of TCP's at this end.
    fn connection(&self, _flow: FlowId) -> Option<&tcp::Connection> {
        None
    }

    fn set_priority(&mut self, flow: FlowId, priority: u32) {
        self.session.set_priority(&mut self.hop, conn_of(flow), priority);
    }

    fn report_link_event(&mut self, ctx: &mut Context<'_>, event: LinkEvent) {
        self.hop.handle_link_event(ctx.now(), PathId::FIRST, event);
    }
}
