//! How a base divides its one bound on memory.

use lasthop_control::MemoryReport;
use lasthop_hop::Memory;
use lasthop_units::Bytes;

use super::BaseConfig;
use crate::config::HopKind;
use crate::split::CANDIDATES_MAX;

/// Where there are other bases, one of so many parts is for associations with them, and one for sessions
/// that are on their way.
const PARTS: u64 = 8;
/// Associations with one other base that have a minimum of their own.
const LINKS: usize = 16;
/// Other bases for which that is so, where the configuration has fewer: more may come.
const PEERS: usize = 4;

/// What each part of a base may hold.
#[derive(Clone, Debug)]
pub(super) struct BaseMemory {
    bound: Bytes,
    /// For associations with mobiles.
    pub(super) mobiles: Memory,
    /// For associations with other bases.
    pub(super) peers: Memory,
    /// For sessions on their way to and from each worker.
    pub(super) copies: Bytes,
}

impl BaseMemory {
    pub(super) fn of(config: &BaseConfig) -> Self {
        let bound = config.limits.memory();
        let part = Bytes::new(bound.get() / PARTS);
        let mut mobiles = config.limits.associations().max(config.allow.len());
        if config.hop == HopKind::SplitTcp {
            mobiles += CANDIDATES_MAX;
        }
        let (left, peers) = match &config.handoff {
            Some(handoff) => {
                (bound - part - part, Memory::bounded(part, LINKS * handoff.peers.len().max(PEERS)))
            }
            None => (bound, Memory::default()),
        };
        let copies = Bytes::new(part.get() / config.workers.max(1) as u64);
        Self { bound, mobiles: Memory::bounded(left, mobiles), peers, copies }
    }

    /// For a report.
    pub(super) fn report(&self) -> MemoryReport {
        let promised = self.mobiles.needed() + self.peers.needed();
        MemoryReport { bound: self.bound.get(), promised: promised.get() }
    }
}
