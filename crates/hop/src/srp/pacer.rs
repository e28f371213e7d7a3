//! When the next datagram may leave, so that datagrams leave at a rate.

use core::time::Duration;

use lasthop_units::Time;

/// Unused time lets at most so much be sent at once, beside what was held back on purpose.
const BURST: Duration = Duration::from_millis(1);

/// Spaces datagrams by the time that each takes at the rate.
#[derive(Debug)]
pub(super) struct Pacer {
    /// When the next datagram may go.
    at: Time,
    /// Nothing was sent at the last opportunity, for lack of data, credit or window.
    idle: bool,
    /// Datagrams that wait for the pacer leave together, once they are worth so much time at the rate.
    quantum: Duration,
    /// Some wait for that.
    gathering: bool,
    /// When the last datagram left, and how long the hop was busy from then on with it and those before it.
    last: Time,
    busy: Duration,
}

/// How a datagram leaves.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Departure {
    /// An opportunity to send was passed before it.
    pub(super) after_idle: bool,
    /// How long it waits at the hop for those that left together with it.
    pub(super) behind: Duration,
}

impl Pacer {
    pub(super) fn new(now: Time) -> Self {
        Self {
            at: now,
            idle: true,
            quantum: BURST,
            gathering: false,
            last: now,
            busy: Duration::ZERO,
        }
    }

    /// From here on datagrams that wait leave together once they are worth so much time at the rate.
    pub(super) fn set_quantum(&mut self, quantum: Duration) {
        self.quantum = quantum;
    }

    /// When to wake for the next datagram, if each takes `air`. Where several fit into the quantum, a wake-up
    /// for each would cost more than the datagrams do.
    pub(super) fn wake(&self, air: Duration) -> Time {
        if self.gathering { self.at + self.quantum.saturating_sub(air) } else { self.at }
    }

    /// Whether a datagram that takes `air` may leave now.
    pub(super) fn is_due(&mut self, now: Time, air: Duration) -> bool {
        if now < self.at {
            return false;
        }
        self.gathering &= now < self.wake(air);
        !self.gathering
    }

    /// Whether datagrams wait for nothing but the pacer: those that come to an idle one do not gather.
    pub(super) fn set_waiting(&mut self, now: Time, waiting: bool) {
        self.gathering = waiting && (self.gathering || now < self.at);
    }

    /// Datagrams may go from this moment on, whatever left before.
    pub(super) fn start(&mut self, now: Time) {
        self.at = now;
    }

    /// What left before is over: no more makes up for the time since than leaves together anyway.
    pub(super) fn resume(&mut self, now: Time) {
        self.at = self.at.max(now - self.quantum);
    }

    /// There was an opportunity to send, and no data, credit or window for it.
    pub(super) fn on_idle(&mut self) {
        self.idle = true;
    }

    /// A datagram leaves that takes `air` at the rate of sending, and keeps the hop busy for `service`.
    pub(super) fn on_sent(&mut self, now: Time, air: Duration, service: Duration) -> Departure {
        self.at = self.at.max(now - (self.quantum + BURST).max(air)) + air;
        let mut behind = self.busy.saturating_sub(now.since(self.last));
        if now > self.last {
            // Those before had their time at the rate, but for what was made up for.
            behind = behind.min(BURST);
        }
        (self.last, self.busy) = (now, behind + service);
        Departure { after_idle: core::mem::take(&mut self.idle), behind }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AIR: Duration = Duration::from_micros(100);

    /// Sends all that is due; how many.
    fn send(pacer: &mut Pacer, now: Time) -> usize {
        let mut sent = 0;
        while pacer.is_due(now, AIR) {
            pacer.on_sent(now, AIR, AIR / 2);
            sent += 1;
        }
        pacer.set_waiting(now, true);
        sent
    }

    #[test]
    fn unused_time_is_made_up_for_by_one_burst_at_most() {
        let mut pacer = Pacer::new(Time::ZERO);
        let now = Time::from_secs(1);
        assert!(pacer.on_sent(now, AIR, AIR).after_idle);
        assert!(!pacer.on_sent(now, AIR, AIR).after_idle);
        assert_eq!(send(&mut pacer, now), 19);
        assert_eq!(pacer.at, now + AIR);
        let late = now + Duration::from_millis(50);
        pacer.set_quantum(Duration::from_millis(4));
        assert_eq!(send(&mut pacer, late), 51);
    }

    #[test]
    fn what_waits_leaves_together_and_what_does_not_at_once() {
        let mut pacer = Pacer::new(Time::ZERO);
        assert_eq!(send(&mut pacer, Time::ZERO), 1);
        let wake = pacer.wake(AIR);
        assert_eq!(wake, Time::ZERO + BURST);
        assert_eq!(send(&mut pacer, wake - AIR), 0);
        assert_eq!(send(&mut pacer, wake), 10);
        assert_eq!(pacer.wake(AIR), wake + BURST);
        pacer.set_waiting(wake, false);
        assert_eq!(pacer.wake(AIR), wake + AIR);
        assert_eq!(pacer.wake(2 * BURST), pacer.at);
    }

    #[test]
    fn a_datagram_waits_at_the_hop_for_those_that_left_with_it() {
        let mut pacer = Pacer::new(Time::ZERO);
        let mut behind = |now: Time| pacer.on_sent(now, AIR, AIR / 2).behind;
        let later = Time::ZERO + AIR;
        assert_eq!(
            [Time::ZERO, Time::ZERO, later, later].map(&mut behind),
            [Duration::ZERO, AIR / 2, Duration::ZERO, AIR / 2]
        );
    }

    /// Nor does a rate that was too low leave a queue behind that is not there.
    #[test]
    fn a_datagram_does_not_wait_for_those_before() {
        let mut pacer = Pacer::new(Time::ZERO);
        for _ in 0..8 {
            pacer.on_sent(Time::ZERO, 100 * AIR, 100 * AIR);
        }
        let next = pacer.on_sent(Time::ZERO + AIR, AIR, AIR);
        assert!(next.behind <= BURST, "{next:?}");
    }
}
