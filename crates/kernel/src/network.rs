//! Networks by their prefixes, as people write them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

/// A network: an address and how many of its leading bits count.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Network {
    addr: IpAddr,
    bits: u8,
}

/// The text is not a network.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("`{0}` is not a network such as 10.0.0.0/8, 2001:db8::/32 or 192.0.2.1")]
pub struct NetworkError(String);

impl Network {
    /// A network of IPv4.
    pub const fn v4(a: u8, b: u8, c: u8, d: u8, bits: u8) -> Self {
        Self { addr: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), bits }
    }

    /// One of IPv6 by its address's first and last groups.
    pub const fn v6(first: u16, last: u16, bits: u8) -> Self {
        Self::v6_of([first, 0, 0, 0, 0, 0, 0, last], bits)
    }

    /// One of IPv6.
    pub const fn v6_of([a, b, c, d, e, f, g, h]: [u16; 8], bits: u8) -> Self {
        Self { addr: IpAddr::V6(Ipv6Addr::new(a, b, c, d, e, f, g, h)), bits }
    }

    /// Whether `ip` is in the network.
    pub fn contains(&self, ip: IpAddr) -> bool {
        match (self.addr, ip) {
            (IpAddr::V4(net), IpAddr::V4(ip)) => {
                let shift = 32 - u32::from(self.bits);
                (net.to_bits() ^ ip.to_bits()).checked_shr(shift).unwrap_or(0) == 0
            }
            (IpAddr::V6(net), IpAddr::V6(ip)) => {
                let shift = 128 - u32::from(self.bits);
                (net.to_bits() ^ ip.to_bits()).checked_shr(shift).unwrap_or(0) == 0
            }
            _ => false,
        }
    }

    /// Its first address, and how many of the leading bits count.
    pub fn prefix(&self) -> (IpAddr, u8) {
        let first = match self.addr {
            IpAddr::V4(ip) => {
                let host = u32::MAX.checked_shr(self.bits.into()).unwrap_or(0);
                Ipv4Addr::from_bits(ip.to_bits() & !host).into()
            }
            IpAddr::V6(ip) => {
                let host = u128::MAX.checked_shr(self.bits.into()).unwrap_or(0);
                Ipv6Addr::from_bits(ip.to_bits() & !host).into()
            }
        };
        (first, self.bits)
    }
}

/// One address.
impl From<IpAddr> for Network {
    fn from(addr: IpAddr) -> Self {
        Self { addr, bits: if addr.is_ipv4() { 32 } else { 128 } }
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(s: &str) -> Result<Self, NetworkError> {
        let fail = || NetworkError(s.to_owned());
        let (addr, bits) = match s.split_once('/') {
            Some((addr, bits)) => (addr, Some(bits)),
            None => (s, None),
        };
        let addr: IpAddr = addr.parse().map_err(|_| fail())?;
        let most = if addr.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            Some(bits) => bits.parse().ok().filter(|bits| *bits <= most).ok_or_else(fail)?,
            None => most,
        };
        Ok(Self { addr, bits })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.bits)
    }
}

impl Serialize for Network {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(s: &str) -> IpAddr {
        s.parse().unwrap()
    }

    #[test]
    fn networks_hold_what_they_say() {
        let net: Network = "10.1.0.0/16".parse().unwrap();
        assert!(net.contains(ip("10.1.255.1")) && !net.contains(ip("10.2.0.1")));
        assert!(!net.contains(ip("::a01:1")));
        let all: Network = "0.0.0.0/0".parse().unwrap();
        assert!(all.contains(ip("255.255.255.255")));
        let one: Network = "2001:db8::1".parse().unwrap();
        assert!(one.contains(ip("2001:db8::1")) && !one.contains(ip("2001:db8::2")));
        let prefix = |s: &str| s.parse::<Network>().unwrap().prefix();
        assert_eq!(prefix("10.1.2.3/8"), (ip("10.0.0.0"), 8));
        assert_eq!(prefix("10.1.2.3/0"), (ip("0.0.0.0"), 0));
        assert_eq!(prefix("2001:db8:1::/33"), (ip("2001:db8::"), 33));
        assert_eq!(Network::from(ip("10.1.2.3")).prefix(), (ip("10.1.2.3"), 32));
        for bad in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "x/8", "1.2.3.4/", "1.2.3.4/-1"] {
            assert!(bad.parse::<Network>().is_err(), "{bad}");
        }
    }
}
