//! Bases that may still use sessions which were taken over from them.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use lasthop_units::Time;
use lasthop_wire::mhp::handoff::{SessionId, Warrant};

use super::{Address, Retry};

/// A base that may still use a session which was taken over from it.
#[derive(Debug)]
pub(super) struct Fence<A> {
    pub(super) holder: A,
    /// The handoff in which it was.
    pub(super) attempt: u32,
    pub(super) since: u32,
    pub(super) warrant: Option<Warrant>,
    /// Whose the session is.
    pub(super) mobile: A,
    /// It does not use the session any more, if it did. The mobile has yet to say that it is here.
    pub(super) is_fenced: bool,
    /// When it is asked again.
    pub(super) retry: Retry,
    pub(super) until: Time,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Fences<A> {
    pub(super) all: BTreeMap<SessionId, Vec<Fence<A>>>,
}

impl<A> Default for Fences<A> {
    fn default() -> Self {
        Self { all: BTreeMap::new() }
    }
}

impl<A: Address> Fences<A> {
    /// When to ask again for that session.
    pub(super) fn deadline(&self, session: SessionId) -> Option<Time> {
        self.all.get(&session)?.iter().map(|fence| fence.retry.next).min()
    }

    #[cfg(test)]
    pub(super) fn first(&self) -> Option<Time> {
        self.all.values().flatten().map(|fence| fence.retry.next).min()
    }

    pub(super) fn get_mut(&mut self, session: SessionId, holder: A) -> Option<&mut Fence<A>> {
        self.all.get_mut(&session)?.iter_mut().find(|fence| fence.holder == holder)
    }

    /// In place of an earlier one of the same base; and of others', where there are `most` sessions with any.
    pub(super) fn insert(&mut self, session: SessionId, fence: Fence<A>, most: usize) {
        self.remove(session, fence.holder);
        if self.all.len() >= most && !self.all.contains_key(&session) {
            self.all.pop_first();
        }
        self.all.entry(session).or_default().push(fence);
    }

    /// The sessions that were taken over from that base.
    pub(super) fn of(&self, holder: A) -> Vec<SessionId> {
        let is_of = |fences: &[Fence<A>]| fences.iter().any(|fence| fence.holder == holder);
        let own = self.all.iter().filter(|(_, fences)| is_of(fences));
        own.map(|(session, _)| *session).collect()
    }

    /// Removes those of a session that are fenced. Whether there were any.
    pub(super) fn take_fenced(&mut self, session: SessionId) -> bool {
        self.retain(session, |fence| !fence.is_fenced)
    }

    /// None of that base any more; the sessions of which there was one.
    pub(super) fn forget(&mut self, holder: A) -> Vec<SessionId> {
        let own = self.of(holder);
        own.iter().for_each(|session| self.remove(*session, holder));
        own
    }

    pub(super) fn remove(&mut self, session: SessionId, holder: A) {
        self.retain(session, |fence| fence.holder != holder);
    }

    /// Removes the others of a session. Whether there were any.
    fn retain(&mut self, session: SessionId, is_kept: impl Fn(&Fence<A>) -> bool) -> bool {
        let Some(of) = self.all.get_mut(&session) else { return false };
        let before = of.len();
        of.retain(is_kept);
        let some = of.len() < before;
        if of.is_empty() {
            self.all.remove(&session);
        }
        some
    }
}
