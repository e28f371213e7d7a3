//! What the event loop needs of a hop beside its streams. One relay serves every hop through this.

mod base;
mod mobile;

use std::fmt::Debug;

use lasthop_hop::PacketLane;
use lasthop_hop::{RecvState, StreamError, StreamEvent, StreamId, Streams};
use lasthop_units::{Duration, Time};

use lasthop_control::AssociationReport;
use lasthop_control::past::Progress;
use lasthop_kernel::reactor::Readiness;
use lasthop_kernel::slab::Key;
use lasthop_kernel::turn::Turn;

pub(crate) use self::base::BaseHop;
pub(crate) use self::mobile::{LinkWay, MobileHop};

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

/// The streams of an association, whatever carries them.
pub(crate) type AnyStreams = dyn Streams;

/// One way across the hop: its sockets, its machines, its associations.
pub(crate) trait Hop: Send + 'static {
    /// Names an association.
    type Id: Copy + Ord + Debug + Send;

    /// What the operator calls the hop.
    fn name(&self) -> &'static str;

    /// One of the hop's own descriptors is ready.
    fn handle_ready(&mut self, turn: &mut Turn<'_>, key: Key, readiness: Readiness);

    /// The time of the earliest timer.
    fn next_timeout(&self) -> Option<Time>;

    /// Runs every timer that is due.
    fn handle_timeout(&mut self, turn: &mut Turn<'_>);

    /// How long what comes for an association may wait unnoticed while bytes move.
    fn patience(&self, _id: Self::Id) -> Duration {
        Duration::ZERO
    }

    /// What an association has done since the last time that this was asked.
    fn progress(&mut self, id: Self::Id) -> Option<Progress>;

    /// Moves what the kernel has received into the machines, and polls their events.
    fn pump(&mut self, turn: &mut Turn<'_>);

    /// Moves what the machines have to send into the kernel.
    fn flush(&mut self, turn: &mut Turn<'_>);

    /// The next thing that happened to an association.
    fn poll_event(&mut self) -> Option<HopEvent<Self::Id>>;

    /// An association whose streams may have events. Each is returned once until more happens.
    fn poll_active(&mut self) -> Option<Self::Id>;

    /// Whether [`poll_active`](Self::poll_active) or [`pump`](Self::pump) has something to do.
    fn is_active(&self) -> bool;

    /// The streams of an association; of a lost one too until it is [removed](Self::remove_association).
    fn streams(&mut self, id: Self::Id) -> Option<&mut AnyStreams>;

    /// Packets beside the streams of an association, where both ends take them.
    fn packets(&mut self, _id: Self::Id) -> Option<&mut PacketLane> {
        None
    }

    /// The same, if any were sent or have come.
    fn packets_so_far(&mut self, _id: Self::Id) -> Option<&mut PacketLane> {
        None
    }

    /// Removes an association that was lost, with its streams.
    fn remove_association(&mut self, turn: &mut Turn<'_>, id: Self::Id);

    /// Sends a close to every peer; the process is about to end.
    fn close(&mut self, turn: &mut Turn<'_>);

    /// A report of every association.
    fn reports(&self, now: Time) -> Vec<AssociationReport>;

    /// How many datagrams or connections were refused because they were no peer's.
    fn garbage(&self) -> u64;
}

/// The streams of an association that is no more: none.
pub(crate) struct NoStreams;

impl Streams for NoStreams {
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
