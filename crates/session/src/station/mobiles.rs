//! A base's state of the mobiles that are here, or whose sessions were.

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use core::fmt::Debug;

use lasthop_units::Time;

use crate::{SessionId, SessionState};

/// A mobile.
#[derive(Debug)]
pub(super) struct Mobile<I> {
    /// Its association.
    pub(super) at: Option<I>,
    /// What it calls its session, if it has sent that.
    pub(super) session: Option<SessionId>,
    /// The session that it carries on here and that is not on its association, and since when.
    pub(super) wanted: Option<(SessionId, Time)>,
    /// It has announced over its association that its session is to be here.
    pub(super) greeted: bool,
    /// It has an association here and its session elsewhere.
    pub(super) away: bool,
    /// It has greeted, and its association is still being made.
    pub(super) call: Option<Call>,
}

/// A mobile's greeting before it had an association.
#[derive(Debug)]
pub(super) struct Call {
    /// The session that has come for it meanwhile.
    pub(super) state: Option<SessionState>,
    /// Until then its association is waited for.
    pub(super) until: Time,
}

impl<I> Default for Mobile<I> {
    fn default() -> Self {
        let (at, session, wanted, call) = (None, None, None, None);
        Self { at, session, wanted, greeted: false, away: false, call }
    }
}

impl<I> Mobile<I> {
    fn is_unknown(&self) -> bool {
        self.at.is_none() && self.session.is_none() && self.wanted.is_none() && self.call.is_none()
    }
}

/// All of them.
#[derive(Debug)]
pub(super) struct Mobiles<A, I> {
    all: BTreeMap<A, Mobile<I>>,
    associations: BTreeMap<I, A>,
    sessions: BTreeMap<SessionId, A>,
}

impl<A: Copy + Ord, I: Copy + Ord> Mobiles<A, I> {
    pub(super) fn new() -> Self {
        let (all, associations, sessions) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { all, associations, sessions }
    }

    pub(super) fn get(&self, mobile: A) -> Option<&Mobile<I>> {
        self.all.get(&mobile)
    }

    /// Changes what is known of a mobile; not its association or its session's name.
    pub(super) fn get_mut(&mut self, mobile: A) -> Option<&mut Mobile<I>> {
        self.all.get_mut(&mobile)
    }

    /// As [`get_mut`](Self::get_mut), of one that need not be known.
    pub(super) fn entry(&mut self, mobile: A) -> &mut Mobile<I> {
        self.all.entry(mobile).or_default()
    }

    /// Its association.
    pub(super) fn at(&self, mobile: A) -> Option<I> {
        self.all.get(&mobile)?.at
    }

    /// The mobile that calls its session so.
    pub(super) fn with_session(&self, session: SessionId) -> Option<A> {
        self.sessions.get(&session).copied()
    }

    /// A mobile's association stands, in place of the one before.
    pub(super) fn set_association(&mut self, mobile: A, id: I) {
        let before = self.entry(mobile).at.replace(id);
        if let Some(before) = before {
            self.associations.remove(&before);
        }
        self.associations.insert(id, mobile);
    }

    /// An association is lost: the mobile that had it, if that has no other since.
    pub(super) fn take_association(&mut self, id: I) -> Option<A> {
        let mobile = self.associations.remove(&id)?;
        self.entry(mobile).at = None;
        Some(mobile)
    }

    /// A mobile calls its session so.
    pub(super) fn name(&mut self, mobile: A, session: SessionId) {
        let before = self.entry(mobile).session.replace(session);
        if before != Some(session) {
            self.disown(mobile, before);
        }
        // One that another mobile calls so is that one's.
        self.sessions.entry(session).or_insert(mobile);
    }

    fn disown(&mut self, mobile: A, session: Option<SessionId>) {
        if let Some(session) = session
            && self.sessions.get(&session) == Some(&mobile)
        {
            self.sessions.remove(&session);
        }
    }

    /// A mobile's session is over.
    pub(super) fn unname(&mut self, mobile: A) {
        let session = self.all.get_mut(&mobile).and_then(|known| known.session.take());
        self.disown(mobile, session);
        self.remove_if_unknown(mobile);
    }

    /// Forgets a mobile of which nothing is known.
    pub(super) fn remove_if_unknown(&mut self, mobile: A) {
        if let Entry::Occupied(known) = self.all.entry(mobile)
            && known.get().is_unknown()
        {
            known.remove();
        }
    }
}
