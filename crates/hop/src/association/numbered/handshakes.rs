//! Handshakes that a base has answered and that nobody has confirmed: how many, from whom, and how often.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use lasthop_units::{CarrierAddress, Time};
use lasthop_wire::datagram::CookieReply;

use super::super::{Stamps, Transmit};
use super::candidates::{Candidate, Candidates};
use super::sources::Sources;
use crate::path_id::PathId;
use crate::seal::{Fingerprint, PublicKey, Responder};
use crate::tokens::Tokens;

/// Handshakes that are answered but not yet confirmed, at most, where no more mobiles are expected. Were there fewer
/// than come at once, each would lose its place to another before its mobile could confirm it.
const CANDIDATES_MAX: usize = 256;
/// And of one mobile: what it repeats is one, and it has reason for another where its network has changed.
const CANDIDATES_OF_ONE: usize = 4;
/// And of a peer that has many associations, which may make as many at once.
const CANDIDATES_OF_PEER: usize = 128;
/// A reply is not sent again sooner: a mobile repeats its init less often.
const REPLY_AGAIN: Duration = Duration::from_millis(100);
/// Diffie-Hellmans are done for so many inits a second, and so many at once, whose addresses may be forged. Where
/// half of that is used up a cookie is demanded.
const UNPROVEN_PER_SECOND: f64 = 100.0;
const UNPROVEN_AT_ONCE: f64 = 50.0;
/// And for so many that show a cookie, of all sources together.
const PROVEN_PER_SECOND: f64 = 2000.0;
const PROVEN_AT_ONCE: f64 = 1000.0;
/// Replies, and demands for a cookie, that wait to be sent.
const REPLIES_MAX: usize = 256;

/// What is sent to somebody with whom no association stands.
pub(in super::super) enum Reply {
    /// To a handshake, by our name for the candidate.
    Candidate(u32),
    /// To a handshake of which nothing is kept.
    Other(Vec<u8>),
    Cookie(CookieReply),
}

/// What becomes of an init that was not answered before.
pub(super) enum Admission {
    /// It may be read.
    Read,
    /// It must show a cookie, which is on its way.
    Cookie,
    /// There are too many.
    Throttled,
}

/// All candidates of a base, and their replies.
pub(in super::super) struct Handshakes<A> {
    pub(in super::super) candidates: Candidates<A>,
    /// Replies to send, and where to.
    pub(in super::super) replies: VecDeque<(A, Reply)>,
    unproven: Tokens,
    proven: Tokens,
    sources: Sources,
    pub(in super::super) stamps: Stamps,
}

impl<A> Default for Handshakes<A> {
    fn default() -> Self {
        Self {
            candidates: Candidates::default(),
            replies: VecDeque::new(),
            unproven: Tokens::new(UNPROVEN_PER_SECOND, UNPROVEN_AT_ONCE),
            proven: Tokens::new(PROVEN_PER_SECOND, PROVEN_AT_ONCE),
            sources: Sources::default(),
            stamps: Stamps::default(),
        }
    }
}

impl<A: CarrierAddress> Handshakes<A> {
    /// Those who call are peers that have many associations.
    pub(super) fn expect_peers(&mut self) {
        self.sources = Sources::of_peers();
        self.stamps = Stamps::of_peers();
    }

    /// Removes candidates that nobody has confirmed in time: whence those of them came that were replied to more than
    /// once, and whose they are.
    pub(super) fn expire(&mut self, now: Time) -> Vec<(A, PublicKey)> {
        let expired = core::iter::from_fn(|| self.candidates.pop_expired(now));
        expired.filter(|c| c.replies > 1).map(|c| (c.from, c.mobile)).collect()
    }

    /// Whether one more init may be read, which takes Diffie-Hellmans.
    pub(super) fn admit(
        &mut self,
        now: Time,
        from: A,
        fingerprint: &Fingerprint,
        (responder, init): (&mut Responder, &[u8]),
    ) -> Admission {
        let source = from.source();
        let low = self.unproven.is_low(now);
        let admitted = if low && responder.shows_cookie(now, &source, init) {
            self.sources.admit(now, source) && self.proven.take(now)
        } else if low && let Some(cookie) = responder.demand_cookie(now, &source, fingerprint) {
            self.queue_reply(from, Reply::Cookie(cookie));
            return Admission::Cookie;
        } else {
            self.unproven.take(now)
        };
        if admitted { Admission::Read } else { Admission::Throttled }
    }

    /// Replies as before to an init that was answered; whether it was.
    pub(super) fn reply_again(&mut self, now: Time, to: A, fingerprint: &Fingerprint) -> bool {
        let Some(candidate) = self.candidates.answer_to(fingerprint) else { return false };
        if candidate.quiet_until <= now {
            candidate.quiet_until = now + REPLY_AGAIN;
            let receiver = candidate.keyset.local;
            self.queue_reply(to, Reply::Candidate(receiver));
        }
        true
    }

    /// Makes room for a mobile's candidate of this stamp, where so many mobiles are expected. If the mobile has as many
    /// as it may, the oldest of them yields to a newer one, unless each may become another association of a peer's; else
    /// the one that has waited longest, whosever it is.
    pub(super) fn make_room(
        &mut self,
        mobile: &PublicKey,
        stamp: u64,
        many: bool,
        expected: usize,
    ) -> bool {
        let oldest = self.candidates.of(mobile).next().map(|c| (c.stamp, c.keyset.local));
        let own = self.candidates.of(mobile).count();
        if own >= if many { CANDIDATES_OF_PEER } else { CANDIDATES_OF_ONE } {
            let yields = oldest.filter(|(theirs, _)| !many && *theirs < stamp);
            return yields.is_some_and(|(_, name)| self.candidates.remove(name).is_some());
        }
        if self.candidates.len() >= CANDIDATES_MAX.max(expected) {
            self.candidates.pop_expired(Time::NEVER);
        }
        true
    }

    /// Adds a candidate and replies to it.
    pub(super) fn insert(&mut self, now: Time, mut candidate: Candidate<A>) {
        let (to, receiver) = (candidate.from, candidate.keyset.local);
        candidate.quiet_until = now + REPLY_AGAIN;
        self.candidates.insert(candidate);
        self.queue_reply(to, Reply::Candidate(receiver));
    }

    /// Replies to a handshake of which nothing is kept.
    pub(super) fn reply(&mut self, to: A, reply: Vec<u8>) {
        self.queue_reply(to, Reply::Other(reply));
    }

    fn queue_reply(&mut self, to: A, reply: Reply) {
        if self.replies.len() < REPLIES_MAX {
            self.replies.push_back((to, reply));
        }
    }

    /// A mobile's candidates that are to be associations of their own.
    pub(super) fn of(&self, mobile: &PublicKey) -> usize {
        self.candidates.of(mobile).filter(|c| c.renews.is_none()).count()
    }

    pub(super) fn get(&self, receiver: u32) -> Option<&Candidate<A>> {
        self.candidates.get(receiver)
    }

    pub(super) fn get_mut(&mut self, receiver: u32) -> Option<&mut Candidate<A>> {
        self.candidates.get_mut(receiver)
    }

    /// Takes out a candidate that is no more: it was confirmed, or is another's by now.
    pub(super) fn take(&mut self, receiver: u32) -> Option<Candidate<A>> {
        self.candidates.remove(receiver)
    }

    /// Removes candidates of mobiles whose are not to be `kept`, and all that is known of those that are not `allowed`.
    pub(super) fn retain(
        &mut self,
        kept: impl Fn(&[u8; 32]) -> bool,
        allowed: impl Fn(&[u8; 32]) -> bool,
    ) {
        self.candidates.retain(kept);
        self.stamps.retain(allowed);
    }

    /// Writes the next reply.
    pub(super) fn poll_reply(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit<A>> {
        loop {
            let (to, reply) = self.replies.pop_front()?;
            let cookie;
            let reply = match &reply {
                Reply::Candidate(receiver) => {
                    let Some(candidate) = self.get_mut(*receiver) else { continue };
                    candidate.replies += 1;
                    candidate.replied = (candidate.replies == 1).then_some(now);
                    &candidate.reply
                }
                Reply::Other(reply) => reply.as_slice(),
                Reply::Cookie(reply) => {
                    cookie = reply.to_bytes();
                    &cookie
                }
            };
            out.get_mut(..reply.len())?.copy_from_slice(reply);
            return Some(Transmit { path: PathId::FIRST, to, len: reply.len() });
        }
    }
}
