//! SOCKS: version 5 (RFC 1928) without authentication, versions 4 and 4a, and the client's side of
//! version 5.
//!
//! CONNECT is served, and UDP ASSOCIATE where it is asked for. Names are passed on as they are and
//! resolved at the base (`socks5h`).

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use lasthop_wire::mhp::{HostName, NameError, Refusal, Target};

mod client;
mod datagram;
mod server;

pub use client::{Client, ClientError, ClientProgress};
pub use datagram::{Datagram, DatagramError};
pub use server::Server;

const VERSION_5: u8 = 5;
const VERSION_4: u8 = 4;
const METHOD_NONE: u8 = 0;
const NO_METHOD: u8 = 0xff;
const COMMAND_CONNECT: u8 = 1;
const COMMAND_UDP_ASSOCIATE: u8 = 3;
const ATYP_IPV4: u8 = 1;
const ATYP_NAME: u8 = 3;
const ATYP_IPV6: u8 = 4;

/// The longest request or reply of version 5: four bytes, a counted name of 255 and a port.
const MAX_REQUEST: usize = 4 + 1 + 255 + 2;

/// The reply field of RFC 1928 section 6.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ReplyCode {
    /// X'00'.
    Succeeded = 0,
    /// X'01'.
    GeneralFailure = 1,
    /// X'02': not allowed by the rule set.
    NotAllowed = 2,
    /// X'03'.
    NetworkUnreachable = 3,
    /// X'04'.
    HostUnreachable = 4,
    /// X'05'.
    ConnectionRefused = 5,
    /// X'06': TTL expired; what servers say for a time-out.
    TtlExpired = 6,
    /// X'07'.
    CommandNotSupported = 7,
    /// X'08'.
    AddressTypeNotSupported = 8,
}

impl From<Refusal> for ReplyCode {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Refused => Self::ConnectionRefused,
            Refusal::NetworkUnreachable => Self::NetworkUnreachable,
            Refusal::HostUnreachable | Refusal::NameNotFound | Refusal::ResolverFailed => {
                Self::HostUnreachable
            }
            Refusal::TimedOut => Self::TtlExpired,
            Refusal::NotPermitted | Refusal::NotAllowed => Self::NotAllowed,
            Refusal::ConnectionReset
            | Refusal::TooMany
            | Refusal::ShuttingDown
            | Refusal::Protocol
            | Refusal::AssociationLost
            | Refusal::Other(_)
            | Refusal::Unknown(_) => Self::GeneralFailure,
        }
    }
}

/// The refusal that a reply other than success most likely stands for.
fn refusal_for(code: u8) -> Refusal {
    match code {
        2 => Refusal::NotAllowed,
        3 => Refusal::NetworkUnreachable,
        4 => Refusal::HostUnreachable,
        5 => Refusal::Refused,
        6 => Refusal::TimedOut,
        _ => Refusal::Other(0),
    }
}

/// An address field with its port: the tail of requests and replies.
enum Address {
    Incomplete,
    /// Of a type that RFC 1928 does not have.
    UnknownType,
    /// What it names, and how long it is.
    Complete(Result<Target, NameError>, usize),
}

/// Reads type, address and port from the start of `bytes`.
fn read_address(bytes: &[u8]) -> Address {
    let Some((&kind, rest)) = bytes.split_first() else { return Address::Incomplete };
    let counted = match kind {
        ATYP_IPV4 => (0, 4),
        ATYP_IPV6 => (0, 16),
        ATYP_NAME => match rest.first() {
            Some(&len) => (1, usize::from(len)),
            None => return Address::Incomplete,
        },
        _ => return Address::UnknownType,
    };
    let end = counted.0 + counted.1;
    let (Some(host), Some(&[high, low])) = (rest.get(counted.0..end), rest.get(end..end + 2))
    else {
        return Address::Incomplete;
    };
    let port = u16::from_be_bytes([high, low]);
    let ip = |ip: IpAddr| Ok(Target::Addr(SocketAddr::new(ip, port)));
    let target = if let Ok(octets) = <[u8; 4]>::try_from(host)
        && kind == ATYP_IPV4
    {
        ip(Ipv4Addr::from(octets).into())
    } else if let Ok(octets) = <[u8; 16]>::try_from(host)
        && kind == ATYP_IPV6
    {
        ip(Ipv6Addr::from(octets).into())
    } else {
        read_name(host, port)
    };
    Address::Complete(target, 1 + end + 2)
}

/// A name; applications that resolve nothing also send address literals as names.
fn read_name(host: &[u8], port: u16) -> Result<Target, NameError> {
    let name = HostName::from_bytes(host)?;
    Target::from_host(name.as_str(), port)
}

fn put_address(out: &mut Vec<u8>, target: &Target) {
    match target {
        Target::Addr(SocketAddr::V4(addr)) => {
            out.push(ATYP_IPV4);
            out.extend_from_slice(&addr.ip().octets());
        }
        Target::Addr(SocketAddr::V6(addr)) => {
            out.push(ATYP_IPV6);
            out.extend_from_slice(&addr.ip().octets());
        }
        Target::Name(name, _) => {
            // A HostName has at most 255 bytes.
            out.extend_from_slice(&[ATYP_NAME, name.as_str().len() as u8]);
            out.extend_from_slice(name.as_str().as_bytes());
        }
    }
    out.extend_from_slice(&target.port().to_be_bytes());
}

/// What stands for an address that is not known.
const UNSPECIFIED: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
