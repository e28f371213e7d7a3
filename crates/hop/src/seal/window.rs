const WORDS: usize = 256;
const BITS: u64 = u64::BITS as u64;

/// Which packet numbers have been received: a sliding bitmap that refuses what was received before
/// and what is too old to tell. Every operation is bounded by the bitmap's 2 kB, and by one word
/// as long as numbers arrive roughly in order (the ring of words is RFC 6479's idea).
#[derive(Clone, Debug)]
pub struct ReplayWindow {
    words: [u64; WORDS],
    highest: Option<u64>,
}

impl ReplayWindow {
    /// A number is remembered at least until this many higher ones could have arrived: the bitmap
    /// less the word in which the highest number is.
    pub const WIDTH: u64 = (WORDS as u64 - 1) * BITS;

    /// Nothing received.
    pub const fn new() -> Self {
        Self { words: [0; WORDS], highest: None }
    }

    /// Nothing received, and nothing below `first` will be accepted.
    pub fn starting_at(first: u64) -> Self {
        let mut window = Self::new();
        if let Some(highest) = first.checked_sub(1) {
            window.highest = Some(highest);
            window.words = [u64::MAX; WORDS];
            window.words[slot(highest)] = u64::MAX >> (BITS - 1 - highest % BITS);
        }
        window
    }

    /// The highest number accepted.
    pub fn highest(&self) -> Option<u64> {
        self.highest
    }

    /// Whether `number` may still be accepted. Changes nothing: ask before the work of opening a
    /// datagram, [`accept`](Self::accept) after it has proved authentic.
    #[must_use]
    pub fn check(&self, number: u64) -> bool {
        match self.highest {
            None => true,
            Some(highest) if number > highest => true,
            Some(highest) => {
                highest - number < Self::WIDTH && self.words[slot(number)] & bit(number) == 0
            }
        }
    }

    /// Remembers `number`. False if it was received before or is too old.
    #[must_use]
    pub fn accept(&mut self, number: u64) -> bool {
        if !self.check(number) {
            return false;
        }
        let highest = self.highest.unwrap_or(0);
        if number > highest {
            self.clear_between(highest / BITS, number / BITS);
        }
        self.highest = Some(highest.max(number));
        self.words[slot(number)] |= bit(number);
        true
    }

    /// Clears the words after word `old` up to and including word `new`.
    fn clear_between(&mut self, old: u64, new: u64) {
        for i in 1..=(new - old).min(WORDS as u64) {
            self.words[((old + i) % WORDS as u64) as usize] = 0;
        }
    }
}

impl Default for ReplayWindow {
    fn default() -> Self {
        Self::new()
    }
}

fn slot(number: u64) -> usize {
    (number / BITS % WORDS as u64) as usize
}

fn bit(number: u64) -> u64 {
    1 << (number % BITS)
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_window_is_wide_enough_and_has_an_end() {
        const { assert!(ReplayWindow::WIDTH >= 8192) };
        let mut window = ReplayWindow::new();
        assert!(window.accept(100_000));
        assert!(window.accept(100_000 - ReplayWindow::WIDTH + 1));
        assert!(!window.accept(100_000 - ReplayWindow::WIDTH));
    }

    #[test]
    fn the_greatest_numbers_do_not_overflow() {
        let mut window = ReplayWindow::new();
        assert!(window.accept(0));
        assert!(window.accept(u64::MAX));
        assert!(!window.accept(u64::MAX) && !window.accept(0));
        assert!(window.accept(u64::MAX - 1));
    }

    #[test]
    fn checking_changes_nothing() {
        let mut window = ReplayWindow::new();
        assert!(window.check(5) && window.check(u64::MAX));
        assert_eq!(window.highest(), None);
        assert!(window.accept(5));
        assert!(!window.check(5));
    }

    /// Refuses everything that was accepted, and everything below the window.
    #[derive(Default)]
    struct Oracle {
        seen: BTreeSet<u64>,
    }

    impl Oracle {
        fn accept(&mut self, number: u64) -> bool {
            let highest = self.seen.last().copied().unwrap_or(0);
            let old = !self.seen.is_empty()
                && highest > number
                && highest - number >= ReplayWindow::WIDTH;
            !old && self.seen.insert(number)
        }
    }

    /// Steps forward and back: mostly small, some as wide as the window, few far beyond.
    fn steps() -> impl Strategy<Value = Vec<i64>> {
        let step = prop_oneof![
            8 => -70i64..90,
            2 => -20_000i64..20_000,
            1 => -1_000_000i64..1_000_000,
        ];
        proptest::collection::vec(step, 1..400)
    }

    proptest! {
        #[test]
        fn the_window_agrees_with_a_set_of_all_numbers(
            first in prop_oneof![Just(0), 1u64..1_000_000],
            start in 0u64..1_000_000,
            steps in steps(),
        ) {
            let (mut window, mut oracle) = (ReplayWindow::starting_at(first), Oracle::default());
            // A window that starts later has seen all before.
            oracle.seen.extend((0..first).rev().take(ReplayWindow::WIDTH as usize));
            let mut number = start;
            for step in steps {
                number = number.saturating_add_signed(step);
                let expected = oracle.accept(number);
                prop_assert_eq!(window.check(number), expected, "{}", number);
                prop_assert_eq!(window.accept(number), expected, "{}", number);
                prop_assert_eq!(window.highest(), oracle.seen.last().copied());
            }
        }
    }
}
