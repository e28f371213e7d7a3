use alloc::boxed::Box;

use blake2::digest::consts::U16;
use blake2::digest::{Digest, FixedOutput, KeyInit, Mac};
use blake2::{Blake2s256, Blake2sMac};
use lasthop_units::{Seed, Stream, Time};
use lasthop_wire::datagram::{
    CookieReply, DatagramError, HandshakeInit, HandshakeReply, Hello, MAC_LEN, MAX_INIT_LEN,
    PlainInit, PlainReply,
};
use snow::HandshakeState;
use thiserror::Error;
use zeroize::Zeroizing;

use super::aead::{Cipher, OpeningKey, SealingKey};
use super::cookie::{Cookie, Cookies};
use super::fingerprint::Fingerprint;
use super::keys::{Keypair, PresharedKey, PublicKey};
use super::noise;
use super::path_secrets::PathSecrets;

/// Why a handshake message was refused, or could not be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum HandshakeError {
    /// Its form is wrong, or its kind is not expected: a sealed side never takes an unsealed
    /// message, nor the other way round.
    #[error("malformed handshake message: {0}")]
    Malformed(#[from] DatagramError),
    /// Its keyed hash does not match: garbage, damage, or meant for another base.
    #[error("the handshake message was not made for this base's key")]
    WrongBase,
    /// It was not made by who it says, or was changed on the way.
    #[error("the handshake message is not authentic")]
    NotAuthentic,
    /// It answers another init.
    #[error("the reply answers another handshake")]
    OtherHandshake,
    /// This handshake is over.
    #[error("the handshake is already finished")]
    Finished,
    /// No handshake is possible with the base's public key (it has low order).
    #[error("the base's public key is not usable")]
    UnusableKey,
    /// The output is too short for the message.
    #[error("no room for the handshake message")]
    NoRoom,
}

/// Both directions' keys of one handshake.
pub struct Keys {
    /// For what this side sends.
    pub send: SealingKey,
    /// For what this side receives.
    pub recv: OpeningKey,
    /// For challenges of the peer's address and their responses, and for further paths. Absent on a hop that goes
    /// unsealed.
    pub paths: Option<Box<PathSecrets>>,
}

impl Keys {
    fn unsealed() -> Self {
        Self { send: SealingKey::unsealed(), recv: OpeningKey::unsealed(), paths: None }
    }

    /// Whether anything is encrypted and authenticated.
    pub fn is_sealed(&self) -> bool {
        self.paths.is_some()
    }

    /// The keys of a finished Noise handshake: the first half of its split is the initiator's.
    fn from_split(noise: &mut HandshakeState, cipher: Cipher) -> Self {
        let (initiator, responder) = noise.dangerously_get_raw_split();
        let (initiator, responder) = (Zeroizing::new(initiator), Zeroizing::new(responder));
        let (send, recv) =
            if noise.is_initiator() { (initiator, responder) } else { (responder, initiator) };
        let paths = Some(Box::new(PathSecrets::new(&send, &recv)));
        let (send, recv) = (SealingKey::new(cipher, send), OpeningKey::new(cipher, recv));
        Self { send, recv, paths }
    }
}

/// A finished handshake, as the mobile sees it.
pub struct Established {
    /// What the base says of itself.
    pub hello: Hello,
    /// The keys. Until the base has opened a datagram sealed with them it does not use them.
    pub keys: Keys,
}

/// The keyed hash in front of the Diffie-Hellmans (WireGuard's "mac1"): whoever does not even know
/// the base's public key is turned away at the price of one hash.
#[derive(Clone)]
struct OuterMac([u8; 32]);

impl OuterMac {
    fn new(base: &PublicKey) -> Self {
        let hash = Blake2s256::new().chain_update(b"lasthop mac1").chain_update(base.as_bytes());
        Self(hash.finalize().into())
    }

    fn keyed(&self, message: &[u8]) -> Blake2sMac<U16> {
        let mac = <Blake2sMac<U16> as KeyInit>::new((&self.0).into());
        mac.chain_update(message)
    }

    /// Writes the hash of the first `len` bytes behind them; returns the new length.
    fn append(&self, out: &mut [u8], len: usize) -> Result<usize, HandshakeError> {
        let (message, rest) = out.split_at_mut_checked(len).ok_or(HandshakeError::NoRoom)?;
        let place = rest.get_mut(..MAC_LEN).ok_or(HandshakeError::NoRoom)?;
        place.copy_from_slice(&self.keyed(message).finalize_fixed());
        Ok(len + MAC_LEN)
    }

    /// Compares in constant time.
    fn verify(&self, (message, mac): (&[u8], &[u8])) -> Result<(), HandshakeError> {
        self.keyed(message).verify_slice(mac).map_err(|_| HandshakeError::WrongBase)
    }
}

/// Puts header, Noise message and keyed hash together; returns the length.
fn write_sealed(
    noise: &mut HandshakeState,
    mac: &OuterMac,
    header: &[u8],
    hello: &Hello,
    out: &mut [u8],
) -> Result<usize, HandshakeError> {
    let mut payload = [0; Hello::MAX_LEN];
    let payload_len = hello.emit(&mut payload)?;
    let (head, rest) = out.split_at_mut_checked(header.len()).ok_or(HandshakeError::NoRoom)?;
    head.copy_from_slice(header);
    let noise_len = noise.write_message(&payload[..payload_len], rest).map_err(|e| match e {
        snow::Error::Dh => HandshakeError::UnusableKey,
        _ => HandshakeError::NoRoom,
    })?;
    mac.append(out, header.len() + noise_len)
}

/// Reads a Noise message and the hello in it.
fn read_sealed(noise: &mut HandshakeState, message: &[u8]) -> Result<Hello, HandshakeError> {
    let mut payload = [0; Hello::MAX_LEN];
    let len =
        noise.read_message(message, &mut payload).map_err(|_| HandshakeError::NotAuthentic)?;
    Ok(Hello::parse(payload.get(..len).ok_or(HandshakeError::NotAuthentic)?)?)
}

enum Waiting {
    Sealed { noise: Box<HandshakeState>, mac: OuterMac, base: PublicKey, psk: PresharedKey },
    Unsealed,
    Nothing,
}

/// The mobile's side of one handshake.
///
/// Make a new one, with a new [`Hello::receiver`], for each association; repeat its datagram until
/// a reply comes.
pub struct Initiator {
    waiting: Waiting,
    path: u8,
    hello: Hello,
    datagram: [u8; MAX_INIT_LEN],
    len: usize,
}

impl Initiator {
    /// Asks the base that has the secret of `base` for an association. `seed` must be used for
    /// nothing else, and be entropy if the seal is to protect anything.
    ///
    /// # Errors
    ///
    /// [`HandshakeError::UnusableKey`] if no handshake is possible with `base`.
    pub fn new(
        keys: &Keypair,
        base: &PublicKey,
        path: u8,
        hello: Hello,
        seed: Seed,
    ) -> Result<Self, HandshakeError> {
        let mut noise =
            noise::initiator(keys, base, path, seed).map_err(|_| HandshakeError::UnusableKey)?;
        let mac = OuterMac::new(base);
        let mut datagram = [0; MAX_INIT_LEN];
        let header = HandshakeInit::header(path);
        // No cookie is shown yet: the hash that would is all zeros.
        let len = write_sealed(&mut noise, &mac, &header, &hello, &mut datagram)? + MAC_LEN;
        let psk = PresharedKey::default();
        let waiting = Waiting::Sealed { noise: Box::new(noise), mac, base: *base, psk };
        Ok(Self { waiting, path, hello, datagram, len })
    }

    /// The same init, to a base with which this side shares `psk`: the reply must have been made with it.
    #[must_use]
    pub fn with_psk(mut self, shared: &PresharedKey) -> Self {
        if let Waiting::Sealed { psk, .. } = &mut self.waiting {
            psk.clone_from(shared);
        }
        self
    }

    /// Asks for an association **without any protection**: everything can be read, changed and
    /// forged by anybody on the hop, and `claim` proves nothing. For hops that are private by
    /// other means, by the operator's explicit choice.
    ///
    /// # Errors
    ///
    /// None that a caller can cause; the signature is that of [`Initiator::new`].
    pub fn unsealed(claim: &PublicKey, path: u8, hello: Hello) -> Result<Self, HandshakeError> {
        let mut datagram = [0; MAX_INIT_LEN];
        let init = PlainInit { path, public: *claim.as_bytes(), hello };
        let len = init.emit(&mut datagram)?;
        Ok(Self { waiting: Waiting::Unsealed, path, hello, datagram, len })
    }

    /// The init, to be sent as it is, more than once if need be: a base answers every copy alike.
    pub fn datagram(&self) -> &[u8] {
        self.datagram.get(..self.len).unwrap_or_default()
    }

    /// Has the init show a cookie that the base sent to the address from which this is sent. It stays the same
    /// init.
    pub fn show(&mut self, cookie: &Cookie) {
        if let Waiting::Sealed { .. } = self.waiting
            && let Some((message, shown)) =
                self.datagram.get_mut(..self.len).and_then(<[u8]>::split_last_chunk_mut)
        {
            *shown = cookie.sign(message);
        }
    }

    /// Takes a datagram that may be the base's demand for a cookie: the cookie, if it is in answer to this init.
    pub fn take_cookie(&self, datagram: &[u8]) -> Option<Cookie> {
        let Waiting::Sealed { base, .. } = &self.waiting else { return None };
        let reply = CookieReply::parse(datagram).ok()?;
        let view = HandshakeInit::new_checked(self.datagram()).ok()?;
        let fingerprint = Fingerprint(view.split_mac().1.try_into().ok()?);
        Cookie::open(base, &fingerprint, &reply)
    }

    /// What this side says of itself.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Takes a datagram that may be the reply.
    ///
    /// # Errors
    ///
    /// It is not: count it. The handshake goes on as if it had not come, so that forged replies
    /// cannot stop a genuine one. [`HandshakeError::NotAuthentic`] is what a genuine one is that was made with
    /// another pre-shared key.
    pub fn finish(&mut self, reply: &[u8]) -> Result<Established, HandshakeError> {
        let established = match &mut self.waiting {
            Waiting::Sealed { noise, mac, psk, .. } => {
                let view = HandshakeReply::new_checked(reply)?;
                expect_ours(view.path(), view.receiver(), self.path, &self.hello)?;
                mac.verify(view.split_mac())?;
                let hello = noise::with_psk(noise, psk, |noise| read_sealed(noise, view.noise()))
                    .map_err(|_| HandshakeError::NotAuthentic)??;
                let cipher = Cipher::choose(self.hello.fast_aes, hello.fast_aes);
                Established { hello, keys: Keys::from_split(noise, cipher) }
            }
            Waiting::Unsealed => {
                let PlainReply { path, receiver, hello } = PlainReply::parse(reply)?;
                expect_ours(path, receiver, self.path, &self.hello)?;
                Established { hello, keys: Keys::unsealed() }
            }
            Waiting::Nothing => return Err(HandshakeError::Finished),
        };
        self.waiting = Waiting::Nothing;
        Ok(established)
    }
}

fn expect_ours(path: u8, receiver: u32, ours: u8, hello: &Hello) -> Result<(), HandshakeError> {
    if path == ours && receiver == hello.receiver {
        Ok(())
    } else {
        Err(HandshakeError::OtherHandshake)
    }
}

/// Who a base is, and what it makes ephemeral keys from.
struct Identity {
    keys: Keypair,
    mac: OuterMac,
    cookies: Cookies,
    seeds: Stream,
}

impl Identity {
    fn next_seed(&mut self) -> Seed {
        let mut bytes = Zeroizing::new([0; 32]);
        self.seeds.fill(&mut bytes[..]);
        Seed::from_bytes(*bytes)
    }
}

/// The base's side of all handshakes. It keeps nothing of any of them.
pub struct Responder {
    /// Absent on a hop that goes unsealed by explicit choice.
    identity: Option<Box<Identity>>,
}

impl Responder {
    /// Answers inits made for the public half of `keys`. `seed` must be entropy if the seal is to
    /// protect anything.
    pub fn new(keys: Keypair, seed: Seed) -> Self {
        let mac = OuterMac::new(keys.public());
        let cookies = Cookies::new(keys.public(), seed.child("cookies"));
        let seeds = seed.stream("responder");
        Self { identity: Some(Box::new(Identity { keys, mac, cookies, seeds })) }
    }

    /// Demands, and knows, the cookies of all that have this seed for them: inits from one address need not all
    /// come to the same one.
    pub fn share_cookies(&mut self, seed: Seed) {
        if let Some(identity) = &mut self.identity {
            identity.cookies.share(seed);
        }
    }

    /// Answers unsealed inits, and no others, **without any protection**: anybody on the hop can
    /// be any mobile. For hops that are private by other means, by the operator's explicit choice.
    pub fn unsealed() -> Self {
        Self { identity: None }
    }

    /// The cheap part of [`read`](Self::read): form and keyed hash, no allocation. The fingerprint
    /// knows whether a candidate of this init is alive and its reply can be sent again.
    ///
    /// # Errors
    ///
    /// Malformed, or not made for this base's public key.
    pub fn check(&self, init: &[u8]) -> Result<Fingerprint, HandshakeError> {
        let mut print = [0; MAC_LEN];
        if let Some(identity) = &self.identity {
            let view = HandshakeInit::new_checked(init)?;
            identity.mac.verify(view.split_mac())?;
            print.copy_from_slice(view.split_mac().1);
        } else {
            PlainInit::parse(init)?;
            print.copy_from_slice(&Blake2s256::digest(init)[..MAC_LEN]);
        }
        Ok(Fingerprint(print))
    }

    /// Whether an init that was [checked](Self::check) shows a cookie that was sent to `source` lately. On a hop
    /// without a seal there are none.
    pub fn shows_cookie(&mut self, now: Time, source: &[u8], init: &[u8]) -> bool {
        let cookies = self.identity.as_mut().map(|identity| &mut identity.cookies);
        cookies.is_some_and(|cookies| cookies.verify(now, source, init))
    }

    /// What to answer an init that is to show a cookie first; nothing on a hop without a seal.
    pub fn demand_cookie(
        &mut self,
        now: Time,
        source: &[u8],
        init: &Fingerprint,
    ) -> Option<CookieReply> {
        self.identity.as_mut()?.cookies.reply(now, source, init)
    }

    /// The cookie for this source; none on a hop without a seal.
    pub fn cookie_for(&mut self, now: Time, source: &[u8]) -> Option<Cookie> {
        self.cookies_for(now, source).map(|[cookie, _]| cookie)
    }

    /// The same, and the one that was it before.
    pub fn cookies_for(&mut self, now: Time, source: &[u8]) -> Option<[Cookie; 2]> {
        Some(self.identity.as_mut()?.cookies.of(now, source))
    }

    /// Reads an init and learns whose it is: it was made by the holder of that key's secret, for
    /// this base, now or earlier.
    ///
    /// # Errors
    ///
    /// Malformed, not made for this base's public key, or not authentic. Nothing has changed.
    pub fn read(&mut self, init: &[u8]) -> Result<Request, HandshakeError> {
        let Some(identity) = &mut self.identity else {
            let PlainInit { path, public, hello } = PlainInit::parse(init)?;
            let mobile = PublicKey::from_bytes(public);
            let psk = PresharedKey::default();
            return Ok(Request { answer: Answer::Unsealed, mobile, psk, path, hello });
        };
        let view = HandshakeInit::new_checked(init)?;
        identity.mac.verify(view.split_mac())?;
        let path = view.path();
        let seed = identity.next_seed();
        let mut noise = noise::responder(&identity.keys, path, seed)
            .map_err(|_| HandshakeError::NotAuthentic)?;
        let hello = read_sealed(&mut noise, view.noise())?;
        let mobile = noise
            .get_remote_static()
            .and_then(|key| <[u8; 32]>::try_from(key).ok())
            .map(PublicKey::from_bytes)
            .ok_or(HandshakeError::NotAuthentic)?;
        let answer = Answer::Sealed { noise: Box::new(noise), mac: identity.mac.clone() };
        Ok(Request { answer, mobile, psk: PresharedKey::default(), path, hello })
    }
}

enum Answer {
    Sealed { noise: Box<HandshakeState>, mac: OuterMac },
    Unsealed,
}

/// A mobile's wish for an association. Drop it if the mobile's key is not allowed.
pub struct Request {
    answer: Answer,
    mobile: PublicKey,
    psk: PresharedKey,
    path: u8,
    hello: Hello,
}

impl Request {
    /// The same, of a mobile that shares `psk` with this base: the reply and the keys are made with it.
    #[must_use]
    pub fn with_psk(self, psk: PresharedKey) -> Self {
        Self { psk, ..self }
    }

    /// Whose wish it is; on an unsealed hop, whose it claims to be.
    pub fn mobile(&self) -> &PublicKey {
        &self.mobile
    }

    /// What the mobile says of itself.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Writes the reply at the start of `out` (at most
    /// [`MAX_REPLY_LEN`](lasthop_wire::datagram::MAX_REPLY_LEN) bytes) and returns its length and
    /// the keys of a *candidate*: see [the module](super) for when to trust it.
    ///
    /// # Errors
    ///
    /// `out` is too short.
    pub fn accept(self, hello: &Hello, out: &mut [u8]) -> Result<(usize, Keys), HandshakeError> {
        let receiver = self.hello.receiver;
        match self.answer {
            Answer::Sealed { mut noise, mac } => {
                let header = HandshakeReply::header(self.path, receiver);
                let len = noise::with_psk(&mut noise, &self.psk, |noise| {
                    write_sealed(noise, &mac, &header, hello, out)
                });
                let len = len.map_err(|_| HandshakeError::NotAuthentic)??;
                let cipher = Cipher::choose(hello.fast_aes, self.hello.fast_aes);
                Ok((len, Keys::from_split(&mut noise, cipher)))
            }
            Answer::Unsealed => {
                let reply = PlainReply { path: self.path, receiver, hello: *hello };
                let len = reply.emit(out).map_err(|_| HandshakeError::NoRoom)?;
                Ok((len, Keys::unsealed()))
            }
        }
    }
}
