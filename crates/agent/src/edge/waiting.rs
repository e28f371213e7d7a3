//! Acknowledgements of one connection that wait, so that a link can repair a loss before the sender
//! hears of it.

use alloc::collections::VecDeque;

use lasthop_stream::HeldDupacks;
use lasthop_units::{Duration, Time};

use crate::{Packet, Queue, Side};

/// Acknowledgements of one gap that are kept; of more the oldest is dropped, of which the later ones
/// tell again.
const KEPT_MAX: usize = u8::MAX as usize;

/// What became of duplicate acknowledgements.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DupackStats {
    /// Acknowledgements that were kept back.
    pub held: u64,
    /// Those of them that were thrown away, since the gap was filled.
    pub discarded: u64,
    /// Those of them that were handed on in the end.
    pub released: u64,
    /// New acknowledgements that passed without what they say of a gap.
    pub hidden: u64,
    /// Packets that were handed on, of whatever protocol.
    pub passed: u64,
}

/// What waits for one gap.
#[derive(Clone, Debug)]
pub(super) struct Waiting<P> {
    held: HeldDupacks,
    pub(super) packets: VecDeque<P>,
}

impl<P> Default for Waiting<P> {
    fn default() -> Self {
        Self { held: HeldDupacks::NONE, packets: VecDeque::new() }
    }
}

impl<P: Packet> Waiting<P> {
    /// Duplicates that came for this gap before.
    pub(super) fn run(&self) -> u32 {
        self.held.run()
    }

    /// When they are to go; none if none waits.
    pub(super) fn due(&self) -> Option<Time> {
        Some(self.held.timer()).filter(|due| *due != Time::NEVER)
    }

    /// A duplicate that may wait so long, or not at all. It is given back if it is to pass.
    pub(super) fn add(
        &mut self,
        now: Time,
        wait: Option<Duration>,
        packet: P,
        stats: &mut DupackStats,
    ) -> Option<P> {
        if self.held.add(now, wait) > 0 {
            return Some(packet);
        }
        stats.held += 1;
        if self.packets.len() >= KEPT_MAX {
            self.packets.pop_front();
            stats.discarded += 1;
        }
        self.packets.push_back(packet);
        None
    }

    /// All that wait go to the fixed host, and later ones of this gap need not wait (DDA-3).
    pub(super) fn release(&mut self, queue: &mut Queue<P>, stats: &mut DupackStats) {
        self.held.release();
        stats.released += self.packets.len() as u64;
        stats.passed += self.packets.len() as u64;
        self.packets.drain(..).for_each(|packet| queue.packet(Side::Fixed, packet));
    }

    /// The gap was filled, at least in part: what waited is not worth sending (DDA-3, CC-5).
    pub(super) fn discard(&mut self, stats: &mut DupackStats) {
        self.held.discard();
        stats.discarded += self.packets.len() as u64;
        self.packets.clear();
    }
}
