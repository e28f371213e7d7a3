//! `lasthop mobile`: carries applications' connections over the hop to a base.

mod config;
mod guest;

pub use config::{BaseAddress, BaseText, Connect, MobileConfig, MobileFile};

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use lasthop_hop::mobile_tcp::MobileTcp;
use lasthop_hop::seal::Keypair;
use lasthop_hop::srp::Srp;
use lasthop_hop::{BareMobile, MobileEnd};
use lasthop_session::{ConnId, Event, Refusal, ResetReason, Session, Target};
use lasthop_units::{Seed, Time};

use self::guest::{Guest, Wish};
use crate::carrier::Carrier;
use crate::carrier::ether::{Ether, Framing};
use crate::carrier::udp::Udp;
use crate::config::{HopKind, Place, SealKind};
use crate::datagram::DatagramMobile;
use crate::datagram::settings::{self, Passage};
use crate::dial::{self, Dial, Dials};
use crate::driver::{Asker, CoreOf, Driver, Phase, Role, Timer};
use crate::error::RunError;
use crate::hop::{Hop, HopEvent, Source, Turn};
use crate::reactor::{Interest, Readiness};
use crate::resolve::Answer;
use crate::slab::Key;
use crate::split::{Seal, SplitMobile};
use crate::stop::Stop;
use crate::tcp::{self, Accepted, Socket};
use crate::{clock, control, cpu, keyfile};

/// How long a server of the mobile's may take to answer.
const SERVER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an application may take to say what it wants, or to read why it does not get it.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long accepting pauses when descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The base's name is looked up again this long after the resolver has failed.
const RESOLVE_AGAIN: Duration = Duration::from_secs(2);

/// What a mobile's connection does before it stands.
pub(crate) enum Waiting {
    /// An application says what it wants.
    Guest(Guest),
    /// A fixed host's is being connected with a server here.
    Calling(Dial),
}

impl Dials for Waiting {
    fn dial(&mut self) -> Option<&mut Dial> {
        match self {
            Self::Calling(dial) => Some(dial),
            Self::Guest(_) => None,
        }
    }
}

/// A mobile that is bound and not yet running.
pub struct Mobile {
    service: Box<dyn Service>,
}

/// A loop with any hop.
trait Service: Send {
    fn local_addrs(&self) -> Vec<SocketAddr>;
    fn run(&mut self, stop: &Stop) -> io::Result<()>;
}

impl<H: MobileHop> Service for Driver<MobileRole<H>> {
    fn local_addrs(&self) -> Vec<SocketAddr> {
        self.role().local_addrs()
    }

    fn run(&mut self, stop: &Stop) -> io::Result<()> {
        self.run(stop)
    }
}

impl Mobile {
    /// Binds every listener and reads the keys.
    ///
    /// # Errors
    ///
    /// Says which address, interface, file or socket cannot be used, and why.
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
        let service = match (config.hop, &config.base) {
            (HopKind::SplitTcp, _) => service(split(&config, seal, seed), config)?,
            (_, Place::Internet(base)) => {
                let base_is_v4 = base.host.parse::<Ipv4Addr>().is_ok();
                let udp =
                    Udp::anywhere().map_err(|(addr, source)| RunError::Listen { addr, source })?;
                datagrams(config, seal, seed, udp, Passage::udp(!base_is_v4), None)?
            }
            (hop, Place::Ethernet { interface, peer }) => {
                let framing = Framing::of(hop, config.seal);
                let ether = Ether::open(interface, framing)?;
                let passage = Passage::ether(ether.mtu(), framing.overhead());
                let peer = *peer;
                datagrams(config, seal, seed, ether, passage, peer)?
            }
        };
        Ok(Self { service })
    }

    /// Where applications are served.
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        self.service.local_addrs()
    }

    /// Serves until `stop` is requested.
    ///
    /// # Errors
    ///
    /// The kernel refused what the loop cannot do without.
    pub fn run(mut self, stop: &Stop) -> Result<(), RunError> {
        self.service.run(stop).map_err(RunError::Kernel)
    }
}

fn service<H: MobileHop>(hop: H, config: MobileConfig) -> Result<Box<dyn Service>, RunError> {
    let listeners = config.proxy.iter().map(|addr| listen(*addr)).collect::<Result<_, _>>()?;
    let control = control::open(config.control.as_deref(), "mobile")?;
    let driver = Driver::new(MobileRole::new(config, listeners), hop, control);
    Ok(Box::new(driver.map_err(RunError::Kernel)?))
}

fn listen(addr: SocketAddr) -> Result<OwnedFd, RunError> {
    let fd = tcp::listen(addr).map_err(|source| RunError::Listen { addr, source })?;
    if !addr.ip().to_canonical().is_loopback() {
        tracing::warn!(%addr, "anybody who reaches this address can use the mobile");
    }
    Ok(fd)
}

/// The hop of a transport over `carrier`, with a base at `peer` if that is known.
fn datagrams<C: Carrier>(
    config: MobileConfig,
    seal: Seal,
    seed: Seed,
    carrier: C,
    passage: Passage,
    peer: Option<C::Route>,
) -> Result<Box<dyn Service>, RunError> {
    let streams = config.connections;
    let now = Time::ZERO;
    match (config.hop, seal) {
        (HopKind::MobileTcp, Seal::Noise(keys, base)) => {
            let sealed = settings::SEALED;
            let settings = settings::mobile_tcp(&config.mobile_tcp, passage, sealed, streams)?;
            let machine = lasthop_hop::Mobile::<_, MobileTcp>::new(
                settings,
                keys,
                base,
                C::NOWHERE,
                seed,
                now,
            );
            let machine = machine
                .with_fast_aes(now, cpu::fast_aes())
                .with_wall_clock(now, clock::wall_nanos());
            over("mobile-tcp", machine, carrier, peer, config)
        }
        (HopKind::MobileTcp, Seal::Off(_)) => {
            let settings = settings::mobile_tcp(&config.mobile_tcp, passage, 0, streams)?;
            let machine = BareMobile::new(settings, C::NOWHERE, seed, now);
            over("mobile-tcp", machine, carrier, peer, config)
        }
        (_, seal) => {
            let settings = settings::srp(&config.srp, passage, streams);
            let machine: lasthop_hop::Mobile<C::Route, Srp> = match &seal {
                Seal::Noise(keys, base) => {
                    let keys = keys.clone();
                    lasthop_hop::Mobile::new(settings, keys, *base, C::NOWHERE, seed, now)
                }
                Seal::Off(claim) => {
                    lasthop_hop::Mobile::unsealed(settings, *claim, C::NOWHERE, seed, now)
                }
            };
            let machine = machine
                .with_fast_aes(now, cpu::fast_aes())
                .with_wall_clock(now, clock::wall_nanos());
            over("srp", machine, carrier, peer, config)
        }
    }
}

fn over<M, C>(
    name: &'static str,
    machine: M,
    carrier: C,
    peer: Option<C::Route>,
    config: MobileConfig,
) -> Result<Box<dyn Service>, RunError>
where
    M: MobileEnd<Address = C::Route> + Send + 'static,
    C: Carrier,
{
    service(DatagramMobile::new(name, machine, carrier, config.base_key, peer), config)
}

fn split(config: &MobileConfig, seal: Seal, seed: Seed) -> SplitMobile {
    SplitMobile::new(seal, config.congestion.clone(), config.connections, seed)
}

/// The hop of a mobile: one association, to a base whose address may change.
pub(crate) trait MobileHop: Hop<Id = ()> {
    /// Starts to watch its sockets.
    fn start(&mut self, turn: &mut Turn<'_>) -> io::Result<()>;

    /// Whether the association stands.
    fn is_up(&self) -> bool;

    /// Uses this address of the base from here on.
    fn set_base(&mut self, turn: &mut Turn<'_>, addr: SocketAddr);

    /// Tells the base of servers on these ports, whenever it has to be told (MOB-8). Where the hop
    /// has no words for it, the base asks for each connection.
    fn listen(&mut self, _ports: &[u16]) {}
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

/// The application of a connection that is not relayed yet.
fn guest<H: MobileHop>(core: &mut Core<H>, key: Key) -> Option<&mut Guest> {
    match core.waiting(key)? {
        Waiting::Guest(guest) => Some(guest),
        Waiting::Calling(_) => None,
    }
}

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
        // On a link there is nothing to look up.
        let Place::Internet(base) = &self.config.base else { return };
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
        let key = core.add(String::new(), Waiting::Guest(Guest::new(socket)));
        core.reactor.reassign(token, Source::Connection(key));
        core.arm(core.now + PATIENCE, Timer::Connection(key));
    }

    fn advance(&mut self, core: &mut Core<H>, key: Key) {
        let Some(guest) = guest(core, key) else { return };
        match guest.advance() {
            Wish::Wait => {}
            Wish::Open(target) => self.open(core, key, &target),
            Wish::Relay => core.relay(key, |waiting| match waiting {
                Waiting::Guest(guest) => Some(guest.into_relay()),
                Waiting::Calling(_) => None,
            }),
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
        if let Some(guest) = guest(core, key) {
            guest.answer(result);
            self.advance(core, key);
        }
    }

    /// The application is gone: so is its connection.
    fn leave(&mut self, core: &mut Core<H>, key: Key) {
        let Some(connection) = core.remove(key) else { return };
        if let Phase::Waiting(Waiting::Guest(guest)) = connection.phase {
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

    /// What the operator calls the base.
    fn base_name(&self) -> &str {
        match &self.config.base {
            Place::Internet(base) => &base.host,
            Place::Ethernet { interface, .. } => interface,
        }
    }

    /// A fixed host wants a server of ours (MOB-8).
    fn call(&mut self, core: &mut Core<H>, conn: ConnId, target: &Target) {
        let server = match target {
            Target::Addr(to) => self.config.publish.iter().find(|s| s.port == to.port()),
            Target::Name(..) => None,
        };
        let refusal = match server {
            _ if core.stopping => Refusal::ShuttingDown,
            Some(_) if core.connections.len() >= self.config.connections => Refusal::TooMany,
            Some(server) => {
                let caller = core.session(()).and_then(|(session, _)| session.caller(conn));
                tracing::debug!(connection = conn.0, ?caller, server = %server.server, "called");
                let dial = Dial::new(vec![server.server], core.now + SERVER_TIMEOUT);
                let key = core.add(server.server.to_string(), Waiting::Calling(dial));
                core.name(key, (), conn);
                return dial::advance(core, key, None);
            }
            // As a closed port answers.
            None => Refusal::Refused,
        };
        dial::turn_away(core, (), conn, &target.to_string(), refusal);
    }

    fn complain(&mut self, why: &str) {
        if self.complaint.as_deref() != Some(why) {
            tracing::warn!(base = self.base_name(), why, "the base cannot be reached");
            self.complaint = Some(why.to_owned());
        }
    }
}

impl<H: MobileHop> Role for MobileRole<H> {
    type Hop = H;
    type Waiting = Waiting;

    const NAME: &'static str = "mobile";

    fn session(&self) -> Session {
        let mut session = Session::mobile(lasthop_session::Config {
            max_connections: self.config.connections,
            ..lasthop_session::Config::mobile()
        });
        session.set_listening(!self.config.publish.is_empty());
        session
    }

    fn start(&mut self, core: &mut Core<H>) -> io::Result<()> {
        for (n, fd) in self.listeners.iter().enumerate() {
            core.reactor.add(fd, Interest::Read, Source::Listener(n))?;
        }
        let (hop, mut turn) = core.turn();
        hop.start(&mut turn)?;
        let ports: Vec<u16> = self.config.publish.iter().map(|server| server.port).collect();
        hop.listen(&ports);
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
        if let Some(guest) = guest(core, key) {
            guest.socket.ready(readiness);
            self.advance(core, key);
        }
    }

    fn handle_attempt(&mut self, core: &mut Core<H>, key: Key, n: u32) {
        dial::advance(core, key, Some(n));
    }

    fn handle_opening(&mut self, core: &mut Core<H>, (): (), event: Event) {
        match event {
            Event::Connect { id, target } => self.call(core, id, &target),
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

    fn handle_gone(&mut self, core: &mut Core<H>, waiting: Waiting, reset: bool) {
        match waiting {
            Waiting::Guest(guest) => guest.socket.close(&mut core.reactor, reset),
            Waiting::Calling(mut dial) => dial.cancel(&mut core.reactor),
        }
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
                dial::advance(core, key, None);
                if guest(core, key).is_some_and(|guest| guest.dawdles())
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
                tracing::info!(base = self.base_name(), "association up");
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
