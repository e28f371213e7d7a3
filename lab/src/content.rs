//! Bytes that both ends can make for themselves.

use lasthop_units::{Seed, Stream};
use sha2::{Digest, Sha256};

/// A SHA-256 digest.
pub type Sha256Digest = [u8; 32];

const BLOCK: usize = 16 * 1024;

/// An endless sequence of pseudo-random bytes, the same for the same seed. Nothing on the way can
/// compress it, and no two places in it look alike.
#[derive(Clone, Debug)]
pub struct Content {
    stream: Stream,
    block: Vec<u8>,
    used: usize,
}

impl Content {
    /// The content that belongs to `seed`, from its start.
    pub fn new(seed: Seed) -> Self {
        Self { stream: seed.stream("content"), block: vec![0; BLOCK], used: BLOCK }
    }

    /// The next bytes. How the sequence is cut into calls does not change it.
    pub fn fill(&mut self, mut out: &mut [u8]) {
        while !out.is_empty() {
            if self.used == BLOCK {
                self.stream.fill(&mut self.block);
                self.used = 0;
            }
            let n = out.len().min(BLOCK - self.used);
            out[..n].copy_from_slice(&self.block[self.used..self.used + n]);
            self.used += n;
            out = &mut out[n..];
        }
    }
}

/// What the first `n` bytes of the content of `seed` hash to.
pub fn digest_of_prefix(seed: Seed, n: u64) -> Sha256Digest {
    let mut content = Content::new(seed);
    let mut hasher = Sha256::new();
    let mut buffer = [0; BLOCK];
    let mut left = n;
    while left > 0 {
        let now = left.min(BLOCK as u64) as usize;
        content.fill(&mut buffer[..now]);
        hasher.update(&buffer[..now]);
        left -= now as u64;
    }
    hasher.finalize().into()
}

/// Bytes as people compare them.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: Seed = Seed::from_u64(7);

    #[test]
    fn the_content_does_not_depend_on_how_it_is_cut() {
        let mut whole = vec![0; 3 * BLOCK + 5];
        Content::new(SEED).fill(&mut whole);
        let mut cut = vec![0; whole.len()];
        let mut content = Content::new(SEED);
        for piece in cut.chunks_mut(977) {
            content.fill(piece);
        }
        assert!(whole == cut);
    }

    #[test]
    fn a_prefix_hashes_as_the_bytes_themselves_do() {
        let mut bytes = vec![0; BLOCK + 1];
        Content::new(SEED).fill(&mut bytes);
        let digest: Sha256Digest = Sha256::digest(&bytes).into();
        assert_eq!(digest_of_prefix(SEED, bytes.len() as u64), digest);
        assert_ne!(digest_of_prefix(SEED, BLOCK as u64), digest);
        assert_ne!(digest_of_prefix(Seed::from_u64(8), bytes.len() as u64), digest);
        assert!(hex(&digest_of_prefix(SEED, 0)).starts_with("e3b0c442"));
    }
}
