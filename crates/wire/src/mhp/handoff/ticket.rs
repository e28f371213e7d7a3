//! What a mobile keeps of a connection so that another base can go on with it when its own has died.
//!
//! A base sends a [`TicketMessage`] when a connection stands, in the [envelope](Envelope) of datagrams of handoffs; whoever
//! is too old to know it skips it. Session and attempt are zero.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::super::field::{Field, Reader, flag, put};
use super::super::{HEADER_LEN, MhpError, VERSION};
use super::{COMMON_LEN, Envelope};

const TYPE_TICKET: u8 = 53;

/// What a base has made of a connection, opaque to the mobile, which can neither make nor change one.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Ticket(Box<[u8]>);

impl Ticket {
    /// Bytes of a ticket at most.
    pub const MAX: usize = 255;

    /// One of these bytes; `None` if they are too many.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (bytes.len() <= Self::MAX).then(|| Self(bytes.into()))
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Field<'_> for Ticket {
    fn put(&self, out: &mut Vec<u8>) {
        put!(out, self.0.len() as u8, &*self.0);
    }

    fn take(body: &mut Reader<'_>, what: &'static str) -> Result<Self, MhpError> {
        let len: u8 = body.get(what)?;
        body.take_slice(usize::from(len), what).map(|bytes| Self(bytes.into()))
    }
}

/// A connection of a mobile's, which goes on though its base has died. Offsets count the application's bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Orphan {
    /// Which.
    pub connection: u64,
    /// Bytes of the fixed host's that the mobile has.
    pub received: u64,
    /// It has the fixed host's end, too.
    pub received_end: bool,
    /// The first byte for the fixed host that the mobile still has.
    pub kept: u64,
    /// Behind the last byte that it has ever sent.
    pub sent: u64,
    /// It has sent its end.
    pub sent_end: bool,
    /// Its opening has no answer, and nothing was sent behind it: it can be opened anew.
    pub asking: bool,
    /// What the base has made of the connection, if it has.
    pub ticket: Option<Ticket>,
}

/// Connections that one [`Message::Orphans`](super::Message::Orphans) tells of at most.
pub const ORPHANS_MAX: usize = 40;

/// A flag of [`Message::Orphans`](super::Message::Orphans): no more follow.
pub const ORPHANS_LAST: u8 = 1;
/// What came before is part of an earlier answer.
pub const ORPHANS_FIRST: u8 = 2;

const FLAG_RECEIVED_END: u8 = 1;
const FLAG_SENT_END: u8 = 2;
const FLAG_ASKING: u8 = 4;

impl Field<'_> for Vec<Orphan> {
    fn put(&self, out: &mut Vec<u8>) {
        let orphans = &self[..self.len().min(ORPHANS_MAX)];
        out.push(orphans.len() as u8);
        for orphan in orphans {
            let Orphan { connection, received, kept, sent, ticket, .. } = orphan;
            let flags = flag(orphan.received_end, FLAG_RECEIVED_END)
                | flag(orphan.sent_end, FLAG_SENT_END)
                | flag(orphan.asking, FLAG_ASKING);
            put!(out, connection, received, kept, sent, flags);
            ticket.as_ref().unwrap_or(&Ticket(Box::default())).put(out);
        }
    }

    fn take(body: &mut Reader<'_>, what: &'static str) -> Result<Self, MhpError> {
        let count: u8 = body.get(what)?;
        if usize::from(count) > ORPHANS_MAX {
            return Err(MhpError::TooLong(usize::from(count)));
        }
        let one = |_| {
            let (connection, received) = body.get("connection")?;
            let (kept, sent) = body.get("connection's bytes")?;
            let flags: u8 = body.get("connection's flags")?;
            let is = |flag| flags & flag != 0;
            let ticket = Some(body.get::<Ticket>("ticket")?).filter(|t| !t.as_bytes().is_empty());
            let (received_end, sent_end) = (is(FLAG_RECEIVED_END), is(FLAG_SENT_END));
            let asking = is(FLAG_ASKING);
            Ok(Orphan { connection, received, received_end, kept, sent, sent_end, asking, ticket })
        };
        (0..count).map(one).collect()
    }
}

/// Base to mobile: keep this for as long as the connection is here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TicketMessage {
    /// Which.
    pub connection: u64,
    /// In place of the one before.
    pub ticket: Ticket,
}

impl TicketMessage {
    /// Adds the datagram to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut body = Vec::from([0; COMMON_LEN]);
        put!(&mut body, self.connection, self.ticket);
        out.extend_from_slice(&[VERSION, TYPE_TICKET]);
        (body.len() as u16).put(out);
        out.extend_from_slice(&body);
    }

    /// Reads a datagram; `None` if it says something else, or is cut short.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let envelope = Envelope::read(bytes)?;
        if (envelope.version, envelope.kind) != (VERSION, TYPE_TICKET) {
            return None;
        }
        let mut body = Reader(bytes.get(HEADER_LEN + COMMON_LEN..)?);
        let connection = body.get("connection").ok()?;
        Some(Self { connection, ticket: body.get("ticket").ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_come_out_as_they_went_in_and_never_cut_short() {
        let ticket = Ticket::new(&[7; Ticket::MAX]).expect("short enough");
        assert_eq!(Ticket::new(&[7; Ticket::MAX + 1]), None);
        let said = TicketMessage { connection: 1 << 40, ticket };
        let mut bytes = Vec::new();
        said.encode(&mut bytes);
        assert_eq!(TicketMessage::decode(&bytes), Some(said.clone()));
        for n in 0..bytes.len() {
            assert_eq!(TicketMessage::decode(&bytes[..n]), None);
        }
        bytes.push(1);
        assert_eq!(TicketMessage::decode(&bytes), Some(said), "more may follow");
        bytes[1] = 49;
        assert_eq!(TicketMessage::decode(&bytes), None);
    }
}
