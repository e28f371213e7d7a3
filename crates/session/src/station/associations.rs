//! Associations and the sessions over them.

use core::fmt::Debug;

use lasthop_hop::Streams;

use crate::{ConnId, Session};

/// A connection of a session at one association.
pub type Name<I> = (I, ConnId);

/// Associations, each with its session and the streams under it.
pub trait Associations {
    /// Names an association.
    type Id: Copy + Ord + Debug;
    /// Its streams.
    type Streams: Streams + ?Sized;

    /// The session and the streams of an association, to be used.
    fn session(&mut self, id: Self::Id) -> Option<(&mut Session, &mut Self::Streams)>;

    /// The session, to be looked at.
    fn peek(&self, id: Self::Id) -> Option<&Session>;
}
