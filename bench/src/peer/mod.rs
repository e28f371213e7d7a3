//! What carries a connection from the fixed host to the mobile: lasthop, and its peers.

mod kernel;
pub(crate) mod lasthop;
pub(crate) mod packet_tunnel;
mod proxy;
pub(crate) mod quic_tunnel;
pub(crate) mod site;
mod told;
mod tunnel;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;

use anyhow::Result;
use lasthop_kernel::netns::Netns;
use lasthop_lab::client::{Client, Via};
use lasthop_lab::process::Daemon;
use lasthop_lab::scheme::{Carrier, Hop};
use lasthop_lab::topology::Medium;
use lasthop_lab::wait::wait_for_listener;
use lasthop_units::{Duration, Rate};
use tempfile::TempDir;

use crate::process::cpu_of;

/// How long a peer may take until it can be used.
const PATIENCE: Duration = Duration::from_secs(20);

/// A way of carrying connections.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Peer {
    /// SRP on the hop, told nothing about the path.
    Srp,
    /// The same, where the application is told at once that its connection stands.
    SrpEarly,
    /// The same, from an address of the mobile's own, to which the fixed host must be led; it is acknowledged what this has,
    /// `mobile` or `base`.
    SrpOwn(&'static str),
    /// Mobile TCP on the hop.
    MobileTcp(Below),
    /// lasthop with the kernel's TCP on the hop.
    SplitTcp(&'static str),
    /// The kernel's TCP from end to end.
    Kernel(&'static str),
    /// A splitting proxy from the distribution at the base, the kernel's TCP on the hop.
    Proxy(&'static str),
    /// A plain QUIC tunnel with BBR.
    Quic,
    /// A plain QUIC tunnel that is told the radio's rate.
    QuicTold(Rate),
}

/// What Mobile TCP runs over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Below {
    /// Raw Ethernet frames, bare: the paper's own place.
    Frames,
    /// Raw Ethernet frames, sealed.
    SealedFrames,
    /// UDP, sealed, with the bound on what is on its way that is usual there.
    Udp,
}

impl Peer {
    /// What the radio has to carry for this one.
    pub(crate) fn medium(&self) -> Medium {
        match self {
            Peer::MobileTcp(Below::Frames | Below::SealedFrames) => Medium::Ethernet,
            _ => Medium::Ip,
        }
    }

    /// The scheme that this one stands for.
    pub(crate) fn scheme(&self) -> &'static str {
        match self {
            Peer::Srp | Peer::SrpEarly | Peer::SrpOwn(_) => "srp",
            Peer::MobileTcp(_) => "mobile-tcp",
            Peer::SplitTcp(_) => "split-tcp",
            Peer::Kernel(_) => "none",
            Peer::Proxy(_) => "proxy",
            Peer::Quic | Peer::QuicTold(_) => "quic-tunnel",
        }
    }

    /// Whether the claims are about this one.
    pub(crate) fn is_ours(&self) -> bool {
        matches!(self, Peer::Srp | Peer::SrpEarly | Peer::SrpOwn(_))
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Srp => f.pad("srp"),
            Peer::SrpEarly => f.pad("srp-early"),
            Peer::SrpOwn(whose) => f.pad(&format!("srp-{whose}")),
            Peer::MobileTcp(Below::Frames) => f.pad("mobile-tcp"),
            Peer::MobileTcp(Below::SealedFrames) => f.pad("mobile-tcp-sealed"),
            Peer::MobileTcp(Below::Udp) => f.pad("mobile-tcp-udp"),
            Peer::SplitTcp(name) => f.pad(&format!("split-tcp-{name}")),
            Peer::Kernel(name) => f.pad(&format!("kernel-{name}")),
            Peer::Proxy(name) => f.pad(&format!("{}-{name}", proxy::installed())),
            Peer::Quic => f.pad("quic-bbr"),
            Peer::QuicTold(_) => f.pad("quic-told"),
        }
    }
}

/// Three hosts in a row, however they are joined.
#[derive(Clone, Debug)]
pub(crate) struct Hosts {
    /// The fixed host.
    pub(crate) fixed: Netns,
    /// The base.
    pub(crate) base: Netns,
    /// The mobile.
    pub(crate) mobile: Netns,
    /// Where the server listens, at the fixed host.
    pub(crate) server: SocketAddr,
    /// The base's address on the wired link.
    pub(crate) wired: Ipv4Addr,
    /// The base's address on the hop, a /24; ports are counted up from its own.
    pub(crate) hop: SocketAddrV4,
}

impl Hosts {
    /// Room for several peers beside each other: each has ports of its own.
    fn hop_at(&self, place: u16) -> SocketAddr {
        (*self.hop.ip(), self.hop.port() + place).into()
    }

    fn hop_net(&self) -> String {
        let [a, b, c, _] = self.hop.ip().octets();
        format!("{a}.{b}.{c}.0/24")
    }

    fn local_at(&self, place: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 1080 + place))
    }
}

/// A peer at work, until it is dropped.
pub(crate) struct Running {
    client: Client,
    work: Work,
}

enum Work {
    /// Of lasthop.
    Lasthop(Box<Carrier>),
    /// Of others, with the files that they may read, which go after them.
    Others { daemons: Vec<Daemon>, _files: Option<TempDir> },
}

/// Why there is no figure for a peer.
#[derive(Debug)]
pub(crate) struct NotInstalled(pub(crate) &'static str);

impl fmt::Display for NotInstalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not installed", self.0)
    }
}

impl std::error::Error for NotInstalled {}

/// Starts `peer` among `hosts`; `place` keeps several apart. The processes end with the calling
/// thread at the latest.
pub(crate) fn start(peer: &Peer, hosts: &Hosts, place: u16) -> Result<Running> {
    match peer {
        Peer::Srp => lasthop::start(hosts, place, &Hop::new("srp")),
        Peer::SrpEarly => {
            let mobile = ["--connect", "early"].map(str::to_owned).to_vec();
            lasthop::start(hosts, place, &Hop { mobile, ..Hop::new("srp") })
        }
        Peer::SrpOwn(whose) => {
            let acknowledge = Some((*whose).to_owned());
            lasthop::start(hosts, place, &Hop { acknowledge, ..Hop::new("srp") })
        }
        Peer::MobileTcp(below) => {
            let (ethernet, bare) = (*below != Below::Udp, *below == Below::Frames);
            let hop = Hop { ethernet, find: true, bare, ..Hop::new("mobile-tcp") };
            lasthop::start(hosts, place, &hop)
        }
        Peer::SplitTcp(name) => lasthop::start(hosts, place, &Hop::split_tcp(name)),
        Peer::Kernel(name) => kernel::start(hosts, name),
        Peer::Proxy(name) => proxy::start(hosts, place, name),
        Peer::Quic => tunnel::start(hosts, place, None),
        Peer::QuicTold(rate) => tunnel::start(hosts, place, Some(*rate)),
    }
}

impl Running {
    /// A peer that needs no process.
    fn bare(client: Client) -> Self {
        Running { client, work: Work::Others { daemons: Vec::new(), _files: None } }
    }

    /// A client at the mobile.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// CPU time so far of its process at the base, and of the one at the mobile.
    pub(crate) fn cpu(&self) -> Result<[Duration; 2]> {
        let pids = self.pids();
        let of = |n: usize| pids.get(n).map_or(Ok(Duration::ZERO), |pid| cpu_of(*pid));
        Ok([of(0)?, of(1)?])
    }

    /// Its processes at the base and at the mobile, if it has some.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let daemons = match &self.work {
            Work::Lasthop(carrier) => carrier.daemons(),
            Work::Others { daemons, .. } => daemons,
        };
        daemons.iter().map(Daemon::id).collect()
    }

    /// Pauses its process at the base (0) or at the mobile (1) for so long, if there is one.
    pub(crate) fn stall(&mut self, end: usize, span: Duration) {
        let daemons = match &mut self.work {
            Work::Lasthop(carrier) => carrier.daemons_mut(),
            Work::Others { daemons, .. } => daemons,
        };
        if let Some(daemon) = daemons.get_mut(end) {
            daemon.pause();
            std::thread::sleep(span);
            daemon.go_on();
        }
    }

    /// An error with its last words if a process has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        Ok(match &mut self.work {
            Work::Lasthop(carrier) => carrier.check(),
            Work::Others { daemons, .. } => daemons.iter_mut().try_for_each(Daemon::check),
        }?)
    }
}

/// A process of a peer that is ready when something listens at an address.
struct Wait<'a> {
    from: &'a Netns,
    at: SocketAddr,
}

/// Starts what a client at the mobile reaches by `via`, and waits until all of it is ready.
fn launch(
    hosts: &Hosts,
    via: Via,
    server: SocketAddr,
    mut daemons: Vec<Daemon>,
    ready: &Wait<'_>,
    files: Option<TempDir>,
) -> Result<Running> {
    let client = Client::new(&hosts.mobile, via, server);
    let what = format!("the start of what listens at {}", ready.at);
    wait_for_listener(ready.from, ready.at, PATIENCE, &what, || {
        daemons.iter_mut().try_for_each(Daemon::check)
    })?;
    Ok(Running { client, work: Work::Others { daemons, _files: files } })
}

/// The file of a program of this name, in the directories of `PATH` and where Debian keeps daemons.
pub(crate) fn which(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")])
        .map(|directory| directory.join(name))
        .find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_by_its_name() {
        assert!(which("sh").is_some());
        assert_eq!(which("no-such-program-of-lasthop"), None);
    }

    #[test]
    fn only_srp_is_held_to_the_claims() {
        assert!(Peer::Srp.is_ours() && Peer::SrpEarly.is_ours());
        assert!(!Peer::Quic.is_ours() && !Peer::SplitTcp("bbr").is_ours());
        assert!(!Peer::MobileTcp(Below::Frames).is_ours());
    }
}
