//! An IP network in virtual time: nodes, the links between them, and packets.
//!
//! A [`Network`] holds nodes of one type (an enum, if they differ), directed links that are
//! radios' own ([`lasthop_radio::Link`]), a forwarding table for each node and an agenda of
//! [`Event`]s. Everything follows from the seed in [`Config`]; the [`Trace`]'s hash stands for all
//! that happened.

mod context;
mod event;
pub mod host;
mod ids;
mod network;
mod packet;
mod route;
mod router;
mod shared;
mod tap;
#[cfg(test)]
mod tests;
mod timetable;
mod topology;
mod trace;
pub mod traffic;

pub use context::Context;
pub use event::Event;
pub use host::{App, Host};
pub use ids::{LinkId, NodeId};
pub use network::{Config, Halt, Limits, Network, Node};
pub use packet::{Body, Datagram, Ecn, Headers, IP_HEADER, Packet, Payload, Tunnel, UDP_HEADER};
pub use route::RouteTable;
pub use router::{Router, RouterStats};
pub use shared::Undelivered;
pub use tap::{Observer, SharedObserver, Sight, TapPoint};
pub use trace::{Trace, TraceStep};
