//! A bound on how often something is done.

use lasthop_units::Time;

/// A bucket of tokens that fills steadily.
#[derive(Clone, Debug)]
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

    fn refill(&mut self, now: Time) -> f64 {
        let earned = now.since(self.at).as_secs_f64() * self.per_second;
        self.left = (self.left + earned).min(self.most);
        self.at = now;
        self.left
    }

    /// Takes one, if there is one.
    pub(crate) fn take(&mut self, now: Time) -> bool {
        let enough = self.refill(now) >= 1.0;
        if enough {
            self.left -= 1.0;
        }
        enough
    }

    /// Whether more than half are gone.
    pub(crate) fn is_low(&mut self, now: Time) -> bool {
        self.refill(now) < self.most / 2.0
    }

    /// Whether all are there: nothing was taken lately.
    pub(crate) fn is_full(&mut self, now: Time) -> bool {
        self.refill(now) >= self.most
    }

    /// Whether any are left: if not, when there will be.
    pub(crate) fn wait(&mut self, now: Time) -> Option<Time> {
        let lacking = -self.refill(now);
        (lacking >= 0.0).then(|| {
            let wait = (lacking + 1.0) / self.per_second;
            now + core::time::Duration::from_secs_f64(wait)
        })
    }

    /// Takes `n`, though fewer may be left: what is lacking has to come first.
    pub(crate) fn spend(&mut self, n: usize) {
        self.left -= n as f64;
    }

    /// Gives `n` more.
    pub(crate) fn earn(&mut self, n: usize) {
        self.left = (self.left + n as f64).min(self.most);
    }
}
