use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use base64ct::{Base64, Encoding};
use lasthop_units::Seed;
use thiserror::Error;
use x25519_dalek::StaticSecret;
use zeroize::Zeroizing;

/// Length of either half of a key pair.
const LEN: usize = 32;
/// Length of its base64 form.
const TEXT_LEN: usize = 44;

/// Why a text is not a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum KeyError {
    /// Not as many characters as 32 bytes take.
    #[error("a key has {TEXT_LEN} base64 characters, this has {0}")]
    Length(usize),
    /// Of the right length, but not base64 of 32 bytes.
    #[error("a key is {TEXT_LEN} characters of base64 (A-Z, a-z, 0-9, + and /, ending in =)")]
    Base64,
}

/// The text form of either half, or of a pre-shared key.
fn encode(bytes: &[u8; LEN]) -> Zeroizing<String> {
    let mut buffer = Zeroizing::new([0; TEXT_LEN]);
    Zeroizing::new(String::from(Base64::encode(bytes, &mut buffer[..]).unwrap_or_default()))
}

/// Decodes without a branch or a table look-up that depends on what is decoded.
fn decode(text: &str) -> Result<Zeroizing<[u8; LEN]>, KeyError> {
    let text = text.trim();
    if text.len() != TEXT_LEN {
        return Err(KeyError::Length(text.chars().count()));
    }
    let mut bytes = Zeroizing::new([0; LEN]);
    match Base64::decode(text, &mut bytes[..]) {
        Ok(decoded) if decoded.len() == LEN => Ok(bytes),
        _ => Err(KeyError::Base64),
    }
}

/// The secret half of a key pair. It is wiped when dropped and has no `Debug` form.
#[derive(Clone)]
pub struct SecretKey(StaticSecret);

impl SecretKey {
    /// A secret from its 32 bytes.
    pub fn from_bytes(bytes: [u8; LEN]) -> Self {
        Self(StaticSecret::from(bytes))
    }

    /// The secret's bytes.
    pub fn as_bytes(&self) -> &[u8; LEN] {
        self.0.as_bytes()
    }

    /// The secret in base64, for a key file; wiped when dropped.
    pub fn to_text(&self) -> Zeroizing<String> {
        encode(self.as_bytes())
    }

    /// The public half.
    pub fn public(&self) -> PublicKey {
        PublicKey(x25519_dalek::PublicKey::from(&self.0).to_bytes())
    }

    /// The Diffie-Hellman product with `public`; `None` if `public` has low order, so that the
    /// product says nothing about who computed it.
    pub(super) fn agree(&self, public: [u8; LEN]) -> Option<[u8; LEN]> {
        let shared = self.0.diffie_hellman(&x25519_dalek::PublicKey::from(public));
        shared.was_contributory().then(|| shared.to_bytes())
    }
}

impl FromStr for SecretKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        decode(text).map(|bytes| Self::from_bytes(*bytes))
    }
}

/// The public half of a key pair: what a base and a mobile know each other by.
///
/// Its text form is 44 characters of base64, as WireGuard's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; LEN]);

impl PublicKey {
    /// A public key from its 32 bytes.
    pub const fn from_bytes(bytes: [u8; LEN]) -> Self {
        Self(bytes)
    }

    /// The key's bytes.
    pub const fn as_bytes(&self) -> &[u8; LEN] {
        &self.0
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut buffer = [0; TEXT_LEN];
        f.pad(Base64::encode(&self.0, &mut buffer).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        decode(text).map(|bytes| Self(*bytes))
    }
}

/// A secret key and the public key that belongs to it.
#[derive(Clone)]
pub struct Keypair {
    secret: SecretKey,
    public: PublicKey,
}

impl Keypair {
    /// A new pair from `seed`, which must be 32 bytes of entropy if the pair is to protect
    /// anything.
    pub fn generate(seed: Seed) -> Self {
        let mut bytes = Zeroizing::new([0; LEN]);
        seed.stream("keypair").fill(&mut bytes[..]);
        SecretKey::from_bytes(*bytes).into()
    }

    /// The secret half.
    pub fn secret(&self) -> &SecretKey {
        &self.secret
    }

    /// The public half.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }
}

impl From<SecretKey> for Keypair {
    fn from(secret: SecretKey) -> Self {
        let public = secret.public();
        Self { secret, public }
    }
}

impl fmt::Debug for Keypair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keypair").field("public", &self.public).finish_non_exhaustive()
    }
}

/// A secret that two ends share beside their key pairs, as WireGuard's "PresharedKey": what they send each other
/// stays secret even from whoever undoes X25519. The default, 32 zero bytes, stands for none.
///
/// It is wiped when dropped, and its `Debug` form does not show it.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct PresharedKey(Zeroizing<[u8; LEN]>);

impl PresharedKey {
    /// A new key from `seed`, which must be 32 bytes of entropy if the key is to protect anything.
    pub fn generate(seed: Seed) -> Self {
        let mut key = Self::default();
        seed.stream("pre-shared key").fill(&mut key.0[..]);
        key
    }

    /// The key's bytes.
    pub fn as_bytes(&self) -> &[u8; LEN] {
        &self.0
    }

    /// The key in base64, for a file; wiped when dropped.
    pub fn to_text(&self) -> Zeroizing<String> {
        encode(self.as_bytes())
    }
}

impl FromStr for PresharedKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        decode(text).map(Self)
    }
}

impl fmt::Debug for PresharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PresharedKey").finish_non_exhaustive()
    }
}

/// A mobile that a base serves, or another base that may call.
#[derive(Clone, Debug)]
pub struct Allowed {
    /// Its public key.
    pub key: PublicKey,
    /// What it shares with this base.
    pub psk: PresharedKey,
}

impl From<PublicKey> for Allowed {
    /// It shares nothing beforehand.
    fn from(key: PublicKey) -> Self {
        Self { key, psk: PresharedKey::default() }
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::ToString;

    use proptest::prelude::*;

    use super::*;

    /// The key pairs of RFC 7748, section 6.1.
    #[test]
    fn public_keys_are_those_of_rfc_7748() {
        let secret: SecretKey =
            "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=".parse().expect("a key");
        assert_eq!(secret.as_bytes()[..4], [0x77, 0x07, 0x6d, 0x0a]);
        assert_eq!(secret.public().to_string(), "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=");
    }

    #[test]
    fn what_is_not_a_key_is_refused_for_its_own_reason() {
        let bad = |text: &str| text.parse::<PublicKey>().expect_err(text);
        assert_eq!(bad(""), KeyError::Length(0));
        assert_eq!(bad("abc"), KeyError::Length(3));
        assert_eq!(bad(&"A".repeat(45)), KeyError::Length(45));
        assert_eq!(bad(&"A".repeat(44)), KeyError::Base64);
        assert_eq!(bad("hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbT!o="), KeyError::Base64);
        assert_eq!(bad("hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTm=="), KeyError::Base64);
    }

    #[test]
    fn a_pair_shows_its_public_half_only() {
        let pair = Keypair::generate(Seed::from_u64(1));
        let shown = format!("{pair:?}");
        assert!(shown.contains(&pair.public().to_string()));
        assert!(!shown.contains(pair.secret().to_text().as_str()));
    }

    /// SEC-43: nothing that is logged has it.
    #[test]
    fn a_pre_shared_key_is_not_shown_and_its_text_is_read_again() {
        let (pair, psk) =
            (Keypair::generate(Seed::from_u64(1)), PresharedKey::generate(Seed::from_u64(1)));
        assert_ne!(psk, PresharedKey::default());
        let allowed = Allowed { psk: psk.clone(), ..(*pair.public()).into() };
        for shown in [format!("{psk:?}"), format!("{allowed:?}")] {
            assert!(shown.contains("PresharedKey { .. }"), "{shown}");
            assert!(!shown.contains(psk.to_text().as_str()), "{shown}");
        }
        assert_eq!(psk.to_text().parse(), Ok(psk));
    }

    #[test]
    fn a_low_order_key_agrees_on_nothing() {
        let pair = Keypair::generate(Seed::from_u64(1));
        let mut one = [0; LEN];
        one[0] = 1;
        assert!(pair.secret().agree([0; LEN]).is_none());
        assert!(pair.secret().agree(one).is_none());
        assert!(pair.secret().agree(*pair.public().as_bytes()).is_some());
    }

    proptest! {
        #[test]
        fn text_forms_survive_a_round_trip(bytes: [u8; 32]) {
            let secret = SecretKey::from_bytes(bytes);
            let again: SecretKey = secret.to_text().parse().expect("own text");
            prop_assert_eq!(again.as_bytes(), &bytes);
            let public = PublicKey::from_bytes(bytes);
            prop_assert_eq!(public.to_string().parse(), Ok(public));
        }

        #[test]
        fn any_text_is_read_or_refused(text: String) {
            let _ = text.parse::<PublicKey>();
            let _ = text.parse::<SecretKey>();
        }
    }
}
