//! Why a handoff comes to nothing, with codes that are stable on the wire.

use thiserror::Error;

use crate::kinds::numbered;

/// Why a handoff, or a part of it, is refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
pub enum Reason {
    /// Nobody holds the session's state.
    #[error("no base holds the session")]
    Unknown,
    /// The state is larger than the new base takes.
    #[error("the session's state is larger than the new base takes")]
    TooLarge,
    /// The base hands over as many sessions as it is allowed. Later it may.
    #[error("the new base is busy with other handoffs")]
    Busy,
    /// The base that holds the state did not answer.
    #[error("the base that holds the session does not answer")]
    Unreachable,
    /// The state could not be understood or rebuilt.
    #[error("the session's state cannot be rebuilt")]
    Malformed,
    /// A later handoff of the session is under way.
    #[error("a later handoff of the session is under way")]
    Outdated,
    /// The message, or the session's state, is of a version that is not understood.
    #[error("the base speaks another version of handoffs")]
    Version,
    /// The base or the mobile is not known, or the mobile has not granted it.
    #[error("the base does not know who asks, or the mobile has not granted it")]
    Unauthorised,
    /// A code that a newer peer sent.
    #[error("the base refused (code {0})")]
    Other(u8),
}

numbered!(Reason: u8 {
    Unknown = 1,
    TooLarge = 2,
    Busy = 3,
    Unreachable = 4,
    Malformed = 5,
    Outdated = 6,
    Version = 7,
    Unauthorised = 8,
});

impl Reason {
    /// The code on the wire.
    pub const fn code(self) -> u8 {
        match self {
            Self::Other(code) => code,
            named => named.number(),
        }
    }

    /// The reason that a peer meant by `code`.
    pub fn from_code(code: u8) -> Self {
        Self::of_number(code).unwrap_or(Self::Other(code))
    }
}
