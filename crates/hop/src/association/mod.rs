//! One mobile's authenticated relation with one base: seal and transport joined, and the way it is
//! made, moved and lost.
//!
//! [`Mobile`] is the end that asks, [`Base`] the end that answers for many. Both are machines over
//! an address type `A` that is the carrier's own. Feed datagrams to `handle_datagram` as they come
//! (they are opened where they lie), call `poll_transmit` until it returns `None`, sleep until
//! `next_timeout`, then call `handle_timeout`.

mod base;
mod ends;
mod limits;
mod mobile;
mod refusal;

#[cfg(test)]
mod tests;

use lasthop_units::{LinkEvent, Time};
use lasthop_wire::datagram::{DATA_HEADER_LEN, Data, DataHeader, TAG_LEN, recover_number};

pub use base::{AssociationId, Base, BaseStats};
pub use ends::{AssociationView, BaseEnd, MobileEnd};
pub use limits::GREETING_MAX;
pub use mobile::{Mobile, MobileStats};
pub use refusal::{Refusal, Refusals, Refused};

use crate::config::Limits;
use crate::seal::{Keys, ReplayWindow};
use crate::srp::Srp;
use crate::stats::HopStats;
use crate::transport::{CloseReason, Role};
use crate::transport::{Packet, Transport};

/// A datagram was written and is to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmit<A> {
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

/// Keys and addresses of an association that stands.
struct Link<A> {
    keys: Keys,
    replay: ReplayWindow,
    /// The peer's name for this association.
    remote: u32,
    peer: A,
    /// The least packet number that nothing was sealed under. It lives and dies with the keys.
    fresh: u64,
}

/// One end of an association, with the transport that it carries.
pub struct Association<A, T: Transport = Srp> {
    transport: T,
    /// Absent until the handshake is over.
    link: Option<Link<A>>,
    /// The peer is a mobile.
    roams: bool,
    refused: u64,
}

/// What came of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    /// It was authentic and new; true if it moved the association to another address.
    Taken { moved: bool },
    /// Forged, damaged or a replay: nothing has changed.
    Refused,
}

fn overhead<T: Transport>(config: &T::Config, sealed: bool) -> usize {
    let tag = if sealed { TAG_LEN } else { 0 };
    DATA_HEADER_LEN + tag + T::carrier_overhead(config).as_usize()
}

/// Opens a data datagram where it lies: its number and its frames, unless it is forged, damaged or
/// by `replay` known.
fn open<'d>(
    keys: &mut Keys,
    replay: Option<&ReplayWindow>,
    datagram: &'d mut [u8],
) -> Option<(u64, &'d [u8])> {
    let low = Data::new_checked(&*datagram).ok()?.header().number_low;
    let number = recover_number(low, replay.and_then(ReplayWindow::highest));
    if replay.is_some_and(|r| !r.check(number)) {
        return None;
    }
    let (header, body) = datagram.split_at_mut_checked(DATA_HEADER_LEN)?;
    let frames = keys.recv.open_in_place(number, header, body).ok()?;
    Some((number, frames))
}

impl<A> Link<A> {
    fn new(keys: Keys, remote: u32, peer: A) -> Self {
        Self { keys, replay: ReplayWindow::new(), remote, peer, fresh: 0 }
    }
}

impl<A: Copy + Eq, T: Transport> Association<A, T> {
    fn new(config: &T::Config, role: Role, sealed: bool, now: Time) -> Self {
        let transport = T::new(config, role, overhead::<T>(config, sealed), now);
        Self { transport, link: None, roams: role == Role::Base, refused: 0 }
    }

    fn establish(&mut self, now: Time, keys: Keys, remote: u32, peer: A, limits: &Limits) {
        self.link = Some(Link::new(keys, remote, peer));
        self.transport.establish(now, limits);
    }

    /// The address that datagrams go to, once the association stands.
    pub fn peer(&self) -> Option<A> {
        self.link.as_ref().map(|l| l.peer)
    }

    /// The transport, for what only it has. Handshakes, datagrams and timers are the association's.
    pub fn transport(&self) -> &T {
        &self.transport
    }

    /// The transport, to ask of it what only it can do: Mobile TCP's listening, for instance.
    pub fn transport_mut(&mut self) -> &mut T {
        &mut self.transport
    }

    /// Counters and present values of the transport.
    pub fn stats(&self) -> HopStats {
        self.transport.stats()
    }

    /// Datagrams that were forged, damaged or replayed.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// What is known of the hop from below.
    pub fn handle_link_event(&mut self, now: Time, event: LinkEvent) {
        self.transport.handle_link_event(now, event);
    }

    /// Ends the association: the peer is told, streams are gone.
    pub fn close(&mut self, reason: CloseReason) {
        self.transport.close(reason);
    }

    /// Why the association ended, if it has.
    pub fn closed(&self) -> Option<CloseReason> {
        self.transport.closed()
    }

    /// The peer's name for the association, once it stands.
    fn remote(&self) -> Option<u32> {
        self.link.as_ref().map(|l| l.remote)
    }

    /// Something authentic has come from the peer.
    fn has_heard(&self) -> bool {
        self.link.as_ref().is_some_and(|l| l.replay.highest().is_some())
    }

    fn handle_data(&mut self, now: Time, from: A, datagram: &mut [u8]) -> Outcome {
        let outcome = self.open_and_handle(now, from, datagram);
        if outcome.is_none() {
            self.refused += 1;
        }
        outcome.map_or(Outcome::Refused, |moved| Outcome::Taken { moved })
    }

    fn open_and_handle(&mut self, now: Time, from: A, datagram: &mut [u8]) -> Option<bool> {
        let link = self.link.as_mut()?;
        let (number, frames) = open(&mut link.keys, Some(&link.replay), datagram)?;
        Some(self.take(now, from, number, frames))
    }

    /// Takes in the frames of an authentic datagram; true if it moved the association.
    fn take(&mut self, now: Time, from: A, number: u64, frames: &[u8]) -> bool {
        let Some(link) = self.link.as_mut() else { return false };
        let newest = link.replay.highest().is_none_or(|highest| number > highest);
        if !link.replay.accept(number) {
            return false;
        }
        // Only the newest datagram tells where the peer is: an old one may have been held back. A
        // base does not move: whoever sends on a copy of its datagram is not the base.
        let moved = self.roams && newest && from != link.peer;
        if moved {
            link.peer = from;
            self.transport.handle_moved(now);
        }
        self.transport.handle(now, number, frames);
        moved
    }

    fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit<A>> {
        let link = self.link.as_mut()?;
        let tag_len = link.keys.send.tag_len();
        let room = out.len().checked_sub(DATA_HEADER_LEN + tag_len)?;
        let (head, rest) = out.split_at_mut_checked(DATA_HEADER_LEN)?;
        let Packet { number, len } = self.transport.poll(now, link.fresh, rest.get_mut(..room)?)?;
        let header = DataHeader::new(0, link.remote, number).to_bytes();
        head.copy_from_slice(&header);
        let (frames, tag) = rest.split_at_mut_checked(len)?;
        let tag_len = link.keys.send.seal_in_place(number, &header, frames, tag).ok()?;
        link.fresh = number.saturating_add(1);
        Some(Transmit { to: link.peer, len: DATA_HEADER_LEN + len + tag_len })
    }

    fn next_timeout(&self) -> Option<Time> {
        self.link.as_ref().and_then(|_| self.transport.next_timeout())
    }
}

crate::streams_of!([A: Copy + Eq, T: Transport] Association<A, T>, Movable, |it| it.transport, it.transport);
