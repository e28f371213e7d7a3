//! The base's part of the loop.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use lasthop_hop::seal::PublicKey;
use lasthop_session::{ConnId, Event, Refusal, ResetReason, Session, SessionId, Target};
use lasthop_units::Time;

use super::door::Door;
use super::exits::Exits;
use super::handoff::Handoffs;
use super::{BaseConfig, BaseHop, TargetPolicy};
use crate::backhaul::{Way, WithPeers};
use crate::control::Report;
use crate::dial::{self, Dial, Dials};
use crate::driver::{Asker, CoreOf, Phase, Role, Timer};
use crate::hop::{HopEvent, Source};
use crate::reactor::{Interest, Reactor, Readiness};
use crate::resolve::Answer;
use crate::slab::Key;
use crate::tcp::{self, Accepted, Socket};
use crate::transparent::Leave;

/// How long accepting pauses when descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a base's connection does before it stands.
#[derive(Debug)]
pub(crate) enum Surrogate {
    /// Its name is being resolved; from where it will leave.
    Resolving(Leave),
    /// It connects.
    Dialling(Dial),
    /// A fixed host has made it, and the mobile is asked for its end.
    Offered(Socket),
}

impl Dials for Surrogate {
    fn dial(&mut self) -> Option<&mut Dial> {
        match self {
            Self::Dialling(dial) => Some(dial),
            Self::Resolving(_) | Self::Offered(_) => None,
        }
    }
}

impl Surrogate {
    /// Gives up what it does.
    pub(super) fn end(self, reactor: &mut Reactor<Source>) {
        match self {
            Self::Dialling(mut dial) => dial.cancel(reactor),
            Self::Offered(socket) => socket.close(reactor, true),
            Self::Resolving(_) => {}
        }
    }
}

/// The base's part of the loop.
pub(crate) struct BaseRole<H: BaseHop> {
    policy: TargetPolicy,
    connect_timeout: Duration,
    session: lasthop_session::Config,
    connections_max: usize,
    doors: Vec<Door>,
    /// The mobiles that are here, the last to come last.
    mobiles: Vec<(Way<H::Id>, Option<PublicKey>)>,
    exits: Exits,
    /// Absent where there is no other base.
    handoffs: Option<Handoffs<H>>,
}

impl<H: BaseHop> BaseRole<H> {
    pub(super) fn new(
        config: &BaseConfig,
        doors: Vec<Door>,
        exits: Exits,
        handoffs: Option<Handoffs<H>>,
    ) -> Self {
        Self {
            policy: config.targets.clone(),
            connect_timeout: config.connect_timeout,
            session: lasthop_session::Config {
                max_connections: config.limits.connections,
                ..lasthop_session::Config::base()
            },
            connections_max: config.limits.connections_total,
            doors,
            mobiles: Vec::new(),
            exits,
            handoffs,
        }
    }

    fn open(
        &mut self,
        core: &mut CoreOf<Self>,
        id: Way<H::Id>,
        conn: ConnId,
        target: &Target,
        source: Option<SocketAddr>,
    ) {
        let leave = match self.exits.choose(self.key_of(id), source) {
            Ok(leave) => leave,
            Err(refusal) => {
                return dial::turn_away(core, id, conn, &target.to_string(), refusal);
            }
        };
        if core.stopping {
            return dial::turn_away(core, id, conn, &target.to_string(), Refusal::ShuttingDown);
        }
        if core.connections.len() >= self.connections_max {
            return dial::turn_away(core, id, conn, &target.to_string(), Refusal::TooMany);
        }
        let mobile = self.key_of(id);
        if let (Some(handoffs), Some(mobile)) = (&mut self.handoffs, mobile) {
            handoffs.settle(mobile);
        }
        let key = core.add(target.to_string(), Surrogate::Resolving(leave));
        core.name(key, id, conn);
        match target {
            Target::Addr(addr) => self.dial(core, key, vec![tcp::canonical(*addr)]),
            Target::Name(name, port) => {
                core.arm(core.now + self.connect_timeout, Timer::Connection(key));
                if core.resolver.ask(Asker::Connection(key), name.as_str(), *port).is_err() {
                    dial::refuse(core, key, Refusal::TooMany);
                }
            }
        }
    }

    fn dial(&mut self, core: &mut CoreOf<Self>, key: Key, mut addresses: Vec<SocketAddr>) {
        addresses.retain(|addr| self.policy.allows(addr.ip()));
        if addresses.is_empty() {
            return dial::refuse(core, key, Refusal::NotAllowed);
        }
        let deadline = core.now + self.connect_timeout;
        if let Some(waiting) = core.waiting(key) {
            let leave = match waiting {
                Surrogate::Resolving(leave) => std::mem::take(leave),
                _ => Leave::default(),
            };
            *waiting = Surrogate::Dialling(Dial::new(addresses, deadline).leaving(leave));
            dial::advance(core, key, None);
        }
    }

    /// The key of the mobile at the other end of an association.
    fn key_of(&self, id: Way<H::Id>) -> Option<PublicKey> {
        self.mobiles.iter().find(|(other, _)| *other == id)?.1
    }

    /// The association with the mobile that `key` names, or with the last that came.
    fn find(&self, key: Option<PublicKey>) -> Option<Way<H::Id>> {
        let is_here = |mobile: Option<PublicKey>| match (&self.handoffs, mobile) {
            (Some(handoffs), Some(mobile)) => !handoffs.is_away(mobile),
            _ => true,
        };
        let meant = |(_, other): &&(Way<H::Id>, Option<PublicKey>)| {
            (key.is_none() || *other == key) && is_here(*other)
        };
        self.mobiles.iter().rev().find(meant).map(|(id, _)| *id)
    }

    /// Opens the doors whose mobile is here, and shuts the others: who knocks there is refused by
    /// the kernel.
    fn tend_doors(&mut self, core: &CoreOf<Self>) {
        for n in 0..self.doors.len() {
            let here = !core.stopping && self.find(self.doors[n].mobile()).is_some();
            self.doors[n].set_open(here);
        }
    }

    /// Offers the mobile a connection that a fixed host has made (MOB-8).
    fn offer(&mut self, core: &mut CoreOf<Self>, n: usize, fd: OwnedFd, from: SocketAddr) {
        let Some(door) = self.doors.get(n) else { return };
        let (port, mobile) = (door.port(), self.find(door.mobile()));
        let to = SocketAddr::new(tcp::local_addr(&fd).ip(), port);
        let full = core.stopping || core.connections.len() >= self.connections_max;
        // Where the mobile has told its ports, it need not be asked.
        let Some(id) = mobile.filter(|id| !full && core.hop.listens(*id, port) != Some(false))
        else {
            tracing::debug!(%from, port, "a fixed host is turned away");
            core.counters.refused += 1;
            return tcp::abort_on_close(&fd);
        };
        tcp::tune_relayed(&fd);
        // The source needs the key, and the key the socket: the source is corrected after.
        let Ok(socket) = Socket::new(&mut core.reactor, fd, Source::Resolver) else { return };
        let token = socket.token;
        let key = core.add(format!("{from} -> mobile:{port}"), Surrogate::Offered(socket));
        core.reactor.reassign(token, Source::Connection(key));
        let now = core.now;
        let offered = core
            .session(id)
            .map(|(session, mut streams)| session.offer(now, &mut streams, to, from));
        match offered {
            Some(Ok(conn)) => core.name(key, id, conn),
            _ => self.dismiss(core, key, Refusal::TooMany),
        }
    }

    /// Resets a fixed host whose connection the mobile does not take, or not any more (MOB-9).
    fn dismiss(&mut self, core: &mut CoreOf<Self>, key: Key, refusal: Refusal) {
        let Some(connection) = core.remove(key) else { return };
        core.counters.refused += 1;
        tracing::debug!(target = connection.target, reason = %refusal, "connection refused");
        if let Phase::Waiting(Surrogate::Offered(socket)) = connection.phase {
            socket.close(&mut core.reactor, true);
        }
    }
}

impl<H: BaseHop> Role for BaseRole<H> {
    type Hop = WithPeers<H>;
    type Waiting = Surrogate;

    const NAME: &'static str = "base";

    fn session(&self, _id: Way<H::Id>) -> Session {
        Session::base(self.session)
    }

    fn start(&mut self, core: &mut CoreOf<Self>) -> io::Result<()> {
        for (n, door) in self.doors.iter().enumerate() {
            core.reactor.add(door.fd(), Interest::Read, Source::Listener(n))?;
        }
        let (hop, mut turn) = core.turn();
        hop.start(&mut turn)?;
        match &mut self.handoffs {
            Some(handoffs) => handoffs.start(core),
            None => Ok(()),
        }
    }

    fn handle_listener(&mut self, core: &mut CoreOf<Self>, n: usize) {
        // A flood of connections must not starve the others; the rest comes with the timer.
        for _ in 0..64 {
            let Some(door) = self.doors.get(n) else { return };
            match tcp::accept(door.fd()) {
                Accepted::Connection(fd, from) => self.offer(core, n, fd, tcp::canonical(from)),
                Accepted::Empty => return,
                Accepted::Exhausted(e) => {
                    tracing::warn!(error = %e, "accepting pauses");
                    return core.arm(core.now + ACCEPT_PAUSE, Timer::Accept(n));
                }
            }
        }
        core.arm(core.now, Timer::Accept(n));
    }

    fn handle_waiting(&mut self, core: &mut CoreOf<Self>, key: Key, readiness: Readiness) {
        let Some(Surrogate::Offered(socket)) = core.waiting(key) else { return };
        socket.ready(readiness);
        // Only an error can be told from a half-close here.
        if matches!(tcp::connected(&socket.fd), Some(Ok(()))) {
            return;
        }
        let name = core.connections.get(key).and_then(|c| c.name);
        self.dismiss(core, key, Refusal::Other(0));
        if let Some((id, conn)) = name
            && let Some((session, mut streams)) = core.session(id)
        {
            session.reset(&mut streams, conn, ResetReason::Aborted);
        }
    }

    fn handle_attempt(&mut self, core: &mut CoreOf<Self>, key: Key, n: u32) {
        dial::advance(core, key, Some(n));
    }

    fn handle_opening(&mut self, core: &mut CoreOf<Self>, id: Way<H::Id>, event: Event) {
        match event {
            Event::Connect { id: conn, target, source } => {
                self.open(core, id, conn, &target, source);
            }
            Event::Opened { id: conn, .. } => {
                if let Some(key) = core.find(id, conn) {
                    core.relay(key, |surrogate| match surrogate {
                        Surrogate::Offered(socket) => Some((socket, Vec::new())),
                        _ => None,
                    });
                }
            }
            Event::Failed { id: conn, refusal } => {
                if let Some(key) = core.find(id, conn) {
                    self.dismiss(core, key, refusal);
                }
            }
            _ => {}
        }
    }

    fn handle_gone(&mut self, core: &mut CoreOf<Self>, waiting: Surrogate, _reset: bool) {
        waiting.end(&mut core.reactor);
    }

    fn handle_answer(&mut self, core: &mut CoreOf<Self>, answer: Answer<Asker>) {
        let Asker::Connection(key) = answer.tag else { return };
        if !matches!(core.waiting(key), Some(Surrogate::Resolving(_))) {
            return;
        }
        match answer.addresses {
            Ok(addresses) => self.dial(core, key, addresses),
            Err(e) => {
                tracing::debug!(error = %e, "a name was not resolved");
                dial::refuse(core, key, crate::resolve::refusal(&e));
            }
        }
    }

    fn handle_timer(&mut self, core: &mut CoreOf<Self>, timer: Timer) {
        let key = match timer {
            Timer::Accept(n) => return self.handle_listener(core, n),
            Timer::Connection(key) => key,
            Timer::Resolve(_) | Timer::Grace => return,
        };
        match core.waiting(key) {
            Some(Surrogate::Dialling(_)) => dial::advance(core, key, None),
            Some(Surrogate::Resolving(_)) => dial::refuse(core, key, Refusal::ResolverFailed),
            Some(Surrogate::Offered(_)) | None => {}
        }
    }

    fn handle_association(&mut self, core: &mut CoreOf<Self>, event: &HopEvent<Way<H::Id>>) {
        match event {
            HopEvent::Up(id @ Way::Mobile(_)) => {
                tracing::info!(association = ?id, "association up");
                self.mobiles.push((*id, core.hop.key_of(*id)));
                self.tend_doors(core);
            }
            HopEvent::Moved(id @ Way::Mobile(_), to) => {
                tracing::info!(association = ?id, %to, "association moved");
            }
            HopEvent::Lost(id @ Way::Mobile(_), reason) => {
                tracing::info!(association = ?id, reason, "association lost");
                self.mobiles.retain(|(other, _)| other != id);
                self.tend_doors(core);
            }
            _ => {}
        }
        if let Some(handoffs) = &mut self.handoffs {
            handoffs.handle_association(core, event);
        }
    }

    fn handle_message(&mut self, core: &mut CoreOf<Self>, id: Way<H::Id>, message: &[u8]) {
        if let Some(handoffs) = &mut self.handoffs {
            handoffs.handle_message(core, id, message);
        }
    }

    fn handle_wanted(&mut self, core: &mut CoreOf<Self>, id: Way<H::Id>, wanted: SessionId) {
        if let Some(handoffs) = &mut self.handoffs {
            return handoffs.handle_wanted(core, id, wanted);
        }
        let now = core.now;
        if let Some((session, mut streams)) = core.session(id) {
            session.decline(now, &mut streams, wanted);
        }
    }

    fn advance(&mut self, core: &mut CoreOf<Self>) -> bool {
        let some = self.handoffs.as_mut().is_some_and(|handoffs| handoffs.advance(core));
        if some {
            self.tend_doors(core);
        }
        some
    }

    fn next_timeout(&self) -> Option<Time> {
        self.handoffs.as_ref().and_then(Handoffs::next_timeout)
    }

    fn report(&self, core: &CoreOf<Self>, report: &mut Report) {
        if let Some(handoffs) = &self.handoffs {
            report.peers = handoffs.peer_reports(core);
            report.handoffs = Some(handoffs.counters);
        }
    }

    fn stop(&mut self, core: &mut CoreOf<Self>) {
        // Closing a listener takes it out of the epoll set.
        self.doors.clear();
        let (hop, mut turn) = core.turn();
        hop.stop(&mut turn);
    }
}
