//! Events that may come as often as somebody else likes, in a log that nobody else may fill.

use std::time::Duration;

use lasthop_units::Time;

/// An event is logged once in so long.
const AGAIN: Duration = Duration::from_secs(10);

/// Limits how often one kind of event is logged: at once, and then every ten seconds while it goes on.
#[derive(Clone, Copy, Default, Debug)]
pub struct LogLimit {
    logged: Option<Time>,
    unlogged: u64,
}

impl LogLimit {
    /// Counts an event. If it is to be logged: how many before it were not.
    pub fn count(&mut self, now: Time) -> Option<u64> {
        if self.logged.is_some_and(|logged| now.since(logged) < AGAIN) {
            self.unlogged += 1;
            return None;
        }
        self.logged = Some(now);
        Some(std::mem::take(&mut self.unlogged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_logged_at_once_and_then_every_ten_seconds_with_a_count() {
        let mut limit = LogLimit::default();
        let at = |millis| Time::ZERO + Duration::from_millis(millis);
        let logged: Vec<u64> = (0..300).filter_map(|n| limit.count(at(n * 100))).collect();
        assert_eq!(logged, [0, 99, 99]);
        assert_eq!(limit.count(at(100_000)), Some(99));
        assert_eq!(limit.count(at(200_000)), Some(0));
    }
}
