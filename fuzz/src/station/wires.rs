//! What a base has beside its station: sessions on transports in memory, and wired halves that are but numbers.

use std::collections::{BTreeMap, BTreeSet};

use lasthop_session::memory::{End, Limits, Pair};
use lasthop_session::station::{
    Associations, Bridge, Dumped, Farewell, Fate, Name, Restored, SocketState, Wires,
};
use lasthop_session::{Config, ConnId, Event, Session, SessionId, Target};
use lasthop_units::Bytes;

/// Names an association of a base.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum At {
    /// That mobile's.
    Mobile(u32),
    /// That base's, for messages or for bytes.
    Peer(u32, usize),
    /// One that this base made.
    Link(usize),
}

/// A wired half, or a connection that leads to another base.
#[derive(Debug)]
enum Kind {
    Relays,
    Bridge(Box<Bridge<At>>),
}

#[derive(Debug)]
struct Socket {
    name: Option<Name<At>>,
    kind: Kind,
}

/// All that a base has beside its station.
pub(super) struct Base {
    pub(super) sessions: BTreeMap<At, Session>,
    pub(super) pairs: BTreeMap<At, Pair>,
    /// Associations that this base made, and to whom.
    pub(super) links: BTreeMap<usize, u32>,
    pub(super) linked: BTreeSet<At>,
    names: BTreeMap<Name<At>, u64>,
    sockets: BTreeMap<u64, Socket>,
    made: u64,
    pub(super) ready: bool,
    pub(super) migrates: bool,
    /// Connections that were to be made to fixed hosts for somebody who is no mobile.
    pub(super) proxied: usize,
}

impl Base {
    pub(super) fn new() -> Self {
        Self {
            sessions: BTreeMap::new(),
            pairs: BTreeMap::new(),
            links: BTreeMap::new(),
            linked: BTreeSet::new(),
            names: BTreeMap::new(),
            sockets: BTreeMap::new(),
            made: 0,
            ready: true,
            migrates: false,
            proxied: 0,
        }
    }

    /// Makes an association's session, here.
    pub(super) fn open(&mut self, id: At) {
        let (base, mobile) = (Config::base(), Config::mobile());
        let session = match id {
            At::Mobile(_) => Session::base(base),
            At::Peer(..) => Session::anchor(base),
            At::Link(_) => Session::mobile(mobile),
        };
        self.sessions.entry(id).or_insert(session);
        let limits = Limits { buffer: 2000, streams: 64, ..Limits::default() };
        self.pairs.entry(id).or_insert_with(|| Pair::new(limits));
    }

    pub(super) fn shut(&mut self, id: At) {
        self.sessions.remove(&id);
        self.pairs.remove(&id);
        self.linked.remove(&id);
        let of: Vec<ConnId> = self.wired(id).into_iter().map(|(conn, _)| conn).collect();
        of.into_iter().for_each(|conn| self.end((id, conn)));
    }

    fn add(&mut self, name: Option<Name<At>>, kind: Kind) -> u64 {
        self.made += 1;
        self.names.extend(name.map(|name| (name, self.made)));
        self.sockets.insert(self.made, Socket { name, kind });
        self.made
    }

    fn end(&mut self, name: Name<At>) {
        let Some(socket) = self.names.remove(&name) else { return };
        if let Some(Socket { kind: Kind::Bridge(bridge), .. }) = self.sockets.get_mut(&socket)
            && !bridge.end(name)
        {
            return;
        }
        self.remove(socket);
    }

    fn remove(&mut self, socket: u64) {
        self.sockets.remove(&socket);
        self.names.retain(|_, other| *other != socket);
    }

    /// What an association's session has to say, which the station hears too. Fixed hosts accept at once.
    pub(super) fn poll(&mut self, now: lasthop_units::Time, id: At) -> Option<Event> {
        let (session, hop) = self.session(id)?;
        let event = session.poll_event(now, hop)?;
        match &event {
            Event::Connect { id: conn, .. } => {
                let bound = std::net::SocketAddr::from(([192, 0, 2, 1], 80));
                session.accept(hop, *conn, bound);
                self.proxied += usize::from(!matches!(id, At::Mobile(_)));
                if !self.names.contains_key(&(id, *conn)) {
                    self.add(Some((id, *conn)), Kind::Relays);
                }
            }
            Event::Closed(conn) => self.end((id, *conn)),
            _ => {}
        }
        Some(event)
    }

    /// Bytes move between associations.
    pub(super) fn pump(&mut self) {
        let all: Vec<u64> = self.sockets.keys().copied().collect();
        for n in all {
            let Some(socket) = self.sockets.get_mut(&n) else { continue };
            if let Kind::Bridge(mut bridge) = core::mem::replace(&mut socket.kind, Kind::Relays) {
                bridge.pump(self);
                self.sockets.get_mut(&n).expect("it is here").kind = Kind::Bridge(bridge);
            }
        }
    }
}

impl Associations for Base {
    type Id = At;
    type Streams = End;

    fn session(&mut self, id: At) -> Option<(&mut Session, &mut End)> {
        let (session, pair) = (self.sessions.get_mut(&id)?, self.pairs.get_mut(&id)?);
        Some((session, if matches!(id, At::Link(_)) { &mut pair.mobile } else { &mut pair.base }))
    }

    fn peek(&self, id: At) -> Option<&Session> {
        self.sessions.get(&id)
    }
}

impl Wires<u32, At, u64> for Base {
    type Made = ();

    fn link(&mut self, base: u32, _session: SessionId) -> Option<At> {
        if !(1..=3).contains(&base) {
            return None;
        }
        self.made += 1;
        let n = self.made as usize;
        self.links.insert(n, base);
        self.open(At::Link(n));
        Some(At::Link(n))
    }

    fn is_linked(&self, id: At) -> bool {
        self.linked.contains(&id)
    }

    fn unlink(&mut self, id: At, _farewell: Farewell) {
        self.shut(id);
        if let At::Link(n) = id {
            self.links.remove(&n);
        }
    }

    fn close(&mut self, id: At) {
        self.shut(id);
    }

    fn wired(&self, id: At) -> Vec<(ConnId, u64)> {
        let of = |((at, conn), n): (&Name<At>, &u64)| (*at == id).then_some((*conn, *n));
        self.names.iter().filter_map(of).collect()
    }

    fn fate(&self, _mobile: u32, socket: u64) -> Option<Fate> {
        let socket = self.sockets.get(&socket)?;
        matches!(socket.kind, Kind::Relays).then_some(if self.migrates {
            Fate::Leaves
        } else {
            Fate::Stays
        })
    }

    fn state(&self, socket: u64) -> Option<SocketState> {
        Some(match self.sockets.get(&socket)?.kind {
            Kind::Relays => SocketState::Relays,
            Kind::Bridge(_) => SocketState::Spliced,
        })
    }

    fn is_write_done(&self, _socket: u64) -> bool {
        false
    }

    fn attach(&mut self, socket: u64, name: Name<At>) {
        if let Some(known) = self.sockets.get_mut(&socket) {
            known.name = Some(name);
            self.names.insert(name, socket);
        }
    }

    fn detach(&mut self, socket: u64) {
        if let Some(name) = self.sockets.get_mut(&socket).and_then(|known| known.name.take()) {
            self.names.remove(&name);
        }
    }

    fn reset(&mut self, socket: u64) {
        self.remove(socket);
    }

    fn splice(&mut self, _target: &Target, bridge: Bridge<At>) {
        let (near, far) = (bridge.near, bridge.far);
        let socket = self.add(near, Kind::Bridge(Box::new(bridge)));
        self.names.extend(far.map(|far| (far, socket)));
    }

    fn dump(
        &mut self,
        _session: SessionId,
        _mobile: u32,
        leaving: Vec<Name<u64>>,
    ) -> Option<Vec<(ConnId, Dumped<u64>)>> {
        let dump = |(socket, conn): Name<u64>| {
            self.remove(socket);
            (conn, if self.ready { Dumped::Image(vec![7; 9]) } else { Dumped::Lost })
        };
        Some(leaving.into_iter().map(dump).collect())
    }

    fn restore(
        &mut self,
        _session: SessionId,
        _mobile: u32,
        images: Vec<Vec<u8>>,
    ) -> Option<Vec<Option<()>>> {
        Some(images.iter().map(|_| self.ready.then_some(())).collect())
    }

    fn install(&mut self, id: At, Restored { conn, ended, .. }: Restored, (): ()) {
        let name = (id, conn);
        if ended.is_none() && !self.names.contains_key(&name) {
            self.add(Some(name), Kind::Relays);
        }
    }

    fn previews(&self, _id: At, _mobile: u32, _limit: Bytes) -> Vec<(ConnId, Vec<u8>)> {
        vec![]
    }

    fn discard(&mut self, _session: SessionId, _images: Vec<Vec<u8>>) {}

    fn reroute(&mut self, _session: SessionId, _mobile: Option<u32>, _to: u32) {}

    fn end_move(&mut self, _mobile: u32) {}

    fn release_mobile(&mut self, _mobile: u32) {}

    fn is_ready(&self) -> bool {
        self.ready
    }
}
