//! The outer form of every hop datagram, and the two handshake messages.
//!
//! Byte 0 holds the version (high four bits) and the [`Kind`] (low four bits), byte 1 the path
//! number; what follows depends on the kind. `docs/seal.md` draws every byte. Numbers are
//! big-endian. Nothing here knows a key: a view that passed its check has fields of the right
//! length, no more.

mod transit;

use core::ops::Deref;

use thiserror::Error;

pub use transit::{TRANSIT_HEADER_LEN, Transit, TransitCheck};

/// The version of the datagram format, and of what is inside it.
pub const VERSION: u8 = 1;

/// Length of an authentication tag: of a sealed datagram, of each sealed handshake field.
pub const TAG_LEN: usize = 16;

/// Length of each keyed hash at the end of a sealed handshake message, and of a cookie.
pub const MAC_LEN: usize = 16;

/// Length of a public key.
pub const KEY_LEN: usize = 32;

/// The longest that [`Limits`] may be.
pub const MAX_LIMITS: usize = 255;

/// Length of a data datagram's header, all of which the seal authenticates.
pub const DATA_HEADER_LEN: usize = field::NUMBER.end;

/// The longest [`HandshakeInit`], and the longest of all handshake messages.
pub const MAX_INIT_LEN: usize = MIN_INIT_LEN + MAX_LIMITS;

/// The longest [`HandshakeReply`].
pub const MAX_REPLY_LEN: usize = MIN_REPLY_LEN + MAX_LIMITS;

/// An ephemeral key, a sealed static key, a sealed hello with no limits, and two hashes.
const MIN_INIT_LEN: usize =
    field::PATH + 1 + KEY_LEN + (KEY_LEN + TAG_LEN) + (Hello::FIXED_LEN + TAG_LEN) + 2 * MAC_LEN;
/// An ephemeral key and a sealed hello with no limits.
const MIN_REPLY_LEN: usize = field::RECEIVER.end + KEY_LEN + (Hello::FIXED_LEN + TAG_LEN) + MAC_LEN;
const MIN_PLAIN_INIT_LEN: usize = field::PATH + 1 + KEY_LEN + Hello::FIXED_LEN;
const MIN_PLAIN_REPLY_LEN: usize = field::RECEIVER.end + Hello::FIXED_LEN;

mod field {
    use core::ops::Range;

    pub(super) const VERSION_KIND: usize = 0;
    pub(super) const PATH: usize = 1;
    /// In data and in replies.
    pub(super) const RECEIVER: Range<usize> = 2..6;
    /// In data.
    pub(super) const NUMBER: Range<usize> = 6..10;
    /// In a plain init.
    pub(super) const PUBLIC: Range<usize> = 2..34;
    /// In a cookie reply.
    pub(super) const NONCE: Range<usize> = 2..14;
    /// In a cookie reply.
    pub(super) const COOKIE: Range<usize> = 14..46;
    /// In a path challenge and its response.
    pub(super) const TOKEN: Range<usize> = 6..14;
    /// In a path challenge and its response.
    pub(super) const TOKEN_MAC: Range<usize> = 14..30;
}

/// Where the name of the association begins that data, replies, challenges, responses and what is to be passed on are for:
/// 32 bits, the most significant byte first.
pub const RECEIVER_AT: usize = field::RECEIVER.start;

/// Why bytes are not the datagram they were taken for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum DatagramError {
    /// Shorter than the shortest of its kind.
    #[error("{found} bytes, at least {least} are needed")]
    Truncated {
        /// How many bytes there are.
        found: usize,
        /// How many the shortest has.
        least: usize,
    },
    /// Longer than the longest of its kind.
    #[error("{found} bytes, at most {most} are allowed")]
    Oversized {
        /// How many bytes there are.
        found: usize,
        /// How many the longest has.
        most: usize,
    },
    /// A version that is not used here.
    #[error("version {0} is not {VERSION}")]
    Version(u8),
    /// A kind that does not exist, or not the expected one.
    #[error("kind {0} is unknown or not expected here")]
    Kind(u8),
}

/// What a datagram is.
///
/// Numbers 12 to 15 are free. There is no trusted "unsupported version" or "refused" message: it
/// could not be authenticated, so whoever receives an unknown kind counts it and does nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// Transport frames, sealed.
    Data = 0,
    /// The mobile asks for an association: Noise IK, first message.
    HandshakeInit = 1,
    /// The base answers: Noise IK, second message.
    HandshakeReply = 2,
    /// As [`Kind::HandshakeInit`] on a hop that goes unsealed by explicit choice: no secrecy, no
    /// authenticity.
    PlainInit = 3,
    /// As [`Kind::HandshakeReply`], unsealed.
    PlainReply = 4,
    /// A base has no association of the name that a data datagram was for. Anybody can say so.
    Unknown = 5,
    /// A base with many handshakes to do asks for proof of the sender's address first.
    CookieReply = 6,
    /// A base asks a mobile that has moved whether it is where its datagrams come from.
    Challenge = 7,
    /// The mobile answers a challenge from there.
    Response = 8,
    /// A datagram for another base, which this one is to pass on.
    Transit = 9,
    /// A base asks whether what it is to pass on comes from where it says.
    TransitChallenge = 10,
    /// The mobile answers that from there.
    TransitProof = 11,
}

impl Kind {
    /// The kind of a datagram of our version.
    ///
    /// # Errors
    ///
    /// The datagram is empty, of another version or of an unknown kind.
    pub fn of(datagram: &[u8]) -> Result<Self, DatagramError> {
        let &first = datagram
            .get(field::VERSION_KIND)
            .ok_or(DatagramError::Truncated { found: 0, least: 1 })?;
        if first >> 4 != VERSION {
            return Err(DatagramError::Version(first >> 4));
        }
        match first & 0x0f {
            0 => Ok(Self::Data),
            1 => Ok(Self::HandshakeInit),
            2 => Ok(Self::HandshakeReply),
            3 => Ok(Self::PlainInit),
            4 => Ok(Self::PlainReply),
            5 => Ok(Self::Unknown),
            6 => Ok(Self::CookieReply),
            7 => Ok(Self::Challenge),
            8 => Ok(Self::Response),
            9 => Ok(Self::Transit),
            10 => Ok(Self::TransitChallenge),
            11 => Ok(Self::TransitProof),
            n => Err(DatagramError::Kind(n)),
        }
    }

    /// The first byte of a datagram of this kind.
    pub const fn first_byte(self) -> u8 {
        VERSION << 4 | self as u8
    }

    fn expect(self, datagram: &[u8], least: usize, most: usize) -> Result<(), DatagramError> {
        let found = datagram.len();
        let kind = Self::of(datagram)?;
        if kind != self {
            return Err(DatagramError::Kind(kind as u8));
        }
        if found < least {
            return Err(DatagramError::Truncated { found, least });
        }
        if found > most {
            return Err(DatagramError::Oversized { found, most });
        }
        Ok(())
    }
}

fn be32(b: &[u8], at: core::ops::Range<usize>) -> u32 {
    b[at].iter().fold(0, |n, &byte| n << 8 | u32::from(byte))
}

/// A data datagram's header, decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataHeader {
    /// Which path of the association it travels on; 0 is the one that it begins with.
    pub path: u8,
    /// The association, by the number that its receiver chose in the handshake.
    pub receiver: u32,
    /// The low 32 bits of the packet number; see [`recover_number`].
    pub number_low: u32,
}

impl DataHeader {
    /// The header of packet `number`.
    pub const fn new(path: u8, receiver: u32, number: u64) -> Self {
        // Truncation is the point: the receiver knows the high half.
        Self { path, receiver, number_low: number as u32 }
    }

    /// The header's bytes, which the seal authenticates.
    pub fn to_bytes(self) -> [u8; DATA_HEADER_LEN] {
        let mut out = [0; DATA_HEADER_LEN];
        out[field::VERSION_KIND] = Kind::Data.first_byte();
        out[field::PATH] = self.path;
        out[field::RECEIVER].copy_from_slice(&self.receiver.to_be_bytes());
        out[field::NUMBER].copy_from_slice(&self.number_low.to_be_bytes());
        out
    }
}

/// A data datagram.
#[derive(Debug)]
pub struct Data<T>(T);

impl<T: AsRef<[u8]>> Data<T> {
    /// A view of `datagram`, which is of kind data and has a whole header. The body may be empty.
    ///
    /// # Errors
    ///
    /// Another version or kind, or too short.
    pub fn new_checked(datagram: T) -> Result<Self, DatagramError> {
        Kind::Data.expect(datagram.as_ref(), DATA_HEADER_LEN, usize::MAX)?;
        Ok(Self(datagram))
    }

    /// The header, decoded.
    pub fn header(&self) -> DataHeader {
        let b = self.0.as_ref();
        DataHeader {
            path: b[field::PATH],
            receiver: be32(b, field::RECEIVER),
            number_low: be32(b, field::NUMBER),
        }
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Data<T> {
    /// The header's bytes and what follows them: ciphertext and tag.
    pub fn split_mut(&mut self) -> (&[u8], &mut [u8]) {
        let (header, body) = self.0.as_mut().split_at_mut(DATA_HEADER_LEN);
        (header, body)
    }
}

/// A base's answer to data for an association that it does not have: it was restarted, or has given
/// the association up. It is a hint, which costs whoever acts on it a handshake and no more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unknown {
    /// The association, by the number that the data was for.
    pub receiver: u32,
}

impl Unknown {
    /// Its length: less than that of any data that it answers.
    pub const LEN: usize = field::RECEIVER.end;

    /// Its bytes.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        out[field::VERSION_KIND] = Kind::Unknown.first_byte();
        out[field::RECEIVER].copy_from_slice(&self.receiver.to_be_bytes());
        out
    }

    /// Reads one.
    ///
    /// # Errors
    ///
    /// Another version or kind, too short or too long.
    pub fn parse(datagram: &[u8]) -> Result<Self, DatagramError> {
        Kind::Unknown.expect(datagram, Self::LEN, Self::LEN)?;
        Ok(Self { receiver: be32(datagram, field::RECEIVER) })
    }
}

/// What a base that has many handshakes to do says instead of a reply: a cookie, sealed for whoever made the
/// init. An init that shows it came from an address that receives.
#[derive(Clone, Copy, Debug)]
pub struct CookieReply {
    /// The nonce under which the cookie is sealed.
    pub nonce: [u8; 12],
    /// The cookie, encrypted, and its tag.
    pub sealed: [u8; MAC_LEN + TAG_LEN],
}

impl CookieReply {
    /// Its length: less than that of any init that it answers.
    pub const LEN: usize = field::COOKIE.end;

    /// Its bytes.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        out[field::VERSION_KIND] = Kind::CookieReply.first_byte();
        out[field::NONCE].copy_from_slice(&self.nonce);
        out[field::COOKIE].copy_from_slice(&self.sealed);
        out
    }

    /// Reads one.
    ///
    /// # Errors
    ///
    /// Another version or kind, too short or too long.
    pub fn parse(datagram: &[u8]) -> Result<Self, DatagramError> {
        Kind::CookieReply.expect(datagram, Self::LEN, Self::LEN)?;
        let (mut nonce, mut sealed) = ([0; 12], [0; MAC_LEN + TAG_LEN]);
        nonce.copy_from_slice(&datagram[field::NONCE]);
        sealed.copy_from_slice(&datagram[field::COOKIE]);
        Ok(Self { nonce, sealed })
    }
}

/// A path challenge or its response (RFC 9000, section 8.2, as a datagram of the seal): a token that whoever
/// receives it sends back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Token {
    /// The response, and not the challenge.
    pub response: bool,
    /// The path by which it goes.
    pub path: u8,
    /// The association, by the number that the receiver of this chose.
    pub receiver: u32,
    /// What the response must repeat.
    pub token: [u8; 8],
    /// The keyed hash of all before it.
    pub mac: [u8; MAC_LEN],
}

impl Token {
    /// Its length.
    pub const LEN: usize = field::TOKEN_MAC.end;
    /// How much of it the keyed hash covers.
    pub const COVERED: usize = field::TOKEN.end;

    /// Its bytes.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let kind = if self.response { Kind::Response } else { Kind::Challenge };
        let mut out = [0; Self::LEN];
        out[field::VERSION_KIND] = kind.first_byte();
        out[field::PATH] = self.path;
        out[field::RECEIVER].copy_from_slice(&self.receiver.to_be_bytes());
        out[field::TOKEN].copy_from_slice(&self.token);
        out[field::TOKEN_MAC].copy_from_slice(&self.mac);
        out
    }

    /// Reads one.
    ///
    /// # Errors
    ///
    /// Another version or kind, too short or too long.
    pub fn parse(datagram: &[u8]) -> Result<Self, DatagramError> {
        let response = Kind::of(datagram)? == Kind::Response;
        let kind = if response { Kind::Response } else { Kind::Challenge };
        kind.expect(datagram, Self::LEN, Self::LEN)?;
        let (mut token, mut mac) = ([0; 8], [0; MAC_LEN]);
        token.copy_from_slice(&datagram[field::TOKEN]);
        mac.copy_from_slice(&datagram[field::TOKEN_MAC]);
        let path = datagram[field::PATH];
        Ok(Self { response, path, receiver: be32(datagram, field::RECEIVER), token, mac })
    }
}

/// The 64-bit number nearest to the one expected next whose low half is `low`
/// (the idea of RFC 9000, appendix A.3).
///
/// `highest` is the highest number received so far, authentic ones only. Right as long as the
/// sender is less than 2^31 packets ahead or behind.
pub fn recover_number(low: u32, highest: Option<u64>) -> u64 {
    const WINDOW: u64 = 1 << 32;
    const HALF: u64 = WINDOW / 2;
    let expected = highest.map_or(0, |n| n.saturating_add(1));
    let candidate = (expected & !(WINDOW - 1)) | u64::from(low);
    if candidate.checked_add(HALF).is_some_and(|n| n <= expected) {
        candidate.checked_add(WINDOW).unwrap_or(candidate)
    } else if candidate > expected.saturating_add(HALF) && candidate >= WINDOW {
        candidate - WINDOW
    } else {
        candidate
    }
}

/// A transport's announced limits: a few bytes whose meaning is the transport's own.
#[derive(Clone, Copy)]
pub struct Limits {
    len: u8,
    bytes: [u8; MAX_LIMITS],
}

impl Limits {
    /// No limits announced.
    pub const NONE: Self = Self { len: 0, bytes: [0; MAX_LIMITS] };

    /// These bytes; `None` if there are more than [`MAX_LIMITS`].
    pub fn new(limits: &[u8]) -> Option<Self> {
        let mut bytes = [0; MAX_LIMITS];
        bytes.get_mut(..limits.len())?.copy_from_slice(limits);
        Some(Self { len: u8::try_from(limits.len()).ok()?, bytes })
    }
}

impl Deref for Limits {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl PartialEq for Limits {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Limits {}

impl core::fmt::Debug for Limits {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        (**self).fmt(f)
    }
}

/// What each side says of itself inside a handshake message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// The number under which this side wants to receive data and replies.
    pub receiver: u32,
    /// This side has AES and carry-less multiplication in hardware.
    pub fast_aes: bool,
    /// Greater in every handshake that one mobile starts: its wall clock in nanoseconds, or zero
    /// where it has none. A base uses it to tell old handshakes from new. From a base zero; or, where the mobile's
    /// is not above it, the greatest with which this mobile has made an association.
    pub stamp: u64,
    /// What this side's transport announces.
    pub limits: Limits,
}

impl Hello {
    /// Length without limits.
    pub const FIXED_LEN: usize = 14;
    /// The longest.
    pub const MAX_LEN: usize = Self::FIXED_LEN + MAX_LIMITS;

    const FAST_AES: u8 = 1;

    /// Writes the hello at the start of `out` and returns its length.
    ///
    /// # Errors
    ///
    /// `out` is too short.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, DatagramError> {
        let (found, least) = (out.len(), Self::FIXED_LEN + self.limits.len());
        let out = out.get_mut(..least).ok_or(DatagramError::Truncated { found, least })?;
        out[0] = VERSION;
        out[1] = if self.fast_aes { Self::FAST_AES } else { 0 };
        out[2..6].copy_from_slice(&self.receiver.to_be_bytes());
        out[6..14].copy_from_slice(&self.stamp.to_be_bytes());
        out[14..].copy_from_slice(&self.limits);
        Ok(least)
    }

    /// Reads a hello that fills `bytes`. Unknown flags are ignored: a later version sets them.
    ///
    /// # Errors
    ///
    /// Too short, too long, or of another version.
    pub fn parse(bytes: &[u8]) -> Result<Self, DatagramError> {
        let found = bytes.len();
        let Some((fixed, limits)) = bytes.split_first_chunk::<{ Self::FIXED_LEN }>() else {
            return Err(DatagramError::Truncated { found, least: Self::FIXED_LEN });
        };
        let limits =
            Limits::new(limits).ok_or(DatagramError::Oversized { found, most: Self::MAX_LEN })?;
        if fixed[0] != VERSION {
            return Err(DatagramError::Version(fixed[0]));
        }
        let stamp = u64::from(be32(fixed, 6..10)) << 32 | u64::from(be32(fixed, 10..14));
        Ok(Self {
            receiver: be32(fixed, 2..6),
            fast_aes: fixed[1] & Self::FAST_AES != 0,
            stamp,
            limits,
        })
    }
}

/// A mobile's first message, sealed.
#[derive(Clone, Copy, Debug)]
pub struct HandshakeInit<T>(T);

impl<T: AsRef<[u8]>> HandshakeInit<T> {
    /// A view of `datagram`, whose kind and length are right.
    ///
    /// # Errors
    ///
    /// Another version or kind, too short or too long.
    pub fn new_checked(datagram: T) -> Result<Self, DatagramError> {
        Kind::HandshakeInit.expect(datagram.as_ref(), MIN_INIT_LEN, MAX_INIT_LEN)?;
        Ok(Self(datagram))
    }

    /// The path it travelled on.
    pub fn path(&self) -> u8 {
        self.0.as_ref()[field::PATH]
    }

    /// The Noise message.
    pub fn noise(&self) -> &[u8] {
        let b = self.0.as_ref();
        &b[field::PATH + 1..b.len() - 2 * MAC_LEN]
    }

    /// All that the first keyed hash covers, and that hash.
    pub fn split_mac(&self) -> (&[u8], &[u8]) {
        let b = self.split_cookie_mac().0;
        b.split_at(b.len() - MAC_LEN)
    }

    /// All that the hash keyed by a cookie covers, and that hash: zeros where the mobile has no cookie.
    pub fn split_cookie_mac(&self) -> (&[u8], &[u8]) {
        let b = self.0.as_ref();
        b.split_at(b.len() - MAC_LEN)
    }
}

impl HandshakeInit<()> {
    /// Where the Noise message starts.
    pub const NOISE_AT: usize = field::PATH + 1;

    /// The bytes before the Noise message.
    pub const fn header(path: u8) -> [u8; Self::NOISE_AT] {
        [Kind::HandshakeInit.first_byte(), path]
    }
}

/// A base's answer, sealed.
#[derive(Clone, Copy, Debug)]
pub struct HandshakeReply<T>(T);

impl<T: AsRef<[u8]>> HandshakeReply<T> {
    /// A view of `datagram`, whose kind and length are right.
    ///
    /// # Errors
    ///
    /// Another version or kind, too short or too long.
    pub fn new_checked(datagram: T) -> Result<Self, DatagramError> {
        Kind::HandshakeReply.expect(datagram.as_ref(), MIN_REPLY_LEN, MAX_REPLY_LEN)?;
        Ok(Self(datagram))
    }

    /// The path it travelled on.
    pub fn path(&self) -> u8 {
        self.0.as_ref()[field::PATH]
    }

    /// The number that the mobile chose in its init.
    pub fn receiver(&self) -> u32 {
        be32(self.0.as_ref(), field::RECEIVER)
    }

    /// The Noise message.
    pub fn noise(&self) -> &[u8] {
        let b = self.0.as_ref();
        &b[field::RECEIVER.end..b.len() - MAC_LEN]
    }

    /// All that the keyed hash covers, and the hash.
    pub fn split_mac(&self) -> (&[u8], &[u8]) {
        let b = self.0.as_ref();
        b.split_at(b.len() - MAC_LEN)
    }
}

impl HandshakeReply<()> {
    /// Where the Noise message starts.
    pub const NOISE_AT: usize = field::RECEIVER.end;

    /// The bytes before the Noise message.
    pub fn header(path: u8, receiver: u32) -> [u8; Self::NOISE_AT] {
        reply_header(Kind::HandshakeReply, path, receiver)
    }
}

fn reply_header(kind: Kind, path: u8, receiver: u32) -> [u8; field::RECEIVER.end] {
    let mut out = [kind.first_byte(), path, 0, 0, 0, 0];
    out[field::RECEIVER].copy_from_slice(&receiver.to_be_bytes());
    out
}

/// The receiver number of a handshake reply, sealed or plain, so that it finds its handshake
/// before anything costly is done. The number is not authentic.
///
/// # Errors
///
/// Not a reply, too short or too long.
pub fn reply_receiver(datagram: &[u8]) -> Result<u32, DatagramError> {
    match Kind::of(datagram)? {
        Kind::PlainReply => {
            let most = MIN_PLAIN_REPLY_LEN + MAX_LIMITS;
            Kind::PlainReply.expect(datagram, MIN_PLAIN_REPLY_LEN, most)?;
            Ok(be32(datagram, field::RECEIVER))
        }
        _ => HandshakeReply::new_checked(datagram).map(|reply| reply.receiver()),
    }
}

/// A mobile's first message on a hop that goes unsealed by explicit choice. Anybody can write one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlainInit {
    /// The path it travels on.
    pub path: u8,
    /// The key that the mobile says is its own; nothing proves it.
    pub public: [u8; KEY_LEN],
    /// What it says of itself.
    pub hello: Hello,
}

impl PlainInit {
    /// Writes the message at the start of `out` and returns its length.
    ///
    /// # Errors
    ///
    /// `out` is too short.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, DatagramError> {
        let found = out.len();
        let short = DatagramError::Truncated { found, least: MIN_PLAIN_INIT_LEN };
        let (head, rest) = out.split_at_mut_checked(field::PUBLIC.end).ok_or(short)?;
        head[field::VERSION_KIND] = Kind::PlainInit.first_byte();
        head[field::PATH] = self.path;
        head[field::PUBLIC].copy_from_slice(&self.public);
        Ok(field::PUBLIC.end + self.hello.emit(rest)?)
    }

    /// Reads the message that fills `datagram`.
    ///
    /// # Errors
    ///
    /// Another version or kind, too short or too long.
    pub fn parse(datagram: &[u8]) -> Result<Self, DatagramError> {
        let most = MIN_PLAIN_INIT_LEN + MAX_LIMITS;
        Kind::PlainInit.expect(datagram, MIN_PLAIN_INIT_LEN, most)?;
        let mut public = [0; KEY_LEN];
        public.copy_from_slice(&datagram[field::PUBLIC]);
        let hello = Hello::parse(&datagram[field::PUBLIC.end..])?;
        Ok(Self { path: datagram[field::PATH], public, hello })
    }
}

/// A base's answer on a hop that goes unsealed by explicit choice. Anybody can write one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlainReply {
    /// The path it travels on: that of the init.
    pub path: u8,
    /// The number that the mobile chose in its init.
    pub receiver: u32,
    /// What the base says of itself.
    pub hello: Hello,
}

impl PlainReply {
    /// Writes the message at the start of `out` and returns its length.
    ///
    /// # Errors
    ///
    /// `out` is too short.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, DatagramError> {
        let found = out.len();
        let short = DatagramError::Truncated { found, least: MIN_PLAIN_REPLY_LEN };
        let (head, rest) = out.split_at_mut_checked(field::RECEIVER.end).ok_or(short)?;
        head.copy_from_slice(&reply_header(Kind::PlainReply, self.path, self.receiver));
        Ok(field::RECEIVER.end + self.hello.emit(rest)?)
    }

    /// Reads the message that fills `datagram`.
    ///
    /// # Errors
    ///
    /// Another version or kind, too short or too long.
    pub fn parse(datagram: &[u8]) -> Result<Self, DatagramError> {
        let receiver = match Kind::of(datagram)? {
            Kind::PlainReply => reply_receiver(datagram)?,
            other => return Err(DatagramError::Kind(other as u8)),
        };
        let hello = Hello::parse(&datagram[field::RECEIVER.end..])?;
        Ok(Self { path: datagram[field::PATH], receiver, hello })
    }
}

#[cfg(test)]
mod tests;
