//! Fixed host - wired link - base - radio - mobile, each host a namespace of its own.
//!
//! ```text
//!   fixed  10.0.1.2 ---- wired ---- 10.0.1.1  base  10.0.2.1 ---- radio ---- 10.0.2.2  mobile
//!          fd00:1::2                fd00:1::1       fd00:2::1                fd00:2::2
//! ```
//!
//! Both links are emulated by `lasthop-radio` in this process. The base forwards between them, so
//! that end-to-end connections cross it as they would any router. The radio carries IP packets
//! between TUN interfaces, or whole Ethernet frames between virtual Ethernet interfaces.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use lasthop_kernel::netns::{Netns, Prefix};
use lasthop_radio::{Errors, LinkConfig, Loss, Pacing, QueueLimit, RadioConfig};
use lasthop_units::{Duration, Rate, Seed};
use socket2::{Domain, Protocol, Socket, Type};

use crate::air::Air;
use crate::error::LabError;

/// The interface of the wired link, at the fixed host and at the base.
pub const WIRED: &str = "wired0";
/// The congestion control of connections between fixed host and base.
pub const WIRED_CONGESTION: &str = "cubic";
/// The interface of the radio, at the base and at the mobile.
pub const RADIO: &str = "radio0";

/// The interface of a radio beside the first, from 1 on.
pub fn radio_beside(n: usize) -> String {
    format!("radio{n}")
}

/// The network of a radio beside the first.
pub(crate) fn network_beside(n: usize) -> u16 {
    2 + n as u16
}

const HOP_PORT: u16 = 4433;
const PROXY_PORT: u16 = 1080;

/// What the radio carries.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Medium {
    /// IP packets.
    #[default]
    Ip,
    /// Ethernet frames, of whatever type.
    Ethernet,
}

/// The Ethernet address of the base's end of a radio that carries frames.
pub const BASE_MAC: &str = "02:00:5e:10:00:01";
/// The Ethernet address of the mobile's end.
pub const MOBILE_MAC: &str = "02:00:5e:10:00:02";

/// Which addresses to use.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Family {
    /// IPv4.
    #[default]
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];
}

/// What to build.
#[derive(Clone, Debug)]
pub struct Topology {
    /// The wired link; its "mobile" is the base and its "base" the fixed host.
    pub wired: RadioConfig,
    /// The radio.
    pub radio: RadioConfig,
    /// Radios beside it. All lead to the base, and carry IP packets.
    pub beside: Vec<RadioConfig>,
    /// What the radio carries.
    pub medium: Medium,
    /// The MTU of the radio's interfaces, if not what the radio carries. Larger than that, the
    /// radio is a black hole for what exceeds it.
    pub interface_mtu: Option<u32>,
    /// Where the links' random processes start.
    pub seed: Seed,
}

/// A link of `rate` and one-way `delay`, for 1500-byte packets, dropping nothing but what exceeds
/// a queue of `queue` packets.
pub fn link(rate: Rate, delay: Duration, queue: u32) -> LinkConfig {
    LinkConfig {
        pacing: Pacing::Rate(rate),
        delay,
        queue: QueueLimit::Packets(queue),
        mtu: 1500,
        ..LinkConfig::default()
    }
}

impl Default for Topology {
    /// 100 Mbit/s and 25 ms one way, then a radio of 20 Mbit/s, 20 ms one way and a queue of 100
    /// packets that loses nothing.
    fn default() -> Self {
        let wired = link(Rate::from_mbps(100), Duration::from_millis(25), 1000);
        let radio = link(Rate::from_mbps(20), Duration::from_millis(20), 100);
        Self {
            wired: RadioConfig::both(wired),
            radio: RadioConfig::both(radio),
            beside: Vec::new(),
            medium: Medium::default(),
            interface_mtu: None,
            seed: Seed::from_u64(0),
        }
    }
}

impl Topology {
    /// The default, with a radio that loses by `errors` in both directions, each independently.
    pub fn losing(errors: Errors) -> Self {
        let mut topology = Self::default();
        topology.radio.up.losses.push(Loss::lose(errors));
        topology.radio.down.losses.push(Loss::lose(errors));
        topology
    }
}

/// The three hosts and the two links between them. All is gone when this is dropped, or when the
/// process ends in whatever way.
#[derive(Debug)]
pub struct Lab {
    // Links are dropped before the hosts: they hold interfaces there.
    /// The wired link; none on the loopback interface.
    pub wired: Option<Air>,
    /// The radio.
    pub radio: Air,
    /// Radios beside it.
    pub beside: Vec<Air>,
    /// The fixed host.
    pub fixed: Netns,
    /// The base.
    pub base: Netns,
    /// The mobile.
    pub mobile: Netns,
    loopback: Option<Loopback>,
}

/// Ports on the loopback interface that stand for hosts.
#[derive(Debug)]
struct Loopback {
    /// Where the base listens.
    base: SocketAddr,
    /// Where the mobile reaches the base: the near end of the radio.
    radio: SocketAddr,
    proxy: SocketAddr,
}

impl Lab {
    /// Builds `topology`; traffic can flow at once.
    ///
    /// # Errors
    ///
    /// Namespaces or interfaces are not permitted, `ip` is missing, or a link's
    /// description is wrong.
    pub fn start(topology: &Topology) -> Result<Self, LabError> {
        let (fixed, base, mobile) = (Netns::anonymous()?, Netns::anonymous()?, Netns::anonymous()?);
        let seed = topology.seed;
        let wired = Air::between(&fixed, &base, WIRED, &topology.wired, seed.child("wired"))?;
        let between = match topology.medium {
            Medium::Ip => Air::between,
            Medium::Ethernet => Air::between_frames,
        };
        let radio = between(&base, &mobile, RADIO, &topology.radio, seed.child("radio"))?;
        if topology.medium == Medium::Ethernet {
            for (host, mac) in [(&base, BASE_MAC), (&mobile, MOBILE_MAC)] {
                host.ip(&format!("link set dev {RADIO} address {mac}\n"))?;
            }
        }
        let beside = topology.beside.iter().zip(1..).map(|(config, n)| {
            let name = radio_beside(n);
            Air::between(&base, &mobile, &name, config, seed.child(&name))
        });
        let beside = beside.collect::<Result<_, _>>()?;
        let lab = Self { wired: Some(wired), radio, beside, fixed, base, mobile, loopback: None };
        lab.configure_links(topology)?;
        lab.configure_routes()?;
        Ok(lab)
    }

    /// What can be had without privilege: all hosts are this one, there is no wired link, and the
    /// radio joins two UDP ports of the loopback interface. Only a hop over UDP crosses it.
    ///
    /// # Errors
    ///
    /// A port cannot be had, or the radio's description is wrong.
    pub fn on_loopback(topology: &Topology) -> Result<Self, LabError> {
        let here = Netns::current()?;
        let base = free_port()?;
        let (air, radio) = Air::udp(base, &topology.radio, topology.seed.child("radio"))?;
        let loopback = Loopback { base, radio, proxy: free_port()? };
        Ok(Self {
            wired: None,
            radio: air,
            beside: Vec::new(),
            fixed: here.clone(),
            base: here.clone(),
            mobile: here,
            loopback: Some(loopback),
        })
    }

    fn configure_links(&self, topology: &Topology) -> Result<(), LabError> {
        let wired_mtu = interface_mtu(&topology.wired);
        let radio_mtu = topology.interface_mtu.unwrap_or_else(|| interface_mtu(&topology.radio));
        let mut ends = vec![
            (&self.fixed, WIRED.to_owned(), wired_mtu, 1, 2),
            (&self.base, WIRED.to_owned(), wired_mtu, 1, 1),
            (&self.base, RADIO.to_owned(), radio_mtu, 2, 1),
            (&self.mobile, RADIO.to_owned(), radio_mtu, 2, 2),
        ];
        for (config, n) in topology.beside.iter().zip(1..) {
            let (name, mtu, net) = (radio_beside(n), interface_mtu(config), network_beside(n));
            ends.push((&self.base, name.clone(), mtu, net, 1));
            ends.push((&self.mobile, name, mtu, net, 2));
        }
        for (host, interface, mtu, net, n) in ends {
            host.ip(&format!("link set dev {interface} mtu {mtu}\n"))?;
            let addresses = prefixes(net, n);
            host.interface_up(&interface, if mtu >= 1280 { &addresses } else { &addresses[..1] })?;
        }
        Ok(())
    }

    /// Gives the mobile the routes by a radio beside the first, which go with its interface. The first radio's go before.
    ///
    /// # Errors
    ///
    /// `ip` refused.
    pub fn route_beside(&self, n: usize) -> Result<(), LabError> {
        for family in self.families()? {
            self.mobile.ip(&format!("{}\n", way_beside(family, n)))?;
        }
        Ok(())
    }

    /// Leads the mobile's way to the base by this radio alone, as whoever watches its links would: 0 is the first.
    ///
    /// # Errors
    ///
    /// `ip` refused.
    pub fn prefer(&self, n: usize) -> Result<(), LabError> {
        for family in self.families()? {
            let base = address(family, 2, 1);
            let prefix = if base.is_ipv4() { 32 } else { 128 };
            if n == 0 {
                self.mobile.ip(&format!("route flush exact {base}/{prefix}\n"))?;
            } else {
                let (gateway, name) = (address(family, network_beside(n), 1), radio_beside(n));
                let way = format!("via {gateway} dev {name}");
                self.mobile.ip(&format!("route replace {base}/{prefix} {way}\n"))?;
            }
        }
        Ok(())
    }

    fn configure_routes(&self) -> Result<(), LabError> {
        self.base.sysctl("ipv4.ip_forward", "1")?;
        self.base.sysctl("ipv6.conf.all.forwarding", "1")?;
        for family in self.families()? {
            self.fixed.route(None, address(family, 1, 1))?;
            self.mobile.route(None, address(family, 2, 1))?;
        }
        for n in 1..=self.beside.len() {
            self.route_beside(n)?;
        }
        self.set_wired_congestion(WIRED_CONGESTION)
    }

    /// IPv4 connections between fixed host and base: what most servers run, whatever this kernel's
    /// default is.
    fn set_wired_congestion(&self, name: &str) -> Result<(), LabError> {
        if !has_congestion_control(&self.fixed, name)? {
            return Ok(());
        }
        for (host, n) in [(&self.base, 1), (&self.fixed, 2)] {
            let own = address(Family::V4, 1, n);
            let [(net, length), _] = prefixes(1, 0);
            host.ip(&format!(
                "route change {net}/{length} dev {WIRED} proto kernel scope link src {own} \
                 congctl {name}\n"
            ))?;
        }
        Ok(())
    }

    /// The families that the hosts have: an interface with too small an MTU has no IPv6.
    fn families(&self) -> Result<Vec<Family>, LabError> {
        let read = || std::fs::read_to_string("/proc/thread-self/net/if_inet6");
        let table = self.mobile.enter(read)?.unwrap_or_default();
        let has_v6 = table.lines().any(|l| l.ends_with(RADIO) && l.starts_with("fd"));
        Ok(if has_v6 { Family::ALL.to_vec() } else { vec![Family::V4] })
    }

    /// Makes connections between the fixed host and the mobile use this congestion control, from
    /// whichever end they are opened. Other connections keep the kernel's default.
    ///
    /// It is set on routes, since a namespace may not make just any algorithm its default.
    ///
    /// # Errors
    ///
    /// [`LabError::NoCongestionControl`], or `ip` refused.
    pub fn set_congestion(&self, name: &str) -> Result<(), LabError> {
        if !has_congestion_control(&self.fixed, name)? {
            return Err(LabError::NoCongestionControl(name.to_owned()));
        }
        for family in self.families()? {
            for (host, net) in [(&self.fixed, 1), (&self.mobile, 2)] {
                let gateway = address(family, net, 1);
                host.ip(&format!("route change default via {gateway} congctl {name}\n"))?;
            }
            for n in 1..=self.beside.len() {
                self.mobile.ip(&format!("{} congctl {name}\n", way_beside(family, n)))?;
            }
        }
        Ok(())
    }

    /// Where a server at the fixed host should listen. Port 0 means any.
    pub fn server_address(&self, family: Family) -> SocketAddr {
        match self.loopback {
            Some(_) => SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            None => SocketAddr::new(address(family, 1, 2), 80),
        }
    }

    /// Where the base should listen for the mobile.
    pub fn base_address(&self, family: Family) -> SocketAddr {
        match &self.loopback {
            Some(loopback) => loopback.base,
            None => SocketAddr::new(address(family, 2, 1), HOP_PORT),
        }
    }

    /// Where the mobile reaches the base.
    pub fn base_from_mobile(&self, family: Family) -> SocketAddr {
        match &self.loopback {
            Some(loopback) => loopback.radio,
            None => self.base_address(family),
        }
    }

    /// Where the mobile's proxy should listen for clients at the mobile.
    pub fn proxy_address(&self) -> SocketAddr {
        match &self.loopback {
            Some(loopback) => loopback.proxy,
            None => SocketAddr::from((Ipv4Addr::LOCALHOST, PROXY_PORT)),
        }
    }

    /// The mobile's address on the radio.
    pub fn mobile_address(&self, family: Family) -> IpAddr {
        match &self.loopback {
            Some(_) => Ipv4Addr::LOCALHOST.into(),
            None => address(family, 2, 2),
        }
    }
}

/// What `ip` is told for the mobile's default route by a radio beside the first.
fn way_beside(family: Family, n: usize) -> String {
    let (gateway, name) = (address(family, network_beside(n), 1), radio_beside(n));
    format!("route replace default via {gateway} dev {name} metric {}", 2000 + n)
}

/// Whether the kernel lets `netns` have sockets of multipath TCP.
///
/// # Errors
///
/// The namespace cannot be entered.
pub(crate) fn has_multipath(netns: &Netns) -> Result<bool, LabError> {
    Ok(netns.enter(|| Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).is_ok())?)
}

/// Whether the kernel has this congestion control for sockets of `netns`. It may load it first.
///
/// # Errors
///
/// No socket can be had there.
pub fn has_congestion_control(netns: &Netns, name: &str) -> Result<bool, LabError> {
    let probe = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        Ok(socket.set_tcp_congestion(name.as_bytes()).is_ok())
    };
    netns.enter(probe)?.map_err(|e| LabError::io("opening a socket", e))
}

/// A loopback port that was free a moment ago.
fn free_port() -> Result<SocketAddr, LabError> {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|socket| socket.local_addr())
        .map_err(|e| LabError::io("finding a free port", e))
}

fn interface_mtu(radio: &RadioConfig) -> u32 {
    radio.up.mtu.min(radio.down.mtu).min(65_535)
}

/// The address of host `n` of network `net`: the numbers read alike in both families.
pub(crate) fn address(family: Family, net: u16, n: u16) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(10, 0, net as u8, n as u8).into(),
        Family::V6 => Ipv6Addr::new(0xfd00, digits(net), 0, 0, 0, 0, 0, digits(n)).into(),
    }
}

/// The number whose hexadecimal digits are `n`'s decimal ones.
fn digits(n: u16) -> u16 {
    ((n / 100 % 10) << 8) | ((n / 10 % 10) << 4) | (n % 10)
}

/// How long the prefixes of networks are.
pub(crate) fn prefix_length(family: Family) -> u8 {
    match family {
        Family::V4 => 24,
        Family::V6 => 64,
    }
}

/// The addresses of host `n` of network `net`, with their prefixes.
pub(crate) fn prefixes(net: u16, n: u16) -> [Prefix; 2] {
    Family::ALL.map(|family| (address(family, net, n), prefix_length(family)))
}
