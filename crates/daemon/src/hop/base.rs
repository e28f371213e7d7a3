//! What a base needs of its hop.

use std::io;
use std::net::SocketAddr;

use lasthop_hop::seal::{Allowed, PublicKey};
use lasthop_hop::{AssociationId, Refused, Stray};
use lasthop_kernel::turn::Turn;
use lasthop_wire::mhp::transit::TransitGrant;

use super::Hop;
use crate::carrier::Route;

/// The hop of a base, which listens by itself.
pub(crate) trait BaseHop: Hop<Id = AssociationId> {
    /// Where mobiles are served, for people.
    fn places(&self) -> Vec<String>;

    /// Starts to watch its sockets.
    fn start(&mut self, turn: &mut Turn<'_>) -> io::Result<()>;

    /// Stops accepting associations and streams.
    fn stop(&mut self, turn: &mut Turn<'_>);

    /// Serves these mobiles from here on, if mobiles have keys; associations of others, and of those whose
    /// pre-shared key is another, are lost.
    fn set_allowed(&mut self, turn: &mut Turn<'_>, allowed: &[Allowed]);

    /// The next greeting of a mobile that has no association yet, with its key, where the hop has one.
    fn poll_call(&mut self) -> Option<(PublicKey, Vec<u8>)> {
        None
    }

    /// The next datagram that is another part's of the base, where the base has parts.
    fn poll_stray(&mut self) -> Option<Stray<Route>> {
        None
    }

    /// Takes in a datagram of this part's that came to another.
    fn handle_stray(&mut self, _turn: &mut Turn<'_>, _from: Route, _datagram: &mut [u8]) {}

    /// Passes on what an association's mobile sends for the base at this address, and nowhere else: what the mobile is to
    /// be told. None if the hop cannot.
    fn grant_transit(
        &mut self,
        _turn: &mut Turn<'_>,
        _id: AssociationId,
        _to: SocketAddr,
    ) -> Option<TransitGrant> {
        None
    }

    /// No part of the base serves the mobile whose handshake came from there.
    fn refuse_stranger(&mut self, _turn: &mut Turn<'_>, _from: Route, _mobile: PublicKey) {}

    /// A handshake that was not answered, for the operator; with where it came from, for people.
    fn poll_refused(&mut self) -> Option<Refused<String>>;

    /// The key of the mobile at the other end of an association, where mobiles have keys.
    fn key_of(&self, id: AssociationId) -> Option<PublicKey>;

    /// Whether that mobile has a server on `port`; `None` if it has announced nothing.
    fn listens(&self, _id: AssociationId, _port: u16) -> Option<bool> {
        None
    }
}
