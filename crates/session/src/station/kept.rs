//! Sessions that are elsewhere and whose wired halves are here.

use alloc::collections::BTreeMap;

use lasthop_units::Time;

use crate::index::Index;
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
#[derive(Debug)]
pub(super) struct Keeps<A, I, S> {
    all: BTreeMap<SessionId, Kept<A, I, S>>,
    of: Index<A, SessionId>,
}

impl<A: Copy + Ord, I, S> Keeps<A, I, S> {
    pub(super) fn new() -> Self {
        Self { all: BTreeMap::new(), of: Index::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn contains_key(&self, session: &SessionId) -> bool {
        self.all.contains_key(session)
    }

    pub(super) fn get(&self, session: &SessionId) -> Option<&Kept<A, I, S>> {
        self.all.get(session)
    }

    /// Changes what is kept of a session; not whose it is.
    pub(super) fn get_mut(&mut self, session: &SessionId) -> Option<&mut Kept<A, I, S>> {
        self.all.get_mut(session)
    }

    pub(super) fn insert(&mut self, session: SessionId, kept: Kept<A, I, S>) {
        self.remove(&session);
        self.of.insert(kept.mobile, session);
        self.all.insert(session, kept);
    }

    pub(super) fn remove(&mut self, session: &SessionId) -> Option<Kept<A, I, S>> {
        let kept = self.all.remove(session)?;
        self.of.remove(kept.mobile, *session);
        Some(kept)
    }

    /// Those of a mobile.
    pub(super) fn of(&self, mobile: A) -> impl Iterator<Item = SessionId> {
        self.of.of(mobile)
    }

    /// The session that has to give way to one more of a mobile: the one that would be over first.
    pub(super) fn outdone(&self, mobile: A) -> Option<SessionId> {
        if self.of.count(mobile) < KEPT_OF_ONE {
            return None;
        }
        let ends = |session| Some((self.all.get(&session)?.until, session));
        self.of(mobile).filter_map(ends).min().map(|(_, session)| session)
    }
}
