//! The Internet checksum (RFC 1071).

/// Lanes that are added side by side.
const LANES: usize = 8;
/// The bytes that fill all lanes once.
const BLOCK: usize = 8 * LANES;

#[inline(always)]
fn add_up(words: &[[u8; 4]]) -> u64 {
    words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum()
}

/// The sum of the words in whole blocks. On its own, so that a compiler keeps the lanes in vectors
/// whatever is around it.
///
/// A lane of 64 bits takes two words at a time. Only the upper ones are taken apart: what they have
/// added to `all`, modulo 2^64, is taken out in the end, and the lower ones' sum remains.
#[inline(never)]
fn add_up_blocks(blocks: &[[u8; BLOCK]]) -> u64 {
    let (mut all, mut upper) = ([0_u64; LANES], [0_u64; LANES]);
    for block in blocks {
        for (lane, pair) in block.as_chunks().0.iter().enumerate() {
            let pair = u64::from_ne_bytes(*pair);
            all[lane] = all[lane].wrapping_add(pair);
            upper[lane] += pair >> 32;
        }
    }
    let upper: u64 = upper.into_iter().sum();
    let all = all.into_iter().fold(0, u64::wrapping_add);
    all.wrapping_sub(upper << 32) + upper
}

/// A sum over bytes, of which [`Sum::checksum`] makes the checksum.
///
/// Words of 32 bits are added as the machine reads them, in lanes that a compiler can add side by
/// side: the sum does not mind the order of bytes, as long as the result keeps it (RFC 1071
/// section 2).
#[derive(Clone, Copy, Default, Debug)]
pub struct Sum(u64);

impl Sum {
    /// The sum over nothing.
    pub const fn new() -> Self {
        Self(0)
    }

    /// With `bytes` added. An odd byte at their end counts as if a zero followed, so only the last
    /// bytes that are added may be odd in number.
    #[must_use]
    #[inline]
    pub fn with(self, bytes: &[u8]) -> Self {
        let (blocks, bytes) = bytes.as_chunks();
        let (words, rest) = bytes.as_chunks();
        // Put together in a register: written as bytes and read as a word, it would have to wait for
        // the memory.
        let tail = match *rest {
            [a] => [a, 0, 0, 0],
            [a, b] => [a, b, 0, 0],
            [a, b, c] => [a, b, c, 0],
            _ => [0; 4],
        };
        let blocks = if blocks.is_empty() { 0 } else { add_up_blocks(blocks) };
        Self(self.0 + blocks + add_up(words) + add_up(&[tail]))
    }

    /// With eight bytes added that are `n` in network byte order: for a header that is put together
    /// in a register.
    #[must_use]
    #[inline]
    pub const fn with_u64(self, n: u64) -> Self {
        let n = n.to_be();
        Self(self.0 + (n >> 32) + (n & 0xffff_ffff))
    }

    /// The checksum, to be written in network byte order. Over bytes that hold their right
    /// checksum it is zero.
    #[inline]
    pub const fn checksum(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        (!(sum as u16)).to_be()
    }
}

/// The checksum of `bytes`.
#[inline]
pub fn of(bytes: &[u8]) -> u16 {
    Sum::new().with(bytes).checksum()
}

/// The checksum of bytes whose checksum was `checksum`, of which an even number at an even place
/// changed from `was` to `is` (RFC 1624, equation 3).
#[inline]
pub fn updated(checksum: u16, was: &[u8], is: &[u8]) -> u16 {
    Sum::new().with(&(!checksum).to_be_bytes()).with(&of(was).to_be_bytes()).with(is).checksum()
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    /// Word by word, in network byte order, as RFC 1071 section 1 has it.
    fn by_words(bytes: &[u8]) -> u16 {
        let mut sum = 0_u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    /// The example of RFC 1071 section 3: the words 0001, f203, f4f5, f6f7 add up to ddf2.
    #[test]
    fn the_rfcs_example_adds_up() {
        assert_eq!(of(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
    }

    #[test]
    fn nothing_and_zeros_have_the_checksum_of_zero() {
        assert_eq!(of(&[]), 0xffff);
        assert_eq!(of(&[0; 41]), 0xffff);
        assert_eq!(of(&[0xff; 70_000]), 0);
    }

    proptest! {
        #[test]
        fn lanes_give_what_words_give(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            prop_assert_eq!(of(&bytes), by_words(&bytes));
        }

        #[test]
        fn even_pieces_give_what_the_whole_gives(bytes: Vec<u8>, at: usize) {
            let (a, b) = bytes.split_at((at % (bytes.len() + 1)) & !1);
            prop_assert_eq!(Sum::new().with(a).with(b).checksum(), of(&bytes));
        }

        #[test]
        fn a_register_counts_as_its_bytes(n: u64, bytes: Vec<u8>) {
            let both = [&n.to_be_bytes()[..], &bytes].concat();
            prop_assert_eq!(Sum::new().with_u64(n).with(&bytes).checksum(), of(&both));
        }

        /// RFC 1624: what is updated is what would be summed anew.
        #[test]
        fn an_update_gives_what_the_whole_gives(
            words: Vec<[u8; 2]>, at: usize, with: Vec<[u8; 2]>, more in 1..255u8,
        ) {
            let (before, after) = words.split_at(at % (words.len() + 1));
            let (was, rest) = after.split_at(with.len().min(after.len()));
            // Something beside the changed words is not zero, as in every packet.
            let flat = |middle: &[[u8; 2]]| [before, middle, rest, &[[0, more]]].concat().concat();
            let checksum = updated(of(&flat(was)), &was.concat(), &with.concat());
            prop_assert_eq!(checksum, of(&flat(&with)));
        }

        #[test]
        fn a_right_checksum_makes_it_zero(mut bytes: Vec<u8>) {
            bytes.truncate(bytes.len() & !1);
            let checksum = of(&bytes);
            bytes.extend(checksum.to_be_bytes());
            prop_assert_eq!(of(&bytes), 0);
        }
    }
}
