//! What a base knows of sessions. Each mobile has a few places for its own, so that one which invents names takes
//! nothing from the others.

use alloc::collections::{BTreeMap, BTreeSet};

use lasthop_units::Time;
use lasthop_wire::mhp::handoff::SessionId;

use super::entry::{Entry, Role};
use crate::index::Index;

/// Sessions of one mobile that are known at once. It has one; others of its own were given away, or could not be
/// had, before it was restarted.
pub(super) const SESSIONS_OF_ONE: usize = 16;
/// And of those, how many may be on their way at once.
pub(super) const COMING_OF_ONE: usize = 2;

/// All of them.
#[derive(Debug)]
pub(super) struct Sessions<A> {
    all: BTreeMap<SessionId, Entry<A>>,
    /// Those that have an owner, by it.
    of: Index<A, SessionId>,
}

impl<A: Copy + Ord> Sessions<A> {
    pub(super) fn new() -> Self {
        Self { all: BTreeMap::new(), of: Index::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn get(&self, session: &SessionId) -> Option<&Entry<A>> {
        self.all.get(session)
    }

    /// Changes what is known of a session; not [whose](Self::set_owner) it is.
    pub(super) fn get_mut(&mut self, session: &SessionId) -> Option<&mut Entry<A>> {
        self.all.get_mut(session)
    }

    pub(super) fn contains_key(&self, session: &SessionId) -> bool {
        self.all.contains_key(session)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&SessionId, &Entry<A>)> {
        self.all.iter()
    }

    pub(super) fn insert(&mut self, session: SessionId, entry: Entry<A>) {
        let owner = entry.owner;
        let before = self.all.insert(session, entry).and_then(|before| before.owner);
        self.reindex(session, before, owner);
    }

    pub(super) fn remove(&mut self, session: SessionId) {
        let before = self.all.remove(&session).and_then(|before| before.owner);
        self.reindex(session, before, None);
    }

    /// The session is that mobile's.
    pub(super) fn set_owner(&mut self, session: SessionId, owner: Option<A>) {
        let Some(entry) = self.all.get_mut(&session) else { return };
        let before = core::mem::replace(&mut entry.owner, owner);
        self.reindex(session, before, owner);
    }

    fn reindex(&mut self, session: SessionId, before: Option<A>, owner: Option<A>) {
        if before == owner {
            return;
        }
        if let Some(before) = before {
            self.of.remove(before, session);
        }
        if let Some(owner) = owner {
            self.of.insert(owner, session);
        }
    }

    /// A mobile's sessions.
    pub(super) fn of(&self, owner: A) -> impl Iterator<Item = (SessionId, &Entry<A>)> {
        self.of.of(owner).filter_map(|session| Some((session, self.all.get(&session)?)))
    }

    /// Whether a mobile may have one more. Of those that it has and that are but remembered, the one that is to be
    /// forgotten first gives way.
    pub(super) fn make_place(&mut self, owner: A) -> bool {
        if self.of.count(owner) < SESSIONS_OF_ONE {
            return true;
        }
        let remembered = self.of(owner).filter_map(|(session, entry)| match entry.role {
            Role::Given { until, .. } | Role::Failed { until, .. } => Some((until, session)),
            _ => None,
        });
        let Some((_, first)) = remembered.min() else { return false };
        self.remove(first);
        true
    }

    /// Forgets what needs no longer be remembered.
    pub(super) fn sweep(&mut self, now: Time) {
        let expired = self.all.iter().filter(|(_, entry)| entry.is_expired(now));
        let expired: BTreeSet<SessionId> = expired.map(|(session, _)| *session).collect();
        expired.into_iter().for_each(|session| self.remove(session));
    }
}
