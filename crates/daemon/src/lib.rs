//! Base and mobile: the machines of `lasthop-hop` and `lasthop-session` on kernel sockets.

mod backhaul;
pub mod base;
mod carrier;
pub mod config;
mod datagram;
mod dial;
mod driver;
mod error;
mod fleet;
mod handshake;
mod held;
mod hop;
mod hop_set;
pub mod keyfile;
pub mod mobile;
pub mod packets;
mod program_lookup;
pub mod publish;
mod relay;
mod resolve;
pub mod split;
pub mod transparent;
mod udp_relay;
mod upward;

pub use carrier::ether::EtherError;
pub use error::RunError;
