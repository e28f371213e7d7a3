//! The event loop: one thread, one epoll set, the hop's machines and the sockets of all
//! connections. What differs between a base and a mobile is a [`Role`].

mod core;

use std::io;
use std::ops::ControlFlow;
use std::time::Duration;

use lasthop_session::{ConnId, Event, ResetReason, Session, SessionId};
use lasthop_units::Time;

pub(crate) use self::core::{Asker, Client, Core, Phase, Timer};

use lasthop_control::{self as control, Control, Reply, Report, Request};
use lasthop_kernel::clock::Clock;
use lasthop_kernel::event_loop::{self, EventLoop};
use lasthop_kernel::reactor::{Interest, Reactor, Readiness};
use lasthop_kernel::slab::Key;
use lasthop_kernel::stop::Stop;
use lasthop_kernel::turn::Source;
use serde::Serialize;

use crate::hop::{Hop, HopEvent, NoStreams};
use crate::resolve::Resolution;

/// How long open connections may take to end after the first request to stop.
const GRACE: Duration = Duration::from_secs(2);
/// How often it is looked whether a role that is to end has nothing any more.
const DRAIN_PACE: Duration = Duration::from_millis(20);
/// Rounds between machines and sockets in one turn; what is left moves in the next.
const ROUNDS_MAX: usize = 8;

/// What the event loop leaves to base and mobile, each its own way.
pub(crate) trait Role {
    /// The hop.
    type Hop: Hop;
    /// A connection that is not relayed yet.
    type Waiting;

    /// `base` or `mobile`.
    const NAME: &'static str;

    /// A new association's session.
    fn session(&self, id: IdOf<Self>) -> Session;
    /// Adds the role's own descriptors to the reactor.
    fn start(&mut self, core: &mut CoreOf<Self>) -> io::Result<()>;
    /// Listener `n` is readable.
    fn handle_listener(&mut self, core: &mut CoreOf<Self>, n: usize);
    /// The privileged helper, if there is one, has done something, has gone or has come back.
    fn handle_helper(&mut self, _core: &mut CoreOf<Self>) {}
    /// The socket of a connection that is not relayed yet is ready.
    fn handle_waiting(&mut self, core: &mut CoreOf<Self>, key: Key, readiness: Readiness);
    /// Attempt `n` of a connection is ready.
    fn handle_attempt(&mut self, core: &mut CoreOf<Self>, key: Key, n: u32);
    /// The session's event is `Opened`, `Failed` or `Connect`.
    fn handle_opening(&mut self, core: &mut CoreOf<Self>, id: IdOf<Self>, event: Event);
    /// The session of an association has an event; the loop does what follows for the connection.
    fn handle_event(&mut self, _id: IdOf<Self>, _event: &Event) {}
    /// A connection that is not relayed yet was closed by the session.
    fn handle_gone(&mut self, core: &mut CoreOf<Self>, waiting: Self::Waiting, reset: bool);
    /// The resolver answered.
    fn handle_answer(&mut self, core: &mut CoreOf<Self>, answer: Resolution<Asker>);
    /// A timer is due.
    fn handle_timer(&mut self, core: &mut CoreOf<Self>, timer: Timer);
    /// Something happened to an association.
    fn handle_association(&mut self, core: &mut CoreOf<Self>, event: &HopEvent<IdOf<Self>>);
    /// The peer of an association has sent a message about handoffs.
    fn handle_message(&mut self, core: &mut CoreOf<Self>, id: IdOf<Self>, message: &[u8]);
    /// The peer of an association resumes connections of a session that is not here.
    fn handle_wanted(&mut self, core: &mut CoreOf<Self>, id: IdOf<Self>, session: SessionId);
    /// Runs the role's own machines, once in each round of each turn. True if there may be more to do.
    fn advance(&mut self, core: &mut CoreOf<Self>) -> bool;
    /// Adds what only the role knows to a report.
    fn report(&self, _core: &CoreOf<Self>, _report: &mut Report) {}
    /// A client of the control socket wants this report: `None` if it is incomplete, and is to be
    /// [polled](Self::poll_report) when it is not.
    fn complete(&mut self, _client: Key, report: Report) -> Option<Report> {
        Some(report)
    }
    /// A report that is complete by now, and whose it is.
    fn poll_report(&mut self) -> Option<(Key, Report)> {
        None
    }
    /// Other workers of the process have sent something.
    fn handle_workers(&mut self, _core: &mut CoreOf<Self>) {}
    /// When the role's own machines want [`advance`](Self::advance) at the latest.
    fn next_timeout(&self) -> Option<Time>;
    /// Answers a request on the control socket, other than for the status ([`report`](Self::report)).
    fn handle_request(
        &mut self,
        core: &mut CoreOf<Self>,
        request: Request,
    ) -> Result<Reply, String>;
    /// The configuration is to be read again, where the role has one that can be.
    fn handle_reload(&mut self, _core: &mut CoreOf<Self>) {}
    /// Packets have come to the TUN device.
    fn handle_tun(&mut self, _core: &mut CoreOf<Self>) {}
    /// Datagrams have come to the UDP socket with this number of the role's.
    fn handle_datagrams(&mut self, _core: &mut CoreOf<Self>, _number: u64) {}
    /// Packets may have come by an association's lane.
    fn handle_packets(&mut self, _core: &mut CoreOf<Self>, _id: IdOf<Self>) {}
    /// Hands the kernel what was delivered to the TUN device.
    fn flush_packets(&mut self) {}
    /// The connection with this number is over.
    fn handle_over(&mut self, _number: u64) {}
    /// The process is to end: until when the role has others take over what it has, if it does, and is then
    /// stopped.
    fn drain(&mut self, _core: &mut CoreOf<Self>) -> Option<Time> {
        None
    }
    /// Whether it waits for nobody any more who is to leave.
    fn is_drained(&self) -> bool {
        true
    }
    /// Stops accepting new connections.
    fn stop(&mut self, core: &mut CoreOf<Self>);
}

/// The core under a role.
pub(crate) type CoreOf<R> = Core<<R as Role>::Hop, <R as Role>::Waiting>;
type IdOf<R> = <<R as Role>::Hop as Hop>::Id;

/// A role and its core, ready to run.
pub(crate) struct Driver<R: Role> {
    core: CoreOf<R>,
    role: R,
    control: Option<Control>,
    /// Until when others may take over what there is, before it is stopped.
    draining_until: Option<Time>,
    /// How long the associations that were touched in this turn can wait for the next.
    patience: Option<Duration>,
}

impl<R: Role> Driver<R> {
    pub(crate) fn new(role: R, hop: R::Hop, control: Option<Control>) -> io::Result<Self> {
        Ok(Self { core: Core::new(hop)?, role, control, draining_until: None, patience: None })
    }

    /// One of several workers that share a clock: connections have every `step`th number from `first` on.
    pub(crate) fn beside_others(mut self, clock: Clock, first: u64, step: u64) -> Self {
        self.core.share_numbers(clock, first, step);
        self
    }

    pub(crate) fn hop(&self) -> &R::Hop {
        &self.core.hop
    }

    pub(crate) fn role(&self) -> &R {
        &self.role
    }

    pub(crate) fn role_mut(&mut self) -> &mut R {
        &mut self.role
    }

    /// Runs until `stop` is requested and the connections have ended or their grace is over.
    pub(crate) fn run(&mut self, stop: &Stop) -> io::Result<()> {
        let (resolver, reactor) = (&self.core.resolver, &mut self.core.reactor);
        reactor.add(resolver, Interest::Read, Source::Resolver)?;
        if let Some(control) = &mut self.control {
            control.watch(&mut self.core.turn().1)?;
        }
        self.role.start(&mut self.core)?;
        event_loop::run(self, self.core.clock, stop)
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
        let (_, mut turn) = self.core.turn();
        match client {
            Some(key) => control.handle_client(&mut turn, key, readiness),
            None => control.handle_listener(&mut turn),
        }
        while let Some((key, request)) = self.control.as_mut().and_then(Control::poll_request) {
            if let Request::Status { past } = request {
                let mut report = self.core.report(R::NAME);
                report.past = report.past.filter(|_| past);
                self.role.report(&self.core, &mut report);
                if let Some(report) = self.role.complete(key, report) {
                    self.answer(key, Ok(report));
                }
            } else {
                tracing::info!(?request, "asked by the control socket");
                let reply = self.role.handle_request(&mut self.core, request);
                self.answer(key, reply);
            }
        }
    }

    /// Answers a client of the control socket.
    fn answer(&mut self, client: Key, answer: Result<impl Serialize, String>) {
        let answer: control::Answer = answer.and_then(|answer| {
            let value = serde_json::to_value(answer);
            value.map_err(|error| format!("the answer cannot be written: {error}"))
        });
        let (_, mut turn) = self.core.turn();
        if let Some(control) = &mut self.control {
            control.answer(&mut turn, client, &answer);
        }
    }

    fn handle_workers(&mut self) {
        self.role.handle_workers(&mut self.core);
        while let Some((client, report)) = self.role.poll_report() {
            self.answer(client, Ok(report));
        }
    }

    fn handle_timers(&mut self) {
        let now = self.core.now;
        if let Some(control) = &mut self.control
            && control.next_timeout().is_some_and(|at| at <= now)
        {
            let (_, mut turn) = self.core.turn();
            control.handle_timeout(&mut turn);
        }
        while let Some(timer) = self.core.timers.pop_due(now) {
            match timer {
                Timer::Grace => self.abandon(),
                Timer::Drain => self.handle_drain(),
                Timer::Held(key) => self.core.handle_held(key),
                timer => self.role.handle_timer(&mut self.core, timer),
            }
        }
        if self.core.hop.next_timeout().is_some_and(|at| at <= now) {
            let (hop, mut turn) = self.core.turn();
            hop.handle_timeout(&mut turn);
        }
        while let Some(id) = self.core.deadlines.pop_due(now) {
            if let Some((session, mut streams)) = self.core.session(id) {
                session.handle_timeout(now, &mut streams);
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
            self.core.open_session(*id, || self.role.session(*id));
        }
        self.role.handle_association(&mut self.core, &event);
        if let HopEvent::Lost(id, _) = event {
            self.end_session(id);
        }
    }

    /// Ends the connections of an association that is lost.
    fn end_session(&mut self, id: IdOf<R>) {
        let Some(mut session) = self.core.close_session(id) else { return };
        session.reset_all(&mut NoStreams, ResetReason::AssociationLost);
        while let Some(event) = session.poll_event(self.core.now, &mut NoStreams) {
            self.handle_event(id, event);
        }
        let (hop, mut turn) = self.core.turn();
        hop.remove_association(&mut turn, id);
        if self.core.hop.streams(id).is_some() {
            // The next association goes by the same name, as a mobile's does.
            self.core.open_session(id, || session);
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
            let Some(mut streams) = self.core.hop.streams(id) else { return };
            let Some(event) = session.poll_event(now, &mut streams) else { break };
            self.handle_event(id, event);
        }
        while let Some(message) = self.core.sessions.get_mut(&id).and_then(Session::poll_message) {
            self.role.handle_message(&mut self.core, id, &message);
        }
        while let Some(wanted) = self.core.sessions.get_mut(&id).and_then(Session::poll_wanted) {
            self.role.handle_wanted(&mut self.core, id, wanted);
        }
        self.role.handle_packets(&mut self.core, id);
        let session = self.core.sessions.get(&id);
        self.core.deadlines.set(id, session.and_then(Session::next_timeout));
        self.core.remember(id);
        let patience = self.core.hop.patience(id);
        self.patience = Some(self.patience.map_or(patience, |least| least.min(patience)));
    }

    fn handle_event(&mut self, id: IdOf<R>, event: Event) {
        self.role.handle_event(id, &event);
        match event {
            Event::Readable(conn) | Event::Writable(conn) | Event::Acknowledged(conn) => {
                if let Some(key) = self.core.find(id, conn) {
                    self.core.enqueue(key);
                }
            }
            Event::Reset { id: conn, reason } => {
                tracing::debug!(connection = conn.0, ?reason, "connection reset");
                if let Some(key) = self.core.find(id, conn)
                    && let Some(connection) = self.core.connections.get_mut(key)
                {
                    connection.reset = true;
                    if let (ResetReason::AssociationLost, Phase::Relaying(relay)) =
                        (reason, &mut connection.phase)
                    {
                        relay.leave();
                    }
                }
            }
            Event::Closed(conn) if self.is_bridged(id, conn) => self.handle_bridge_end(id, conn),
            Event::Closed(conn) => self.handle_closed(id, conn),
            Event::Opened { .. } | Event::Failed { .. } | Event::Connect { .. } => {
                self.role.handle_opening(&mut self.core, id, event);
            }
        }
    }

    fn is_bridged(&self, id: IdOf<R>, conn: ConnId) -> bool {
        let key = self.core.find(id, conn);
        let connection = key.and_then(|key| self.core.connections.get(key));
        connection.is_some_and(|c| matches!(c.phase, Phase::Bridged(_)))
    }

    /// One end of a bridge is over. If it was reset so is the other; else it was read to its end.
    fn handle_bridge_end(&mut self, id: IdOf<R>, conn: ConnId) {
        let Some(key) = self.core.find(id, conn) else { return };
        let Some((rest, reset)) = self.core.end_of_bridge(key, (id, conn)) else {
            self.core.counters.closed += 1;
            return drop(self.core.remove(key));
        };
        let Some((session, mut streams)) = self.core.session(rest.0) else { return };
        if reset {
            session.reset(&mut streams, rest.1, ResetReason::Aborted);
        } else {
            session.finish(&mut streams, rest.1);
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
                relay.close(self.core.now, &mut self.core.reactor, connection.reset);
            }
            Phase::Waiting(waiting) => {
                self.role.handle_gone(&mut self.core, waiting, connection.reset);
            }
            Phase::Bridged(_) => {}
        }
    }

    fn flush(&mut self) {
        let (hop, mut turn) = self.core.turn();
        hop.flush(&mut turn);
    }

    fn handle_stop(&mut self, requests: usize) {
        let draining = self.draining_until.take().is_some();
        if self.core.stopping || draining || requests > 1 {
            tracing::info!("stopping at once");
            if draining {
                // Other workers are asked twice as well.
                self.role.stop(&mut self.core);
            }
            self.core.stopping = true;
            return self.abandon();
        }
        match self.role.drain(&mut self.core) {
            Some(until) => {
                self.draining_until = Some(until);
                self.handle_drain();
            }
            None => self.stop(),
        }
    }

    /// Stops as soon as everybody has left who is to, or it has taken too long.
    fn handle_drain(&mut self) {
        let Some(until) = self.draining_until else { return };
        if self.core.now < until && !self.role.is_drained() {
            let again = self.core.now + DRAIN_PACE;
            return self.core.arm(again.min(until), Timer::Drain);
        }
        self.draining_until = None;
        self.stop();
    }

    fn stop(&mut self) {
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
            if let Some((session, mut streams)) = self.core.session(id) {
                session.reset_all(&mut streams, ResetReason::Shutdown);
            }
            self.poll_session(id);
        }
        for key in self.core.connections.keys() {
            if let Some(connection) = self.core.remove(key) {
                match connection.phase {
                    Phase::Relaying(relay) => {
                        relay.close(self.core.now, &mut self.core.reactor, true);
                    }
                    Phase::Waiting(waiting) => {
                        self.role.handle_gone(&mut self.core, waiting, true);
                    }
                    Phase::Bridged(_) => {}
                }
            }
        }
    }
}

impl<R: Role> EventLoop for Driver<R> {
    type Error = io::Error;

    fn reactor(&mut self) -> &mut Reactor<Source> {
        &mut self.core.reactor
    }

    fn next_turn(&self) -> Time {
        let clients = self.control.as_ref().and_then(Control::next_timeout);
        let all = [self.core.next_turn(), self.role.next_timeout(), clients];
        all.into_iter().flatten().min().unwrap_or(Time::NEVER)
    }

    fn rest(&self) -> Duration {
        self.patience.unwrap_or_default()
    }

    fn begin_turn(&mut self, now: Time) {
        self.core.now = now;
        self.patience = None;
    }

    fn handle_ready(&mut self, source: Source, readiness: Readiness) -> io::Result<()> {
        match source {
            Source::Resolver => {
                self.core.resolver.drain();
                while let Some(answer) = self.core.resolver.poll() {
                    self.role.handle_answer(&mut self.core, answer);
                }
            }
            Source::Workers => self.handle_workers(),
            Source::Helper => self.role.handle_helper(&mut self.core),
            Source::Tun => self.role.handle_tun(&mut self.core),
            Source::Datagrams(number) => self.role.handle_datagrams(&mut self.core, number),
            Source::Control(client) => self.handle_control(client, readiness),
            Source::Listener(n) => self.role.handle_listener(&mut self.core, n),
            Source::Attempt(key, n) => self.role.handle_attempt(&mut self.core, key, n),
            Source::Hop(part, key) => {
                let (hop, mut turn) = self.core.turn();
                hop.handle_ready(&mut turn.within(part), key, readiness);
            }
            Source::Connection(key) => self.handle_connection(key, readiness),
            Source::Stop | Source::Reload => {}
        }
        Ok(())
    }

    fn handle_reload(&mut self) {
        self.role.handle_reload(&mut self.core);
    }

    fn end_turn(&mut self, stops: usize) -> io::Result<ControlFlow<()>> {
        if stops > 0 {
            self.handle_stop(stops);
        }
        // What has come meanwhile may be what a timer waits for.
        self.pump_hop();
        self.handle_timers();
        for _ in 0..ROUNDS_MAX {
            self.pump_hop();
            self.poll_sessions();
            self.core.pump_queue();
            while let Some(number) = self.core.over.pop() {
                self.role.handle_over(number);
            }
            let more = self.role.advance(&mut self.core);
            if self.core.touched.is_empty() && !more {
                break;
            }
        }
        self.role.flush_packets();
        self.flush();
        if self.core.stopping && self.core.connections.is_empty() {
            let (hop, mut turn) = self.core.turn();
            hop.close(&mut turn);
            return Ok(ControlFlow::Break(()));
        }
        Ok(ControlFlow::Continue(()))
    }
}
