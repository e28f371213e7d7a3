//! One mobile's relation with one base: a transport on a link, and the way it is made, moved and
//! lost.
//!
//! [`MobileEnd`] is the end that asks, [`BaseEnd`] the end that answers for many. Both are machines
//! over an address type that is the carrier's own. Feed datagrams to `handle_datagram` as they come
//! (they are opened where they lie), call `poll_transmit` until it returns `None`, sleep until
//! `next_timeout`, then call `handle_timeout`.
//!
//! There are two kinds of link. On a [numbered](Numbered) one, sealed or plain, each datagram has a
//! header with the association's name and a number: [`Mobile`] and [`Base`]. On a [bare](BareBase)
//! one there is nothing but Mobile TCP's packets.

mod bare;
mod base;
mod mobile;
mod numbered;
mod part;
mod peers;
mod refusal;
mod stamps;

#[cfg(test)]
mod testbed;
#[cfg(test)]
mod tests;

use lasthop_units::Time;

pub use bare::{Bare, BareBase, BareBounds, BareLink, BareLinks, BareMobile, BareStats};
pub use base::{AssociationId, AssociationOf, AssociationView, BaseEnd, BaseLinks};
pub use mobile::{MobileEnd, MobileLink};
pub use numbered::{
    Base, BaseStats, GREETING_MAX, Mobile, MobileStats, Numbered, NumberedLink, NumberedLinks,
};
pub use part::{Owner, Part, Stray};
pub use refusal::{Refusal, Refusals, Refused};
pub use stamps::Stamps;

use self::peers::Peers;
use crate::config::Limits;
use crate::lane::PacketLane;
use crate::path_id::PathId;
use crate::seal::PublicKey;
use crate::srp::Srp;
use crate::stats::{HopStats, PathStats};
use crate::transport::{CloseReason, Role, Transport};

/// A datagram was written and is to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmit<A> {
    /// By which path. What begins an association goes by each that there is.
    pub path: PathId,
    /// Where to.
    pub to: A,
    /// How many bytes of the output buffer it takes.
    pub len: usize,
}

/// What happened to an association as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AssociationEvent {
    /// It stands: data can pass.
    Up,
    /// The peer's authentic datagrams come from another address, and ours go there from now on.
    Moved,
    /// It is over, and with it its streams.
    Lost(CloseReason),
}

/// One end's link state of an established association: how packets become datagrams.
pub trait Link {
    /// Opens a datagram where it lies; `None` if it is forged, damaged or known.
    fn open<'d>(&mut self, now: Time, datagram: &'d mut [u8]) -> Option<Opened<'d>>;

    /// Has the transport write its next packet, and makes a datagram of it.
    fn write<T: Transport>(&mut self, now: Time, of: &mut T, out: &mut [u8]) -> Option<Written>;

    /// Whether something has come from the peer since the association stands.
    fn has_received(&self) -> bool {
        true
    }

    /// The key of the mobile at the other end, where mobiles have keys.
    fn mobile(&self) -> Option<PublicKey> {
        None
    }

    /// When the base is to check whether the mobile is still there.
    fn check_at(&self) -> Option<Time> {
        None
    }

    /// Until when nothing may be sent, whatever the transport has.
    fn blocked_until(&self) -> Option<Time> {
        None
    }

    /// The peer's datagrams come from another address by a path.
    fn handle_moved(&mut self, _now: Time, _path: PathId) {}
}

/// A datagram was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    path: PathId,
    len: usize,
}

/// An authentic datagram that was not seen before.
#[derive(Clone, Copy, Debug)]
pub struct Opened<'d> {
    path: PathId,
    number: u64,
    packet: &'d [u8],
    /// The peer is where it came from.
    locates: bool,
}

/// An association that stands.
struct Standing<A, L> {
    link: L,
    peers: Peers<A>,
}

/// One end of an association, with the transport that it carries.
pub struct Association<A, T: Transport = Srp, L: Link = Numbered> {
    transport: T,
    /// Absent until the handshake is over.
    standing: Option<Standing<A, L>>,
}

impl<A: Copy + Eq, T: Transport, L: Link> Association<A, T, L> {
    /// `overhead` is what link and carrier add to each packet.
    fn new(config: &T::Config, role: Role, overhead: usize, now: Time) -> Self {
        Self { transport: T::new(config, role, overhead, now), standing: None }
    }

    fn establish(&mut self, now: Time, link: L, peer: A, limits: &Limits) {
        self.standing = Some(Standing { link, peers: Peers::new(peer) });
        self.transport.establish(now, limits);
    }

    fn link(&self) -> Option<&L> {
        self.standing.as_ref().map(|standing| &standing.link)
    }

    fn link_mut(&mut self) -> Option<&mut L> {
        self.standing.as_mut().map(|standing| &mut standing.link)
    }

    /// The key of the mobile at the other end, where mobiles have keys.
    fn mobile(&self) -> Option<PublicKey> {
        self.link()?.mobile()
    }

    /// The address that datagrams of the first path go to, once the association stands.
    pub fn peer(&self) -> Option<A> {
        self.peer_by(PathId::FIRST)
    }

    /// The same of any path.
    fn peer_by(&self, path: PathId) -> Option<A> {
        self.standing.as_ref()?.peers.of(path)
    }

    /// There is another path to the peer, which is there at this address: false if the transport has no use for it.
    fn add_path(&mut self, now: Time, path: PathId, peer: A) -> bool {
        let Some(standing) = &mut self.standing else { return false };
        let is_used = self.transport.add_path(now, path);
        if is_used {
            standing.peers.set(path, peer);
        }
        is_used
    }

    /// The transport, for what only it has. Handshakes, datagrams and timers are the association's.
    pub fn transport(&self) -> &T {
        &self.transport
    }

    /// The transport, to ask of it what only it can do: Mobile TCP's listening, for instance.
    pub fn transport_mut(&mut self) -> &mut T {
        &mut self.transport
    }

    /// Packets beside the streams, where the transport has them and the peer takes them.
    pub fn packets(&mut self) -> Option<&mut PacketLane> {
        self.transport.packets()
    }

    /// The same, if any were sent or have come.
    pub fn packets_so_far(&mut self) -> Option<&mut PacketLane> {
        self.transport.packets_so_far()
    }

    /// Counters and present values of the transport.
    pub fn stats(&self) -> HopStats {
        self.transport.stats()
    }

    /// Its paths, and where the peer is by each, where the transport has several.
    pub fn paths(&self) -> impl Iterator<Item = (PathStats, Option<A>)> {
        self.transport.path_stats().map(|stats| (stats, self.peer_by(stats.id)))
    }

    /// Closes the association and sends that to the peer; streams are gone.
    pub fn close(&mut self, reason: CloseReason) {
        self.transport.close(reason);
    }

    /// Why the association ended, if it has.
    pub fn closed(&self) -> Option<CloseReason> {
        self.transport.closed()
    }

    /// The peer is at another address by a path.
    fn set_peer(&mut self, now: Time, path: PathId, peer: A) {
        let standing = self.standing.as_mut().filter(|standing| standing.peers.of(path).is_some());
        if let Some(standing) = standing {
            standing.peers.set(path, peer);
            self.transport.handle_moved(now, path);
        }
    }

    /// Takes in a datagram: `None` if it is refused and nothing has changed, else whether it moved
    /// the association to another address.
    fn handle_datagram(&mut self, now: Time, from: A, datagram: &mut [u8]) -> Option<bool> {
        let opened = self.link_mut()?.open(now, datagram)?;
        Some(self.handle_opened(now, from, opened))
    }

    /// Takes in what was opened: whether it moved the association to another address.
    fn handle_opened(&mut self, now: Time, from: A, opened: Opened<'_>) -> bool {
        let Opened { path, number, packet, locates } = opened;
        let known = self.peer_by(path);
        let is_elsewhere = locates && known != Some(from);
        let has_moved = is_elsewhere && known.is_some();
        if has_moved {
            self.set_peer(now, path, from);
        }
        if (has_moved || is_elsewhere && self.add_path(now, path, from))
            && let Some(link) = self.link_mut()
        {
            link.handle_moved(now, path);
        }
        self.transport.handle(now, path, number, packet);
        has_moved
    }

    fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit<A>> {
        let standing = self.standing.as_mut()?;
        let Written { path, len } = standing.link.write(now, &mut self.transport, out)?;
        Some(Transmit { path, to: standing.peers.of(path)?, len })
    }

    fn next_timeout(&self) -> Option<Time> {
        let link = self.link()?;
        let timers = match link.blocked_until() {
            // What is due of a transport that may not send waits, but for what has come.
            Some(until) => [Some(until), self.transport.next_delivery()],
            None => [self.transport.next_timeout(), link.check_at()],
        };
        timers.into_iter().flatten().min()
    }
}

crate::streams_of!(
    [A: Copy + Eq, T: Transport, L: Link] Association<A, T, L>,
    |it| it.transport, it.transport
);
