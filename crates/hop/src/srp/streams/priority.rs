//! User priorities: how streams divide the association's window and the sender's turns (RWC).
//!
//! As long as no stream was given a priority nothing is divided: every stream has the window that
//! it needs, and turns are equal. From the first priority on the receiver grants each stream its
//! share of the association's window, and the sender makes turns as long by the same shares.
//! The windows bound what a flow may hold; it is the turns that divide the hop's rate, since on a
//! measured hop the rate, not the window, limits a sender (RWC-11), and they leave what one stream
//! does not use to the others. So that both ends divide alike, each sends the other the priorities
//! that it was given.
//!
//! A share follows from a stream's priority and the sum of all, and is worked out when the stream is
//! granted something or has sent: a peer may change priorities as often as it likes.

use alloc::collections::BTreeMap;

use super::turns::TURN;

/// Into so many units a window is divided.
const UNITS: u64 = 1024;
/// The longest turn, in shortest ones: whatever its priority, a stream does not keep others waiting
/// for longer.
const TURNS_MAX: u64 = 64;
/// No stream's window is less, if the association's is not: a full datagram of any usual size.
const LEAST: u64 = 2048;

/// The priorities of the streams that are open, and whether they count.
#[derive(Debug, Default)]
pub(super) struct Division {
    /// One of them was given a priority.
    on: bool,
    sum: u64,
    streams: u64,
    /// How many streams have each.
    by_priority: BTreeMap<u32, u64>,
}

impl Division {
    /// Something is divided.
    pub(super) fn is_on(&self) -> bool {
        self.on
    }

    /// A stream begins.
    pub(super) fn join(&mut self, priority: u32) {
        self.sum += u64::from(priority);
        self.streams += 1;
        *self.by_priority.entry(priority).or_default() += 1;
    }

    /// A stream is over or gone.
    pub(super) fn leave(&mut self, priority: u32) {
        self.sum -= u64::from(priority);
        self.streams -= 1;
        if let Some(n) = self.by_priority.get_mut(&priority) {
            *n -= 1;
            if *n == 0 {
                self.by_priority.remove(&priority);
            }
        }
    }

    /// A stream was given another priority, here or at the peer.
    pub(super) fn change(&mut self, before: u32, now: u32) {
        self.on = true;
        self.leave(before);
        self.join(now);
    }

    /// Units of a stream: its part, halves rounded up, and at least one (RWC-2, RWC-3, RWC-8). What
    /// rounding makes too many of them is nobody's loss: the credit of all streams bounds their sum.
    fn units(&self, priority: u32) -> u64 {
        let (part, whole) = match self.sum {
            0 => (1, self.streams.max(1)),
            sum => (u64::from(priority), sum),
        };
        ((2 * UNITS * part + whole) / (2 * whole)).max(1)
    }

    /// A stream's share of a `window`.
    pub(super) fn share(&self, priority: u32, window: u64) -> u64 {
        let bytes = u128::from(window) * u128::from(self.units(priority)) / u128::from(UNITS);
        u64::try_from(bytes).unwrap_or(window).max(LEAST.min(window))
    }

    /// How long a stream's turn is, in [`TURN`]ths of the shortest.
    pub(super) fn turn(&self, priority: u32) -> u64 {
        let least = self.by_priority.first_key_value().map_or(priority, |(least, _)| *least);
        (TURN * self.units(priority) / self.units(least)).min(TURN * TURNS_MAX)
    }
}
