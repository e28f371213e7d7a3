//! From where handshakes come, and how many from each.

use alloc::collections::BTreeMap;
use core::time::Duration;

use lasthop_units::Time;

use crate::tokens::Tokens;

/// Sources whose handshakes are counted at once.
const SOURCES_MAX: usize = 1024;
/// Those that have not called lately are looked for this often at most. There are more mobiles than are counted at
/// once, and after a restart of their base all of them come.
const SWEEP: Duration = Duration::from_millis(100);
/// Handshakes that each source has, a second and at once. There may be many mobiles behind one address.
const OF_MOBILES: f64 = 100.0;
/// The same where peers call, each of which may make hundreds of associations at once.
const OF_PEERS: f64 = 500.0;

/// Sources that have shown that they receive, and how many handshakes each may have yet.
pub(super) struct Sources {
    /// Handshakes that each has, a second and at once.
    share: f64,
    known: BTreeMap<[u8; 8], Tokens>,
    /// When those that have not called lately were last removed.
    swept: Time,
}

impl Default for Sources {
    fn default() -> Self {
        Self { share: OF_MOBILES, known: BTreeMap::new(), swept: Time::ZERO }
    }
}

impl Sources {
    /// Where peers call that have many associations.
    pub(super) fn of_peers() -> Self {
        Self { share: OF_PEERS, ..Self::default() }
    }

    /// Whether one more handshake of this source may be read.
    pub(super) fn admit(&mut self, now: Time, source: [u8; 8]) -> bool {
        if self.known.len() >= SOURCES_MAX && !self.known.contains_key(&source) {
            if now.since(self.swept) < SWEEP {
                return false;
            }
            self.swept = now;
            self.known.retain(|_, tokens| !tokens.is_full(now));
            if self.known.len() >= SOURCES_MAX {
                return false;
            }
        }
        let tokens = self.known.entry(source);
        tokens.or_insert_with(|| Tokens::new(self.share, self.share)).take(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_thousand_that_call_once_are_admitted_as_fast_as_they_may_be() {
        let mut sources = Sources::default();
        for n in 0..10_000u64 {
            let now = Time::from_secs(9) + Duration::from_micros(500 * n);
            assert!(sources.admit(now, n.to_be_bytes()), "{n}");
        }
    }

    #[test]
    fn one_that_calls_often_is_counted_and_the_table_is_bounded() {
        let mut sources = Sources::default();
        let now = Time::from_secs(9);
        let admitted = (0..500).filter(|_| sources.admit(now, [1; 8])).count();
        assert_eq!(admitted, 100);
        let others = (0..5000u64).filter(|n| sources.admit(now, n.to_be_bytes())).count();
        assert!(others < SOURCES_MAX && sources.known.len() == SOURCES_MAX, "{others}");
    }
}
