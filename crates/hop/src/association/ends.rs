//! What whoever runs a hop's ends needs of them, whatever transport they carry and whether they
//! are associations or bare.

use core::time::Duration;

use lasthop_units::{LinkEvent, Time};

use super::{Association, AssociationEvent, AssociationId, Base, Mobile, Refused, Transmit};
use crate::seal::PublicKey;
use crate::stats::HopStats;
use crate::streams::Movable;
use crate::transport::CloseReason;
use crate::transport::Transport;
use crate::unreachable::Unreachable;

/// A mobile's end of a hop: [`Mobile`] or [`BareMobile`](crate::BareMobile).
///
/// Its streams are its own. The methods are those of the types, where each is described.
pub trait MobileEnd: Movable {
    /// The carrier's addresses.
    type Address: Copy + Eq;

    /// Takes in a datagram, opened where it lies. A bad one changes nothing but a counter.
    fn handle_datagram(&mut self, now: Time, from: Self::Address, datagram: &mut [u8]);

    /// Writes the next datagram that should leave now into `out`, which must have room for the
    /// largest, if there is one.
    fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit<Self::Address>>;

    /// When to call [`handle_timeout`](Self::handle_timeout), if nothing happens before.
    fn next_timeout(&self) -> Option<Time>;

    /// Lets timers that are due act; follow with [`poll_transmit`](Self::poll_transmit).
    fn handle_timeout(&mut self, now: Time);

    /// Our own address may be another: something is said at once, so that the base, which goes by the
    /// newest authentic datagram, answers to where it came from.
    fn handle_roamed(&mut self, now: Time);

    /// For how long the base has not answered, if it was asked something.
    fn silent_for(&self, now: Time) -> Option<Duration>;

    /// What is known of the hop from below.
    fn handle_link_event(&mut self, now: Time, event: LinkEvent);

    /// The network says that the base cannot be reached. It is a hint, and checked.
    fn handle_unreachable(&mut self, now: Time, what: Unreachable);

    /// Why the base cannot be reached at present, if the network says so and nothing has come from the
    /// base since.
    fn unreachable(&self, now: Time) -> Option<Unreachable>;

    /// What happened to the relation with the base, in order.
    fn poll_association_event(&mut self) -> Option<AssociationEvent>;

    /// The base is at another address from now on.
    fn set_base_address(&mut self, now: Time, base: Self::Address);

    /// Connections to `port` are accepted from now on ([`Transport::listen`]).
    fn listen(&mut self, port: u16);

    /// Connections to `port` are no longer accepted.
    fn unlisten(&mut self, port: u16);

    /// Has the base hear this with the first datagram of a handshake, where handshakes carry anything
    /// ([`Mobile::greet`]).
    fn greet(&mut self, _now: Time, _greeting: &[u8]) {}

    /// Data can pass.
    fn is_up(&self) -> bool;

    /// Ends the relation with the base, which is told.
    fn close(&mut self, reason: CloseReason);

    /// Counters and present values of the transport.
    fn stats(&self) -> HopStats;

    /// Datagrams that were garbage, forged, replayed or for somebody else.
    fn refused(&self) -> u64;
}

/// One of a base's relations with a mobile, for a report.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AssociationView<A> {
    /// Its name at the base.
    pub id: AssociationId,
    /// The mobile's key; `None` on a bare hop, where mobiles are their addresses.
    pub mobile: Option<PublicKey>,
    /// Where datagrams to the mobile go.
    pub peer: Option<A>,
    /// Counters and present values of the transport.
    pub stats: HopStats,
}

/// A base's end of a hop to many mobiles: [`Base`] or [`BareBase`](crate::BareBase).
pub trait BaseEnd {
    /// The carrier's addresses.
    type Address: Copy + Eq;
    /// The streams of one mobile.
    type Streams: Movable;

    /// Takes in a datagram, opened where it lies. A bad one changes nothing but a counter.
    fn handle_datagram(&mut self, now: Time, from: Self::Address, datagram: &mut [u8]);

    /// Writes the next datagram that should leave now into `out`, which must have room for the
    /// largest, if there is one.
    fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit<Self::Address>>;

    /// When to call [`handle_timeout`](Self::handle_timeout), if nothing happens before.
    fn next_timeout(&self) -> Option<Time>;

    /// Lets timers that are due act; follow with [`poll_transmit`](Self::poll_transmit).
    fn handle_timeout(&mut self, now: Time);

    /// What a mobile says before an association with it stands ([`Base::poll_call`]); nothing where
    /// handshakes carry nothing.
    fn poll_call(&mut self) -> Option<(PublicKey, alloc::vec::Vec<u8>)> {
        None
    }

    /// A handshake that was not answered, for the operator.
    fn poll_refused(&mut self) -> Option<Refused<Self::Address>>;

    /// What happened to relations with mobiles, in order.
    fn poll_event(&mut self) -> Option<(AssociationId, AssociationEvent)>;

    /// The next mobile that a datagram or a timer has touched, whose stream events wait.
    fn poll_touched(&mut self) -> Option<AssociationId>;

    /// One mobile's streams, to read and write them.
    fn association_mut(&mut self, id: AssociationId) -> Option<&mut Self::Streams>;

    /// Nothing more is wanted of a relation that is lost ([`Base::release`]).
    fn release(&mut self, _id: AssociationId) {}

    /// A mobile's key, where mobiles have keys.
    fn mobile(&self, id: AssociationId) -> Option<PublicKey>;

    /// Where datagrams to a mobile go.
    fn peer(&self, id: AssociationId) -> Option<Self::Address>;

    /// Whether a mobile is known to accept connections on `port` ([`Transport::peer_listens`]);
    /// `None` if it must be asked, or is not there.
    fn listens(&self, id: AssociationId, port: u16) -> Option<bool>;

    /// The relations that stand.
    fn views(&self) -> impl Iterator<Item = AssociationView<Self::Address>>;

    /// Ends all relations, telling the mobiles.
    fn close(&mut self, reason: CloseReason);

    /// Datagrams that were garbage, forged, replayed or for nobody.
    fn refused(&self) -> u64;
}

impl<A: Copy + Eq, T: Transport> MobileEnd for Mobile<A, T> {
    type Address = A;

    fn handle_datagram(&mut self, now: Time, from: A, datagram: &mut [u8]) {
        self.handle_datagram(now, from, datagram);
    }

    fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit<A>> {
        self.poll_transmit(now, out)
    }

    fn next_timeout(&self) -> Option<Time> {
        self.next_timeout()
    }

    fn handle_timeout(&mut self, now: Time) {
        self.handle_timeout(now);
    }

    fn handle_roamed(&mut self, now: Time) {
        self.handle_roamed(now);
    }

    fn silent_for(&self, now: Time) -> Option<Duration> {
        self.silent_for(now)
    }

    fn handle_link_event(&mut self, now: Time, event: LinkEvent) {
        self.handle_link_event(now, event);
    }

    fn handle_unreachable(&mut self, now: Time, what: Unreachable) {
        self.handle_unreachable(now, what);
    }

    fn unreachable(&self, now: Time) -> Option<Unreachable> {
        self.unreachable(now)
    }

    fn poll_association_event(&mut self) -> Option<AssociationEvent> {
        self.poll_association_event()
    }

    fn set_base_address(&mut self, now: Time, base: A) {
        self.set_base_address(now, base);
    }

    fn listen(&mut self, port: u16) {
        self.transport_mut().listen(port);
    }

    fn unlisten(&mut self, port: u16) {
        self.transport_mut().unlisten(port);
    }

    fn greet(&mut self, now: Time, greeting: &[u8]) {
        self.greet(now, greeting);
    }

    fn is_up(&self) -> bool {
        self.is_up()
    }

    fn close(&mut self, reason: CloseReason) {
        self.close(reason);
    }

    fn stats(&self) -> HopStats {
        self.stats()
    }

    fn refused(&self) -> u64 {
        self.mobile_stats().refused
    }
}

impl<A: Copy + Eq, T: Transport> BaseEnd for Base<A, T> {
    type Address = A;
    type Streams = Association<A, T>;

    fn handle_datagram(&mut self, now: Time, from: A, datagram: &mut [u8]) {
        self.handle_datagram(now, from, datagram);
    }

    fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit<A>> {
        self.poll_transmit(now, out)
    }

    fn next_timeout(&self) -> Option<Time> {
        self.next_timeout()
    }

    fn handle_timeout(&mut self, now: Time) {
        self.handle_timeout(now);
    }

    fn poll_event(&mut self) -> Option<(AssociationId, AssociationEvent)> {
        self.poll_event()
    }

    fn poll_call(&mut self) -> Option<(PublicKey, alloc::vec::Vec<u8>)> {
        self.poll_call()
    }

    fn poll_refused(&mut self) -> Option<Refused<A>> {
        self.poll_refused()
    }

    fn poll_touched(&mut self) -> Option<AssociationId> {
        self.poll_touched()
    }

    fn association_mut(&mut self, id: AssociationId) -> Option<&mut Association<A, T>> {
        self.association_mut(id)
    }

    fn release(&mut self, id: AssociationId) {
        self.release(id);
    }

    fn mobile(&self, id: AssociationId) -> Option<PublicKey> {
        self.mobile(id)
    }

    fn peer(&self, id: AssociationId) -> Option<A> {
        self.association(id)?.peer()
    }

    fn listens(&self, id: AssociationId, port: u16) -> Option<bool> {
        self.association(id)?.transport().peer_listens(port)
    }

    fn views(&self) -> impl Iterator<Item = AssociationView<A>> {
        self.associations().map(|(id, mobile, association)| AssociationView {
            id,
            mobile: Some(*mobile),
            peer: association.peer(),
            stats: association.stats(),
        })
    }

    fn close(&mut self, reason: CloseReason) {
        self.close(reason);
    }

    fn refused(&self) -> u64 {
        self.stats().refused
    }
}
