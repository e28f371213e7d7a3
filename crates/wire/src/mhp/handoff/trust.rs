//! What a mobile says of who may have its session.

use alloc::vec::Vec;

use super::super::MhpError;
use super::super::field::{Field, Reader, put};
use super::BaseName;

/// Grants that one [`Message::Greet`](super::Message::Greet) brings at most.
pub const GRANTS_MAX: usize = 16;

/// A mobile's word to one base, the holder: in this handoff the session goes to that other base.
///
/// These bytes are a keyed hash that only the mobile and the holder can make; whoever carries them
/// learns nothing from them. What they are made of is the seal's business (`docs/handoff.md`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Grant(pub [u8; Grant::LEN]);

impl Grant {
    /// Bytes of a grant.
    pub const LEN: usize = 16;
}

impl Field<'_> for Grant {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }

    fn take(body: &mut Reader<'_>, _: &'static str) -> Result<Self, MhpError> {
        body.take("grant").map(Self)
    }
}

/// By whose word a base asks another for a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Warrant {
    /// The mobile.
    pub mobile: BaseName,
    /// Its grant to the base that gets the request.
    pub grant: Grant,
}

impl Field<'_> for Warrant {
    fn put(&self, out: &mut Vec<u8>) {
        put!(out, self.mobile, self.grant);
    }

    fn take(body: &mut Reader<'_>, what: &'static str) -> Result<Self, MhpError> {
        Ok(Self { mobile: body.get(what)?, grant: body.get(what)? })
    }
}

/// None are not written; a peer that is too old to say has none.
impl Field<'_> for Vec<(BaseName, Grant)> {
    fn put(&self, out: &mut Vec<u8>) {
        let grants = &self[..self.len().min(GRANTS_MAX)];
        if !grants.is_empty() {
            out.push(grants.len() as u8);
        }
        grants.iter().for_each(|grant| grant.put(out));
    }

    fn take(body: &mut Reader<'_>, what: &'static str) -> Result<Self, MhpError> {
        let count: u8 = body.get::<Option<u8>>(what)?.unwrap_or(0);
        if usize::from(count) > GRANTS_MAX {
            return Err(MhpError::TooLong(usize::from(count)));
        }
        (0..count).map(|_| body.get(what)).collect()
    }
}
