//! What a mobile says of who may have its session.

use alloc::vec::Vec;

use super::super::{MhpError, Reader};
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

    fn take(body: &mut Reader<'_>) -> Result<Self, MhpError> {
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

impl Warrant {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        self.mobile.put(out);
        out.extend_from_slice(&self.grant.0);
    }

    pub(super) fn take(body: &mut Reader<'_>) -> Result<Self, MhpError> {
        Ok(Self { mobile: BaseName::take(body)?, grant: Grant::take(body)? })
    }

    /// Absent where the sender had none, or is too old to say.
    pub(super) fn take_last(body: &mut Reader<'_>) -> Result<Option<Self>, MhpError> {
        if body.0.is_empty() { Ok(None) } else { Self::take(body).map(Some) }
    }
}

pub(super) fn put_grants(out: &mut Vec<u8>, grants: &[(BaseName, Grant)]) {
    if grants.is_empty() {
        return;
    }
    let grants = &grants[..grants.len().min(GRANTS_MAX)];
    out.push(grants.len() as u8);
    for (holder, grant) in grants {
        holder.put(out);
        out.extend_from_slice(&grant.0);
    }
}

/// None where the sender is too old to say.
pub(super) fn take_grants(body: &mut Reader<'_>) -> Result<Vec<(BaseName, Grant)>, MhpError> {
    if body.0.is_empty() {
        return Ok(Vec::new());
    }
    let [count] = body.take("number of grants")?;
    if usize::from(count) > GRANTS_MAX {
        return Err(MhpError::TooLong(usize::from(count)));
    }
    let one = |_| Ok((BaseName::take(body)?, Grant::take(body)?));
    (0..count).map(one).collect()
}
