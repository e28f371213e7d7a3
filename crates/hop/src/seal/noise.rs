//! What `snow` needs from outside: random numbers from a seed, a Diffie-Hellman that wipes its
//! secrets and refuses keys of low order, and the AEAD that seals data, too.

use alloc::boxed::Box;

use lasthop_units::{Seed, Stream};
use lasthop_wire::datagram::{TAG_LEN, VERSION};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, Tag, UnboundKey};
use snow::params::{CipherChoice, DHChoice, HashChoice, NoiseParams};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, Error, HandshakeState};
use zeroize::Zeroizing;

use super::keys::{Keypair, PresharedKey, PublicKey, SecretKey};

pub(super) const PATTERN: &str = "Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s";
/// Where the pattern has its pre-shared key: at the end of the second message (Noise specification, section 9.4).
const PSK: usize = 2;

const PROTOCOL_NAME: &[u8; 7] = b"lasthop";

/// What both sides must agree on before the first message: protocol, version and path.
pub(super) fn prologue(path: u8) -> [u8; PROTOCOL_NAME.len() + 2] {
    let mut out = [0; PROTOCOL_NAME.len() + 2];
    out[..PROTOCOL_NAME.len()].copy_from_slice(PROTOCOL_NAME);
    out[PROTOCOL_NAME.len()] = VERSION;
    out[PROTOCOL_NAME.len() + 1] = path;
    out
}

pub(super) fn initiator(
    keys: &Keypair,
    base: &PublicKey,
    path: u8,
    seed: Seed,
) -> Result<HandshakeState, Error> {
    builder(keys, seed)?
        .local_private_key(keys.secret().as_bytes())?
        .remote_public_key(base.as_bytes())?
        .prologue(&prologue(path))?
        .build_initiator()
}

pub(super) fn responder(keys: &Keypair, path: u8, seed: Seed) -> Result<HandshakeState, Error> {
    builder(keys, seed)?
        .local_private_key(keys.secret().as_bytes())?
        .prologue(&prologue(path))?
        .build_responder()
}

/// Has `step` write or read the second message, for which `snow` needs the pre-shared key. It is left with zeros
/// afterwards, for it does not wipe what it holds.
pub(super) fn with_psk<T>(
    noise: &mut HandshakeState,
    psk: &PresharedKey,
    step: impl FnOnce(&mut HandshakeState) -> T,
) -> Result<T, Error> {
    noise.set_psk(PSK, psk.as_bytes())?;
    let done = step(noise);
    noise.set_psk(PSK, PresharedKey::default().as_bytes())?;
    // The state may be dropped next: without a reader the zeros might not be written.
    core::hint::black_box(noise);
    Ok(done)
}

fn builder<'a>(keys: &Keypair, seed: Seed) -> Result<Builder<'a>, Error> {
    let params: NoiseParams = PATTERN.parse()?;
    Ok(Builder::with_resolver(params, Box::new(Resolver { own: keys.clone(), seed })))
}

/// Resolves the pattern's primitives without any entropy but `seed`, which serves one handshake.
struct Resolver {
    own: Keypair,
    seed: Seed,
}

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Seeded(self.seed.stream("noise"))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        let dh = || Box::new(X25519::unset(&self.own)) as Box<dyn Dh>;
        matches!(choice, DHChoice::Curve25519).then(dh)
    }

    // A constant choice: the program has room for no other hash.
    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        match choice {
            HashChoice::Blake2s => DefaultResolver.resolve_hash(&HashChoice::Blake2s),
            _ => None,
        }
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        let cipher = || Box::new(ChaChaPoly::of(&[0; 32])) as Box<dyn Cipher>;
        matches!(choice, CipherChoice::ChaChaPoly).then(cipher)
    }
}

struct Seeded(Stream);

impl Random for Seeded {
    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), Error> {
        self.0.fill(out);
        Ok(())
    }
}

/// RFC 8439's AEAD with Noise's nonces (its section 12.3).
struct ChaChaPoly(LessSafeKey);

impl ChaChaPoly {
    #[expect(clippy::expect_used, reason = "the algorithm has keys of 32 bytes")]
    fn of(key: &[u8; 32]) -> Self {
        let key = UnboundKey::new(&CHACHA20_POLY1305, key);
        Self(LessSafeKey::new(key.expect("a key of the algorithm's length")))
    }

    fn nonce(number: u64) -> Nonce {
        let mut bytes = [0; 12];
        bytes[4..].copy_from_slice(&number.to_le_bytes());
        Nonce::assume_unique_for_key(bytes)
    }
}

impl Cipher for ChaChaPoly {
    fn name(&self) -> &'static str {
        "ChaChaPoly"
    }

    fn set(&mut self, key: &[u8; 32]) {
        *self = Self::of(key);
    }

    #[expect(clippy::expect_used, reason = "no handshake's message has 256 GiB")]
    fn encrypt(&self, number: u64, header: &[u8], plaintext: &[u8], out: &mut [u8]) -> usize {
        let (text, rest) = out.split_at_mut(plaintext.len());
        text.copy_from_slice(plaintext);
        let (nonce, header) = (Self::nonce(number), Aad::from(header));
        let tag = self.0.seal_in_place_separate_tag(nonce, header, text).expect("sealed");
        rest[..TAG_LEN].copy_from_slice(tag.as_ref());
        plaintext.len() + TAG_LEN
    }

    fn decrypt(
        &self,
        number: u64,
        header: &[u8],
        sealed: &[u8],
        out: &mut [u8],
    ) -> Result<usize, Error> {
        let (text, tag) = sealed.split_last_chunk::<TAG_LEN>().ok_or(Error::Decrypt)?;
        let out = out.get_mut(..text.len()).ok_or(Error::Decrypt)?;
        out.copy_from_slice(text);
        let (nonce, header) = (Self::nonce(number), Aad::from(header));
        self.0
            .open_in_place_separate_tag(nonce, header, Tag::from(*tag), out, 0..)
            .map_err(|_| Error::Decrypt)?;
        Ok(text.len())
    }
}

struct X25519 {
    /// The only static keys that it is given.
    own: Keypair,
    secret: SecretKey,
    public: PublicKey,
}

impl X25519 {
    const LEN: usize = 32;

    /// Before a key is set or generated; `snow` does one or the other before any use.
    fn unset(own: &Keypair) -> Self {
        let zero = [0; Self::LEN];
        let (secret, public) = (SecretKey::from_bytes(zero), PublicKey::from_bytes(zero));
        Self { own: own.clone(), secret, public }
    }
}

impl Dh for X25519 {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        Self::LEN
    }

    fn priv_len(&self) -> usize {
        Self::LEN
    }

    fn set(&mut self, _secret: &[u8]) {
        // The builders above are given no other; to multiply out the public key once more would cost a tenth of a
        // handshake.
        (self.secret, self.public) = (self.own.secret().clone(), *self.own.public());
    }

    fn generate(&mut self, random: &mut dyn Random) -> Result<(), Error> {
        let mut secret = Zeroizing::new([0; Self::LEN]);
        random.try_fill_bytes(&mut secret[..])?;
        self.secret = SecretKey::from_bytes(*secret);
        self.public = self.secret.public();
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        self.public.as_bytes()
    }

    fn privkey(&self) -> &[u8] {
        self.secret.as_bytes()
    }

    fn dh(&self, public: &[u8], out: &mut [u8]) -> Result<(), Error> {
        let public = public.first_chunk::<{ Self::LEN }>().ok_or(Error::Dh)?;
        let out = out.first_chunk_mut::<{ Self::LEN }>().ok_or(Error::Dh)?;
        *out = self.secret.agree(*public).ok_or(Error::Dh)?;
        Ok(())
    }
}
