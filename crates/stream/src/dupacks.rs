//! Duplicate acknowledgements that wait, so that a link can repair a loss before the sender is notified of
//! it (DDA-2, CC-5).

use lasthop_units::{Duration, Time};

/// The duplicates that are due for one gap of a stream.
#[derive(Clone, Copy, Debug)]
pub struct HeldDupacks {
    /// Duplicates that wait.
    count: u8,
    /// Duplicates that were due since the gap came, whether they waited or not.
    run: u32,
    /// When the wait is over.
    timer: Time,
    /// Nothing waits any more for this gap.
    over: bool,
}

impl HeldDupacks {
    /// None is due.
    pub const NONE: Self = Self { count: 0, run: 0, timer: Time::NEVER, over: false };

    /// When the wait is over; [`Time::NEVER`] if nothing waits.
    #[inline]
    pub fn timer(&self) -> Time {
        self.timer
    }

    /// Duplicates that were due for this gap before.
    pub fn run(&self) -> u32 {
        self.run
    }

    /// A duplicate is due that may wait, or not at all. How many are to be sent.
    pub fn add(&mut self, now: Time, wait: Option<Duration>) -> u8 {
        self.run = self.run.saturating_add(1);
        match wait {
            Some(wait) if !self.over => {
                self.count = self.count.saturating_add(1);
                if self.timer == Time::NEVER {
                    self.timer = now + wait;
                }
                0
            }
            _ => 1,
        }
    }

    /// The wait is over, by the clock or because of what is known of the gap. How many are to be
    /// sent.
    pub fn release(&mut self) -> u8 {
        self.over = true;
        self.timer = Time::NEVER;
        core::mem::take(&mut self.count)
    }

    /// The gap was filled, at least in part. How many are thrown away.
    pub fn discard(&mut self) -> u8 {
        core::mem::replace(self, Self::NONE).count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Option<Duration> = Some(Duration::from_millis(50));

    /// DDA-3: one timer holds for all that wait, and what was released no longer waits.
    #[test]
    fn all_that_wait_go_together() {
        let mut held = HeldDupacks::NONE;
        assert_eq!(held.add(Time::ZERO, WAIT), 0);
        assert_eq!(held.add(Time::from_millis(40), WAIT), 0);
        assert_eq!(held.timer(), Time::from_millis(50));
        assert_eq!((held.release(), held.timer()), (2, Time::NEVER));
        assert_eq!((held.add(Time::from_millis(60), WAIT), held.release()), (1, 0));
        assert_eq!(held.discard(), 0);
        assert_eq!(held.add(Time::from_millis(70), WAIT), 0);
    }

    #[test]
    fn a_peer_cannot_make_more_wait_than_can_be_sent() {
        let mut held = HeldDupacks::NONE;
        (0..10_000).for_each(|_| {
            held.add(Time::ZERO, WAIT);
        });
        assert_eq!((held.run(), held.release()), (10_000, u8::MAX));
    }
}
