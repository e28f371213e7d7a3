//! What the event loop needs of a hop beside its streams. One relay serves every hop through this.

use std::fmt::Debug;

use lasthop_hop::{Movable, RecvState, StreamError, StreamEvent, StreamId, StreamState, Streams};
use lasthop_units::Time;

use crate::clock::Clock;
use crate::control::AssociationReport;
use crate::reactor::{Reactor, Readiness};
use crate::slab::Key;

/// Whom a ready descriptor belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// The stop handle.
    Stop,
    /// The resolver's answers.
    Resolver,
    /// The status socket, or one of its clients.
    Control(Option<Key>),
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
pub(crate) struct Turn<'a> {
    /// The time when the turn began.
    pub(crate) now: Time,
    /// For what must be stamped more exactly.
    pub(crate) clock: Clock,
    /// Where descriptors are watched.
    pub(crate) reactor: &'a mut Reactor<Source>,
    /// Which part of the hop is spoken to; zero where it has but one.
    pub(crate) part: u32,
}

impl<'a> Turn<'a> {
    /// A turn for the hop's part zero.
    pub(crate) fn new(now: Time, clock: Clock, reactor: &'a mut Reactor<Source>) -> Self {
        Self { now, clock, reactor, part: 0 }
    }

    /// The source of a descriptor of the part that this turn is for.
    pub(crate) fn source(&self, key: Key) -> Source {
        Source::Hop(self.part, key)
    }

    /// The same turn, for another part.
    pub(crate) fn within(&mut self, part: u32) -> Turn<'_> {
        Turn { now: self.now, clock: self.clock, reactor: self.reactor, part }
    }
}

/// Something happened to an association.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum HopEvent<I> {
    /// It stands; streams can be opened.
    Up(I),
    /// Its peer has a new address, which is this.
    Moved(I, String),
    /// It is over, and every stream with it.
    Lost(I, String),
    /// The base cannot be reached, or not any more, for this reason; another address may do better.
    Unreachable(I, String),
}

impl<I> HopEvent<I> {
    /// The same of an association with another name.
    pub(crate) fn map<J>(self, name: impl FnOnce(I) -> J) -> HopEvent<J> {
        match self {
            Self::Up(id) => HopEvent::Up(name(id)),
            Self::Moved(id, to) => HopEvent::Moved(name(id), to),
            Self::Lost(id, why) => HopEvent::Lost(name(id), why),
            Self::Unreachable(id, why) => HopEvent::Unreachable(name(id), why),
        }
    }
}

/// One way across the hop: its sockets, its machines, its associations.
pub(crate) trait Hop: Send + 'static {
    /// Names an association.
    type Id: Copy + Ord + Debug + Send;
    /// An association's streams.
    type Streams: Movable + ?Sized;

    /// What the operator calls the hop.
    fn name(&self) -> &'static str;

    /// One of the hop's own descriptors is ready.
    fn handle_ready(&mut self, turn: &mut Turn<'_>, key: Key, readiness: Readiness);

    /// The time of the earliest timer.
    fn next_timeout(&self) -> Option<Time>;

    /// Runs every timer that is due.
    fn handle_timeout(&mut self, turn: &mut Turn<'_>);

    /// Moves what the kernel has into the machines, and finds out what happened there.
    fn pump(&mut self, turn: &mut Turn<'_>);

    /// Moves what the machines have to send into the kernel.
    fn flush(&mut self, turn: &mut Turn<'_>);

    /// The next thing that happened to an association.
    fn poll_event(&mut self) -> Option<HopEvent<Self::Id>>;

    /// An association whose streams may have events. Each is returned once until more happens.
    fn poll_active(&mut self) -> Option<Self::Id>;

    /// Whether [`poll_active`](Self::poll_active) or [`pump`](Self::pump) has something to do.
    fn is_active(&self) -> bool;

    /// The streams of an association; of a lost one too until it is [forgotten](Self::forget).
    fn streams(&mut self, id: Self::Id) -> Option<&mut Self::Streams>;

    /// Forgets an association that was lost.
    fn forget(&mut self, turn: &mut Turn<'_>, id: Self::Id);

    /// Says goodbye to every peer; the process is about to end.
    fn close(&mut self, turn: &mut Turn<'_>);

    /// A picture of every association.
    fn reports(&self, now: Time) -> Vec<AssociationReport>;

    /// How many datagrams or connections were refused because they were no peer's.
    fn garbage(&self) -> u64;
}

/// The streams of an association that is no more: none.
pub(crate) struct Gone;

impl Streams for Gone {
    fn open(&mut self) -> Result<StreamId, StreamError> {
        Err(StreamError::Unknown)
    }

    fn poll_event(&mut self) -> Option<StreamEvent> {
        None
    }

    fn send_space(&mut self, _id: StreamId) -> Result<&mut [u8], StreamError> {
        Err(StreamError::Unknown)
    }

    fn commit(&mut self, _id: StreamId, _n: usize) {}

    fn finish(&mut self, _id: StreamId) {}

    fn reset(&mut self, _id: StreamId, _code: u64) {}

    fn received(&self, _id: StreamId) -> &[u8] {
        &[]
    }

    fn consume(&mut self, _id: StreamId, _n: usize) {}

    fn recv_state(&self, _id: StreamId) -> RecvState {
        RecvState::Finished
    }
}

impl Movable for Gone {
    fn detach(&mut self, _id: StreamId) -> Option<StreamState> {
        None
    }

    fn snapshot(&self, _id: StreamId) -> Option<StreamState> {
        None
    }
}
