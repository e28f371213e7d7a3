//! A TCP endpoint as a machine (RFC 9293): segments, time and link events go in; segments, timers
//! and events come out.
//!
//! A [`Connection`] works in sequence space and holds no bytes, so that a simulator can move bulk
//! data without copying it. A [`Socket`] is a connection with its bytes. The answer to loss is a
//! part of its own ([`response`]), and so is what a mobile end does at handoffs ([`mobility`]).

#![no_std]

extern crate alloc;

mod config;
mod connection;
mod ecn;
pub mod mobility;
mod receive;
pub mod response;
mod rtt;
mod sack;
mod socket;
mod stats;

pub use config::{
    BackoffReset, Coherence, Config, DelayedAck, LossBase, Persist, Rto, ShrunkWindow, Window,
};
pub use connection::{
    AckRequest, AckWindow, Arrival, Connection, Estimates, Event, NotAnOpening, Outgoing, Ports,
    Snapshot, State, reset_for,
};
pub use mobility::Mobility;
pub use response::Algorithm;
pub use rtt::RttState;
pub use socket::Socket;
pub use stats::{Probe, Stats};
