//! `split-tcp`: the hop crossed by kernel TCP, one connection for each stream (SPL-1), with the
//! congestion control of the operator's choice.
//!
//! What the peer's process has is acknowledged in records of the stream, and the rest is
//! kept: the streams can leave for another hop at any moment, and no byte is lost or doubled,
//! whatever the kernels had acknowledged (SPL-3, MHP-19).
//!
//! A mobile first makes a control connection and runs the seal's handshake on it. The keys serve
//! all streams of the association, so that a stream costs TCP's own round trip and no other: its
//! first segment names association and stream and carries the first sealed record.
//!
//! ```text
//! control:  "LHT" | version (1) | 0 | length (2) | init       <-  length (2) | reply
//!           then one record from the mobile, which proves that its init was no replay
//!           records from the base: the numbers (8 each) of streams that it opens
//! stream:   "LHT" | version (1) | 1 | association (4) | stream (8) | records
//! ```
//!
//! Only the mobile connects, which may be behind an address translator. A stream that the base
//! opens has an odd number, which it sends; the mobile gives it a connection whose first record is
//! empty, so that the base knows whose it is before it sends anything itself.
//!
//! Whoever speaks another version is answered with a reply of no length.
//!
//! Integers are big-endian. An association lives as long as its control connection or one of its
//! streams, and until its mobile has made another. A stream's number is accepted once, and only if its
//! first record opens.
//!
//! A base that has confirmed an association with a later stamp replies with that stamp, and closes.

mod base;
mod cipher;
mod control;
#[cfg(any(test, feature = "testing"))]
pub mod hostile;
mod inbound;
mod mobile;
mod outbound;
mod priority;
mod record;
mod report;
mod send_buffer;
mod stream;
mod streams;
mod wires;

#[cfg(test)]
mod tests;

pub(crate) use base::candidates::CANDIDATES_MAX;
pub(crate) use base::{Bounds, SplitBase};
pub(crate) use mobile::{Seal, SplitMobile};
pub use streams::SplitTcp;

use std::time::Duration;

use lasthop_hop::seal::{Hello, Limits};
use lasthop_session::ResetReason;

const MAGIC: &[u8; 3] = b"LHT";
/// Grows with the protocol. Both ends must have the same.
const VERSION: u8 = 2;
const KIND_CONTROL: u8 = 0;
const KIND_STREAM: u8 = 1;
/// Magic, version and kind.
const PREFACE_LEN: usize = 5;
/// A reply of no length: a base's answer to another version.
const REFUSAL: [u8; 2] = [0, 0];
/// A stream's preface: association and stream follow.
const STREAM_PREFACE_LEN: usize = PREFACE_LEN + 4 + 8;

/// How long a connection may take to authenticate itself, or the base to answer.
const GREETING_TIMEOUT: Duration = Duration::from_secs(10);

fn preface(kind: u8) -> [u8; PREFACE_LEN] {
    let [a, b, c] = *MAGIC;
    [a, b, c, VERSION, kind]
}

fn stream_preface(association: u32, stream: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(STREAM_PREFACE_LEN);
    out.extend_from_slice(&preface(KIND_STREAM));
    out.extend_from_slice(&association.to_be_bytes());
    out.extend_from_slice(&stream.to_be_bytes());
    out
}

/// What a reader sees when the connection below a stream broke.
fn lost() -> u64 {
    ResetReason::AssociationLost.code()
}

fn hello(receiver: u32, stamp: u64) -> Hello {
    Hello { receiver, fast_aes: lasthop_kernel::cpu::fast_aes(), stamp, limits: Limits::NONE }
}
