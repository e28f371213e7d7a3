//! The surrogates of one mobile at its base: the session's base end, and the wired half of each
//! connection (MHP-3, MHP-8..MHP-14).

use core::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::collections::BTreeMap;

use lasthop_session::handoff::{ConnectionState, SessionId, SessionState, Stage};
use lasthop_session::{
    self as session, ConnId, Event, RecvState, Refusal, ResetReason, Session, Target,
};
use lasthop_tcp::{self as tcp, Estimates, Ports, Socket, reset_for};
use lasthop_units::{Bytes, Seed, Stream as Numbers, Time};
use lasthop_wire::tcp::{Flags, Segment, Seq};

use super::frozen;
use super::moved::Moved;
use super::transport::{BaseHop, Ends, Lost, Scratch};
use crate::net::{Body, Context, Packet, Payload};

/// Wired halves have the mobile's address and these ports.
const FIRST_PORT: u16 = 30_000;
const PORTS: u16 = 30_000;
/// Wired halves of one mobile, those that are ending included.
const WIRED_MAX: usize = 8192;
/// Resets that wait to be sent, at most: what is beyond is as good as lost.
const RESETS_MAX: usize = 256;

static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// The two ends of a wired half; the local one is the mobile's own address (MHP-3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct WiredEnd {
    pub(super) local: SocketAddrV4,
    pub(super) remote: SocketAddrV4,
}

/// A wired half.
struct Wired {
    ends: WiredEnd,
    socket: Socket,
    /// The fixed host has not answered yet.
    connecting: bool,
    /// Our end was passed on, and the fixed host's.
    finished: bool,
    told_end: bool,
    /// The session has forgotten the connection: only the wired side's own end is awaited.
    orphan: bool,
}

impl Wired {
    fn encode(&self, now: Time) -> Vec<u8> {
        frozen::encode(&self.socket, self.ends.local, self.ends.remote, now)
    }
}

/// What all surrogates of a base have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) session: session::Config,
    pub(super) wired: tcp::Config,
    /// What the hop's TCP knows moves with the session (ITCP-3).
    pub(super) keeps_estimates: bool,
}

/// See the module's text.
pub(super) struct Surrogates {
    mobile: Ipv4Addr,
    hop: BaseHop,
    session: Session,
    setup: Setup,
    wired: BTreeMap<ConnId, Wired>,
    by_ends: BTreeMap<WiredEnd, ConnId>,
    /// SYNs of fixed hosts that the mobile has yet to agree to (MHP-6). The session bounds them.
    offered: BTreeMap<ConnId, (WiredEnd, Segment)>,
    /// Wired halves whose bytes may move.
    dirty: Vec<ConnId>,
    /// What the hop of the base before knew, until the mobile reopens the connections.
    estimates: BTreeMap<ConnId, Estimates>,
    resets: Vec<(WiredEnd, Segment)>,
    numbers: Numbers,
}

impl Surrogates {
    pub(super) fn new(
        mobile: Ipv4Addr,
        hop: BaseHop,
        session: Session,
        setup: Setup,
        seed: Seed,
    ) -> Self {
        Self {
            mobile,
            hop,
            session,
            setup,
            wired: BTreeMap::new(),
            by_ends: BTreeMap::new(),
            offered: BTreeMap::new(),
            dirty: Vec::new(),
            estimates: BTreeMap::new(),
            resets: Vec::new(),
            numbers: seed.stream("iss"),
        }
    }

    /// Goes on with a session that another base had (MHP-17).
    pub(super) fn rebuild(
        now: Time,
        mobile: Ipv4Addr,
        hop: BaseHop,
        setup: Setup,
        seed: Seed,
        mut state: SessionState,
    ) -> Self {
        let moved = Moved::decode(&core::mem::take(&mut state.hop));
        let take = |c: &mut ConnectionState| (ConnId(c.id), c.stage, core::mem::take(&mut c.wired));
        let halves: Vec<_> = state.connections.iter_mut().map(take).collect();
        let session = Session::rebuild(now, setup.session, state);
        let mut it = Self::new(mobile, hop, session, setup, seed);
        for (id, stage, bytes) in halves {
            let connecting = matches!(stage, Stage::Connecting(_));
            let stands = it.restore(now, id, &bytes, connecting);
            if !stands && matches!(stage, Stage::Open | Stage::Over) {
                it.session.reset(&mut it.hop, id, ResetReason::Aborted);
            }
        }
        for (id, bytes) in moved.ending {
            it.restore(now, id, &bytes, false);
            if let Some(wired) = it.wired.get_mut(&id) {
                wired.orphan = true;
            }
        }
        if setup.keeps_estimates {
            it.estimates = moved.estimates;
        }
        it
    }

    /// Goes on with a wired half; false if the bytes are none.
    fn restore(&mut self, now: Time, id: ConnId, bytes: &[u8], connecting: bool) -> bool {
        let restored = frozen::decode(self.setup.wired, bytes, now);
        let Some((mut socket, local, remote)) = restored else { return false };
        // The path to the fixed host is another one, and acknowledgements may have been lost on the
        // old: what is outstanding is sent again.
        socket.retransmit_now(now);
        self.add(id, WiredEnd { local, remote }, socket, connecting);
        true
    }

    /// Takes everything out, for another base (MHP-17), but for the resets of what does not move.
    pub(super) fn freeze(
        mut self,
        now: Time,
        session: SessionId,
        resets: &mut Vec<(WiredEnd, Segment)>,
    ) -> SessionState {
        self.drive(now);
        let mut moved = Moved { estimates: self.estimates.clone(), ..Moved::default() };
        for id in self.wired.keys() {
            let stream = self.session.stream(*id);
            if let Some(estimates) = stream.and_then(|stream| self.hop.estimates(stream)) {
                moved.estimates.insert(*id, estimates);
            }
        }
        let mut state = self.session.freeze(now, &mut self.hop, session);
        for connection in &mut state.connections {
            if let Some(wired) = self.wired.remove(&ConnId(connection.id)) {
                connection.wired = wired.encode(now);
            }
        }
        // Connections that the hop had lost already are over here.
        while let Some(event) = self.session.poll_event(now, &mut self.hop) {
            self.handle_event(now, event);
        }
        // What is left has no connection any more, but a fixed host that may still want an answer.
        for (id, wired) in &mut self.wired {
            if wired.socket.connection().is_closed() {
                let mut room = vec![0; wired.socket.connection().segment_size().as_usize()];
                let last = wired.socket.poll_transmit(now, &mut room);
                resets.extend(last.map(|reset| (wired.ends, reset)));
            } else {
                moved.ending.push((*id, wired.encode(now)));
            }
        }
        resets.append(&mut self.resets);
        state.hop = moved.encode();
        state
    }

    /// What is held at this moment, to be sent to another base ahead (MOB-39), but not much more
    /// than `limit`.
    pub(super) fn preview(&self, now: Time, session: SessionId, limit: Bytes) -> SessionState {
        let mut state = self.session.preview(&self.hop, session, limit);
        for connection in &mut state.connections {
            if let Some(wired) = self.wired.get(&ConnId(connection.id)) {
                connection.wired = wired.encode(now);
            }
        }
        state
    }

    pub(super) fn mobile(&self) -> Ipv4Addr {
        self.mobile
    }

    pub(super) fn hop(&self) -> &BaseHop {
        &self.hop
    }

    pub(super) fn wired(&self) -> impl Iterator<Item = &tcp::Connection> {
        self.wired.values().map(|w| w.socket.connection())
    }

    pub(super) fn handle_hop(&mut self, now: Time, packet: &mut Packet) {
        let lost = self.hop.handle_packet(now, packet);
        self.on_lost(lost);
    }

    /// All streams are gone, and with them the connections that they carried.
    fn on_lost(&mut self, lost: Lost) {
        if lost == Lost(true) {
            self.session.reset_all(&mut self.hop, ResetReason::AssociationLost);
        }
    }

    /// Takes a segment from a fixed host, for a wired half or for none.
    pub(super) fn handle_wired(
        &mut self,
        now: Time,
        ends: WiredEnd,
        segment: &Segment,
        packet: &Packet,
    ) {
        let Some(&id) = self.by_ends.get(&ends) else {
            return self.handle_stranger(now, ends, segment);
        };
        let Some(wired) = self.wired.get_mut(&id) else { return };
        match packet.payload() {
            Payload::Real(bytes) => wired.socket.handle_segment(now, segment, bytes),
            // Nobody looks at a virtual stream's bytes; these are as good as any.
            Payload::Virtual(len) => {
                let bytes = ZEROS.get(..len as usize).unwrap_or_default();
                wired.socket.handle_segment(now, segment, bytes);
            }
        }
        self.dirty.push(id);
    }

    /// A segment for no wired half: a fixed host opens a connection (MHP-6), or is told that there
    /// is none, as the mobile itself would tell it.
    fn handle_stranger(&mut self, now: Time, ends: WiredEnd, segment: &Segment) {
        let offered = self.offered.iter().find(|(_, (of, _))| *of == ends).map(|(id, _)| *id);
        let opens = segment.flags.contains(Flags::SYN)
            && !segment.flags.intersects(Flags::ACK.with(Flags::RST).with(Flags::FIN));
        match offered {
            // The mobile is being asked; the fixed host's patience is its own.
            Some(_) if opens => {}
            Some(id) if segment.flags.contains(Flags::RST) => {
                self.session.reset(&mut self.hop, id, ResetReason::Aborted);
            }
            None if opens => {
                let (to, from) = (SocketAddr::V4(ends.local), SocketAddr::V4(ends.remote));
                // Without a hop the mobile is out of reach, and the SYN as good as lost.
                if let Ok(id) = self.session.offer(now, &mut self.hop, to, from) {
                    self.offered.insert(id, (ends, *segment));
                }
            }
            // A bare acknowledgement asks for nothing: the answer to a FIN that was sent again.
            _ if segment.seq_len() == 0 => {}
            _ => self.answer(ends, reset_for(segment)),
        }
    }

    fn answer(&mut self, ends: WiredEnd, reset: Option<Segment>) {
        if self.resets.len() < RESETS_MAX {
            self.resets.extend(reset.map(|reset| (ends, reset)));
        }
    }

    /// The mobile agrees: the fixed host's SYN is answered.
    fn take_offered(&mut self, now: Time, id: ConnId) {
        let Some((ends, syn)) = self.offered.remove(&id) else { return };
        let ports = Ports { local: ends.local.port(), remote: ends.remote.port() };
        let iss = Seq(self.numbers.next_u64() as u32);
        if let Ok(socket) = Socket::accept(self.setup.wired, ports, &syn, iss, now) {
            self.add(id, ends, socket, false);
        }
    }

    fn refuse_offered(&mut self, id: ConnId, refusal: Refusal) {
        if let Some((ends, syn)) = self.offered.remove(&id)
            && refusal == Refusal::Refused
        {
            self.answer(ends, reset_for(&syn));
        }
    }

    fn add(&mut self, id: ConnId, ends: WiredEnd, socket: Socket, connecting: bool) {
        self.by_ends.insert(ends, id);
        let wired =
            Wired { ends, socket, connecting, finished: false, told_end: false, orphan: false };
        self.wired.insert(id, wired);
        self.dirty.push(id);
    }

    fn forget(&mut self, id: ConnId) {
        if let Some(wired) = self.wired.remove(&id) {
            self.by_ends.remove(&wired.ends);
        }
    }

    /// Lets bytes and events pass until nothing moves.
    pub(super) fn drive(&mut self, now: Time) {
        loop {
            while let Some(event) = self.session.poll_event(now, &mut self.hop) {
                self.handle_event(now, event);
            }
            // A mobile resumes here only once this base has its state, if there is one left.
            if let Some(lost) = self.session.poll_wanted() {
                self.session.decline(now, &mut self.hop, lost);
                continue;
            }
            let Some(id) = self.dirty.pop() else { break };
            self.attend(id);
        }
        self.hand_on_estimates();
    }

    /// Connections that the mobile has reopened go on with what was known of their path.
    fn hand_on_estimates(&mut self) {
        let Self { estimates, session, hop, .. } = self;
        estimates.retain(|id, known| match session.stream(*id) {
            Some(stream) => {
                hop.adopt(stream, *known);
                false
            }
            None => true,
        });
    }

    fn handle_event(&mut self, now: Time, event: Event) {
        match event {
            Event::Connect { id, target, .. } => self.connect(now, id, &target),
            Event::Readable(id) | Event::Writable(id) => self.dirty.push(id),
            Event::Reset { id, .. } => {
                if let Some(wired) = self.wired.get_mut(&id) {
                    wired.socket.abort();
                }
                self.dirty.push(id);
            }
            Event::Closed(id) => {
                self.offered.remove(&id);
                self.estimates.remove(&id);
                if let Some(wired) = self.wired.get_mut(&id) {
                    wired.orphan = true;
                }
                self.dirty.push(id);
            }
            Event::Opened { id, .. } => self.take_offered(now, id),
            Event::Failed { id, refusal } => self.refuse_offered(id, refusal),
        }
    }

    /// Opens the wired half from the mobile's own address (MHP-3).
    fn connect(&mut self, now: Time, id: ConnId, target: &Target) {
        // A wired half that came along half-open goes on opening.
        if self.wired.contains_key(&id) {
            return;
        }
        let Target::Addr(SocketAddr::V4(remote)) = *target else {
            let refusal = match target {
                Target::Name(..) => Refusal::NameNotFound,
                Target::Addr(_) => Refusal::NetworkUnreachable,
            };
            return self.session.refuse(&mut self.hop, id, refusal);
        };
        let Some(ends) = self.free_ends(id, remote) else {
            return self.session.refuse(&mut self.hop, id, Refusal::TooMany);
        };
        let ports = Ports { local: ends.local.port(), remote: remote.port() };
        let iss = Seq(self.numbers.next_u64() as u32);
        self.add(id, ends, Socket::connect(self.setup.wired, ports, iss, now), true);
    }

    fn free_ends(&self, id: ConnId, remote: SocketAddrV4) -> Option<WiredEnd> {
        if self.wired.len() >= WIRED_MAX {
            return None;
        }
        let first = (id.0 / 2 % u64::from(PORTS)) as u16;
        let ports = (0..PORTS).map(|n| FIRST_PORT + (first + n) % PORTS);
        let mut ends =
            ports.map(|port| WiredEnd { local: SocketAddrV4::new(self.mobile, port), remote });
        ends.find(|ends| !self.by_ends.contains_key(ends))
    }

    /// Passes on what can be passed on.
    fn attend(&mut self, id: ConnId) {
        let Some(wired) = self.wired.get_mut(&id) else { return };
        if wired.connecting && wired.socket.connection().is_established() {
            wired.connecting = false;
            self.session.accept(&mut self.hop, id, SocketAddr::V4(wired.ends.local));
        }
        while let Some(event) = wired.socket.poll_event() {
            match event {
                tcp::Event::Reset | tcp::Event::GaveUp if wired.connecting => {
                    wired.connecting = false;
                    let refusal = match event {
                        tcp::Event::Reset => Refusal::Refused,
                        _ => Refusal::TimedOut,
                    };
                    self.session.refuse(&mut self.hop, id, refusal);
                }
                tcp::Event::Reset | tcp::Event::GaveUp => {
                    self.session.reset(&mut self.hop, id, ResetReason::Aborted);
                }
                _ => {}
            }
        }
        if !wired.connecting {
            pass_up(&mut self.session, &mut self.hop, id, wired);
            pass_down(&mut self.session, &mut self.hop, id, wired);
        }
        if wired.orphan {
            wired.finished = true;
            wired.socket.finish();
        }
    }

    /// Sends what the hop has to send, and adds to `out` what the wired halves have.
    pub(super) fn transmit(
        &mut self,
        ctx: &mut Context<'_>,
        ends: Ends,
        scratch: &mut Scratch,
        out: &mut Vec<Packet>,
    ) {
        self.hop.transmit(ctx, ends, scratch);
        for (ends, reset) in self.resets.drain(..) {
            out.push(ctx.packet(*ends.local.ip(), *ends.remote.ip(), Body::Tcp(reset)));
        }
        let now = ctx.now();
        for wired in self.wired.values_mut() {
            let (src, dst) = (*wired.ends.local.ip(), *wired.ends.remote.ip());
            while let Some(segment) = wired.socket.poll_transmit(now, scratch.room()) {
                let mut packet = ctx.packet(src, dst, Body::Tcp(segment));
                packet.set_bytes(&scratch.room()[..segment.len as usize]);
                out.push(packet);
            }
        }
        let over = |w: &Wired| w.orphan && w.socket.connection().is_closed();
        let gone: Vec<ConnId> =
            self.wired.iter().filter(|(_, w)| over(w)).map(|(id, _)| *id).collect();
        for id in gone {
            self.forget(id);
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        let wired = self.wired.values().filter_map(|w| w.socket.next_timeout());
        wired.chain(self.hop.next_timeout()).chain(self.session.next_timeout()).min()
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        let due = |t: Option<Time>| t.is_some_and(|t| t <= now);
        if due(self.hop.next_timeout()) {
            let lost = self.hop.handle_timeout(now);
            self.on_lost(lost);
        }
        if due(self.session.next_timeout()) {
            self.session.handle_timeout(now, &mut self.hop);
        }
        for (id, wired) in &mut self.wired {
            if due(wired.socket.next_timeout()) {
                wired.socket.handle_timeout(now);
                self.dirty.push(*id);
            }
        }
    }
}

/// Towards the fixed host (MHP-8): TCP itself makes larger segments of it.
fn pass_up(session: &mut Session, hop: &mut BaseHop, id: ConnId, wired: &mut Wired) {
    loop {
        let data = session.received(hop, id);
        let taken = wired.socket.write(data);
        if taken == 0 {
            break;
        }
        session.consume(hop, id, taken);
    }
    if !wired.finished && session.recv_state(hop, id) == RecvState::Finished {
        wired.finished = true;
        wired.socket.finish();
    }
}

/// Towards the mobile (MHP-9), in pieces that the hop carries.
fn pass_down(session: &mut Session, hop: &mut BaseHop, id: ConnId, wired: &mut Wired) {
    loop {
        let data = wired.socket.received();
        let Ok(room) = session.send_space(hop, id) else { break };
        let n = data.len().min(room.len());
        if n == 0 {
            break;
        }
        room[..n].copy_from_slice(&data[..n]);
        session.commit(hop, id, n);
        wired.socket.consume(n);
    }
    let ended = wired.socket.connection().peer_finished() && wired.socket.received().is_empty();
    if ended && !wired.told_end {
        wired.told_end = true;
        session.finish(hop, id);
    }
}
