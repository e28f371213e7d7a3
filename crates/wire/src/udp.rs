//! UDP datagrams (RFC 768).

use alloc::vec::Vec;

use etherparse::UdpHeader;
use thiserror::Error;

use crate::ip::{Addresses, Protocol};

/// Bytes of a UDP header.
pub const HEADER: u32 = UdpHeader::LEN as u32;

/// Where the checksum is in a header.
const CHECKSUM: core::ops::Range<usize> = 6..8;

/// Why bytes are not the UDP datagram they were taken for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ParseError {
    /// Fewer bytes than the header, or the length in it, asks for.
    #[error("{found} bytes of a UDP datagram, at least {least} are needed")]
    Truncated {
        /// How many bytes there are.
        found: usize,
        /// How many are needed.
        least: usize,
    },
    /// The length does not even cover the header.
    #[error("a UDP length of {0} bytes, at least 8 are needed")]
    Length(u16),
    /// The datagram was changed on the way, belongs to other addresses, or came over IPv6 without
    /// a checksum (RFC 8200 section 8.1).
    #[error("the UDP checksum is wrong")]
    Checksum,
}

/// A datagram that cannot be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum EmitError {
    /// The length field has 16 bits.
    #[error("{0} bytes of payload do not fit into a UDP datagram, which has at most 65527")]
    TooLong(usize),
}

/// What a UDP header says, apart from length and checksum.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Header {
    /// The sender's port.
    pub src_port: u16,
    /// The receiver's port.
    pub dst_port: u16,
}

impl Header {
    /// Appends header and payload, with the checksum for `between`.
    ///
    /// # Errors
    ///
    /// The payload is too long; nothing is written.
    pub fn emit(
        &self,
        between: &Addresses,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), EmitError> {
        let length = u16::try_from(UdpHeader::LEN + payload.len())
            .map_err(|_| EmitError::TooLong(payload.len()))?;
        let header = UdpHeader {
            source_port: self.src_port,
            destination_port: self.dst_port,
            length,
            checksum: 0,
        };
        let start = out.len();
        out.extend_from_slice(&header.to_bytes());
        out.extend_from_slice(payload);
        let datagram = &mut out[start..];
        // Zero would say that there is none.
        let checksum = match between.checksum(Protocol::UDP, datagram) {
            0 => u16::MAX,
            checksum => checksum,
        };
        datagram[CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
        Ok(())
    }

    /// Reads a datagram, the whole payload of an IP packet, and checks its checksum; over IPv4 one
    /// that has none passes. Bytes beyond the datagram's own length are no part of it.
    ///
    /// # Errors
    ///
    /// Names what is cut short, malformed or damaged.
    pub fn parse<'a>(between: &Addresses, bytes: &'a [u8]) -> Result<(Self, &'a [u8]), ParseError> {
        let (header, _) = UdpHeader::from_slice(bytes)
            .map_err(|e| ParseError::Truncated { found: e.len, least: e.required_len })?;
        let length = usize::from(header.length);
        if length < UdpHeader::LEN {
            return Err(ParseError::Length(header.length));
        }
        let datagram = bytes
            .get(..length)
            .ok_or(ParseError::Truncated { found: bytes.len(), least: length })?;
        let none = header.checksum == 0 && matches!(between, Addresses::V4 { .. });
        if !none && (header.checksum == 0 || between.checksum(Protocol::UDP, datagram) != 0) {
            return Err(ParseError::Checksum);
        }
        let parsed = Self { src_port: header.source_port, dst_port: header.destination_port };
        Ok((parsed, &datagram[UdpHeader::LEN..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};
    use proptest::prelude::*;

    const V4: Addresses = Addresses::V4 { src: Ipv4Addr::LOCALHOST, dst: Ipv4Addr::LOCALHOST };
    const V6: Addresses = Addresses::V6 { src: Ipv6Addr::LOCALHOST, dst: Ipv6Addr::LOCALHOST };

    fn emitted(header: Header, between: &Addresses, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        header.emit(between, payload, &mut out).unwrap();
        out
    }

    #[test]
    fn a_checksum_may_be_left_out_over_ipv4_only() {
        for (between, none) in [(V4, Ok(())), (V6, Err(ParseError::Checksum))] {
            let mut bytes = emitted(Header::default(), &between, b"x");
            bytes[CHECKSUM].fill(0);
            assert_eq!(Header::parse(&between, &bytes).map(|_| ()), none);
        }
    }

    #[test]
    fn a_checksum_of_zero_is_sent_as_its_other_form() {
        // Among all 65 536 pairs of bytes one makes the checksum zero.
        let zeros = (0..=u16::MAX).filter(|n| {
            let bytes = emitted(Header::default(), &V4, &n.to_be_bytes());
            assert_ne!(bytes[CHECKSUM], [0, 0]);
            assert!(Header::parse(&V4, &bytes).is_ok());
            bytes[CHECKSUM] == [0xff, 0xff]
        });
        assert_eq!(zeros.count(), 1);
    }

    #[test]
    fn what_is_cut_short_damaged_or_too_long_is_refused() {
        let bytes = emitted(Header { src_port: 1, dst_port: 2 }, &V4, b"abc");
        for cut in 0..bytes.len() {
            assert!(matches!(Header::parse(&V4, &bytes[..cut]), Err(ParseError::Truncated { .. })));
        }
        let mut damaged = bytes.clone();
        damaged[9] ^= 1;
        assert_eq!(Header::parse(&V4, &damaged), Err(ParseError::Checksum));
        damaged[5] = 7;
        assert_eq!(Header::parse(&V4, &damaged), Err(ParseError::Length(7)));
        let mut out = Vec::new();
        let long = [0; 65_528];
        assert_eq!(Header::default().emit(&V4, &long, &mut out), Err(EmitError::TooLong(65_528)));
        assert!(out.is_empty());
    }

    proptest! {
        #[test]
        fn every_datagram_comes_back(ports: (u16, u16), v6: bool, payload: Vec<u8>, after: u8) {
            let between = if v6 { V6 } else { V4 };
            let header = Header { src_port: ports.0, dst_port: ports.1 };
            let mut bytes = emitted(header, &between, &payload);
            prop_assert_eq!(bytes.len(), HEADER as usize + payload.len());
            bytes.push(after);
            prop_assert_eq!(Header::parse(&between, &bytes), Ok((header, &payload[..])));
        }

        #[test]
        fn arbitrary_bytes_make_nothing_panic(bytes: Vec<u8>) {
            let _ = Header::parse(&V4, &bytes);
            let _ = Header::parse(&V6, &bytes);
        }
    }
}
