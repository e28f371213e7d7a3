//! How fast what has waited is handed on.
//!
//! Behind a packet that was lost a round trip's worth may wait. All of it at once is more than a socket's buffer holds, which
//! for UDP is some hundred packets on Linux unless the application asks for more, and what overflows looks like congestion to
//! the application.

use core::time::Duration;

use lasthop_units::Time;

/// So many bytes may be delivered at once, and again every [`STEP`].
const BURST: usize = 24 * 1024;
const STEP: Duration = Duration::from_millis(1);
/// Beside that, so many times what comes: a hop of any rate catches up.
const TIMES: usize = 4;

/// A flow of which more need not wait than may be delivered at once.
#[derive(Debug)]
pub(super) struct Drain {
    /// Up to this number its packets wait for nothing any more.
    to: u64,
    /// What may be delivered.
    left: usize,
    refilled: Time,
}

impl Drain {
    pub(super) fn new(now: Time) -> Self {
        Self { to: 0, left: BURST, refilled: now }
    }

    /// When more may be delivered, if nothing comes.
    pub(super) fn next(&self) -> Time {
        self.refilled + STEP
    }

    /// So many bytes of the flow have come.
    pub(super) fn on_arrival(&mut self, bytes: usize) {
        self.left = (self.left + TIMES * bytes).min(BURST);
    }

    /// It may be time to deliver more, and packets up to this number wait for nothing any more.
    pub(super) fn go_on(&mut self, now: Time, to: u64) {
        self.to = self.to.max(to);
        if now >= self.next() {
            (self.left, self.refilled) = (BURST, now);
        }
    }

    pub(super) fn covers(&self, number: u64) -> bool {
        number <= self.to
    }

    pub(super) fn is_spent(&self) -> bool {
        self.left == 0
    }

    pub(super) fn spend(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes);
    }
}
