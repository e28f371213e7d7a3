//! The session's schemes by requirement: MHP, SPL, ITCP and SRP in a network.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says where it cannot go on")]

mod data;
mod handoff;
mod hops;
mod opening;
mod passive;
mod random;
mod world;
