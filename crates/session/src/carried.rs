//! What a connection carries from one hop to the next: where it goes, and bytes on their way.

use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddr};

use lasthop_hop::StreamId;
use lasthop_wire::mhp::Target;

use crate::backlog::Backlog;

/// Where a connection goes. Kept at the mobile while it is not answered, at the base for as long
/// as it lasts.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) target: Target,
    pub(crate) bound: Option<SocketAddr>,
    /// Who opens it: the fixed host, or the application where its address is known.
    pub(crate) from: Option<SocketAddr>,
}

impl Origin {
    /// Of a connection that is requested.
    pub(crate) fn new(target: Target, from: Option<SocketAddr>) -> Self {
        Self { target, bound: None, from }
    }

    /// Of a connection whose target means nothing any more.
    pub(crate) fn nowhere() -> Self {
        Self::new(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)).into(), None)
    }
}

/// Bytes that came along from an earlier hop.
#[derive(Debug, Default)]
pub(crate) struct CarriedBytes {
    /// In order; the caller has not taken them.
    pub(crate) unread: Backlog,
    /// The peer's end is behind the last byte that was received.
    pub(crate) ended: bool,
    /// For the peer, from `Conn::send_base` on, once it says what it has.
    pub(crate) resend: Vec<u8>,
    /// Mobile: what comes before `Conn::send_base` and may not be where it goes. The base has it, and may die with it.
    pub(crate) retained: Vec<u8>,
    /// What `resend` begins with may be such too.
    pub(crate) retains: bool,
    /// Of `resend`, what is on the new stream before the peer has reported what it has.
    pub(crate) early: Option<(u64, u64)>,
    /// Mobile: a tentative Reopened says that the base expects this byte. Base: so many bytes follow the one
    /// that it has reported.
    pub(crate) tentative: Option<u64>,
    /// The stream that carried the connection before.
    pub(crate) left: Option<Left>,
    /// Mobile: the first byte that the base before presumably lacked.
    pub(crate) presumed: Option<u64>,
    /// No stream will carry the connection any more: it is over when `unread` is read.
    pub(crate) over: bool,
}

/// A stream that carried a connection before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    pub(crate) stream: StreamId,
    /// The offset there of the first byte that its hop kept.
    start: u64,
    /// That of the same byte in the connection.
    at: u64,
}

impl Left {
    pub(crate) fn new(stream: StreamId, start: u64, at: u64) -> Self {
        Self { stream, start, at }
    }

    /// The connection's offset of what has this offset there.
    pub(crate) fn offset(&self, on_stream: u64) -> u64 {
        self.at + on_stream.saturating_sub(self.start)
    }
}

impl CarriedBytes {
    pub(crate) fn new(unread: Vec<u8>, ended: bool, resend: Vec<u8>) -> Self {
        Self { unread: Backlog::new(unread), ended, resend, ..Self::default() }
    }

    /// Bytes that it carries.
    pub(crate) fn len(&self) -> usize {
        self.unread.len() + self.resend.len() + self.retained.len()
    }
}
