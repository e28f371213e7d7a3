//! What the event loop and its parts say to each other.

use lasthop_units::Time;

use crate::clock::Clock;
use crate::reactor::Reactor;
use crate::slab::Key;

/// Whom a ready descriptor belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// The stop handle.
    Stop,
    /// The stop handle, which asks for the configuration to be read again.
    Reload,
    /// The resolver's answers.
    Resolver,
    /// The privileged helper.
    Helper,
    /// Other workers of the process.
    Workers,
    /// The status socket, or one of its clients.
    Control(Option<Key>),
    /// A TUN device.
    Tun,
    /// One of the role's UDP sockets, by the role's own number.
    Datagrams(u64),
    /// One of the role's listeners.
    Listener(usize),
    /// A connection of the relay.
    Connection(Key),
    /// One of a connection's attempts to connect.
    Attempt(Key, u32),
    /// A descriptor of the hop, by the number of the part that it belongs to and the part's own key.
    Hop(u32, Key),
}

/// What one turn of the loop hands to its parts.
pub struct Turn<'a> {
    /// The time when the turn began.
    pub now: Time,
    /// For what must be stamped more exactly.
    pub clock: Clock,
    /// Where descriptors are watched.
    pub reactor: &'a mut Reactor<Source>,
    /// Which part of the hop is meant; zero where it has but one.
    pub part: u32,
}

impl<'a> Turn<'a> {
    /// A turn for the hop's part zero.
    pub fn new(now: Time, clock: Clock, reactor: &'a mut Reactor<Source>) -> Self {
        Self { now, clock, reactor, part: 0 }
    }

    /// The source of a descriptor of the part that this turn is for.
    pub fn source(&self, key: Key) -> Source {
        Source::Hop(self.part, key)
    }

    /// The same turn, for another part.
    pub fn within(&mut self, part: u32) -> Turn<'_> {
        Turn { now: self.now, clock: self.clock, reactor: self.reactor, part }
    }
}
