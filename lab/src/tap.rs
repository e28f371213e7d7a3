//! What crosses a radio of frames, by kind: every frame that either host sends, lost or not.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use lasthop_kernel::packet_socket::PacketSocket;

use crate::error::LabError;
use crate::sniffer::Sniffer;

const ARP: u16 = 0x0806;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const ICMPV6: u8 = 58;

/// What a frame carries.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// IPv4's question for an Ethernet address, or its answer.
    Arp,
    /// IPv6's neighbour discovery (RFC 4861) and group membership (RFC 3810).
    Neighbours,
    /// An IP packet of this protocol.
    Ip(u8),
    /// Anything else, by EtherType.
    Other(u16),
}

impl Kind {
    /// What an Ethernet frame carries.
    pub fn of(frame: &[u8]) -> Self {
        let at = |i: usize| frame.get(i).copied().unwrap_or(0);
        match u16::from_be_bytes([at(12), at(13)]) {
            ARP => Self::Arp,
            IPV4 => Self::Ip(at(14 + 9)),
            // Membership reports have a hop-by-hop header of 8 bytes before ICMPv6 (type 143).
            IPV6 if at(20) == 0 && at(54) == ICMPV6 && at(62) == 143 => Self::Neighbours,
            IPV6 if at(20) == ICMPV6 && (133..=137).contains(&at(54)) => Self::Neighbours,
            IPV6 => Self::Ip(at(20)),
            other => Self::Other(other),
        }
    }
}

/// Counts frames until it is dropped.
#[derive(Debug)]
pub struct Tap {
    kinds: Arc<Mutex<BTreeMap<Kind, u64>>>,
    _sniffer: Sniffer,
}

impl Tap {
    pub(crate) fn start(sockets: Vec<PacketSocket>) -> Result<Self, LabError> {
        let kinds: Arc<Mutex<BTreeMap<Kind, u64>>> = Arc::default();
        let counted = Arc::clone(&kinds);
        let count = move |_, frame: &[u8]| {
            *lock(&counted).entry(Kind::of(frame)).or_default() += 1;
        };
        let sniffer = Sniffer::start("tap", sockets, count)?;
        Ok(Self { kinds, _sniffer: sniffer })
    }

    /// How many frames of each kind there were so far.
    pub fn kinds(&self) -> BTreeMap<Kind, u64> {
        lock(&self.kinds).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_told_apart() {
        let frame = |ethertype: u16, at: &[(usize, u8)]| {
            let mut frame = [0; 100];
            frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
            at.iter().for_each(|(i, byte)| frame[*i] = *byte);
            Kind::of(&frame)
        };
        assert_eq!(frame(ARP, &[]), Kind::Arp);
        assert_eq!(frame(IPV4, &[(23, 6)]), Kind::Ip(6));
        assert_eq!(frame(IPV6, &[(20, 58), (54, 135)]), Kind::Neighbours);
        assert_eq!(frame(IPV6, &[(54, 58), (62, 143)]), Kind::Neighbours);
        assert_eq!(frame(IPV6, &[(20, 58), (54, 128)]), Kind::Ip(58));
        assert_eq!(frame(0x88b5, &[]), Kind::Other(0x88b5));
        assert_eq!(Kind::of(&[]), Kind::Other(0));
    }
}
