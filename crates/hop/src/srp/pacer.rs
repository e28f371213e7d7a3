//! When the next datagram may leave, so that datagrams leave at a rate.

use core::time::Duration;

use lasthop_units::Time;

/// Unused time lets at most so much be sent at once, and the pacer is woken at most twice as often.
const BURST: Duration = Duration::from_millis(1);

/// Spaces datagrams by the time that each takes at the rate.
#[derive(Debug)]
pub(super) struct Pacer {
    /// When the next datagram may go.
    at: Time,
    /// Nothing was sent at the last opportunity, for lack of data, credit or window.
    idle: bool,
}

impl Pacer {
    pub(super) fn new(now: Time) -> Self {
        Self { at: now, idle: true }
    }

    /// When the next datagram may go.
    pub(super) fn at(&self) -> Time {
        self.at
    }

    /// When to wake for the next datagram, of which one takes `air`. At high rates waking for every
    /// one would cost more than the datagram: several share one wake-up, within what the burst makes
    /// up for.
    pub(super) fn wake(&self, air: Duration) -> Time {
        if air < BURST / 4 { self.at + BURST / 2 } else { self.at }
    }

    /// Datagrams may go from this moment on, whatever left before.
    pub(super) fn start(&mut self, now: Time) {
        self.at = now;
    }

    /// What left before is over: no burst makes up for the time since.
    pub(super) fn resume(&mut self, now: Time) {
        self.at = self.at.max(now);
    }

    /// There was an opportunity to send, and no data, credit or window for it.
    pub(super) fn on_idle(&mut self) {
        self.idle = true;
    }

    /// A datagram leaves that takes `air` at the rate; whether an opportunity was passed before it.
    pub(super) fn on_sent(&mut self, now: Time, air: Duration) -> bool {
        self.at = self.at.max(now - BURST.max(air)) + air;
        core::mem::take(&mut self.idle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_time_is_made_up_for_by_one_burst_at_most() {
        let air = Duration::from_micros(100);
        let mut pacer = Pacer::new(Time::ZERO);
        let now = Time::from_secs(1);
        let mut sent = 0;
        while pacer.at() <= now {
            assert_eq!(pacer.on_sent(now, air), sent == 0);
            sent += 1;
        }
        assert_eq!(sent, 11);
        assert_eq!(pacer.at(), now + air);
        assert_eq!(pacer.wake(air), pacer.at() + BURST / 2);
        assert_eq!(pacer.wake(BURST), pacer.at());
    }
}
