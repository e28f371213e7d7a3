//! Connections without proxy settings: a mobile takes TCP that was meant for others, and a base
//! lets it leave from the mobile's own address and takes the answers.
//!
//! The kernel does the taking (TPROXY); lasthop puts the packet rules (`nft`), routing rules and
//! routes in and takes them out again, also those that an earlier process left behind. So that an
//! application's `connect` returns the fixed host's error, its SYN waits in a packet queue until that
//! is known.

mod config;
mod holding;
mod interception;
mod listener;
mod rules;
#[cfg(test)]
mod tests;
mod tunnel;

pub use config::{Numbers, TransparentConfig};
pub use interception::{TransparentError, TunnelError};

pub use holding::{Holding, Syn};
pub use interception::Interception;
pub use listener::{Listener, Taken};
pub use rules::Exceptions;
pub use tunnel::{BaseTunnel, MobileTunnel, Tunnel};
