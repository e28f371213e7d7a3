//! What the network says of a base, weighed: one answer may be forged, or true for a moment only.

use core::time::Duration;

use lasthop_units::Time;

use crate::unreachable::Unreachable;

/// So many answers count, if all that came meanwhile were of this kind.
const ANSWERS: u32 = 3;
/// And the first of them is as old as this: a base that is started again is back by then, or not.
const SPAN: Duration = Duration::from_secs(2);
/// So old an answer does not count any more. Hosts send few such answers, one in a second.
const FRESH: Duration = Duration::from_secs(5);

/// Answers of one kind, since the base itself last answered.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Row {
    count: u32,
    first: Time,
    last: Time,
}

impl Row {
    fn add(&mut self, now: Time) {
        if self.count == 0 || now.since(self.last) > FRESH {
            (self.count, self.first) = (0, now);
        }
        self.count = self.count.saturating_add(1);
        self.last = now;
    }

    fn stands(&self, now: Time) -> bool {
        self.count >= ANSWERS
            && self.last.since(self.first) >= SPAN
            && now.since(self.last) <= FRESH
    }
}

/// The network's answers since the base itself last answered. It sends nothing itself: answers come
/// while the base is asked.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Evidence {
    any: Row,
    hard: Row,
    latest: Option<Unreachable>,
}

impl Evidence {
    /// The network says this. What this host itself says is no evidence: a dead zone looks so.
    pub fn add(&mut self, now: Time, what: Unreachable) {
        if what.is_local() {
            return;
        }
        self.any.add(now);
        if what.is_hard() {
            self.hard.add(now);
        }
        self.latest = Some(what);
    }

    /// Something of the base's own has come, or it is at another address: nothing of this is true.
    pub fn refute(&mut self) {
        *self = Self::default();
    }

    /// Whether the base is gone, and with it all that it had: its host is there and says so.
    pub fn is_gone(&self, now: Time) -> bool {
        self.hard.stands(now)
    }

    /// Why nobody can be reached at present, if that is so.
    pub fn unreachable(&self, now: Time) -> Option<Unreachable> {
        self.latest.filter(|_| self.any.stands(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Time {
        Time::from_millis(n)
    }

    fn told(what: Unreachable, at: &[u64]) -> Evidence {
        let mut evidence = Evidence::default();
        at.iter().for_each(|at| evidence.add(ms(*at), what));
        evidence
    }

    #[test]
    fn neither_one_answer_nor_many_at_once_are_believed() {
        assert!(!told(Unreachable::Port, &[0]).is_gone(ms(2500)));
        assert!(!told(Unreachable::Port, &[0, 2500]).is_gone(ms(2500)));
        assert!(!told(Unreachable::Port, &[0, 1, 2, 3, 4, 5]).is_gone(ms(2500)));
        let evidence = told(Unreachable::Port, &[0, 1000, 2000]);
        assert!(evidence.is_gone(ms(2000)));
        assert_eq!(evidence.unreachable(ms(2000)), Some(Unreachable::Port));
    }

    #[test]
    fn errors_of_the_path_are_no_evidence_of_the_base() {
        for what in [Unreachable::Host, Unreachable::Network, Unreachable::Prohibited] {
            let evidence = told(what, &[0, 1000, 2000]);
            assert!(!evidence.is_gone(ms(2000)));
            assert_eq!(evidence.unreachable(ms(2000)), Some(what));
        }
        for what in [Unreachable::NextHop, Unreachable::NoRoute] {
            assert_eq!(told(what, &[0, 1000, 2000]), Evidence::default());
        }
    }

    #[test]
    fn a_word_of_the_base_refutes_it_and_old_answers_say_nothing() {
        let mut evidence = told(Unreachable::Port, &[0, 1000, 2000]);
        assert!(evidence.is_gone(ms(7000)) && !evidence.is_gone(ms(7001)));
        evidence.refute();
        assert!(!evidence.is_gone(ms(2000)));
        assert!(!told(Unreachable::Port, &[0, 1000, 6001, 6500]).is_gone(ms(6500)));
    }
}
