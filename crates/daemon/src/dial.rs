//! Connecting to a host that may have several addresses: the next attempt starts when the last has
//! failed or has taken too long (the idea of RFC 8305), and the first that stands wins. A base
//! connects to fixed hosts that way, a mobile to its own servers.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use lasthop_kernel::leave::{Leave, another_port};
use lasthop_kernel::reactor::{Interest, Reactor, Token};
use lasthop_kernel::slab::Key;
use lasthop_kernel::tcp::{self, Socket};
use lasthop_kernel::turn::Source;
use lasthop_migrate::HeldFlow;
use lasthop_session::{ConnId, Refusal};
use lasthop_units::Time;

use crate::driver::{Core, Phase, Timer};
use crate::held::{Held, Holder, SharedHolding};
use crate::hop::Hop;

/// How long an attempt has before the next starts beside it (RFC 8305 section 5).
const STAGGER: Duration = Duration::from_millis(250);

/// A policy for the addresses that a host may connect to.
pub(crate) trait Gate: Send + Sync + Debug {
    /// Whether it may connect to `to` at this moment.
    fn admits(&self, to: SocketAddr) -> bool;
}

/// Makes sockets for addresses that are not this host's, for whoever has no privilege to.
pub(crate) trait Exit: Send + Sync + Debug {
    /// Asks for a socket that is bound to `source`, for attempt `n` of that connection, with its acknowledgements held if `held`
    /// says by what, and to where it will connect: [`handle_socket`] has it. False while whoever has the privilege is away: then
    /// connections leave from the host's own address.
    fn request(
        &self,
        key: Key,
        n: u32,
        source: SocketAddr,
        held: Option<(SharedHolding, SocketAddr)>,
    ) -> bool;
}

/// A socket that was asked for.
#[derive(Debug)]
pub(crate) struct Exited {
    pub(crate) fd: OwnedFd,
    /// The acknowledgements of its connection are held.
    pub(crate) held: Option<HeldFlow>,
}

#[derive(Debug)]
struct Attempt {
    n: u32,
    to: SocketAddr,
    stage: Stage,
    /// Its acknowledgements are held.
    held: Option<HeldFlow>,
}

#[derive(Debug)]
enum Stage {
    /// A socket for this address is asked for.
    Asks(SocketAddr),
    Connects(OwnedFd, Token),
}

/// One connection being made.
#[derive(Debug)]
pub(crate) struct Dial {
    waiting: VecDeque<SocketAddr>,
    attempts: Vec<Attempt>,
    started: u32,
    next_at: Time,
    deadline: Time,
    leave: Leave,
    exit: Option<Arc<dyn Exit>>,
    holder: Option<Holder>,
    gate: Option<Arc<dyn Gate>>,
    /// The error of the first attempt that failed: its address was the best.
    refusal: Option<Refusal>,
    /// An address was left out that the gate does not admit.
    turned_away: bool,
}

/// The state of the attempts.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// They go on; advance again at this time.
    Going(Time),
    /// One has connected; how its acknowledgements are held, if they are.
    Connected(OwnedFd, Option<Box<(HeldFlow, Holder)>>),
    /// All have failed.
    Refused(Refusal),
}

impl Dial {
    /// Will try `addresses`, in the order of RFC 8305 section 4: the resolver's order, the families
    /// taking turns.
    pub(crate) fn new(addresses: Vec<SocketAddr>, deadline: Time) -> Self {
        Self {
            waiting: interleave(addresses.into_iter().map(tcp::canonical)),
            attempts: Vec::new(),
            started: 0,
            next_at: Time::ZERO,
            deadline,
            leave: Leave::default(),
            exit: None,
            holder: None,
            gate: None,
            refusal: None,
            turned_away: false,
        }
    }

    /// The same, from other addresses than the host's own, by sockets that `exit` makes, if it is said.
    pub(crate) fn leaving(self, leave: Leave, exit: Option<Arc<dyn Exit>>) -> Self {
        Self { leave, exit, ..self }
    }

    /// The same; the acknowledgements of what leaves by such a socket are held, if anything is to hold them.
    pub(crate) fn holding(self, holder: Option<Holder>) -> Self {
        Self { holder, ..self }
    }

    /// The same, but for addresses that `gate` does not admit: it is asked before each attempt, and
    /// again once one stands, for whose the address is may have changed meanwhile.
    pub(crate) fn within(self, gate: Arc<dyn Gate>) -> Self {
        Self { gate: Some(gate), ..self }
    }

    fn admits(&mut self, to: SocketAddr) -> bool {
        let admitted = self.gate.as_ref().is_none_or(|gate| gate.admits(to));
        self.turned_away |= !admitted;
        admitted
    }

    /// Starts what is due. `key` is the connection's, for the attempts' events.
    pub(crate) fn advance(
        &mut self,
        now: Time,
        reactor: &mut Reactor<Source>,
        key: Key,
    ) -> Outcome {
        if now >= self.deadline {
            return Outcome::Refused(self.refusal.unwrap_or(Refusal::TimedOut));
        }
        while self.attempts.is_empty() || now >= self.next_at {
            let Some(addr) = self.waiting.pop_front() else { break };
            if !self.admits(addr) {
                continue;
            }
            self.next_at = now + STAGGER;
            if let Err(e) = self.start(reactor, key, addr) {
                self.fail(&e);
            }
        }
        if self.attempts.is_empty() {
            let none =
                if self.turned_away { Refusal::NotAllowed } else { Refusal::HostUnreachable };
            return Outcome::Refused(self.refusal.unwrap_or(none));
        }
        let next = if self.waiting.is_empty() { self.deadline } else { self.next_at };
        Outcome::Going(next.min(self.deadline))
    }

    fn start(
        &mut self,
        reactor: &mut Reactor<Source>,
        key: Key,
        addr: SocketAddr,
    ) -> io::Result<()> {
        let n = self.started;
        self.started += 1;
        let stage = match (self.leave.source(addr), &self.exit) {
            (Some(source), Some(exit)) if exit.request(key, n, source, self.held(addr)) => {
                Stage::Asks(source)
            }
            (Some(_), Some(_)) => watch(reactor, key, n, self.leave.connect_own(addr)?)?,
            _ => watch(reactor, key, n, self.leave.connect(addr)?)?,
        };
        self.attempts.push(Attempt { n, to: addr, stage, held: None });
        Ok(())
    }

    /// The socket that was asked for attempt `n` is here; none if whoever has the privilege is away.
    fn handle_socket(
        &mut self,
        now: Time,
        reactor: &mut Reactor<Source>,
        key: Key,
        n: u32,
        socket: io::Result<Option<Exited>>,
    ) -> Outcome {
        let asks = |a: &Attempt| a.n == n && matches!(a.stage, Stage::Asks(_));
        if let Some(i) = self.attempts.iter().position(asks) {
            let Attempt { to, stage, .. } = self.attempts.swap_remove(i);
            let (socket, held) = match socket {
                Ok(Some(Exited { fd, held })) => (Ok(Some(fd)), held),
                Ok(None) => (Ok(None), None),
                Err(error) => (Err(error), None),
            };
            match self.connect(reactor, key, n, to, &stage, socket) {
                Ok(stage) => self.attempts.push(Attempt { n, to, stage, held }),
                Err(e) => self.fail(&e),
            }
        }
        self.advance(now, reactor, key)
    }

    /// What is to hold the acknowledgements of a connection to there.
    fn held(&self, to: SocketAddr) -> Option<(SharedHolding, SocketAddr)> {
        self.holder.as_ref().map(|holder| (Arc::clone(&holder.holding), to))
    }

    fn connect(
        &self,
        reactor: &mut Reactor<Source>,
        key: Key,
        n: u32,
        to: SocketAddr,
        stage: &Stage,
        socket: io::Result<Option<OwnedFd>>,
    ) -> io::Result<Stage> {
        let fd = match socket? {
            Some(fd) => self.leave.connect_by(fd, to),
            None => self.leave.connect_own(to),
        };
        if let (Err(error), Stage::Asks(source), Some(exit)) = (&fd, stage, &self.exit)
            && let Some(source) = another_port(error, *source)
            && exit.request(key, n, source, self.held(to))
        {
            return Ok(Stage::Asks(source));
        }
        watch(reactor, key, n, fd?)
    }

    fn fail(&mut self, error: &io::Error) {
        self.refusal.get_or_insert(refusal(error));
    }

    /// Attempt `n` is ready.
    pub(crate) fn handle_ready(
        &mut self,
        now: Time,
        reactor: &mut Reactor<Source>,
        key: Key,
        n: u32,
    ) -> Outcome {
        if let Some(i) = self.attempts.iter().position(|a| a.n == n)
            && let Stage::Connects(fd, _) = &self.attempts[i].stage
            && let Some(result) = tcp::connected(fd)
            && let Attempt { to, stage: Stage::Connects(fd, token), held, .. } =
                self.attempts.swap_remove(i)
        {
            reactor.remove(&fd, token);
            match result {
                Ok(()) if !self.admits(to) => {}
                Ok(()) => {
                    self.cancel(reactor);
                    let held = held.zip(self.holder.take()).map(Box::new);
                    return Outcome::Connected(fd, held);
                }
                Err(e) => self.fail(&e),
            }
        }
        self.advance(now, reactor, key)
    }

    /// Aborts all attempts.
    pub(crate) fn cancel(&mut self, reactor: &mut Reactor<Source>) {
        self.waiting.clear();
        for attempt in self.attempts.drain(..) {
            if let Stage::Connects(fd, token) = attempt.stage {
                reactor.remove(&fd, token);
            }
        }
    }
}

/// Watches for what comes of an attempt.
fn watch(reactor: &mut Reactor<Source>, key: Key, n: u32, fd: OwnedFd) -> io::Result<Stage> {
    let token = reactor.add(&fd, Interest::ReadWrite, Source::Attempt(key, n))?;
    Ok(Stage::Connects(fd, token))
}

/// What a connection that is not relayed yet waits for, if that may be a [`Dial`].
pub(crate) trait Dials {
    /// The dial, if it waits for one.
    fn dial(&mut self) -> Option<&mut Dial>;
}

/// Moves a connection's dial on, after a timer or after attempt `n` was ready. One that stands is
/// accepted and relayed, one that failed refused.
pub(crate) fn advance<H: Hop, W: Dials>(core: &mut Core<H, W>, key: Key, n: Option<u32>) {
    step(core, key, |dial, now, reactor| match n {
        Some(n) => dial.handle_ready(now, reactor, key, n),
        None => dial.advance(now, reactor, key),
    });
}

/// Goes on with the socket that an [`Exit`] was asked for, for attempt `n`; none if it is away.
pub(crate) fn handle_socket<H: Hop, W: Dials>(
    core: &mut Core<H, W>,
    key: Key,
    n: u32,
    socket: io::Result<Option<Exited>>,
) {
    step(core, key, |dial, now, reactor| dial.handle_socket(now, reactor, key, n, socket));
}

fn step<H: Hop, W: Dials>(
    core: &mut Core<H, W>,
    key: Key,
    act: impl FnOnce(&mut Dial, Time, &mut Reactor<Source>) -> Outcome,
) {
    let now = core.now;
    let Some(connection) = core.connections.get_mut(key) else { return };
    let Phase::Waiting(waiting) = &mut connection.phase else { return };
    let Some(dial) = waiting.dial() else { return };
    match act(dial, now, &mut core.reactor) {
        Outcome::Going(at) => core.arm(at, Timer::Connection(key)),
        Outcome::Refused(refusal) => {
            dial.cancel(&mut core.reactor);
            refuse(core, key, refusal);
        }
        Outcome::Connected(fd, held) => accept(core, key, fd, held),
    }
}

fn accept<H: Hop, W>(
    core: &mut Core<H, W>,
    key: Key,
    fd: OwnedFd,
    held: Option<Box<(HeldFlow, Holder)>>,
) {
    tcp::tune_relayed(&fd);
    let bound = tcp::local_addr(&fd);
    let Some((id, conn)) = core.connections.get(key).and_then(|c| c.name) else { return };
    let Ok(socket) = Socket::new(&mut core.reactor, fd, Source::Connection(key)) else {
        return refuse(core, key, Refusal::TooMany);
    };
    let held = held.map(|held| {
        let (flow, holder) = *held;
        (Held::opened(core.now, flow, &holder, &socket), holder)
    });
    core.relay(key, |_| Some((socket, Vec::new())));
    if let Some((held, holder)) = held {
        core.hold(id, conn, held, &holder);
    }
    if let Some((session, mut streams)) = core.session(id) {
        session.accept(&mut streams, conn, bound);
    }
}

/// Removes a connection that could not be made, and sends the reason to its peer on the hop.
pub(crate) fn refuse<H: Hop, W>(core: &mut Core<H, W>, key: Key, refusal: Refusal) {
    let Some(connection) = core.remove(key) else { return };
    if let Some((id, conn)) = connection.name {
        let target = connection.target;
        refuse_request(core, id, conn, &target, refusal);
    }
}

/// Refuses a request for a connection, for which nothing was added yet.
pub(crate) fn refuse_request<H: Hop, W>(
    core: &mut Core<H, W>,
    id: H::Id,
    conn: ConnId,
    target: &str,
    refusal: Refusal,
) {
    core.counters.refused += 1;
    tracing::debug!(connection = conn.0, target, reason = %refusal, "connection refused");
    if let Some((session, mut streams)) = core.session(id) {
        session.refuse(&mut streams, conn, refusal);
    }
}

/// The refusal for a failed `connect` (MHP-5).
pub(crate) fn refusal(error: &io::Error) -> Refusal {
    error.raw_os_error().map_or(Refusal::Other(0), Refusal::from_errno)
}

fn interleave(addresses: impl Iterator<Item = SocketAddr>) -> VecDeque<SocketAddr> {
    let mut addresses = addresses.peekable();
    let first_is_v4 = addresses.peek().is_some_and(SocketAddr::is_ipv4);
    let (mut first, mut second): (VecDeque<_>, VecDeque<_>) =
        addresses.partition(|a| a.is_ipv4() == first_is_v4);
    let mut out = VecDeque::with_capacity(first.len() + second.len());
    while !first.is_empty() || !second.is_empty() {
        out.extend(first.pop_front());
        out.extend(second.pop_front());
    }
    out
}

#[cfg(test)]
mod tests {
    use lasthop_kernel::slab::Slab;

    use super::*;

    fn drive(dial: &mut Dial, reactor: &mut Reactor<Source>, key: Key) -> Outcome {
        let mut outcome = dial.advance(Time::ZERO, reactor, key);
        let mut ready = Vec::new();
        for _ in 0..100 {
            if !matches!(outcome, Outcome::Going(_)) {
                break;
            }
            reactor.wait(Some(Duration::from_secs(5)), &mut ready).unwrap();
            for (source, _) in &ready {
                if let Source::Attempt(_, n) = source {
                    outcome = dial.handle_ready(Time::ZERO, reactor, key, *n);
                }
            }
        }
        outcome
    }

    fn closed_port() -> SocketAddr {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    }

    #[test]
    fn families_take_turns_in_the_resolvers_order() {
        let addrs = ["[::1]:1", "[::2]:1", "[::3]:1", "1.0.0.1:1", "1.0.0.2:1"];
        let got = interleave(addrs.map(|a| a.parse().unwrap()).into_iter());
        let want = ["[::1]:1", "1.0.0.1:1", "[::2]:1", "1.0.0.2:1", "[::3]:1"];
        assert_eq!(got, want.map(|a| a.parse::<SocketAddr>().unwrap()));
    }

    #[test]
    fn a_refused_address_is_followed_by_the_next() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut reactor = Reactor::new().unwrap();
        let key = Slab::new().insert(());
        let addresses = vec![closed_port(), listener.local_addr().unwrap()];
        let mut dial = Dial::new(addresses, Time::from_secs(5));
        assert!(matches!(drive(&mut dial, &mut reactor, key), Outcome::Connected(..)));
    }

    /// MHP-5
    #[test]
    fn a_refusal_has_the_error_of_the_connect() {
        let mut reactor = Reactor::new().unwrap();
        let key = Slab::new().insert(());
        let mut dial = Dial::new(vec![closed_port()], Time::from_secs(5));
        let outcome = drive(&mut dial, &mut reactor, key);
        assert!(matches!(outcome, Outcome::Refused(Refusal::Refused)), "{outcome:?}");
    }

    #[test]
    fn a_deadline_ends_the_attempts() {
        let mut reactor = Reactor::new().unwrap();
        let key = Slab::new().insert(());
        let mut dial = Dial::new(vec![closed_port()], Time::from_secs(5));
        let outcome = dial.advance(Time::from_secs(5), &mut reactor, key);
        assert!(matches!(outcome, Outcome::Refused(Refusal::TimedOut)), "{outcome:?}");
    }
}
