//! Ways of helping TCP across the hop, as nodes of a network.

use core::net::Ipv4Addr;

use lasthop_session::handoff::SessionId;
use lasthop_units::Duration;

mod base;
mod frozen;
mod lane;
mod mobile;
mod moved;
mod streams;
mod surrogates;
mod transport;

pub use base::{BaseConfig, BaseCounts, BaseStation};
pub use lane::Carriage;
pub use mobile::{Handoff, MobileConfig, MobileStation};
pub use streams::{HOP_PORT, TcpStreams};
pub use transport::{BaseHop, Hop, HopKind, LinkBeside, MobileHop, SRP_PORT, Standing};

/// What the layer below tells a mobile of bases. It comes as a [token](crate::net::Event::Token).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BaseNotice {
    /// The mobile is in the cell of this base (MHP-15).
    Here(Ipv4Addr),
    /// It will be in about so long, to the millisecond (MOB-39).
    Imminent(Ipv4Addr, Duration),
}

impl BaseNotice {
    /// The token.
    pub fn token(self) -> u64 {
        match self {
            Self::Here(base) => u64::from(base.to_bits()),
            Self::Imminent(base, lead) => {
                let ms = lead.as_millis().min(u128::from(u32::MAX - 1)) as u64;
                u64::from(base.to_bits()) | (ms + 1) << 32
            }
        }
    }

    /// What a token says.
    pub fn of_token(token: u64) -> Self {
        let base = Ipv4Addr::from_bits(token as u32);
        match (token >> 32).checked_sub(1) {
            None => Self::Here(base),
            Some(ms) => Self::Imminent(base, Duration::from_millis(ms)),
        }
    }
}

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
