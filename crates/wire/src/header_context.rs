//! Headers of IP and UDP that need not be repeated: what they have in common is a context (RFC 5795), and the rest follows from
//! the packet or is in front of it.
//!
//! The identification of IPv4 and the checksum of UDP stay. Lengths and the checksum of IPv4 are computed again.

use crate::checksum;
use crate::ip::{IPV4_HEADER, IPV6_HEADER, Protocol};
use crate::udp;

/// Bytes of headers of IP: IPv4 without options, and IPv6 without extensions.
const IPV4: usize = IPV4_HEADER as usize;
const IPV6: usize = IPV6_HEADER as usize;
/// And with that of UDP.
const V4: usize = (IPV4_HEADER + udp::HEADER) as usize;
const V6: usize = (IPV6_HEADER + udp::HEADER) as usize;
/// What is left out of them: all but identification and checksum, and all but the checksum.
const V4_LEFT_OUT: usize = V4 - 4;
const V6_LEFT_OUT: usize = V6 - 2;

/// What the headers of a flow's packets have in common, IP and UDP. Where packets differ are zeros.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeaderContext {
    /// Those of IPv4 have zeros behind them.
    bytes: [u8; V6],
}

/// Sets two bytes, where there are any.
fn put(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(place) = bytes.get_mut(at..at + 2) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}

impl HeaderContext {
    /// What the first bytes of a packet of `total` bytes have: `None` if they are no headers of IP and UDP, or any that
    /// would not be the same when they are put together again.
    pub fn of(start: &[u8], total: usize) -> Option<Self> {
        let mut bytes = [0; V6];
        let version = start.first()? >> 4;
        let headers = if version == 4 { V4 } else { V6 };
        bytes[..headers].copy_from_slice(start.get(..headers)?);
        let is = |at: usize, value: usize| {
            usize::from(u16::from_be_bytes([start[at], start[at + 1]])) == value
        };
        match version {
            4 => {
                // A fragment has no header of UDP, or not all that follows it.
                let whole = start[6] & 0x3f == 0 && start[7] == 0;
                let fits = start[0] == 0x45 && start[9] == Protocol::UDP.0 && whole;
                let lengths = is(2, total) && is(24, total.checked_sub(IPV4)?);
                // One that is right may have two forms, of which one is computed.
                put(&mut bytes, 10, 0);
                let sum = checksum::of(&bytes[..IPV4]).to_be_bytes();
                if !fits || !lengths || sum != start[10..12] {
                    return None;
                }
                for at in [2, 4, 24, 26] {
                    put(&mut bytes, at, 0);
                }
            }
            6 => {
                let payload = total.checked_sub(IPV6)?;
                if start[6] != Protocol::UDP.0 || !is(4, payload) || !is(44, payload) {
                    return None;
                }
                for at in [4, 44, 46] {
                    put(&mut bytes, at, 0);
                }
            }
            _ => return None,
        }
        Some(Self { bytes })
    }

    fn is_v4(&self) -> bool {
        self.bytes[0] >> 4 == 4
    }

    /// Bytes of a packet with these headers that need not be sent.
    pub fn left_out(&self) -> usize {
        if self.is_v4() { V4_LEFT_OUT } else { V6_LEFT_OUT }
    }

    /// Makes a packet with these headers one of which everything but the first [`left_out`](Self::left_out) bytes is enough.
    pub fn shorten(&self, packet: &mut [u8]) {
        // The identification takes the place of UDP's length.
        if self.is_v4() && packet.len() >= V4 {
            packet.copy_within(4..6, V4_LEFT_OUT);
        }
    }

    /// Makes a packet what it was before that.
    pub fn lengthen(packet: &mut [u8]) {
        if packet.first().is_some_and(|first| first >> 4 == 4) {
            let length = packet.len().saturating_sub(IPV4) as u16;
            put(packet, 24, length);
        }
    }

    /// Puts a packet together: of `packet` only the first [`left_out`](Self::left_out) bytes are missing. `None` if it is too
    /// short to be one.
    pub fn complete(&self, packet: &mut [u8]) -> Option<()> {
        let total = u16::try_from(packet.len()).ok()?;
        let left_out = self.left_out();
        if packet.len() < if self.is_v4() { V4 } else { V6 } {
            return None;
        }
        packet[..left_out].copy_from_slice(&self.bytes[..left_out]);
        if self.is_v4() {
            packet.copy_within(V4_LEFT_OUT..V4_LEFT_OUT + 2, 4);
            put(packet, 2, total);
            Self::lengthen(packet);
            let sum = checksum::of(&packet[..IPV4]);
            put(packet, 10, sum);
        } else {
            let payload = total - IPV6_HEADER as u16;
            put(packet, 4, payload);
            put(packet, 44, payload);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use crate::ip::{self, Addresses};

    fn packet(v6: bool, id: u16, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
        let (src, dst) = match v6 {
            false => ("10.0.0.1", "10.9.8.7"),
            true => ("fd00::1", "fd00::2"),
        };
        let between = Addresses::new(src.parse().unwrap(), dst.parse().unwrap()).unwrap();
        let mut packet = Vec::new();
        let header = ip::Header { id, ..ip::Header::new(between, Protocol::UDP) };
        header.emit(udp::HEADER as usize + payload.len(), &mut packet).unwrap();
        let header = udp::Header { src_port: ports.0, dst_port: ports.1 };
        header.emit(&between, payload, &mut packet).unwrap();
        packet
    }

    fn there_and_back(context: &HeaderContext, packet: &[u8]) {
        let mut sent = packet.to_vec();
        context.shorten(&mut sent);
        let rest = &sent[context.left_out()..];
        let mut got = vec![0xee; context.left_out()];
        got.extend_from_slice(rest);
        context.complete(&mut got).unwrap();
        assert_eq!(got, packet);
        HeaderContext::lengthen(&mut sent);
        assert_eq!(sent, packet);
    }

    proptest! {
        #[test]
        fn what_is_left_out_comes_back(
            v6: bool,
            ids: (u16, u16),
            ports: (u16, u16),
            payload in proptest::collection::vec(any::<u8>(), 0..200),
            other in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let one = packet(v6, ids.0, ports, &payload);
            let two = packet(v6, ids.1, ports, &other);
            let context = HeaderContext::of(&one, one.len()).unwrap();
            prop_assert_eq!(HeaderContext::of(&two, two.len()), Some(context));
            there_and_back(&context, &one);
            there_and_back(&context, &two);
            // The first bytes tell, of a packet that is cut.
            let headers = if v6 { V6 } else { V4 };
            prop_assert_eq!(HeaderContext::of(&one[..headers], one.len()), Some(context));
        }

        #[test]
        fn whatever_has_a_context_comes_back(v6: bool, at in 0_usize..48, to: u8, length in 0_usize..80) {
            let mut bytes = packet(v6, 7, (1000, 2000), &[1; 40]);
            bytes[at] = to;
            bytes.truncate(length);
            if let Some(context) = HeaderContext::of(&bytes, bytes.len()) {
                there_and_back(&context, &bytes);
            }
            let _ = HeaderContext::of(&bytes, length + 1);
        }
    }

    #[test]
    fn what_would_not_come_back_has_no_context() {
        let good = packet(false, 7, (1, 2), b"some");
        let of = |packet: &[u8]| HeaderContext::of(packet, packet.len());
        assert!(of(&good).is_some() && HeaderContext::of(&good, good.len() + 1).is_none());
        // Version, options, protocol, a fragment, lengths, and the checksum of IPv4.
        for (at, to) in [(0, 0x55), (0, 0x46), (9, 6), (6, 0x20), (7, 1), (3, 9), (25, 9), (10, 0)]
        {
            let mut bad = good.clone();
            bad[at] = to;
            assert_eq!(of(&bad), None, "byte {at}");
        }
        let six = packet(true, 0, (1, 2), b"some");
        for (at, to) in [(6, 44), (5, 9), (45, 9)] {
            let mut bad = six.clone();
            bad[at] = to;
            assert_eq!(of(&bad), None, "byte {at}");
        }
        let context = of(&good).unwrap();
        assert_eq!(context.complete(&mut [0; 27]), None);
        assert_eq!(context.complete(&mut vec![0; 1 << 16]), None);
    }
}
