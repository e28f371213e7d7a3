//! Which handshakes are old, by their stamps.

use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

use crate::seal::PublicKey;

/// What many handshakes of one peer at once may overtake each other by.
const WINDOW: Duration = Duration::from_secs(10);
/// The greatest stamp that a clock gives (in 2262): one that was wrong and is set right needs others above it.
const BY_CLOCK_MAX: u64 = i64::MAX as u64;
/// Stamps of a peer that are remembered, at most.
const RECENT_MAX: usize = 4096;

/// The greatest stamp with which each mobile has made an association: a handshake whose stamp is not above it
/// was recorded, or its mobile's clock was set back.
///
/// A [peer](Self::of_peers) makes many associations at once, whose handshakes overtake each other: of the last ten
/// seconds before the greatest each stamp is good once.
#[derive(Clone, Default, Debug)]
pub struct Stamps {
    confirmed: BTreeMap<[u8; 32], Confirmed>,
    window: u64,
}

#[derive(Clone, Default, Debug)]
struct Confirmed {
    greatest: u64,
    /// What is not above this is old.
    floor: u64,
    /// Those above it, where handshakes overtake each other.
    recent: BTreeSet<u64>,
}

impl Stamps {
    /// The stamp of a handshake by a wall clock that shows so many nanoseconds since 1970.
    pub fn by_clock(wall: u64) -> u64 {
        wall.min(BY_CLOCK_MAX)
    }

    /// Those of peers that make many associations at once.
    pub fn of_peers() -> Self {
        Self { window: WINDOW.as_nanos() as u64, ..Self::default() }
    }

    /// The greatest stamp with which a mobile has made an association, if `stamp` is old.
    pub fn outdone(&self, mobile: &PublicKey, stamp: u64) -> Option<u64> {
        let known = self.confirmed.get(mobile.as_bytes())?;
        let old = stamp <= known.floor || known.recent.contains(&stamp);
        old.then_some(known.greatest)
    }

    /// A mobile has used the keys of the handshake with this stamp.
    pub fn confirm(&mut self, mobile: &PublicKey, stamp: u64) {
        let known = self.confirmed.entry(*mobile.as_bytes()).or_default();
        known.greatest = stamp.max(known.greatest);
        known.floor = known.floor.max(known.greatest.saturating_sub(self.window));
        if stamp > known.floor {
            known.recent.insert(stamp);
        }
        while let Some(first) = known.recent.first().copied()
            && (first <= known.floor || known.recent.len() > RECENT_MAX)
        {
            known.recent.pop_first();
            known.floor = known.floor.max(first);
        }
    }

    /// Forgets mobiles that are not to be `kept`.
    pub fn retain(&mut self, kept: impl Fn(&[u8; 32]) -> bool) {
        self.confirmed.retain(|mobile, _| kept(mobile));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SEC-2: whatever has made an association makes no other, nor does what is older.
    #[test]
    fn a_stamp_is_good_once() {
        let (key, other) = (PublicKey::from_bytes([1; 32]), PublicKey::from_bytes([2; 32]));
        let second = 1_000_000_000;
        let mut of_mobiles = Stamps::default();
        let mut of_peers = Stamps::of_peers();
        for stamps in [&mut of_mobiles, &mut of_peers] {
            assert_eq!(stamps.outdone(&key, 1), None);
            stamps.confirm(&key, 100 * second);
            assert_eq!(stamps.outdone(&key, 100 * second), Some(100 * second));
            assert_eq!(stamps.outdone(&key, 100 * second + 1), None);
            assert_eq!(stamps.outdone(&key, 89 * second), Some(100 * second));
            assert_eq!(stamps.outdone(&other, 1), None);
        }
        assert_eq!(of_mobiles.outdone(&key, 99 * second), Some(100 * second));
        for n in (1..9000).rev() {
            let stamp = 99 * second + n;
            assert_eq!(of_peers.outdone(&key, stamp), (n < 4904).then_some(100 * second));
            of_peers.confirm(&key, stamp);
            assert_eq!(of_peers.outdone(&key, stamp), Some(100 * second));
        }
        of_peers.confirm(&key, 120 * second);
        assert_eq!(of_peers.outdone(&key, 110 * second), Some(120 * second));
    }
}
