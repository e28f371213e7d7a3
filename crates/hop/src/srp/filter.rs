//! The least of recent samples.

use core::time::Duration;

use lasthop_units::Time;

/// The minimum over a sliding window, exact to half a window: the least of the present and of the
/// previous half.
#[derive(Clone, Debug)]
pub(super) struct WindowedMin<T> {
    half: Duration,
    turned: Time,
    present: Option<T>,
    previous: Option<T>,
}

impl<T: Copy + Ord> WindowedMin<T> {
    pub(super) fn new(window: Duration) -> Self {
        Self { half: window / 2, turned: Time::ZERO, present: None, previous: None }
    }

    pub(super) fn insert(&mut self, now: Time, sample: T) {
        let age = now.since(self.turned);
        if age >= self.half {
            self.previous = self.present.take().filter(|_| age < 2 * self.half);
            self.turned = now;
        }
        self.present = Some(self.present.map_or(sample, |m| m.min(sample)));
    }

    pub(super) fn get(&self) -> Option<T> {
        match (self.present, self.previous) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    pub(super) fn clear(&mut self) {
        self.present = None;
        self.previous = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_minima_expire_and_recent_ones_are_kept() {
        let mut f = WindowedMin::new(Duration::from_secs(10));
        f.insert(Time::from_secs(0), 5);
        f.insert(Time::from_secs(4), 9);
        assert_eq!(f.get(), Some(5));
        f.insert(Time::from_secs(6), 8);
        assert_eq!(f.get(), Some(5));
        f.insert(Time::from_secs(12), 7);
        assert_eq!(f.get(), Some(7));
        f.insert(Time::from_secs(18), 9);
        assert_eq!(f.get(), Some(7));
        f.insert(Time::from_secs(24), 9);
        assert_eq!(f.get(), Some(9));
        f.insert(Time::from_secs(60), 11);
        assert_eq!(f.get(), Some(11));
    }
}
