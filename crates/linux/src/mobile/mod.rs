//! `lasthop mobile`: carries applications' connections over the hop to a base.

mod config;
mod guest;

pub use config::{BaseAddress, Connect, MobileConfig, MobileFile};

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use lasthop_hop::seal::Keypair;
use lasthop_session::{ConnId, Event, Refusal, ResetReason, Session, Target};
use lasthop_units::{Seed, Time};

use self::guest::{Guest, Wish};
use crate::config::{HopKind, SealKind};
use crate::driver::{Asker, CoreOf, Driver, Phase, Role, Timer};
use crate::error::RunError;
use crate::hop::{Hop, HopEvent, Source, Turn};
use crate::reactor::{Interest, Readiness};
use crate::resolve::Answer;
use crate::slab::Key;
use crate::split::{Seal, SplitMobile};
use crate::srp::{self, SrpMobile};
use crate::stop::Stop;
use crate::tcp::{self, Accepted, Socket};
use crate::udp::{Route, Udp};
use crate::{clock, control, cpu, keyfile};

/// How long an application may take to say what it wants, or to read why it does not get it.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long accepting pauses when descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The base's name is looked up again this long after the resolver has failed.
const RESOLVE_AGAIN: Duration = Duration::from_secs(2);

/// A mobile that is bound and not yet running.
pub struct Mobile {
    driver: AnyDriver,
}

/// One loop for each hop; all else is the same code.
enum AnyDriver {
    Srp(Box<Driver<MobileRole<SrpMobile>>>),
    Split(Box<Driver<MobileRole<SplitMobile>>>),
}

impl Mobile {
    /// Binds every listener and reads the keys.
    ///
    /// # Errors
    ///
    /// Says which address, file or socket cannot be used, and why.
    pub fn bind(config: MobileConfig) -> Result<Self, RunError> {
        let seed = keyfile::entropy().map_err(RunError::Kernel)?;
        let keys = match &config.key {
            Some(path) => keyfile::load(path)?,
            // Without a seal a key is only a name; this one is as good as any.
            None => Keypair::generate(seed.child("name")),
        };
        let seal = match (config.seal, config.base_key) {
            (SealKind::Noise, Some(base)) => Seal::Noise(keys, base),
            _ => Seal::Off(*keys.public()),
        };
        let driver = match config.hop {
            HopKind::Srp => AnyDriver::Srp(driver(srp(&config, seal, seed)?, config)?),
            HopKind::SplitTcp => AnyDriver::Split(driver(split(&config, seal, seed), config)?),
        };
        Ok(Self { driver })
    }

    /// Where applications are served.
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        match &self.driver {
            AnyDriver::Srp(driver) => driver.role().local_addrs(),
            AnyDriver::Split(driver) => driver.role().local_addrs(),
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

fn driver<H: MobileHop>(
    hop: H,
    config: MobileConfig,
) -> Result<Box<Driver<MobileRole<H>>>, RunError> {
    let listeners = config.proxy.iter().map(|addr| listen(*addr)).collect::<Result<_, _>>()?;
    let control = control::open(config.control.as_deref(), "mobile")?;
    let driver = Driver::new(MobileRole::new(config, listeners), hop, control);
    driver.map(Box::new).map_err(RunError::Kernel)
}

fn listen(addr: SocketAddr) -> Result<OwnedFd, RunError> {
    let fd = tcp::listen(addr).map_err(|source| RunError::Listen { addr, source })?;
    if !addr.ip().to_canonical().is_loopback() {
        tracing::warn!(%addr, "anybody who reaches this address can use the mobile");
    }
    Ok(fd)
}

fn srp(config: &MobileConfig, seal: Seal, seed: Seed) -> Result<SrpMobile, RunError> {
    let base_is_v4 = config.base.host.parse::<Ipv4Addr>().is_ok();
    let hop = srp::config(&config.srp, !base_is_v4, config.connections);
    let now = Time::ZERO;
    let (machine, base_key) = match seal {
        Seal::Noise(keys, base) => {
            let machine = lasthop_hop::Mobile::new(hop, keys, base, Route::NOWHERE, seed, now);
            (machine, Some(base))
        }
        Seal::Off(claim) => {
            (lasthop_hop::Mobile::unsealed(hop, claim, Route::NOWHERE, seed, now), None)
        }
    };
    let machine =
        machine.with_fast_aes(now, cpu::fast_aes()).with_wall_clock(now, clock::wall_nanos());
    let udp = Udp::anywhere().map_err(|(addr, source)| RunError::Listen { addr, source })?;
    Ok(SrpMobile::new(machine, udp, base_key))
}

fn split(config: &MobileConfig, seal: Seal, seed: Seed) -> SplitMobile {
    SplitMobile::new(seal, config.congestion.clone(), config.connections, seed)
}

/// The hop of a mobile: one association, to a base whose address may change.
pub(crate) trait MobileHop: Hop<Id = ()> {
    /// The hop's name.
    const NAME: &'static str;

    /// Starts to watch its sockets.
    fn start(&mut self, turn: &mut Turn<'_>) -> io::Result<()>;

    /// Whether the association stands.
    fn is_up(&self) -> bool;

    /// Uses this address of the base from here on.
    fn set_base(&mut self, turn: &mut Turn<'_>, addr: SocketAddr);
}

/// Where the base's address is.
#[derive(Debug, Default)]
struct BaseName {
    asking: bool,
    addresses: Vec<SocketAddr>,
    /// The next address to use is `addresses[turn % len]`.
    turn: usize,
    used: Option<SocketAddr>,
}

/// The mobile's part of the loop.
pub(crate) struct MobileRole<H> {
    config: MobileConfig,
    listeners: Vec<OwnedFd>,
    base: BaseName,
    /// What was last said of an unreachable base.
    complaint: Option<String>,
    hop: std::marker::PhantomData<H>,
}

type Core<H> = CoreOf<MobileRole<H>>;

impl<H: MobileHop> MobileRole<H> {
    fn new(config: MobileConfig, listeners: Vec<OwnedFd>) -> Self {
        Self {
            config,
            listeners,
            base: BaseName::default(),
            complaint: None,
            hop: std::marker::PhantomData,
        }
    }

    fn local_addrs(&self) -> Vec<SocketAddr> {
        self.listeners.iter().map(tcp::local_addr).collect()
    }

    fn look_up_base(&mut self, core: &mut Core<H>) {
        let base = &self.config.base;
        if self.base.asking {
            return;
        }
        if let Ok(ip) = base.host.parse() {
            self.base.addresses = vec![SocketAddr::new(ip, base.port)];
            return self.use_base(core);
        }
        match core.resolver.ask(Asker::Base, &base.host, base.port) {
            Ok(()) => self.base.asking = true,
            Err(_) => core.arm(core.now + RESOLVE_AGAIN, Timer::Resolve),
        }
    }

    fn use_base(&mut self, core: &mut Core<H>) {
        let n = self.base.addresses.len().max(1);
        if let Some(addr) = self.base.addresses.get(self.base.turn % n).copied() {
            self.base.used = Some(addr);
            let (hop, mut turn) = core.turn();
            hop.set_base(&mut turn, addr);
        }
    }

    fn welcome(&mut self, core: &mut Core<H>, fd: OwnedFd) {
        if core.connections.len() >= self.config.connections {
            return tracing::debug!("too many connections: one is turned away");
        }
        tcp::tune(&fd);
        // The source needs the key, and the key the socket: the source is corrected after.
        let Ok(socket) = Socket::new(&mut core.reactor, fd, Source::Resolver) else { return };
        let token = socket.token;
        let key = core.add(String::new(), Guest::new(socket));
        core.reactor.reassign(token, Source::Connection(key));
        core.arm(core.now + PATIENCE, Timer::Connection(key));
    }

    fn advance(&mut self, core: &mut Core<H>, key: Key) {
        let Some(guest) = core.waiting(key) else { return };
        match guest.advance() {
            Wish::Wait => {}
            Wish::Open(target) => self.open(core, key, &target),
            Wish::Relay => core.relay(key, Guest::into_relay),
            Wish::Leave => self.leave(core, key),
        }
    }

    fn open(&mut self, core: &mut Core<H>, key: Key, target: &Target) {
        if let Some(connection) = core.connections.get_mut(key) {
            connection.target = target.to_string();
        }
        let (now, opening) = (core.now, self.config.connect.into());
        let asked = core
            .session(())
            .map(|(session, streams)| session.connect(now, streams, target, opening));
        match asked {
            Some(Ok(conn)) => core.name(key, (), conn),
            Some(Err(_)) => self.answer(core, key, Err(Refusal::TooMany)),
            None => self.answer(core, key, Err(Refusal::AssociationLost)),
        }
    }

    fn answer(
        &mut self,
        core: &mut Core<H>,
        key: Key,
        result: Result<Option<SocketAddr>, Refusal>,
    ) {
        if let Err(reason) = &result
            && let Some(connection) = core.connections.get(key)
        {
            core.counters.refused += 1;
            tracing::debug!(target = connection.target, %reason, "connection refused");
            core.arm(core.now + PATIENCE, Timer::Connection(key));
        }
        if let Some(guest) = core.waiting(key) {
            guest.answer(result);
            self.advance(core, key);
        }
    }

    /// The application is gone: so is its connection.
    fn leave(&mut self, core: &mut Core<H>, key: Key) {
        let Some(connection) = core.remove(key) else { return };
        if let Phase::Waiting(guest) = connection.phase {
            guest.socket.close(&mut core.reactor, false);
        }
        if let Some((id, conn)) = connection.name
            && let Some((session, streams)) = core.session(id)
        {
            session.reset(streams, conn, ResetReason::Aborted);
        }
    }

    fn handle_opened(&mut self, core: &mut Core<H>, conn: ConnId, bound: Option<SocketAddr>) {
        if let Some(key) = core.find((), conn) {
            self.answer(core, key, Ok(bound));
        }
    }

    fn complain(&mut self, why: &str) {
        if self.complaint.as_deref() != Some(why) {
            tracing::warn!(base = self.config.base.host, why, "the base cannot be reached");
            self.complaint = Some(why.to_owned());
        }
    }
}

impl<H: MobileHop> Role for MobileRole<H> {
    type Hop = H;
    type Waiting = Guest;

    const NAME: &'static str = "mobile";

    fn session(&self) -> Session {
        Session::mobile(lasthop_session::Config {
            max_connections: self.config.connections,
            ..lasthop_session::Config::mobile()
        })
    }

    fn hop_name(&self) -> &'static str {
        H::NAME
    }

    fn start(&mut self, core: &mut Core<H>) -> io::Result<()> {
        for (n, fd) in self.listeners.iter().enumerate() {
            core.reactor.add(fd, Interest::Read, Source::Listener(n))?;
        }
        let (hop, mut turn) = core.turn();
        hop.start(&mut turn)?;
        core.open_session((), || self.session());
        self.look_up_base(core);
        Ok(())
    }

    fn handle_listener(&mut self, core: &mut Core<H>, n: usize) {
        // A flood of connections must not starve the others; the rest comes with the timer.
        for _ in 0..64 {
            let Some(fd) = self.listeners.get(n) else { return };
            match tcp::accept(fd) {
                Accepted::Connection(fd, _) => self.welcome(core, fd),
                Accepted::Empty => return,
                Accepted::Exhausted(e) => {
                    tracing::warn!(error = %e, "accepting pauses");
                    return core.arm(core.now + ACCEPT_PAUSE, Timer::Accept(n));
                }
            }
        }
        core.arm(core.now, Timer::Accept(n));
    }

    fn handle_waiting(&mut self, core: &mut Core<H>, key: Key, readiness: Readiness) {
        if let Some(guest) = core.waiting(key) {
            guest.socket.ready(readiness);
            self.advance(core, key);
        }
    }

    fn handle_attempt(&mut self, _core: &mut Core<H>, _key: Key, _n: u32) {}

    fn handle_opening(&mut self, core: &mut Core<H>, (): (), event: Event) {
        match event {
            Event::Opened { id, bound } => self.handle_opened(core, id, bound),
            Event::Failed { id, refusal } => {
                if let Some(key) = core.find((), id) {
                    // The session has no more to say of it but goodbye.
                    core.unname(key);
                    self.answer(core, key, Err(refusal));
                }
            }
            _ => {}
        }
    }

    fn handle_gone(&mut self, core: &mut Core<H>, guest: Guest, reset: bool) {
        guest.socket.close(&mut core.reactor, reset);
    }

    fn handle_answer(&mut self, core: &mut Core<H>, answer: Answer<Asker>) {
        if answer.tag != Asker::Base {
            return;
        }
        self.base.asking = false;
        match answer.addresses {
            Ok(addresses) => {
                let used = self.base.used.filter(|addr| addresses.contains(addr));
                self.base.addresses = addresses;
                // A silent hop is no reason to leave an address that is still the base's.
                if used.is_none() || !core.hop.is_up() {
                    self.use_base(core);
                }
            }
            Err(e) => {
                self.complain(&e.to_string());
                core.arm(core.now + RESOLVE_AGAIN, Timer::Resolve);
            }
        }
    }

    fn handle_timer(&mut self, core: &mut Core<H>, timer: Timer) {
        match timer {
            Timer::Accept(n) if !core.stopping => self.handle_listener(core, n),
            Timer::Resolve => self.look_up_base(core),
            Timer::Connection(key) => {
                if core.waiting(key).is_some_and(|guest| guest.dawdles())
                    && core.connections.get(key).is_some_and(|c| c.since + PATIENCE <= core.now)
                {
                    self.leave(core, key);
                }
            }
            Timer::Accept(_) | Timer::Grace => {}
        }
    }

    fn handle_association(&mut self, core: &mut Core<H>, event: &HopEvent<()>) {
        match event {
            HopEvent::Up(()) => {
                self.complaint = None;
                tracing::info!(base = self.config.base.host, "association up");
            }
            HopEvent::Moved((), to) => tracing::info!(%to, "association moved"),
            HopEvent::Lost((), why) => {
                tracing::warn!(why, "association lost");
                self.look_up_base(core);
            }
            HopEvent::Unreachable(why) => {
                self.complain(why);
                self.base.turn = self.base.turn.wrapping_add(1);
                self.look_up_base(core);
            }
        }
    }

    fn stop(&mut self, _core: &mut Core<H>) {
        // Closing a listener takes it out of the epoll set.
        self.listeners.clear();
    }
}
