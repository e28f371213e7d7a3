//! IPv6 extension headers (RFC 8200 section 4).

use super::BadPacket;
use crate::ip::IPV6_HEADER;

/// The most extension headers of one packet that are walked: each of RFC 8200 once, the destination
/// options twice, and one to spare.
pub const MOST_EXTENSIONS: usize = 8;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
/// RFC 4302.
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;

/// An option of one byte that only fills.
const PAD1: u8 = 0;
/// The option of jumbograms (RFC 2675 section 2).
const JUMBO: u8 = 0xc2;

/// What is at the end of the extension headers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    /// The last next-header number that can be read.
    pub(super) protocol: u8,
    /// Where that header begins; none where another fragment has it.
    pub(super) transport: Option<usize>,
    /// In a fragment what the fragment header says is behind it, which all fragments of the packet
    /// say alike.
    pub(super) fragment: Option<u8>,
}

impl Chain {
    /// Walks the headers of a packet from the one of kind `first` that is behind the IPv6 header.
    pub(super) fn walk(packet: &[u8], first: u8) -> Result<Self, BadPacket> {
        let (mut protocol, mut at) = (first, IPV6_HEADER as usize);
        let (mut fragment, mut fragmented) = (None, false);
        for nth in 0..=MOST_EXTENSIONS {
            let kind = protocol;
            if !matches!(kind, HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION) {
                return Ok(Self { protocol, transport: Some(at), fragment });
            }
            if (kind == HOP_BY_HOP && nth > 0) || (kind == FRAGMENT && fragmented) {
                return Err(BadPacket::Order(kind));
            }
            if nth == MOST_EXTENSIONS {
                break;
            }
            let header = header(packet, at, kind)?;
            if kind == HOP_BY_HOP && has_jumbo_option(header) {
                return Err(BadPacket::Jumbogram);
            }
            protocol = header[0];
            at += header.len();
            if kind == FRAGMENT {
                fragmented = true;
                let offset_and_more = u16::from_be_bytes([header[2], header[3]]);
                let (offset, more) = (offset_and_more >> 3, offset_and_more & 1 == 1);
                if offset > 0 || more {
                    fragment = Some(protocol);
                }
                if offset > 0 {
                    return Ok(Self { protocol, transport: None, fragment });
                }
            }
        }
        Err(BadPacket::LongChain)
    }
}

/// The extension header at `at`: eight bytes at least.
fn header(packet: &[u8], at: usize, kind: u8) -> Result<&[u8], BadPacket> {
    let truncated = |least| BadPacket::Truncated { found: packet.len(), least };
    let fixed = packet.get(at..at + 8).ok_or(truncated(at + 8))?;
    let length = usize::from(fixed[1]);
    let length = match kind {
        FRAGMENT => 8,
        AUTHENTICATION if length == 0 => {
            return Err(BadPacket::Length { field: "an authentication header", said: 8 });
        }
        AUTHENTICATION => (length + 2) * 4,
        _ => (length + 1) * 8,
    };
    packet.get(at..at + length).ok_or(truncated(at + length))
}

/// Whether the header behind the IPv6 header has the option of jumbograms.
pub(super) fn is_jumbo(packet: &[u8], next: u8) -> bool {
    let options = || header(packet, IPV6_HEADER as usize, HOP_BY_HOP);
    next == HOP_BY_HOP && options().is_ok_and(has_jumbo_option)
}

fn has_jumbo_option(header: &[u8]) -> bool {
    let mut options = header.get(2..).unwrap_or_default();
    loop {
        options = match *options {
            [JUMBO, ..] => return true,
            [PAD1, ref rest @ ..] => rest,
            [_, length, ref rest @ ..] => rest.get(usize::from(length)..).unwrap_or_default(),
            _ => return false,
        };
    }
}
