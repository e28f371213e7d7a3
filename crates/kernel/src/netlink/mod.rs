//! The kernel's own notion of interfaces, addresses and routes, requested and notified by netlink
//! (rtnetlink(7), RFC 3549).
//!
//! [`Rtnetlink`] asks questions and gives orders and waits for each answer; [`Monitor`] is notified of
//! changes. Both belong to the network namespace of the thread that opened them, wherever they are
//! used afterwards.

mod attributes;
mod bridge;
mod channel;
#[cfg(any(test, feature = "testing"))]
pub mod hostile;
mod link;
mod message;
mod monitor;
mod neighbour;
mod netfilter;
mod owner;
mod picture;
mod requests;
mod route;
mod rule;
#[cfg(test)]
mod tests;
mod wireless;

use std::io;
use std::net::IpAddr;

use rustix::io::Errno;
use thiserror::Error;

use self::message::Message;
pub use self::monitor::Monitor;
pub use self::netfilter::{
    Field, Held, PacketQueue, SetChange, Sets, Verdict, add_queue_target, key,
};
pub use self::owner::{Destroyer, Ends, Owners};
pub use self::picture::{DefaultRoute, NetworkEvent};
pub use self::requests::Rtnetlink;
pub use self::route::{MAIN, Route, RouteKind};
pub use self::rule::{Action, Rule};
pub use self::wireless::{Wireless, WirelessEvent, WirelessMonitor};
pub use crate::netns::Prefix;

/// Marks the routes and rules that lasthop makes, so that people and the next start know them:
/// `ip route show table all proto 76`. No routing daemon has registered the number.
pub const PROTOCOL: u8 = 76;

// linux/if_link.h, linux/if.h
const LINK_ADDRESS: u16 = 1;
const LINK_NAME: u16 = 3;
const LINK_MTU: u16 = 4;
const LINK_CONTROLLER: u16 = 10;
const LINK_UP: u32 = 1;
const LINK_LOOPBACK: u32 = 1 << 3;
const LINK_RUNNING: u32 = 1 << 6;
const LINK_LOWER_UP: u32 = 1 << 16;

// linux/if_addr.h
const ADDRESS_ADDRESS: u16 = 1;
const ADDRESS_LOCAL: u16 = 2;
const ADDRESS_FLAGS: u16 = 8;
const ADDRESS_OPTIMISTIC: u32 = 1 << 2;
const ADDRESS_DAD_FAILED: u32 = 1 << 3;
const ADDRESS_TENTATIVE: u32 = 1 << 6;

/// Why a request was not sent, or refused by the kernel.
#[derive(Debug, Error)]
pub enum NetlinkError {
    /// There is no netlink socket to be had.
    #[error("cannot speak netlink to the kernel: {0}")]
    Socket(#[source] io::Error),
    /// The process lacks the privilege.
    #[error("cannot {what}: that needs CAP_NET_ADMIN (or root)")]
    NotPermitted {
        /// What was to be done.
        what: String,
    },
    /// The kernel refused.
    #[error("cannot {what}: {}", reason(said, source))]
    Refused {
        /// What was to be done.
        what: String,
        /// The kernel's message about it; often empty.
        said: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// No interface goes by this name here.
    #[error("there is no interface `{0}` here (`ip link` lists them)")]
    NoInterface(String),
    /// The kernel's answer is not understood or did not come.
    #[error("cannot {what}: the kernel's answer {why}")]
    Strange {
        /// What was to be done.
        what: String,
        /// What is wrong with the answer.
        why: &'static str,
    },
}

fn reason(said: &str, source: &io::Error) -> String {
    if said.is_empty() { source.to_string() } else { format!("{source} ({said})") }
}

impl NetlinkError {
    fn errno(&self) -> Option<Errno> {
        match self {
            Self::Refused { source, .. } => Errno::from_io_error(source),
            _ => None,
        }
    }

    /// Whether what was meant does not exist.
    pub fn is_absent(&self) -> bool {
        let absent = [Errno::SRCH, Errno::NOENT, Errno::NODEV, Errno::ADDRNOTAVAIL];
        self.errno().is_some_and(|e| absent.contains(&e))
    }

    /// Whether what was to be made exists already.
    pub fn is_present(&self) -> bool {
        self.errno() == Some(Errno::EXIST)
    }
}

/// An interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// The kernel's number of it.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Whether it is switched on.
    pub up: bool,
    /// Whether it can carry packets: there is a carrier, and whatever the link needs first, such
    /// as an authentication, is done (RFC 2863, operational state).
    pub carrier: bool,
    /// Whether it is a loopback.
    pub loopback: bool,
    /// Whether it carries Ethernet frames.
    pub ethernet: bool,
    /// Its hardware address, if it has one of six bytes.
    pub mac: Option<[u8; 6]>,
    /// The longest packet that it sends, bytes of IP.
    pub mtu: u32,
    /// The bridge, or the like, that it is a port of.
    pub controller: Option<u32>,
}

impl Interface {
    /// Whether packets go through it.
    pub fn works(&self) -> bool {
        self.up && self.carrier
    }

    /// What a message says; none if it is not about an interface as such.
    fn of(message: &Message) -> Option<Self> {
        // struct ifinfomsg: family, padding, type, index, flags, which of them change
        let (&[family, _, k, l, a, b, c, d, e, f, g, h, ..], attributes) = message.parts::<16>()?;
        // A bridge tells of its ports by messages of its own family.
        if family != FAMILY_ANY {
            return None;
        }
        let flags = u32::from_ne_bytes([e, f, g, h]);
        let has = |wanted| flags & wanted == wanted;
        let mut interface = Self {
            index: u32::from_ne_bytes([a, b, c, d]),
            name: String::new(),
            up: has(LINK_UP),
            carrier: has(LINK_RUNNING | LINK_LOWER_UP),
            loopback: has(LINK_LOOPBACK),
            ethernet: u16::from_ne_bytes([k, l]) == libc::ARPHRD_ETHER,
            mac: None,
            mtu: 0,
            controller: None,
        };
        for (kind, value) in attributes {
            match kind {
                LINK_NAME => interface.name = value.text().unwrap_or_default().to_owned(),
                LINK_ADDRESS => interface.mac = value.mac(),
                LINK_MTU => interface.mtu = value.u32().unwrap_or(0),
                LINK_CONTROLLER => interface.controller = value.u32().filter(|index| *index != 0),
                _ => {}
            }
        }
        (!interface.name.is_empty()).then_some(interface)
    }
}

/// An address of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    /// The interface's number.
    pub interface: u32,
    /// The address.
    pub ip: IpAddr,
    /// The length of its prefix.
    pub prefix: u8,
    /// Whether it can be used: IPv6 asks first whether somebody else has it (RFC 4862, 5.4).
    pub usable: bool,
}

impl Address {
    fn of(message: &Message) -> Option<Self> {
        // struct ifaddrmsg: family, prefix, flags, scope, interface
        let (&[_, prefix, flags, _, a, b, c, d], attributes) = message.parts::<8>()?;
        let (mut local, mut address, mut flags) = (None, None, u32::from(flags));
        for (kind, value) in attributes {
            match kind {
                ADDRESS_LOCAL => local = value.ip(),
                ADDRESS_ADDRESS => address = value.ip(),
                // As those before, and more.
                ADDRESS_FLAGS => flags = value.u32().unwrap_or(flags),
                _ => {}
            }
        }
        let has = |flag| flags & flag != 0;
        let usable = has(ADDRESS_OPTIMISTIC) || !has(ADDRESS_TENTATIVE);
        // On a point-to-point link `address` is the peer's.
        let ip = local.or(address)?;
        let (ip, prefix) = self::prefix(ip.is_ipv6(), (ip, prefix))?;
        Some(Self {
            interface: u32::from_ne_bytes([a, b, c, d]),
            ip,
            prefix,
            usable: usable && !has(ADDRESS_DAD_FAILED),
        })
    }
}

/// No address family, or each.
const FAMILY_ANY: u8 = libc::AF_UNSPEC as u8;

/// The address family of IPv4 or IPv6 as messages carry it.
fn family(ipv6: bool) -> u8 {
    if ipv6 { libc::AF_INET6 as u8 } else { libc::AF_INET as u8 }
}

/// A prefix of a family; none if the address is of the other one, or has fewer bits.
fn prefix(ipv6: bool, (ip, length): Prefix) -> Option<Prefix> {
    let bits = if ipv6 { 128 } else { 32 };
    (ip.is_ipv6() == ipv6 && length <= bits).then_some((ip, length))
}

/// The whole of one family's addresses.
fn everything(ipv6: bool) -> Prefix {
    let ip = if ipv6 {
        IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED)
    } else {
        IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED)
    };
    (ip, 0)
}
