//! Finding the largest datagram that passes (after RFC 8899), on a hop that loses datagrams anyway.
//!
//! A lost probe proves little where a fifth of everything is lost. So a size is abandoned only after
//! as many losses in a row as loss alone would produce once in ten thousand times, and a size in use
//! only when large datagrams keep vanishing while small ones arrive.

use core::time::Duration;

use lasthop_units::Time;

/// One in so many is the chance we accept of taking bad luck for a small MTU.
const CONFIDENCE: f64 = 10_000.0;
const ATTEMPTS_MIN: u32 = 3;
const ATTEMPTS_MAX: u32 = 40;
/// More loss than this counts as this much when a size in use is judged.
const DOUBT_LOSS: f64 = 0.4;
/// The search ends when it is known to so many bytes.
const CLOSE_ENOUGH: usize = 16;
/// How long a result stands before a larger size is tried again.
const RAISE_AFTER: Duration = Duration::from_secs(600);

/// The search for the largest datagram, in bytes of carrier payload.
#[derive(Debug)]
pub(super) struct MtuSearch {
    /// The largest size known to pass.
    current: usize,
    /// What every hop is expected to carry.
    base: usize,
    /// The smallest size known not to pass, or one more than what may be tried.
    too_large: usize,
    ceiling: usize,
    /// The size being tried and how often it was lost.
    trying: Option<(usize, u32)>,
    in_flight: bool,
    /// No data has left since the last probe.
    was_last: bool,
    /// Large datagrams lost since one arrived, and whether a small one arrived meanwhile.
    large_lost: u32,
    small_arrived: u32,
    next_search: Time,
}

impl MtuSearch {
    /// Starts from `base`, which must pass, and tries up to `ceiling`.
    pub(super) fn new(base: usize, ceiling: usize) -> Self {
        let ceiling = ceiling.max(base);
        Self {
            current: base,
            base,
            too_large: ceiling + 1,
            ceiling,
            trying: None,
            in_flight: false,
            was_last: false,
            large_lost: 0,
            small_arrived: 0,
            next_search: Time::ZERO,
        }
    }

    /// Datagrams may have this size.
    pub(super) fn current(&self) -> usize {
        self.current
    }

    /// The size to probe now, if any.
    pub(super) fn probe(&mut self, now: Time) -> Option<usize> {
        if self.in_flight || now < self.next_search {
            return None;
        }
        if self.too_large - self.current <= CLOSE_ENOUGH && self.too_large <= self.ceiling
            || self.current >= self.ceiling
        {
            if self.too_large <= self.ceiling {
                // Paths change: one day the next size may pass.
                self.too_large = self.ceiling + 1;
                self.trying = None;
                self.next_search = now + RAISE_AFTER;
            }
            return None;
        }
        // The ceiling first: it is what most hops carry.
        let size = match self.trying {
            Some((size, _)) => size,
            None if self.too_large > self.ceiling => self.ceiling,
            None => self.current + (self.too_large - self.current) / 2,
        };
        let losses = self.trying.map_or(0, |(_, n)| n);
        self.trying = Some((size, losses));
        (self.in_flight, self.was_last) = (true, true);
        Some(size)
    }

    /// It is the turn of data, if there is any: on a slow hop a probe may be lost before its time at the rate is over,
    /// and the next would be due as soon as data.
    pub(super) fn gives_way(&self) -> bool {
        self.was_last
    }

    /// Data has left.
    pub(super) fn on_data_sent(&mut self) {
        self.was_last = false;
    }

    /// A probe arrived.
    pub(super) fn on_probe_acked(&mut self, size: usize) {
        self.in_flight = false;
        self.trying = None;
        if size > self.current && size < self.too_large {
            self.current = size;
        }
    }

    /// A probe was lost, where a share `loss` of all datagrams is.
    pub(super) fn on_probe_lost(&mut self, loss: f64) {
        self.in_flight = false;
        if let Some((size, losses)) = &mut self.trying {
            *losses += 1;
            if *losses >= attempts(loss) {
                self.too_large = *size;
                self.trying = None;
            }
        }
    }

    /// A datagram of `size` bytes arrived.
    pub(super) fn on_acked(&mut self, size: usize) {
        if size > self.base {
            self.large_lost = 0;
            self.small_arrived = 0;
        } else if self.large_lost > 0 {
            self.small_arrived = self.small_arrived.saturating_add(1);
        }
    }

    /// A datagram of `size` bytes was lost. True if sizes above the base no longer pass and
    /// [`current`](Self::current) has fallen back.
    pub(super) fn on_lost(&mut self, size: usize, loss: f64) -> bool {
        if size <= self.base || self.current == self.base {
            return false;
        }
        self.large_lost = self.large_lost.saturating_add(1);
        // A path that swallows all large ones drives the measured loss up: that must not delay the
        // result.
        let enough = 2 * attempts(loss.min(DOUBT_LOSS));
        let vanished = self.large_lost >= enough && self.small_arrived >= 2;
        if vanished {
            self.too_large = self.current;
            self.fall_back();
        }
        vanished
    }

    /// The path is another one. What passed before most likely still does, but is searched again
    /// should it not.
    pub(super) fn on_new_path(&mut self) {
        self.too_large = self.ceiling + 1;
        self.trying = None;
        self.in_flight = false;
        self.next_search = Time::ZERO;
    }

    fn fall_back(&mut self) {
        self.current = self.base;
        self.trying = None;
        self.in_flight = false;
        self.large_lost = 0;
        self.small_arrived = 0;
        self.next_search = Time::ZERO;
    }
}

/// How many losses in a row chance alone brings once in [`CONFIDENCE`] times.
fn attempts(loss: f64) -> u32 {
    if loss <= 0.0 {
        return ATTEMPTS_MIN;
    }
    let n = libm::ceil(libm::log(CONFIDENCE) / -libm::log(loss.min(0.95)));
    (n as u32).clamp(ATTEMPTS_MIN, ATTEMPTS_MAX)
}

#[cfg(test)]
mod tests {
    use lasthop_units::Seed;

    use super::*;

    fn search(true_mtu: usize, loss: f64, seed: u64) -> usize {
        let mut rng = Seed::from_u64(seed).stream("mtu");
        let mut m = MtuSearch::new(1200, 1472);
        for _ in 0..2000 {
            let Some(size) = m.probe(Time::from_secs(1)) else { break };
            if size <= true_mtu && !rng.chance(loss) {
                m.on_probe_acked(size);
            } else {
                m.on_probe_lost(loss);
            }
        }
        m.current()
    }

    #[test]
    fn the_search_is_right_at_twenty_percent_loss() {
        for seed in 0..200 {
            assert_eq!(search(1472, 0.2, seed), 1472, "seed {seed}");
            let found = search(1400, 0.2, seed);
            assert!((1400 - CLOSE_ENOUGH..=1400).contains(&found), "seed {seed}: {found}");
        }
    }

    /// As in the simulator's schedule 5130 with packets, where the search took all turns for many seconds.
    #[test]
    fn after_each_probe_data_has_a_turn() {
        let mut m = MtuSearch::new(1200, 1472);
        for _ in 0..3 {
            assert!(!m.gives_way() && m.probe(Time::from_secs(1)).is_some());
            m.on_probe_lost(0.3);
            assert!(m.gives_way());
            m.on_data_sent();
        }
    }

    #[test]
    fn loss_alone_never_shrinks_the_datagrams() {
        let mut rng = Seed::from_u64(1).stream("mtu");
        let mut m = MtuSearch::new(1200, 1472);
        m.on_probe_acked(1472);
        for i in 0..200_000u32 {
            let size = if i % 5 == 0 { 300 } else { 1472 };
            if rng.chance(0.3) {
                assert!(!m.on_lost(size, 0.3));
            } else {
                m.on_acked(size);
            }
        }
    }

    #[test]
    fn a_shrunken_path_is_detected_when_small_datagrams_arrive() {
        let mut m = MtuSearch::new(1200, 1472);
        m.on_probe_acked(1472);
        let fell = (0..100).any(|_| {
            m.on_acked(1000);
            m.on_lost(1472, 0.05)
        });
        assert!(fell);
        assert_eq!(m.current(), 1200);
        assert!(m.probe(Time::from_secs(5)).is_some_and(|s| s < 1472));
    }
}
