//! Who is next: a tournament over sources of events.

use lasthop_units::Time;

/// Entries of a block. Comparing eight without a branch costs less than walking down three
/// levels of two, and most networks have few more sources.
const WIDTH: usize = 8;

/// The next time of each source; one beyond 73 years is taken for never. Of those with the earliest
/// the lowest number wins, so that the order of events depends on nothing else. A change costs at
/// most one match of eight for each eightfold of the number of sources.
#[derive(Debug)]
pub(super) struct Timetable {
    /// A tree in the shape of a heap: the blocks below block `b` are `WIDTH * b + 1` and those that
    /// follow it. An entry of the lowest level is a source's time, one above is the earliest of its
    /// block. The lowest level is complete. The root is kept apart, being all there is in most
    /// networks.
    root: Block,
    below: Vec<Block>,
    /// The first block of the lowest level.
    lowest: usize,
    /// The winner of all.
    next: (Time, usize),
}

#[derive(Clone, Copy, Debug)]
struct Block {
    entries: [Entry; WIDTH],
    earliest: Entry,
}

/// A time and its place in a block in one word, so that to find the earliest is to find the least.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Entry(u64);

impl Entry {
    const NEVER: Self = Self(u64::MAX);
    const BITS: u32 = WIDTH.trailing_zeros();

    #[inline]
    fn new(at: Time, place: usize) -> Self {
        let ns = at.as_nanos();
        if ns >= u64::MAX >> Self::BITS {
            return Self::NEVER;
        }
        Self(ns << Self::BITS | place as u64)
    }

    #[inline]
    fn time(self) -> Time {
        if self == Self::NEVER { Time::NEVER } else { Time::from_nanos(self.0 >> Self::BITS) }
    }

    #[inline]
    fn place(self) -> usize {
        self.0 as usize % WIDTH
    }
}

impl Block {
    const EMPTY: Self = Self { entries: [Entry::NEVER; WIDTH], earliest: Entry::NEVER };

    #[inline]
    fn set(&mut self, place: usize, at: Time) {
        // The others are compared while the new time may still be on its way from memory, and in
        // pairs, since who is next is what no branch predictor knows.
        self.entries[place % WIDTH] = Entry::NEVER;
        let [a, b, c, d, e, f, g, h] = self.entries;
        let others = a.min(b).min(c.min(d)).min(e.min(f).min(g.min(h)));
        let entry = Entry::new(at, place % WIDTH);
        self.entries[place % WIDTH] = entry;
        self.earliest = others.min(entry);
    }
}

impl Default for Timetable {
    fn default() -> Self {
        Self { root: Block::EMPTY, below: Vec::new(), lowest: 0, next: (Time::NEVER, 0) }
    }
}

impl Timetable {
    /// Makes room for `sources`, all without a time.
    pub(super) fn reset(&mut self, sources: usize) {
        let (mut lowest, mut width) = (0, 1);
        while WIDTH * width < sources {
            lowest += width;
            width *= WIDTH;
        }
        self.lowest = lowest;
        self.root = Block::EMPTY;
        self.below.clear();
        self.below.resize(lowest + width - 1, Block::EMPTY);
        self.next = (Time::NEVER, 0);
    }

    /// When a source is next.
    #[inline]
    pub(super) fn time(&self, source: usize) -> Time {
        self.entry(source).time()
    }

    /// A source has a time.
    #[inline]
    pub(super) fn is_set(&self, source: usize) -> bool {
        self.entry(source) != Entry::NEVER
    }

    #[inline]
    fn entry(&self, source: usize) -> Entry {
        let block = match self.lowest {
            0 => &self.root,
            lowest => &self.below[lowest + source / WIDTH - 1],
        };
        block.entries[source % WIDTH]
    }

    /// Changes when `source` is next.
    #[inline]
    pub(super) fn set(&mut self, source: usize, at: Time) {
        if self.lowest > 0 {
            return self.set_in_tree(source, at);
        }
        self.root.set(source, at);
        self.next = (self.root.earliest.time(), self.root.earliest.place());
    }

    #[inline(never)]
    fn set_in_tree(&mut self, source: usize, mut at: Time) {
        let mut number = self.lowest + source / WIDTH;
        let mut place = source % WIDTH;
        while number > 0 {
            let block = &mut self.below[number - 1];
            let before = block.earliest;
            block.set(place, at);
            if block.earliest == before {
                // Above the lowest level another source of the same time may have come first.
                break;
            }
            at = block.earliest.time();
            (number, place) = ((number - 1) / WIDTH, (number - 1) % WIDTH);
        }
        if number == 0 {
            self.root.set(place, at);
        }
        self.next = (self.root.earliest.time(), self.winner());
    }

    /// Whose time the root holds.
    fn winner(&self) -> usize {
        let (mut number, mut place) = (0, self.root.earliest.place());
        while number < self.lowest {
            number = WIDTH * number + 1 + place;
            place = self.below[number - 1].earliest.place();
        }
        (number - self.lowest) * WIDTH + place
    }

    /// The earliest time and its source.
    #[inline]
    pub(super) fn next(&self) -> (Time, usize) {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use lasthop_units::Seed;

    use super::*;

    #[test]
    fn the_earliest_is_next_and_the_lowest_of_equals() {
        let mut table = Timetable::default();
        let mut random = Seed::from_u64(1).stream("times");
        for sources in [1, 2, 3, 8, 9, 17, 64, 65, 200, 600] {
            table.reset(sources);
            for _ in 0..3000 {
                let source = random.below(sources as u64) as usize;
                let at = match random.below(4) {
                    0 => Time::NEVER,
                    _ => Time::from_nanos(random.below(20)),
                };
                table.set(source, at);
                let times = || (0..sources).map(|source| table.time(source));
                let least = times().min().expect("a time");
                let (at, next) = table.next();
                assert_eq!(at, least);
                if least != Time::NEVER {
                    let first = times().position(|at| at == least).expect("a source");
                    assert_eq!(next, first, "of {sources}");
                }
            }
        }
    }
}
