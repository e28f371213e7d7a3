//! Handshakes that a base has answered and that nobody has confirmed, found by all that is asked for them: a restart
//! brings as many as there are mobiles.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use lasthop_units::{Time, Timers};

use super::keyset::Keyset;
use crate::config::Limits;
use crate::seal::{Fingerprint, PublicKey};

/// How long a candidate waits for its first authentic datagram.
const CANDIDATE_LIFE: Duration = Duration::from_secs(5);

/// An answered handshake whose keys nobody has used yet.
pub(in super::super) struct Candidate<A> {
    pub(super) fingerprint: Fingerprint,
    /// Whence its init came first: its mobile has shown no other address.
    pub(super) from: A,
    /// When its reply was sent, if it was sent exactly once so far.
    pub(super) replied: Option<Time>,
    pub(super) replies: u32,
    /// Until when its reply is not sent again.
    pub(super) quiet_until: Time,
    pub(super) mobile: PublicKey,
    pub(super) stamp: u64,
    pub(super) keyset: Keyset,
    /// The association whose keys these are to be, by its name: none if it is a new one.
    pub(super) renews: Option<u32>,
    pub(super) limits: Limits,
    pub(super) reply: Vec<u8>,
    pub(super) expires: Time,
}

impl<A> Candidate<A> {
    /// Answers, with `reply`, the init that has this fingerprint, this mobile's with this stamp.
    pub(super) fn new(
        now: Time,
        (fingerprint, from): (Fingerprint, A),
        (mobile, stamp): (PublicKey, u64),
        keyset: Keyset,
        limits: Limits,
        reply: Vec<u8>,
    ) -> Self {
        Self {
            fingerprint,
            from,
            replied: None,
            replies: 0,
            quiet_until: Time::ZERO,
            mobile,
            stamp,
            keyset,
            renews: limits.standing,
            limits,
            reply,
            expires: now + CANDIDATE_LIFE,
        }
    }
}

/// Candidates by our names for them.
pub(in super::super) struct Candidates<A> {
    all: BTreeMap<u32, Candidate<A>>,
    by_init: BTreeMap<Fingerprint, u32>,
    /// Of each mobile the oldest first, by their stamps.
    by_mobile: BTreeSet<([u8; 32], u64, u32)>,
    expiring: Timers<u32>,
}

impl<A> Default for Candidates<A> {
    fn default() -> Self {
        Self {
            all: BTreeMap::new(),
            by_init: BTreeMap::new(),
            by_mobile: BTreeSet::new(),
            expiring: Timers::new(),
        }
    }
}

impl<A> Candidates<A> {
    pub(in super::super) fn len(&self) -> usize {
        self.all.len()
    }

    #[cfg(test)]
    pub(in super::super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn insert(&mut self, candidate: Candidate<A>) {
        let name = candidate.keyset.local;
        self.by_init.insert(candidate.fingerprint, name);
        self.by_mobile.insert((*candidate.mobile.as_bytes(), candidate.stamp, name));
        self.expiring.replace(name, None, Some(candidate.expires));
        self.all.insert(name, candidate);
    }

    pub(super) fn get(&self, name: u32) -> Option<&Candidate<A>> {
        self.all.get(&name)
    }

    pub(super) fn get_mut(&mut self, name: u32) -> Option<&mut Candidate<A>> {
        self.all.get_mut(&name)
    }

    /// The one that answers this init.
    pub(super) fn answer_to(&mut self, init: &Fingerprint) -> Option<&mut Candidate<A>> {
        self.all.get_mut(self.by_init.get(init)?)
    }

    /// A mobile's, the one with the least stamp first.
    pub(super) fn of(&self, mobile: &PublicKey) -> impl Iterator<Item = &Candidate<A>> {
        let key = *mobile.as_bytes();
        let own = self.by_mobile.range((key, 0, 0)..=(key, u64::MAX, u32::MAX));
        own.filter_map(|(_, _, name)| self.all.get(name))
    }

    pub(super) fn remove(&mut self, name: u32) -> Option<Candidate<A>> {
        let candidate = self.all.remove(&name)?;
        self.by_init.remove(&candidate.fingerprint);
        self.by_mobile.remove(&(*candidate.mobile.as_bytes(), candidate.stamp, name));
        self.expiring.replace(name, Some(candidate.expires), None);
        Some(candidate)
    }

    /// Removes the one that has waited longest, if its time is over by `now`.
    pub(super) fn pop_expired(&mut self, now: Time) -> Option<Candidate<A>> {
        let name = self.expiring.pop_due(now)?;
        self.remove(name)
    }

    /// Removes those of mobiles that are not to be `kept`.
    pub(super) fn retain(&mut self, kept: impl Fn(&[u8; 32]) -> bool) {
        let others = self.by_mobile.iter().filter(|(mobile, ..)| !kept(mobile));
        let others: Vec<u32> = others.map(|(_, _, name)| *name).collect();
        for name in others {
            self.remove(name);
        }
    }
}
