//! Real kernels in network namespaces: topologies, servers and clients for demonstrations and
//! end-to-end tests.
//!
//! [`topology::Lab`] is three hosts and two emulated links; [`cell::measure`] carries a transfer
//! across it by one [`scheme::Scheme`] and checks every byte.

pub mod air;
pub mod arrivals;
pub mod cell;
pub mod client;
pub mod condition;
pub mod content;
mod error;
pub mod http;
pub mod process;
mod program;
pub mod scheme;
pub mod tap;
pub mod topology;

pub use error::LabError;
pub use program::lasthop_program;
