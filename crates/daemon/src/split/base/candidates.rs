//! Associations that no record of their mobile has confirmed yet: how many, and for how long.

use std::collections::VecDeque;

use lasthop_hop::seal::PublicKey;
use lasthop_units::Time;

use crate::split::GREETING_TIMEOUT;

/// Candidates at once.
pub(crate) const CANDIDATES_MAX: usize = 16;
/// And of one mobile: it asks again where its network has changed.
const CANDIDATES_OF_ONE: usize = 2;

/// A handshake that was answered.
#[derive(Debug)]
struct Candidate {
    association: u32,
    mobile: PublicKey,
    stamp: u64,
    until: Time,
}

/// Whether there is room for one more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Room {
    Free,
    /// Once the candidate with this association has gone.
    After(u32),
    Full,
}

/// All candidates of a base, the one that has waited longest first.
#[derive(Default, Debug)]
pub(super) struct Candidates {
    all: VecDeque<Candidate>,
}

impl Candidates {
    /// Whether there is room for a mobile's handshake with this stamp. If the mobile has as many as it may,
    /// the oldest of them yields to a newer one; else the one that has waited longest, whosever it is.
    pub(super) fn room(&self, mobile: &PublicKey, stamp: u64) -> Room {
        let own: Vec<&Candidate> = self.all.iter().filter(|c| c.mobile == *mobile).collect();
        let yields = if own.len() >= CANDIDATES_OF_ONE {
            own.into_iter().min_by_key(|c| c.stamp).filter(|oldest| oldest.stamp < stamp)
        } else if self.all.len() >= CANDIDATES_MAX {
            self.all.front()
        } else {
            return Room::Free;
        };
        yields.map_or(Room::Full, |candidate| Room::After(candidate.association))
    }

    pub(super) fn insert(&mut self, now: Time, association: u32, mobile: PublicKey, stamp: u64) {
        let until = now + GREETING_TIMEOUT;
        self.all.push_back(Candidate { association, mobile, stamp, until });
    }

    /// The association is no candidate any more; the stamp of its handshake.
    pub(super) fn take(&mut self, association: u32) -> Option<u64> {
        let at = self.all.iter().position(|c| c.association == association)?;
        Some(self.all.remove(at)?.stamp)
    }

    /// An association that was not confirmed in time.
    pub(super) fn due(&self, now: Time) -> Option<u32> {
        self.all.front().filter(|c| c.until <= now).map(|c| c.association)
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.all.front().map(|c| c.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> PublicKey {
        PublicKey::from_bytes([n; 32])
    }

    #[test]
    fn a_mobile_has_two_candidates_of_which_the_older_yields_to_a_newer_one() {
        let mut candidates = Candidates::default();
        for (association, stamp) in [(10, 7), (11, 5)] {
            assert_eq!(candidates.room(&key(1), stamp), Room::Free);
            candidates.insert(Time::ZERO, association, key(1), stamp);
        }
        assert_eq!(candidates.room(&key(1), 8), Room::After(11));
        // Copies of what there is.
        assert_eq!(candidates.room(&key(1), 5), Room::Full);
        assert_eq!(candidates.room(&key(2), 1), Room::Free);
        assert_eq!((candidates.take(11), candidates.take(11)), (Some(5), None));
        assert_eq!(candidates.room(&key(1), 5), Room::Free);
    }

    #[test]
    fn of_sixteen_the_one_that_has_waited_longest_yields_and_none_waits_for_ever() {
        let mut candidates = Candidates::default();
        for n in 0..16 {
            assert_eq!(candidates.room(&key(n), 1), Room::Free);
            candidates.insert(Time::ZERO, u32::from(n), key(n), 1);
        }
        assert_eq!(candidates.room(&key(16), 1), Room::After(0));
        let at = candidates.next_timeout().unwrap();
        assert_eq!((at, candidates.due(Time::ZERO)), (Time::ZERO + GREETING_TIMEOUT, None));
        assert_eq!(candidates.due(at), Some(0));
    }
}
