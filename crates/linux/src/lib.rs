//! The Linux world: machines on kernel sockets.

pub mod base;
mod carrier;
mod clock;
pub mod config;
pub mod control;
pub mod cpu;
mod datagram;
mod dial;
mod driver;
pub mod emulator;
mod error;
mod hop;
pub mod keyfile;
pub mod mobile;
pub mod netns;
pub mod offload;
pub mod packet_socket;
pub mod publish;
mod reactor;
mod relay;
mod resolve;
mod slab;
pub mod split;
mod stop;
mod tcp;
pub mod tun;

pub use carrier::ether::{EtherError, Mac};
pub use error::RunError;
pub use stop::Stop;
pub use tcp::{Congestion, CongestionError};
