//! The kernel's own notion of interfaces, addresses and routes, asked and told by netlink
//! (rtnetlink(7), RFC 3549).
//!
//! [`Rtnetlink`] asks questions and gives orders and waits for each answer; [`Monitor`] is told of
//! changes. Both belong to the network namespace of the thread that opened them, wherever they are
//! used afterwards.

mod bridge;
mod channel;
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

use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage,
};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use rustix::io::Errno;
use thiserror::Error;

pub use self::monitor::Monitor;
pub use self::netfilter::{Held, PacketQueue, Verdict, add_queue_target};
pub use self::owner::{Ends, Owners};
pub use self::picture::{DefaultRoute, NetworkEvent};
pub use self::requests::Rtnetlink;
pub use self::route::{Kind, MAIN, Route};
pub use self::rule::{Action, Rule};
pub use self::wireless::{Wireless, WirelessEvent, WirelessMonitor};
pub use crate::netns::Prefix;

/// Marks the routes and rules that lasthop makes, so that people and the next start know them:
/// `ip route show table all proto 76`. No routing daemon has registered the number.
pub const PROTOCOL: u8 = 76;

/// Why the kernel was not asked, or did not do what it was told.
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
        /// What the kernel said about it in words; often nothing.
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
    fn of(message: &LinkMessage) -> Option<Self> {
        // A bridge tells of its ports by messages of its own family.
        if message.header.interface_family != AddressFamily::Unspec {
            return None;
        }
        let flags = message.header.flags;
        let mut interface = Self {
            index: message.header.index,
            name: String::new(),
            up: flags.contains(LinkFlags::Up),
            carrier: flags.contains(LinkFlags::Running | LinkFlags::LowerUp),
            loopback: flags.contains(LinkFlags::Loopback),
            mac: None,
            mtu: 0,
            controller: None,
        };
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => interface.name.clone_from(name),
                LinkAttribute::Address(mac) => interface.mac = mac.as_slice().try_into().ok(),
                LinkAttribute::Mtu(mtu) => interface.mtu = *mtu,
                LinkAttribute::Controller(0) => {}
                LinkAttribute::Controller(index) => interface.controller = Some(*index),
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
    fn of(message: &AddressMessage) -> Option<Self> {
        let (mut local, mut address, mut wide) = (None, None, None);
        for attribute in &message.attributes {
            match attribute {
                AddressAttribute::Local(ip) => local = Some(*ip),
                AddressAttribute::Address(ip) => address = Some(*ip),
                AddressAttribute::Flags(flags) => wide = Some(*flags),
                _ => {}
            }
        }
        let narrow = message.header.flags;
        let has = |flag: AddressFlags, short: AddressHeaderFlags| {
            wide.map_or(narrow.contains(short), |wide| wide.contains(flag))
        };
        let tentative = has(AddressFlags::Tentative, AddressHeaderFlags::Tentative);
        let optimistic = has(AddressFlags::Optimistic, AddressHeaderFlags::Optimistic);
        let failed = has(AddressFlags::Dadfailed, AddressHeaderFlags::Dadfailed);
        Some(Self {
            interface: message.header.index,
            // On a point-to-point link `address` is the peer's.
            ip: local.or(address)?,
            prefix: message.header.prefix_len,
            usable: !failed && (optimistic || !tentative),
        })
    }
}

/// The address family of IPv4 or IPv6 as messages carry it.
fn family(ipv6: bool) -> AddressFamily {
    if ipv6 { AddressFamily::Inet6 } else { AddressFamily::Inet }
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
