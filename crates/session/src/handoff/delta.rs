//! A state in terms of a copy that the other base has (MOB-40, MOB-42).
//!
//! Whatever the copy holds, the state comes out exact: what the copy lacks is sent as it is. So a
//! copy may be as old as it likes, and a prediction can be wrong without anything else being so.

use alloc::vec::Vec;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use lasthop_wire::mhp::handoff::CopyName;
use lasthop_wire::varint;

/// First byte of a remainder, where a whole state has its version.
const REMAINDER: u8 = 0x80;
/// The copy's length and digest, and the state's digest.
const HEADER_LEN: usize = 1 + 8 + 8 + 8;
/// Stretches of the copy that are looked for. Shorter ones are not worth their description.
const BLOCK: usize = 32;

type Index = HashMap<u64, usize, FixedState>;

/// Names the first bytes of a copy as far as they have come.
pub(super) fn name(copy: &[u8]) -> CopyName {
    CopyName { len: copy.len() as u64, digest: digest(copy) }
}

/// The bytes of that name at the start of a copy, if they are there.
pub(super) fn named(copy: &[u8], name: CopyName) -> Option<&[u8]> {
    let part = copy.get(..usize::try_from(name.len).ok()?)?;
    (digest(part) == name.digest).then_some(part)
}

/// 64 bits, eight bytes at a time: connections wait meanwhile. Nobody is kept from forging one; a state that
/// is put together wrongly is noticed by its own.
fn digest(bytes: &[u8]) -> u64 {
    let mix = |hash: u64, word: u64| {
        let hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^ hash >> 32
    };
    let (words, last) = bytes.as_chunks::<8>();
    let hash = words.iter().map(|word| u64::from_be_bytes(*word)).fold(bytes.len() as u64, mix);
    last.iter().map(|b| u64::from(*b)).fold(hash, mix)
}

/// Whether the bytes are a remainder.
pub(super) fn is_remainder(bytes: &[u8]) -> bool {
    bytes.first() == Some(&REMAINDER)
}

/// Of which copy a remainder is.
fn copy_of(remainder: &[u8]) -> Option<CopyName> {
    let fields = remainder.get(1..HEADER_LEN).filter(|_| is_remainder(remainder))?;
    Some(CopyName { len: take_u64(fields)?, digest: take_u64(&fields[8..])? })
}

/// `state` as what is to be added to `copy`.
pub(super) fn remainder(copy: &[u8], state: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_LEN);
    out.push(REMAINDER);
    let CopyName { len, digest: copy_digest } = name(copy);
    for field in [len, copy_digest, digest(state)] {
        out.extend_from_slice(&field.to_be_bytes());
    }
    let index = index(copy);
    let (mut at, mut told) = (0, 0);
    while let Some(block) = state.get(at..at + BLOCK) {
        let found = index.get(&key(block)).copied().filter(|n| copy[*n..].starts_with(block));
        let Some(found) = found else {
            at += 1;
            continue;
        };
        let back = common(state[told..at].iter().rev(), copy[..found].iter().rev());
        let len = back + common(state[at..].iter(), copy[found..].iter());
        put(&mut out, &state[told..at - back], found - back, len);
        at = at - back + len;
        told = at;
    }
    put(&mut out, &state[told..], 0, 0);
    out
}

/// The state that a remainder makes of its copy, which may be longer here, of at most `limit` bytes.
/// `None` if it is none, of another copy, or damaged.
pub(super) fn whole(copy: &[u8], remainder: &[u8], limit: u64) -> Option<Vec<u8>> {
    let copy = named(copy, copy_of(remainder)?)?;
    let expected = take_u64(remainder.get(HEADER_LEN - 8..)?)?;
    let mut rest = remainder.get(HEADER_LEN..)?;
    let mut state = Vec::new();
    while !rest.is_empty() {
        let (new, from, len);
        (new, rest) = take_len(rest)?;
        (from, rest) = take_len(rest)?;
        (len, rest) = take_len(rest)?;
        let (bytes, after) = rest.split_at_checked(new)?;
        rest = after;
        let known = copy.get(from..from.checked_add(len)?)?;
        let total = (state.len() as u64).checked_add(new as u64)?.checked_add(len as u64)?;
        if total > limit {
            return None;
        }
        state.extend_from_slice(bytes);
        state.extend_from_slice(known);
    }
    (digest(&state) == expected).then_some(state)
}

/// Where the copy's blocks are, by what is in them.
fn index(copy: &[u8]) -> Index {
    let blocks = copy.chunks_exact(BLOCK).enumerate();
    blocks.map(|(n, block)| (key(block), n * BLOCK)).collect()
}

fn key(block: &[u8]) -> u64 {
    let words = block.chunks_exact(8).map(|word| take_u64(word).unwrap_or_default());
    words.fold(0, |key: u64, word| (key.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn common<'a>(a: impl Iterator<Item = &'a u8>, b: impl Iterator<Item = &'a u8>) -> usize {
    a.zip(b).take_while(|(a, b)| a == b).count()
}

/// Bytes that the copy lacks, and a stretch of it that follows them.
fn put(out: &mut Vec<u8>, new: &[u8], from: usize, len: usize) {
    for n in [new.len(), from, len] {
        let mut room = [0; 8];
        let n = (n as u64).min(varint::MAX);
        let _ = varint::put(&mut room, n);
        out.extend_from_slice(&room[..varint::len(n)]);
    }
    out.extend_from_slice(new);
}

fn take_len(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (n, rest) = varint::get(bytes)?;
    Some((usize::try_from(n).ok()?, rest))
}

fn take_u64(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk().map(|chunk| u64::from_be_bytes(*chunk))
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use lasthop_units::Seed;
    use lasthop_wire::mhp::handoff::{SessionId, SessionState};
    use proptest::prelude::*;

    use super::*;

    fn noise(seed: u64, n: usize) -> Vec<u8> {
        let mut bytes = vec![0; n];
        Seed::from_u64(seed).stream("noise").fill(&mut bytes);
        bytes
    }

    /// MOB-40, MOB-42: a window that slid on costs what is new and a few bytes more.
    #[test]
    fn what_the_copy_has_is_not_sent_again() {
        let stream = noise(1, 100_000);
        let state =
            |from: usize, n: usize| [&[1; 40][..], &stream[from..from + n], &[2; 90]].concat();
        let (copy, state) = (state(0, 50_000), state(12_345, 50_000));
        let remainder = remainder(&copy, &state);
        assert!(remainder.len() < 12_345 + 200, "{}", remainder.len());
        assert_eq!(copy_of(&remainder), Some(name(&copy)));
        let longer = [&copy[..], b"what came meanwhile"].concat();
        assert_eq!(whole(&longer, &remainder, 60_000), Some(state));
    }

    /// A stretch begins where it begins, and not with a block.
    #[test]
    fn a_stretch_is_found_from_its_first_byte() {
        let (copy, new) = (noise(1, 128), noise(2, 10));
        let state = [&new[..], &copy[33..]].concat();
        let remainder = remainder(&copy, &state);
        assert!(remainder.len() < HEADER_LEN + new.len() + 10, "{}", remainder.len());
        assert_eq!(whole(&copy, &remainder, 200), Some(state));
    }

    #[test]
    fn another_copy_or_a_damaged_remainder_gives_nothing() {
        let (copy, state) = (noise(1, 5000), noise(2, 5000));
        let whole_of = |bytes: &[u8]| whole(&copy, bytes, 1 << 20);
        let mut bytes = remainder(&copy, &state);
        assert_eq!(whole(&state, &bytes, 1 << 20), None);
        assert_eq!(whole(&copy, &bytes, 4999), None, "longer than may be");
        for cut in 0..bytes.len() {
            assert_eq!(whole_of(&bytes[..cut]), None);
        }
        bytes[3000] ^= 1;
        assert_eq!(whole_of(&bytes), None);
    }

    #[test]
    fn a_state_that_is_whole_is_no_remainder() {
        let state = SessionState::of(SessionId(u64::MAX), vec![]);
        assert!(!is_remainder(&state.encode()));
        assert!(is_remainder(&remainder(&[], &state.encode())));
    }

    proptest! {
        #[test]
        fn the_state_comes_out_whatever_the_copy_was(
            pieces in prop::collection::vec((0u64..6, 0usize..300), 0..12),
            others in prop::collection::vec((0u64..6, 0usize..300), 0..12),
        ) {
            let join = |pieces: &[(u64, usize)]| -> Vec<u8> {
                pieces.iter().flat_map(|(seed, n)| noise(*seed, *n)).collect()
            };
            let (copy, state) = (join(&pieces), join(&others));
            let remainder = remainder(&copy, &state);
            prop_assert!(remainder.len() <= state.len() + 72);
            prop_assert_eq!(whole(&copy, &remainder, state.len() as u64), Some(state));
        }

        #[test]
        fn garbage_never_panics(
            copy in prop::collection::vec(any::<u8>(), 0..100),
            mut bytes in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            if bytes.len() > HEADER_LEN {
                let name = name(&copy);
                bytes[0] = REMAINDER;
                bytes[1..9].copy_from_slice(&name.len.to_be_bytes());
                bytes[9..17].copy_from_slice(&name.digest.to_be_bytes());
            }
            let state = whole(&copy, &bytes, 200);
            prop_assert!(state.is_none_or(|state| state.len() <= 200));
        }
    }
}
