//! MHP messages: what the two ends of a session say at the start of each stream.
//!
//! The side that opens a stream writes [`Message::Open`] first; the other side's first bytes are
//! [`Message::Opened`] or [`Message::Refused`]. Where a fixed host opens, the base writes
//! [`Message::Offer`] and the mobile answers alike. Everything behind those is the application's.
//!
//! A message is a header of four bytes and a body:
//!
//! | offset | bytes | what |
//! | --- | --- | --- |
//! | 0 | 1 | version, [`VERSION`] |
//! | 1 | 1 | type: 1 Open, 2 Opened, 3 Refused, 4 Offer; 16 to 63 belong to [`handoff`] |
//! | 2 | 2 | length of the body, big-endian, at most [`MAX_BODY_LEN`] |
//!
//! A body may be longer than this version knows: what follows the known fields is skipped, so that
//! a newer peer can add to a message. A change that an older peer must not skip takes a new type or
//! a new version, which an older peer refuses by name.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use thiserror::Error;

pub mod handoff;
mod outcome;
pub mod reach;

use handoff::{Presumed, Reopen, Reopened, Roll, SessionId};
pub use outcome::{Refusal, ResetReason};

/// The version that this code uses.
pub const VERSION: u8 = 1;
/// Bytes in front of every body.
pub const HEADER_LEN: usize = 4;
/// The longest body that is read; a longer one is an error as soon as its length is seen.
pub const MAX_BODY_LEN: usize = 1024;
/// The longest message that is read.
pub const MAX_MESSAGE_LEN: usize = HEADER_LEN + MAX_BODY_LEN;
/// The longest host name, in bytes (as in RFC 1928 section 4).
pub const MAX_NAME_LEN: usize = 255;

const TYPE_OPEN: u8 = 1;
const TYPE_OPENED: u8 = 2;
const TYPE_REFUSED: u8 = 3;
const TYPE_OFFER: u8 = 4;

const FLAG_EARLY: u8 = 1;
const FLAG_NUMBERED: u8 = 2;
const FLAG_SOURCE: u8 = 4;
const FLAG_RESUMED: u8 = 8;

const ADDRESS_IPV4: u8 = 1;
const ADDRESS_IPV6: u8 = 2;
const ADDRESS_NAME: u8 = 3;

/// A host name that is fit to be sent: 1 to 255 bytes, without white space or control characters.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct HostName(Box<str>);

/// Why a text is no host name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum NameError {
    /// Nothing there.
    #[error("the host name is empty")]
    Empty,
    /// More than [`MAX_NAME_LEN`] bytes.
    #[error("the host name has {0} bytes; at most 255 can be sent")]
    TooLong(usize),
    /// White space, a control character, or bytes that are not UTF-8.
    #[error("the host name has a character at byte {0} that no host name has")]
    BadCharacter(usize),
}

impl HostName {
    /// Checks `name`.
    ///
    /// # Errors
    ///
    /// Says what is wrong with it.
    pub fn new(name: &str) -> Result<Self, NameError> {
        Self::from_bytes(name.as_bytes())
    }

    /// Checks a name that came as bytes.
    ///
    /// # Errors
    ///
    /// Says what is wrong with it.
    pub fn from_bytes(name: &[u8]) -> Result<Self, NameError> {
        match name.len() {
            0 => return Err(NameError::Empty),
            n if n > MAX_NAME_LEN => return Err(NameError::TooLong(n)),
            _ => {}
        }
        let text =
            core::str::from_utf8(name).map_err(|e| NameError::BadCharacter(e.valid_up_to()))?;
        match text.find(|c: char| c.is_control() || c.is_whitespace()) {
            Some(at) => Err(NameError::BadCharacter(at)),
            None => Ok(Self(text.into())),
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for HostName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a connection is to go (MHP-2: the opening names the destination).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Target {
    /// An address. Of an IPv6 address neither scope nor flow label is carried: they mean nothing
    /// at the other end.
    Addr(SocketAddr),
    /// A name, to be resolved at the base, and a port.
    Name(HostName, u16),
}

impl Target {
    /// A target from a host as people write it: an address literal, or else a name.
    ///
    /// # Errors
    ///
    /// The host is neither an address nor fit to be sent as a name.
    pub fn from_host(host: &str, port: u16) -> Result<Self, NameError> {
        match host.parse::<IpAddr>() {
            Ok(ip) => Ok(Self::Addr(SocketAddr::new(ip, port))),
            Err(_) => HostName::new(host).map(|name| Self::Name(name, port)),
        }
    }

    /// The port.
    pub fn port(&self) -> u16 {
        match self {
            Self::Addr(addr) => addr.port(),
            Self::Name(_, port) => *port,
        }
    }
}

impl From<SocketAddr> for Target {
    fn from(addr: SocketAddr) -> Self {
        Self::Addr(addr)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Addr(addr) => addr.fmt(f),
            Self::Name(name, port) => write!(f, "{name}:{port}"),
        }
    }
}

/// When the application is notified that its connection stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Opening {
    /// Once the fixed host has answered (MHP-5).
    #[default]
    Faithful,
    /// At once: its first bytes travel with the opening, and a refusal arrives as a reset.
    Early,
}

/// The message at the start of a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// Mobile to base: open a connection to `target`.
    Open {
        /// Whether application bytes follow without waiting for the answer.
        opening: Opening,
        /// Where to.
        target: Target,
        /// The connection's number where it is not the stream's: after a handoff, streams count
        /// from the beginning and connections go on.
        connection: Option<u64>,
        /// The application's own address, where the base is to know it. A peer that is too old to
        /// know the field skips it.
        source: Option<SocketAddr>,
        /// The mobile's session and how often it has resumed, once it has: what is opened after a
        /// handoff is for the base that has the session, and waits until it has. A peer that is too
        /// old to know the field skips it.
        resumed: Option<(SessionId, u32)>,
    },
    /// The answer to [`Open`](Self::Open) or [`Offer`](Self::Offer): the connection stands.
    Opened {
        /// The answering side's own end: the surrogate's, of the connection to the fixed host, or
        /// the mobile's.
        bound: SocketAddr,
    },
    /// The other answer: there is no connection.
    Refused(Refusal),
    /// Base to mobile: a fixed host opens a connection (MHP-6).
    Offer {
        /// The address and port that it asked for.
        to: SocketAddr,
        /// The fixed host's own end.
        from: SocketAddr,
        /// The connection's number where it is not the stream's.
        connection: Option<u64>,
    },
    /// Mobile to base: carry a connection on.
    Reopen(Reopen),
    /// Base to mobile: it goes on.
    Reopened(Reopened),
    /// Mobile to base, behind [`Reopen`](Self::Reopen): the connection's bytes follow, from this one on, and
    /// the base skips those that it has.
    Continue {
        /// The first byte that follows. The base expects this one, or a later one.
        from: u64,
    },
    /// Mobile to base: the connections that live.
    Roll(Roll),
    /// Mobile to base: bytes that it presumably lacks.
    Presumed(Presumed),
}

/// What [`decode`] found at the start of its input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decoded {
    /// The message is not complete: at least `needed` bytes, counted from its start, are wanted.
    Incomplete {
        /// More than the input had, at most [`MAX_MESSAGE_LEN`].
        needed: usize,
    },
    /// A whole message, which took `len` bytes.
    Complete {
        /// The message.
        message: Message,
        /// Bytes of the input that belong to it.
        len: usize,
    },
}

/// Why bytes are no MHP message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum MhpError {
    /// The first byte is another version.
    #[error("the peer speaks MHP version {0}, this side version {VERSION}")]
    Version(u8),
    /// The second byte is no type of this version.
    #[error("MHP message type {0} is unknown")]
    Type(u8),
    /// The body's length is beyond that of any message.
    #[error("an MHP message of {0} bytes is longer than the {MAX_BODY_LEN} allowed")]
    TooLong(usize),
    /// The body ends within a field.
    #[error("the MHP message ends inside its {0}")]
    Truncated(&'static str),
    /// An address of a kind that this message cannot have.
    #[error("MHP address kind {0} is not possible here")]
    Address(u8),
    /// The target's name cannot be one.
    #[error("MHP target: {0}")]
    Name(#[from] NameError),
}

impl Message {
    /// Appends the message to `out`; at most [`MAX_MESSAGE_LEN`] bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[VERSION, self.kind(), 0, 0]);
        match self {
            Self::Open { opening, target, connection, source, resumed } => {
                let early = if *opening == Opening::Early { FLAG_EARLY } else { 0 };
                let numbered = if connection.is_some() { FLAG_NUMBERED } else { 0 };
                let sourced = if source.is_some() { FLAG_SOURCE } else { 0 };
                let later = if resumed.is_some() { FLAG_RESUMED } else { 0 };
                out.push(early | numbered | sourced | later);
                put_target(out, target);
                if let Some(n) = connection {
                    out.extend_from_slice(&n.to_be_bytes());
                }
                if let Some(source) = source {
                    put_addr(out, source);
                }
                if let Some((session, turn)) = resumed {
                    out.extend_from_slice(&session.0.to_be_bytes());
                    out.extend_from_slice(&turn.to_be_bytes());
                }
            }
            Self::Opened { bound } => put_addr(out, bound),
            Self::Refused(refusal) => {
                out.push(refusal.code());
                out.extend_from_slice(&refusal.detail().to_be_bytes());
            }
            Self::Offer { to, from, connection } => {
                out.push(if connection.is_some() { FLAG_NUMBERED } else { 0 });
                put_addr(out, to);
                put_addr(out, from);
                if let Some(n) = connection {
                    out.extend_from_slice(&n.to_be_bytes());
                }
            }
            Self::Reopen(reopen) => reopen.encode(out),
            Self::Reopened(reopened) => reopened.encode(out),
            Self::Continue { from } => out.extend_from_slice(&from.to_be_bytes()),
            Self::Roll(roll) => roll.encode(out),
            Self::Presumed(presumed) => presumed.encode(out),
        }
        let body = (out.len() - start - HEADER_LEN) as u16;
        out[start + 2..start + HEADER_LEN].copy_from_slice(&body.to_be_bytes());
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Open { .. } => TYPE_OPEN,
            Self::Opened { .. } => TYPE_OPENED,
            Self::Refused(_) => TYPE_REFUSED,
            Self::Offer { .. } => TYPE_OFFER,
            Self::Reopen(_) => handoff::TYPE_REOPEN,
            Self::Reopened(_) => handoff::TYPE_REOPENED,
            Self::Continue { .. } => handoff::TYPE_CONTINUE,
            Self::Roll(_) => handoff::TYPE_ROLL,
            Self::Presumed(_) => handoff::TYPE_PRESUMED,
        }
    }
}

/// Reads the message at the start of `bytes`, which may hold less than it or more.
///
/// The answer for a prefix never contradicts the answer for the whole.
///
/// # Errors
///
/// The bytes cannot become a message, whatever follows.
pub fn decode(bytes: &[u8]) -> Result<Decoded, MhpError> {
    let Some(&version) = bytes.first() else {
        return Ok(Decoded::Incomplete { needed: HEADER_LEN });
    };
    if version != VERSION {
        return Err(MhpError::Version(version));
    }
    if let Some(&kind) = bytes.get(1)
        && !matches!(kind, TYPE_OPEN..=TYPE_OFFER | handoff::TYPE_PRESUMED..=handoff::TYPE_REOPEN)
    {
        return Err(MhpError::Type(kind));
    }
    let Some(&[_, kind, high, low]) = bytes.first_chunk::<HEADER_LEN>() else {
        return Ok(Decoded::Incomplete { needed: HEADER_LEN });
    };
    let body_len = usize::from(u16::from_be_bytes([high, low]));
    if body_len > MAX_BODY_LEN {
        return Err(MhpError::TooLong(body_len));
    }
    let len = HEADER_LEN + body_len;
    match bytes.get(HEADER_LEN..len) {
        None => Ok(Decoded::Incomplete { needed: len }),
        Some(body) => Ok(Decoded::Complete { message: decode_body(kind, Reader(body))?, len }),
    }
}

fn decode_body(kind: u8, mut body: Reader<'_>) -> Result<Message, MhpError> {
    match kind {
        TYPE_OPEN => {
            let [flags] = body.take("flags")?;
            let opening = if flags & FLAG_EARLY == 0 { Opening::Faithful } else { Opening::Early };
            let target = take_target(&mut body)?;
            let connection = match flags & FLAG_NUMBERED {
                0 => None,
                _ => Some(u64::from_be_bytes(body.take("connection")?)),
            };
            let source = match flags & FLAG_SOURCE {
                0 => None,
                _ => {
                    let [kind] = body.take("address kind")?;
                    Some(take_addr(&mut body, kind)?)
                }
            };
            let resumed = match flags & FLAG_RESUMED {
                0 => None,
                _ => {
                    let session = u64::from_be_bytes(body.take("session")?);
                    Some((SessionId(session), u32::from_be_bytes(body.take("turn")?)))
                }
            };
            Ok(Message::Open { opening, target, connection, source, resumed })
        }
        TYPE_OPENED => {
            let [kind] = body.take("address kind")?;
            Ok(Message::Opened { bound: take_addr(&mut body, kind)? })
        }
        TYPE_REFUSED => {
            let [code] = body.take("refusal code")?;
            let detail = u16::from_be_bytes(body.take("refusal detail")?);
            Ok(Message::Refused(Refusal::from_code(code, detail)))
        }
        TYPE_OFFER => {
            let [flags, kind] = body.take("flags")?;
            let to = take_addr(&mut body, kind)?;
            let [kind] = body.take("address kind")?;
            let from = take_addr(&mut body, kind)?;
            let connection = match flags & FLAG_NUMBERED {
                0 => None,
                _ => Some(u64::from_be_bytes(body.take("connection")?)),
            };
            Ok(Message::Offer { to, from, connection })
        }
        handoff::TYPE_REOPEN => Reopen::decode(&mut body).map(Message::Reopen),
        handoff::TYPE_REOPENED => Reopened::decode(&mut body).map(Message::Reopened),
        handoff::TYPE_CONTINUE => {
            Ok(Message::Continue { from: u64::from_be_bytes(body.take("first byte")?) })
        }
        handoff::TYPE_ROLL => Roll::decode(&mut body).map(Message::Roll),
        handoff::TYPE_PRESUMED => Presumed::decode(&mut body).map(Message::Presumed),
        _ => Err(MhpError::Type(kind)),
    }
}

fn put_target(out: &mut Vec<u8>, target: &Target) {
    match target {
        Target::Addr(addr) => put_addr(out, addr),
        Target::Name(name, port) => {
            out.push(ADDRESS_NAME);
            out.extend_from_slice(&port.to_be_bytes());
            // A HostName has at most 255 bytes.
            out.push(name.0.len() as u8);
            out.extend_from_slice(name.0.as_bytes());
        }
    }
}

fn put_addr(out: &mut Vec<u8>, addr: &SocketAddr) {
    out.push(if addr.is_ipv4() { ADDRESS_IPV4 } else { ADDRESS_IPV6 });
    out.extend_from_slice(&addr.port().to_be_bytes());
    match addr.ip() {
        IpAddr::V4(ip) => out.extend_from_slice(&ip.octets()),
        IpAddr::V6(ip) => out.extend_from_slice(&ip.octets()),
    }
}

fn take_target(body: &mut Reader<'_>) -> Result<Target, MhpError> {
    let [kind] = body.take("address kind")?;
    if kind != ADDRESS_NAME {
        return take_addr(body, kind).map(Target::Addr);
    }
    let port = u16::from_be_bytes(body.take("port")?);
    let [len] = body.take("name length")?;
    let name = body.take_slice(usize::from(len), "name")?;
    Ok(Target::Name(HostName::from_bytes(name)?, port))
}

fn take_addr(body: &mut Reader<'_>, kind: u8) -> Result<SocketAddr, MhpError> {
    if !matches!(kind, ADDRESS_IPV4 | ADDRESS_IPV6) {
        return Err(MhpError::Address(kind));
    }
    let port = u16::from_be_bytes(body.take("port")?);
    let ip: IpAddr = if kind == ADDRESS_IPV4 {
        Ipv4Addr::from(body.take::<4>("IPv4 address")?).into()
    } else {
        Ipv6Addr::from(body.take::<16>("IPv6 address")?).into()
    };
    Ok(SocketAddr::new(ip, port))
}

/// The part of a body that was not read yet.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], MhpError> {
        let (head, rest) = self.0.split_first_chunk().ok_or(MhpError::Truncated(field))?;
        self.0 = rest;
        Ok(*head)
    }

    fn take_slice(&mut self, n: usize, field: &'static str) -> Result<&'a [u8], MhpError> {
        let (head, rest) = self.0.split_at_checked(n).ok_or(MhpError::Truncated(field))?;
        self.0 = rest;
        Ok(head)
    }
}

#[cfg(test)]
mod tests;
