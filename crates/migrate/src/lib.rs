//! The wired connection itself moves: one base gives a kernel TCP connection away, another takes it,
//! with the same four-tuple, and the fixed host notices at most a pause (`TCP_REPAIR`).
//!
//! What needs a privilege is done by a small helper process, which does nothing else:
//! [`Admin`] asks, [`helper`] does. [`dump_all`] and [`restore_all`] turn connections into
//! [`Image`]s and back; [`Routing`] has the packets for the mobile's address follow.
//!
//! So that a base may also die, [`ack_filter`] bounds what its kernel acknowledges at what the mobile has, and
//! [`claim_all`] finds out for another base how far a connection is, from its [`Ticket`] and what its mobile says.
//!
//! The kernel must not answer for a connection while it is in no kernel: packets of its four-tuple
//! are dropped in both directions from before it is read out until it stands elsewhere, so that no
//! reset ever leaves.

pub mod ack_filter;
mod admin;
mod claim;
mod dump;
mod error;
mod form;
pub mod helper;
mod holding;
mod image;
mod message;
mod restore;
mod routing;
mod settings;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(test)]
mod tests;
mod ticket;
mod worker;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use serde::{Deserialize, Serialize};

pub use self::admin::Admin;
pub use self::claim::{Claim, ClaimError, Claimed, claim_all};
pub use self::dump::{Dumped, Failed, dump_all};
pub use self::error::MigrateError;
pub use self::form::ImageError;
pub use self::holding::{HeldFlow, Holding};
pub use self::image::{Held, Image};
pub use self::message::{NETWORKS_MAX, Route};
pub use self::restore::{restore_all, restore_unrouted};
pub use self::routing::{RouteMode, Routing};
pub use self::ticket::Ticket;
pub use self::worker::{Handle, Worker};

/// The four-tuple of a wired connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Flow {
    /// The mobile's end: its address, and the port that the base has chosen.
    pub local: SocketAddr,
    /// The fixed host.
    pub remote: SocketAddr,
}

impl Flow {
    /// Whose connection a socket is.
    ///
    /// # Errors
    ///
    /// It is not connected, or not over IP.
    pub fn of(fd: impl AsFd) -> io::Result<Self> {
        let fd = fd.as_fd();
        let not_connected = || io::Error::from(io::ErrorKind::NotConnected);
        let local = rustix::net::getsockname(fd)?;
        let remote = rustix::net::getpeername(fd)?.ok_or_else(not_connected)?;
        let ip = |address: rustix::net::SocketAddrAny| {
            SocketAddr::try_from(address)
                .map(lasthop_kernel::tcp::canonical)
                .map_err(io::Error::from)
        };
        Ok(Self { local: ip(local)?, remote: ip(remote)? })
    }

    /// Whether both ends can be those of a connection.
    fn is_sensible(&self) -> bool {
        let good = |a: SocketAddr| a.port() != 0 && is_unicast(a.ip());
        good(self.local) && good(self.remote) && self.local.is_ipv4() == self.remote.is_ipv4()
    }
}

/// Whether an address is some one host's.
fn is_unicast(ip: IpAddr) -> bool {
    let broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    !ip.is_unspecified() && !ip.is_multicast() && !broadcast
}

/// What the kernel holds unread of a connection that may move: it must move along, and fits an image
/// by far. Half the receive buffer, since the kernel counts its own book-keeping too.
const UNREAD_MAX: usize = 256 * 1024;

/// Bounds what the kernel holds unread of a connection that may move.
fn bound_unread(fd: impl AsFd) {
    // A socket that refuses still carries bytes.
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size(fd, UNREAD_MAX);
}

/// Asks whether connections of `address`, a mobile's, can move here: whether the helper answers, may
/// do what it must, and the kernel knows `TCP_REPAIR`. Without an address, whether those of any could for which the helper
/// works.
///
/// # Errors
///
/// One line that says what was tried, and what still works.
pub fn probe(admin: &mut Admin, address: impl Into<Option<IpAddr>>) -> Result<(), MigrateError> {
    admin.probe(address.into())
}
