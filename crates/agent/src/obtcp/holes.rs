//! What a router is waiting for from the base.

use alloc::vec::Vec;

use lasthop_units::Time;
use lasthop_wire::tcp::Seq;

/// Bytes that have not come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Hole {
    pub(super) start: Seq,
    pub(super) end: Seq,
    /// The SNACK that asked for them first, and the one that asked last, of those whose answer may
    /// still come.
    pub(super) asked: (u64, u64),
    /// When it asked.
    pub(super) at: Time,
    /// How many asked.
    pub(super) asks: u32,
    /// When to ask again or to give up; none if the base cannot help, or is thought not to.
    pub(super) due: Option<Time>,
}

/// The holes of a connection in the order of their sequence numbers.
#[derive(Clone, Debug)]
pub(super) struct Holes {
    holes: Vec<Hole>,
    limit: usize,
}

impl Holes {
    pub(super) const fn new(limit: usize) -> Self {
        Self { holes: Vec::new(), limit }
    }

    pub(super) fn len(&self) -> usize {
        self.holes.len()
    }

    /// Adds a hole above all others; false if there are too many.
    pub(super) fn open(&mut self, hole: Hole) -> bool {
        let room = self.holes.len() < self.limit;
        if room {
            self.holes.push(hole);
        }
        room
    }

    /// The hole that the byte at `seq` is in.
    pub(super) fn covering(&self, seq: Seq) -> Option<&Hole> {
        self.holes.iter().find(|h| seq.ahead_of(h.start) >= 0 && h.end.ahead_of(seq) > 0)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Hole> {
        self.holes.iter_mut()
    }

    /// When the first of them is due.
    pub(super) fn due(&self) -> Option<Time> {
        self.holes.iter().filter_map(|hole| hole.due).min()
    }

    /// The bytes from `start` to `end` have come: the first hole that had some of them, as it was.
    pub(super) fn fill(&mut self, start: Seq, end: Seq) -> Option<Hole> {
        self.cut(start, end, false)
    }

    /// The base cannot help with the bytes from `start` to `end`; false if none of them is waited
    /// for.
    pub(super) fn abandon(&mut self, start: Seq, end: Seq) -> bool {
        self.cut(start, end, true).is_some()
    }

    /// Everything below `ack` has come.
    pub(super) fn acknowledge(&mut self, ack: Seq) {
        self.holes.retain_mut(|hole| {
            if ack.ahead_of(hole.start) > 0 {
                hole.start = ack;
            }
            hole.end.ahead_of(hole.start) > 0
        });
    }

    /// Takes the bytes from `start` to `end` out of all holes, or makes them holes that wait for
    /// nothing. If there are too many pieces, those that find no room are dropped.
    fn cut(&mut self, start: Seq, end: Seq, stays: bool) -> Option<Hole> {
        if end.ahead_of(start) <= 0 {
            return None;
        }
        let mut first = None;
        let mut at = 0;
        while let Some(hole) = self.holes.get(at).copied() {
            if hole.end.ahead_of(start) <= 0 {
                at += 1;
                continue;
            }
            if end.ahead_of(hole.start) <= 0 {
                break;
            }
            first.get_or_insert(hole);
            self.holes.remove(at);
            let from = if start.ahead_of(hole.start) > 0 { start } else { hole.start };
            let to = if end.ahead_of(hole.end) < 0 { end } else { hole.end };
            let pieces = [
                Hole { end: from, ..hole },
                Hole { start: from, end: if stays { to } else { from }, due: None, ..hole },
                Hole { start: to, ..hole },
            ];
            for piece in pieces.into_iter().filter(|piece| piece.start != piece.end) {
                if self.holes.len() < self.limit {
                    self.holes.insert(at, piece);
                    at += 1;
                }
            }
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn hole(start: u32, end: u32) -> Hole {
        let (at, due) = (Time::ZERO, Some(Time::NEVER));
        Hole { start: Seq(start), end: Seq(end), asked: (0, 0), at, asks: 1, due }
    }

    #[test]
    fn pieces_beyond_the_limit_are_dropped() {
        let mut holes = Holes::new(2);
        assert!(holes.open(hole(0, 100)) && holes.open(hole(200, 300)));
        assert!(!holes.open(hole(400, 500)));
        holes.fill(Seq(40), Seq(60));
        assert_eq!(holes.len(), 2);
        assert!(holes.covering(Seq(39)).is_some() && holes.covering(Seq(60)).is_none());
    }

    proptest! {
        /// Holes agree with a plain list of bytes, at any place of the sequence space.
        #[test]
        fn holes_are_the_bytes_that_are_missing(
            base: u32,
            gaps in prop::collection::vec((1..10u32, 1..10u32), 1..8),
            steps in prop::collection::vec((0..3u8, 0..100u32, 0..30u32), 0..30),
        ) {
            let mut holes = Holes::new(1000);
            let mut plain = BTreeMap::new();
            let mut at = 0;
            for (skip, len) in gaps {
                let (start, end) = (at + skip, at + skip + len);
                prop_assert!(holes.open(hole(base.wrapping_add(start), base.wrapping_add(end))));
                plain.extend((start..end).map(|byte| (byte, true)));
                at = end;
            }
            for (step, from, len) in steps {
                let (start, end) = (Seq(base) + from, Seq(base) + (from + len));
                let hit = plain.range(from..from + len).next().is_some();
                match step {
                    0 => {
                        prop_assert_eq!(holes.fill(start, end).is_some(), hit);
                        plain.retain(|byte, _| !(from..from + len).contains(byte));
                    }
                    1 => {
                        prop_assert_eq!(holes.abandon(start, end), hit);
                        plain.range_mut(from..from + len).for_each(|(_, open)| *open = false);
                    }
                    _ if from < 20 => {
                        holes.acknowledge(start);
                        plain.retain(|byte, _| *byte >= from);
                    }
                    _ => {}
                }
                for byte in 0..200 {
                    let held = holes.covering(Seq(base) + byte).map(|hole| hole.due.is_some());
                    prop_assert_eq!(held, plain.get(&byte).copied());
                }
            }
        }
    }
}
