//! Mobile TCP's packets (Haas and Warkhedi 2001, figures 3a and 3b): bytes and what they mean.
//!
//! There are two kinds, told apart by the first bit (MOB-12). Numbers are big-endian.
//!
//! | offset | data packet, 16 bytes | control packet, 28 bytes |
//! | --- | --- | --- |
//! | 0 | code bits | code bits |
//! | 2 | connection ID | connection ID |
//! | 4 | sequence number | sequence number |
//! | 6 | acknowledgement number | acknowledgement number |
//! | 8 | window | reverse connection ID |
//! | 10 | negative acknowledgement | checksum |
//! | 12 | data length | maximum buffer size |
//! | 14 | checksum | maximum packet size |
//! | 16 | data | destination port |
//! | 18 | | source port |
//! | 20 | | destination IPv4 address |
//! | 24 | | source IPv4 address |
//! | 28 | | [`Extensions`], in version 1 only |
//!
//! The checksum is the Internet checksum over header and data or extensions, with no pseudo header
//! (MOB-14). What follows the stated length pads the frame and is ignored. A length is stated by
//! the packet itself, so a packet needs nothing of the layer below it but its beginning.
//!
//! `docs/mobile-tcp.md` is the specification.

mod code;
mod control;
mod data;
mod extension;
mod seq;

use thiserror::Error;

pub use code::Code;
pub use control::{Control, short_code};
pub use data::DataHeader;
pub use extension::{Extension, Extensions};
pub use seq::{Cid, Seq16};

/// EtherType of frames that carry one bare Mobile TCP packet each, with nothing added: the first
/// of the two that IEEE 802 leaves to local experiments.
pub const ETHERTYPE: u16 = 0x88b5;
/// EtherType of frames that carry one hop datagram each ([`crate::datagram`]), behind its length
/// in two bytes, since short frames are padded: the second of the two for local experiments. Agents'
/// frames have the same type ([`crate::agent::beside`]).
pub const ETHERTYPE_HOP: u16 = 0x88b6;
/// The length of a hop datagram in a frame is less than this: frames that begin with this byte or a
/// higher one are somebody else's.
pub const HOP_LEN_END: u16 = 0xff00;
/// Bytes of a data packet's header (MOB-11).
pub const DATA_HEADER: usize = 16;
/// Bytes of a control packet (MOB-10), without extensions.
pub const CONTROL_HEADER: usize = 28;
/// The largest window, in bytes: half of the sequence space, so that comparing stays unambiguous
/// (MOB-13).
pub const MAX_WINDOW: u16 = 0x7fff;

/// Version of the paper's packets.
const PAPER: u8 = 0;
/// Version of a control packet with extensions.
const EXTENDED: u8 = 1;

const CONTROL_BIT: u16 = 0x8000;
const VERSION_SHIFT: u32 = 12;

/// Whether a packet with this first byte is Mobile TCP's. The hop datagrams of
/// [`crate::datagram`], which may share a carrier with it, begin with another one.
pub const fn is_mobile_tcp(first: u8) -> bool {
    matches!(first >> 4, 0x0 | 0x8 | 0x9)
}

/// Why bytes are no packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum DecodeError {
    /// Fewer bytes than the packet's header, or a length in it, asks for.
    #[error("{found} bytes of a Mobile TCP packet, at least {least} are needed")]
    Truncated {
        /// How many bytes there are.
        found: usize,
        /// How many are needed.
        least: usize,
    },
    /// A version that is not known here.
    #[error("a data packet of version {0}; version 0 is understood")]
    DataVersion(u8),
    /// A version that is not known here.
    #[error("a control packet of version {0}; versions 0 and 1 are understood")]
    ControlVersion(u8),
    /// The packet was changed on the way (MOB-14).
    #[error("the checksum is wrong")]
    Checksum,
    /// Code bits that only control packets have.
    #[error("a data packet with the code bits {0:?}, which only control packets have")]
    Code(Code),
    /// A window that would make sequence numbers ambiguous (MOB-13).
    #[error("a window of {0} bytes; at most 32767 can be told apart")]
    Window(u16),
    /// An extension of this type has a length that its type cannot have.
    #[error("an extension of type {kind} with {len} bytes")]
    Extension {
        /// The type.
        kind: u8,
        /// The length in its header.
        len: u16,
    },
}

/// A packet that cannot be written. Nothing is written then.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum EmitError {
    /// The buffer is too short.
    #[error("{found} bytes of room, the packet takes {needed}")]
    Room {
        /// How many bytes there are.
        found: usize,
        /// How many the packet takes.
        needed: usize,
    },
    /// The length field has 16 bits.
    #[error("{0} bytes do not fit: a length field counts to 65535")]
    TooLong(usize),
}

/// A packet, borrowing its data from the bytes that it was read from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Packet<'a> {
    /// Bytes of a connection, an acknowledgement, or both (figure 3b).
    Data(DataHeader, &'a [u8]),
    /// Opens, answers or refuses a connection, or concerns no connection (figure 3a). A packet of
    /// version 0 has no extensions; one of version 1 may have none either.
    Control(Control, Option<Extensions<'a>>),
}

impl<'a> Packet<'a> {
    /// Reads the packet at the start of `bytes` and checks version, lengths and checksum. What
    /// follows the packet's own length is padding and ignored.
    ///
    /// # Errors
    ///
    /// Names what is cut short, unknown, damaged or out of bounds.
    #[inline]
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let first =
            *bytes.first().ok_or(DecodeError::Truncated { found: 0, least: DATA_HEADER })?;
        let version = (first >> 4) & 7;
        match first & 0x80 != 0 {
            false if version == PAPER => data::decode(bytes).map(|(h, data)| Self::Data(h, data)),
            false => Err(DecodeError::DataVersion(version)),
            true => control::decode(version, bytes).map(|(c, e)| Self::Control(c, e)),
        }
    }
}

/// The header at the start of `bytes`.
#[inline]
fn header<const N: usize>(bytes: &[u8]) -> Result<&[u8; N], DecodeError> {
    bytes.first_chunk().ok_or(DecodeError::Truncated { found: bytes.len(), least: N })
}

/// The first `len` bytes of `out`, to be written.
#[inline]
fn room(out: &mut [u8], len: usize) -> Result<&mut [u8], EmitError> {
    let found = out.len();
    out.get_mut(..len).ok_or(EmitError::Room { found, needed: len })
}

#[inline]
fn get16<const N: usize>(header: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([header[at], header[at + 1]])
}

#[inline]
fn put16(out: &mut [u8], at: usize, n: u16) {
    out[at..at + 2].copy_from_slice(&n.to_be_bytes());
}

#[cfg(test)]
mod tests;
