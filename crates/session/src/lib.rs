//! MHP: opening and relaying connections over a hop.
//!
//! [`Session`] maps streams of a hop transport to connections of applications; it is the same
//! machine at the mobile and at the base. [`Ingress`] understands what applications say at the
//! mobile's listener: SOCKS ([`socks`]) and HTTP ([`http`]). [`udp_sockets`] says whose each UDP socket is,
//! and [`udp_relay`] is how its datagrams cross the hop. [`UserFeedback`] turns what the user
//! wants into settings for the layers below. [`SignalPredictor`] foretells from the strength of the
//! signal that the link will be lost. All of them are machines: no clock, no socket; see
//! `docs/session.md` for the formats and the states.

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod acknowledge;
mod backlog;
mod carried;
mod conversation;
mod event;
mod feedback;
pub mod handoff;
pub mod http;
mod ingress;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod memory;
mod moving;
mod owned;
mod session;
mod signal_forecast;
pub mod socks;
pub mod station;
mod table;
pub mod udp_sockets;

pub use conversation::{Progress, Taken};
pub use event::{ConnId, Event};
pub use feedback::{FeedbackConfig, Layer, Setting, UserFeedback};
pub use ingress::Ingress;
pub use lasthop_hop::{RecvState, StreamError};
pub use lasthop_stream::SharesError;
pub use lasthop_wire::mhp::handoff::{Orphan, SessionId, SessionState, Ticket};
pub use lasthop_wire::mhp::reach::{Families, Reach};
pub use lasthop_wire::mhp::{HostName, NameError, Opening, Refusal, ResetReason, Target};
pub use lasthop_wire::mhp::{flow_worth, udp_relay};
pub use session::{Config, Session, Stats, left_over};
pub use signal_forecast::{Dbm, SignalConfig, SignalError, SignalPredictor};
