//! Sessions that are elsewhere and whose wired halves are here.

use alloc::collections::BTreeMap;

use lasthop_units::Time;

use crate::owned::{Owned, OwnedMap};
use crate::{ConnId, SessionId, SessionState};

/// Of one mobile at once. It has one session; others of its own stayed here before it was restarted.
pub(super) const KEPT_OF_ONE: usize = 8;

/// A session that is elsewhere and whose wired halves are here.
#[derive(Debug)]
pub(super) struct Kept<A, I, S> {
    pub(super) mobile: A,
    /// The connections, while nobody has attached; `None` while somebody has.
    pub(super) state: Option<SessionState>,
    pub(super) sockets: BTreeMap<ConnId, S>,
    /// The association of the base that goes on with them.
    pub(super) at: Option<I>,
    /// The handoff in which that base was allowed to.
    pub(super) attempt: u32,
    /// Until then somebody must have come.
    pub(super) until: Time,
}

/// All of them, by session and by mobile.
pub(super) type Keeps<A, I, S> = OwnedMap<SessionId, A, Kept<A, I, S>>;

impl<A: Copy, I, S> Owned<A> for Kept<A, I, S> {
    fn owner(&self) -> Option<A> {
        Some(self.mobile)
    }
}

impl<A: Copy + Ord, I, S> Keeps<A, I, S> {
    /// The session that has to give way to one more of a mobile: the one that would be over first.
    pub(super) fn outdone(&self, mobile: A) -> Option<SessionId> {
        let ends = self.of(mobile).map(|(session, kept)| (kept.until, session));
        let first = ends.min().map(|(_, session)| session);
        first.filter(|_| self.of(mobile).count() >= KEPT_OF_ONE)
    }
}
