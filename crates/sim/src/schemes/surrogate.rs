//! The surrogates of one mobile at its base: the session's base end, and the wired half of each
//! connection (MHP-3, MHP-8..MHP-14).

use core::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::collections::BTreeMap;

use lasthop_session::handoff::{SessionId, SessionState};
use lasthop_session::{
    self as session, ConnId, Event, RecvState, Refusal, ResetReason, Session, Target,
};
use lasthop_tcp::{self as tcp, Ports, Socket};
use lasthop_units::{Seed, Stream as Numbers, Time};
use lasthop_wire::tcp::{Segment, Seq};

use super::frozen;
use super::transport::{BaseHop, Ends, Scratch, send_segment};
use crate::net::{Context, Packet, Payload};

/// Wired halves have the mobile's address and ports from here on.
const FIRST_PORT: u16 = 30_000;

static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// The two ends of a wired half; the local one is the mobile's own address (MHP-3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct WiredEnd {
    pub(super) local: SocketAddrV4,
    pub(super) remote: SocketAddrV4,
}

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

/// See the module's text.
pub(super) struct Surrogates {
    mobile: Ipv4Addr,
    hop: BaseHop,
    session: Session,
    config: tcp::Config,
    wired: BTreeMap<ConnId, Wired>,
    by_ends: BTreeMap<WiredEnd, ConnId>,
    /// Wired halves whose bytes may move.
    dirty: Vec<ConnId>,
    numbers: Numbers,
}

impl Surrogates {
    pub(super) fn new(
        mobile: Ipv4Addr,
        hop: BaseHop,
        session: Session,
        config: tcp::Config,
        seed: Seed,
    ) -> Self {
        Self {
            mobile,
            hop,
            session,
            config,
            wired: BTreeMap::new(),
            by_ends: BTreeMap::new(),
            dirty: Vec::new(),
            numbers: seed.stream("iss"),
        }
    }

    /// Goes on with a session that another base had (MHP-17).
    pub(super) fn rebuild(
        now: Time,
        mobile: Ipv4Addr,
        hop: BaseHop,
        (session, config): (session::Config, tcp::Config),
        seed: Seed,
        state: SessionState,
    ) -> Self {
        let halves: Vec<(ConnId, Vec<u8>)> =
            state.connections.iter().map(|c| (ConnId(c.id), c.wired.clone())).collect();
        let session = Session::rebuild(now, session, state);
        let mut it = Self::new(mobile, hop, session, config, seed);
        for (id, bytes) in halves {
            let Some((mut socket, local, remote)) = frozen::decode(config, &bytes, now) else {
                continue;
            };
            // The path to the fixed host is another one, and acknowledgements may have been lost on
            // the old: what is outstanding is sent again.
            socket.retransmit_now(now);
            let connecting = !socket.connection().is_established();
            it.add(id, WiredEnd { local, remote }, socket, connecting);
        }
        it
    }

    /// Takes everything out, for another base (MHP-17).
    pub(super) fn freeze(mut self, now: Time, session: SessionId) -> SessionState {
        let mut state = self.session.freeze(now, &mut self.hop, session);
        for connection in &mut state.connections {
            if let Some(wired) = self.wired.get(&ConnId(connection.id)) {
                let WiredEnd { local, remote } = wired.ends;
                connection.wired = frozen::encode(&wired.socket, local, remote, now);
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
        self.hop.handle_packet(now, packet);
    }

    /// Takes a segment from a fixed host; false if it is for no wired half of this mobile.
    pub(super) fn handle_wired(
        &mut self,
        now: Time,
        ends: WiredEnd,
        segment: &Segment,
        packet: &Packet,
    ) -> bool {
        let Some(&id) = self.by_ends.get(&ends) else { return false };
        let Some(wired) = self.wired.get_mut(&id) else { return false };
        match packet.payload() {
            Payload::Real(bytes) => wired.socket.handle_segment(now, segment, bytes),
            // Nobody looks at a virtual stream's bytes; these are as good as any.
            Payload::Virtual(len) => {
                let bytes = ZEROS.get(..len as usize).unwrap_or_default();
                wired.socket.handle_segment(now, segment, bytes);
            }
        }
        self.dirty.push(id);
        true
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
            let Some(id) = self.dirty.pop() else { break };
            self.attend(id);
        }
    }

    fn handle_event(&mut self, now: Time, event: Event) {
        match event {
            Event::Connect { id, target } => self.connect(now, id, &target),
            Event::Readable(id) | Event::Writable(id) => self.dirty.push(id),
            Event::Reset { id, .. } => {
                if let Some(wired) = self.wired.get_mut(&id) {
                    wired.socket.abort();
                }
                self.dirty.push(id);
            }
            Event::Closed(id) => {
                if let Some(wired) = self.wired.get_mut(&id) {
                    wired.orphan = true;
                }
                self.dirty.push(id);
            }
            Event::Opened { .. } | Event::Failed { .. } => {}
        }
    }

    /// Opens the wired half from the mobile's own address (MHP-3).
    fn connect(&mut self, now: Time, id: ConnId, target: &Target) {
        let Target::Addr(SocketAddr::V4(remote)) = *target else {
            let refusal = match target {
                Target::Name(..) => Refusal::NameNotFound,
                Target::Addr(_) => Refusal::NetworkUnreachable,
            };
            return self.session.refuse(&mut self.hop, id, refusal);
        };
        let port = FIRST_PORT + (id.0 / 2 % 30_000) as u16;
        let ends = WiredEnd { local: SocketAddrV4::new(self.mobile, port), remote };
        let ports = Ports { local: port, remote: remote.port() };
        let iss = Seq(self.numbers.next_u64() as u32);
        self.add(id, ends, Socket::connect(self.config, ports, iss, now), true);
    }

    /// Passes on what can be passed on.
    fn attend(&mut self, id: ConnId) {
        let Some(wired) = self.wired.get_mut(&id) else { return };
        while let Some(event) = wired.socket.poll_event() {
            match event {
                tcp::Event::Connected if wired.connecting => {
                    wired.connecting = false;
                    let bound = SocketAddr::V4(wired.ends.local);
                    self.session.accept(&mut self.hop, id, bound);
                }
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

    /// Sends what the hop and the wired halves have to send.
    pub(super) fn transmit(&mut self, ctx: &mut Context<'_>, ends: Ends, scratch: &mut Scratch) {
        self.hop.transmit(ctx, ends, scratch);
        let now = ctx.now();
        for wired in self.wired.values_mut() {
            let ends = Ends { here: *wired.ends.local.ip(), there: *wired.ends.remote.ip() };
            while let Some(segment) = wired.socket.poll_transmit(now, scratch.room()) {
                let len = segment.len as usize;
                send_segment(ctx, ends, segment, &scratch.room()[..len]);
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
            self.hop.handle_timeout(now);
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
