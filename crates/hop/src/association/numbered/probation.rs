//! Path validation (RFC 9000, section 8.2): a mobile that seems to have moved is sent little until it has shown that
//! it receives where its datagrams come from. Whoever writes other senders' addresses into its datagrams has
//! nobody flooded.

use core::time::Duration;

use lasthop_units::Time;

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
    /// What the response must repeat.
    token: [u8; 8],
    next_try: Time,
    wait: Duration,
}

/// The present address, if it has shown nothing yet, and what such addresses may be sent.
pub(super) struct Probation {
    challenge: Option<Challenge>,
    /// Challenges so far.
    pub(super) count: u64,
    /// Shared by all addresses, so that whoever claims many has no more.
    credit: Tokens,
}

impl Default for Probation {
    fn default() -> Self {
        let credit = Tokens::new(BYTES_PER_SECOND, BYTES_AT_ONCE);
        Self { challenge: None, count: 0, credit }
    }
}

impl Probation {
    /// The peer is elsewhere, and is to repeat `token` from there.
    pub(super) fn begin(&mut self, now: Time, token: [u8; 8]) {
        self.count += 1;
        self.challenge = Some(Challenge { token, next_try: now, wait: AGAIN });
    }

    /// So many bytes have come from the address.
    pub(super) fn on_received(&mut self, bytes: usize) {
        if self.challenge.is_some() {
            self.credit.earn(AMPLIFICATION * bytes);
        }
    }

    /// So many bytes were sent there.
    pub(super) fn on_sent(&mut self, bytes: usize) {
        if self.challenge.is_some() {
            self.credit.spend(bytes);
        }
    }

    /// The token to challenge the peer with now.
    pub(super) fn poll_challenge(&mut self, now: Time) -> Option<[u8; 8]> {
        let challenge = self.challenge.as_mut().filter(|challenge| challenge.next_try <= now)?;
        challenge.next_try = now + challenge.wait;
        challenge.wait = AGAIN_MAX.min(challenge.wait * 2);
        Some(challenge.token)
    }

    /// Until when nothing more may be sent to an address that has shown nothing; `None` if something may.
    pub(super) fn blocked_until(&mut self, now: Time) -> Option<Time> {
        let again = self.next_timeout()?;
        Some(self.credit.wait(now)?.min(again))
    }

    /// When a challenge is due.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.challenge.as_ref().map(|challenge| challenge.next_try)
    }

    /// The peer has repeated a token: whether it is the one.
    pub(super) fn on_response(&mut self, token: [u8; 8]) -> bool {
        let right = self.challenge.as_ref().is_some_and(|challenge| challenge.token == token);
        if right {
            self.challenge = None;
        }
        right
    }
}
