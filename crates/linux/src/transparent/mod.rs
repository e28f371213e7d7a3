//! Connections without proxy settings: a mobile takes TCP that was meant for others, and a base
//! lets it leave from the mobile's own address and takes the answers.
//!
//! The kernel does the taking (TPROXY); lasthop puts the packet rules (`nft`), routing rules and
//! routes in and takes them out again, also those that an earlier process left behind.

mod config;
mod interception;
mod listener;
mod rules;
mod sources;
#[cfg(test)]
mod tests;

pub use config::{Numbers, TransparentConfig, TransparentFile};
pub use interception::TransparentError;
pub use sources::Sources;

pub(crate) use interception::Interception;
pub(crate) use listener::{Listener, Taken, Taking};
pub(crate) use sources::{Exit, Leave, socket_at};
