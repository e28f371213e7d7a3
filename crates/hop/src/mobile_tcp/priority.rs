//! User priorities: how connections divide what their windows are together (RWC).
//!
//! Here windows alone bound what is on its way (MOB-19), so that dividing them divides the rate as
//! the paper on receiver window control has it: a connection's rate is its window over the round
//! trip that all have. The end that was given the priorities offers its peer's senders windows by
//! them, and holds its own senders to the same; nothing is advertised but windows, so the peer need not
//! know of priorities.
//!
//! What is divided is the sum of the windows that connections have without priorities, in full
//! packets. No connection's share is more than the format can tell: the rest goes to the others.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use lasthop_stream::Shares;
use lasthop_wire::mobile_tcp::MAX_WINDOW;

use super::endpoint::MobileTcp;

/// Packets of the smallest share. The peer does not know to what we hold our own senders, so one alone
/// would be acknowledged with the next tick only (MOB-22), and so be five packets a second.
const LEAST: u64 = 2;
/// How often what some cannot have is given to others.
const ROUNDS: usize = 64;

impl MobileTcp {
    /// The user at this end has set a priority.
    pub(super) fn set_connection_priority(&mut self, cid: u16, priority: u32) {
        let Some(entry) = self.entries.get_mut(&cid).filter(|entry| entry.is_usable()) else {
            return;
        };
        entry.priority = priority;
        self.division.on = true;
        self.division.invalidate(Some(cid));
        self.update_shares();
    }

    /// Divides anew if there is reason to. That takes time in proportion to the number of
    /// connections, so it is done once for all that happened before the next packet.
    pub(super) fn update_shares(&mut self) {
        let Some(last) = self.division.stale.take() else { return };
        let packet = u64::from(self.config.max_packet()).max(1);
        let each = (u64::from(self.config.window()) / packet).max(LEAST);
        let most = (u64::from(MAX_WINDOW) / packet).max(LEAST);
        let flows: Vec<(u16, u32)> = self
            .streams
            .values()
            .filter_map(|cid| Some((*cid, self.entries.get(cid)?)))
            .filter(|(_, entry)| entry.is_usable())
            .map(|(cid, entry)| (cid, entry.priority))
            .collect();
        for (cid, packets) in divide(flows, each, most, last) {
            if let Some(entry) = self.entries.get_mut(&cid) {
                entry.connection.set_share(packets.max(LEAST) * packet);
            }
            self.recount(cid);
            self.update(cid);
        }
    }
}

/// Gives each flow its packets of `each` for every flow: at most `most` to one, the rest to the
/// others; `last` takes the remainder.
fn divide(
    mut flows: Vec<(u16, u32)>,
    each: u64,
    most: u64,
    last: Option<u16>,
) -> BTreeMap<u16, u64> {
    let mut out = BTreeMap::new();
    let mut left = each.max(1) * flows.len() as u64;
    for round in 1..=ROUNDS {
        let mut shares = Shares::new(left, usize::MAX);
        shares.replace(flows.iter().copied(), last);
        let full = |share: u64| share >= most && round < ROUNDS;
        if !shares.iter().any(|(_, share)| full(share)) {
            out.extend(shares.iter().map(|(cid, share)| (cid, share.min(most))));
            break;
        }
        for (cid, _) in shares.iter().filter(|(_, share)| full(*share)) {
            out.insert(cid, most);
            left = left.saturating_sub(most);
        }
        flows.retain(|(cid, _)| !out.contains_key(cid));
    }
    out
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;

    fn list(priorities: &[u32], each: u64, most: u64, last: Option<u16>) -> Vec<u64> {
        let flows = priorities.iter().enumerate().map(|(cid, x)| (cid as u16, *x)).collect();
        divide(flows, each, most, last).into_values().collect()
    }

    /// RWC-2, RWC-5: windows in packets follow priorities, and their sum is what it was.
    #[test]
    fn windows_follow_priorities() {
        assert_eq!(list(&[1, 1, 1], 10, 22, None), [10, 10, 10]);
        assert_eq!(list(&[2, 1, 1], 10, 22, Some(0)), [14, 8, 8]);
        assert_eq!(list(&[2, 1], 16, 22, Some(0)), [21, 11]);
        assert_eq!(list(&[], 16, 22, None), vec![0; 0]);
    }

    /// RWC-12: a window that cannot be advertised is not given; what is left goes to the others.
    #[test]
    fn what_a_window_cannot_be_goes_to_the_others() {
        assert_eq!(list(&[9, 1, 1], 11, 22, None), [22, 5, 6]);
        // 0.02 packets become one, and 10.99 eleven: the first gets the rest.
        assert_eq!(list(&[1000, 500, 1], 11, 22, None), [21, 11, 1]);
        assert_eq!(list(&[7], 11, 8, None), [8]);
    }

    proptest! {
        /// RWC-4: the sum stays, as far as windows can be advertised.
        #[test]
        fn the_sum_stays(
            priorities in prop::collection::vec(1u32..1000, 1..60),
            each in 1u64..23,
        ) {
            let got = list(&priorities, each, 22, None);
            prop_assert_eq!(got.len(), priorities.len());
            prop_assert!(got.iter().all(|share| (1..=22).contains(share)));
            let sum: u64 = got.iter().sum();
            prop_assert_eq!(sum, each * priorities.len() as u64);
        }
    }
}
