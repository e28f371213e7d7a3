//! `lasthop base`: serves mobiles, and makes their connections to the fixed network.

mod config;
mod door;
mod policy;

pub use config::{BaseConfig, BaseFile, BaseLimits};
pub use policy::{Network, NetworkError, TargetPolicy};

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use lasthop_hop::mobile_tcp::MobileTcp;
use lasthop_hop::seal::{Keypair, PublicKey, Responder};
use lasthop_hop::srp::Srp;
use lasthop_hop::{BareBase, BareBounds, BaseEnd};
use lasthop_session::{ConnId, Event, Refusal, ResetReason, Session, Target};
use lasthop_units::Seed;

use self::door::Door;
use crate::carrier::Carrier;
use crate::carrier::ether::{Ether, Framing};
use crate::carrier::udp::Udp;
use crate::config::{HopKind, Place, SealKind};
use crate::datagram::DatagramBase;
use crate::datagram::settings::{self, Passage};
use crate::dial::{self, Dial, Dials};
use crate::driver::{Asker, CoreOf, Driver, Phase, Role, Timer};
use crate::error::RunError;
use crate::hop::{Hop, HopEvent, Source, Turn};
use crate::reactor::{Interest, Readiness};
use crate::resolve::Answer;
use crate::slab::Key;
use crate::split::{Bounds, SplitBase};
use crate::stop::Stop;
use crate::tcp::{self, Accepted, Socket};
use crate::{control, cpu, keyfile};

/// How long accepting pauses when descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a base's connection does before it stands.
#[derive(Debug)]
pub(crate) enum Surrogate {
    /// Its name is being resolved.
    Resolving,
    /// It connects.
    Dialling(Dial),
    /// A fixed host has made it, and the mobile is asked for its end.
    Offered(Socket),
}

impl Dials for Surrogate {
    fn dial(&mut self) -> Option<&mut Dial> {
        match self {
            Self::Dialling(dial) => Some(dial),
            Self::Resolving | Self::Offered(_) => None,
        }
    }
}

/// A base that is bound and not yet running.
pub struct Base {
    service: Box<dyn Service>,
}

/// A loop with any hop.
trait Service: Send {
    fn local_addrs(&self) -> Vec<SocketAddr>;
    fn places(&self) -> Vec<String>;
    fn run(&mut self, stop: &Stop) -> io::Result<()>;
}

impl<H: BaseHop> Service for Driver<BaseRole<H>> {
    fn local_addrs(&self) -> Vec<SocketAddr> {
        self.hop().local_addrs()
    }

    fn places(&self) -> Vec<String> {
        self.hop().places()
    }

    fn run(&mut self, stop: &Stop) -> io::Result<()> {
        self.run(stop)
    }
}

impl Base {
    /// Opens every address or interface and reads the keys.
    ///
    /// # Errors
    ///
    /// Says which address, interface, file or socket cannot be used, and why.
    pub fn bind(config: BaseConfig) -> Result<Self, RunError> {
        let seed = keyfile::entropy().map_err(RunError::Kernel)?;
        let keys = match config.seal {
            SealKind::Noise => Some(keyfile::load(&config.key)?),
            SealKind::None => None,
        };
        let service = match (config.hop, &config.place) {
            (HopKind::SplitTcp, _) => service(split(&config, keys, seed)?, &config)?,
            (hop, Place::Internet(listen)) => {
                let ipv6 = listen.iter().any(SocketAddr::is_ipv6);
                let udp = Udp::bind(listen)
                    .map_err(|(addr, source)| RunError::Listen { addr, source })?;
                datagrams(hop, &config, keys, seed, udp, Passage::udp(ipv6))?
            }
            (hop, Place::Ethernet { interface, .. }) => {
                let framing = Framing::of(hop, config.seal);
                let ether = Ether::open(interface, framing)?;
                let passage = Passage::ether(ether.mtu(), framing.overhead());
                datagrams(hop, &config, keys, seed, ether, passage)?
            }
        };
        Ok(Self { service })
    }

    /// The Internet addresses on which it listens for mobiles.
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        self.service.local_addrs()
    }

    /// Where it listens for mobiles, whatever the carrier.
    pub fn places(&self) -> Vec<String> {
        self.service.places()
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

fn service<H: BaseHop>(hop: H, config: &BaseConfig) -> Result<Box<dyn Service>, RunError> {
    let doors = Door::open_all(&config.publish)
        .map_err(|(addr, source)| RunError::Listen { addr, source })?;
    let control = control::open(config.control.as_deref(), "base")?;
    let driver = Driver::new(BaseRole::new(config, doors), hop, control);
    Ok(Box::new(driver.map_err(RunError::Kernel)?))
}

/// The hop of a transport over `carrier`.
fn datagrams<C: Carrier>(
    hop: HopKind,
    config: &BaseConfig,
    keys: Option<Keypair>,
    seed: Seed,
    carrier: C,
    passage: Passage,
) -> Result<Box<dyn Service>, RunError> {
    let (streams, allow) = (config.limits.connections, config.allow.clone());
    match (hop, keys) {
        (HopKind::MobileTcp, Some(keys)) => {
            let sealed = settings::SEALED;
            let settings = settings::mobile_tcp(&config.mobile_tcp, passage, sealed, streams)?;
            let machine = lasthop_hop::Base::<_, MobileTcp>::new(settings, keys, allow, seed);
            over("mobile-tcp", machine.with_fast_aes(cpu::fast_aes()), carrier, config)
        }
        (HopKind::MobileTcp, None) => {
            let settings = settings::mobile_tcp(&config.mobile_tcp, passage, 0, streams)?;
            let bounds =
                BareBounds { peers_max: config.limits.associations, ..BareBounds::default() };
            let machine = BareBase::new(settings, bounds, seed);
            over("mobile-tcp", machine, carrier, config)
        }
        (_, keys) => {
            let settings = settings::srp(&config.srp, passage, streams);
            let machine = match keys {
                Some(keys) => lasthop_hop::Base::<_, Srp>::new(settings, keys, allow, seed),
                None => lasthop_hop::Base::unsealed(settings, seed),
            };
            over("srp", machine.with_fast_aes(cpu::fast_aes()), carrier, config)
        }
    }
}

fn over<M, C>(
    name: &'static str,
    machine: M,
    carrier: C,
    config: &BaseConfig,
) -> Result<Box<dyn Service>, RunError>
where
    M: BaseEnd<Address = C::Route> + Send + 'static,
    C: Carrier,
{
    service(DatagramBase::new(name, machine, carrier), config)
}

fn split(config: &BaseConfig, keys: Option<Keypair>, seed: Seed) -> Result<SplitBase, RunError> {
    // A configuration with frames and split-tcp is refused when it is read.
    let listen = match &config.place {
        Place::Internet(listen) => listen.as_slice(),
        Place::Ethernet { .. } => &[],
    };
    let (responder, allowed) = match keys {
        Some(keys) => (Responder::new(keys, seed.child("responder")), Some(config.allow.clone())),
        None => (Responder::unsealed(), None),
    };
    let bounds =
        Bounds { associations: config.limits.associations, streams: config.limits.connections };
    let congestion = config.congestion.as_ref();
    SplitBase::bind(listen, congestion, responder, allowed, bounds, seed)
        .map_err(|(addr, source)| RunError::Listen { addr, source })
}

/// The hop of a base, which listens by itself.
pub(crate) trait BaseHop: Hop {
    /// The Internet addresses at which mobiles are served.
    fn local_addrs(&self) -> Vec<SocketAddr>;

    /// Where mobiles are served, for people.
    fn places(&self) -> Vec<String> {
        self.local_addrs().iter().map(ToString::to_string).collect()
    }

    /// Starts to watch its sockets.
    fn start(&mut self, turn: &mut Turn<'_>) -> io::Result<()>;

    /// Takes no new association and no new stream from here on.
    fn stop(&mut self, turn: &mut Turn<'_>);

    /// The key of the mobile at the other end of an association, where mobiles have keys.
    fn key_of(&self, id: Self::Id) -> Option<PublicKey>;

    /// Whether that mobile has a server on `port`; `None` if only asking it tells.
    fn listens(&self, _id: Self::Id, _port: u16) -> Option<bool> {
        None
    }
}

/// The base's part of the loop.
pub(crate) struct BaseRole<H: Hop> {
    policy: TargetPolicy,
    connect_timeout: Duration,
    session: lasthop_session::Config,
    connections_max: usize,
    doors: Vec<Door>,
    /// The mobiles that are here, the last to come last.
    mobiles: Vec<(H::Id, Option<PublicKey>)>,
}

impl<H: BaseHop> BaseRole<H> {
    fn new(config: &BaseConfig, doors: Vec<Door>) -> Self {
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
        }
    }

    fn open(&mut self, core: &mut CoreOf<Self>, id: H::Id, conn: ConnId, target: &Target) {
        if core.stopping {
            return dial::turn_away(core, id, conn, &target.to_string(), Refusal::ShuttingDown);
        }
        if core.connections.len() >= self.connections_max {
            return dial::turn_away(core, id, conn, &target.to_string(), Refusal::TooMany);
        }
        let key = core.add(target.to_string(), Surrogate::Resolving);
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
        let dial = Dial::new(addresses, core.now + self.connect_timeout);
        if let Some(waiting) = core.waiting(key) {
            *waiting = Surrogate::Dialling(dial);
            dial::advance(core, key, None);
        }
    }

    /// The association with the mobile that `key` names, or with the last that came.
    fn find(&self, key: Option<PublicKey>) -> Option<H::Id> {
        let named = |(_, other): &&(H::Id, Option<PublicKey>)| key.is_none() || *other == key;
        self.mobiles.iter().rev().find(named).map(|(id, _)| *id)
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
        tcp::tune(&fd);
        // The source needs the key, and the key the socket: the source is corrected after.
        let Ok(socket) = Socket::new(&mut core.reactor, fd, Source::Resolver) else { return };
        let token = socket.token;
        let key = core.add(format!("{from} -> mobile:{port}"), Surrogate::Offered(socket));
        core.reactor.reassign(token, Source::Connection(key));
        let now = core.now;
        let offered = core.session(id).map(|(session, hop)| session.offer(now, hop, to, from));
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
    type Hop = H;
    type Waiting = Surrogate;

    const NAME: &'static str = "base";

    fn session(&self) -> Session {
        Session::base(self.session)
    }

    fn start(&mut self, core: &mut CoreOf<Self>) -> io::Result<()> {
        for (n, door) in self.doors.iter().enumerate() {
            core.reactor.add(door.fd(), Interest::Read, Source::Listener(n))?;
        }
        let (hop, mut turn) = core.turn();
        hop.start(&mut turn)
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
            && let Some((session, streams)) = core.session(id)
        {
            session.reset(streams, conn, ResetReason::Aborted);
        }
    }

    fn handle_attempt(&mut self, core: &mut CoreOf<Self>, key: Key, n: u32) {
        dial::advance(core, key, Some(n));
    }

    fn handle_opening(&mut self, core: &mut CoreOf<Self>, id: H::Id, event: Event) {
        match event {
            Event::Connect { id: conn, target } => self.open(core, id, conn, &target),
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
        match waiting {
            Surrogate::Dialling(mut dial) => dial.cancel(&mut core.reactor),
            Surrogate::Offered(socket) => socket.close(&mut core.reactor, true),
            Surrogate::Resolving => {}
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
                dial::refuse(core, key, crate::resolve::refusal(&e));
            }
        }
    }

    fn handle_timer(&mut self, core: &mut CoreOf<Self>, timer: Timer) {
        let key = match timer {
            Timer::Accept(n) => return self.handle_listener(core, n),
            Timer::Connection(key) => key,
            Timer::Resolve | Timer::Grace => return,
        };
        match core.waiting(key) {
            Some(Surrogate::Dialling(_)) => dial::advance(core, key, None),
            Some(Surrogate::Resolving) => dial::refuse(core, key, Refusal::ResolverFailed),
            Some(Surrogate::Offered(_)) | None => {}
        }
    }

    fn handle_association(&mut self, core: &mut CoreOf<Self>, event: &HopEvent<H::Id>) {
        match event {
            HopEvent::Up(id) => {
                tracing::info!(association = ?id, "association up");
                self.mobiles.push((*id, core.hop.key_of(*id)));
                self.tend_doors(core);
            }
            HopEvent::Moved(id, to) => tracing::info!(association = ?id, %to, "association moved"),
            HopEvent::Lost(id, reason) => {
                tracing::info!(association = ?id, reason, "association lost");
                self.mobiles.retain(|(other, _)| other != id);
                self.tend_doors(core);
            }
            HopEvent::Unreachable(_) => {}
        }
    }

    fn stop(&mut self, core: &mut CoreOf<Self>) {
        // Closing a listener takes it out of the epoll set.
        self.doors.clear();
        let (hop, mut turn) = core.turn();
        hop.stop(&mut turn);
    }
}
