//! From where handshakes come, and how many from each.

use alloc::collections::BTreeMap;
use core::time::Duration;

use lasthop_units::Time;

use crate::tokens::Tokens;

/// Sources whose handshakes are counted at once.
const SOURCES_MAX: usize = 1024;
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
            if now.since(self.swept) < Duration::from_secs(1) {
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
