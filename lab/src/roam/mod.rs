//! One mobile, three bases on a shared segment, a router and a server.
//!
//! ```text
//!   server 10.0.1.2 ---- 10.0.1.1 router 10.0.9.1 ----+---- 10.0.9.11 base 1 10.0.21.1 --- radio1
//!          fd00:1::2              fd00:9::1           +---- 10.0.9.12 base 2 10.0.22.1 --- radio2
//!                                                     +---- 10.0.9.13 base 3 10.0.23.1 --- radio3
//! ```
//!
//! Each host is a namespace. A radio is a pair of virtual Ethernet interfaces with the emulator
//! between; at most one has its carrier. Bases and router know the way to every radio's network, so
//! that a mobile reaches each base over whichever radio it has.

mod fleet;
mod radios;

use std::net::{IpAddr, SocketAddr};

use lasthop_kernel::netns::Netns;
use lasthop_radio::{LinkConfig, RadioConfig};
use lasthop_units::{Duration, Rate, Seed};

pub use fleet::{Fleet, Handoff, Mode, Routing, Settings};
use radios::Radio;

use crate::air::{Air, End};
use crate::capture::Capture;
use crate::carrier::{cable, plug, quiet};
use crate::error::LabError;
use crate::process;
use crate::topology::{Family, address, link, prefix_length, prefixes};

/// How many bases there are.
pub const BASES: usize = 3;
/// The interface to the segment, at bases, and to the server, at both its ends.
pub const WIRED: &str = "wired0";
/// The router's interface to the segment.
pub const SEGMENT: &str = "segment0";
/// The base's interface to its radio.
pub const RADIO: &str = "radio0";

/// Where bases listen for mobiles.
const HOP_PORT: u16 = 4433;
/// Where bases listen for bases.
const PEER_PORT: u16 = 4434;

/// What to build.
#[derive(Clone, Debug)]
pub struct Config {
    /// Every radio.
    pub radio: RadioConfig,
    /// Between server and router.
    pub wired: LinkConfig,
    /// From a base to the segment; none: as fast as the machine.
    pub base_rate: Option<Rate>,
    /// From base to base, one way; zero: without an emulator.
    pub base_delay: Duration,
    /// Where the links' random processes start.
    pub seed: Seed,
}

impl Default for Config {
    /// Radios of 20 Mbit/s and 20 ms one way, bases 4 ms apart, and a server 5 ms behind them.
    fn default() -> Self {
        Self {
            radio: RadioConfig::both(link(Rate::from_mbps(20), Duration::from_millis(20), 100)),
            wired: link(Rate::from_mbps(200), Duration::from_millis(5), 1000),
            base_rate: Some(Rate::from_mbps(200)),
            base_delay: Duration::from_millis(4),
            seed: Seed::from_u64(0),
        }
    }
}

impl Config {
    /// A round trip on the hop, without queues.
    pub fn hop_round_trip(&self) -> Duration {
        self.radio.up.delay + self.radio.down.delay
    }

    /// A round trip from base to base, without queues.
    pub fn base_round_trip(&self) -> Duration {
        self.base_delay * 2
    }
}

/// The hosts and what is between them. All is gone when this is dropped, or when the process ends
/// in whatever way.
///
/// The thread that built it must outlive it.
#[derive(Debug)]
pub struct Roam {
    // Links are dropped before the hosts: they hold interfaces there.
    radios: Vec<Radio>,
    /// Where the mobile is, and where it was last.
    place: Option<usize>,
    last_place: usize,
    /// From server to router.
    _wire: Air,
    /// From the bases to the segment, what is emulated of that.
    wires: Vec<Option<Air>>,
    /// The server.
    pub server: Netns,
    /// The router.
    pub router: Netns,
    /// What joins router and bases.
    segment: Netns,
    /// The bases; number 1 is the first.
    pub bases: [Netns; BASES],
    /// The mobile.
    pub mobile: Netns,
}

impl Roam {
    /// Builds it; the mobile is at the first base.
    ///
    /// # Errors
    ///
    /// Namespaces or interfaces are not permitted, `ip` is missing, or a link's description is
    /// wrong.
    pub fn start(config: &Config) -> Result<Self, LabError> {
        let host = || -> Result<Netns, LabError> {
            let host = Netns::anonymous()?;
            for name in ["all", "default"] {
                host.sysctl(&format!("ipv4.conf.{name}.rp_filter"), "0")?;
                // Else nobody's neighbours are asked for in IPv6's first seconds.
                host.sysctl(&format!("ipv6.conf.{name}.accept_dad"), "0")?;
                host.sysctl(&format!("ipv6.conf.{name}.dad_transmits"), "0")?;
            }
            Ok(host)
        };
        let (server, router, segment, mobile) = (host()?, host()?, bridge()?, host()?);
        let bases = [host()?, host()?, host()?];
        for forwarder in bases.iter().chain([&router]) {
            forwarder.sysctl("ipv4.ip_forward", "1")?;
            forwarder.sysctl("ipv6.conf.all.forwarding", "1")?;
        }
        let _wire = wire(&server, &router, config)?;
        let mut wires = Vec::new();
        attach_router(&router, &segment)?;
        for (i, base) in bases.iter().enumerate() {
            wires.push(attach_base(base, &segment, i + 1, config)?);
        }
        routes(&server, &router, &bases)?;
        let radios = radios::start(&bases, &mobile, config)?;
        let (place, last_place) = (Some(1), 1);
        Ok(Self { radios, place, last_place, _wire, wires, server, router, segment, bases, mobile })
    }

    /// The base with this number, from 1 on; the last one if there are not so many.
    pub fn base(&self, number: usize) -> &Netns {
        &self.bases[index(number)]
    }

    /// Cuts base `number` off, as if its power were lost or its cables pulled: neither its interface to the segment nor that
    /// to its radio has a carrier. Its processes live on, and know nothing else of it.
    ///
    /// # Errors
    ///
    /// A carrier could not be taken away.
    pub fn cut(&self, number: usize) -> Result<(), LabError> {
        self.plug(number, false)
    }

    /// Gives base `number` back what [`cut`](Self::cut) took.
    ///
    /// # Errors
    ///
    /// A carrier could not be given.
    pub fn mend(&self, number: usize) -> Result<(), LabError> {
        self.plug(number, true)
    }

    fn plug(&self, number: usize, present: bool) -> Result<(), LabError> {
        let at = index(number);
        match &self.wires[at] {
            Some(air) => air.plug(End::Mobile, present)?,
            None => plug(&self.segment, &port(at + 1), present)?,
        }
        self.radios[at].plug_at_base(present)
    }

    /// Notes what the server receives and sends from here on.
    ///
    /// # Errors
    ///
    /// The interfaces cannot be opened once more.
    pub fn capture(&self) -> Result<Capture, LabError> {
        Capture::start(&self.server, &self.router, WIRED)
    }

    /// An address of the server.
    pub fn server_address(&self, family: Family, port: u16) -> SocketAddr {
        SocketAddr::new(address(family, 1, 2), port)
    }
}

/// What joins router and bases: an Ethernet switch without a stack of its own.
fn bridge() -> Result<Netns, LabError> {
    let segment = quiet()?;
    segment.ip("link add switch type bridge stp_state 0 mcast_snooping 0\nlink set switch up\n")?;
    Ok(segment)
}

fn wire(server: &Netns, router: &Netns, config: &Config) -> Result<Air, LabError> {
    let both = RadioConfig::both(config.wired.clone());
    let air = Air::between_frames(router, server, WIRED, &both, config.seed.child("wired"))?;
    server.interface_up(WIRED, &prefixes(1, 2))?;
    router.interface_up(WIRED, &prefixes(1, 1))?;
    Ok(air)
}

fn attach_router(router: &Netns, segment: &Netns) -> Result<(), LabError> {
    cable(router, SEGMENT, segment, "router")?;
    segment.ip("link set router master switch up\n")?;
    router.interface_up(SEGMENT, &prefixes(9, 1))?;
    // Somebody who says unasked that an address is his from now on is believed.
    router.sysctl(&format!("ipv4.conf.{SEGMENT}.arp_accept"), "1")?;
    Ok(())
}

/// The segment's interface to base `number`.
fn port(number: usize) -> String {
    format!("base{number}")
}

/// Joins a base to the segment, by an emulated link if there is a delay.
fn attach_base(
    base: &Netns,
    segment: &Netns,
    number: usize,
    config: &Config,
) -> Result<Option<Air>, LabError> {
    let port = port(number);
    let air = if config.base_delay.is_zero() {
        cable(base, WIRED, segment, &port)?;
        if let Some(rate) = config.base_rate {
            limit(base, WIRED, rate)?;
            limit(segment, &port, rate)?;
        }
        None
    } else {
        let rate = config.base_rate.unwrap_or(Rate::UNLIMITED);
        // Each base's own wire is half of the way.
        let both = RadioConfig::both(link(rate, config.base_delay / 2, 2000));
        let seed = config.seed.child(&port);
        Some(Air::joining((segment, &port), (base, WIRED), &both, seed)?)
    };
    segment.ip(&format!("link set {port} master switch up\n"))?;
    base.interface_up(WIRED, &prefixes(9, 10 + number as u16))?;
    Ok(air)
}

/// Limits what leaves an interface.
fn limit(host: &Netns, interface: &str, rate: Rate) -> Result<(), LabError> {
    let rate = format!("{}bit", rate.as_bps());
    let mut command = host.command("tc");
    command.args(["qdisc", "add", "dev", interface, "root", "tbf", "rate", &rate]);
    command.args(["burst", "512k", "latency", "50ms"]);
    process::run(command).map(drop)
}

fn routes(server: &Netns, router: &Netns, bases: &[Netns; BASES]) -> Result<(), LabError> {
    for family in Family::ALL {
        server.route(None, address(family, 1, 1))?;
        for at in 1..=BASES {
            let network = (address(family, radio_net(at), 0), prefix_length(family));
            router.route(Some(network), base_address(family, at))?;
            for (_, base) in (1..).zip(bases).filter(|(number, _)| *number != at) {
                base.route(Some(network), base_address(family, at))?;
            }
        }
        for base in bases {
            base.route(None, address(family, 9, 1))?;
        }
    }
    Ok(())
}

fn index(number: usize) -> usize {
    number.clamp(1, BASES) - 1
}

/// The network of base `number`'s radio.
fn radio_net(number: usize) -> u16 {
    20 + number as u16
}

/// A base's address on the segment.
pub fn base_address(family: Family, number: usize) -> IpAddr {
    address(family, 9, 10 + number as u16)
}

/// The mobile's address on the radio of base `number`.
pub fn mobile_address(family: Family, number: usize) -> IpAddr {
    address(family, radio_net(number), 2)
}

/// Where base `number` serves mobiles.
pub fn hop_address(family: Family, number: usize) -> SocketAddr {
    SocketAddr::new(base_address(family, number), HOP_PORT)
}

/// Where base `number` meets other bases.
pub fn peer_address(family: Family, number: usize) -> SocketAddr {
    SocketAddr::new(base_address(family, number), PEER_PORT)
}

/// An address of the segment that is the mobile's own and moves with it.
pub fn own_address(family: Family) -> IpAddr {
    address(family, 9, 100)
}
