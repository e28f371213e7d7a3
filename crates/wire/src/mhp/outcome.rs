//! How an opening or a connection ended, with codes that are stable on the wire.

use thiserror::Error;

use crate::kinds::numbered;

// The numbers of Linux's asm-generic/errno.h. They are part of the format: `Other` carries one.
const EPERM: i32 = 1;
const EACCES: i32 = 13;
const ENETUNREACH: i32 = 101;
const ECONNRESET: i32 = 104;
const ETIMEDOUT: i32 = 110;
const ECONNREFUSED: i32 = 111;
const EHOSTUNREACH: i32 = 113;
const EIO: i32 = 5;
const EAGAIN: i32 = 11;

/// Why there is no connection: the error of `connect` or the resolver at the base, or the base itself
/// (MHP-5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
pub enum Refusal {
    /// ECONNREFUSED: the fixed host answered with a reset.
    #[error("connection refused")]
    Refused,
    /// ENETUNREACH.
    #[error("network unreachable")]
    NetworkUnreachable,
    /// EHOSTUNREACH.
    #[error("host unreachable")]
    HostUnreachable,
    /// ETIMEDOUT: nothing answered.
    #[error("connection timed out")]
    TimedOut,
    /// ECONNRESET: it stood and was reset before the mobile could be notified.
    #[error("connection reset while opening")]
    ConnectionReset,
    /// EACCES or EPERM: the base's kernel or firewall forbids it.
    #[error("forbidden by the base's system")]
    NotPermitted,
    /// The resolver says that the name does not exist.
    #[error("the name does not exist")]
    NameNotFound,
    /// The resolver could not answer; later it may.
    #[error("the name could not be resolved for now")]
    ResolverFailed,
    /// The base's configuration does not allow this target to this mobile.
    #[error("not allowed by the base's configuration")]
    NotAllowed,
    /// The base has as many connections, or as many unanswered openings, as it is allowed.
    #[error("too many connections")]
    TooMany,
    /// The base is shutting down.
    #[error("the base is shutting down")]
    ShuttingDown,
    /// The peer did not use MHP, or not this version.
    #[error("the peer does not speak this version of MHP")]
    Protocol,
    /// The association with the base was lost.
    #[error("the association with the base was lost")]
    AssociationLost,
    /// Another error of `connect`, by its Linux number; zero if even that is not known.
    #[error("connecting failed (errno {0})")]
    Other(u16),
    /// A code that a newer peer sent.
    #[error("connecting failed (code {0})")]
    Unknown(u8),
}

numbered!(Refusal: u8 {
    Refused = 1,
    NetworkUnreachable = 2,
    HostUnreachable = 3,
    TimedOut = 4,
    ConnectionReset = 5,
    NotPermitted = 6,
    NameNotFound = 7,
    ResolverFailed = 8,
    NotAllowed = 9,
    TooMany = 10,
    ShuttingDown = 11,
    Protocol = 12,
    AssociationLost = 13,
});

impl Refusal {
    const OTHER: u8 = 255;

    /// The code on the wire.
    pub const fn code(self) -> u8 {
        match self {
            Self::Unknown(code) => code,
            Self::Other(_) => Self::OTHER,
            named => named.number(),
        }
    }

    /// What goes with the code on the wire: the errno of [`Other`](Self::Other), else zero.
    pub const fn detail(self) -> u16 {
        match self {
            Self::Other(errno) => errno,
            _ => 0,
        }
    }

    /// The refusal that a peer meant by `code` and `detail`.
    pub fn from_code(code: u8, detail: u16) -> Self {
        match Self::of_number(code) {
            Some(named) => named,
            None if code == Self::OTHER => Self::Other(detail),
            None => Self::Unknown(code),
        }
    }

    /// The refusal for what `connect` returned, by its Linux errno.
    pub fn from_errno(errno: i32) -> Self {
        match errno {
            ECONNREFUSED => Self::Refused,
            ENETUNREACH => Self::NetworkUnreachable,
            EHOSTUNREACH => Self::HostUnreachable,
            ETIMEDOUT => Self::TimedOut,
            ECONNRESET => Self::ConnectionReset,
            EACCES | EPERM => Self::NotPermitted,
            other => Self::Other(u16::try_from(other).unwrap_or(0)),
        }
    }

    /// The Linux errno that an interposed `connect` should return.
    pub const fn errno(self) -> i32 {
        match self {
            Self::Refused => ECONNREFUSED,
            Self::NetworkUnreachable => ENETUNREACH,
            Self::HostUnreachable | Self::NameNotFound | Self::AssociationLost => EHOSTUNREACH,
            Self::TimedOut => ETIMEDOUT,
            Self::ConnectionReset => ECONNRESET,
            Self::NotPermitted | Self::NotAllowed => EACCES,
            Self::ResolverFailed | Self::TooMany => EAGAIN,
            Self::ShuttingDown => ENETUNREACH,
            Self::Other(errno) if errno != 0 => errno as i32,
            Self::Other(_) | Self::Protocol | Self::Unknown(_) => EIO,
        }
    }
}

/// Why a stream was given up: the session's meaning of a transport's reset code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
pub enum ResetReason {
    /// The TCP peer on that side sent a reset, or its application gave up.
    #[error("the application or the fixed host reset the connection")]
    Aborted,
    /// Somebody's rules ended the connection.
    #[error("ended by policy")]
    Policy,
    /// Nothing happened for too long.
    #[error("timed out")]
    TimedOut,
    /// The peer is shutting down.
    #[error("the peer is shutting down")]
    Shutdown,
    /// This side sent something that is not MHP.
    #[error("MHP was not understood")]
    Protocol,
    /// The association was lost and the connection with it. Never sent: nobody could receive it.
    #[error("the association was lost")]
    AssociationLost,
    /// There is no connection; how an early opening learns it.
    #[error("{0}")]
    Refused(Refusal),
    /// A code that a newer peer sent.
    #[error("reset (code {0})")]
    Unknown(u64),
}

numbered!(ResetReason: u64 {
    Aborted = 1,
    Policy = 2,
    TimedOut = 3,
    Shutdown = 4,
    Protocol = 5,
    AssociationLost = 6,
});

impl ResetReason {
    /// A refusal's code is this, plus the refusal's own code, plus 65536 times its detail.
    const REFUSED: u64 = 0x100;

    /// The code on the wire; of all but `Unknown` below 2³².
    pub const fn code(self) -> u64 {
        match self {
            Self::Refused(r) => Self::REFUSED | r.code() as u64 | (r.detail() as u64) << 16,
            Self::Unknown(code) => code,
            named => named.number(),
        }
    }

    /// The reason that a peer meant by `code`.
    pub fn from_code(code: u64) -> Self {
        match Self::of_number(code) {
            Some(named) => named,
            // Eight bits of code, then the flag bit, then sixteen bits of detail from bit 16.
            None if code & !0xffff_00ff == Self::REFUSED => {
                Self::Refused(Refusal::from_code(code as u8, (code >> 16) as u16))
            }
            None => Self::Unknown(code),
        }
    }

    /// What a reset means to somebody who still waits for the opening's result.
    pub const fn as_refusal(self) -> Refusal {
        match self {
            Self::Refused(refusal) => refusal,
            Self::Aborted => Refusal::ConnectionReset,
            Self::Policy => Refusal::NotAllowed,
            Self::TimedOut => Refusal::TimedOut,
            Self::Shutdown => Refusal::ShuttingDown,
            Self::Protocol => Refusal::Protocol,
            Self::AssociationLost => Refusal::AssociationLost,
            Self::Unknown(_) => Refusal::Other(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_survives_its_code_alone_and_within_a_reset() {
        let families = [Refusal::Other(0), Refusal::Other(99), Refusal::Other(u16::MAX)];
        for refusal in Refusal::NAMED.into_iter().chain(families).chain([Refusal::Unknown(200)]) {
            assert_eq!(Refusal::from_code(refusal.code(), refusal.detail()), refusal);
            let reset = ResetReason::Refused(refusal);
            assert_eq!(ResetReason::from_code(reset.code()), reset);
            assert_eq!(reset.as_refusal(), refusal);
        }
    }

    #[test]
    fn every_reset_survives_its_code() {
        for code in (0..0x400).chain([u64::MAX, 1 << 32, 0x100 | 1 << 32, 0x1_0001]) {
            assert_eq!(ResetReason::from_code(code).code() & !0xffff_0000, code & !0xffff_0000);
        }
        assert_eq!(ResetReason::from_code(0), ResetReason::Unknown(0));
        assert_eq!(ResetReason::from_code(0x100 | 1 << 32), ResetReason::Unknown(0x1_0000_0100));
        assert_eq!(ResetReason::from_code(0x1ff), ResetReason::Refused(Refusal::Other(0)));
    }

    /// MHP-5: the mobile's `connect` fails with the fixed host's own error.
    #[test]
    fn an_errno_comes_back_as_itself() {
        for errno in [ECONNREFUSED, ENETUNREACH, EHOSTUNREACH, ETIMEDOUT, ECONNRESET, EACCES, 99] {
            assert_eq!(Refusal::from_errno(errno).errno(), errno);
        }
        assert_eq!(Refusal::from_errno(EPERM), Refusal::NotPermitted);
        assert_eq!(Refusal::from_errno(-1), Refusal::Other(0));
        assert_eq!(Refusal::Other(0).errno(), EIO);
    }
}
