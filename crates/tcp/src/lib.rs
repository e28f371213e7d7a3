//! A TCP endpoint as a machine.

#![no_std]

extern crate alloc;
