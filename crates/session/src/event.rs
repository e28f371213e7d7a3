use core::fmt;
use core::net::SocketAddr;

use lasthop_wire::mhp::{Refusal, ResetReason, Target};

/// Names one connection of one session, at both its ends: the number of the stream that carried it
/// first, or a later one. It stays the same when the connection moves to another hop, and is never
/// reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnId(pub u64);

#[cfg(test)]
impl ConnId {
    /// The stream that carries a connection on a session's first hop.
    pub(crate) fn stream(self) -> lasthop_hop::StreamId {
        lasthop_hop::StreamId(self.0)
    }
}

impl fmt::Display for ConnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Something happened to a connection.
///
/// Every connection that the caller has, from `connect` or from [`Connect`](Self::Connect),
/// ends with exactly one [`Closed`](Self::Closed), and has no further events. Readable
/// and writable are edges, and may come when nothing changed: read or write until nothing moves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The requested connection stands and may be written to.
    Opened {
        /// Which.
        id: ConnId,
        /// The far side's own address; none yet with an early opening.
        bound: Option<SocketAddr>,
    },
    /// There is no connection. `Closed` follows.
    Failed {
        /// Which.
        id: ConnId,
        /// The far side's error (MHP-5).
        refusal: Refusal,
    },
    /// Base: a mobile wants a connection. Mobile: a fixed host does, if it
    /// [listens](crate::Session::set_listening). Answer with `accept` or `refuse`.
    Connect {
        /// Which.
        id: ConnId,
        /// Where to.
        target: Target,
        /// Who opens it: the application's own address, if the mobile sent it, or the fixed host's.
        source: Option<SocketAddr>,
    },
    /// Bytes, or the peer's end, can be read where there was nothing before.
    Readable(ConnId),
    /// There is room to write where there was none before.
    Writable(ConnId),
    /// The peer [has more](crate::Session::acknowledged) of a connection for which that is
    /// [reported](crate::Session::report_acknowledged).
    Acknowledged(ConnId),
    /// The peer gave the connection up, or the session did. `Closed` follows.
    Reset {
        /// Which.
        id: ConnId,
        /// Why.
        reason: ResetReason,
    },
    /// The connection is over in both directions and removed.
    Closed(ConnId),
}

impl Event {
    /// The connection that this is about.
    pub fn id(&self) -> ConnId {
        match self {
            Self::Opened { id, .. }
            | Self::Failed { id, .. }
            | Self::Connect { id, .. }
            | Self::Readable(id)
            | Self::Writable(id)
            | Self::Acknowledged(id)
            | Self::Reset { id, .. }
            | Self::Closed(id) => *id,
        }
    }
}
