//! Other tickets for connections that stand, once they are made with another key.

use std::collections::VecDeque;

use lasthop_hop::seal::PublicKey;
use lasthop_kernel::slab::Key;
use lasthop_units::{Duration, Time};

use super::handoff::Core;
use crate::backhaul::BaseAssociationId;
use crate::fleet::FleetKeys;

/// So many are renewed at once, and the next after that: some thousand a second, of less than a hundred bytes each.
const AT_ONCE: usize = 32;
const PAUSE: Duration = Duration::from_millis(10);
/// Where none of them had room: their mobiles may be out of reach for long.
const NO_ROOM: Duration = Duration::from_secs(1);

/// Connections whose mobiles are still to be given another ticket.
#[derive(Default, Debug)]
pub(super) struct Renewals {
    waiting: VecDeque<Key>,
    next: Time,
}

impl Renewals {
    /// All that stand.
    pub(super) fn begin(&mut self, core: &Core) {
        (self.waiting, self.next) = (core.with_tickets().collect(), core.now);
    }

    /// Renews those that are due, each for the mobile that `key_of` says.
    pub(super) fn advance(
        &mut self,
        core: &mut Core,
        keys: &FleetKeys,
        key_of: impl Fn(BaseAssociationId) -> Option<PublicKey>,
    ) {
        if self.waiting.is_empty() || self.next > core.now {
            return;
        }
        let before = self.waiting.len();
        for _ in 0..AT_ONCE.min(before) {
            let Some(key) = self.waiting.pop_front() else { break };
            let name = core.connections.get(key).and_then(|connection| connection.name);
            let Some(mobile) = name.and_then(|(id, _)| key_of(id)) else { continue };
            if !core.renew_ticket(key, &mobile, keys) {
                self.waiting.push_back(key);
            }
        }
        self.next = core.now + if self.waiting.len() < before { PAUSE } else { NO_ROOM };
    }

    /// When [`advance`](Self::advance) has something to do.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        (!self.waiting.is_empty()).then_some(self.next)
    }
}
