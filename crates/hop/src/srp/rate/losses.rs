//! The share of datagrams that the hop loses by itself, and how well it is known.

use core::mem::replace;

use crate::srp::sample::Sample;

/// Loss is averaged over about so many datagrams, more where they are lost in long bursts.
const DATAGRAMS: f64 = 300.0;
/// Bursts over which it is averaged at least.
const BURSTS: f64 = 40.0;
/// Over no more than so many datagrams.
const DATAGRAMS_MAX: f64 = 10_000.0;

/// What is lost to something else than a full queue.
#[derive(Debug)]
pub(super) struct Losses {
    /// From 0 to 1.
    pub(super) share: f64,
    /// Over how many datagrams that is averaged.
    pub(super) over: f64,
    /// What had become of all when it was last updated.
    counts: (u64, u64),
    /// The burst that the average lost datagram is part of, in datagrams.
    burst: f64,
    /// Full datagrams were settled since: whether they met a queue is yet to be seen.
    pub(super) pending: bool,
    /// What is lost is the silence's.
    pub(super) void: bool,
}

impl Losses {
    pub(super) fn new() -> Self {
        Self { share: 0.0, over: 0.0, counts: (0, 0), burst: 1.0, pending: false, void: false }
    }

    /// Losses while the queue is `short` are the hop's own; others are passed over. Until there are
    /// enough the average is over all there were.
    pub(super) fn update(&mut self, s: &Sample, short: bool) {
        (self.pending, self.burst) = (false, s.burst);
        let before = replace(&mut self.counts, s.counts);
        let lost = s.counts.1.saturating_sub(before.1) as f64;
        let datagrams = s.counts.0.saturating_sub(before.0) as f64 + lost;
        if datagrams > 0.0 && short && !self.void {
            let most = (BURSTS * s.burst).clamp(DATAGRAMS, DATAGRAMS_MAX);
            self.over = (self.over + datagrams).min(most);
            let weight = (datagrams / self.over).min(1.0);
            self.share += (lost / datagrams - self.share) * weight;
        }
    }

    /// So much was lost of so many datagrams.
    pub(super) fn set(&mut self, share: f64, datagrams: f64) {
        (self.share, self.over) = (share, datagrams.min(DATAGRAMS));
    }

    /// How far what is lost of so many datagrams is from their share, by chance (the standard deviation): of a burst
    /// all are lost or none.
    pub(super) fn spread(&self, share: f64, datagrams: f64) -> f64 {
        libm::sqrt(share * (1.0 - share) / self.fates(datagrams))
    }

    /// How many fates those of so many datagrams are: those of a burst are one.
    pub(super) fn fates(&self, datagrams: f64) -> f64 {
        (datagrams / self.burst).max(1.0)
    }
}
