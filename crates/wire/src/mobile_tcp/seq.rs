//! Numbers of 16 bits: places in a stream, and connections.

use crate::kinds::{reads_as_number, wraps};

/// A sequence number: a byte's place in its stream, modulo 2^16 (MOB-13).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Seq16(pub u16);

impl Seq16 {
    /// How far this is ahead of `other`, in bytes: negative if it is behind. Right as long as the
    /// two are less than 2^15 bytes apart, which windows of at most
    /// [`MAX_WINDOW`](super::MAX_WINDOW) see to.
    #[inline]
    pub const fn ahead_of(self, other: Self) -> i16 {
        self.0.wrapping_sub(other.0).cast_signed()
    }

    /// The bytes from `start` to here, counted forward.
    #[inline]
    pub const fn since(self, start: Self) -> u16 {
        self.0.wrapping_sub(start.0)
    }

    /// Whether this comes before `other`.
    #[inline]
    pub const fn is_before(self, other: Self) -> bool {
        self.ahead_of(other) < 0
    }
}

wraps!(Seq16(u16));

/// A connection's identifier in one direction, allotted by whoever receives packets under it
/// (MOB-16).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Cid(pub u16);

impl Cid {
    /// Names no connection: in an opening, where the peer's is not known yet, and in packets that
    /// concern none.
    pub const NONE: Self = Self(0);

    /// Names no connection.
    #[inline]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

reads_as_number!(Seq16 Cid);
