//! Bytes that need not be remembered: a keyed pseudo-random stream in which every byte follows from
//! its offset, so that whatever arrives can be checked in order without storing what was sent.

use lasthop_units::Seed;

/// One direction of one connection's content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Content {
    key: u64,
}

impl Content {
    /// The content called `name` under `seed`.
    pub fn new(seed: Seed, name: &str) -> Self {
        Self { key: seed.stream(name).next_u64() }
    }

    /// Writes the bytes from `offset` on into `out`.
    pub fn fill(self, offset: u64, out: &mut [u8]) {
        let mut at = offset;
        let head = ((8 - offset % 8) % 8) as usize;
        let head = head.min(out.len());
        let (first, rest) = out.split_at_mut(head);
        for b in first {
            *b = self.byte(at);
            at += 1;
        }
        for chunk in rest.chunks_mut(8) {
            let word = self.word(at / 8).to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
            at += chunk.len() as u64;
        }
    }

    /// Where `data`, which claims to start at `offset`, first differs from the content.
    pub fn first_difference(self, offset: u64, data: &[u8]) -> Option<u64> {
        let mut at = offset;
        let head = (((8 - offset % 8) % 8) as usize).min(data.len());
        let (first, rest) = data.split_at(head);
        for &b in first {
            if b != self.byte(at) {
                return Some(at);
            }
            at += 1;
        }
        for chunk in rest.chunks(8) {
            let word = self.word(at / 8).to_le_bytes();
            if let Some(i) = chunk.iter().zip(word).position(|(&a, b)| a != b) {
                return Some(at + i as u64);
            }
            at += chunk.len() as u64;
        }
        None
    }

    fn byte(self, offset: u64) -> u8 {
        self.word(offset / 8).to_le_bytes()[(offset % 8) as usize]
    }

    /// The SplitMix64 output function over a counter: every word costs the same, wherever it is.
    fn word(self, index: u64) -> u64 {
        mix(self.key.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }
}

/// A bijection of 64-bit words that spreads every input bit over every output bit.
const fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_cut_gives_the_same_bytes(offset in 0u64..10_000, len in 0usize..100, cut in 0usize..100) {
            let content = Content::new(Seed::from_u64(1), "a");
            let mut whole = vec![0; len];
            content.fill(offset, &mut whole);
            let cut = cut.min(len);
            let mut parts = vec![0; len];
            content.fill(offset, &mut parts[..cut]);
            content.fill(offset + cut as u64, &mut parts[cut..]);
            prop_assert_eq!(&whole, &parts);
            prop_assert_eq!(content.first_difference(offset, &whole), None);
        }

        #[test]
        fn one_wrong_bit_is_found_where_it_is(offset in 0u64..10_000, len in 1usize..100, at in 0usize..100, bit in 0u8..8) {
            let content = Content::new(Seed::from_u64(1), "a");
            let at = at % len;
            let mut data = vec![0; len];
            content.fill(offset, &mut data);
            data[at] ^= 1 << bit;
            prop_assert_eq!(content.first_difference(offset, &data), Some(offset + at as u64));
        }
    }

    #[test]
    fn shifted_or_foreign_bytes_are_wrong() {
        let a = Content::new(Seed::from_u64(1), "a");
        let b = Content::new(Seed::from_u64(1), "b");
        let mut data = [0; 64];
        a.fill(0, &mut data);
        assert!(a.first_difference(1, &data).is_some());
        assert!(b.first_difference(0, &data).is_some());
    }
}
