//! Proof of address (WireGuard's cookies): a base that has many handshakes to do answers with a cookie that only
//! the holder of the sender's address sees, and calculates nothing before an init shows it.

use alloc::format;
use core::time::Duration;

use blake2::digest::consts::U16;
use blake2::digest::{Digest, FixedOutput, KeyInit, Mac};
use blake2::{Blake2s256, Blake2sMac};
use lasthop_units::{Seed, Stream, Time};
use lasthop_wire::datagram::{CookieReply, HandshakeInit, MAC_LEN, TAG_LEN};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use zeroize::Zeroizing;

use super::fingerprint::Fingerprint;
use super::keys::PublicKey;

/// A cookie is made from a secret that is new so often; one of the secret before still counts.
const SECRET_LIFE: Duration = Duration::from_secs(120);

/// What an init is to show: good for one address, for two to four minutes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cookie([u8; MAC_LEN]);

impl Cookie {
    fn keyed(&self, message: &[u8]) -> Blake2sMac<U16> {
        mac(&self.0, message)
    }

    /// The cookie with these bytes.
    pub(crate) fn from_bytes(bytes: [u8; MAC_LEN]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    pub(crate) fn to_bytes(self) -> [u8; MAC_LEN] {
        self.0
    }

    /// Whether a hash of that message shows it.
    pub(crate) fn shows(&self, message: &[u8], hash: &[u8; MAC_LEN]) -> bool {
        self.keyed(message).verify_slice(hash).is_ok()
    }

    /// The hash that shows it.
    pub(crate) fn sign(&self, message: &[u8]) -> [u8; MAC_LEN] {
        self.keyed(message).finalize_fixed().into()
    }

    /// Opens the cookie in a base's answer to the init with this fingerprint; `None` if that is not authentic.
    pub(super) fn open(base: &PublicKey, init: &Fingerprint, reply: &CookieReply) -> Option<Self> {
        let mut sealed = reply.sealed;
        let nonce = Nonce::assume_unique_for_key(reply.nonce);
        let opened = cookie_key(base).open_in_place(nonce, Aad::from(&init.0), &mut sealed).ok()?;
        Some(Self(*opened.first_chunk()?))
    }
}

#[expect(clippy::expect_used, reason = "BLAKE2s takes keys of up to 32 bytes")]
fn mac(key: &[u8], message: &[u8]) -> Blake2sMac<U16> {
    let mac = <Blake2sMac<U16> as KeyInit>::new_from_slice(key);
    mac.expect("a key of at most 32 bytes").chain_update(message)
}

#[expect(clippy::expect_used, reason = "the algorithm has keys of 32 bytes")]
fn cookie_key(base: &PublicKey) -> LessSafeKey {
    let hash = Blake2s256::new().chain_update(b"lasthop cookie").chain_update(base.as_bytes());
    let key = UnboundKey::new(&CHACHA20_POLY1305, &hash.finalize());
    LessSafeKey::new(key.expect("a key of the algorithm's length"))
}

/// A base's cookies. It keeps nothing of any sender.
pub(super) struct Cookies {
    key: LessSafeKey,
    /// Where secrets come from: whoever has the same makes the same of the same time.
    seed: Seed,
    nonces: Stream,
    /// The secret of this time, and the one before.
    secrets: [Zeroizing<[u8; 32]>; 2],
    /// How many secrets there were.
    count: u64,
}

/// The secret of that number, and the one before.
fn secrets(seed: &Seed, number: u64) -> [Zeroizing<[u8; 32]>; 2] {
    [number, number.wrapping_sub(1)].map(|number| {
        let mut secret = Zeroizing::new([0; 32]);
        seed.stream(&format!("secret {number}")).fill(&mut secret[..]);
        secret
    })
}

impl Cookies {
    pub(super) fn new(base: &PublicKey, seed: Seed) -> Self {
        let (nonces, secrets) = (seed.stream("nonces"), secrets(&seed, 0));
        Self { key: cookie_key(base), seed, nonces, secrets, count: 0 }
    }

    /// Makes the secrets that others make of this seed: each knows the cookies of all.
    pub(super) fn share(&mut self, seed: Seed) {
        (self.seed, self.secrets) = (seed, secrets(&seed, self.count));
    }

    fn renew(&mut self, now: Time) {
        let count = now.as_micros() / SECRET_LIFE.as_micros() as u64;
        if count != self.count {
            self.count = count;
            self.secrets = secrets(&self.seed, count);
        }
    }

    fn cookie(secret: &[u8; 32], source: &[u8]) -> Cookie {
        Cookie(mac(secret, source).finalize_fixed().into())
    }

    /// Whether an init shows a cookie that was sent to this source.
    pub(super) fn verify(&mut self, now: Time, source: &[u8], init: &[u8]) -> bool {
        let Ok(view) = HandshakeInit::new_checked(init) else { return false };
        let (message, shown) = view.split_cookie_mac();
        if shown.iter().all(|byte| *byte == 0) {
            return false;
        }
        self.of(now, source).iter().any(|cookie| cookie.keyed(message).verify_slice(shown).is_ok())
    }

    /// The cookie for this source, and the one that was it before.
    pub(super) fn of(&mut self, now: Time, source: &[u8]) -> [Cookie; 2] {
        self.renew(now);
        [0, 1].map(|n| Self::cookie(&self.secrets[n], source))
    }

    /// A cookie for this source, sealed for whoever made the init with this fingerprint.
    pub(super) fn reply(
        &mut self,
        now: Time,
        source: &[u8],
        init: &Fingerprint,
    ) -> Option<CookieReply> {
        self.renew(now);
        let mut nonce = [0; 12];
        self.nonces.fill(&mut nonce);
        let mut sealed = [0; MAC_LEN + TAG_LEN];
        let (body, tag) = sealed.split_at_mut(MAC_LEN);
        body.copy_from_slice(&Self::cookie(&self.secrets[0], source).0);
        let sealing = Nonce::assume_unique_for_key(nonce);
        let made = self.key.seal_in_place_separate_tag(sealing, Aad::from(&init.0), body).ok()?;
        tag.copy_from_slice(made.as_ref());
        Some(CookieReply { nonce, sealed })
    }
}
