//! `lasthop mobile`: carries applications' connections over the hop to a base.

mod application;
mod base_hop;
mod caps;
mod choice;
mod config;
mod connections;
mod early_upload;
mod families;
mod fleet;
mod handoff;
mod held_syn;
mod hop_factory;
mod intercepted;
mod known_base;
mod learning;
mod link_changes;
mod links;
mod network;
mod packet_flows;
mod packets;
mod policies;
mod program_priorities;
mod request;
mod signal;
mod transits;
mod udp_associations;
mod unreachable;

pub use config::{
    BaseAddress, Candidate, CandidateFile, Connect, HandoffFile, LimitsFile, MobileConfig,
    MobileFile,
};
pub use links::{LinkConfig, LinkFile};
pub use policies::{Policies, PolicyFile};

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use lasthop_control as control;
use lasthop_control::{Reply, Report, Request};
use lasthop_hop::seal::Keypair;
use lasthop_kernel::accept::{self, Accepted};
use lasthop_kernel::reactor::{Interest, Readiness};
use lasthop_kernel::slab::Key;
use lasthop_kernel::stop::Stop;
use lasthop_kernel::tcp;
use lasthop_kernel::turn::Source;
use lasthop_session::{ConnId, Event, Reach, Refusal, Session, SessionId, Target};
use lasthop_units::{Seed, Time};
use lasthop_wire::mhp::fleet::FleetMessage;
use lasthop_wire::mhp::handoff::TicketMessage;
use lasthop_wire::mhp::transit::TransitMessage;

use self::application::{Application, OpenRequest};
use self::caps::Caps;
use self::early_upload::PreviousHop;
use self::handoff::Handoffs;
use self::held_syn::{HeldSyn, HeldSyns};
use self::hop_factory::HopFactory;
use self::intercepted::Intercepted;
use self::known_base::KnownBase;
use self::links::Links;
use self::network::Network;
use self::program_priorities::ProgramPriorities;
use self::signal::Signal;
use self::transits::Transits;
use self::udp_associations::UdpAssociations;
use crate::config::{HopAddress, SealKind};
use crate::dial::{self, Dial, Dials};
use crate::driver::{Asker, CoreOf, Driver, Role, Timer};
use crate::error::RunError;
use crate::hop::{HopEvent, MobileHop};
use crate::hop_set::HopSet;
use crate::keyfile;
use crate::packets::TunWay;
use crate::resolve::Resolution;

/// How long an application may take to send its request, or to read a refusal.
const PATIENCE: Duration = Duration::from_secs(30);
/// The base's name is looked up again this long after the resolver has failed.
const RESOLVE_AGAIN: Duration = Duration::from_secs(2);
/// A hop to the base where the mobile is to be is opened again this long after that has failed.
const OPEN_AGAIN: Duration = Duration::from_millis(200);
/// The listener number of the netlink socket that reports interfaces, addresses and routes.
const NETWORK: usize = usize::MAX;
/// That of the descriptor by which programs are recognised.
const PROGRAMS: usize = usize::MAX - 1;
/// That of the netlink socket that reports signal levels.
const SIGNAL: usize = usize::MAX - 2;

/// What a mobile's connection waits for before it is relayed.
pub(crate) enum Waiting {
    /// An application's request, or the answer to it.
    Application(Application),
    /// The base's answer to an application whose SYN is held.
    HeldSyn(HeldSyn),
    /// The server here that a fixed host connects to.
    Calling(Dial),
}

impl Dials for Waiting {
    fn dial(&mut self) -> Option<&mut Dial> {
        match self {
            Self::Calling(dial) => Some(dial),
            Self::Application(_) | Self::HeldSyn(_) => None,
        }
    }
}

/// A mobile that is bound and not yet running.
pub struct Mobile {
    driver: Driver<MobileRole>,
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
        // Errors in the configuration are to be found before anything is served.
        let base = config.bases.first().ok_or_else(|| RunError::Misfit("no base".to_owned()))?;
        let files = config.bases.iter().filter_map(|base| Some((base.key?, base.psk.as_deref()?)));
        let psks = keyfile::PresharedKeys::load(files)?;
        let mut factory = HopFactory::new(config.clone(), keys.clone(), psks, seed);
        let hop = factory.make(base, Time::ZERO)?;
        // Whoever finds the proxy served finds the control socket served.
        let control = control::open(config.control.as_deref(), "mobile")?;
        let listeners = config.proxy.iter().map(|addr| listen(*addr)).collect::<Result<_, _>>()?;
        let intercepted = Intercepted::open(config.transparent.as_ref(), config.connect)?;
        let packets = packets::open(&config, seed)?;
        let caps = Caps::open(&config.state, &config.links)?;
        let mut role = MobileRole::new(config, listeners, intercepted, (factory, hop), keys, seed);
        (role.packets, role.caps) = (packets, caps);
        let driver = Driver::new(role, HopSet::new(0), control).map_err(RunError::Kernel)?;
        Ok(Self { driver })
    }

    /// Where applications are served.
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        self.driver.role().local_addrs()
    }

    /// Serves until `stop` is requested.
    ///
    /// # Errors
    ///
    /// The kernel refused what the loop cannot do without.
    pub fn run(mut self, stop: &Stop) -> Result<(), RunError> {
        self.driver.run(stop).map_err(RunError::Kernel)
    }
}

fn listen(addr: SocketAddr) -> Result<OwnedFd, RunError> {
    let fd = tcp::listen(addr).map_err(|source| RunError::Listen { addr, source })?;
    if !addr.ip().to_canonical().is_loopback() {
        tracing::warn!(%addr, "anybody who reaches this address can use the mobile");
    }
    Ok(fd)
}

/// The mobile's [`Role`]: its applications, its bases and its session.
pub(crate) struct MobileRole {
    config: MobileConfig,
    listeners: Vec<OwnedFd>,
    intercepted: Intercepted,
    stations: Vec<KnownBase>,
    factory: HopFactory,
    /// The hop to the first base, until the loop runs.
    first: Option<Box<dyn MobileHop>>,
    network: Network,
    links: Links,
    signal: Signal,
    handoffs: Option<Handoffs>,
    /// The session's name where there are no handoffs.
    name: SessionId,
    /// The base where the mobile is, or is going.
    here: usize,
    /// Since when `here` is that base.
    here_since: Time,
    /// When something last came from the base that has the session, while the session is on its way from there.
    heard: Option<Time>,
    /// The part of the hop whose association carries the session.
    at: u32,
    /// The session runs there; else it waits for an association with the base `here`.
    resumed: bool,
    /// A base knows the session.
    known_to_base: bool,
    /// The base has ended the association, and another will do as well.
    impatient: bool,
    /// When the base's silence will have lasted too long.
    doubt_at: Option<Time>,
    /// The hop that carried the session before, while it may still bring acknowledgements.
    previous_hop: Option<PreviousHop>,
    /// Parts that were replaced, and when they are removed.
    retired: Vec<(Time, u32)>,
    /// Connections whose association was lost while the base was being asked for them.
    retries: Vec<Key>,
    /// Programs that connections belong to, and their priorities.
    priorities: ProgramPriorities,
    /// The query for address families that the base reaches.
    families: families::FamiliesQuery,
    /// Applications whose SYN is held.
    held_syns: HeldSyns,
    /// The TUN device, where packets are carried.
    packets: Option<TunWay>,
    /// UDP associations of applications.
    udp: UdpAssociations,
    /// Links that may carry only so much in a day, if any.
    caps: Option<Caps>,
    /// What bases pass on to that where the session is.
    transits: Transits,
    /// Bases may be there that were not asked how they are.
    asks: bool,
    /// The base `here` is to be left.
    leaving: Option<fleet::Leaving>,
    /// When the first of those answered that are asked because the base `here` is silent.
    answered_at: Option<Time>,
}

type Core = CoreOf<MobileRole>;

/// The application of a connection that is not relayed yet.
fn application(core: &mut Core, key: Key) -> Option<&mut Application> {
    match core.waiting(key)? {
        Waiting::Application(application) => Some(application),
        Waiting::HeldSyn(_) | Waiting::Calling(_) => None,
    }
}

/// The request of a connection that is not relayed yet.
fn open_request(core: &mut Core, key: Key) -> Option<&mut OpenRequest> {
    match core.waiting(key)? {
        Waiting::Application(application) => Some(&mut application.open_request),
        Waiting::HeldSyn(held) => Some(&mut held.open_request),
        Waiting::Calling(_) => None,
    }
}

/// The target, if a base may be asked for it again after the association was lost.
fn retry_target(core: &mut Core, key: Key) -> Option<Target> {
    match core.waiting(key)? {
        Waiting::Application(application) => application.retry_target(),
        Waiting::HeldSyn(held) => held.open_request.retry_target(),
        Waiting::Calling(_) => None,
    }
}

impl MobileRole {
    fn new(
        config: MobileConfig,
        listeners: Vec<OwnedFd>,
        intercepted: Intercepted,
        (factory, first): (HopFactory, Box<dyn MobileHop>),
        keys: Keypair,
        seed: Seed,
    ) -> Self {
        let stations: Vec<_> = config.bases.iter().cloned().map(KnownBase::new).collect();
        let bases: Vec<_> = config.bases.iter().filter_map(|base| base.key).collect();
        let mut random = seed.stream("sessions");
        let name = SessionId::of_mobile(keys.public().as_bytes(), random.next_u64());
        // One base alone may tell of others.
        let learns = config.handoff.learn()
            && config.seal == SealKind::Noise
            && stations
                .iter()
                .all(|station| matches!(station.config.place, HopAddress::Internet(_)));
        let several = (stations.len() > 1 || learns) && bases.len() == stations.len();
        let handoffs =
            several.then(|| Handoffs::new(config.handoff.give_up().0, keys, bases, random));
        let signal = Signal::new(config.signal.clone());
        let priorities = ProgramPriorities::new(
            config.priority.clone(),
            config.policies.clone(),
            config.connections,
        );
        let udp = UdpAssociations::new(&config);
        let own = || config.tun.as_ref().map_or_else(String::new, |tun| tun.name.clone());
        let links = Links::new(&config.links, config.all_links.then(own));
        Self {
            config,
            listeners,
            intercepted,
            stations,
            factory,
            first: Some(first),
            network: Network::new(),
            links,
            signal,
            handoffs: handoffs.flatten(),
            name,
            here: 0,
            here_since: Time::ZERO,
            heard: None,
            at: 0,
            resumed: true,
            known_to_base: false,
            impatient: false,
            doubt_at: None,
            previous_hop: None,
            retired: Vec::new(),
            retries: Vec::new(),
            priorities,
            families: families::FamiliesQuery::default(),
            held_syns: HeldSyns::default(),
            packets: None,
            udp,
            caps: None,
            transits: Transits::default(),
            asks: false,
            leaving: None,
            answered_at: None,
        }
    }

    fn local_addrs(&self) -> Vec<SocketAddr> {
        self.listeners.iter().map(tcp::local_addr).collect()
    }

    /// Ports that the mobile's servers are published on.
    fn ports(&self) -> Vec<u16> {
        self.config.publish.iter().map(|server| server.port).collect()
    }

    /// The base that a part of the hop leads to.
    fn station_at(&self, part: u32) -> Option<usize> {
        self.stations.iter().position(|station| station.part == Some(part))
    }
}

impl Role for MobileRole {
    type Hop = HopSet;
    type Waiting = Waiting;

    const NAME: &'static str = "mobile";

    /// An association that was made in advance has one that nobody uses.
    fn session(&self, part: u32) -> Session {
        let mut session = Session::mobile(lasthop_session::Config {
            max_connections: self.config.connections,
            ..lasthop_session::Config::mobile()
        });
        session.set_listening(part == self.at && !self.config.publish.is_empty());
        session
    }

    fn start(&mut self, core: &mut Core) -> io::Result<()> {
        for (n, fd) in self.listeners.iter().enumerate() {
            core.reactor.add(fd, Interest::Read, Source::Listener(n))?;
        }
        self.intercepted.watch(&mut core.reactor)?;
        if let Some(way) = &self.packets {
            way.watch(&mut core.reactor)?;
        }
        self.network.watch(&mut core.reactor, Source::Listener(NETWORK))?;
        if !self.find_links().is_empty() {
            // The first hop knows of none.
            self.first = None;
        }
        self.signal.watch(&mut core.reactor, Source::Listener(SIGNAL))?;
        self.update_signal_interface(core);
        self.priorities.watch(&mut core.reactor, Source::Listener(PROGRAMS))?;
        if let Some(part) = self.open_hop(core, self.here) {
            self.at = part;
        }
        let (part, ports) = (self.at, self.ports());
        let (hop, mut turn) = core.turn();
        hop.with(&mut turn, part, |hop, _| hop.listen(&ports));
        core.open_session(part, || self.session(part));
        self.follow_carrier(core);
        Ok(())
    }

    fn handle_listener(&mut self, core: &mut Core, n: usize) {
        if n == NETWORK {
            return self.network.handle_ready();
        }
        if n == SIGNAL {
            return self.signal.handle_ready();
        }
        if n == PROGRAMS {
            return self.priorities.handle_ready(core);
        }
        if let Some(n) = intercepted::listener(n) {
            return self.read_intercepted(core, n);
        }
        if n == intercepted::SYNS {
            return self.read_syns(core, n);
        }
        let last = accept::share(|| {
            let Some(fd) = self.listeners.get(n) else { return Accepted::Empty };
            accept::accept(fd).map(|(fd, client)| self.accept_application(core, fd, client))
        });
        core.accept_again(n, last);
    }

    fn handle_waiting(&mut self, core: &mut Core, key: Key, readiness: Readiness) {
        if let Some(application) = application(core, key) {
            application.socket.ready(readiness);
            self.advance_application(core, key);
        }
    }

    fn handle_attempt(&mut self, core: &mut Core, key: Key, n: u32) {
        dial::advance(core, key, Some(n));
    }

    fn handle_opening(&mut self, core: &mut Core, id: u32, event: Event) {
        match event {
            Event::Connect { id: conn, target, .. } => self.connect_server(core, id, conn, &target),
            Event::Opened { id: conn, bound } => {
                if let Some(key) = core.find(id, conn) {
                    self.answer(core, key, Ok(bound));
                }
            }
            Event::Failed { id: conn, refusal } => {
                if let Some(key) = core.find(id, conn) {
                    self.handle_failed(core, key, refusal);
                }
            }
            _ => {}
        }
    }

    fn handle_gone(&mut self, core: &mut Core, waiting: Waiting, reset: bool) {
        match waiting {
            Waiting::Application(application) => {
                self.end_association(core, application.association);
                application.socket.close(&mut core.reactor, reset);
            }
            Waiting::HeldSyn(held) => self.refuse_held_syn(core, held, Refusal::ConnectionReset),
            Waiting::Calling(mut dial) => dial.cancel(&mut core.reactor),
        }
    }

    fn handle_answer(&mut self, core: &mut Core, answer: Resolution<Asker>) {
        if let Asker::Base(i) = answer.tag {
            self.handle_resolved(core, i, answer.addresses);
        }
    }

    fn handle_timer(&mut self, core: &mut Core, timer: Timer) {
        match timer {
            Timer::Accept(n) if !core.stopping => self.handle_listener(core, n),
            Timer::Base(i) => self.try_base_again(core, i),
            Timer::Connection(key) => {
                dial::advance(core, key, None);
                self.expire_held_syn(core, key);
                self.expire_association(core, key);
                if application(core, key).is_some_and(|application| application.may_time_out())
                    && core.connections.get(key).is_some_and(|c| c.since + PATIENCE <= core.now)
                {
                    self.close_application(core, key);
                }
            }
            Timer::Accept(_) | Timer::Drain | Timer::Grace | Timer::Held(_) => {}
        }
    }

    fn handle_association(&mut self, core: &mut Core, event: &HopEvent<u32>) {
        let (HopEvent::Up(part)
        | HopEvent::Moved(part, _)
        | HopEvent::Lost(part, _)
        | HopEvent::Unreachable(part, _)) = event;
        let Some(i) = self.station_at(*part) else { return };
        let (ours, base) = (*part == self.at, self.stations[i].name().to_owned());
        match event {
            HopEvent::Up(_) => {
                self.stations[i].clear_report();
                self.stations[i].forget_told();
                self.asks = true;
                tracing::info!(base, "association up");
                if ours {
                    self.impatient = false;
                    self.families.reset();
                    if self.resumed {
                        self.report_reached(core);
                    }
                }
            }
            HopEvent::Moved(_, to) => tracing::info!(base, %to, "association moved"),
            HopEvent::Lost(_, why) => {
                tracing::warn!(base, why, "association lost");
                self.transits.forget(i);
                self.stations[i].forget_told();
                if ours {
                    self.handle_lost();
                }
                self.resolve_base(core, i);
            }
            HopEvent::Unreachable(_, why) => {
                self.stations[i].report(why);
                self.stations[i].addresses.skip();
                self.resolve_base(core, i);
            }
        }
    }

    fn handle_message(&mut self, core: &mut Core, part: u32, message: &[u8]) {
        if let Some(Reach::Told(families)) = Reach::decode(message) {
            return self.handle_families(part, families);
        }
        if let Some(FleetMessage::Told(news)) = FleetMessage::decode(message) {
            return self.handle_fleet_news(core, part, &news);
        }
        if let Some(answer) = TransitMessage::decode(message) {
            return self.handle_transit(part, answer);
        }
        if let Some(TicketMessage { connection, ticket }) = TicketMessage::decode(message) {
            if let Some((session, _)) = core.session(part).filter(|_| part == self.at) {
                session.keep_ticket(ConnId(connection), ticket);
            }
            return;
        }
        self.handle_handoff_message(core, part, message);
    }

    /// Bases do not carry connections on with a mobile: it is the mobile that does.
    fn handle_wanted(&mut self, core: &mut Core, id: u32, wanted: SessionId) {
        let now = core.now;
        if let Some((session, mut streams)) = core.session(id) {
            session.decline(now, &mut streams, wanted);
        }
    }

    fn advance(&mut self, core: &mut Core) -> bool {
        let again = !self.retries.is_empty();
        self.retry_opens(core);
        self.answer_associations(core);
        let some = self.maintain(core) | self.query_families(core) | self.refuse_waiting(core);
        let some = some | self.priorities.apply(core);
        self.tell_worths(core);
        self.follow_caps(core);
        again | some
    }

    fn handle_over(&mut self, number: u64) {
        self.priorities.end(number);
    }

    fn next_timeout(&self) -> Option<Time> {
        let all =
            [self.next_maintenance(), self.families.next_timeout(), self.priorities.tell_at()];
        all.into_iter().flatten().min()
    }

    fn handle_request(&mut self, core: &mut Core, request: Request) -> Result<Reply, String> {
        self.handle(core, request)
    }

    fn handle_tun(&mut self, core: &mut Core) {
        self.send_packets(core);
    }

    fn handle_datagrams(&mut self, core: &mut Core, number: u64) {
        self.receive_datagrams(core, number);
    }

    fn handle_packets(&mut self, core: &mut Core, part: u32) {
        self.deliver_packets(core, part);
    }

    fn flush_packets(&mut self) {
        if let Some(way) = &mut self.packets {
            way.flush();
        }
    }

    fn report(&self, core: &Core, report: &mut Report) {
        self.add_to_report(core, report);
        report.tun = self.packets.as_ref().map(TunWay::report);
        self.report_caps(report);
        self.report_link_bases(report);
        self.add_associations_to_report(core, report);
    }

    fn stop(&mut self, core: &mut Core) {
        // Closing a listener takes it out of the epoll set.
        self.listeners.clear();
        self.refuse_held_syns(core);
        self.end_associations(core);
        self.intercepted.close();
    }
}
