//! `lasthop base`: serves mobiles, and makes their connections to the fixed network.

mod config;
mod dial;
mod policy;

pub use config::{BaseConfig, BaseFile, BaseLimits};
pub use policy::{Network, NetworkError, TargetPolicy};

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use lasthop_hop::seal::{Keypair, Responder};
use lasthop_session::{ConnId, Event, Refusal, Session, Target};
use lasthop_units::Seed;

use self::dial::{Dial, Outcome};
use crate::config::{HopKind, SealKind};
use crate::driver::{Asker, CoreOf, Driver, Phase, Role, Timer};
use crate::error::RunError;
use crate::hop::{Hop, HopEvent, Source, Turn};
use crate::reactor::Readiness;
use crate::resolve::Answer;
use crate::slab::Key;
use crate::split::{Bounds, SplitBase};
use crate::srp::{self, SrpBase};
use crate::stop::Stop;
use crate::tcp::{self, Socket};
use crate::udp::Udp;
use crate::{control, cpu, keyfile};

/// What a base's connection does before it stands.
#[derive(Debug)]
pub(crate) enum Surrogate {
    /// Its name is being resolved.
    Resolving,
    /// It connects.
    Dialling(Dial),
}

/// A base that is bound and not yet running.
pub struct Base {
    driver: AnyDriver,
}

/// One loop for each hop; all else is the same code.
enum AnyDriver {
    Srp(Box<Driver<BaseRole<SrpBase>>>),
    Split(Box<Driver<BaseRole<SplitBase>>>),
}

impl Base {
    /// Binds every address and reads the keys.
    ///
    /// # Errors
    ///
    /// Says which address, file or socket cannot be used, and why.
    pub fn bind(config: BaseConfig) -> Result<Self, RunError> {
        let seed = keyfile::entropy().map_err(RunError::Kernel)?;
        let keys = match config.seal {
            SealKind::Noise => Some(keyfile::load(&config.key)?),
            SealKind::None => None,
        };
        let driver = match config.hop {
            HopKind::Srp => AnyDriver::Srp(driver(srp(&config, keys, seed)?, &config)?),
            HopKind::SplitTcp => AnyDriver::Split(driver(split(&config, keys, seed)?, &config)?),
        };
        Ok(Self { driver })
    }

    /// Where it listens for mobiles.
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        match &self.driver {
            AnyDriver::Srp(driver) => driver.hop().local_addrs(),
            AnyDriver::Split(driver) => driver.hop().local_addrs(),
        }
    }

    /// Serves until `stop` is requested.
    ///
    /// # Errors
    ///
    /// The kernel refused what the loop cannot do without.
    pub fn run(self, stop: &Stop) -> Result<(), RunError> {
        match self.driver {
            AnyDriver::Srp(mut driver) => driver.run(stop),
            AnyDriver::Split(mut driver) => driver.run(stop),
        }
        .map_err(RunError::Kernel)
    }
}

fn driver<H: BaseHop>(hop: H, config: &BaseConfig) -> Result<Box<Driver<BaseRole<H>>>, RunError> {
    let control = control::open(config.control.as_deref(), "base")?;
    let driver = Driver::new(BaseRole::new(config), hop, control);
    driver.map(Box::new).map_err(RunError::Kernel)
}

fn srp(config: &BaseConfig, keys: Option<Keypair>, seed: Seed) -> Result<SrpBase, RunError> {
    let ipv6 = config.listen.iter().any(SocketAddr::is_ipv6);
    let hop = srp::config(&config.srp, ipv6, config.limits.connections);
    let machine = match keys {
        Some(keys) => lasthop_hop::Base::new(hop, keys, config.allow.clone(), seed),
        None => lasthop_hop::Base::unsealed(hop, seed),
    };
    let udp =
        Udp::bind(&config.listen).map_err(|(addr, source)| RunError::Listen { addr, source })?;
    Ok(SrpBase::new(machine.with_fast_aes(cpu::fast_aes()), udp))
}

fn split(config: &BaseConfig, keys: Option<Keypair>, seed: Seed) -> Result<SplitBase, RunError> {
    let (responder, allowed) = match keys {
        Some(keys) => (Responder::new(keys, seed.child("responder")), Some(config.allow.clone())),
        None => (Responder::unsealed(), None),
    };
    let bounds =
        Bounds { associations: config.limits.associations, streams: config.limits.connections };
    let congestion = config.congestion.as_ref();
    SplitBase::bind(&config.listen, congestion, responder, allowed, bounds, seed)
        .map_err(|(addr, source)| RunError::Listen { addr, source })
}

/// The hop of a base, which listens by itself.
pub(crate) trait BaseHop: Hop {
    /// The hop's name.
    const NAME: &'static str;

    /// Where mobiles are served.
    fn local_addrs(&self) -> Vec<SocketAddr>;

    /// Starts to watch its sockets.
    fn start(&mut self, turn: &mut Turn<'_>) -> io::Result<()>;

    /// Takes no new association and no new stream from here on.
    fn stop(&mut self, turn: &mut Turn<'_>);
}

/// The base's part of the loop.
pub(crate) struct BaseRole<H> {
    policy: TargetPolicy,
    connect_timeout: Duration,
    session: lasthop_session::Config,
    connections_max: usize,
    hop: std::marker::PhantomData<H>,
}

impl<H: BaseHop> BaseRole<H> {
    fn new(config: &BaseConfig) -> Self {
        Self {
            policy: config.targets.clone(),
            connect_timeout: config.connect_timeout,
            session: lasthop_session::Config {
                max_connections: config.limits.connections,
                ..lasthop_session::Config::base()
            },
            connections_max: config.limits.connections_total,
            hop: std::marker::PhantomData,
        }
    }

    fn open(&mut self, core: &mut CoreOf<Self>, id: H::Id, conn: ConnId, target: &Target) {
        if core.stopping {
            return self.turn_away(core, id, conn, target, Refusal::ShuttingDown);
        }
        if core.connections.len() >= self.connections_max {
            return self.turn_away(core, id, conn, target, Refusal::TooMany);
        }
        let key = core.add(target.to_string(), Surrogate::Resolving);
        core.name(key, id, conn);
        match target {
            Target::Addr(addr) => self.dial(core, key, vec![tcp::canonical(*addr)]),
            Target::Name(name, port) => {
                core.arm(core.now + self.connect_timeout, Timer::Connection(key));
                if core.resolver.ask(Asker::Connection(key), name.as_str(), *port).is_err() {
                    self.refuse(core, key, Refusal::TooMany);
                }
            }
        }
    }

    fn dial(&mut self, core: &mut CoreOf<Self>, key: Key, mut addresses: Vec<SocketAddr>) {
        addresses.retain(|addr| self.policy.allows(addr.ip()));
        if addresses.is_empty() {
            return self.refuse(core, key, Refusal::NotAllowed);
        }
        let dial = Dial::new(addresses, core.now + self.connect_timeout);
        if let Some(waiting) = core.waiting(key) {
            *waiting = Surrogate::Dialling(dial);
            self.advance(core, key, None);
        }
    }

    /// Moves a dial on, after a timer or after attempt `n` was ready.
    fn advance(&mut self, core: &mut CoreOf<Self>, key: Key, n: Option<u32>) {
        let now = core.now;
        let Some(connection) = core.connections.get_mut(key) else { return };
        let Phase::Waiting(Surrogate::Dialling(dial)) = &mut connection.phase else {
            return;
        };
        let outcome = match n {
            Some(n) => dial.handle_ready(now, &mut core.reactor, key, n),
            None => dial.advance(now, &mut core.reactor, key),
        };
        match outcome {
            Outcome::Going(at) => core.arm(at, Timer::Connection(key)),
            Outcome::Refused(refusal) => {
                dial.cancel(&mut core.reactor);
                self.refuse(core, key, refusal);
            }
            Outcome::Connected(fd) => self.accept(core, key, fd),
        }
    }

    fn accept(&mut self, core: &mut CoreOf<Self>, key: Key, fd: OwnedFd) {
        tcp::tune(&fd);
        let bound = tcp::local_addr(&fd);
        let Some((id, conn)) = core.connections.get(key).and_then(|c| c.name) else { return };
        let Ok(socket) = Socket::new(&mut core.reactor, fd, Source::Connection(key)) else {
            return self.refuse(core, key, Refusal::TooMany);
        };
        core.relay(key, |_| (socket, Vec::new()));
        if let Some((session, streams)) = core.session(id) {
            session.accept(streams, conn, bound);
        }
    }

    fn refuse(&mut self, core: &mut CoreOf<Self>, key: Key, refusal: Refusal) {
        let Some(connection) = core.remove(key) else { return };
        if let Some((id, conn)) = connection.name {
            core.counters.refused += 1;
            let target = connection.target;
            tracing::debug!(connection = conn.0, target, reason = %refusal, "connection refused");
            if let Some((session, streams)) = core.session(id) {
                session.refuse(streams, conn, refusal);
            }
        }
    }

    fn turn_away(
        &mut self,
        core: &mut CoreOf<Self>,
        id: H::Id,
        conn: ConnId,
        target: &Target,
        refusal: Refusal,
    ) {
        core.counters.refused += 1;
        tracing::debug!(connection = conn.0, %target, reason = %refusal, "connection refused");
        if let Some((session, streams)) = core.session(id) {
            session.refuse(streams, conn, refusal);
        }
    }
}

impl<H: BaseHop> Role for BaseRole<H> {
    type Hop = H;
    type Waiting = Surrogate;

    const NAME: &'static str = "base";

    fn session(&self) -> Session {
        Session::base(self.session)
    }

    fn hop_name(&self) -> &'static str {
        H::NAME
    }

    fn start(&mut self, core: &mut CoreOf<Self>) -> io::Result<()> {
        let (hop, mut turn) = core.turn();
        hop.start(&mut turn)
    }

    fn handle_listener(&mut self, _core: &mut CoreOf<Self>, _n: usize) {}

    fn handle_waiting(&mut self, _core: &mut CoreOf<Self>, _key: Key, _readiness: Readiness) {}

    fn handle_attempt(&mut self, core: &mut CoreOf<Self>, key: Key, n: u32) {
        self.advance(core, key, Some(n));
    }

    fn handle_opening(&mut self, core: &mut CoreOf<Self>, id: H::Id, event: Event) {
        if let Event::Connect { id: conn, target } = event {
            self.open(core, id, conn, &target);
        }
    }

    fn handle_gone(&mut self, core: &mut CoreOf<Self>, waiting: Surrogate, _reset: bool) {
        if let Surrogate::Dialling(mut dial) = waiting {
            dial.cancel(&mut core.reactor);
        }
    }

    fn handle_answer(&mut self, core: &mut CoreOf<Self>, answer: Answer<Asker>) {
        let Asker::Connection(key) = answer.tag else { return };
        if !matches!(core.waiting(key), Some(Surrogate::Resolving)) {
            return;
        }
        match answer.addresses {
            Ok(addresses) => self.dial(core, key, addresses),
            Err(e) => {
                tracing::debug!(error = %e, "a name was not resolved");
                self.refuse(core, key, crate::resolve::refusal(&e));
            }
        }
    }

    fn handle_timer(&mut self, core: &mut CoreOf<Self>, timer: Timer) {
        let Timer::Connection(key) = timer else { return };
        match core.waiting(key) {
            Some(Surrogate::Dialling(_)) => self.advance(core, key, None),
            Some(Surrogate::Resolving) => self.refuse(core, key, Refusal::ResolverFailed),
            None => {}
        }
    }

    fn handle_association(&mut self, _core: &mut CoreOf<Self>, event: &HopEvent<H::Id>) {
        match event {
            HopEvent::Up(id) => tracing::info!(association = ?id, "association up"),
            HopEvent::Moved(id, to) => tracing::info!(association = ?id, %to, "association moved"),
            HopEvent::Lost(id, reason) => {
                tracing::info!(association = ?id, reason, "association lost");
            }
            HopEvent::Unreachable(_) => {}
        }
    }

    fn stop(&mut self, core: &mut CoreOf<Self>) {
        let (hop, mut turn) = core.turn();
        hop.stop(&mut turn);
    }
}
