//! Real kernels in network namespaces: topologies, servers and clients for demonstrations and
//! end-to-end tests.
//!
//! [`topology::Lab`] is three hosts and two emulated links; [`cell::measure`] carries a transfer
//! across it by one [`scheme::Scheme`] and checks every byte. [`roam::Roam`] has three bases and a mobile
//! that moves from one to the next.

pub mod agent;
pub mod air;
pub mod arrivals;
pub mod bond;
pub mod browser;
pub mod capture;
mod carrier;
pub mod cell;
pub mod client;
pub mod condition;
pub mod content;
pub mod crash;
mod error;
mod folder;
pub mod http;
pub mod journey;
pub mod kept;
mod key;
pub mod process;
mod program;
pub mod quic;
pub mod roam;
pub mod scheme;
pub mod service;
pub mod sharing;
mod sniffer;
pub mod talk;
pub mod tap;
pub mod topology;
pub mod traffic;
pub mod transfer;
pub mod voice;
pub mod wait;

pub use error::LabError;
pub use program::lasthop_program;
