//! Reaching the wired sockets that an earlier base kept: who may, and the messages.
//!
//! These messages pass between two bases outside their handoffs, on an association of the new
//! base's own for that one session. Who has the sockets and what comes over that association then
//! is the worlds' matter.

use alloc::vec::Vec;

use lasthop_wire::mhp::handoff::{Datagram, Message, Reason, SessionId, Warrant};

use super::base::Base;
use super::entry::Asked;
use super::{Address, Authority, Denied};

/// A base's request for a session's wired sockets, found to be the mobile's will.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attach<A> {
    /// Which session.
    pub session: SessionId,
    /// In which handoff it came to the base that asks. Of two requests the later one is right.
    pub attempt: u32,
    /// Whose it is. The world must see to it that the sockets are that mobile's.
    pub mobile: A,
}

fn datagram(session: SessionId, attempt: u32, message: Message<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    Datagram { session, attempt, message }.encode(&mut out);
    out
}

impl<A: Address, T: Authority<A>> Base<A, T> {
    /// Asks `anchor` for the wired sockets of a session that is here; `None` if the mobile brought
    /// no grant to it.
    pub fn attach(&self, session: SessionId, anchor: A) -> Option<Vec<u8>> {
        let (mobile, attempt, grant) = self.attachable(session, anchor)?;
        let warrant = Warrant { mobile: mobile.to_name(), grant };
        Some(datagram(session, attempt, Message::Attach { warrant }))
    }

    /// Reads such a request from another base; `None` if it is none. One that is not allowed comes
    /// back as its answer, and is reported as [`Refused`](super::BaseEvent::Refused).
    ///
    /// # Errors
    ///
    /// The datagram that refuses it.
    pub fn check_attach(&mut self, from: A, bytes: &[u8]) -> Option<Result<Attach<A>, Vec<u8>>> {
        let Ok(Datagram { session, attempt, message: Message::Attach { warrant } }) =
            Datagram::decode(bytes)
        else {
            return None;
        };
        let allowed = self.may_attach(Asked { by: from, session, attempt }, &warrant);
        Some(allowed.map(|mobile| Attach { session, attempt, mobile }).map_err(|why| {
            self.note(from, session, why);
            refuse(session, attempt, why.reason())
        }))
    }

    fn may_attach(&self, asked: Asked<A>, warrant: &Warrant) -> Result<A, Denied> {
        if !self.authority.is_base(asked.by) {
            return Err(Denied::NotBase);
        }
        let mobile = self.warranted(asked, Some(warrant))?;
        match self.sessions.get(&asked.session) {
            Some(entry) if asked.attempt < entry.attempt => Err(Denied::Outdated),
            _ => mobile.ok_or(Denied::NoGrant),
        }
    }
}

/// The answer to [`Attach`]: its connections can be reopened.
pub fn attached<A>(attach: &Attach<A>) -> Vec<u8> {
    datagram(attach.session, attach.attempt, Message::Attached)
}

/// The answer to anything that cannot be.
pub fn refuse(session: SessionId, attempt: u32, reason: Reason) -> Vec<u8> {
    datagram(session, attempt, Message::Refuse(reason))
}

/// What was answered to [`Base::attach`] in that handoff; `None` if this is no answer to it.
///
/// # Errors
///
/// Why it was refused.
pub fn read_attached(bytes: &[u8], session: SessionId, attempt: u32) -> Option<Result<(), Reason>> {
    let datagram = Datagram::decode(bytes).ok()?;
    if (datagram.session, datagram.attempt) != (session, attempt) {
        return None;
    }
    match datagram.message {
        Message::Attached => Some(Ok(())),
        Message::Refuse(reason) => Some(Err(reason)),
        _ => None,
    }
}
