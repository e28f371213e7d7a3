//! Addresses of the carriers that move datagrams.

use core::net::{IpAddr, SocketAddr, SocketAddrV4};

/// Where a carrier's datagrams come from and go to.
pub trait CarrierAddress: Copy + Eq {
    /// For whom its datagrams are counted: the part of an address that its holder cannot choose. An IPv4 address
    /// without the port, the first 64 bits of an IPv6 one.
    fn source(&self) -> [u8; 8];
}

impl CarrierAddress for IpAddr {
    fn source(&self) -> [u8; 8] {
        match self.to_canonical() {
            Self::V4(ip) => u64::from(ip.to_bits()).to_be_bytes(),
            Self::V6(ip) => ((ip.to_bits() >> 64) as u64).to_be_bytes(),
        }
    }
}

impl CarrierAddress for SocketAddr {
    fn source(&self) -> [u8; 8] {
        self.ip().source()
    }
}

impl CarrierAddress for SocketAddrV4 {
    fn source(&self) -> [u8; 8] {
        IpAddr::V4(*self.ip()).source()
    }
}

impl CarrierAddress for u16 {
    fn source(&self) -> [u8; 8] {
        u64::from(*self).to_be_bytes()
    }
}
