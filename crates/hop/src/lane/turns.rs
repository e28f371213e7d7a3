//! Whose turn it is: deficit round robin in which who has just come goes first (RFC 8290 section 4).

use alloc::collections::VecDeque;

/// What one has in a turn, in bytes: a full packet (RFC 8290 section 5.2.4).
const QUANTUM: i64 = 1514;

/// The longest turn, in shortest ones: whatever its priority, none keeps others waiting for longer.
const TURNS_MAX: u32 = 64;

/// Where somebody stands.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Place {
    #[default]
    Nowhere,
    New,
    Old,
}

/// What is kept of each.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Turn {
    place: Place,
    deficit: i64,
}

impl Turn {
    /// It has not used up its first turn since it came: it sends less than its share.
    pub(super) fn is_new(&self) -> bool {
        self.place == Place::New
    }

    /// It waits for its turn, or did a moment ago.
    pub(super) fn is_listed(&self) -> bool {
        self.place != Place::Nowhere
    }

    /// It has sent so much.
    pub(super) fn spend(&mut self, bytes: usize) {
        self.deficit -= bytes as i64;
    }
}

/// Those that have something to send, or had a moment ago.
#[derive(Debug, Default)]
pub(super) struct Turns {
    new: VecDeque<u16>,
    old: VecDeque<u16>,
}

impl Turns {
    /// `key` has something to send.
    pub(super) fn join(&mut self, key: u16, turn: &mut Turn) {
        if turn.place == Place::Nowhere {
            *turn = Turn { place: Place::New, deficit: QUANTUM };
            self.new.push_back(key);
        }
    }

    /// Whose turn it may be.
    pub(super) fn front(&self) -> Option<u16> {
        self.new.front().or(self.old.front()).copied()
    }

    /// Whether it is the turn of the one in front; `has_some` says whether it has something to send. If not, another is
    /// in front now, or nobody, and its next turn is as long as its `priority` says.
    pub(super) fn admits(&mut self, turn: &mut Turn, has_some: bool, priority: u32) -> bool {
        if has_some && turn.deficit > 0 {
            return true;
        }
        let from_new = !self.new.is_empty();
        let key = if from_new { self.new.pop_front() } else { self.old.pop_front() };
        // Who has just come and goes would be new again at once, before those who have waited.
        let stays = has_some || (from_new && !self.old.is_empty());
        if let Some(key) = key.filter(|_| stays) {
            turn.place = Place::Old;
            self.old.push_back(key);
        } else {
            turn.place = Place::Nowhere;
        }
        if has_some {
            turn.deficit += QUANTUM * i64::from(priority.min(TURNS_MAX));
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    /// SRP-33: who sends little goes before who sends much, and those who send much share.
    #[test]
    fn who_has_just_come_goes_first_and_others_share() {
        let mut turns = Turns::default();
        let (mut of, sizes) = ([Turn::default(); 3], [1500, 500, 100]);
        let mut queued = [usize::MAX, usize::MAX, 0];
        turns.join(0, &mut of[0]);
        turns.join(1, &mut of[1]);
        let (mut order, mut sent) = (Vec::new(), [0; 3]);
        for step in 0..400 {
            if step % 40 == 39 {
                queued[2] = 1;
                turns.join(2, &mut of[2]);
                assert!(of[2].is_new());
            }
            while let Some(key) = turns.front() {
                let key = key as usize;
                if turns.admits(&mut of[key], queued[key] > 0, 1) {
                    of[key].spend(sizes[key]);
                    queued[key] -= 1;
                    sent[key] += sizes[key];
                    order.push(key);
                    break;
                }
            }
            assert!(step % 40 != 39 || order.last() == Some(&2));
        }
        assert!(sent[0].abs_diff(sent[1]) <= 3000 && sent[2] == 1000, "{sent:?}");
        turns.join(2, &mut of[2]);
        for _ in 0..6 {
            while let Some(key) = turns.front() {
                if turns.admits(&mut of[key as usize], false, 1) {
                    break;
                }
            }
        }
        assert_eq!(turns.front(), None);
    }
}
