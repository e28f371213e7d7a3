//! What a [`Station`](super::Station) asks of the base around it.

use alloc::vec::Vec;
use core::net::SocketAddr;

use lasthop_units::{Bytes, Duration};
use lasthop_wire::mhp::Target;

use super::associations::{Associations, Name};
use super::bridge::Bridge;
use crate::{ConnId, Orphan, SessionId};

/// A base's associations and the wired halves of its mobiles' connections: kernel sockets, or the
/// simulator's.
///
/// Bases and mobiles are called `A`. An association is a mobile's, or one that a base made to
/// another, at either end of it, and named by an `I`. A wired half is named by an `S`, one that is still
/// being made, too.
pub trait Wires<A, I, S>: Associations<Id = I> {
    /// A wired half that was made anew, and has no connection yet.
    type Made;

    /// How long what takes the kernel tens of milliseconds waits for messages to leave.
    const DEFERRAL: Duration = Duration::from_millis(2);

    /// Makes an association to another base, over which the bytes of this session's connections are
    /// to go. `None` if that base is not known, or there are no means.
    fn link(&mut self, base: A, session: SessionId) -> Option<I>;

    /// Whether an association that was made by [`link`](Self::link) stands.
    fn is_linked(&self, id: I) -> bool;

    /// Ends an association that was made by [`link`](Self::link).
    fn unlink(&mut self, id: I, farewell: Farewell);

    /// Closes an association that another base made, which is notified.
    fn close(&mut self, id: I);

    /// Wired halves that have a connection's name in the session of an association.
    fn wired(&self, id: I) -> Vec<(ConnId, S)>;

    /// What becomes of a wired half when that mobile's session leaves; `None` if it is of no more use,
    /// or was not made yet.
    fn fate(&self, mobile: A, socket: S) -> Option<Fate>;

    /// What it does; `None` if it is no more.
    fn state(&self, socket: S) -> Option<SocketState>;

    /// Whether the fixed host has been sent the end of the mobile's bytes.
    fn is_write_done(&self, socket: S) -> bool;

    /// From here on it belongs to this connection.
    fn attach(&mut self, socket: S, name: Name<I>);

    /// From here on it belongs to no connection, and waits.
    fn detach(&mut self, socket: S);

    /// Sends a reset to the fixed host; one that is over is closed.
    fn reset(&mut self, socket: S);

    /// Ends it; the fixed host is told nothing if another base may have taken the connection over.
    fn abandon(&mut self, socket: S) {
        self.reset(socket);
    }

    /// Connects a mobile's connection to that of another base's association.
    fn splice(&mut self, target: &Target, bridge: Bridge<I>);

    /// Takes wired halves out, as bytes for another base. Packets for the mobile's address are to
    /// reset no connection that is elsewhere from here on, even if there are none to take.
    ///
    /// What came of each; or `None` where that takes time: then
    /// [`Station::handle_dumped`](super::Station::handle_dumped) is told, those of one session in the order
    /// in which they were begun.
    fn dump(
        &mut self,
        session: SessionId,
        mobile: A,
        leaving: Vec<Name<S>>,
    ) -> Option<Vec<(ConnId, Dumped<S>)>>;

    /// Makes wired halves anew from what [`dump`](Self::dump) gave. Packets for the mobile come here from
    /// here on.
    ///
    /// Those that were made, in the order of the images, and nothing for one that cannot be had; or `None`
    /// where that takes time: then [`Station::handle_restored`](super::Station::handle_restored) is told,
    /// those of one session in the order in which they were begun.
    fn restore(
        &mut self,
        session: SessionId,
        mobile: A,
        images: Vec<Vec<u8>>,
    ) -> Option<Vec<Option<Self::Made>>>;

    /// Finds out what another base that is dead had of these connections of a mobile's, by what it has made of them and by
    /// what their fixed hosts say. Packets for the mobile come here from here on. The mobile has not heard from that base for so
    /// long, which may have acknowledged since what the mobile does not have.
    ///
    /// What is known of each, in their order, and nothing of one that cannot go on; or `None` where that takes time: then
    /// [`Station::handle_reclaimed`](super::Station::handle_reclaimed) is told.
    fn reclaim(
        &mut self,
        _session: SessionId,
        _mobile: A,
        orphans: &[Orphan],
        _silent: Duration,
    ) -> Option<Vec<Option<Reclaimed>>> {
        Some(orphans.iter().map(|_| None).collect())
    }

    /// A wired half that was made anew has its connection in the session of an association. That of a
    /// connection that has ended ends as it did.
    fn install(&mut self, id: I, restored: Restored, made: Self::Made);

    /// What a mobile's wired halves hold at this moment, up to `limit` bytes of it, to be sent ahead of a
    /// handoff: bytes that [`dump`](Self::dump) would give, in whatever form. None of those that stay.
    fn previews(&self, id: I, mobile: A, limit: Bytes) -> Vec<(ConnId, Vec<u8>)>;

    /// What else goes along with the session of an association that is about to be frozen, opaque to the
    /// machine: what the hop's transport has learned, wired halves whose connections are over.
    fn hop_state(&mut self, _id: I) -> Vec<u8> {
        Vec::new()
    }

    /// Goes on with what [`hop_state`](Self::hop_state) gave at another base.
    fn adopt_hop_state(&mut self, _id: I, _state: &[u8]) {}

    /// Resets wired halves that were dumped, and that nobody came for.
    fn discard(&mut self, session: SessionId, images: Vec<Vec<u8>>);

    /// The session, of that mobile if it is known, was given to that base, and packets for the mobile
    /// go there.
    fn reroute(&mut self, session: SessionId, mobile: Option<A>, to: A);

    /// All that the mobile has is here from here on: nothing of it is elsewhere.
    fn end_move(&mut self, mobile: A);

    /// The mobile is not here any more, and nobody knows where it is.
    fn release_mobile(&mut self, mobile: A);

    /// Whether wired halves can be dumped and restored at the moment. Where they never can, or never
    /// need be, they are.
    fn is_ready(&self) -> bool;
}

/// Whether the other end of an association that is closed is notified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Farewell {
    /// It is: nothing of the association is wanted any more.
    Said,
    /// It is not: what the association carried goes on over another.
    None,
}

/// What a wired half does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SocketState {
    /// It is being made: the fixed host has not answered.
    Opens,
    /// It relays bytes.
    Relays,
    /// It is none: the connection is [spliced](Wires::splice) to another base's.
    Spliced,
}

/// What becomes of a wired half when its session leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It stays, and its bytes are relayed (`anchor`).
    Stays,
    /// It is dumped, and made anew at the other base (`migrate`).
    Leaves,
    /// It can neither leave nor stay, and is reset.
    Lost,
}

/// What came of a wired half that was to be dumped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Dumped<S> {
    /// Its state, opaque to the machine.
    Image(Vec<u8>),
    /// It is over but for these bytes of the fixed host's, the last, which nobody has read: nothing is
    /// to be made anew.
    Rest(Vec<u8>),
    /// It could not leave and stays.
    Stays(S),
    /// It is reset.
    Lost,
}

/// A wired half to be made anew.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Restored {
    /// The connection whose it is.
    pub conn: ConnId,
    /// Where that goes.
    pub target: Target,
    /// Bytes of the fixed host's that the connection had taken where the wired half was before.
    pub taken: u64,
    /// The fixed host's end has come.
    pub read_done: bool,
    /// How the connection has ended since it came, if it has.
    pub ended: Option<Ended>,
}

/// A connection whose base was dead, as its fixed host has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reclaimed {
    /// The surrogate's own end of the connection to the fixed host.
    pub local: SocketAddr,
    /// The fixed host.
    pub remote: SocketAddr,
    /// Bytes of the mobile's that the fixed host has.
    pub up: u64,
    /// It has the mobile's end, too.
    pub up_end: bool,
    /// The wired half as [`Wires::dump`] would have given it, with nothing in it; not read where both ends are passed on.
    pub image: Vec<u8>,
}

/// How a connection ended before it had its wired half.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// Both ends were passed on: what the wired half holds is to be sent, and its end.
    Whole,
    /// By a reset, as its wired half is to.
    Reset,
    /// With its session: as [`Wires::abandon`] has it, since another base may have it.
    Abandoned,
}
