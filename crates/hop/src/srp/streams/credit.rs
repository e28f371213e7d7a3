//! Credit for all streams together, both ways.

use super::blocked::Blocked;
use super::recv::GROWTH;
use crate::srp::Violation;

/// What the peer may send, and what we may. In bytes from the association's beginning, windows apart.
#[derive(Debug)]
pub(super) struct Credit {
    /// What the peer may send in all.
    limit: u64,
    window: u64,
    window_max: u64,
    received: u64,
    consumed: u64,
    /// What we may send in all, and have.
    peer_limit: u64,
    used: u64,
    blocked: Blocked,
}

impl Credit {
    /// The peer begins with `limit`, on the way to a `window` that grows to `window_max`.
    pub(super) fn new(limit: u64, window: u64, window_max: u64, peer_limit: u64) -> Self {
        Self {
            limit,
            window,
            window_max,
            received: 0,
            consumed: 0,
            peer_limit,
            used: 0,
            blocked: Blocked::default(),
        }
    }

    /// What the peer may send in all.
    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    pub(super) fn window(&self) -> u64 {
        self.window
    }

    /// As wide as the window gets.
    pub(super) fn window_max(&self) -> u64 {
        self.window_max
    }

    /// The peer has sent so much more.
    ///
    /// # Errors
    ///
    /// That is more than it was granted.
    pub(super) fn receive(&mut self, bytes: u64) -> Result<(), Violation> {
        self.received += bytes;
        if self.received > self.limit { Err(Violation) } else { Ok(()) }
    }

    /// So much more of what the peer sends was taken, or never will be.
    pub(super) fn consume(&mut self, bytes: u64) {
        self.consumed += bytes;
    }

    /// What the peer may send before more is consumed, and what has come and was not.
    pub(super) fn outstanding(&self) -> u64 {
        self.limit - self.consumed.min(self.limit)
    }

    /// What was taken, or never will be, of all that the peer has sent.
    pub(super) fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Grants more when enough was consumed, or at once, up to a window of `most`; true if the new
    /// credit should be sent.
    pub(super) fn renew(&mut self, at_once: bool, most: u64) -> bool {
        let window = self.window.min(most);
        let limit = self.consumed + window;
        let renewed = limit > self.limit && (at_once || limit - self.limit >= window / 4);
        if renewed {
            self.limit = limit;
        }
        renewed
    }

    /// The window is as large as it gets.
    pub(super) fn is_widest(&self) -> bool {
        self.window >= self.window_max
    }

    /// The window proved too small.
    pub(super) fn widen(&mut self) {
        self.window = (self.window * GROWTH).min(self.window_max);
    }

    /// The peer of a new association grants this.
    pub(super) fn establish(&mut self, peer_limit: u64) {
        self.peer_limit = peer_limit;
    }

    /// The peer grants more; an older, lower grant changes nothing.
    pub(super) fn raise(&mut self, peer_limit: u64) {
        self.peer_limit = self.peer_limit.max(peer_limit);
    }

    /// What we may still send.
    pub(super) fn available(&self) -> u64 {
        self.peer_limit.saturating_sub(self.used)
    }

    pub(super) fn spend(&mut self, bytes: u64) {
        self.used += bytes;
    }

    /// The peer is to be told that no more than `ahead` bytes of credit are left.
    pub(super) fn take_blocked(&mut self, ahead: u64) -> bool {
        self.blocked.take(self.used, self.peer_limit, ahead)
    }

    /// The datagram with "blocked" was lost.
    pub(super) fn on_blocked_lost(&mut self) {
        self.blocked.on_lost();
    }

    #[cfg(test)]
    pub(super) fn received_and_consumed(&self) -> (u64, u64) {
        (self.received, self.consumed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_is_renewed_by_quarters_of_the_window_or_at_once() {
        let mut c = Credit::new(100, 100, 1000, 0);
        assert_eq!(c.receive(100), Ok(()));
        c.consume(24);
        assert!(!c.renew(false, u64::MAX));
        c.consume(1);
        assert!(c.renew(false, u64::MAX) && c.limit() == 125);
        c.consume(1);
        assert!(c.renew(true, u64::MAX) && !c.renew(true, u64::MAX));
        assert_eq!(c.receive(26), Ok(()));
        assert_eq!(c.receive(1), Err(Violation));
    }

    /// Where memory is scarce less is granted anew; what was granted stays granted.
    #[test]
    fn credit_shrinks_only_as_it_is_used() {
        let mut c = Credit::new(100, 100, 100, 0);
        c.receive(100).unwrap();
        for consumed in 1..=100 {
            c.consume(1);
            c.renew(false, 40);
            let window = c.limit() - consumed;
            assert_eq!(c.limit().max(100), c.limit());
            assert!(consumed < 60 || (30..=40).contains(&window), "{consumed}: {window}");
        }
        assert_eq!(c.outstanding(), 40);
        assert!(c.renew(false, 80) && c.outstanding() == 80);
    }

    #[test]
    fn the_window_grows_to_its_bound() {
        let mut c = Credit::new(100, 100, 1000, 0);
        for window in [400, 1000, 1000] {
            c.widen();
            assert_eq!((c.window(), c.is_widest()), (window, window == 1000));
        }
    }
}
