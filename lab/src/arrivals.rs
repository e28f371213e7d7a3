//! When bytes arrived, and whether they were the right ones.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lasthop_units::{Bytes, Rate, Seed};
use sha2::{Digest, Sha256};

use crate::content::{Sha256Digest, digest_of_prefix};

/// Arrivals closer together than this are one entry, so that the log of a fast transfer stays
/// short: at most 1000 entries a second.
const GRAIN: Duration = Duration::from_millis(1);

/// Bytes that arrived at (or within a millisecond after) one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// When the first of them arrived.
    pub at: Instant,
    /// How many.
    pub bytes: u64,
}

/// What one end received: how much, when, and its hash.
#[derive(Clone, Debug, Default)]
pub struct Received {
    arrivals: Vec<Arrival>,
    total: u64,
    hasher: Sha256,
}

impl Received {
    /// Takes note of bytes that just arrived.
    pub fn take(&mut self, now: Instant, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.total += bytes.len() as u64;
        match self.arrivals.last_mut() {
            Some(last) if now.duration_since(last.at) < GRAIN => last.bytes += bytes.len() as u64,
            _ if bytes.is_empty() => {}
            _ => self.arrivals.push(Arrival { at: now, bytes: bytes.len() as u64 }),
        }
    }

    /// Bytes received in all.
    pub fn total(&self) -> Bytes {
        Bytes::new(self.total)
    }

    /// When the first byte came.
    pub fn first(&self) -> Option<Instant> {
        self.arrivals.first().map(|a| a.at)
    }

    /// When the first byte from `moment` on came.
    pub fn first_from(&self, moment: Instant) -> Option<Instant> {
        self.arrivals.get(self.index(moment)).map(|a| a.at)
    }

    /// Bytes that came in `[from, to)`.
    pub fn between(&self, from: Instant, to: Instant) -> Bytes {
        let (from, to) = (self.index(from), self.index(to));
        self.arrivals.get(from..to).unwrap_or(&[]).iter().map(|a| Bytes::new(a.bytes)).sum()
    }

    /// The start of the first stretch as long as `window`, from `moment` on, in which bytes came
    /// at `rate` or faster.
    pub fn first_stretch(&self, moment: Instant, window: Duration, rate: Rate) -> Option<Instant> {
        let wanted = rate.bytes_in(window);
        let last = self.arrivals.last()?.at;
        self.arrivals[self.index(moment)..]
            .iter()
            .map(|a| a.at)
            .take_while(|start| *start + window <= last)
            .find(|start| self.between(*start, *start + window) >= wanted)
    }

    /// The log itself, in order of time.
    pub fn arrivals(&self) -> &[Arrival] {
        &self.arrivals
    }

    /// What the bytes hash to.
    pub fn digest(&self) -> Sha256Digest {
        self.hasher.clone().finalize().into()
    }

    /// Whether the bytes are a prefix of the content of `seed`: none missing, doubled or changed.
    pub fn is_prefix_of(&self, seed: Seed) -> bool {
        self.digest() == digest_of_prefix(seed, self.total)
    }

    fn index(&self, moment: Instant) -> usize {
        self.arrivals.partition_point(|a| a.at < moment)
    }
}

/// A [`Received`] that one thread fills while another watches.
#[derive(Clone, Debug, Default)]
pub struct Watched(Arc<Mutex<Received>>);

impl Watched {
    /// The state at this moment. Whoever holds it delays the transfer.
    pub fn lock(&self) -> MutexGuard<'_, Received> {
        // The log is consistent after every call, so a panic elsewhere cannot have spoilt it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Content;

    const SEED: Seed = Seed::from_u64(1);

    /// 1000 bytes every 10 ms from `start`, but for a silence from 100 to 300 ms.
    fn log(start: Instant) -> Received {
        let mut received = Received::default();
        let mut content = Content::new(SEED);
        let mut bytes = [0; 1000];
        for ms in (0..100).chain(300..500).step_by(10) {
            content.fill(&mut bytes);
            received.take(start + Duration::from_millis(ms), &bytes);
        }
        received
    }

    #[test]
    fn bytes_are_counted_in_half_open_windows() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let received = log(start);
        assert_eq!(received.total(), Bytes::new(30_000));
        assert_eq!(received.between(at(0), at(100)), Bytes::new(10_000));
        assert_eq!(received.between(at(10), at(20)), Bytes::new(1000));
        assert_eq!(received.between(at(100), at(300)), Bytes::ZERO);
        assert_eq!(received.between(at(20), at(10)), Bytes::ZERO);
    }

    #[test]
    fn the_end_of_a_silence_is_found() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let received = log(start);
        assert_eq!(received.first(), Some(at(0)));
        assert_eq!(received.first_from(at(95)), Some(at(300)));
        assert_eq!(received.first_from(at(491)), None);
        let rate = Rate::of(Bytes::new(1000), Duration::from_millis(10));
        let stretch = |ms| received.first_stretch(at(ms), Duration::from_millis(50), rate);
        assert_eq!(stretch(70), Some(at(300)), "70 ms does not start 50 ms at full rate");
        assert_eq!(stretch(460), None, "the log ends before the window does");
    }

    #[test]
    fn a_wrong_byte_is_noticed() {
        let mut received = log(Instant::now());
        assert!(received.is_prefix_of(SEED));
        received.take(Instant::now(), b"x");
        assert!(!received.is_prefix_of(SEED));
        assert!(Received::default().is_prefix_of(SEED));
    }

    #[test]
    fn arrivals_within_a_millisecond_are_one_entry() {
        let start = Instant::now();
        let mut received = Received::default();
        for us in [0, 400, 900, 1000, 1999, 2000] {
            received.take(start + Duration::from_micros(us), b"..");
        }
        let bytes: Vec<u64> = received.arrivals().iter().map(|a| a.bytes).collect();
        assert_eq!(bytes, [6, 4, 2]);
    }
}
