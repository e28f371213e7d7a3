//! The session's schemes by requirement: MHP, SPL, ITCP, SRP and MOB in a network.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says where it cannot go on")]

mod data;
mod handoff;
mod hops;
mod mobile_tcp;
mod opening;
mod passive;
mod prediction;
mod random;
mod world;
