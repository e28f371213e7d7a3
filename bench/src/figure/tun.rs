//! What packets through TUN devices cost: UDP from the fixed host to the mobile, across plain virtual cables, as fast as it
//! arrives.

mod traffic;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::thread;
use std::time::Instant;

use anyhow::{Result, bail};
use lasthop_lab::process::Daemon;
use lasthop_lab::scheme::{Carrier, Hop, PACKET_ADDRESSES};
use lasthop_units::Duration;

use super::Setting;
use crate::cables::cabled;
use crate::peer::{Hosts, lasthop, packet_tunnel};
use crate::process::cpu_of;
use crate::report::{Report, Row};
use traffic::{HEADERS, Load};

const FIGURE: &str = "tun";
/// The devices' MTU: what lasthop's have unless told otherwise.
const MTU: u16 = 1280;
/// The base's address on the plain tunnel's device.
const ROUTER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1));
/// Bits of full packets, claimed of `srp` for a second of CPU time of the end that has more.
const BITS_A_CORE: f64 = 2e9;
/// And of small ones that the kernel hands over many at once.
const PACKETS_A_CORE: f64 = 400e3;
const BYTE: f64 = 8.0;
const GB: f64 = 1e9;

/// What is offered, and what it is called: large pieces of one flow, which the kernel hands over as they are, and small
/// packets of many flows, which come one by one.
const LOADS: [(&str, Load); 3] = [
    ("full", Load { size: MTU as usize, together: 48, flows: 1 }),
    ("small", Load { size: 64 + HEADERS, together: 64, flows: 1 }),
    ("small-single", Load { size: 64 + HEADERS, together: 1, flows: 32 }),
];

/// A way from the base to the mobile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// `lasthop base` and `lasthop mobile`.
    Srp,
    /// A process at either end that does nothing but pass packets on.
    Tunnel,
    /// The kernel forwards: no device, and no process.
    Kernel,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Srp => "srp",
            Self::Tunnel => "tunnel",
            Self::Kernel => "kernel",
        })
    }
}

/// Runs all cells.
pub(crate) fn run(setting: &Setting, report: &mut Report) {
    for (cell, load) in LOADS {
        for way in [Way::Srp, Way::Tunnel, Way::Kernel] {
            setting.attempt_named(report, FIGURE, way, way == Way::Srp, cell, || {
                measure(setting, way, cell, load)
            });
        }
    }
}

/// A way at work, until it is dropped.
struct Standing {
    hosts: Hosts,
    to: IpAddr,
    carrier: Option<Carrier>,
    others: Vec<Daemon>,
}

impl Standing {
    fn start(way: Way) -> Result<Self> {
        let hosts = cabled()?;
        let inside = PACKET_ADDRESSES[0].parse()?;
        let mut standing = Self { hosts, to: inside, carrier: None, others: Vec::new() };
        let hosts = &standing.hosts;
        match way {
            Way::Srp => standing.carrier = Some(lasthop::carrier(hosts, 0, &Hop::with_packets())?),
            Way::Tunnel => standing.others = packet_tunnel::start(hosts, [ROUTER, inside], MTU)?,
            Way::Kernel => {
                let [a, b, c, _] = hosts.hop.ip().octets();
                standing.to = Ipv4Addr::new(a, b, c, 2).into();
            }
        }
        Ok(standing)
    }

    fn daemons(&self) -> &[Daemon] {
        self.carrier.as_ref().map_or(&self.others, Carrier::daemons)
    }

    fn check(&mut self) -> Result<()> {
        self.others.iter_mut().try_for_each(Daemon::check)?;
        Ok(self.carrier.as_mut().map_or(Ok(()), Carrier::check)?)
    }

    /// CPU time so far of each process.
    fn cpu(&self) -> Result<Vec<Duration>> {
        self.daemons().iter().map(|daemon| cpu_of(daemon.id())).collect()
    }
}

fn measure(setting: &Setting, way: Way, cell: &str, load: Load) -> Result<Row> {
    let span = Duration::from_millis(setting.choose(1500, 8000));
    let mut standing = Standing::start(way)?;
    let hosts = [&standing.hosts.fixed, &standing.hosts.mobile];
    let carried = traffic::carry(hosts, standing.to, load, |seen| {
        let (began, before, cpu) = (Instant::now(), seen(), standing.cpu()?);
        thread::sleep(span);
        let (took, after, cpu_after) = (began.elapsed(), seen(), standing.cpu()?);
        let spent =
            cpu_after.iter().zip(&cpu).map(|(after, before)| (*after - *before).as_secs_f64());
        let (arrived, sent) = (after.arrived - before.arrived, after.sent - before.sent);
        Ok((took.as_secs_f64(), arrived as f64, sent as f64, spent.collect::<Vec<_>>()))
    });
    standing.check()?;
    let (took, arrived, sent, cpu) = carried?;
    if arrived == 0.0 {
        bail!("nothing arrived");
    }
    let bytes = arrived * load.size as f64;
    let core = |n: usize| cpu.get(n).map(|cpu| cpu / took);
    // An end is one thread: with more of them than cores, what it could do with one of its own is told by its CPU time.
    let busier = cpu.iter().copied().reduce(f64::max);
    let bits_a_core = busier.map(|cpu| bytes * BYTE / cpu);
    let packets_a_core = busier.map(|cpu| arrived / cpu);
    let full = load.size == usize::from(MTU);
    // One by one, most of the time is the kernel's.
    let (ours, few) = (way == Way::Srp, load.together == 1);
    let enough = bits_a_core.is_some_and(|bits| bits >= BITS_A_CORE);
    let many = packets_a_core.is_some_and(|packets| packets >= PACKETS_A_CORE);
    Ok(Row::new(FIGURE, way, cell)
        .value("scheme", way.to_string())
        .value("size", load.size)
        .number("bps", bytes * BYTE / took)
        .number("packets_per_s", arrived / took)
        .number("lost", (1.0 - arrived / sent).max(0.0))
        .number("cpu_s_per_gb", (!cpu.is_empty()).then(|| cpu.iter().sum::<f64>() / (bytes / GB)))
        .number("base_core", core(0))
        .number("mobile_core", core(1))
        .number("bps_per_core", bits_a_core)
        .number("packets_per_core", packets_a_core)
        .claim_if(ours && full, "2 Gbit/s for each core", enough)
        .claim_if(ours && !full && !few, "400000 packets/s for each core", many))
}
