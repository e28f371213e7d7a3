//! Which UDP socket is whose, at the mobile and at the base.
//!
//! An application at the mobile has a UDP association (RFC 1928 section 7), which the mobile calls by
//! a [`SocketNumber`]. The base has a socket for each number of each mobile. Between them go the
//! records of [`udp_relay`](crate::udp_relay).

mod base;
mod mobile;

pub use base::{BaseSockets, Limits};
pub use lasthop_wire::mhp::udp_relay::SocketNumber;
pub use mobile::MobileSockets;
