//! CoDel: when a queue has been too long for too long (RFC 8289).

use core::time::Duration;

use lasthop_units::Time;

/// What CoDel goes by; it follows the hop.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// How long packets may wait.
    pub(super) target: Duration,
    /// For how long they may wait longer.
    pub(super) interval: Duration,
    /// How long they may wait at most where their sender does not listen.
    pub(super) unheeded: Duration,
}

/// A sender that listens to drops or marks has slowed down after so many intervals.
const UNHEEDED: u32 = 8;
/// One that did not is not given as long again: BBR, for one, lets the queue run empty every ten seconds (ProbeRTT).
const REMEMBERED: Duration = Duration::from_secs(30);

/// What is to become of a packet that leaves its queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// It is sent as it is.
    Pass,
    /// It is dropped, or marked where it can be.
    Signal,
    /// It is dropped: its sender has listened to neither marks nor drops (RFC 8033 section 5.1 drops, too, where marks
    /// are many).
    Drop,
}

/// One queue's state (RFC 8289 section 5.3).
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Codel {
    first_above: Option<Time>,
    drop_next: Time,
    count: u32,
    last_count: u32,
    dropping: bool,
    /// When it began to drop or mark.
    since: Time,
    /// The queue has stood ever since, and was not empty after that either.
    unheeded: bool,
    /// When that was last so.
    unheeded_at: Option<Time>,
}

impl Codel {
    /// What is to become of a packet that leaves the queue after waiting for `waited`; `last` if it leaves less than a
    /// full packet behind.
    pub(super) fn judge(&mut self, now: Time, waited: Duration, last: bool, by: Bounds) -> Verdict {
        self.unheeded &= !last;
        let bad = self.is_due(now, waited, last, by);
        let known = self.unheeded_at.is_some_and(|at| now.since(at) < REMEMBERED);
        let intervals = if known { 1 } else { UNHEEDED };
        if self.dropping && now.since(self.since) >= intervals * by.interval {
            self.unheeded = true;
        }
        if self.unheeded {
            self.unheeded_at = Some(now);
        }
        match bad {
            _ if self.unheeded && waited > by.unheeded => Verdict::Drop,
            true => Verdict::Signal,
            false => Verdict::Pass,
        }
    }

    /// The packet is to be dropped or marked.
    fn is_due(&mut self, now: Time, waited: Duration, last: bool, by: Bounds) -> bool {
        if !self.has_stood(now, waited, last, by) {
            self.dropping = false;
            return false;
        }
        if self.dropping {
            if now < self.drop_next {
                return false;
            }
            self.count += 1;
            self.drop_next += self.spacing(by.interval);
            return true;
        }
        (self.dropping, self.since) = (true, now);
        // What it took to control the queue a moment ago is a better start than one.
        let recently = now.since(self.drop_next) < 16 * by.interval;
        let grown = self.count - self.last_count;
        self.count = if grown > 1 && recently { grown } else { 1 };
        self.last_count = self.count;
        self.drop_next = now + self.spacing(by.interval);
        true
    }

    /// Packets have waited too long for a whole interval.
    fn has_stood(&mut self, now: Time, waited: Duration, last: bool, by: Bounds) -> bool {
        if waited < by.target || last {
            self.first_above = None;
            return false;
        }
        now >= *self.first_above.get_or_insert(now + by.interval)
    }

    fn spacing(&self, interval: Duration) -> Duration {
        interval.div_f64(libm::sqrt(f64::from(self.count.max(1))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BY: Bounds = Bounds {
        target: Duration::from_millis(5),
        interval: Duration::from_millis(100),
        unheeded: Duration::from_millis(90),
    };

    /// How many of the packets that leave, one a millisecond, are judged too many, when all wait so long.
    fn judged(codel: &mut Codel, from: u64, to: u64, waited_ms: u64) -> usize {
        let waited = Duration::from_millis(waited_ms);
        let judge = |ms| codel.judge(Time::from_millis(ms), waited, false, BY);
        (from..to).map(judge).filter(|verdict| *verdict != Verdict::Pass).count()
    }

    /// SRP-33: a queue that stands is cut ever faster, a burst is not.
    #[test]
    fn a_burst_passes_and_a_standing_queue_does_not() {
        let mut codel = Codel::default();
        assert_eq!(judged(&mut codel, 0, 99, 80), 0, "a burst of less than an interval");
        assert_eq!(judged(&mut codel, 99, 100, 4), 0);
        assert_eq!(judged(&mut codel, 100, 200, 80), 0);
        let (first, second) = (judged(&mut codel, 200, 700, 80), judged(&mut codel, 700, 1200, 80));
        assert!(first > 5 && second > first, "{first} {second}");
        assert_eq!(judged(&mut codel, 1200, 1300, 4), 0, "short again");
        let last = codel.judge(Time::from_secs(2), Duration::from_secs(1), true, BY);
        assert_eq!(last, Verdict::Pass, "the last");
    }

    /// SRP-33: what neither marks nor drops have slowed waits no longer than the bound, until the queue was empty.
    #[test]
    fn a_sender_that_does_not_listen_is_cut_off() {
        let mut codel = Codel::default();
        let (long, short) = (BY.unheeded + Duration::from_millis(1), BY.unheeded);
        let mut of = |ms, waited, last| codel.judge(Time::from_millis(ms), waited, last, BY);
        let first = (0..1000).find(|ms| of(*ms, long, false) == Verdict::Drop);
        assert_eq!(first, Some(900), "eight intervals after the first signal");
        assert_ne!(of(901, short, false), Verdict::Drop, "no longer than it may");
        assert_eq!(of(902, long, false), Verdict::Drop);
        assert_ne!(of(903, Duration::ZERO, false), Verdict::Drop);
        assert_eq!(of(904, long, false), Verdict::Drop, "it was not empty");
        assert_eq!(of(905, long, true), Verdict::Pass);
        assert_ne!(of(906, long, false), Verdict::Drop, "it was");
        let again = (907..2000).find(|ms| of(*ms, long, false) == Verdict::Drop);
        assert_eq!(again, Some(1106), "one interval after the next signal");
        let later = 31_200;
        assert_eq!(of(later - 1, long, true), Verdict::Pass);
        let first = (later..later + 2000).find(|ms| of(*ms, long, false) == Verdict::Drop);
        assert_eq!(first, Some(later + 900), "what was long ago is forgotten");
    }
}
