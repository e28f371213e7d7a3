use core::convert::Infallible;

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng, TryRng};

/// The one random input of a run. Every random process draws from its own named [`Stream`], so that
/// adding one process does not disturb the numbers that another sees (LNK-15).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Seed([u8; 32]);

impl Seed {
    /// A seed from a full 32 bytes, such as the operating system's entropy.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// A seed from a run number.
    pub const fn from_u64(n: u64) -> Self {
        let mut bytes = [0; 32];
        let n = n.to_le_bytes();
        let mut i = 0;
        while i < 8 {
            bytes[i] = n[i];
            i += 1;
        }
        Self(bytes)
    }

    /// The stream of random numbers called `name`.
    pub fn stream(&self, name: &str) -> Stream {
        let mut rng = ChaCha8Rng::from_seed(self.0);
        // ChaCha's 64-bit stream number separates streams; FNV-1a spreads names over it.
        let id = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
            (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
        });
        rng.set_stream(id);
        Stream(rng)
    }

    /// An independent seed called `name`, for a part that has streams of its own.
    pub fn child(&self, name: &str) -> Self {
        let mut bytes = [0; 32];
        self.stream(name).fill(&mut bytes);
        Self(bytes)
    }
}

/// A stream of random numbers: ChaCha with 8 rounds, the same on every machine.
#[derive(Clone, Debug)]
pub struct Stream(ChaCha8Rng);

impl Stream {
    /// A uniform 64-bit number.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A uniform number in `[0, 1)` with 53 random bits.
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A uniform integer below `n`; zero if `n` is zero.
    pub fn below(&mut self, n: u64) -> u64 {
        // The bias of the multiply-shift is below 2^-32 for every n that lasthop uses.
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// True with probability `p`.
    pub fn chance(&mut self, p: f64) -> bool {
        p > 0.0 && self.uniform() < p
    }

    /// Fills `out` with random bytes.
    pub fn fill(&mut self, out: &mut [u8]) {
        self.0.fill_bytes(out);
    }
}

impl TryRng for Stream {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        self.0.try_next_u32()
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        self.0.try_next_u64()
    }

    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), Infallible> {
        self.0.try_fill_bytes(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_and_name_give_the_same_numbers() {
        let seed = Seed::from_u64(7);
        let (mut a, mut b) = (seed.stream("loss"), seed.stream("loss"));
        assert!((0..100).all(|_| a.next_u64() == b.next_u64()));
    }

    #[test]
    fn names_and_seeds_separate_streams() {
        let first = |s: u64, n: &str| Seed::from_u64(s).stream(n).next_u64();
        assert_ne!(first(1, "loss"), first(1, "fade"));
        assert_ne!(first(1, "loss"), first(2, "loss"));
        assert_ne!(Seed::from_u64(1).child("a"), Seed::from_u64(1).child("b"));
    }

    #[test]
    fn uniform_numbers_fill_the_unit_interval_evenly() {
        let mut s = Seed::from_u64(3).stream("u");
        let mean = (0..100_000).map(|_| s.uniform()).sum::<f64>() / 100_000.0;
        assert!((mean - 0.5).abs() < 0.005, "{mean}");
        assert!((0..100_000).all(|_| s.below(7) < 7));
        assert_eq!(s.below(0), 0);
    }
}
