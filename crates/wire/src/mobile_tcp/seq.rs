//! Numbers of 16 bits: places in a stream, and connections.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

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

impl Add<u16> for Seq16 {
    type Output = Self;

    #[inline]
    fn add(self, n: u16) -> Self {
        Self(self.0.wrapping_add(n))
    }
}

impl AddAssign<u16> for Seq16 {
    #[inline]
    fn add_assign(&mut self, n: u16) {
        *self = *self + n;
    }
}

impl Sub<u16> for Seq16 {
    type Output = Self;

    #[inline]
    fn sub(self, n: u16) -> Self {
        Self(self.0.wrapping_sub(n))
    }
}

impl fmt::Debug for Seq16 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Seq16 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

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

impl fmt::Debug for Cid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Cid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
