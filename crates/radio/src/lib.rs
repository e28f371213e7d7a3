//! What a wireless hop does to packets.

#![no_std]

extern crate alloc;
