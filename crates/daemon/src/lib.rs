//! Base and mobile: the machines of `lasthop-hop` and `lasthop-session` on kernel sockets.

mod backhaul;
pub mod base;
mod carrier;
pub mod config;
mod datagram;
mod dial;
mod driver;
mod error;
mod handshake;
mod hop;
pub mod keyfile;
pub mod mobile;
mod programs;
pub mod publish;
mod relay;
mod resolve;
mod several;
pub mod split;
pub mod transparent;

pub use carrier::ether::EtherError;
pub use error::RunError;
