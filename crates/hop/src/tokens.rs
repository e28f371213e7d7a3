//! A bound on how often something is done.

use lasthop_units::Time;

/// A bucket of tokens that fills steadily.
#[derive(Debug)]
pub(crate) struct Tokens {
    per_second: f64,
    most: f64,
    left: f64,
    at: Time,
}

impl Tokens {
    /// So many a second, and so many at once.
    pub(crate) fn new(per_second: f64, at_once: f64) -> Self {
        Self { per_second, most: at_once, left: at_once, at: Time::ZERO }
    }

    /// Takes one, if there is one.
    pub(crate) fn take(&mut self, now: Time) -> bool {
        let earned = now.since(self.at).as_secs_f64() * self.per_second;
        self.left = (self.left + earned).min(self.most);
        self.at = now;
        let enough = self.left >= 1.0;
        if enough {
            self.left -= 1.0;
        }
        enough
    }
}
