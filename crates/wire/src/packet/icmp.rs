//! ICMP errors about packets that do not cross (RFC 792, RFC 4443).

use core::net::IpAddr;

use super::Packet;
use crate::checksum;
use crate::ip::{Addresses, Header, Protocol};

/// The bytes that an IPv4 error has at most (RFC 1812 section 4.3.2.3).
const LONGEST_V4: usize = 576;
/// Those of an IPv6 error: the least MTU (RFC 4443 section 2.4(c)).
const LONGEST_V6: usize = 1280;
/// Bytes of the header of an error.
const ICMP_HEADER: usize = 8;
/// The class of errors: internetwork control (RFC 1812 section 4.3.2.5).
const TRAFFIC_CLASS: u8 = 0xc0;

/// Why a packet does not cross.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IcmpError {
    /// It is longer than what crosses. For IPv4 it is due only where the packet may not be fragmented
    /// (RFC 1191 section 3).
    TooBig {
        /// The longest packet that crosses, bytes. IPv6 hosts do not go below 1280 (RFC 8201
        /// section 4).
        mtu: u16,
    },
    /// An operator does not let it.
    Prohibited,
    /// Its destination is not reached on the last link.
    HostUnreachable,
    /// Nobody is at its port.
    PortUnreachable,
    /// Nothing leads to its destination.
    NoRoute,
}

impl IcmpError {
    /// Type, code and the second word of the header.
    const fn fields(self, v4: bool) -> (u8, u8, u32) {
        // Destination unreachable (RFC 792, RFC 1812 section 5.2.7.1; RFC 4443 section 3.1).
        let unreachable = if v4 { 3 } else { 1 };
        match (self, v4) {
            (Self::TooBig { mtu }, true) => (unreachable, 4, mtu as u32),
            (Self::TooBig { mtu }, false) => (2, 0, mtu as u32),
            (Self::Prohibited, true) => (unreachable, 13, 0),
            (Self::Prohibited, false) => (unreachable, 1, 0),
            (Self::HostUnreachable, true) => (unreachable, 1, 0),
            (Self::HostUnreachable, false) => (unreachable, 3, 0),
            (Self::PortUnreachable, true) => (unreachable, 3, 0),
            (Self::PortUnreachable, false) => (unreachable, 4, 0),
            (Self::NoRoute, _) => (unreachable, 0, 0),
        }
    }
}

/// Writes the packet that tells the sender of `of` of the error, with `from` as its source, to the
/// start of `out`, and gives its length: at most 576 bytes for IPv4, 1280 for IPv6.
///
/// `None` where no error may be sent (RFC 1122 section 3.2.2, RFC 4443 section 2.4(e)): about an ICMP
/// error or redirect, about a fragment that is not the first, about what goes to or comes from a group
/// or nobody in particular, or about what [`Packet::inspect`] refuses otherwise; where `from` is of
/// another version; and where `out` has no room. How many are sent is the caller's matter (RFC 4443
/// section 2.4(f)).
pub fn icmp_error(error: IcmpError, of: &[u8], from: IpAddr, out: &mut [u8]) -> Option<usize> {
    let packet = Packet::inspect(of).ok()?;
    if !deserves_errors(&packet, of) {
        return None;
    }
    let addresses = Addresses::new(from, packet.source()).ok()?;
    let (v4, protocol, longest) = match addresses {
        Addresses::V4 { .. } => (true, Protocol::ICMP, LONGEST_V4),
        Addresses::V6 { .. } => (false, Protocol::ICMPV6, LONGEST_V6),
    };
    let before = addresses.header_len() as usize;
    let length = longest.min(before + ICMP_HEADER + of.len());
    let whole = out.get_mut(..length)?;
    let icmp = whole.get_mut(before..)?;
    let (header, quoted) = icmp.split_at_mut_checked(ICMP_HEADER)?;
    let (kind, code, word) = error.fields(v4);
    header[..4].copy_from_slice(&[kind, code, 0, 0]);
    header[4..].copy_from_slice(&word.to_be_bytes());
    quoted.copy_from_slice(of.get(..quoted.len())?);
    let checksum = if v4 { checksum::of(icmp) } else { addresses.checksum(protocol, icmp) };
    icmp[2..4].copy_from_slice(&checksum.to_be_bytes());
    let header = Header { traffic_class: TRAFFIC_CLASS, ..Header::new(addresses, protocol) };
    header.emit_in_place(whole).ok()?;
    Some(length)
}

/// Whether errors may be sent about a packet.
fn deserves_errors(packet: &Packet, bytes: &[u8]) -> bool {
    // Only a first fragment, or a whole packet, has a transport's header.
    let Some(transport) = packet.transport else { return false };
    let kind = bytes.get(transport).copied();
    match (packet.addresses, packet.protocol, kind) {
        // Unreachable, source quench, redirect, time exceeded, parameter problem.
        (Addresses::V4 { .. }, Protocol::ICMP, kind) => {
            !matches!(kind, None | Some(3 | 4 | 5 | 11 | 12))
        }
        // Types below 128 are errors; 137 is a redirect.
        (Addresses::V6 { .. }, Protocol::ICMPV6, kind) => {
            !matches!(kind, None | Some(0..=127 | 137))
        }
        _ => true,
    }
}
