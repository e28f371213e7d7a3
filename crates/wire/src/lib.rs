//! Bytes on the wire: hop datagrams, SRP frames, MHP messages, TCP/IP header views.

#![no_std]

extern crate alloc;

pub mod agent;
pub mod datagram;
pub mod frame;
pub mod ip;
pub mod mhp;
pub mod tcp;
pub mod udp;
pub mod varint;
