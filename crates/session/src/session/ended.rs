//! How connections of a base ended, for a mobile that was moving when they did.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use lasthop_wire::mhp::handoff;

use crate::ConnId;

/// Ends that are remembered: those of connections whose mobile may not be notified, which are at
/// most what ends in a round trip, or while the mobile is away.
const ENDED_MAX: usize = 256;

/// The ends remembered, oldest first.
#[derive(Debug, Default)]
pub(super) struct Ended {
    ends: VecDeque<handoff::Ended>,
    /// Of connections up to this number some ends are removed.
    forgotten: u64,
    /// Another base knows what this one does not.
    unsure: bool,
}

impl Ended {
    /// A connection ended by a reset with that code, or with everything delivered.
    pub(super) fn add(&mut self, id: ConnId, reset: Option<u64>) {
        if self.ends.len() >= ENDED_MAX
            && let Some(oldest) = self.ends.pop_front()
        {
            self.forgotten = self.forgotten.max(oldest.id + 1);
        }
        self.ends.push_back(handoff::Ended { id: id.0, reset });
    }

    /// How a connection ended, if that is known.
    pub(super) fn get(&self, id: ConnId) -> Option<handoff::Ended> {
        self.ends.iter().rev().find(|ended| ended.id == id.0).copied()
    }

    /// Whether a connection may have been known here although nothing is left of it.
    pub(super) fn may_have_been(&self, id: ConnId) -> bool {
        self.unsure || id.0 < self.forgotten || self.get(id).is_some()
    }

    /// Any connection may have been known, at a base that will not answer.
    pub(super) fn clear(&mut self) {
        self.unsure = true;
    }

    pub(super) fn take(&mut self) -> (Vec<handoff::Ended>, u64) {
        (core::mem::take(&mut self.ends).into(), self.forgotten)
    }

    pub(super) fn adopt(&mut self, ends: Vec<handoff::Ended>, forgotten: u64) {
        self.unsure = false;
        self.forgotten = self.forgotten.max(forgotten);
        for ended in ends {
            self.add(ConnId(ended.id.min(u64::MAX >> 2)), ended.reset);
        }
    }
}
