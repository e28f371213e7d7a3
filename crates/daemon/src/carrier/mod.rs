//! Carriers: what moves a hop's datagrams from one end to the other, and nothing more. A transport
//! runs over any of them.

pub(crate) mod ether;
pub(crate) mod udp;

use std::io;
use std::net::SocketAddr;

use lasthop_hop::Unreachable;
use lasthop_units::{CarrierAddress, LinkEvent, Time};

use lasthop_kernel::clock::Clock;
use lasthop_kernel::mac::Mac;
use lasthop_kernel::reactor::Readiness;
use lasthop_kernel::slab::Key;
use lasthop_kernel::turn::Turn;

/// Where a datagram goes to, or comes from: the peer, and what of ours it used. It is one type, so that
/// every machine exists once, whatever carries its datagrams.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Route {
    /// What goes there is dropped.
    Nowhere,
    /// By UDP.
    Internet(udp::Route),
    /// By a frame, to the interface that has this address.
    Ethernet(Mac),
}

impl Route {
    /// The same by another link.
    pub(crate) fn by(self, link: usize) -> Self {
        match self {
            Self::Internet(route) => Self::Internet(udp::Route { socket: link, ..route }),
            other => other,
        }
    }

    /// The far end alone, whatever of ours it used.
    pub(crate) fn peer(self) -> Option<SocketAddr> {
        match self {
            Self::Internet(route) => Some(route.peer),
            _ => None,
        }
    }
}

impl CarrierAddress for Route {
    fn source(&self) -> [u8; 8] {
        match self {
            Self::Nowhere => [0; 8],
            Self::Internet(route) => route.peer.source(),
            Self::Ethernet(mac) => mac.source(),
        }
    }
}

/// What writes the next datagram into a buffer: where it goes, and how long it is.
pub(crate) type Poll<'a> = dyn FnMut(&mut [u8]) -> Option<(Route, usize)> + 'a;

/// One carrier: its sockets, and the batches in which datagrams pass them.
pub(crate) trait Carrier: Send {
    /// Watches every socket; the events of socket `n` come back with `keys(n)`.
    fn watch(&mut self, turn: &mut Turn<'_>, keys: &mut dyn FnMut(usize) -> Key) -> io::Result<()>;

    /// Notes what the kernel reported of socket `n`.
    fn ready(&mut self, turn: &mut Turn<'_>, n: usize, readiness: Readiness);

    /// Whether datagrams may wait in the kernel.
    fn readable(&self) -> bool;

    /// Whether datagrams that were polled wait for the kernel, which takes no more: the carrier's
    /// back-pressure.
    fn is_blocked(&self) -> bool;

    /// Hands every datagram that the kernel has to `take`, up to a turn's share, with the time at
    /// which it arrived, or was read where the kernel does not say.
    fn receive(&mut self, clock: &Clock, take: &mut dyn FnMut(Time, Route, &mut [u8]));

    /// Sends what `poll` writes until it has nothing more, in batches. While the kernel takes no
    /// more, `poll` is left alone.
    fn send(&mut self, turn: &mut Turn<'_>, poll: &mut Poll<'_>);

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    fn next_timeout(&self) -> Option<Time> {
        None
    }

    /// Tries again what did not go.
    fn handle_timeout(&mut self, _turn: &mut Turn<'_>) {}

    /// What has become of the interface below a link, once for each change.
    fn poll_link_event(&mut self) -> Option<(usize, LinkEvent)> {
        None
    }

    /// How many links datagrams may go by.
    fn links(&self) -> usize {
        1
    }

    /// What people call a link.
    fn link_name(&self, link: usize) -> String {
        link.to_string()
    }

    /// There is another link, of this name and interface; the events of its socket `n` come back with `keys(n)`.
    fn add_link(
        &mut self,
        _turn: &mut Turn<'_>,
        _name: &str,
        _interface: &str,
        _keys: &mut dyn FnMut(usize) -> Key,
    ) {
    }

    /// A link's interface may be another of the same name, have come only now, or be gone.
    fn renew(&mut self, _turn: &mut Turn<'_>, _link: usize) {}

    /// The network's next error for datagrams to `peer`.
    fn poll_unreachable(&mut self, _peer: Route) -> Option<Unreachable> {
        None
    }

    /// The route to an Internet address by the first link; `None` if the carrier knows no such addresses.
    fn route_to(&self, _peer: SocketAddr) -> Option<Route> {
        None
    }

    /// The route that reaches whoever is there, if there is one: a peer that nobody has named is
    /// found by its answer.
    fn everyone(&self) -> Option<Route> {
        None
    }

    /// Where it receives, for people.
    fn places(&self) -> Vec<String>;

    /// A route's far end, for people.
    fn show(&self, route: Route) -> String;
}
