//! Integers of one, two, four or eight bytes, the length in the first two bits (RFC 9000 §16).

use alloc::vec::Vec;

/// The largest number that fits.
pub const MAX: u64 = (1 << 62) - 1;

/// How many bytes `n` takes; eight for anything too large to be written.
pub const fn len(n: u64) -> usize {
    match n {
        0..0x40 => 1,
        0x40..0x4000 => 2,
        0x4000..0x4000_0000 => 4,
        _ => 8,
    }
}

/// Writes `n`, at most [`MAX`], at the start of `out` and returns the rest; `None` if there is no
/// room.
pub fn put(out: &mut [u8], n: u64) -> Option<&mut [u8]> {
    debug_assert!(n <= MAX);
    let len = len(n);
    let (head, rest) = out.split_at_mut_checked(len)?;
    let tag = match len {
        1 => 0,
        2 => 0x40,
        4 => 0x80,
        _ => 0xc0,
    };
    head.copy_from_slice(&n.to_be_bytes()[8 - len..]);
    head[0] |= tag;
    Some(rest)
}

/// Appends `n` to `out`; [`MAX`] in place of anything larger.
pub fn push(out: &mut Vec<u8>, n: u64) {
    let mut buf = [0; 8];
    let n = n.min(MAX);
    let _ = put(&mut buf, n);
    out.extend_from_slice(&buf[..len(n)]);
}

/// Reads a number from the start of `bytes`; the number and the rest, or `None` if cut short.
pub fn get(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let first = *bytes.first()?;
    let len = 1usize << (first >> 6);
    let (head, rest) = bytes.split_at_checked(len)?;
    let n = head[1..].iter().fold(u64::from(first & 0x3f), |n, b| n << 8 | u64::from(*b));
    Some((n, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_comes_back() {
        for n in [0, 1, 63, 64, 16_383, 16_384, (1 << 30) - 1, 1 << 30, MAX] {
            let mut buf = [0; 8];
            let left = put(&mut buf, n).unwrap().len();
            assert_eq!(8 - left, len(n));
            let (back, rest) = get(&buf).unwrap();
            assert_eq!((back, rest.len()), (n, left));
            let mut pushed = Vec::new();
            push(&mut pushed, n);
            assert_eq!(pushed, buf[..len(n)]);
        }
    }

    #[test]
    fn what_is_cut_short_is_refused() {
        let mut buf = [0; 8];
        for n in [64, 16_384, 1 << 30] {
            put(&mut buf, n).unwrap();
            assert!(get(&buf[..len(n) - 1]).is_none());
            assert!(put(&mut buf[..len(n) - 1], n).is_none());
        }
        assert!(get(&[]).is_none());
    }
}
