//! Bytes on the wire: hop datagrams, SRP frames, MHP messages, TCP/IP header views.

#![no_std]

extern crate alloc;
