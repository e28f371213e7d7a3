//! What a base knows of sessions. Each mobile has a few places for its own, so that one which invents names takes
//! nothing from the others.

use lasthop_wire::mhp::handoff::SessionId;

use super::entry::{Entry, Role};
use crate::owned::{Owned, OwnedMap};

/// Sessions of one mobile that are known at once. It has one; others of its own were given away, or could not be
/// had, before it was restarted.
pub(super) const SESSIONS_OF_ONE: usize = 16;
/// And of those, how many may be on their way at once.
pub(super) const COMING_OF_ONE: usize = 2;

/// All of them, by name and by mobile.
pub(super) type Sessions<A> = OwnedMap<SessionId, A, Entry<A>>;

impl<A: Copy> Owned<A> for Entry<A> {
    fn owner(&self) -> Option<A> {
        self.owner
    }
}

impl<A: Copy + Ord> Sessions<A> {
    /// The session is that mobile's.
    pub(super) fn set_owner(&mut self, session: SessionId, owner: A) {
        if let Some(entry) = self.remove(&session) {
            self.insert(session, Entry { owner: Some(owner), ..entry });
        }
    }

    /// Whether a mobile may have one more. Of those that it has and that are but remembered, the one that is to be
    /// forgotten first gives way.
    pub(super) fn make_place(&mut self, owner: A) -> bool {
        if self.of(owner).count() < SESSIONS_OF_ONE {
            return true;
        }
        let remembered = self.of(owner).filter_map(|(session, entry)| match entry.role {
            Role::Given { until, .. } | Role::Failed { until, .. } => Some((until, session)),
            _ => None,
        });
        let Some((_, first)) = remembered.min() else { return false };
        self.remove(&first);
        true
    }
}
