//! Why a handoff comes to nothing, with codes that are stable on the wire.

use core::fmt;

/// Why a handoff, or a part of it, is refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reason {
    /// Nobody holds the session's state.
    Unknown,
    /// The state is larger than the new base takes.
    TooLarge,
    /// The base hands over as many sessions as it is allowed. Later it may.
    Busy,
    /// The base that holds the state did not answer.
    Unreachable,
    /// The state could not be understood or rebuilt.
    Malformed,
    /// A later handoff of the session is under way.
    Outdated,
    /// The message, or the session's state, is of a version that is not understood.
    Version,
    /// The base or the mobile is not known, or the mobile has not granted it.
    Unauthorised,
    /// A code that a newer peer sent.
    Other(u8),
}

impl Reason {
    /// The code on the wire.
    pub const fn code(self) -> u8 {
        match self {
            Self::Unknown => 1,
            Self::TooLarge => 2,
            Self::Busy => 3,
            Self::Unreachable => 4,
            Self::Malformed => 5,
            Self::Outdated => 6,
            Self::Version => 7,
            Self::Unauthorised => 8,
            Self::Other(code) => code,
        }
    }

    /// The reason that a peer meant by `code`.
    pub const fn from_code(code: u8) -> Self {
        match code {
            1 => Self::Unknown,
            2 => Self::TooLarge,
            3 => Self::Busy,
            4 => Self::Unreachable,
            5 => Self::Malformed,
            6 => Self::Outdated,
            7 => Self::Version,
            8 => Self::Unauthorised,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("no base holds the session"),
            Self::TooLarge => f.write_str("the session's state is larger than the new base takes"),
            Self::Busy => f.write_str("the new base is busy with other handoffs"),
            Self::Unreachable => f.write_str("the base that holds the session does not answer"),
            Self::Malformed => f.write_str("the session's state cannot be rebuilt"),
            Self::Outdated => f.write_str("a later handoff of the session is under way"),
            Self::Version => f.write_str("the base speaks another version of handoffs"),
            Self::Unauthorised => {
                f.write_str("the base does not know who asks, or the mobile has not granted it")
            }
            Self::Other(code) => write!(f, "the base refused (code {code})"),
        }
    }
}
