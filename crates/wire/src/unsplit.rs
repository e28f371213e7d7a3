//! What a segment of an unsplit connection looks like on the hop: a compressed header in place of
//! those of IP and TCP (Haas and Warkhedi section 6; ALT-4, ALT-5).
//!
//! Addresses and ports are left out; a connection identifier (CID) that the receiver has allotted
//! stands for them. Nothing is sent as a difference to an earlier packet, so that a lost one breaks
//! no other. All numbers are big-endian.
//!
//! ```text
//!   0  1 0 1 0 | REPEAT | RRQ | RCR | RC     10 in the upper half tells it from IP and Mobile TCP
//!   1  0 | URGENT | OFFER | LABEL | DSCP | DF | ECN (2)
//!   2  CID
//!   4  TCP: sequence number
//!   8  TCP: acknowledgement number
//!  12  TCP: data offset and reserved bits, control bits
//!  14  TCP: window
//!  16  TCP: checksum, over the pseudo header too, as the far end computed it
//!  18  IP: time to live
//!  19  RRQ: next byte in sequence, 4; first byte held above the hole (NIS), 4
//!      OFFER: the CID that the answerer is to use, 2
//!      DSCP: traffic class without ECN, 1
//!      LABEL: IPv6 flow label, 3
//!      DF not set: IPv4 identification, 2
//!      URGENT: TCP urgent pointer, 2
//!      TCP options
//!      payload
//! ```
//!
//! The length is the carrier's. Of the IP header nothing is lost that an end sees: the identification
//! of a packet that may not be fragmented has no meaning (RFC 6864 section 4.1) and becomes zero, and
//! lengths and the IPv4 header's checksum are computed anew. The time to live is that which the
//! packet had when it was compressed.

mod bytes;
#[cfg(test)]
mod tests;

pub use bytes::{CompressError, ParseError, compress, expand, parse};

use crate::tcp::Seq;

/// Bytes of a compressed header that has none of the parts that may be left out.
pub const LEAST_LEN: u32 = 19;

/// The upper half of the first byte.
pub const MARK: u8 = 0xa0;

/// What the two halves of a hop say to each other in each compressed packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Header {
    /// The connection, as the receiver of the packet calls it in this direction (ALT-3).
    pub cid: u16,
    /// RC: the sender's retransmission cycle (MOB-28).
    pub cycle: bool,
    /// RCR: the retransmission cycle that the sender has received last (MOB-29).
    pub reply: bool,
    /// The half sends a copy, of its own accord and not the TCP behind it.
    pub repeat: bool,
    /// RRQ: what has come and what has not (MOB-23, MOB-26).
    pub request: Option<Request>,
    /// What the sender calls the connection, for one who does not know it (ALT-7).
    pub offer: Option<u16>,
}

/// What has come over the hop.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Request {
    /// All before it has come.
    pub ack: Seq,
    /// The next byte that has come: what lies between is missing. Equal to `ack` if nothing is
    /// (MOB-15).
    pub nis: Seq,
}

impl Header {
    /// Bytes that it takes beside TCP's options, for an IP header without traffic class, flow label
    /// or leave to fragment and a segment without urgent pointer.
    pub const fn header_len(&self) -> u32 {
        let request = if self.request.is_some() { 8 } else { 0 };
        let offer = if self.offer.is_some() { 2 } else { 0 };
        LEAST_LEN + request + offer
    }
}
