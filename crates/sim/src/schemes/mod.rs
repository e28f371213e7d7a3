//! Ways of helping TCP across the hop, as nodes of a network.

use core::net::Ipv4Addr;

use lasthop_session::handoff::SessionId;

mod base;
mod frozen;
pub mod journey;
mod mobile;
mod moved;
mod streams;
mod surrogate;
mod transport;

pub use base::{BaseConfig, BaseCounts, BaseStation};
pub use mobile::{Handoff, MobileConfig, MobileStation};
pub use streams::{HOP_PORT, TcpStreams};
pub use transport::{BaseHop, HopKind, MobileHop, SRP_PORT};

/// The UDP port of handoffs, at mobiles and at bases.
pub const HANDOFF_PORT: u16 = 4434;

/// A mobile names its session after itself: one mobile, one session.
pub const fn session_of(mobile: Ipv4Addr) -> SessionId {
    SessionId(mobile.to_bits() as u64)
}

/// Whose session it is.
pub const fn mobile_of(session: SessionId) -> Ipv4Addr {
    Ipv4Addr::from_bits(session.0 as u32)
}
