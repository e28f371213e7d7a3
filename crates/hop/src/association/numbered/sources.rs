//! From where handshakes come, and how many from each.

use alloc::collections::BTreeMap;
use core::time::Duration;

use lasthop_units::Time;

use crate::tokens::Tokens;

/// Sources whose handshakes are counted at once.
const SOURCES_MAX: usize = 1024;
/// Handshakes that each source has, a second and at once. There may be many mobiles behind one address.
const PER_SECOND: f64 = 100.0;
const AT_ONCE: f64 = 100.0;

/// Sources that have shown that they receive, and how many handshakes each may have yet.
#[derive(Default)]
pub(super) struct Sources {
    known: BTreeMap<[u8; 8], Tokens>,
    /// When those that have not called lately were last removed.
    swept: Time,
}

impl Sources {
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
        tokens.or_insert_with(|| Tokens::new(PER_SECOND, AT_ONCE)).take(now)
    }
}
