//! Fixed host - wire - base - radio - mobile, all on one subnet: what is between the two hosts are
//! bridges, which forward frames and route nothing.
//!
//! ```text
//!   fixed  10.0.0.2 ---- wire ---- base ---- radio ---- [edge ----] mobile  10.0.0.3
//!          fd00::2                 10.0.0.1             10.0.0.4             fd00::3
//!
//!   fixed  10.0.0.2 ---- wire ---- base ---- radio ---- router ---- second radio ---- mobile
//! ```
//!
//! Each bridge is `br0` with the ports `fixed0`, towards the fixed host, and `mobile0`. The edge is a
//! bridge in front of the mobile, on its side of the radio. Offloads are as the kernel sets them, so
//! that a bridge sees the large packets of a neighbour that is joined by a plain cable.

use std::net::{IpAddr, SocketAddr};

use lasthop_kernel::netns::Netns;
use lasthop_radio::RadioConfig;
use lasthop_units::{Duration, Rate, Seed};

use super::sender::Sender;
use crate::air::Air;
use crate::carrier::cable;
use crate::error::LabError;
use crate::topology::{Family, address, link, prefixes};

/// The only interface of the fixed host and of the mobile.
pub const HOST_IF: &str = "eth0";
/// A bridge.
pub const BRIDGE: &str = "br0";
/// A bridge's port towards the fixed host.
pub const FIXED_IF: &str = "fixed0";
/// A bridge's port towards the mobile.
pub const MOBILE_IF: &str = "mobile0";

/// What a hop carries beyond the hosts' MTU: what agents put before a frame that they number.
pub const HEADROOM: u32 = 32;

/// The only network, and who is in it.
const NET: u16 = 0;
const FIXED: u16 = 2;
const BASE: u16 = 1;
const MOBILE: u16 = 3;
const BEHIND: u16 = 4;
const SERVER_PORT: u16 = 80;

/// What is behind the radio.
#[derive(Clone, Default, Debug)]
pub enum Behind {
    /// The mobile itself.
    #[default]
    Mobile,
    /// A bridge, and the mobile at a cable.
    Edge,
    /// A mobile router, which is a bridge, and the mobile at a radio of its own.
    Router(Box<RadioConfig>),
}

/// What to build.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Between fixed host and base; its "mobile" is the base. A plain cable without.
    pub wire: Option<RadioConfig>,
    /// The first hop; a plain cable without. What it carries at most is set from `mtu`.
    pub radio: Option<RadioConfig>,
    /// What is behind it.
    pub behind: Behind,
    /// The MTU of the two hosts.
    pub mtu: u32,
    /// How the kernels of both hosts send.
    pub sender: Sender,
    /// Where the links' random processes start.
    pub seed: Seed,
}

impl Default for Settings {
    /// 100 Mbit/s and 20 ms one way, then a radio of 20 Mbit/s, 20 ms one way and a queue of 100
    /// packets, to a mobile with CUBIC.
    fn default() -> Self {
        let wire = link(Rate::from_mbps(100), Duration::from_millis(20), 1000);
        let radio = link(Rate::from_mbps(20), Duration::from_millis(20), 100);
        Self {
            wire: Some(RadioConfig::both(wire)),
            radio: Some(RadioConfig::both(radio)),
            behind: Behind::Mobile,
            mtu: 1500,
            sender: Sender::CUBIC,
            seed: Seed::from_u64(0),
        }
    }
}

/// The hosts, the bridges and what is between them. All is gone when this is dropped, or when the
/// process ends in whatever way.
#[derive(Debug)]
pub struct Path {
    // Links are dropped before the hosts: they hold interfaces there.
    /// Between fixed host and base; none if that is a plain cable.
    pub wire: Option<Air>,
    /// The first hop; none if that is a plain cable.
    pub radio: Option<Air>,
    /// The second hop, behind a mobile router.
    pub second: Option<Air>,
    /// The fixed host.
    pub fixed: Netns,
    /// The first bridge.
    pub base: Netns,
    /// The second bridge: edge or mobile router.
    pub behind: Option<Netns>,
    /// The mobile.
    pub mobile: Netns,
}

impl Path {
    /// Builds what `settings` say; traffic can flow at once, without any agent.
    ///
    /// # Errors
    ///
    /// Namespaces or interfaces are not permitted, `ip` is missing, the kernel has no such congestion
    /// control, or a link's description is wrong.
    pub fn start(settings: &Settings) -> Result<Self, LabError> {
        let (fixed, base, mobile) = (Netns::anonymous()?, Netns::anonymous()?, Netns::anonymous()?);
        let seed = settings.seed;
        let behind = match settings.behind {
            Behind::Mobile => None,
            Behind::Edge | Behind::Router(_) => Some(Netns::anonymous()?),
        };
        let hop_mtu = settings.mtu + HEADROOM;
        let wire = settings.wire.as_ref().map(|wire| carrying(wire, settings.mtu));
        let radio = settings.radio.as_ref().map(|radio| carrying(radio, hop_mtu));
        let wire = join((&fixed, HOST_IF), (&base, FIXED_IF), wire.as_ref(), seed.child("wire"))?;
        let far = match &behind {
            Some(bridge) => (bridge, FIXED_IF),
            None => (&mobile, HOST_IF),
        };
        let radio = join((&base, MOBILE_IF), far, radio.as_ref(), seed.child("radio"))?;
        let second = match (&settings.behind, &behind) {
            (_, None) => None,
            (Behind::Router(second), Some(bridge)) => {
                let second = carrying(second, hop_mtu);
                let ends = ((bridge, MOBILE_IF), (&mobile, HOST_IF));
                join(ends.0, ends.1, Some(&second), seed.child("second"))?
            }
            (_, Some(bridge)) => join((bridge, MOBILE_IF), (&mobile, HOST_IF), None, seed)?,
        };
        let path = Self { wire, radio, second, fixed, base, behind, mobile };
        path.configure(settings)?;
        Ok(path)
    }

    fn configure(&self, settings: &Settings) -> Result<(), LabError> {
        let Settings { mtu, sender, .. } = *settings;
        for (bridge, n) in [(Some(&self.base), BASE), (self.behind.as_ref(), BEHIND)] {
            let Some(bridge) = bridge else { continue };
            let toward_fixed = if n == BASE { mtu } else { mtu + HEADROOM };
            make_bridge(bridge, toward_fixed, mtu + HEADROOM)?;
            bridge.interface_up(BRIDGE, &prefixes(NET, n))?;
        }
        configure_host(&self.fixed, FIXED, MOBILE, sender, mtu)?;
        configure_host(&self.mobile, MOBILE, FIXED, sender, mtu)
    }

    /// Takes the cable between fixed host and base away, with the interfaces at both its ends.
    ///
    /// # Errors
    ///
    /// `ip` refused, as it does where the wire is an emulated link.
    pub fn remove_wire(&self) -> Result<(), LabError> {
        Ok(self.base.ip(&format!("link del dev {FIXED_IF}\n"))?)
    }

    /// Puts a new cable where the old one was. `settings` are those of the start.
    ///
    /// # Errors
    ///
    /// `ip` refused.
    pub fn replace_wire(&self, settings: &Settings) -> Result<(), LabError> {
        let Settings { mtu, sender, .. } = *settings;
        cable(&self.fixed, HOST_IF, &self.base, FIXED_IF)?;
        self.base.ip(&format!("link set dev {FIXED_IF} mtu {mtu} master {BRIDGE} up\n"))?;
        configure_host(&self.fixed, FIXED, MOBILE, sender, mtu)
    }

    /// Makes both hosts forget each other's Ethernet addresses, so that they have to ask.
    ///
    /// # Errors
    ///
    /// `ip` refused.
    pub fn make_strangers(&self) -> Result<(), LabError> {
        for (host, n) in [(&self.fixed, MOBILE), (&self.mobile, FIXED)] {
            let lines =
                Family::ALL.map(|f| format!("neigh del {} dev {HOST_IF}\n", address(f, NET, n)));
            host.ip(&lines.concat())?;
        }
        Ok(())
    }

    /// Where a server at the fixed host listens.
    pub fn server_address(&self, family: Family) -> SocketAddr {
        SocketAddr::new(address(family, NET, FIXED), SERVER_PORT)
    }

    /// The mobile's address.
    pub fn mobile_address(&self, family: Family) -> IpAddr {
        address(family, NET, MOBILE)
    }

    /// The address of the base's bridge itself.
    pub fn base_address(&self, family: Family) -> IpAddr {
        address(family, NET, BASE)
    }
}

/// The same link, for packets of up to `mtu` bytes.
fn carrying(link: &RadioConfig, mtu: u32) -> RadioConfig {
    let mut link = link.clone();
    link.up.mtu = mtu;
    link.down.mtu = mtu;
    link
}

/// Sets up host `n`, whose only peer is host `other`.
fn configure_host(
    host: &Netns,
    n: u16,
    other: u16,
    sender: Sender,
    mtu: u32,
) -> Result<(), LabError> {
    let mac = ethernet_address(n);
    host.ip(&format!("link set dev {HOST_IF} mtu {mtu} address {mac}\n"))?;
    host.interface_up(HOST_IF, &prefixes(NET, n))?;
    let routes = Family::ALL.map(|family| (address(family, NET, 0), address(family, NET, n)));
    sender.configure(host, HOST_IF, &routes, mtu)?;
    introduce(host, other)
}

/// Tells `host` the Ethernet address of host `n`: a question for it, which the radio may lose, is
/// nobody's here.
fn introduce(host: &Netns, n: u16) -> Result<(), LabError> {
    let mac = ethernet_address(n);
    let lines = Family::ALL.map(|family| {
        let ip = address(family, NET, n);
        format!("neigh replace {ip} lladdr {mac} dev {HOST_IF} nud permanent\n")
    });
    Ok(host.ip(&lines.concat())?)
}

fn join(
    upper: (&Netns, &str),
    lower: (&Netns, &str),
    link: Option<&RadioConfig>,
    seed: Seed,
) -> Result<Option<Air>, LabError> {
    match link {
        Some(link) => Air::joining(upper, lower, link, seed).map(Some),
        None => cable(upper.0, upper.1, lower.0, lower.1).map(|()| None),
    }
}

/// A bridge of both ports, which does not look at who listens to which group: that takes seconds to
/// learn.
pub(super) fn make_bridge(host: &Netns, fixed_mtu: u32, mobile_mtu: u32) -> Result<(), LabError> {
    let mut lines = format!("link add {BRIDGE} type bridge stp_state 0 mcast_snooping 0\n");
    for (port, mtu) in [(FIXED_IF, fixed_mtu), (MOBILE_IF, mobile_mtu)] {
        lines.push_str(&format!("link set dev {port} mtu {mtu} master {BRIDGE} up\n"));
    }
    Ok(host.ip(&lines)?)
}

/// The Ethernet address of host `n`.
fn ethernet_address(n: u16) -> String {
    format!("02:00:5e:30:00:{n:02x}")
}
