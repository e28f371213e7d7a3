//! Which connection has which priority.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use crate::Connection;

/// Connections that it fits have this priority. What it does not name fits any (UFB-1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// The port of either end.
    pub port: Option<u16>,
    /// A network, as an address and the bits of it that count, in which either end is.
    pub address: Option<(IpAddr, u8)>,
    /// The priority.
    pub priority: u32,
}

impl Rule {
    fn fits(&self, connection: &Connection) -> bool {
        let ends = [connection.fixed, connection.mobile];
        let port = |port: u16| ends.iter().any(|end: &SocketAddr| end.port() == port);
        let address = |(net, bits)| ends.iter().any(|end| is_in(end.ip(), net, bits));
        self.port.is_none_or(port) && self.address.is_none_or(address)
    }
}

/// The first `bits` bits of both are the same.
fn is_in(address: IpAddr, net: IpAddr, bits: u8) -> bool {
    let (differs, width) = match (address.to_canonical(), net.to_canonical()) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (u128::from(a.to_bits() ^ b.to_bits()) << 96, 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits(), 128),
        _ => return false,
    };
    differs.leading_zeros() >= u32::from(bits).min(width)
}

/// The rules of one helper.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) rules: Vec<Rule>,
    pub(super) default: u32,
}

impl Rules {
    /// Of rules that fit the first counts.
    pub(super) fn priority(&self, connection: &Connection) -> u32 {
        let fits = self.rules.iter().find(|rule| rule.fits(connection));
        fits.map_or(self.default, |rule| rule.priority)
    }
}
