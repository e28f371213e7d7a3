//! Transports over one hop, and the seal that protects them.
//!
//! Three layers, each replaceable: a carrier moves datagrams (it belongs to the world that runs the
//! machines), the seal authenticates and encrypts them, a transport makes them reliable
//! [`Streams`].

#![no_std]

extern crate alloc;

mod streams;

pub use streams::{RecvState, StreamError, StreamEvent, StreamId, Streams};
