//! Which address the program asked for, by the local port of the connection to the proxy.
//!
//! All our connections have the same far end, the proxy, so that the local port tells them apart
//! (a program that binds its sockets to several local addresses and the same port is the
//! exception: `getpeername` then speaks of the later one). A descriptor would not do: it can be
//! duplicated, inherited and reused. One fixed slot for each port means no allocation, no lock and
//! no search, and the pages of ports never used are never touched.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use core::sync::atomic::{AtomicU64, Ordering, fence};

const PORTS: usize = 1 << 16;

/// `about` is zero while nothing is known; otherwise [`KNOWN`], the family and the far port.
struct Slot {
    about: AtomicU64,
    high: AtomicU64,
    low: AtomicU64,
}

impl Slot {
    const fn new() -> Self {
        Slot { about: AtomicU64::new(0), high: AtomicU64::new(0), low: AtomicU64::new(0) }
    }
}

const KNOWN: u64 = 1 << 32;
const IPV6: u64 = 1 << 16;

/// The addresses that were asked for, by local port.
pub(crate) struct Peers {
    slots: [Slot; PORTS],
}

/// The one table of this process.
pub(crate) static PEERS: Peers = Peers::new();

impl Peers {
    const fn new() -> Self {
        Peers { slots: [const { Slot::new() }; PORTS] }
    }

    /// Records that the connection from `local_port` to the proxy is for one to `peer`.
    pub(crate) fn insert(&self, local_port: u16, peer: SocketAddr) {
        let (family, bits) = match peer.ip() {
            IpAddr::V4(ip) => (0, u128::from(u32::from(ip))),
            IpAddr::V6(ip) => (IPV6, u128::from(ip)),
        };
        let Some(slot) = self.slots.get(usize::from(local_port)) else { return };
        slot.about.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        slot.high.store((bits >> 64) as u64, Ordering::Relaxed);
        slot.low.store(bits as u64, Ordering::Relaxed);
        slot.about.store(KNOWN | family | u64::from(peer.port()), Ordering::Release);
    }

    /// Removes the record: the connection from `local_port` is not one of ours.
    pub(crate) fn remove(&self, local_port: u16) {
        if let Some(slot) = self.slots.get(usize::from(local_port)) {
            slot.about.store(0, Ordering::Release);
        }
    }

    /// The address recorded for `local_port`; `None` also while another thread is writing it.
    pub(crate) fn get(&self, local_port: u16) -> Option<SocketAddr> {
        let slot = self.slots.get(usize::from(local_port))?;
        let about = slot.about.load(Ordering::Acquire);
        let high = slot.high.load(Ordering::Relaxed);
        let low = slot.low.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        if about == 0 || slot.about.load(Ordering::Relaxed) != about {
            return None;
        }
        let bits = u128::from(high) << 64 | u128::from(low);
        let ip = if about & IPV6 != 0 {
            IpAddr::V6(Ipv6Addr::from(bits))
        } else {
            IpAddr::V4((bits as u32).into())
        };
        Some(SocketAddr::new(ip, about as u16))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_requested_address_is_returned_until_removed() {
        for (port, peer) in [(0, "192.0.2.7:80"), (65535, "[2001:db8::7]:65535"), (1, "1.2.3.4:0")]
        {
            let peer: SocketAddr = peer.parse().unwrap();
            assert_eq!(PEERS.get(port), None);
            PEERS.insert(port, peer);
            assert_eq!(PEERS.get(port), Some(peer));
            PEERS.remove(port);
            assert_eq!(PEERS.get(port), None);
        }
    }

    #[test]
    fn the_later_connection_of_a_port_is_returned() {
        PEERS.insert(77, "[2001:db8::1]:1".parse().unwrap());
        let later = "192.0.2.1:2".parse().unwrap();
        PEERS.insert(77, later);
        assert_eq!(PEERS.get(77), Some(later));
    }
}
