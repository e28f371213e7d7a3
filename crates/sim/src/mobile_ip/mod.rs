//! Mobile IP: how packets find a host that moves (MIP-1..9; RFC 5944, RFC 2003).
//!
//! Three machines: a [`HomeAgent`] that knows where its mobiles are and tunnels their packets
//! there, a [`ForeignAgent`] in each base station that advertises itself, passes registrations on
//! and is the tunnel's end, and a [`MobileRegistration`] in the mobile, which tells the layers
//! above of its handoffs ([`Upcall`]).
//!
//! In a network they are worn by nodes: [`HomeRouter`] is a node as it is; [`BaseIp`] and
//! [`MobileIp`] are the IP layer of nodes that do more.

mod advertiser;
mod codec;
mod foreign;
mod home;
mod message;
mod mobile;
mod node;
mod outbox;

pub use advertiser::AdvertiserConfig;
pub use foreign::{Delivery, ForeignAgent, ForeignAgentConfig, ForeignStats};
pub use home::{Binding, HomeAgent, HomeAgentConfig, HomeStats, Route, ServeError};
pub use message::{
    ALL_ROUTERS, ALL_SYSTEMS, Advertisement, BindingUpdate, Code, Envelope, Identification,
    Message, Prefix, REGISTRATION_PORT, Reply, Request, Role,
};
pub use mobile::{
    HandoffTiming, MobileConfig, MobileRegistration, MobileStats, MoveDetection, Upcall,
};
pub use node::{BaseIp, HomeRouter, MobileIp, Passage};
