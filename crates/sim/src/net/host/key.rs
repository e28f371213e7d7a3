//! What tells a host's connections from each other.

use core::net::Ipv4Addr;

use lasthop_tcp as tcp;

/// Both ends of a connection, as its own host sees them: of each the address and the port in one
/// word, which is quick to make and to compare.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Key {
    local: u64,
    remote: u64,
}

#[inline]
fn end((addr, port): (Ipv4Addr, u16)) -> u64 {
    u64::from(addr.to_bits()) << 16 | u64::from(port)
}

impl Key {
    #[inline]
    pub(super) fn new(local: (Ipv4Addr, u16), remote: (Ipv4Addr, u16)) -> Self {
        Self { local: end(local), remote: end(remote) }
    }

    #[inline]
    pub(super) fn local_addr(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits((self.local >> 16) as u32)
    }

    #[inline]
    pub(super) fn remote_addr(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits((self.remote >> 16) as u32)
    }

    pub(super) fn ports(&self) -> tcp::Ports {
        tcp::Ports { local: self.local as u16, remote: self.remote as u16 }
    }
}
