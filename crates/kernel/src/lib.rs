//! What Linux offers, wrapped: netlink, packet rules, namespaces, sockets of every kind, and the event
//! loop that waits for them. Nothing here knows a protocol of lasthop's. All `unsafe` is here.

pub mod accept;
pub mod clock;
mod coalesce;
pub mod cpu;
pub mod ethernet;
pub mod event_loop;
pub mod foreign;
pub mod frames;
pub mod inbox;
pub mod insist;
pub mod leave;
pub mod lock;
pub mod log_limit;
pub mod mac;
pub mod memory;
pub mod mmsg;
pub mod netlink;
pub mod netns;
pub mod network;
pub mod nft;
pub mod offload;
pub mod packet_batches;
pub mod packet_socket;
pub mod packet_tun;
pub mod reactor;
pub mod realtime;
pub mod reuseport;
pub mod slab;
pub mod sockopt;
pub mod stop;
pub mod tcp;
pub mod transparent;
pub mod tun;
pub mod turn;
pub mod udp;
pub mod wake;
