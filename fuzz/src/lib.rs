//! What is done to each input by the fuzz targets. A check that fails panics.
//!
//! `fuzz_targets/` hands these functions to libFuzzer, `tests/smoke.rs` runs them for a moment on any
//! toolchain.

pub mod agent_messages;
pub mod agents;
pub mod associations;
pub mod bare;
pub mod beside;
pub mod datagram;
pub mod frames;
pub mod handoff;
pub mod handoff_messages;
pub mod handshake;
pub mod helper_messages;
pub mod http_connect;
pub mod image;
pub mod mhp;
pub mod mobile_ip;
pub mod mobile_tcp_packets;
pub mod netlink;
pub mod packet;
pub mod scenario;
pub mod socks5;
pub mod split_tcp;
pub mod srp;
pub mod station;
pub mod tcp;
pub mod tcp_streams;
pub mod udp_relay;
