//! Copies of sessions' states that a base holds ahead of handoffs: those that leave and those that came.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use lasthop_units::Time;
use lasthop_wire::mhp::handoff::{CopyName, Message, SessionId};

use super::pull::Pull;
use super::{Address, Config, Retry, delta, share};

/// Copies that leave, and copies that came.
#[derive(Debug)]
pub(super) struct Ahead<A> {
    pub(super) leaving: BTreeMap<SessionId, Leaving<A>>,
    pub(super) came: BTreeMap<SessionId, Came<A>>,
}

/// A copy on its way to a candidate.
#[derive(Debug)]
pub(super) struct Leaving<A> {
    pub(super) to: A,
    pub(super) attempt: u32,
    pub(super) number: u32,
    /// The copy that the candidate has, as far as it reported.
    pub(super) had: Option<Vec<u8>>,
    /// The copy that is being sent; absent until the world has made it.
    pub(super) copy: Option<Vec<u8>>,
    /// As what it is sent.
    pub(super) package: Vec<u8>,
    /// When the mobile last announced that it will go there.
    pub(super) expected: Time,
    /// When to send again, or, once the candidate has it, when to make a new one.
    pub(super) retry: Retry,
}

/// A copy that came, or is coming.
#[derive(Debug)]
pub(super) struct Came<A> {
    pub(super) from: A,
    pub(super) attempt: u32,
    /// The latest copy that is whole, and its number.
    pub(super) whole: Option<(u32, Vec<u8>)>,
    pub(super) coming: Option<(u32, u16, Pull)>,
    pub(super) last_message: Time,
    pub(super) retry: Retry,
}

impl<A> Default for Ahead<A> {
    fn default() -> Self {
        Self { leaving: BTreeMap::new(), came: BTreeMap::new() }
    }
}

impl<A> Leaving<A> {
    /// The candidate reported that it has all of it.
    pub(super) fn is_done(&self) -> bool {
        self.copy.is_none() && self.had.is_some()
    }

    pub(super) fn memory(&self) -> usize {
        let copies = [&self.had, &self.copy].into_iter().flatten().map(Vec::len);
        copies.sum::<usize>() + self.package.len()
    }

    pub(super) fn next_timeout(&self, config: &Config) -> Time {
        self.retry.next.min(self.expected + config.ahead)
    }
}

impl<A> Came<A> {
    /// The last copy that is whole, or the beginning of the first.
    pub(super) fn copy(&self) -> Option<&[u8]> {
        let coming = || {
            let prefix = self.coming.as_ref()?.2.prefix();
            Some(prefix).filter(|bytes| !bytes.is_empty() && !delta::is_remainder(bytes))
        };
        self.whole.as_ref().map(|(_, bytes)| &bytes[..]).or_else(coming)
    }

    pub(super) fn memory(&self) -> usize {
        let whole = self.whole.as_ref().map_or(0, |(_, bytes)| bytes.len());
        whole + self.coming.as_ref().map_or(0, |(_, _, pull)| pull.memory())
    }

    pub(super) fn next_timeout(&self, config: &Config) -> Time {
        let expiry = self.last_message + config.ahead;
        if self.coming.is_some() { self.retry.next.min(expiry) } else { expiry }
    }
}

impl<A: Address> Ahead<A> {
    /// None that goes to that base or came from it any more; the sessions of which there was one.
    pub(super) fn forget(&mut self, base: A) -> Vec<SessionId> {
        let leaving = self.leaving.iter().filter(|(_, leaving)| leaving.to == base);
        let came = self.came.iter().filter(|(_, came)| came.from == base);
        let leaving = leaving.map(|(session, _)| *session);
        let gone: Vec<SessionId> = leaving.chain(came.map(|(session, _)| *session)).collect();
        self.leaving.retain(|_, leaving| leaving.to != base);
        self.came.retain(|_, came| came.from != base);
        gone
    }

    /// The copy of a session that came from that base, or as much as has come of it.
    pub(super) fn copy_from(&self, session: SessionId, base: A) -> Option<CopyName> {
        let came = self.came.get(&session).filter(|came| came.from == base)?;
        came.copy().map(delta::name)
    }

    /// The state that a remainder makes of the copy that came. Its only use: it is gone afterwards.
    pub(super) fn complete(
        &mut self,
        session: SessionId,
        remainder: &[u8],
        limit: u64,
    ) -> Option<Vec<u8>> {
        delta::whole(self.came.remove(&session)?.copy()?, remainder, limit)
    }

    /// What is to be sent of a state to somebody who has the copy of that name, if it is known here.
    pub(super) fn remainder(
        &self,
        session: SessionId,
        name: CopyName,
        state: &[u8],
    ) -> Option<(CopyName, Vec<u8>)> {
        let leaving = self.leaving.get(&session)?;
        let mut copies = [&leaving.copy, &leaving.had].into_iter().flatten();
        let copy = copies.find_map(|copy| delta::named(copy, name))?;
        Some((name, delta::remainder(copy, state)))
    }

    /// The session is no longer used here, or begins to be.
    pub(super) fn remove(&mut self, session: SessionId) {
        self.leaving.remove(&session);
        self.came.remove(&session);
    }

    /// The session's state is coming: the copy that it may build on is kept for so long.
    pub(super) fn refresh(&mut self, session: SessionId, now: Time) {
        if let Some(came) = self.came.get_mut(&session) {
            came.last_message = now;
        }
    }

    /// Drops the copies of other sessions.
    pub(super) fn keep_only(&mut self, session: SessionId) {
        self.leaving.retain(|other, _| *other == session);
        self.came.retain(|other, _| *other == session);
    }

    /// Bytes that are held.
    pub(super) fn memory(&self) -> usize {
        let came: usize = self.came.values().map(Came::memory).sum();
        came + self.leaving.values().map(Leaving::memory).sum::<usize>()
    }

    /// Bytes that came from that base.
    pub(super) fn memory_from(&self, base: A) -> usize {
        self.came.values().filter(|came| came.from == base).map(Came::memory).sum()
    }

    /// Whether a copy of that session may come from that base: one from another gives way to it.
    pub(super) fn has_room(&self, session: SessionId, base: A, most: usize) -> bool {
        let own = self.came.values().filter(|came| came.from == base).count() as u64;
        let others = self.came.len() as u64 - own;
        self.came.contains_key(&session) || own < share(most as u64, others)
    }

    /// Copies that are held.
    pub(super) fn len(&self) -> usize {
        self.leaving.len() + self.came.len()
    }

    /// When to look at a session's copies, whatever happens.
    pub(super) fn deadline(&self, session: SessionId, config: &Config) -> Option<Time> {
        let leaving = self.leaving.get(&session).map(|leaving| leaving.next_timeout(config));
        let came = self.came.get(&session).map(|came| came.next_timeout(config));
        leaving.into_iter().chain(came).min()
    }

    /// A piece of the copy that leaves, if it is still that one's.
    pub(super) fn piece(
        &self,
        session: SessionId,
        to: A,
        number: u32,
        offset: u64,
        len: u16,
    ) -> Option<Message<'_>> {
        let leaving = self.leaving.get(&session)?;
        if (leaving.to, leaving.number) != (to, number) || leaving.copy.is_none() {
            return None;
        }
        let start = usize::try_from(offset).ok()?;
        let end = leaving.package.len().min(start.checked_add(usize::from(len))?);
        let (total, bytes) = (leaving.package.len() as u64, leaving.package.get(start..end)?);
        Some(Message::Ahead { number, total, offset, bytes })
    }
}
