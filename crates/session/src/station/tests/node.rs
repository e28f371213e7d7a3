//! A base of the world: its station, its sessions and its wired halves.

use super::*;
use crate::handoff::tests::{Wired, bound};
use crate::memory::End;
use crate::{Refusal, Target};

/// Then an association is over from whose other end nothing comes.
const SILENCE: Duration = Duration::from_secs(8);

/// What is left to be read of a wired half that is over, bytes.
const REST: usize = 90;

/// A base's machine, as these tests have it.
pub(super) type Base = Station<u32, Toy, At, u64>;

/// An association, as the base at one end of it names it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct At {
    pub(super) pair: usize,
    /// This base made it, to another one.
    pub(super) link: bool,
}

impl At {
    /// That over which a base's messages come. It has no session here.
    pub(super) fn messages(base: u32) -> Self {
        Self { pair: usize::MAX - base as usize, link: false }
    }
}

/// A base.
pub(super) struct Node {
    pub(super) station: Base,
    pub(super) sockets: Sockets,
}

impl Node {
    pub(super) fn new(name: u32, take_over: Option<Duration>) -> Self {
        let config = Config { take_over, ..Config::base() };
        Self {
            station: Station::new(config, name, Toy { own: name }),
            sockets: Sockets { name, ..Sockets::default() },
        }
    }
}

/// A wired half.
#[derive(Debug)]
pub(super) struct Socket {
    conn: ConnId,
    at: Option<At>,
    kind: Kind,
    /// Which of the fixed host's connections it is.
    flow: usize,
    place: Place,
    reset: bool,
}

/// How far a base's kernel is with a connection, which another may have been with before.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Place {
    /// So many bytes were written for the fixed host, which may lack the last ones.
    written: usize,
    /// The mobile's end is behind them.
    end: bool,
    /// So many of the fixed host's were taken for the mobile.
    taken: usize,
    /// And its end.
    taken_end: bool,
}

impl Place {
    fn encode(&self) -> [u8; 5] {
        let ([a, b], [c, d]) =
            ((self.written as u16).to_be_bytes(), (self.taken as u16).to_be_bytes());
        [u8::from(self.end) | u8::from(self.taken_end) << 1, a, b, c, d]
    }

    fn decode([ends, a, b, c, d]: [u8; 5]) -> Self {
        let [written, taken] = [[a, b], [c, d]].map(|n| u16::from_be_bytes(n).into());
        Self { written, end: ends & 1 != 0, taken, taken_end: ends & 2 != 0 }
    }

    /// What another base has sent does not count: the kernel here goes on to its own end.
    fn is_over(&self) -> bool {
        self.end && self.taken_end
    }

    /// The fixed host gets all but so many bytes; of some another base may have sent them before.
    fn send(&self, wired: &mut Wired, but: usize) {
        let lacks = self.written.saturating_sub(wired.up);
        wired.up += lacks - lacks.min(but);
        wired.up_ended |= self.end && wired.up == self.written;
    }
}

#[derive(Debug)]
enum Kind {
    Opens,
    Relays,
    Bridge(Box<Bridge<At>>),
}

/// What a base has beside its machine.
#[derive(Default, Debug)]
pub(super) struct Sockets {
    name: u32,
    sessions: BTreeMap<At, Session>,
    /// The bases that made associations to this one.
    pub(super) peers: BTreeMap<At, u32>,
    /// Associations that this base made and that stand.
    pub(super) linked: BTreeSet<At>,
    names: BTreeMap<(At, ConnId), u64>,
    all: BTreeMap<u64, Socket>,
    /// What takes its time, in order.
    pub(super) jobs: VecDeque<Job>,
}

/// A wired half that was taken out: which of the fixed host's connections, and how far it was.
pub(super) type Taken = (usize, ConnId, Place);

/// What a base has yet to hear of.
#[derive(Debug)]
pub(super) enum Job {
    /// Wired halves that are being dumped.
    Dump(SessionId, Vec<Taken>),
    /// Wired halves that are being made.
    Restore(SessionId, Vec<Vec<u8>>),
    /// Fixed hosts that are asked what they have.
    Reclaim(SessionId, Vec<Orphan>),
}

impl Sockets {
    pub(super) fn open(&mut self, id: At, session: Session) {
        self.sessions.insert(id, session);
    }

    pub(super) fn has(&self, id: At) -> bool {
        self.sessions.contains_key(&id)
    }

    pub(super) fn all(&self) -> Vec<At> {
        self.sessions.keys().copied().collect()
    }

    /// Connections that are carried, and wired halves.
    pub(super) fn left(&self) -> (usize, usize) {
        (self.sessions.values().map(Session::connections).sum(), self.all.len())
    }

    fn take(&mut self, socket: u64) -> Option<Socket> {
        let taken = self.all.remove(&socket)?;
        self.names.retain(|_, other| *other != socket);
        Some(taken)
    }
}

/// A base's sockets with what is around.
pub(super) struct NodeWires<'a> {
    pub(super) now: Time,
    pub(super) verbose: bool,
    pub(super) sockets: &'a mut Sockets,
    pub(super) around: &'a mut Around,
}

impl Associations for NodeWires<'_> {
    type Id = At;
    type Streams = End;

    fn session(&mut self, id: At) -> Option<(&mut Session, &mut End)> {
        let session = self.sockets.sessions.get_mut(&id)?;
        let pair = self.around.pairs.get_mut(id.pair)?;
        Some((session, if id.link { &mut pair.mobile } else { &mut pair.base }))
    }

    fn peek(&self, id: At) -> Option<&Session> {
        self.sockets.sessions.get(&id)
    }
}

impl NodeWires<'_> {
    /// What comes of wired halves that were taken out.
    fn dumped(&mut self, taken: Vec<Taken>) -> Vec<(ConnId, Dumped<u64>)> {
        let dump = |(flow, conn, place): Taken| {
            if !self.around.ready {
                self.around.spoiled.insert(conn);
                return (conn, Dumped::Lost);
            }
            self.around.dumped += 1;
            let is_own = self.around.has_packets(self.sockets.name, flow);
            let wired = &mut self.around.flows[flow].1;
            // Where another base has taken it over that has all that comes of it. An end that another base has sent, and this
            // one has yet to, is none to its kernel.
            if wired.up_ended && place.end && is_own {
                // The fixed host's last bytes have come, and nobody has read them.
                if !wired.down_ended {
                    (wired.down, wired.down_ended) = (place.taken + REST, true);
                }
                let rest = bytes(conn, false, place.taken, wired.down - place.taken);
                return (conn, Dumped::Rest(rest));
            }
            let image = [&flow.to_be_bytes()[..], &[0], &place.encode()].concat();
            (conn, Dumped::Image(image))
        };
        taken.into_iter().map(dump).collect()
    }

    /// What fixed hosts say of connections whose base is dead, and that this one takes over.
    fn reclaimed(&mut self, orphans: Vec<Orphan>) -> Vec<Option<Reclaimed>> {
        let reclaim = |orphan: Orphan| {
            let ticket = orphan.ticket.as_ref().expect("only those");
            let number = ticket.as_bytes().try_into().map(usize::from_be_bytes);
            let flow = number.ok().filter(|n| self.around.flows[*n].0.0 == orphan.connection);
            let Some(flow) = flow else {
                self.around.forged += 1;
                self.around.spoiled.insert(ConnId(orphan.connection));
                return None;
            };
            let (conn, wired) = &mut self.around.flows[flow];
            assert!(orphan.received <= wired.down as u64, "{conn} was never sent so much");
            if (wired.up as u64) < orphan.kept {
                // The base has told the mobile that it has what died with it.
                self.around.spoiled.insert(*conn);
                return None;
            }
            // What the mobile does not have the fixed host was never acknowledged.
            let (up, up_end) = (wired.up as u64, wired.up_ended);
            let place = Place {
                written: wired.up,
                end: up_end,
                taken: orphan.received as usize,
                taken_end: orphan.received_end,
            };
            let image = [&flow.to_be_bytes()[..], &[1], &place.encode()].concat();
            Some(Reclaimed { local: bound(), remote: bound(), up, up_end, image })
        };
        orphans.into_iter().map(reclaim).collect()
    }

    /// Wired halves that are made anew, by the fixed host's connections.
    fn made(&mut self, images: Vec<Vec<u8>>) -> Vec<Option<(usize, Place)>> {
        let make = |image: Vec<u8>| {
            let (flow, image) = image.split_first_chunk().expect("its number");
            let flow = usize::from_be_bytes(*flow);
            let (taken, image) = image.split_first().expect("whether it was taken over");
            let place = image.try_into().map(Place::decode).expect("how far it is");
            let (conn, _) = self.around.flows[flow];
            if !self.around.ready {
                self.around.spoiled.insert(conn);
                return None;
            }
            self.around.taken += usize::from(*taken);
            self.around.owners.insert(flow, self.sockets.name);
            Some((flow, place))
        };
        images.into_iter().map(make).collect()
    }

    fn add(&mut self, conn: ConnId, at: At, kind: Kind, flow: usize) {
        self.add_with(conn, at, kind, (flow, Place::default()));
    }

    fn add_with(&mut self, conn: ConnId, at: At, kind: Kind, (flow, place): (usize, Place)) {
        let socket = self.around.socket();
        let new = Socket { conn, at: Some(at), kind, flow, place, reset: false };
        self.sockets.all.insert(socket, new);
        let before = self.sockets.names.insert((at, conn), socket);
        assert_eq!(before, None, "two wired halves of {conn}");
    }

    /// A wired half that is over and belongs to nothing.
    pub(super) fn spare(&mut self, conn: ConnId) -> u64 {
        let (socket, flow) = (self.around.socket(), self.around.flows.len());
        let wired = Wired { up_ended: true, down_ended: true, ..Wired::default() };
        self.around.flows.push((conn, wired));
        let kind = Kind::Relays;
        let (at, place) = (None, Place { end: true, taken_end: true, ..Place::default() });
        let new = Socket { conn, at, kind, flow, place, reset: false };
        self.sockets.all.insert(socket, new);
        socket
    }

    /// The fixed host answers all openings here.
    pub(super) fn answer(&mut self, accept: bool) {
        let asked: Vec<(u64, ConnId, At)> = self
            .sockets
            .all
            .iter()
            .filter(|(_, socket)| matches!(socket.kind, Kind::Opens))
            .filter_map(|(n, socket)| Some((*n, socket.conn, socket.at?)))
            .collect();
        for (n, conn, at) in asked {
            if accept {
                let socket = self.sockets.all.get_mut(&n).expect("it is here");
                socket.kind = Kind::Relays;
                let flow = socket.flow;
                self.around.flows[flow].1.accepted = true;
                let (session, mut hop) = self.session(at).expect("it is here");
                session.accept(&mut hop, conn, bound());
                self.give_ticket(at, conn, flow);
            } else {
                self.around.spoiled.insert(conn);
                self.sockets.take(n);
                let (session, mut hop) = self.session(at).expect("it is here");
                session.refuse(&mut hop, conn, Refusal::Refused);
            }
        }
    }

    /// The mobile keeps what it takes to go on with a connection elsewhere.
    fn give_ticket(&mut self, at: At, conn: ConnId, flow: usize) {
        let (now, fleet) = (self.now, self.around.fleet);
        if let Some((session, hop)) = self.session(at).filter(|_| fleet)
            && session.release(hop, conn, 0, false)
        {
            let ticket = Ticket::new(&flow.to_be_bytes()).expect("short");
            let mut message = vec![];
            TicketMessage { connection: conn.0, ticket }.encode(&mut message);
            let _ = session.send_message(now, hop, &message);
        }
    }

    /// The wired half of a connection here, and its association.
    fn relaying(&self, conn: ConnId) -> Option<(At, u64, &Socket)> {
        let all = self.sockets.all.iter();
        let mut all = all.filter(|(_, of)| of.conn == conn && matches!(of.kind, Kind::Relays));
        let (n, socket) = all.next()?;
        assert!(all.next().is_none(), "two wired halves of {conn}");
        Some((socket.at?, *n, socket))
    }

    /// Bytes pass between a wired half here and the fixed host.
    pub(super) fn relay(&mut self, conn: ConnId, up: usize, down: usize, app: Option<&App>) {
        let Some((at, socket, &Socket { flow, mut place, .. })) = self.relaying(conn) else {
            return;
        };
        if !self.around.has_packets(self.sockets.name, flow) {
            return;
        }
        let (_, mut wired) = self.around.flows[flow];
        let fleet = self.around.fleet;
        let Some((session, hop)) = self.session(at) else { return };
        let (piece, from) = (session.received(hop, conn), place.written);
        let n = piece.len().min(up);
        assert_eq!(piece[..n], bytes(conn, true, from, n), "{conn} up at {from}");
        session.consume(hop, conn, n);
        place.written += n;
        if session.recv_state(hop, conn) == RecvState::Finished {
            place.end = true;
            let whole = app.is_some_and(|app| app.finished && app.written == from + n);
            assert!(whole, "{conn} ends early: {app:?}");
        }
        // Some of it the fixed host acknowledges later.
        place.send(&mut wired, if up == usize::MAX { 0 } else { up / 3 });
        // What another base has taken, and the mobile has not, is sent again.
        let new = if wired.down_ended { 0 } else { down };
        let most = wired.down - place.taken + new;
        if !place.taken_end
            && let Ok(n) = session.write(hop, conn, &bytes(conn, false, place.taken, most))
        {
            place.taken += n;
            wired.down = wired.down.max(place.taken);
            if wired.down_ended && place.taken == wired.down {
                place.taken_end = true;
                session.finish(hop, conn);
            }
        }
        if fleet {
            let behind = place.written.saturating_sub(wired.up) as u64;
            session.release(hop, conn, behind, wired.up_ended);
        }
        self.around.flows[flow].1 = wired;
        if let Some(known) = self.sockets.all.get_mut(&socket) {
            known.place = place;
        }
    }

    /// The fixed host ends its direction, if its wired half is in use here.
    pub(super) fn end(&mut self, conn: ConnId) {
        let Some((at, socket, &Socket { flow, place, .. })) = self.relaying(conn) else { return };
        if !self.around.has_packets(self.sockets.name, flow) {
            return;
        }
        let wired = &mut self.around.flows[flow].1;
        wired.down_ended = true;
        if place.taken < wired.down {
            // That comes first.
            return;
        }
        if let Some((session, mut hop)) = self.session(at) {
            session.finish(&mut hop, conn);
        }
        if let Some(known) = self.sockets.all.get_mut(&socket) {
            known.place.taken_end = true;
        }
    }

    fn handle_event(&mut self, id: At, event: Event) {
        trace!(self, "base {} at {id:?}: {event:?}", self.sockets.name);
        match event {
            Event::Connect { id: conn, .. } if self.sockets.names.contains_key(&(id, conn)) => {}
            Event::Connect { id: conn, .. } => {
                let flow = self.around.flows.len();
                self.around.flows.push((conn, Wired::default()));
                self.add(conn, id, Kind::Opens, flow);
            }
            Event::Reset { id: conn, .. } => {
                let socket = self.sockets.names.get(&(id, conn));
                if let Some(socket) = socket.and_then(|n| self.sockets.all.get_mut(n)) {
                    socket.reset = true;
                }
            }
            Event::Closed(conn) => self.handle_closed(id, conn),
            _ => {}
        }
    }

    fn handle_closed(&mut self, id: At, conn: ConnId) {
        let Some(n) = self.sockets.names.remove(&(id, conn)) else { return };
        let Some(socket) = self.sockets.all.get_mut(&n) else { return };
        let reset = socket.reset;
        if let Kind::Bridge(bridge) = &mut socket.kind {
            bridge.end((id, conn));
            if let Some((rest, conn)) = bridge.rest() {
                if let Some((session, mut hop)) = self.session(rest) {
                    match reset {
                        true => session.reset(&mut hop, conn, ResetReason::Aborted),
                        false => session.finish(&mut hop, conn),
                    }
                }
                return;
            }
        }
        let Some(socket) = self.sockets.take(n) else { return };
        if !socket.reset && self.around.has_packets(self.sockets.name, socket.flow) {
            // The kernel goes on with what it has.
            socket.place.send(&mut self.around.flows[socket.flow].1, 0);
        }
    }

    /// Moves bytes between associations; whether there may be more.
    fn pump(&mut self) -> bool {
        let mut more = false;
        for n in self.sockets.all.keys().copied().collect::<Vec<_>>() {
            let Some(socket) = self.sockets.all.get_mut(&n) else { continue };
            let kind = core::mem::replace(&mut socket.kind, Kind::Opens);
            if let Kind::Bridge(mut bridge) = kind {
                more |= bridge.pump(self);
                self.sockets.all.get_mut(&n).expect("it is here").kind = Kind::Bridge(bridge);
            } else {
                socket.kind = kind;
            }
        }
        more
    }
}

impl Wires<u32, At, u64> for NodeWires<'_> {
    /// Which of the fixed host's connections it is, and what is yet to be sent to it.
    type Made = (usize, Place);

    fn link(&mut self, base: u32, _session: SessionId) -> Option<At> {
        let id = At { pair: self.around.pair(), link: true };
        self.sockets.open(id, Session::mobile(crate::Config::mobile()));
        self.around.called.push((self.sockets.name, base, id.pair));
        Some(id)
    }

    fn is_linked(&self, id: At) -> bool {
        self.sockets.linked.contains(&id)
    }

    fn unlink(&mut self, id: At, farewell: Farewell) {
        assert_eq!(self.wired(id), [], "bridges to nowhere");
        self.sockets.sessions.remove(&id);
        self.sockets.linked.remove(&id);
        let silence = if farewell == Farewell::Said { Duration::ZERO } else { SILENCE };
        for base in (1..=3).filter(|base| *base != self.sockets.name) {
            self.around.gone.push((self.now + silence, base, At { link: false, ..id }));
        }
    }

    fn close(&mut self, id: At) {
        self.sockets.sessions.remove(&id);
        if let Some(peer) = self.sockets.peers.remove(&id) {
            self.around.gone.push((self.now, peer, At { link: true, ..id }));
        }
    }

    fn wired(&self, id: At) -> Vec<(ConnId, u64)> {
        let of = |((at, conn), n): (&(At, ConnId), &u64)| (*at == id).then_some((*conn, *n));
        self.sockets.names.iter().filter_map(of).collect()
    }

    fn fate(&self, _mobile: u32, socket: u64) -> Option<Fate> {
        let socket = self.sockets.all.get(&socket)?;
        if !matches!(socket.kind, Kind::Relays) || socket.place.is_over() {
            return None;
        }
        Some(match (self.around.mode, socket.conn.0 / 2 % 2) {
            (Mode::Anchor, _) | (Mode::Both, 0) => Fate::Stays,
            (Mode::Migrate, _) | (Mode::Both, _) => Fate::Leaves,
        })
    }

    fn state(&self, socket: u64) -> Option<SocketState> {
        Some(match self.sockets.all.get(&socket)?.kind {
            Kind::Opens => SocketState::Opens,
            Kind::Relays => SocketState::Relays,
            Kind::Bridge(_) => SocketState::Spliced,
        })
    }

    fn is_write_done(&self, socket: u64) -> bool {
        let socket = self.sockets.all.get(&socket);
        socket.is_some_and(|of| of.place.end || self.around.flows[of.flow].1.up_ended)
    }

    fn attach(&mut self, socket: u64, name: Name<At>) {
        if let Some(known) = self.sockets.all.get_mut(&socket) {
            known.at = Some(name.0);
            let before = self.sockets.names.insert(name, socket);
            assert_eq!(before, None, "two wired halves of {}", name.1);
        }
    }

    fn detach(&mut self, socket: u64) {
        if let Some(known) = self.sockets.all.get_mut(&socket)
            && let Some(at) = known.at.take()
        {
            self.sockets.names.remove(&(at, known.conn));
        }
    }

    fn reset(&mut self, socket: u64) {
        let Some(socket) = self.sockets.take(socket) else { return };
        let is_own = self.around.has_packets(self.sockets.name, socket.flow);
        let wired = &mut self.around.flows[socket.flow].1;
        let over = socket.place.is_over();
        if over && is_own {
            socket.place.send(wired, 0);
        }
        // A base that was restarted may have connected anew.
        let is_only = self.around.flows_of(socket.conn).count() == 1;
        let is_harmless = over || !is_only || !is_own || !matches!(socket.kind, Kind::Relays);
        let spoiled = self.around.spoiled.contains(&socket.conn);
        assert!(is_harmless || spoiled, "{} is reset at {}", socket.conn, self.sockets.name);
    }

    fn abandon(&mut self, socket: u64) {
        match self.around.fleet {
            // It falls silent: what comes of that is seen at the mobile.
            true => drop(self.sockets.take(socket)),
            false => self.reset(socket),
        }
    }

    fn splice(&mut self, _target: &Target, bridge: Bridge<At>) {
        self.around.spliced += 1;
        let (near, far) = (bridge.near.expect("a new one"), bridge.far.expect("a new one"));
        // It has no wired half here.
        self.add(near.1, near.0, Kind::Bridge(Box::new(bridge)), 0);
        let socket = self.sockets.names[&near];
        self.sockets.names.insert(far, socket);
    }

    fn dump(
        &mut self,
        session: SessionId,
        mobile: u32,
        leaving: Vec<Name<u64>>,
    ) -> Option<Vec<(ConnId, Dumped<u64>)>> {
        assert_eq!(mobile, MOBILE);
        let take = |(socket, conn)| {
            let Socket { flow, place, .. } = self.sockets.take(socket).expect("it is here");
            (flow, conn, place)
        };
        let taken: Vec<Taken> = leaving.into_iter().map(take).collect();
        if self.around.slow {
            self.sockets.jobs.push_back(Job::Dump(session, taken));
            return None;
        }
        Some(self.dumped(taken))
    }

    fn restore(
        &mut self,
        session: SessionId,
        mobile: u32,
        images: Vec<Vec<u8>>,
    ) -> Option<Vec<Option<(usize, Place)>>> {
        assert_eq!(mobile, MOBILE);
        if self.around.slow {
            self.sockets.jobs.push_back(Job::Restore(session, images));
            return None;
        }
        Some(self.made(images))
    }

    fn reclaim(
        &mut self,
        session: SessionId,
        mobile: u32,
        orphans: &[Orphan],
        _silent: Duration,
    ) -> Option<Vec<Option<Reclaimed>>> {
        assert_eq!(mobile, MOBILE);
        if self.around.slow {
            self.sockets.jobs.push_back(Job::Reclaim(session, orphans.to_vec()));
            return None;
        }
        Some(self.reclaimed(orphans.to_vec()))
    }

    fn install(&mut self, id: At, Restored { conn, ended, .. }: Restored, made: (usize, Place)) {
        let flow = made.0;
        let spoiled = self.around.spoiled.contains(&conn);
        if ended.is_none() {
            self.give_ticket(id, conn, flow);
        }
        match ended {
            None => self.add_with(conn, id, Kind::Relays, made),
            Some(Ended::Whole) if self.around.has_packets(self.sockets.name, flow) => {
                let Wired { up, up_ended, .. } = &mut self.around.flows[flow].1;
                (*up, *up_ended) = ((*up).max(made.1.written), true);
            }
            Some(Ended::Whole) => {}
            Some(Ended::Abandoned) if self.around.fleet => {}
            Some(Ended::Reset | Ended::Abandoned) => {
                assert!(spoiled, "{conn} is reset at {}", self.sockets.name);
            }
        }
    }

    fn discard(&mut self, _session: SessionId, images: Vec<Vec<u8>>) {
        // Where bases take over from each other the mobile may have them elsewhere.
        let is_expected = self.around.fleet || !self.around.spoiled.is_empty();
        assert!(images.is_empty() || is_expected, "nobody came");
    }

    fn reroute(&mut self, _session: SessionId, mobile: Option<u32>, to: u32) {
        assert!(mobile.is_none_or(|mobile| mobile == MOBILE) && to != self.sockets.name);
    }

    fn end_move(&mut self, _mobile: u32) {
        let relays = |socket: &&Socket| matches!(socket.kind, Kind::Relays);
        let own = self.sockets.all.values().filter(relays).map(|s| (s.flow, self.sockets.name));
        self.around.owners.extend(own);
    }

    fn release_mobile(&mut self, _mobile: u32) {}

    fn previews(&self, _id: At, _mobile: u32, _limit: Bytes) -> Vec<(ConnId, Vec<u8>)> {
        vec![]
    }

    fn is_ready(&self) -> bool {
        self.around.ready
    }
}

/// Lets a base do what it has to do.
pub(super) fn poll(base: u32, station: &mut Base, world: &mut NodeWires<'_>) {
    let now = world.now;
    assert!(station.machine().is_armed(), "something is due before it is looked at");
    for round in 0..100 {
        let mut some = false;
        let mut ids = world.sockets.all();
        if world.around.mixed && (base + round) % 2 == 1 {
            ids.reverse();
        }
        for id in ids {
            if let Some((session, hop)) = world.session(id)
                && session.next_timeout().is_some_and(|at| at <= now)
            {
                session.handle_timeout(now, hop);
            }
            while let Some((session, hop)) = world.session(id)
                && let Some(event) = session.poll_event(now, hop)
            {
                some = true;
                station.handle_event(id, &event);
                world.handle_event(id, event);
            }
            while let Some(message) =
                world.sockets.sessions.get_mut(&id).and_then(Session::poll_message)
            {
                some = true;
                match world.sockets.peers.get(&id).copied() {
                    Some(peer) => station.handle_peer(world, now, id, peer, &message),
                    None if id.link => station.handle_link(world, now, id, 0, &message),
                    None => station.handle_mobile(world, now, MOBILE, &message),
                }
            }
            while let Some(wanted) =
                world.sockets.sessions.get_mut(&id).and_then(Session::poll_wanted)
            {
                some = true;
                let from = world.sockets.peers.get(&id).copied().unwrap_or(MOBILE);
                station.handle_wanted(world, now, id, from, wanted);
            }
        }
        some |= station.advance(world, now);
        some |= world.pump();
        while let Some(note) = station.poll_note() {
            trace!(world, "base {base}: {note:?}");
        }
        if !some {
            return;
        }
    }
    panic!("base {base} never comes to rest");
}

/// A base hears of the first thing that took its time.
pub(super) fn finish_job(station: &mut Base, world: &mut NodeWires<'_>) {
    let now = world.now;
    trace!(world, "base {} has done {:?}", world.sockets.name, world.sockets.jobs.front());
    match world.sockets.jobs.pop_front() {
        Some(Job::Dump(session, taken)) => {
            let dumped = world.dumped(taken);
            station.handle_dumped(world, now, session, dumped);
        }
        Some(Job::Restore(session, images)) => {
            let made = world.made(images);
            station.handle_restored(world, session, made);
        }
        Some(Job::Reclaim(session, orphans)) => {
            let reclaimed = world.reclaimed(orphans);
            station.handle_reclaimed(world, now, session, reclaimed);
        }
        None => {}
    }
}

/// An association of a base is lost.
pub(super) fn lose(station: &mut Base, world: &mut NodeWires<'_>, id: At) {
    if !world.sockets.has(id) {
        return;
    }
    if id.link {
        station.handle_link_lost(world, id, "the other end is gone");
    } else {
        station.handle_lost(world, world.now, id);
    }
    let now = world.now;
    if let Some((session, mut hop)) = world.session(id) {
        session.reset_all(&mut hop, ResetReason::AssociationLost);
    }
    while let Some((session, hop)) = world.session(id)
        && let Some(event) = session.poll_event(now, hop)
    {
        station.handle_event(id, &event);
        world.handle_event(id, event);
    }
    if !id.link {
        world.sockets.sessions.remove(&id);
        world.sockets.peers.remove(&id);
    }
    world.sockets.linked.remove(&id);
}
