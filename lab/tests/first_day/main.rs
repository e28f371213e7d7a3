//! A first day with lasthop: what the README says, literally, and what a new user tries next.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;

mod helper;
mod keys;
mod names;
mod programs;
mod readme;
mod stage;
