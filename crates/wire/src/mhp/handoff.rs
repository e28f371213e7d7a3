//! Messages of a handoff (MHP-15..MHP-23, MOB-39..MOB-41): those at the start of streams that carry connections on,
//! and datagrams between a mobile and its bases.
//!
//! Stream messages have the header of every MHP message. Datagrams have the same header and then,
//! each, a path (one byte, zero for now), flags (one byte), the session (eight) and the attempt
//! (four): a session's handoffs are numbered by the mobile, and a later number outdoes an earlier.
//! Bodies may be longer than this version knows; the rest is skipped. Everything up to the attempt
//! is where it is in every version (see [`Envelope`]).

use alloc::vec::Vec;
use core::fmt;
use core::net::SocketAddr;
use core::ops::RangeInclusive;

use super::field::{Field, Reader, flag, put, take_addr};
use super::{FLAG_EARLY, HEADER_LEN, MhpError, Opening, Target, VERSION};
use crate::varint;

mod message;
mod reason;
mod state;
#[cfg(test)]
mod tests;
mod ticket;
mod trust;

pub use reason::Reason;
pub use state::{ConnectionState, Direction, Ended, SessionState, Stage, StateError};
pub use ticket::{ORPHANS_FIRST, ORPHANS_LAST, ORPHANS_MAX, Orphan, Ticket, TicketMessage};
pub use trust::{GRANTS_MAX, Grant, Warrant};

pub(super) const TYPE_PRESUMED: u8 = 15;
pub(super) const TYPE_CONTINUE: u8 = 16;
pub(super) const TYPE_REOPENED: u8 = 17;
pub(super) const TYPE_ROLL: u8 = 18;
pub(super) const TYPE_REOPEN: u8 = 19;
const FLAG_ENDED: u8 = 2;
const FLAG_ASKING: u8 = 4;
const FLAG_SOURCE: u8 = 8;
const FLAG_RETAINS: u8 = 16;
const FLAG_LAST: u8 = 1;
const FLAG_CRITICAL: u8 = 1;
const FLAG_OVER: u8 = 1;
const FLAG_TENTATIVE: u8 = 4;

/// Types of the datagrams of a handoff, of this version and of later ones. Where a session carries
/// them, a stream that begins with one is no connection's.
pub const DATAGRAM_TYPES: RangeInclusive<u8> = 20..=63;
/// Connections that one [`Roll`] names at most: with eight bytes each it fits every body.
pub const ROLL_MAX: usize = 120;
/// Bytes of a connection in one [`Presumed`] at most: it fits a body, and a datagram of the least MTU.
pub const PRESUMED_MAX: usize = 960;
/// The longest name of a base, in bytes.
pub const MAX_BASE_NAME_LEN: usize = 64;
/// Ranges that one [`Message::Pull`] asks for at most.
pub const PULL_MAX: usize = 16;
/// Bytes of a [`Message::State`] or [`Message::Ahead`] datagram in front of its piece.
pub const STATE_OVERHEAD: usize = HEADER_LEN + COMMON_LEN + 20;

/// Bytes of the envelope behind the header.
pub(super) const COMMON_LEN: usize = 14;

/// Names a mobile's session at every base: chosen by the mobile, the same for its whole life. Where mobiles have keys
/// its first bytes are those of the mobile's: what serves only some of a base's mobiles tells by them whether it may
/// be one of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId(pub u64);

impl SessionId {
    /// A session of the mobile with this key.
    pub const fn of_mobile(key: &[u8; 32], random: u64) -> Self {
        let [_, _, rest @ ..] = random.to_be_bytes();
        let [a, b, c, d, e, f] = rest;
        Self(u64::from_be_bytes([key[0], key[1], a, b, c, d, e, f]))
    }

    /// The first bytes of the mobile's key.
    pub const fn tag(self) -> [u8; 2] {
        let [a, b, ..] = self.0.to_be_bytes();
        [a, b]
    }
}

impl Field<'_> for SessionId {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }

    fn take(body: &mut Reader<'_>, what: &'static str) -> Result<Self, MhpError> {
        body.get(what).map(Self)
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Mobile to base, first on a stream: carry this connection on (MHP-18, MHP-19). The connection's bytes
/// follow behind [`Message::Continue`](super::Message::Continue), before the answer or after it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reopen {
    /// Whose.
    pub session: SessionId,
    /// Which: the number of the stream that carried the connection at first.
    pub connection: u64,
    /// The next byte of the connection that the mobile expects from the base.
    pub expected: u64,
    /// The first byte that the mobile still has for the base.
    pub kept: u64,
    /// The mobile has the base's end.
    pub ended: bool,
    /// The mobile keeps what it sends on this stream until the base releases it (SRP-48).
    pub retains: bool,
    /// The mobile has no answer to its opening yet.
    pub asking: Option<Asking>,
    /// How often the mobile has resumed, this time included; zero from a peer that is too old to say.
    pub turn: u32,
}

/// An opening without an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asking {
    /// How it was asked.
    pub opening: Opening,
    /// Where to.
    pub target: Target,
    /// The application's own address, where the base is to know it.
    pub source: Option<SocketAddr>,
}

/// Base to mobile, in answer to [`Reopen`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reopened {
    /// The next byte of the connection that the base expects from the mobile.
    pub expected: u64,
    /// The base has the mobile's end.
    pub ended: bool,
    /// Everything was delivered both ways: nothing is left to carry.
    pub over: bool,
    /// The base has the connection's state and may not use it yet: what the mobile sends may have to be
    /// sent to another base again, until it receives Resume.
    pub tentative: bool,
    /// The surrogate's own end of the connection to the fixed host.
    pub bound: Option<SocketAddr>,
}

/// Mobile to base, on a stream of its own: the connections that live. What the base holds beside
/// them is over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Roll {
    /// Whose.
    pub session: SessionId,
    /// Rising numbers, after those of the rolls before; at most [`ROLL_MAX`].
    pub connections: Vec<u64>,
    /// There are no more.
    pub last: bool,
    /// As in [`Reopen::turn`].
    pub turn: u32,
}

/// Mobile to base, on a stream of its own behind [`Reopen`]: bytes of a connection, from the first on that
/// the base presumably lacks. Where the presumption is wrong they are of no use, and do no harm: the mobile
/// keeps them, and sends what the base [expects](Reopened::expected).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Presumed {
    /// Whose.
    pub session: SessionId,
    /// As in [`Reopen::turn`].
    pub turn: u32,
    /// Which connection.
    pub connection: u64,
    /// The offset in the connection of the first byte.
    pub from: u64,
    /// At most [`PRESUMED_MAX`].
    pub bytes: Vec<u8>,
    /// No more follow.
    pub last: bool,
}

impl Reopen {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let asking = self.asking.as_ref();
        let source = asking.and_then(|asking| asking.source);
        let flags = flag(asking.is_some_and(|a| a.opening == Opening::Early), FLAG_EARLY)
            | flag(self.ended, FLAG_ENDED)
            | flag(asking.is_some(), FLAG_ASKING)
            | flag(source.is_some(), FLAG_SOURCE)
            | flag(self.retains, FLAG_RETAINS);
        let Self { session, connection, expected, kept, turn, .. } = self;
        put!(out, 0u8, flags, session, connection, expected, kept);
        if let Some(asking) = asking {
            put!(out, asking.target, source);
        }
        turn.put(out);
    }

    pub(super) fn decode(body: &mut Reader<'_>) -> Result<Self, MhpError> {
        let [_path, flags] = body.take("flags")?;
        let is = |flag| flags & flag != 0;
        let (session, connection) = body.get("session")?;
        let (expected, kept) = body.get("expected byte")?;
        let asking = match is(FLAG_ASKING) {
            false => None,
            true => Some(Asking {
                opening: Opening::of_flags(flags),
                target: body.get("address kind")?,
                source: if is(FLAG_SOURCE) { take_bound(body)? } else { None },
            }),
        };
        let (ended, retains, turn) = (is(FLAG_ENDED), is(FLAG_RETAINS), take_turn(body));
        Ok(Self { session, connection, expected, kept, ended, retains, asking, turn })
    }
}

impl Reopened {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let flags = flag(self.over, FLAG_OVER)
            | flag(self.ended, FLAG_ENDED)
            | flag(self.tentative, FLAG_TENTATIVE);
        put!(out, flags, self.expected);
        put_bound(out, self.bound);
    }

    pub(super) fn decode(body: &mut Reader<'_>) -> Result<Self, MhpError> {
        let flags: u8 = body.get("flags")?;
        let is = |flag| flags & flag != 0;
        let (ended, over, tentative) = (is(FLAG_ENDED), is(FLAG_OVER), is(FLAG_TENTATIVE));
        let expected = body.get("expected byte")?;
        Ok(Self { expected, ended, over, tentative, bound: take_bound(body)? })
    }
}

impl Presumed {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let Self { session, turn, connection, from, .. } = self;
        let bytes = &self.bytes[..self.bytes.len().min(PRESUMED_MAX)];
        put!(out, flag(self.last, FLAG_LAST), session, turn, connection, from);
        put!(out, bytes.len() as u16, bytes);
    }

    pub(super) fn decode(body: &mut Reader<'_>) -> Result<Self, MhpError> {
        let flags: u8 = body.get("flags")?;
        let (session, turn) = body.get("session")?;
        let (connection, from) = body.get("connection")?;
        let len = usize::from(body.get::<u16>("length")?);
        if len > PRESUMED_MAX {
            return Err(MhpError::TooLong(len));
        }
        let bytes = body.take_slice(len, "bytes")?.to_vec();
        Ok(Self { session, turn, connection, from, bytes, last: flags & FLAG_LAST != 0 })
    }
}

impl Roll {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let connections = &self.connections[..self.connections.len().min(ROLL_MAX)];
        put!(out, flag(self.last, FLAG_LAST), self.session, connections.len() as u8);
        let mut before = 0;
        for id in connections {
            varint::push(out, id.saturating_sub(before));
            before = *id;
        }
        self.turn.put(out);
    }

    pub(super) fn decode(body: &mut Reader<'_>) -> Result<Self, MhpError> {
        let flags: u8 = body.get("flags")?;
        let session = body.get("session")?;
        let count: u8 = body.get("count")?;
        if usize::from(count) > ROLL_MAX {
            return Err(MhpError::TooLong(usize::from(count)));
        }
        let mut connections = Vec::with_capacity(usize::from(count));
        let mut before: u64 = 0;
        for _ in 0..count {
            before = before.saturating_add(body.take_varint("connection")?);
            connections.push(before);
        }
        Ok(Self { session, connections, last: flags & FLAG_LAST != 0, turn: take_turn(body) })
    }
}

fn take_turn(body: &mut Reader<'_>) -> u32 {
    body.get("turn").unwrap_or(0)
}

/// An address, or the kind 0 for none.
fn put_bound(out: &mut Vec<u8>, bound: Option<SocketAddr>) {
    match bound {
        Some(bound) => bound.put(out),
        None => out.push(0),
    }
}

fn take_bound(body: &mut Reader<'_>) -> Result<Option<SocketAddr>, MhpError> {
    match body.get("address kind")? {
        0 => Ok(None),
        kind => take_addr(body, kind).map(Some),
    }
}

/// A base's address as the worlds name it to each other: opaque bytes, at most
/// [`MAX_BASE_NAME_LEN`].
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct BaseName(Vec<u8>);

impl BaseName {
    /// A name of these bytes; `None` if they are too many.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (bytes.len() <= MAX_BASE_NAME_LEN).then(|| Self(bytes.to_vec()))
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Field<'_> for BaseName {
    fn put(&self, out: &mut Vec<u8>) {
        // At most MAX_BASE_NAME_LEN bytes.
        put!(out, self.0.len() as u8, self.0.as_slice());
    }

    fn take(body: &mut Reader<'_>, _: &'static str) -> Result<Self, MhpError> {
        let len: u8 = body.get("name length")?;
        let name = body.take_slice(usize::from(len), "base's name")?;
        Self::new(name).ok_or(MhpError::TooLong(name.len()))
    }
}

/// A run of pieces that is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pieces {
    /// The first piece's number, from zero.
    pub first: u32,
    /// How many.
    pub count: u16,
}

/// Names the first bytes of a copy of a state, as two bases know them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyName {
    /// How many they are.
    pub len: u64,
    /// Their digest.
    pub digest: u64,
}

impl CopyName {
    /// Says that there is none where more follows.
    const NONE: Self = Self { len: 0, digest: 0 };

    /// Absent where the sender had none, or is too old to say.
    fn take(body: &mut Reader<'_>) -> Option<Self> {
        let (len, digest) = body.get("copy's name").ok()?;
        Some(Self { len, digest }).filter(|copy| *copy != Self::NONE)
    }
}

/// What a datagram of a handoff says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message<'a> {
    /// Mobile to new base: carry my session on; that base may hold its state (MHP-15).
    Greet {
        /// The last base that the mobile knows to hold the state.
        holder: BaseName,
        /// The number of the state that it got; zero if the session began there.
        since: u32,
        /// For each base that may hold the state, the mobile's word to it that it goes to the base
        /// greeted; at most [`GRANTS_MAX`].
        grants: Vec<(BaseName, Grant)>,
    },
    /// New base to mobile: the session stands here (MHP-18).
    Resume {
        /// The number of the state that it was rebuilt from.
        since: u32,
    },
    /// New base to old: give me the session (MHP-16).
    Handover {
        /// The most bytes of state that the new base takes.
        limit: u64,
        /// Bytes in each piece of the state.
        piece: u16,
        /// Pieces to send at once, from the first.
        window: u16,
        /// The number of the state that the old base is thought to have got.
        since: u32,
        /// What came of a copy of the state [ahead](Self::Ahead), if anything did: what it has need
        /// not come again (MOB-40).
        copy: Option<CopyName>,
        /// Who wants it; absent between bases that ask for no grants.
        warrant: Option<Warrant>,
    },
    /// New base to old: these pieces are missing.
    Pull {
        /// Bytes in each piece.
        piece: u16,
        /// At most [`PULL_MAX`].
        pieces: Vec<Pieces>,
    },
    /// Old base to new: a piece of the state (MHP-17).
    State {
        /// The state's generation. It rises whenever a session is frozen or given, so that pieces of two
        /// states never mix, and of two opinions who has the session the later one is right.
        generation: u32,
        /// Bytes of the whole.
        total: u64,
        /// Where this piece begins.
        offset: u64,
        /// The piece.
        bytes: &'a [u8],
    },
    /// New base to old: I have it all; may I use it?
    Commit {
        /// As in [`State`](Self::State).
        generation: u32,
        /// As in [`Handover`](Self::Handover).
        warrant: Option<Warrant>,
    },
    /// Old base to new: it is yours, and nobody else's.
    Committed {
        /// As in [`State`](Self::State).
        generation: u32,
    },
    /// Old base to new: it was used here since, ask anew.
    Superseded {
        /// As in [`State`](Self::State).
        generation: u32,
    },
    /// Base to base: that one has it.
    Moved {
        /// Who.
        to: BaseName,
        /// The number of the state that it got.
        since: u32,
    },
    /// To mobile or base: this cannot be.
    Refuse(Reason),
    /// Mobile to its base: a handoff to that base is imminent (MOB-39).
    Expect {
        /// The candidate.
        candidate: BaseName,
    },
    /// The answer: the candidate is being sent what can be sent now; or will not be.
    Expected {
        /// As in [`Expect`](Self::Expect).
        candidate: BaseName,
        /// Why not.
        refused: Option<Reason>,
    },
    /// Base to candidate: a piece of a copy of the state, to be had before it is needed (MOB-39).
    Ahead {
        /// The copy's number; it rises.
        number: u32,
        /// Bytes of the whole.
        total: u64,
        /// Where this piece begins.
        offset: u64,
        /// The piece.
        bytes: &'a [u8],
    },
    /// Candidate to base: these pieces of the copy are missing.
    Fetch {
        /// As in [`Ahead`](Self::Ahead).
        number: u32,
        /// Bytes in each piece.
        piece: u16,
        /// At most [`PULL_MAX`].
        pieces: Vec<Pieces>,
    },
    /// Candidate to base: that copy is here.
    Have {
        /// As in [`Ahead`](Self::Ahead). Zero: none is here, and what came builds on one.
        number: u32,
    },
    /// Base to the one that keeps a session's wired sockets: give me their bytes from here on.
    Attach {
        /// By whose word, for the handoff that brought the session here.
        warrant: Warrant,
    },
    /// The answer: their connections can be reopened.
    Attached,
    /// Mobile to the base that it is with, as their association begins: what was granted in earlier
    /// handoffs is void.
    Here {
        /// The number of the state that this base got; zero if the session began here.
        since: u32,
    },
    /// New base to mobile: the base that has the session is silent; is it to go on here from what the mobile has?
    TakeOver,
    /// The answer: it is, from this. From here on the mobile takes the session to be there.
    Orphans {
        /// [`ORPHANS_FIRST`] and [`ORPHANS_LAST`].
        flags: u8,
        /// How long nothing has come from the base that had it, milliseconds.
        silent: u32,
        /// At most [`ORPHANS_MAX`].
        orphans: Vec<Orphan>,
    },
}

/// What all versions say of a datagram at the same place, so that even what cannot be read can be
/// refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// The sender's version.
    pub version: u8,
    /// The message's type.
    pub kind: u8,
    /// Whoever does not know the type is to refuse it; without that it is skipped.
    pub critical: bool,
    /// Whose.
    pub session: SessionId,
    /// Which of the session's handoffs.
    pub attempt: u32,
}

impl Envelope {
    /// Reads a datagram's first bytes; `None` if there are too few.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (&[version, kind, ..], body) = bytes.split_first_chunk::<HEADER_LEN>()?;
        let mut body = Reader(body);
        let [_path, flags] = body.take("flags").ok()?;
        let (session, attempt) = body.get("session").ok()?;
        Some(Self { version, kind, critical: flags & FLAG_CRITICAL != 0, session, attempt })
    }

    /// Whether it says itself that something is refused. A refusal is never refused, or two bases
    /// would never stop.
    pub fn is_refusal(&self) -> bool {
        self.kind == message::TYPE_REFUSE
    }
}

/// A datagram of a handoff.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Datagram<'a> {
    /// Whose.
    pub session: SessionId,
    /// Which of the session's handoffs.
    pub attempt: u32,
    /// What it says.
    pub message: Message<'a>,
}

impl<'a> Datagram<'a> {
    /// Appends the datagram to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[VERSION, self.message.kind(), 0, 0, 0, 0]);
        put!(out, self.session, self.attempt);
        self.message.encode(out);
        let body = u16::try_from(out.len() - start - HEADER_LEN).unwrap_or(u16::MAX);
        out[start + 2..start + HEADER_LEN].copy_from_slice(&body.to_be_bytes());
    }

    /// Reads a datagram.
    ///
    /// # Errors
    ///
    /// It is of another version or type, or ends inside a field.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, MhpError> {
        let Some((&[version, kind, high, low], rest)) = bytes.split_first_chunk::<HEADER_LEN>()
        else {
            return Err(MhpError::Truncated("header"));
        };
        if version != VERSION {
            return Err(MhpError::Version(version));
        }
        let len = usize::from(u16::from_be_bytes([high, low]));
        let mut body = Reader(rest.get(..len).ok_or(MhpError::Truncated("body"))?);
        let [_path, _flags] = body.take("flags")?;
        let (session, attempt) = body.get("session")?;
        Ok(Self { session, attempt, message: Message::decode(kind, body)? })
    }
}
