//! A TCP endpoint as a machine (RFC 9293): segments, time and link events go in; segments, timers
//! and events come out.
//!
//! A [`Connection`] works in sequence space and holds no bytes, so that a simulator can move bulk
//! data without copying it. A [`Socket`] is a connection with its bytes. The answer to loss is a
//! part of its own ([`response`]), and so is what a mobile end does at handoffs ([`mobility`]). Several
//! connections may be the subflows of one ([`multipath`]).

#![no_std]

extern crate alloc;

mod ack_request;
mod config;
mod connection;
mod ecn;
pub mod mobility;
pub mod multipath;
mod receive;
pub mod response;
mod rtt;
mod sack;
mod socket;
mod state;
mod stats;
mod window;

pub use ack_request::{AckRequest, AckWindow};
pub use config::{BackoffReset, Coherence, Config, DelayedAck, Persist, Rto, ShrunkWindow};
pub use connection::{
    Arrival, Connection, Estimates, Event, NotAnOpening, Outgoing, Ports, Snapshot, reset_for,
};
pub use mobility::Mobility;
pub use response::{Algorithm, LossBase};
pub use rtt::RttState;
pub use socket::Socket;
pub use state::State;
pub use stats::{Probe, Stats};
pub use window::Window;
