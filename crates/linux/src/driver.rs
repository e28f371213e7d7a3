//! The event loop: one thread, one epoll set, the hop's machines and the sockets of all
//! connections. What differs between a base and a mobile is a [`Role`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::num::NonZeroU64;
use std::time::Duration;

use lasthop_session::{ConnId, Event, ResetReason, Session};
use lasthop_units::Time;

use crate::clock::Clock;
use crate::control::{ConnectionReport, Control, Counters, Report};
use crate::hop::{Gone, Hop, HopEvent, Source, Turn};
use crate::reactor::{Interest, Reactor, Readiness};
use crate::relay::Relay;
use crate::resolve::{Answer, Resolver};
use crate::slab::{Key, Slab};
use crate::stop::Stop;
use crate::tcp::Socket;

/// How long open connections may take to end after the first request to stop.
const GRACE: Duration = Duration::from_secs(2);
/// Rounds between machines and sockets in one turn; what is left moves in the next.
const ROUNDS_MAX: usize = 8;
/// The kernel may delay a wake-up by this much to save power; pacing wants better than its 50 µs.
const TIMER_SLACK: Duration = Duration::from_micros(1);

/// Whose question to the resolver it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asker {
    /// The mobile's own: where its base is.
    Base,
    /// A connection whose target is a name.
    Connection(Key),
}

/// Whose timer it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Timer {
    /// Accepting on a listener may go on.
    Accept(usize),
    /// The base's name is to be looked up again.
    Resolve,
    /// A connection's that is not relayed yet.
    Connection(Key),
    /// The end of the time that connections have to end.
    Grace,
}

/// What a connection is doing.
#[derive(Debug)]
pub(crate) enum Phase<W> {
    /// The role is busy with it.
    Waiting(W),
    /// Bytes are relayed.
    Relaying(Relay),
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection<I, W> {
    /// Its name in the session, once it has one.
    pub(crate) name: Option<(I, ConnId)>,
    /// Where it goes, for people.
    pub(crate) target: String,
    pub(crate) since: Time,
    pub(crate) phase: Phase<W>,
    /// It ended with a reset, and so must its socket.
    pub(crate) reset: bool,
    queued: bool,
}

/// What a base does and a mobile does not, and the other way round.
pub(crate) trait Role {
    /// The hop.
    type Hop: Hop;
    /// A connection that is not relayed yet.
    type Waiting;

    /// `base` or `mobile`.
    const NAME: &'static str;

    /// A new association's session.
    fn session(&self) -> Session;
    /// Starts to watch what is the role's own.
    fn start(&mut self, core: &mut CoreOf<Self>) -> io::Result<()>;
    /// Somebody connects to listener `n`.
    fn handle_listener(&mut self, core: &mut CoreOf<Self>, n: usize);
    /// The socket of a connection that is not relayed yet is ready.
    fn handle_waiting(&mut self, core: &mut CoreOf<Self>, key: Key, readiness: Readiness);
    /// Attempt `n` of a connection is ready.
    fn handle_attempt(&mut self, core: &mut CoreOf<Self>, key: Key, n: u32);
    /// The session said `Opened`, `Failed` or `Connect`.
    fn handle_opening(&mut self, core: &mut CoreOf<Self>, id: IdOf<Self>, event: Event);
    /// A connection that is not relayed yet was closed by the session.
    fn handle_gone(&mut self, core: &mut CoreOf<Self>, waiting: Self::Waiting, reset: bool);
    /// The resolver answered.
    fn handle_answer(&mut self, core: &mut CoreOf<Self>, answer: Answer<Asker>);
    /// A timer is due.
    fn handle_timer(&mut self, core: &mut CoreOf<Self>, timer: Timer);
    /// Something happened to an association.
    fn handle_association(&mut self, core: &mut CoreOf<Self>, event: &HopEvent<IdOf<Self>>);
    /// No new connection is wanted any more.
    fn stop(&mut self, core: &mut CoreOf<Self>);
}

/// The core under a role.
pub(crate) type CoreOf<R> = Core<<R as Role>::Hop, <R as Role>::Waiting>;
type IdOf<R> = <<R as Role>::Hop as Hop>::Id;

/// What base and mobile have in common.
pub(crate) struct Core<H: Hop, W> {
    pub(crate) now: Time,
    pub(crate) reactor: Reactor<Source>,
    pub(crate) hop: H,
    pub(crate) resolver: Resolver<Asker>,
    pub(crate) connections: Slab<Connection<H::Id, W>>,
    pub(crate) counters: Counters,
    pub(crate) stopping: bool,
    clock: Clock,
    sessions: BTreeMap<H::Id, Session>,
    names: BTreeMap<(H::Id, ConnId), Key>,
    /// Connections on which something may move.
    queue: VecDeque<Key>,
    /// Associations whose session may have something to say.
    touched: BTreeSet<H::Id>,
    timers: BTreeSet<(Time, Timer)>,
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
            queue: VecDeque::new(),
            touched: BTreeSet::new(),
            timers: BTreeSet::new(),
        })
    }

    /// A turn for the hop.
    pub(crate) fn turn(&mut self) -> (&mut H, Turn<'_>) {
        let (now, clock) = (self.now, self.clock);
        (&mut self.hop, Turn { now, clock, reactor: &mut self.reactor })
    }

    /// Runs `timer` at `at`.
    pub(crate) fn arm(&mut self, at: Time, timer: Timer) {
        self.timers.insert((at, timer));
    }

    /// The session and the streams of an association; both are looked at again afterwards.
    pub(crate) fn session(&mut self, id: H::Id) -> Option<(&mut Session, &mut H::Streams)> {
        let session = self.sessions.get_mut(&id)?;
        let streams = self.hop.streams(id)?;
        self.touched.insert(id);
        Some((session, streams))
    }

    /// Makes the session of an association if there is none.
    pub(crate) fn open_session(&mut self, id: H::Id, make: impl FnOnce() -> Session) {
        self.sessions.entry(id).or_insert_with(make);
        self.touched.insert(id);
    }

    /// Adds a connection on which the role is busy.
    pub(crate) fn add(&mut self, target: String, waiting: W) -> Key {
        let phase = Phase::Waiting(waiting);
        let since = self.now;
        self.connections.insert(Connection {
            name: None,
            target,
            since,
            phase,
            reset: false,
            queued: false,
        })
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
            Phase::Relaying(_) => None,
        }
    }

    /// Removes a connection and its name.
    pub(crate) fn remove(&mut self, key: Key) -> Option<Connection<H::Id, W>> {
        let connection = self.connections.remove(key)?;
        if let Some(name) = connection.name {
            self.names.remove(&name);
        }
        Some(connection)
    }

    /// Takes a connection's name away: its session has nothing more to say of it.
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
        let Some(Connection { name, target, since, phase, reset, .. }) = self.remove(key) else {
            return;
        };
        let (Some((id, conn)), Phase::Waiting(waiting)) = (name, phase) else { return };
        let Some((socket, preface)) = take(waiting) else { return };
        tracing::debug!(connection = conn.0, target, "connection opened");
        let token = socket.token;
        let phase = Phase::Relaying(Relay::new(conn, socket, preface));
        let key = self.connections.insert(Connection {
            name: Some((id, conn)),
            target,
            since,
            phase,
            reset,
            queued: false,
        });
        self.names.insert((id, conn), key);
        self.reactor.reassign(token, Source::Connection(key));
        self.counters.opened += 1;
        self.enqueue(key);
    }

    fn enqueue(&mut self, key: Key) {
        if let Some(connection) = self.connections.get_mut(key)
            && !connection.queued
        {
            connection.queued = true;
            self.queue.push_back(key);
        }
    }

    /// Moves the bytes of every connection that was queued, once.
    fn pump_queue(&mut self) {
        for _ in 0..self.queue.len() {
            let Some(key) = self.queue.pop_front() else { return };
            let Some(connection) = self.connections.get_mut(key) else { continue };
            connection.queued = false;
            let (Phase::Relaying(relay), Some((id, _))) = (&mut connection.phase, connection.name)
            else {
                continue;
            };
            let Some(session) = self.sessions.get_mut(&id) else { continue };
            let Some(streams) = self.hop.streams(id) else { continue };
            self.touched.insert(id);
            if relay.pump(session, streams) {
                self.enqueue(key);
            }
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        let sessions = self.sessions.values().filter_map(Session::next_timeout).min();
        let timers = self.timers.first().map(|(at, _)| *at);
        [sessions, timers, self.hop.next_timeout()].into_iter().flatten().min()
    }

    /// How long the loop may sleep.
    fn patience(&self) -> Option<Duration> {
        if !self.queue.is_empty() || !self.touched.is_empty() || self.hop.is_active() {
            return Some(Duration::ZERO);
        }
        self.next_timeout().filter(|at| *at != Time::NEVER).map(|at| at - self.clock.now())
    }

    fn report(&self, role: &str) -> Report {
        let name = |id: &H::Id| format!("{id:?}");
        let connections = self.connections.iter().map(|(_, c)| {
            let (state, to_hop, from_hop) = match &c.phase {
                Phase::Waiting(_) => ("opening", 0, 0),
                Phase::Relaying(relay) => (relay.state(), relay.to_hop, relay.from_hop),
            };
            ConnectionReport {
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
        }
    }
}

/// A role and its core, ready to run.
pub(crate) struct Driver<R: Role> {
    core: CoreOf<R>,
    role: R,
    control: Option<Control>,
}

impl<R: Role> Driver<R> {
    pub(crate) fn new(role: R, hop: R::Hop, control: Option<Control>) -> io::Result<Self> {
        Ok(Self { core: Core::new(hop)?, role, control })
    }

    pub(crate) fn hop(&self) -> &R::Hop {
        &self.core.hop
    }

    pub(crate) fn role(&self) -> &R {
        &self.role
    }

    /// Runs until `stop` is requested and the connections have ended or had their time.
    pub(crate) fn run(&mut self, stop: &Stop) -> io::Result<()> {
        let slack = NonZeroU64::new(TIMER_SLACK.as_nanos() as u64);
        // Without it timers are some tens of microseconds later.
        let _ = rustix::thread::set_current_timer_slack(slack);
        self.core.reactor.add(stop, Interest::Read, Source::Stop)?;
        let (resolver, reactor) = (&self.core.resolver, &mut self.core.reactor);
        reactor.add(resolver, Interest::Read, Source::Resolver)?;
        if let Some(control) = &self.control {
            self.core.reactor.add(control.listener(), Interest::Read, Source::Control(None))?;
        }
        self.role.start(&mut self.core)?;
        let mut ready = Vec::new();
        loop {
            if self.core.stopping && self.core.connections.len() == 0 {
                self.flush();
                let (hop, mut turn) = self.core.turn();
                hop.close(&mut turn);
                return Ok(());
            }
            self.core.reactor.wait(self.core.patience(), &mut ready)?;
            self.core.now = self.core.clock.now();
            for (source, readiness) in &ready {
                self.dispatch(*source, *readiness, stop);
            }
            self.handle_timers();
            for _ in 0..ROUNDS_MAX {
                self.pump_hop();
                self.poll_sessions();
                self.core.pump_queue();
                if self.core.touched.is_empty() {
                    break;
                }
            }
            self.flush();
        }
    }

    fn dispatch(&mut self, source: Source, readiness: Readiness, stop: &Stop) {
        match source {
            Source::Stop => self.handle_stop(stop),
            Source::Resolver => {
                self.core.resolver.drain();
                while let Some(answer) = self.core.resolver.poll() {
                    self.role.handle_answer(&mut self.core, answer);
                }
            }
            Source::Control(client) => self.handle_control(client, readiness),
            Source::Listener(n) => self.role.handle_listener(&mut self.core, n),
            Source::Attempt(key, n) => self.role.handle_attempt(&mut self.core, key, n),
            Source::Hop(key) => {
                let (hop, mut turn) = self.core.turn();
                hop.handle_ready(&mut turn, key, readiness);
            }
            Source::Connection(key) => self.handle_connection(key, readiness),
        }
    }

    fn handle_connection(&mut self, key: Key, readiness: Readiness) {
        let Some(connection) = self.core.connections.get_mut(key) else { return };
        if let Phase::Relaying(relay) = &mut connection.phase {
            relay.socket.ready(readiness);
            self.core.enqueue(key);
        } else {
            self.role.handle_waiting(&mut self.core, key, readiness);
        }
    }

    fn handle_control(&mut self, client: Option<Key>, readiness: Readiness) {
        let Some(control) = &mut self.control else { return };
        match client {
            Some(key) => {
                let (_, mut turn) = self.core.turn();
                control.handle_client(&mut turn, key, readiness);
            }
            None => {
                let report = self.core.report(R::NAME);
                let (_, mut turn) = self.core.turn();
                control.handle_listener(&mut turn, &report);
            }
        }
    }

    fn handle_timers(&mut self) {
        let now = self.core.now;
        while let Some((at, timer)) = self.core.timers.first().copied()
            && at <= now
        {
            self.core.timers.pop_first();
            match timer {
                Timer::Grace => self.abandon(),
                timer => self.role.handle_timer(&mut self.core, timer),
            }
        }
        if self.core.hop.next_timeout().is_some_and(|at| at <= now) {
            let (hop, mut turn) = self.core.turn();
            hop.handle_timeout(&mut turn);
        }
        for (id, session) in &mut self.core.sessions {
            if session.next_timeout().is_some_and(|at| at <= now)
                && let Some(streams) = self.core.hop.streams(*id)
            {
                session.handle_timeout(now, streams);
                self.core.touched.insert(*id);
            }
        }
    }

    fn pump_hop(&mut self) {
        let (hop, mut turn) = self.core.turn();
        hop.pump(&mut turn);
        // The machines must not see time go back behind their datagrams' stamps.
        self.core.now = self.core.clock.now();
        while let Some(event) = self.core.hop.poll_event() {
            self.handle_association(event);
        }
        // So many tell of each association, and one cannot hold the loop.
        for _ in 0..=self.core.sessions.len() {
            let Some(id) = self.core.hop.poll_active() else { break };
            self.core.touched.insert(id);
        }
    }

    fn handle_association(&mut self, event: HopEvent<IdOf<R>>) {
        if let HopEvent::Up(id) = &event {
            self.core.open_session(*id, || self.role.session());
        }
        self.role.handle_association(&mut self.core, &event);
        if let HopEvent::Lost(id, _) = event {
            self.end_session(id);
        }
    }

    /// Ends the connections of an association that is lost.
    fn end_session(&mut self, id: IdOf<R>) {
        let Some(mut session) = self.core.sessions.remove(&id) else { return };
        session.reset_all(&mut Gone, ResetReason::AssociationLost);
        while let Some(event) = session.poll_event(self.core.now, &mut Gone) {
            self.handle_event(id, event);
        }
        let (hop, mut turn) = self.core.turn();
        hop.forget(&mut turn, id);
        if self.core.hop.streams(id).is_some() {
            // The next association goes by the same name, as a mobile's does.
            self.core.sessions.insert(id, session);
        } else {
            self.core.touched.remove(&id);
        }
    }

    fn poll_sessions(&mut self) {
        while let Some(id) = self.core.touched.pop_first() {
            self.poll_session(id);
            // What was done meanwhile is looked at in the next round.
            if self.core.touched.contains(&id) {
                break;
            }
        }
    }

    fn poll_session(&mut self, id: IdOf<R>) {
        loop {
            let now = self.core.now;
            let Some(session) = self.core.sessions.get_mut(&id) else { return };
            let Some(streams) = self.core.hop.streams(id) else { return };
            let Some(event) = session.poll_event(now, streams) else { return };
            self.handle_event(id, event);
        }
    }

    fn handle_event(&mut self, id: IdOf<R>, event: Event) {
        match event {
            Event::Readable(conn) | Event::Writable(conn) => {
                if let Some(key) = self.core.find(id, conn) {
                    self.core.enqueue(key);
                }
            }
            Event::Reset { id: conn, .. } => {
                if let Some(key) = self.core.find(id, conn)
                    && let Some(connection) = self.core.connections.get_mut(key)
                {
                    connection.reset = true;
                }
            }
            Event::Closed(conn) => self.handle_closed(id, conn),
            Event::Opened { .. } | Event::Failed { .. } | Event::Connect { .. } => {
                self.role.handle_opening(&mut self.core, id, event);
            }
        }
    }

    fn handle_closed(&mut self, id: IdOf<R>, conn: ConnId) {
        let Some(key) = self.core.find(id, conn) else { return };
        let Some(connection) = self.core.remove(key) else { return };
        self.core.counters.closed += 1;
        match connection.phase {
            Phase::Relaying(relay) => {
                tracing::debug!(
                    connection = conn.0,
                    target = connection.target,
                    to_hop = relay.to_hop,
                    from_hop = relay.from_hop,
                    reset = connection.reset,
                    "connection closed"
                );
                relay.socket.close(&mut self.core.reactor, connection.reset);
            }
            Phase::Waiting(waiting) => {
                self.role.handle_gone(&mut self.core, waiting, connection.reset);
            }
        }
    }

    fn flush(&mut self) {
        let (hop, mut turn) = self.core.turn();
        hop.flush(&mut turn);
    }

    fn handle_stop(&mut self, stop: &Stop) {
        let requests = stop.take();
        if requests == 0 {
            return;
        }
        if self.core.stopping || requests > 1 {
            tracing::info!("stopping at once");
            self.core.stopping = true;
            return self.abandon();
        }
        tracing::info!(connections = self.core.connections.len(), "stopping");
        self.core.stopping = true;
        self.role.stop(&mut self.core);
        self.core.arm(self.core.now + GRACE, Timer::Grace);
    }

    /// Resets every connection.
    fn abandon(&mut self) {
        self.role.stop(&mut self.core);
        let ids: Vec<_> = self.core.sessions.keys().copied().collect();
        for id in ids {
            if let Some((session, streams)) = self.core.session(id) {
                session.reset_all(streams, ResetReason::Shutdown);
            }
            self.poll_session(id);
        }
        for key in self.core.connections.keys() {
            if let Some(connection) = self.core.remove(key) {
                match connection.phase {
                    Phase::Relaying(relay) => relay.socket.close(&mut self.core.reactor, true),
                    Phase::Waiting(waiting) => {
                        self.role.handle_gone(&mut self.core, waiting, true);
                    }
                }
            }
        }
    }
}
