//! `lasthop base`: serves mobiles, and makes their connections to the fixed network.

mod admitted;
mod config;
mod datagram_names;
mod exits;
mod handoff;
mod memory;
mod mobiles;
mod news;
mod openings;
mod packets;
mod policy;
mod present;
mod published_port;
mod reachable_families;
mod reload;
mod renewals;
mod role;
mod source_addresses;
mod surrogate;
mod targets;
mod told_worths;
mod transit_targets;
mod udp_sockets;
mod workers;

pub use config::allow::{AllowEntry, AllowTable};
pub use config::handoff::{
    Acknowledge, Fallback, HandoffConfig, HandoffFile, MobileEntry, Mode, PeerFile,
};
pub use config::{BaseConfig, BaseFile, LimitsFile, TargetsFile};
pub use policy::TargetPolicy;
pub use reload::ConfigSource;

use std::io;
use std::net::SocketAddr;
use std::thread;

use lasthop_control as control;
use lasthop_hop::mobile_tcp::MobileTcp;
use lasthop_hop::seal::{Allowed, Keypair, PublicKey, Responder};
use lasthop_hop::srp::Srp;
use lasthop_hop::{BareBase, BareBounds, HopConfig, Part, mobile_tcp};
use lasthop_kernel::clock::Clock;
use lasthop_kernel::cpu;
use lasthop_kernel::stop::Stop;
use lasthop_units::{Bytes, Duration, Seed};

use self::exits::Exits;
use self::handoff::{Handoffs, Migration};
use self::memory::BaseMemory;
use self::packets::Packets;
use self::published_port::PublishedPorts;
use self::reload::Others;
use self::role::BaseRole;
use self::surrogate::Surrogate;
use self::targets::Targets;
use self::workers::Workers;
use crate::backhaul::{Backhaul, WithPeers};
use crate::carrier::Carrier;
use crate::carrier::ether::Ether;
use crate::carrier::udp::Udp;
use crate::config::{HopAddress, HopKind, SealKind};
use crate::datagram::DatagramBase;
use crate::datagram::settings::{self, Passage};
use crate::driver::Driver;
use crate::error::RunError;
use crate::fleet::FleetKeys;
use crate::hop::BaseHop;
use crate::keyfile;
use crate::split::{Bounds, SplitBase};

/// What SRP takes from the wire ahead of sending, where sessions move.
const AHEAD: Duration = Duration::from_millis(20);
/// But at least this.
const AHEAD_MIN: Bytes = Bytes::from_kib(32);

/// A base that is bound and not yet running.
pub struct Base {
    /// The first is asked and told what concerns them all.
    workers: Vec<Driver<BaseRole>>,
    config: BaseConfig,
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
        let (allowed, memory) = (config.allowed()?, BaseMemory::of(&config));
        let ways = Workers::new(config.workers, &allowed).map_err(RunError::Kernel)?;
        let context = |workers: Option<Workers>| HopContext {
            config: &config,
            keys: keys.clone(),
            allowed: workers.as_ref().map_or_else(|| allowed.clone(), |w| w.served(&allowed)),
            seed: workers.as_ref().map_or(seed, |w| seed.child(&format!("worker {}", w.number()))),
            memory: memory.clone(),
            part: workers.as_ref().map(|w| w.part(seed.child("cookies"))),
            workers,
        };
        let contexts: Vec<_> = match ways.is_empty() {
            true => vec![context(None)],
            false => ways.into_iter().map(Some).map(context).collect(),
        };
        let (clock, step) = (Clock::start(), contexts.len() as u64);
        let hops = hops(&contexts)?.into_iter().zip(means(&config, contexts.len())?);
        let roles = hops.zip(contexts).map(|((hop, means), own)| role(hop, means, own));
        let roles = roles.collect::<Result<Vec<_>, _>>()?;
        let mut control = control::open(config.control.as_deref(), "base")?;
        let mut workers = Vec::new();
        for (role, hop) in roles {
            let role = if workers.is_empty() { role.serving(&allowed) } else { role };
            let driver = Driver::new(role, hop, control.take());
            let driver = driver.map_err(RunError::Kernel)?;
            workers.push(driver.beside_others(clock, workers.len() as u64, step));
        }
        Ok(Self { workers, config })
    }

    /// Reads its settings again from `source` when it is asked to, for the mobiles that it serves and the bases that it knows.
    #[must_use]
    pub fn with_source(mut self, mut source: ConfigSource) -> Self {
        source.set_started(self.config.clone());
        if let Some(first) = self.workers.first_mut() {
            first.role_mut().set_source(source);
        }
        self
    }

    /// Where it listens for mobiles, whatever the carrier.
    pub fn places(&self) -> Vec<String> {
        self.workers.first().map_or_else(Vec::new, |first| first.hop().mobiles.places())
    }

    /// Serves until `stop` is requested.
    ///
    /// # Errors
    ///
    /// The kernel refused what the loop cannot do without.
    pub fn run(self, stop: &Stop) -> Result<(), RunError> {
        run_all(self.workers, stop).map_err(RunError::Kernel)
    }
}

/// Runs the first worker here, and the others in threads of their own, until `stop` is requested or one of them
/// cannot go on.
///
/// # Errors
///
/// The kernel refused what a loop cannot do without.
fn run_all(workers: Vec<Driver<BaseRole>>, stop: &Stop) -> io::Result<()> {
    let mut workers = workers.into_iter();
    let Some(mut first) = workers.next() else { return Ok(()) };
    let stops = workers.as_slice().iter().map(|_| Stop::new()).collect::<io::Result<Vec<_>>>()?;
    first.role_mut().set_stops(stops.clone());
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for (n, (mut worker, own)) in workers.zip(&stops).enumerate() {
            let thread = thread::Builder::new().name(format!("worker-{}", n + 1));
            let started = thread.spawn_scoped(scope, move || {
                let ended = worker.run(own);
                if ended.is_err() {
                    stop.request();
                }
                ended
            });
            if started.is_err() {
                stop.request();
            }
            threads.push(started);
        }
        let mut result = first.run(stop);
        if result.is_err() {
            stops.iter().for_each(Stop::request);
        }
        for thread in threads {
            let panicked = |_| io::Error::other("a worker panicked");
            result = result.and(thread.and_then(|thread| thread.join().map_err(panicked)?));
        }
        result
    })
}

/// What each worker has beside mobiles.
struct Means {
    exits: Exits,
    packets: Option<Packets>,
    migration: Option<Migration>,
    /// Where it hears other bases.
    between_bases: Option<Udp>,
}

/// The means of each of so many workers, who share one helper.
fn means(config: &BaseConfig, workers: usize) -> Result<Vec<Means>, RunError> {
    let handoff = config.handoff.as_ref().map(|handoff| &handoff.settings);
    if let Some(settings) = handoff {
        Migration::check(settings, &config.mobiles)?;
    }
    let tickets = keyfile::load_tickets(handoff.map_or(&[], |of| of.fleet_keys.as_slice()))?;
    let mut first = Exits::open(config, FleetKeys::new(tickets))?;
    let migration = handoff.and_then(|of| Migration::start(of, config, &first));
    if handoff.is_some_and(|of| Migration::is_missing(of, migration.as_ref())) {
        first.disable();
    }
    let mut between_bases = Vec::new();
    if let Some(settings) = handoff {
        between_bases = Udp::bind_for(workers, &settings.listen())
            .map_err(|(addr, source)| RunError::Listen { addr, source })?;
    }
    let mut between_bases = between_bases.into_iter();
    let mut packets = Packets::open(config, workers)?.into_iter();
    let mut others = Vec::new();
    for _ in 1..workers {
        let exits = first.beside()?;
        let migration = migration.as_ref().zip(exits.helper());
        let migration = migration.map(|(first, helper)| first.beside(helper));
        others.push((exits, migration));
    }
    let all = std::iter::once((first, migration)).chain(others);
    let means = |(exits, migration)| Means {
        exits,
        packets: packets.next(),
        migration,
        between_bases: between_bases.next(),
    };
    Ok(all.map(means).collect())
}

/// The role of a worker, and its hop with those to other bases.
fn role(
    hop: Box<dyn BaseHop>,
    means: Means,
    own: HopContext<'_>,
) -> Result<(BaseRole, WithPeers), RunError> {
    let HopContext { config, keys, allowed, seed, memory, part, workers } = own;
    let Means { exits, packets, migration, between_bases } = means;
    // A port is published where its mobile is served.
    let is_own = |mobile: Option<PublicKey>| {
        workers.is_none() || allowed.iter().any(|allowed| Some(allowed.key) == mobile)
    };
    let publish: Vec<_> = config.publish.iter().filter(|rule| is_own(rule.mobile)).collect();
    let published_ports = PublishedPorts::bind(publish)
        .map_err(|(addr, source)| RunError::Listen { addr, source })?;
    let targets = Targets::open(config)?;
    let key = keys.as_ref().map(|keys| *keys.public());
    let (hop, handoffs) = match (&config.handoff, keys, between_bases) {
        (Some(handoff), Some(keys), Some(udp)) => {
            let (peers, copies) = (&handoff.peers, memory.copies);
            let psks = Others::of(peers)?.psks;
            let memory = memory.peers.clone();
            let packet_max = match packets {
                Some(_) => HopConfig::default().packet_max,
                None => Bytes::ZERO,
            };
            let keys_of = keys.clone();
            let backhaul =
                Backhaul { udp, part, keys: keys_of, psks, peers, seed, memory, packet_max };
            let handoffs = Handoffs::new(handoff.clone(), keys, config, copies, migration);
            (WithPeers::open(hop, backhaul), Some(handoffs))
        }
        _ => (WithPeers::alone(hop), None),
    };
    let role = BaseRole::new(config, memory, key, published_ports, exits, targets, handoffs);
    Ok((role.serving(&allowed).beside(workers).with_packets(packets), hop))
}

/// What any hop of a base is made from.
struct HopContext<'a> {
    config: &'a BaseConfig,
    keys: Option<Keypair>,
    /// The mobiles that are served here; none without a seal.
    allowed: Vec<Allowed>,
    seed: Seed,
    memory: BaseMemory,
    /// Which part of the base it is, and the way to the others, where there are several.
    part: Option<Part>,
    workers: Option<Workers>,
}

/// A hop for each worker.
fn hops(all: &[HopContext<'_>]) -> Result<Vec<Box<dyn BaseHop>>, RunError> {
    let Some(HopContext { config, .. }) = all.first() else { return Ok(Vec::new()) };
    let hops: Result<Vec<Box<dyn BaseHop>>, RunError> = match (config.hop, &config.place) {
        (HopKind::SplitTcp, _) => all.iter().map(|own| Ok(Box::new(split(own)?) as _)).collect(),
        (_, HopAddress::Internet(listen)) => {
            let passage = Passage::udp(listen.iter().any(SocketAddr::is_ipv6));
            let carriers = Udp::bind_for(all.len(), listen)
                .map_err(|(addr, source)| RunError::Listen { addr, source })?;
            let hop = |(own, udp)| datagrams(own, Box::new(udp), passage);
            all.iter().zip(carriers).map(hop).collect()
        }
        (_, HopAddress::Ethernet { interface, .. }) => {
            let framing = settings::framing(config.hop, config.seal);
            let hop = |own| {
                let ether = Ether::open(interface, framing)?;
                let passage = Passage::ether(ether.mtu(), framing.overhead());
                datagrams(own, Box::new(ether), passage)
            };
            all.iter().map(hop).collect()
        }
    };
    hops
}

/// The hop of a transport over `carrier`.
fn datagrams(
    own: &HopContext<'_>,
    carrier: Box<dyn Carrier>,
    passage: Passage,
) -> Result<Box<dyn BaseHop>, RunError> {
    let HopContext { config, keys, allowed, seed, memory, part, .. } = own;
    let (streams, allowed) = (config.limits.connections(), allowed.clone());
    let mobile_tcp = |sealed| -> Result<mobile_tcp::Config, RunError> {
        let settings = settings::mobile_tcp(&config.mobile_tcp, passage, sealed, streams)?;
        Ok(mobile_tcp::Config { memory: memory.mobiles.clone(), ..settings })
    };
    Ok(match (config.hop, keys.clone()) {
        (HopKind::MobileTcp, Some(keys)) => {
            let settings = mobile_tcp(settings::SEALED)?;
            let machine = lasthop_hop::Base::<_, MobileTcp>::new(settings, keys, allowed, *seed);
            let machine = machine.with_part(*part).with_fast_aes(cpu::fast_aes());
            Box::new(DatagramBase::new("mobile-tcp", machine, carrier))
        }
        (HopKind::MobileTcp, None) => {
            let bounds =
                BareBounds { peers_max: config.limits.associations(), ..BareBounds::default() };
            let machine = BareBase::new(mobile_tcp(0)?, bounds, *seed);
            Box::new(DatagramBase::new("mobile-tcp", machine, carrier))
        }
        (_, keys) => {
            let settings = settings::srp(&config.srp, passage, streams);
            let mut settings = HopConfig { memory: memory.mobiles.clone(), ..settings };
            if config.tun.is_some() || udp_sockets::are_served(config) {
                settings.packet_max = HopConfig::default().packet_max;
            }
            if config.handoff.is_some() {
                // What was taken from the wire must move with the session.
                (settings.ahead, settings.ahead_min) = (AHEAD, AHEAD_MIN);
            }
            let machine = match keys {
                Some(keys) => lasthop_hop::Base::<_, Srp>::new(settings, keys, allowed, *seed),
                None => lasthop_hop::Base::unsealed(settings, *seed)
                    .with_at_most(config.limits.associations()),
            };
            let machine = machine.with_part(*part).with_fast_aes(cpu::fast_aes());
            Box::new(DatagramBase::new("srp", machine, carrier))
        }
    })
}

fn split(own: &HopContext<'_>) -> Result<SplitBase, RunError> {
    let HopContext { config, keys, allowed, seed, memory, .. } = own;
    // A configuration with frames and split-tcp is refused when it is read.
    let listen = match &config.place {
        HopAddress::Internet(listen) => listen.as_slice(),
        HopAddress::Ethernet { .. } => &[],
    };
    let (responder, allowed) = match keys.clone() {
        Some(keys) => (Responder::new(keys, seed.child("responder")), Some(allowed.clone())),
        None => (Responder::unsealed(), None),
    };
    let bounds = Bounds {
        associations: config.limits.associations(),
        streams: config.limits.connections(),
        memory: memory.mobiles.clone(),
    };
    let congestion = config.congestion.as_ref();
    SplitBase::bind(listen, congestion, responder, allowed, bounds, *seed)
        .map_err(|(addr, source)| RunError::Listen { addr, source })
}
