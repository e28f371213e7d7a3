//! Keys of data datagrams. Each direction has its own, and each key is good for 2^23 packet
//! numbers (an epoch); the next follows from the last by a one-way hash, so that a key found later
//! opens nothing of an earlier epoch. The epoch is the upper part of the packet number, which both
//! sides know: nothing on the wire announces it.

use blake2::Blake2sMac256;
use blake2::digest::{FixedOutput, KeyInit, Update};
use ring::aead::{AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use thiserror::Error;
use zeroize::Zeroizing;

use lasthop_wire::datagram::TAG_LEN;

/// A key is used for 2^23 packet numbers, which is what AES-256-GCM may seal whatever the packets'
/// lengths are (RFC 9001, section 6.6).
pub(super) const EPOCH_BITS: u32 = 23;

pub(super) type Secret = Zeroizing<[u8; 32]>;

/// What seals data datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cipher {
    /// Fast everywhere.
    ChaCha20Poly1305,
    /// Faster where both sides have AES in hardware.
    Aes256Gcm,
}

impl Cipher {
    /// AES only if both sides announced that it is fast.
    pub(super) fn choose(ours_fast_aes: bool, theirs_fast_aes: bool) -> Self {
        if ours_fast_aes && theirs_fast_aes { Self::Aes256Gcm } else { Self::ChaCha20Poly1305 }
    }

    /// The cipher's name, as people know it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ChaCha20Poly1305 => "ChaCha20-Poly1305",
            Self::Aes256Gcm => "AES-256-GCM",
        }
    }

    fn algorithm(self) -> &'static Algorithm {
        match self {
            Self::ChaCha20Poly1305 => &CHACHA20_POLY1305,
            Self::Aes256Gcm => &AES_256_GCM,
        }
    }
}

/// The datagram was not sealed with our key, or something in it was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the datagram is not authentic")]
pub struct Forged;

/// Why a datagram was not sealed. Each is a mistake of the caller's or the end of a number space;
/// the plaintext is untouched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SealError {
    /// The number is not above the last one: its nonce may have been used.
    #[error("packet number {0} does not grow")]
    Reused(u64),
    /// The number skips a whole key epoch, which the receiver could not follow.
    #[error("packet number {0} skips a key epoch")]
    Skipped(u64),
    /// No room for the tag.
    #[error("no room for the tag")]
    NoRoom,
    /// More than the cipher can seal at once (64 GB).
    #[error("too long to seal")]
    TooLong,
}

fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

pub(super) fn derive(secret: &Secret, label: &[u8]) -> Secret {
    let mut hash = Blake2sMac256::new((&**secret).into());
    hash.update(label);
    let mut out = Zeroizing::new([0; 32]);
    hash.finalize_into((&mut *out).into());
    out
}

/// One direction's chain of epoch secrets.
struct Ratchet {
    cipher: Cipher,
    secret: Secret,
    epoch: u64,
}

impl Ratchet {
    #[expect(clippy::expect_used, reason = "both algorithms have keys of 32 bytes")]
    fn key(&self) -> LessSafeKey {
        let bytes = derive(&self.secret, self.cipher.name().as_bytes());
        let key = UnboundKey::new(self.cipher.algorithm(), &bytes[..]);
        LessSafeKey::new(key.expect("a key of the algorithm's length"))
    }

    fn advance(&mut self) {
        self.secret = derive(&self.secret, b"next epoch");
        self.epoch += 1;
    }
}

struct Sealer {
    ratchet: Ratchet,
    key: LessSafeKey,
}

/// Seals what this side sends.
pub struct SealingKey {
    /// The least number that may be sealed.
    next: u64,
    /// Absent on a hop that goes unsealed by explicit choice.
    sealer: Option<Sealer>,
}

impl SealingKey {
    pub(super) fn new(cipher: Cipher, secret: Secret) -> Self {
        let ratchet = Ratchet { cipher, secret, epoch: 0 };
        Self { next: 0, sealer: Some(Sealer { key: ratchet.key(), ratchet }) }
    }

    /// No seal at all: datagrams can be read and written by anybody.
    pub(crate) const fn unsealed() -> Self {
        Self { next: 0, sealer: None }
    }

    /// Nothing was sealed yet, and no number below `first` will be: epochs count from that number's.
    pub(crate) fn start_at(&mut self, first: u64) {
        self.next = first;
        if let Some(sealer) = &mut self.sealer {
            sealer.ratchet.epoch = first >> EPOCH_BITS;
        }
    }

    /// The cipher; `None` if the hop goes unsealed.
    pub fn cipher(&self) -> Option<Cipher> {
        self.sealer.as_ref().map(|s| s.ratchet.cipher)
    }

    /// How many bytes sealing adds: 16, or 0 if the hop goes unsealed.
    pub const fn tag_len(&self) -> usize {
        if self.sealer.is_some() { TAG_LEN } else { 0 }
    }

    /// Encrypts `plaintext` where it is, writes the tag at the start of `tag` and returns the
    /// tag's length. The header is authenticated with it and must reach the receiver unchanged.
    ///
    /// # Errors
    ///
    /// `number` is not above all numbers sealed before or is too far above, or there is no room
    /// for the tag. The number is not used up then.
    pub fn seal_in_place(
        &mut self,
        number: u64,
        header: &[u8],
        plaintext: &mut [u8],
        tag: &mut [u8],
    ) -> Result<usize, SealError> {
        if number < self.next {
            return Err(SealError::Reused(number));
        }
        let after = number.checked_add(1).ok_or(SealError::Skipped(number))?;
        if let Some(sealer) = &mut self.sealer {
            let out = tag.get_mut(..TAG_LEN).ok_or(SealError::NoRoom)?;
            sealer.enter_epoch_of(number)?;
            let sealed = sealer
                .key
                .seal_in_place_separate_tag(nonce(number), Aad::from(header), plaintext)
                .map_err(|_| SealError::TooLong)?;
            out.copy_from_slice(sealed.as_ref());
        }
        self.next = after;
        Ok(self.tag_len())
    }
}

impl Sealer {
    fn enter_epoch_of(&mut self, number: u64) -> Result<(), SealError> {
        match (number >> EPOCH_BITS).checked_sub(self.ratchet.epoch) {
            Some(0) => Ok(()),
            Some(1) => {
                self.ratchet.advance();
                self.key = self.ratchet.key();
                Ok(())
            }
            Some(_) => Err(SealError::Skipped(number)),
            None => Err(SealError::Reused(number)),
        }
    }
}

struct Opener {
    epoch: u64,
    /// For what was overtaken by the first datagram of this epoch.
    previous: Option<LessSafeKey>,
    current: LessSafeKey,
    /// Made ahead, so that a forged number costs no more than any other forgery.
    next: LessSafeKey,
    /// Stands at the epoch of `next`.
    ratchet: Ratchet,
}

impl Opener {
    fn new(mut ratchet: Ratchet) -> Self {
        let (epoch, current) = (ratchet.epoch, ratchet.key());
        ratchet.advance();
        Self { epoch, previous: None, current, next: ratchet.key(), ratchet }
    }

    fn key_for(&self, epoch: u64) -> Option<&LessSafeKey> {
        match epoch.checked_sub(self.epoch) {
            Some(0) => Some(&self.current),
            Some(1) => Some(&self.next),
            None if epoch + 1 == self.epoch => self.previous.as_ref(),
            _ => None,
        }
    }

    fn roll(&mut self) {
        self.ratchet.advance();
        let after = core::mem::replace(&mut self.next, self.ratchet.key());
        self.previous = Some(core::mem::replace(&mut self.current, after));
        self.epoch += 1;
    }
}

/// Opens what the peer sealed.
pub struct OpeningKey {
    /// Absent on a hop that goes unsealed by explicit choice.
    opener: Option<Opener>,
}

impl OpeningKey {
    pub(super) fn new(cipher: Cipher, secret: Secret) -> Self {
        Self { opener: Some(Opener::new(Ratchet { cipher, secret, epoch: 0 })) }
    }

    /// No seal at all: everything opens.
    pub(crate) const fn unsealed() -> Self {
        Self { opener: None }
    }

    /// Nothing was opened yet, and the peer seals no number below `first`: epochs count from that number's.
    pub(crate) fn start_at(&mut self, first: u64) {
        if let Some(opener) = &mut self.opener {
            opener.epoch = first >> EPOCH_BITS;
            opener.ratchet.epoch = opener.epoch + 1;
        }
    }

    /// Checks `sealed` (ciphertext and tag) with its header and decrypts it where it is. The
    /// plaintext is returned. Replays open too: ask a [`ReplayWindow`](super::ReplayWindow) first.
    ///
    /// # Errors
    ///
    /// [`Forged`] if anything is not as the peer sealed it; the key is as before, the bytes are
    /// not to be used.
    pub fn open_in_place<'a>(
        &mut self,
        number: u64,
        header: &[u8],
        sealed: &'a mut [u8],
    ) -> Result<&'a mut [u8], Forged> {
        let Some(opener) = &mut self.opener else {
            return Ok(sealed);
        };
        let epoch = number >> EPOCH_BITS;
        let plaintext = opener
            .key_for(epoch)
            .ok_or(Forged)?
            .open_in_place(nonce(number), Aad::from(header), sealed)
            .map_err(|_| Forged)?;
        if epoch > opener.epoch {
            opener.roll();
        }
        Ok(plaintext)
    }
}
