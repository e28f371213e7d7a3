//! Bare links, by explicit choice: the paper's frames of Mobile TCP with nothing around them.
//!
//! No seal, no handshake and no header but Mobile TCP's own (MOB-1). A peer is its address on the
//! carrier, and **anybody on such a hop can read, change and forge everything, and be anyone**. It
//! is for hops that are private by other means, and for measuring the paper's protocol.
//!
//! Connection IDs are unique among a base's connections with one mobile only: the address that a
//! frame comes from says which mobile's they are (MOB-18). A mobile that moves to another base gets
//! new ones there (MOB-38).
//!
//! The paper does not say how an end learns that the other was started anew, so that IDs and stream
//! numbers of two lives meet. Here a mobile greets the base with a random number of its life and
//! sends nothing else before the base has answered with a random number of its own. On a hop that
//! does not reorder, everything that comes after is of these two lives. A base to which a stranger
//! says anything but a greeting answers that it does not know it, and keeps nothing; the mobile
//! greets anew, and unless the base's answer has the number that it had before, old streams are
//! reset and new ones begin. `docs/mobile-tcp.md` has the bytes.

mod base;
mod mobile;

#[cfg(test)]
mod tests;

use lasthop_units::Time;

pub use base::{BareBase, BareBounds, BareLinks, BareStats};
pub use mobile::{BareLink, BareMobile};

use super::{Link, Opened, Written};
use crate::path_id::PathId;
use crate::transport::Transport;

/// The two ends' numbers of what stands between them, and what a base keeps of a mobile.
pub struct Bare {
    /// The mobile's.
    life: u64,
    /// The base's.
    instance: u64,
    /// When something last came from the peer.
    heard: Time,
    /// When a base looks next whether the mobile is still there.
    check_at: Option<Time>,
}

/// Packets are datagrams as they are.
impl Link for Bare {
    /// Whatever comes from the peer's address is the peer's.
    fn open<'d>(&mut self, now: Time, datagram: &'d mut [u8]) -> Option<Opened<'d>> {
        self.heard = now;
        Some(Opened { path: PathId::FIRST, number: 0, packet: datagram, locates: false })
    }

    fn write<T: Transport>(&mut self, now: Time, of: &mut T, out: &mut [u8]) -> Option<Written> {
        of.poll(now, 0, out).map(|packet| Written { path: packet.path, len: packet.len })
    }

    fn check_at(&self) -> Option<Time> {
        self.check_at
    }
}
