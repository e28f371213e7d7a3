//! Mobile TCP: reliable streams over one hop, with no IP and no congestion control (Haas and
//! Warkhedi 2001).
//!
//! The paper's idea is that one hop never reorders, so that its transport can be as light as a link
//! layer (section 3.1). A gap is a loss at once, and its receiver asks for it with every packet that
//! comes above it, naming both of its ends (MOB-23, MOB-26); two bits tell a request that asks for
//! a repetition that was lost from one that merely left before the repetition came (MOB-28 to
//! MOB-30). Windows alone bound what is on its way (MOB-19), one timer of 200 ms does the rest
//! (MOB-34). Addresses travel with the opening; afterwards 16 bits name the connection (MOB-16).
//!
//! [`Connection`] is one connection's engine and stands alone. [`MobileTcp`] has all connections of
//! one mobile with one base, as [`Streams`](crate::Streams).
//!
//! Where the paper is silent: an opening is answered when the fixed host has answered (MOB-7); a
//! reset is repeated until the peer acknowledges it, since one hop loses many packets; an
//! empty packet with [`PSH`](lasthop_wire::mobile_tcp::Code::PSH) asks for an acknowledgement at
//! once, and so for a window that was closed.

mod config;
mod connection;
mod control;
mod division;
mod endpoint;
mod entry;
mod head;
mod input;
mod listen;
mod output;
mod ports;
mod priority;
mod reply;
mod stats;
mod streams;
mod transport;

#[cfg(test)]
mod tests;

pub use config::Config;
pub use connection::{Connection, Terms};
pub use endpoint::MobileTcp;
pub use input::Error;
pub use stats::Stats;
