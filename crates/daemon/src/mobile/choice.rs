//! Which of several bases the mobile moves to.

use std::time::Duration;

/// What a base whose round trip is not known is taken to be away.
const UNKNOWN: Duration = Duration::from_millis(100);
/// What a base that has all that it may have loses against an empty one. Less than all costs less than its
/// share: a base that is half full serves as well as one that is not.
const FULL: Duration = Duration::from_millis(100);

/// What speaks for a base and against it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Prospect {
    /// Its interface is known to carry packets, or it has none of its own.
    pub(super) carries: bool,
    /// It says that its mobiles should leave.
    pub(super) draining: bool,
    /// The mobile has just left it because it was silent or draining.
    pub(super) left: bool,
    /// The round trip to it.
    pub(super) rtt: Option<Duration>,
    /// How full it says that it is, of 255.
    pub(super) load: u8,
}

impl Prospect {
    /// The less the better.
    fn rank(&self) -> (bool, bool, bool, Duration) {
        let load = u32::from(self.load);
        let cost = self.rtt.unwrap_or(UNKNOWN) + FULL * (load * load) / (255 * 255);
        (!self.carries, self.draining, self.left, cost)
    }
}

/// The best of them; of two that are as good the first.
pub(super) fn best(all: impl IntoIterator<Item = (usize, Prospect)>) -> Option<usize> {
    all.into_iter().min_by_key(|(_, prospect)| prospect.rank()).map(|(i, _)| i)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(rtt_ms: u64) -> Prospect {
        let rtt = Some(Duration::from_millis(rtt_ms));
        Prospect { carries: true, rtt, ..Prospect::default() }
    }

    fn better(one: Prospect, other: Prospect) -> bool {
        best([(0, other), (1, one)]) == Some(1)
    }

    /// EMP-5: first of all a base must be reachable, then stay; only then is it asked how near and how full it is.
    #[test]
    fn an_interface_counts_more_than_staying_and_that_more_than_being_near() {
        let away = Prospect { carries: false, ..near(1) };
        let draining = Prospect { draining: true, ..near(1) };
        let left = Prospect { left: true, ..near(1) };
        assert!(better(Prospect { draining: true, left: true, ..near(500) }, away));
        assert!(better(near(500), draining) && better(near(500), left));
        assert!(better(Prospect { left: true, ..near(500) }, draining));
        assert_eq!(best([(3, draining)]), Some(3), "rather than none");
        assert_eq!(best([]), None);
    }

    #[test]
    fn the_nearer_base_wins_unless_it_is_much_fuller() {
        let full = |load, rtt| Prospect { load, ..near(rtt) };
        assert!(better(near(20), near(40)));
        assert!(better(full(0, 40), full(255, 20)));
        assert!(better(full(100, 20), full(0, 40)), "that is no reason to go far");
        assert!(better(near(99), Prospect { rtt: None, ..near(0) }));
        assert_eq!(best([(0, near(5)), (1, near(5))]), Some(0));
    }
}
