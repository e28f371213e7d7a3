//! Helpers in the path of other people's TCP, between two interfaces of a Linux host: the machines of
//! `lasthop-agent` on real packets.
//!
//! The two interfaces are ports of a bridge, and the bridge forwards everything. An [`Agent`] reads copies
//! of the TCP packets that cross it (`AF_PACKET`), puts them through its machines and sends what comes
//! out, while a packet rule keeps the bridge from forwarding the same packets. The rule belongs to the
//! process: when that ends, however it ends, the bridge forwards those packets as well.
//!
//! Packets with VLAN tags, fragments, IPv6 packets with extension headers and everything that is no TCP
//! never reach the agent.

mod beside;
mod chain;
mod config;
mod engine;
mod error;
mod ethernet;
mod filter;
mod flows;
mod forwarder;
mod frame;
mod gate;
mod header;
mod interfaces;
mod machine;
mod peer;
mod pool;
mod port;
mod ranks;
mod stations;
mod view;

pub use config::{AgentConfig, AgentFile, Total};
pub use engine::Agent;
pub use error::AgentError;
