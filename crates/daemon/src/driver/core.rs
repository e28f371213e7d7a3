//! What base and mobile have in common: the hop, its sessions, and the connections that they carry.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::SocketAddr;

use lasthop_control::past::Past;
use lasthop_control::priority::Program;
use lasthop_control::{ConnectionReport, Counters, Report};
use lasthop_hop::Policy;
use lasthop_hop::seal::PublicKey;
use lasthop_kernel::accept::{Accepted, Pauses};
use lasthop_kernel::clock::Clock;
use lasthop_kernel::reactor::Reactor;
use lasthop_kernel::slab::{Key, Slab};
use lasthop_kernel::tcp::Socket;
use lasthop_kernel::turn::{Source, Turn};
use lasthop_migrate::Ticket;
use lasthop_session::station::{Associations, Bridge};
use lasthop_session::{ConnId, ResetReason, Session};
use lasthop_units::{Deadlines, Time, Timers};

use crate::fleet::FleetKeys;
use crate::held::{Held, Holder};
use crate::hop::{AnyStreams, Hop};
use crate::relay::Relay;
use crate::resolve::Resolver;

/// What a query to the resolver is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asker {
    /// The address of the mobile's base of that number.
    Base(usize),
    /// A connection whose target is a name.
    Connection(Key),
    /// A name to which datagrams go, by the number of that question.
    Datagrams(u64),
}

/// On whose behalf names are resolved and connections are opened.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Client<I> {
    /// This process.
    Own,
    /// The mobile with this key, whatever association it has.
    Mobile(PublicKey),
    /// The mobile at the other end of an association, where mobiles have no keys.
    Association(I),
}

/// What a timer is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Timer {
    /// Accepting on a listener may go on.
    Accept(usize),
    /// The name of the base of that number is to be looked up again, or a hop to it opened.
    Base(usize),
    /// A connection's that is not relayed yet.
    Connection(Key),
    /// What is to end may have nothing left.
    Drain,
    /// The end of the time that connections have to end.
    Grace,
    /// A relayed connection's whose acknowledgements are held.
    Held(Key),
}

/// What a connection is doing.
#[derive(Debug)]
pub(crate) enum Phase<I, W> {
    /// The role is busy with it.
    Waiting(W),
    /// Bytes are relayed.
    Relaying(Relay),
    /// Bytes are passed on to the base that keeps the socket.
    Bridged(Bridge<I>),
}

/// Who uses a connection, for reports and for priorities.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct ConnectionInfo {
    /// Names the connection in this process; never used twice.
    pub(crate) number: u64,
    /// The application's address, or the fixed host's that opened the connection.
    pub(crate) client: Option<SocketAddr>,
    /// The application's program, where the kernel can tell.
    pub(crate) program: Option<Program>,
    /// The connection's priority, where priorities are known.
    pub(crate) priority: Option<u32>,
    /// Which links carry it.
    pub(crate) policy: Policy,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection<I, W> {
    pub(crate) who: ConnectionInfo,
    /// Its name in the session, once it has one.
    pub(crate) name: Option<(I, ConnId)>,
    /// Where it goes, for people.
    pub(crate) target: String,
    pub(crate) since: Time,
    pub(crate) phase: Phase<I, W>,
    /// It ended with a reset, and so must its socket.
    pub(crate) reset: bool,
    pub(super) queued: bool,
}

impl<I: Copy, W> Connection<I, W> {
    /// Its names in sessions: one, or two if it leads on to another base.
    fn names(&self) -> impl Iterator<Item = (I, ConnId)> {
        let far = match &self.phase {
            Phase::Bridged(bridge) => bridge.far,
            _ => None,
        };
        [self.name, far].into_iter().flatten()
    }
}

/// What a base of the fleet needs to take a connection over, if one can.
fn ticket_of<I, W>(connection: &Connection<I, W>) -> Option<&Ticket> {
    match &connection.phase {
        Phase::Relaying(relay) => relay.held.as_ref()?.ticket(),
        Phase::Waiting(_) | Phase::Bridged(_) => None,
    }
}

/// Sessions with their streams, for a bridge.
struct Ends<'a, H: Hop> {
    sessions: &'a mut BTreeMap<H::Id, Session>,
    hop: &'a mut H,
}

impl<H: Hop> Associations for Ends<'_, H> {
    type Id = H::Id;
    type Streams = AnyStreams;

    fn session(&mut self, id: H::Id) -> Option<(&mut Session, &mut AnyStreams)> {
        Some((self.sessions.get_mut(&id)?, self.hop.streams(id)?))
    }

    fn peek(&self, id: H::Id) -> Option<&Session> {
        self.sessions.get(&id)
    }
}

/// What base and mobile have in common.
pub(crate) struct Core<H: Hop, W> {
    pub(crate) now: Time,
    pub(crate) reactor: Reactor<Source>,
    pub(crate) hop: H,
    pub(crate) resolver: Resolver<Client<H::Id>, Asker>,
    pub(crate) connections: Slab<Connection<H::Id, W>>,
    pub(crate) counters: Counters,
    pub(crate) stopping: bool,
    pub(super) clock: Clock,
    pub(super) sessions: BTreeMap<H::Id, Session>,
    names: BTreeMap<(H::Id, ConnId), Key>,
    /// The number of the latest connection, and how much greater each is than the one before.
    numbered: u64,
    number_step: u64,
    numbers: BTreeMap<u64, Key>,
    /// Numbers of connections that are over, of which the role is not notified yet.
    pub(super) over: Vec<u64>,
    /// Connections on which something may move.
    pub(super) queue: VecDeque<Key>,
    /// Associations whose session may have events or something to send.
    pub(super) touched: BTreeSet<H::Id>,
    pub(super) timers: Timers<Timer>,
    pauses: Pauses,
    /// When sessions that are not touched want to be called.
    pub(super) deadlines: Deadlines<H::Id>,
    /// What associations have carried of late.
    past: Past<H::Id>,
}

impl<H: Hop, W> Core<H, W> {
    pub(crate) fn new(hop: H) -> io::Result<Self> {
        let clock = Clock::start();
        Ok(Self {
            now: clock.now(),
            reactor: Reactor::new()?,
            hop,
            resolver: Resolver::start()?,
            connections: Slab::new(),
            counters: Counters::default(),
            stopping: false,
            clock,
            sessions: BTreeMap::new(),
            names: BTreeMap::new(),
            numbered: 0,
            number_step: 1,
            numbers: BTreeMap::new(),
            over: Vec::new(),
            queue: VecDeque::new(),
            touched: BTreeSet::new(),
            timers: Timers::new(),
            pauses: Pauses::default(),
            deadlines: Deadlines::new(),
            past: Past::default(),
        })
    }

    /// As [`Driver::beside_others`](super::Driver::beside_others) has it.
    pub(super) fn share_numbers(&mut self, clock: Clock, first: u64, step: u64) {
        (self.clock, self.now) = (clock, clock.now());
        (self.numbered, self.number_step) = (first, step);
    }

    /// A turn for the hop.
    pub(crate) fn turn(&mut self) -> (&mut H, Turn<'_>) {
        let (now, clock) = (self.now, self.clock);
        (&mut self.hop, Turn::new(now, clock, &mut self.reactor))
    }

    /// Runs `timer` at `at`.
    pub(crate) fn arm(&mut self, at: Time, timer: Timer) {
        self.timers.replace(timer, None, Some(at));
    }

    /// Goes on accepting at listener `n` when that may be, after a [share](lasthop_kernel::accept::share) that
    /// ended with `last`.
    pub(crate) fn accept_again(&mut self, n: usize, last: Accepted<()>) {
        if let Some(at) = self.pauses.next(self.now, last) {
            self.arm(at, Timer::Accept(n));
        }
    }

    /// The session and the streams of an association; both are looked at again afterwards.
    pub(crate) fn session(&mut self, id: H::Id) -> Option<(&mut Session, &mut AnyStreams)> {
        let session = self.sessions.get_mut(&id)?;
        let streams = self.hop.streams(id)?;
        self.touched.insert(id);
        Some((session, streams))
    }

    /// The session of an association, read only.
    pub(crate) fn peek(&self, id: H::Id) -> Option<&Session> {
        self.sessions.get(&id)
    }

    /// Resets a connection that goes no further here, if it has a name in a session.
    pub(crate) fn abort(&mut self, name: Option<(H::Id, ConnId)>) {
        if let Some((id, conn)) = name
            && let Some((session, mut streams)) = self.session(id)
        {
            session.reset(&mut streams, conn, ResetReason::Aborted);
        }
    }

    /// Makes the session of an association if there is none.
    pub(crate) fn open_session(&mut self, id: H::Id, make: impl FnOnce() -> Session) {
        self.sessions.entry(id).or_insert_with(make);
        self.touched.insert(id);
    }

    /// Adds a connection on which the role is busy.
    pub(crate) fn add(&mut self, target: String, waiting: W) -> Key {
        self.insert(target, Phase::Waiting(waiting))
    }

    /// Adds a connection without a name.
    fn insert(&mut self, target: String, phase: Phase<H::Id, W>) -> Key {
        self.numbered += self.number_step;
        let who = ConnectionInfo { number: self.numbered, ..ConnectionInfo::default() };
        let key = self.connections.insert(Connection {
            who,
            name: None,
            target,
            since: self.now,
            phase,
            reset: false,
            queued: false,
        });
        self.numbers.insert(self.numbered, key);
        key
    }

    /// The connection with this number.
    pub(crate) fn numbered(&mut self, number: u64) -> Option<&mut Connection<H::Id, W>> {
        self.connections.get_mut(*self.numbers.get(&number)?)
    }

    /// Gives a connection its name in a session.
    pub(crate) fn name(&mut self, key: Key, id: H::Id, conn: ConnId) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.name = Some((id, conn));
            self.names.insert((id, conn), key);
        }
    }

    /// The connection with this name.
    pub(crate) fn find(&self, id: H::Id, conn: ConnId) -> Option<Key> {
        self.names.get(&(id, conn)).copied()
    }

    /// What the role is busy with on a connection.
    pub(crate) fn waiting(&mut self, key: Key) -> Option<&mut W> {
        match &mut self.connections.get_mut(key)?.phase {
            Phase::Waiting(waiting) => Some(waiting),
            Phase::Relaying(_) | Phase::Bridged(_) => None,
        }
    }

    /// Removes a connection and its name.
    pub(crate) fn remove(&mut self, key: Key) -> Option<Connection<H::Id, W>> {
        let connection = self.take(key)?;
        self.numbers.remove(&connection.who.number);
        self.over.push(connection.who.number);
        Some(connection)
    }

    /// Takes a connection and its name out; it may go on elsewhere.
    fn take(&mut self, key: Key) -> Option<Connection<H::Id, W>> {
        let connection = self.connections.remove(key)?;
        for name in connection.names() {
            self.names.remove(&name);
        }
        if let Phase::Relaying(Relay { held: Some(held), .. }) = &connection.phase {
            self.timers.replace(Timer::Held(key), held.armed, None);
        }
        Some(connection)
    }

    /// Removes a connection's name: its session has no further events for it.
    pub(crate) fn unname(&mut self, key: Key) {
        if let Some(connection) = self.connections.get_mut(key)
            && let Some(name) = connection.name.take()
        {
            self.names.remove(&name);
        }
    }

    /// Relays bytes between connection `conn` of a session and `socket`; `preface` goes first into
    /// the session. `take` gives both, or nothing: then there is no connection.
    pub(crate) fn relay(&mut self, key: Key, take: impl FnOnce(W) -> Option<(Socket, Vec<u8>)>) {
        let Some(Connection { who, name, target, since, phase, reset, .. }) = self.take(key) else {
            return;
        };
        let number = who.number;
        let taken = match (name, phase) {
            (Some(name), Phase::Waiting(waiting)) => take(waiting).map(|taken| (name, taken)),
            _ => None,
        };
        let Some(((id, conn), (socket, preface))) = taken else {
            self.numbers.remove(&number);
            return self.over.push(number);
        };
        tracing::debug!(connection = conn.0, target, "connection opened");
        let token = socket.token;
        let phase = Phase::Relaying(Relay::new(conn, socket, preface));
        let key = self.connections.insert(Connection {
            who,
            name: Some((id, conn)),
            target,
            since,
            phase,
            reset,
            queued: false,
        });
        self.numbers.insert(number, key);
        self.names.insert((id, conn), key);
        self.reactor.reassign(token, Source::Connection(key));
        self.counters.opened += 1;
        self.enqueue(key);
    }

    /// Connections that have a name in the session of an association.
    pub(crate) fn connections_of(&self, id: H::Id) -> Vec<(ConnId, Key)> {
        let all = (id, ConnId(0))..=(id, ConnId(u64::MAX));
        self.names.range(all).map(|((_, conn), key)| (*conn, *key)).collect()
    }

    /// The session of association `old`, and its connections, are association `new`'s from here on.
    pub(crate) fn rekey(&mut self, old: H::Id, new: H::Id) {
        let Some(session) = self.close_session(old) else { return };
        for (conn, key) in self.connections_of(old) {
            self.names.remove(&(old, conn));
            self.name(key, new, conn);
        }
        self.sessions.insert(new, session);
        self.touched.insert(new);
    }

    /// Removes the session of an association, without further events.
    pub(crate) fn close_session(&mut self, id: H::Id) -> Option<Session> {
        self.touched.remove(&id);
        self.deadlines.set(id, None);
        self.sessions.remove(&id)
    }

    /// Adds a connection whose bytes are relayed at once between a session and a socket.
    pub(crate) fn add_relay(&mut self, target: String, id: H::Id, relay: Relay) {
        let conn = relay.id;
        let key = self.park(target, relay);
        self.rename(key, id, conn);
    }

    /// Adds a relay that belongs to no session at the moment.
    pub(crate) fn park(&mut self, target: String, relay: Relay) -> Key {
        let token = relay.socket.token;
        let key = self.insert(target, Phase::Relaying(relay));
        self.reactor.reassign(token, Source::Connection(key));
        key
    }

    /// A relay that belonged to no session goes on as connection `conn` of one, which has the same
    /// number wherever it is.
    pub(crate) fn rename(&mut self, key: Key, id: H::Id, conn: ConnId) {
        self.name(key, id, conn);
        self.enqueue(key);
    }

    /// Adds a connection that leads from a mobile's session to the one of the base that keeps its
    /// socket.
    pub(crate) fn add_bridge(&mut self, target: String, bridge: Bridge<H::Id>) {
        let (near, far) = (bridge.near, bridge.far);
        let key = self.insert(target, Phase::Bridged(bridge));
        if let Some((id, conn)) = near {
            self.name(key, id, conn);
        }
        self.names.extend(far.map(|name| (name, key)));
        self.enqueue(key);
    }

    /// One end of a bridge is over: the other end, and whether it was a reset. `None` if there is none.
    pub(super) fn end_of_bridge(
        &mut self,
        key: Key,
        name: (H::Id, ConnId),
    ) -> Option<((H::Id, ConnId), bool)> {
        self.names.remove(&name);
        let connection = self.connections.get_mut(key)?;
        let Phase::Bridged(bridge) = &mut connection.phase else { return None };
        bridge.end(name);
        connection.name = bridge.near;
        Some((bridge.rest()?, connection.reset))
    }

    pub(super) fn enqueue(&mut self, key: Key) {
        if let Some(connection) = self.connections.get_mut(key)
            && !connection.queued
        {
            connection.queued = true;
            self.queue.push_back(key);
        }
    }

    /// Moves the bytes of every connection that was queued, once.
    pub(super) fn pump_queue(&mut self) {
        for _ in 0..self.queue.len() {
            let Some(key) = self.queue.pop_front() else { return };
            let Some(connection) = self.connections.get_mut(key) else { continue };
            connection.queued = false;
            if let Phase::Bridged(bridge) = &mut connection.phase {
                self.touched.extend([bridge.near, bridge.far].iter().flatten().map(|name| name.0));
                let mut ends = Ends { sessions: &mut self.sessions, hop: &mut self.hop };
                if bridge.pump(&mut ends) {
                    self.enqueue(key);
                }
                continue;
            }
            let (Phase::Relaying(relay), Some((id, _))) = (&mut connection.phase, connection.name)
            else {
                continue;
            };
            let Some(session) = self.sessions.get_mut(&id) else { continue };
            let Some(mut streams) = self.hop.streams(id) else { continue };
            self.touched.insert(id);
            if relay.pump(self.now, session, &mut streams) {
                self.enqueue(key);
            }
            self.arm_held(key);
        }
    }

    /// Holds the acknowledgements of a connection, whose mobile is given what it takes to go on with it elsewhere.
    pub(crate) fn hold(&mut self, id: H::Id, conn: ConnId, held: Held, holder: &Holder) {
        let connection = self.find(id, conn).and_then(|key| self.connections.get_mut(key));
        let Some(Phase::Relaying(relay)) = connection.map(|connection| &mut connection.phase)
        else {
            return;
        };
        let ticket = held.ticket().and_then(|it| holder.tickets.seal(&holder.mobile, conn, it));
        relay.held = Some(Box::new(held));
        let now = self.now;
        if let Some((session, mut streams)) = self.session(id) {
            session.report_acknowledged(&mut streams, conn);
            if let Some(ticket) = ticket
                && session.release(&mut streams, conn, 0, false)
                && let Err(error) = session.send_message(now, &mut streams, &ticket)
            {
                tracing::debug!(%error, "a mobile is given no ticket");
            }
        }
    }

    /// The connections that their mobiles can go on with elsewhere.
    pub(crate) fn with_tickets(&self) -> impl Iterator<Item = Key> {
        let all = self.connections.iter();
        all.filter(|(_, connection)| ticket_of(connection).is_some()).map(|(key, _)| key)
    }

    /// Gives a mobile another ticket of its connection, made with these keys; nothing of one that is over, or has none. False if
    /// that has no room yet.
    pub(crate) fn renew_ticket(&mut self, key: Key, mobile: &PublicKey, keys: &FleetKeys) -> bool {
        let Some(connection) = self.connections.get(key) else { return true };
        let (Some((id, conn)), Some(ticket)) = (connection.name, ticket_of(connection)) else {
            return true;
        };
        let Some(ticket) = keys.seal(mobile, conn, ticket) else { return true };
        let now = self.now;
        let Some((session, mut streams)) = self.session(id) else { return true };
        session.send_message(now, &mut streams, &ticket).is_ok()
    }

    /// No connection of an association goes on at any other base.
    pub(crate) fn renounce(&mut self, id: H::Id) {
        for (_, key) in self.connections_of(id) {
            if let Some(held) = self.held(key) {
                held.renounce();
            }
        }
    }

    fn held(&mut self, key: Key) -> Option<&mut Held> {
        match &mut self.connections.get_mut(key)?.phase {
            Phase::Relaying(relay) => relay.held.as_deref_mut(),
            Phase::Waiting(_) | Phase::Bridged(_) => None,
        }
    }

    /// The timer of a connection whose acknowledgements are held.
    pub(super) fn handle_held(&mut self, key: Key) {
        let now = self.now;
        if let Some(held) = self.held(key) {
            held.armed = None;
            let follows = held.handle_timeout(now);
            self.arm_held(key);
            if follows {
                self.enqueue(key);
            }
        }
    }

    fn arm_held(&mut self, key: Key) {
        let Some(held) = self.held(key) else { return };
        let next = held.next_timeout();
        let before = std::mem::replace(&mut held.armed, next);
        self.timers.replace(Timer::Held(key), before, next);
    }

    /// When the next turn is due for what base and mobile have in common.
    pub(super) fn next_turn(&self) -> Option<Time> {
        if !self.queue.is_empty() || !self.touched.is_empty() || self.hop.is_active() {
            return Some(Time::ZERO);
        }
        [self.deadlines.next(), self.timers.next(), self.hop.next_timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Remembers what an association has done since the last time.
    pub(super) fn remember(&mut self, id: H::Id) {
        if let Some(progress) = self.hop.progress(id) {
            self.past.add(self.now, id, progress);
        }
    }

    pub(crate) fn report(&self, role: &str) -> Report {
        let name = |id: &H::Id| format!("{id:?}");
        let connections = self.connections.iter().map(|(_, c)| {
            let (state, to_hop, from_hop) = match &c.phase {
                Phase::Waiting(_) => ("opening", 0, 0),
                Phase::Relaying(relay) => (relay.state(), relay.to_hop, relay.from_hop),
                Phase::Bridged(bridge) => (bridge.state(), bridge.to_hop, bridge.from_hop),
            };
            ConnectionReport {
                key: c.who.number,
                client: c.who.client.map(|client| client.to_string()),
                program: c.who.program.as_ref().map(|program| program.shown().to_owned()),
                priority: c.who.priority,
                // A mobile says it, which knows its links' names.
                policy: None,
                association: c.name.as_ref().map(|(id, _)| name(id)),
                id: c.name.map(|(_, conn)| conn.0),
                target: c.target.clone(),
                state: state.to_owned(),
                bytes_to_hop: to_hop,
                bytes_from_hop: from_hop,
                age_s: (self.now - c.since).as_secs_f64(),
            }
        });
        Report {
            role: role.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_s: self.now.as_secs_f64(),
            hop: self.hop.name().to_owned(),
            associations: self.hop.reports(self.now),
            connections: connections.collect(),
            counters: Counters { garbage: self.hop.garbage(), ..self.counters },
            past: Some(self.past.report(self.now)),
            ..Report::default()
        }
    }
}
