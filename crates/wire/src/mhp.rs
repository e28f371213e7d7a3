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
use core::net::{IpAddr, SocketAddr};

use thiserror::Error;

mod field;
pub mod fleet;
pub mod flow_worth;
pub mod handoff;
mod outcome;
pub mod reach;
pub mod transit;
pub mod udp_relay;

use field::{Field, Reader, flag, put};
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

impl Opening {
    const fn of_flags(flags: u8) -> Self {
        if flags & FLAG_EARLY == 0 { Self::Faithful } else { Self::Early }
    }
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
                let flags = flag(*opening == Opening::Early, FLAG_EARLY)
                    | flag(connection.is_some(), FLAG_NUMBERED)
                    | flag(source.is_some(), FLAG_SOURCE)
                    | flag(resumed.is_some(), FLAG_RESUMED);
                put!(out, flags, target, connection, source, resumed);
            }
            Self::Opened { bound } => bound.put(out),
            Self::Refused(refusal) => refusal.put(out),
            Self::Offer { to, from, connection } => {
                put!(out, flag(connection.is_some(), FLAG_NUMBERED), to, from, connection);
            }
            Self::Reopen(reopen) => reopen.encode(out),
            Self::Reopened(reopened) => reopened.encode(out),
            Self::Continue { from } => from.put(out),
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
            let flags: u8 = body.get("flags")?;
            let is = |flag| flags & flag != 0;
            Ok(Message::Open {
                opening: Opening::of_flags(flags),
                target: body.get("address kind")?,
                connection: body.take_if(is(FLAG_NUMBERED), "connection")?,
                source: body.take_if(is(FLAG_SOURCE), "address kind")?,
                resumed: body.take_if(is(FLAG_RESUMED), "session")?,
            })
        }
        TYPE_OPENED => Ok(Message::Opened { bound: body.get("address kind")? }),
        TYPE_REFUSED => Ok(Message::Refused(body.get("refusal")?)),
        TYPE_OFFER => {
            let flags: u8 = body.get("flags")?;
            let (to, from) = body.get("address kind")?;
            let connection = body.take_if(flags & FLAG_NUMBERED != 0, "connection")?;
            Ok(Message::Offer { to, from, connection })
        }
        handoff::TYPE_REOPEN => Reopen::decode(&mut body).map(Message::Reopen),
        handoff::TYPE_REOPENED => Reopened::decode(&mut body).map(Message::Reopened),
        handoff::TYPE_CONTINUE => Ok(Message::Continue { from: body.get("first byte")? }),
        handoff::TYPE_ROLL => Roll::decode(&mut body).map(Message::Roll),
        handoff::TYPE_PRESUMED => Presumed::decode(&mut body).map(Message::Presumed),
        _ => Err(MhpError::Type(kind)),
    }
}

#[cfg(test)]
mod tests;
