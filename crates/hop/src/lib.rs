//! Transports over one hop, and the seal that protects them.
//!
//! Three layers, each replaceable: a carrier moves datagrams (it belongs to the world that runs the
//! machines), the seal authenticates and encrypts them, a transport makes them reliable
//! [`Streams`].

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod association;
mod config;
pub mod seal;
pub mod srp;
mod stats;
mod streams;

pub use association::{
    Association, AssociationEvent, AssociationId, Base, BaseStats, Mobile, MobileStats, Transmit,
};
pub use config::{Discipline, HopConfig, Limits, Window};
pub use stats::HopStats;
pub use streams::{Movable, RecvState, StreamError, StreamEvent, StreamId, StreamState, Streams};
