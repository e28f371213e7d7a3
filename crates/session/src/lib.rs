//! MHP: opening and relaying connections over a hop.

#![no_std]

extern crate alloc;
