//! Handshakes that a base has answered and that nobody has confirmed: how many, from whom, and how often.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use lasthop_units::Time;

use super::super::Transmit;
use super::Numbered;
use crate::config::Limits;
use crate::seal::{Fingerprint, PublicKey};
use crate::tokens::Tokens;

/// Handshakes that are answered but not yet confirmed, at most.
const CANDIDATES_MAX: usize = 64;
/// And of one mobile: what it repeats is one, and it has reason for another where its network has changed.
const CANDIDATES_OF_ONE: usize = 4;
/// How long a candidate waits for its first authentic datagram.
const CANDIDATE_LIFE: Duration = Duration::from_secs(5);
/// Diffie-Hellmans are done for so many inits a second, and so many at once.
const HANDSHAKES_PER_SECOND: f64 = 100.0;
const HANDSHAKES_AT_ONCE: f64 = 50.0;

/// An answered handshake whose keys nobody has used yet.
pub(in super::super) struct Candidate {
    fingerprint: Fingerprint,
    /// When its reply was sent, if it was sent exactly once so far.
    pub(super) replied: Option<Time>,
    replies: u32,
    pub(super) mobile: PublicKey,
    stamp: u64,
    pub(super) link: Numbered,
    pub(super) limits: Limits,
    reply: Vec<u8>,
    expires: Time,
}

impl Candidate {
    /// Answers, with `reply`, the init that has this fingerprint, this mobile's with this stamp.
    pub(super) fn new(
        now: Time,
        fingerprint: Fingerprint,
        (mobile, stamp): (PublicKey, u64),
        link: Numbered,
        limits: Limits,
        reply: Vec<u8>,
    ) -> Self {
        let expires = now + CANDIDATE_LIFE;
        let (replied, replies) = (None, 0);
        Self { fingerprint, replied, replies, mobile, stamp, link, limits, reply, expires }
    }
}

/// All candidates of a base, and their replies.
pub(in super::super) struct Handshakes<A> {
    pub(in super::super) candidates: Vec<Candidate>,
    /// Replies to send: where to, and which candidate's.
    pub(in super::super) replies: VecDeque<(A, u32)>,
    tokens: Tokens,
}

impl<A> Default for Handshakes<A> {
    fn default() -> Self {
        let tokens = Tokens::new(HANDSHAKES_PER_SECOND, HANDSHAKES_AT_ONCE);
        Self { candidates: Vec::new(), replies: VecDeque::new(), tokens }
    }
}

impl<A: Copy> Handshakes<A> {
    /// Removes candidates that nobody has confirmed in time.
    pub(super) fn expire(&mut self, now: Time) {
        self.candidates.retain(|c| c.expires > now);
    }

    /// Whether one more init may be read, which takes Diffie-Hellmans.
    pub(super) fn admit(&mut self, now: Time) -> bool {
        self.tokens.take(now)
    }

    /// Replies as before to an init that was answered; whether it was.
    pub(super) fn reply_again(&mut self, to: A, fingerprint: Fingerprint) -> bool {
        let known = self.candidates.iter().find(|c| c.fingerprint == fingerprint);
        let Some(receiver) = known.map(|c| c.link.local) else { return false };
        self.queue_reply(to, receiver);
        true
    }

    /// Makes room for a mobile's candidate of this stamp: an older one yields, a newer one does not. It is
    /// one of the mobile's own if that has as many as it may, so that no mobile keeps others out.
    pub(super) fn make_room(&mut self, mobile: &PublicKey, stamp: u64) -> bool {
        let own = self.candidates.iter().filter(|c| c.mobile == *mobile).count();
        let full = own >= CANDIDATES_OF_ONE;
        if !full && self.candidates.len() < CANDIDATES_MAX {
            return true;
        }
        let yields = |(_, c): &(usize, &Candidate)| !full || c.mobile == *mobile;
        let oldest = self.candidates.iter().enumerate().filter(yields).min_by_key(|(_, c)| c.stamp);
        let Some((at, _)) = oldest.filter(|(_, c)| c.stamp < stamp) else { return false };
        self.candidates.swap_remove(at);
        true
    }

    /// Adds a candidate and replies to it.
    pub(super) fn insert(&mut self, to: A, candidate: Candidate) {
        let receiver = candidate.link.local;
        self.candidates.push(candidate);
        self.queue_reply(to, receiver);
    }

    fn queue_reply(&mut self, to: A, receiver: u32) {
        if self.replies.len() < CANDIDATES_MAX {
            self.replies.push_back((to, receiver));
        }
    }

    pub(super) fn get(&self, receiver: u32) -> Option<&Candidate> {
        self.candidates.iter().find(|c| c.link.local == receiver)
    }

    pub(super) fn get_mut(&mut self, receiver: u32) -> Option<&mut Candidate> {
        self.candidates.iter_mut().find(|c| c.link.local == receiver)
    }

    /// Takes out a candidate that was confirmed.
    pub(super) fn take(&mut self, receiver: u32) -> Option<Candidate> {
        let at = self.candidates.iter().position(|c| c.link.local == receiver)?;
        Some(self.candidates.swap_remove(at))
    }

    /// Writes the next reply.
    pub(super) fn poll_reply(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit<A>> {
        loop {
            let (to, receiver) = self.replies.pop_front()?;
            let Some(candidate) = self.get_mut(receiver) else { continue };
            candidate.replies += 1;
            candidate.replied = (candidate.replies == 1).then_some(now);
            let reply = &candidate.reply;
            out.get_mut(..reply.len())?.copy_from_slice(reply);
            return Some(Transmit { to, len: reply.len() });
        }
    }
}
