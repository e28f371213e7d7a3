//! Transports over one hop, and the seal that protects them.
//!
//! Three layers, each replaceable: a carrier moves datagrams (it belongs to the world that runs the
//! machines), the seal authenticates and encrypts them, a transport makes them reliable
//! [`Streams`]. [`Mobile`] and [`Base`] join seal and transport; [`BareMobile`] and [`BareBase`] go
//! without the seal and all that belongs to it, on the same [`MobileEnd`] and [`BaseEnd`].

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod association;
mod clients;
mod config;
mod evidence;
mod greeting;
mod lane;
mod memory;
pub mod mobile_tcp;
mod packet_class;
mod packets;
mod path_id;
mod policy;
mod saved_path;
mod schedule;
pub mod seal;
pub mod srp;
mod stats;
mod streams;
mod tokens;
mod transport;
mod unreachable;

pub use association::{
    Association, AssociationEvent, AssociationId, AssociationOf, AssociationView, Bare, BareBase,
    BareBounds, BareLink, BareLinks, BareMobile, BareStats, Base, BaseEnd, BaseLinks, BaseStats,
    GREETING_MAX, Link, Mobile, MobileEnd, MobileLink, MobileStats, Numbered, NumberedLink,
    NumberedLinks, Opened, Owner, Part, Refusal, Refusals, Refused, Stamps, Stray, Transmit,
};
pub use config::{Discipline, HopConfig, Limits, Window};
pub use evidence::Evidence;
pub use lane::PacketLane;
pub use memory::{Lease, Memory};
pub use packet_class::PacketClass;
pub use packets::{OutgoingPacket, PacketError, PacketStats};
pub use path_id::{PATHS_MAX, PathId, PathNumbers, PathSet};
pub use policy::{PathStatus, Policy};
pub use saved_path::SavedPath;
pub use stats::{HopStats, PathStats};
pub use streams::{RecvState, StreamError, StreamEvent, StreamId, StreamState, Streams};
pub use transport::{CloseReason, LOST, Packet, Role, Transport};
pub use unreachable::Unreachable;
