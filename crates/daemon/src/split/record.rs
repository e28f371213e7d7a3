//! Records on a kernel TCP connection: what turns a byte pipe into a stream with an end and a reset
//! that can be trusted, and with acknowledgements by the peer's process.
//!
//! ```text
//! length (2) | number (8) | type (1) | payload (0..=16384) | tag (16, sealed only)
//!
//! data (0)         bytes of the stream
//! end (1)          nothing: the stream ends here
//! reset (2)        code (8): both directions are aborted
//! acknowledge (3)  received (8) | limit (8)
//! ```
//!
//! Integers are big-endian. The length counts type, payload and tag. When the stream is sealed, type
//! and payload are encrypted, the number is the nonce, and the length is authenticated with the
//! record's place (see [`super::cipher`]). An end is a record, not only the kernel's FIN, so that
//! nobody on the path can cut a stream short and have it look complete.
//!
//! What the peer's kernel has acknowledged its process need not have, and dies with the connection.
//! So each side acknowledges what its process has, and the other keeps the rest: when the connection is
//! lost, the two ends know to the byte where to go on (MHP-19).

use super::cipher::{HEADER_LEN, TAG_LEN};

/// The most payload that one record carries.
pub(super) const PAYLOAD_MAX: usize = 16 * 1024;
pub(super) const TYPE: usize = 1;
/// What precedes a payload.
pub(super) const PREFIX: usize = HEADER_LEN + TYPE;
pub(super) const OVERHEAD: usize = PREFIX + TAG_LEN;
/// The longest record on the wire.
pub(super) const RECORD_MAX: usize = PAYLOAD_MAX + OVERHEAD;

pub(super) const DATA: u8 = 0;
pub(super) const FINISH: u8 = 1;
pub(super) const RESET: u8 = 2;
pub(super) const ACKNOWLEDGE: u8 = 3;

/// Payload of an acknowledgement.
pub(super) const ACK_LEN: usize = 16;

/// The window of each side before its first acknowledgement. Part of the protocol's version.
pub(super) const WINDOW_MIN: u64 = 256 * 1024;

/// An acknowledgement. Both numbers only ever grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ack {
    /// Bytes of the stream that the process has, in order from the first; the end counts as one more.
    pub(super) received: u64,
    /// Bytes that may be sent, from the stream's first. The receiver always finds room for so many,
    /// whether they are read from it or not: an acknowledgement never waits behind bytes that
    /// nobody reads, and a direction never waits for the other.
    pub(super) limit: u64,
}

impl Ack {
    /// What holds before the first acknowledgement.
    pub(super) const FIRST: Self = Self { received: 0, limit: WINDOW_MIN };

    pub(super) fn encode(self, out: &mut [u8; ACK_LEN]) {
        out[..8].copy_from_slice(&self.received.to_be_bytes());
        out[8..].copy_from_slice(&self.limit.to_be_bytes());
    }

    pub(super) fn decode(payload: &[u8]) -> Option<Self> {
        let (received, limit) = payload.split_first_chunk()?;
        let limit = <[u8; 8]>::try_from(limit).ok()?;
        Some(Self { received: u64::from_be_bytes(*received), limit: u64::from_be_bytes(limit) })
    }
}

/// The peer sent what no peer of ours sends, or somebody on the path changed it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Forged;
