//! Bytes on the wire: hop datagrams, SRP frames, Mobile TCP packets, MHP messages, TCP/IP header
//! views.

#![no_std]

extern crate alloc;

pub mod agent;
pub mod checksum;
pub mod datagram;
pub mod frame;
pub mod header_context;
pub mod ip;
mod kinds;
pub mod mhp;
pub mod mobile_tcp;
pub mod packet;
pub mod tcp;
pub mod udp;
pub mod unsplit;
pub mod varint;
