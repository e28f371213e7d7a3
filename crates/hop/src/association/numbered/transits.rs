//! What a base passes on for its mobiles, to another base and back: whose a datagram is, and where the mobile is.
//!
//! What is to be passed on proves nothing, and need not: it goes to one other base, which opens it or does not, and it is no
//! more than came. What comes back goes only where the mobile has proved to receive, by a cookie as for handshakes.

use alloc::collections::{BTreeMap, VecDeque};

use lasthop_units::{CarrierAddress, Stream as Numbers, Time};
use lasthop_wire::datagram::{Transit, TransitCheck};
use lasthop_wire::mhp::transit::TransitGrant;

use super::super::Transmit;
use crate::path_id::PathId;
use crate::seal::{Cookie, Responder};
use crate::tokens::Tokens;

/// The rate limit of challenges: a second, and at once.
const CHALLENGES_PER_SECOND: f64 = 200.0;
const CHALLENGES_AT_ONCE: f64 = 100.0;
/// Challenges that wait to be sent.
const CHALLENGES_MAX: usize = 64;

/// One mobile's.
struct Granted<A> {
    grant: TransitGrant,
    /// Where it has proved to be.
    at: Option<A>,
}

/// Those of all mobiles, by the number of their association.
pub(super) struct Transits<A> {
    granted: BTreeMap<u64, Granted<A>>,
    tokens: Numbers,
    challenges: VecDeque<(A, TransitCheck)>,
    pace: Tokens,
}

impl<A: CarrierAddress> Transits<A> {
    pub(super) fn new(tokens: Numbers) -> Self {
        let pace = Tokens::new(CHALLENGES_PER_SECOND, CHALLENGES_AT_ONCE);
        Self { granted: BTreeMap::new(), tokens, challenges: VecDeque::new(), pace }
    }

    /// Passes on what is a mobile's from now on, which calls its association so.
    pub(super) fn grant(&mut self, id: u64, receiver: u32) -> TransitGrant {
        let tokens = &mut self.tokens;
        let granted = self.granted.entry(id).or_insert_with(|| {
            let mut token = [0; 16];
            tokens.fill(&mut token);
            Granted { grant: TransitGrant { receiver, token }, at: None }
        });
        granted.grant
    }

    /// Passes on nothing of a mobile's any more.
    pub(super) fn revoke(&mut self, id: u64) {
        self.granted.remove(&id);
    }

    /// Where a mobile has proved to be.
    pub(super) fn at(&self, id: u64) -> Option<A> {
        self.granted.get(&id)?.at
    }

    /// Whether a mobile's datagram that came from there is to be passed on. It is asked for its address if that is new.
    pub(super) fn admits(
        &mut self,
        now: Time,
        id: u64,
        from: A,
        transit: Transit,
        responder: &mut Responder,
    ) -> bool {
        let Some(granted) = self.granted.get(&id) else { return false };
        if granted.at != Some(from)
            && self.challenges.len() < CHALLENGES_MAX
            && self.pace.take(now)
            && let Some(cookie) = responder.cookie_for(now, &from.source())
        {
            let Transit { path, receiver } = transit;
            let mac = cookie.to_bytes();
            self.challenges.push_back((from, TransitCheck { proof: false, path, receiver, mac }));
        }
        true
    }

    /// A mobile says that it receives there: whether it does.
    pub(super) fn prove(
        &mut self,
        now: Time,
        id: u64,
        from: A,
        proof: &TransitCheck,
        responder: &mut Responder,
    ) -> bool {
        let Some(granted) = self.granted.get_mut(&id) else { return false };
        let token = &granted.grant.token;
        let known = responder.cookies_for(now, &from.source());
        let right = known.into_iter().flatten().any(|cookie| cookie.shows(token, &proof.mac));
        if right {
            granted.at = Some(from);
        }
        right
    }

    /// Writes the next challenge.
    pub(super) fn poll_challenge(&mut self, out: &mut [u8]) -> Option<Transmit<A>> {
        let (to, challenge) = self.challenges.pop_front()?;
        out.get_mut(..TransitCheck::LEN)?.copy_from_slice(&challenge.to_bytes());
        Some(Transmit { path: PathId(challenge.path), to, len: TransitCheck::LEN })
    }
}

/// A mobile's answer to a challenge, if that is for what this grant is for.
pub(super) fn answer(grant: &TransitGrant, challenge: &TransitCheck) -> Option<TransitCheck> {
    let asked = !challenge.proof && challenge.receiver == grant.receiver;
    let mac = Cookie::from_bytes(challenge.mac).sign(&grant.token);
    asked.then_some(TransitCheck { proof: true, mac, ..*challenge })
}
