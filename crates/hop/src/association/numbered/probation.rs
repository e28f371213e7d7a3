//! Path validation (RFC 9000, section 8.2): a mobile that seems to have moved is sent little until it has shown that
//! it receives where its datagrams come from. Whoever writes other senders' addresses into its datagrams has
//! nobody flooded.

use alloc::vec::Vec;
use core::time::Duration;

use lasthop_units::Time;

use crate::path_id::{PathId, PathSet};
use crate::tokens::Tokens;

/// What may be sent to addresses that have shown nothing yet, a second and at once: a first round trip's worth, as
/// to a new association.
const BYTES_PER_SECOND: f64 = 48.0 * 1024.0;
const BYTES_AT_ONCE: f64 = 48.0 * 1024.0;
/// And this many times what has come from there, which amplifies as little as QUIC does (RFC 9000, section 8.1).
const AMPLIFICATION: usize = 3;
/// A challenge is repeated after so long, then after twice that, and so on up to the longest.
const AGAIN: Duration = Duration::from_millis(250);
const AGAIN_MAX: Duration = Duration::from_secs(4);

/// A challenge that has not been answered.
struct Challenge {
    path: PathId,
    /// What the response must repeat.
    token: [u8; 8],
    next_try: Time,
    wait: Duration,
}

/// Addresses that have shown nothing yet, and what such addresses may be sent.
pub(super) struct Probation {
    /// One for each path at most.
    challenges: Vec<Challenge>,
    /// Challenges so far.
    pub(super) count: u64,
    /// Shared by all addresses, so that whoever claims many has no more.
    credit: Tokens,
}

impl Default for Probation {
    fn default() -> Self {
        let credit = Tokens::new(BYTES_PER_SECOND, BYTES_AT_ONCE);
        Self { challenges: Vec::new(), count: 0, credit }
    }
}

impl Probation {
    /// The peer is elsewhere by a path, and is to repeat `token` from there.
    pub(super) fn begin(&mut self, now: Time, path: PathId, token: [u8; 8]) {
        self.count += 1;
        self.challenges.retain(|challenge| challenge.path != path);
        self.challenges.push(Challenge { path, token, next_try: now, wait: AGAIN });
    }

    fn is_on(&self, path: PathId) -> bool {
        self.challenges.iter().any(|challenge| challenge.path == path)
    }

    /// So many bytes have come by a path.
    pub(super) fn on_received(&mut self, path: PathId, bytes: usize) {
        if self.is_on(path) {
            self.credit.earn(AMPLIFICATION * bytes);
        }
    }

    /// So many bytes were sent by it.
    pub(super) fn on_sent(&mut self, path: PathId, bytes: usize) {
        if self.is_on(path) {
            self.credit.spend(bytes);
        }
    }

    /// The token to challenge the peer with now, and on which path.
    pub(super) fn poll_challenge(&mut self, now: Time) -> Option<(PathId, [u8; 8])> {
        let challenge = self.challenges.iter_mut().find(|challenge| challenge.next_try <= now)?;
        challenge.next_try = now + challenge.wait;
        challenge.wait = AGAIN_MAX.min(challenge.wait * 2);
        Some((challenge.path, challenge.token))
    }

    /// The paths by which nothing more may be sent to addresses that have shown nothing, and until when.
    pub(super) fn held(&mut self, now: Time) -> (PathSet, Option<Time>) {
        let mut held = PathSet::default();
        let until = self.next_timeout().and_then(|again| Some(self.credit.wait(now)?.min(again)));
        if until.is_some() {
            self.challenges.iter().for_each(|challenge| held.insert(challenge.path));
        }
        (held, until)
    }

    /// When a challenge is due.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.challenges.iter().map(|challenge| challenge.next_try).min()
    }

    /// The peer has repeated a token by a path: whether it is the one.
    pub(super) fn on_response(&mut self, path: PathId, token: [u8; 8]) -> bool {
        let is_right = |challenge: &Challenge| challenge.path == path && challenge.token == token;
        let right = self.challenges.iter().any(is_right);
        self.challenges.retain(|challenge| !is_right(challenge));
        right
    }
}
