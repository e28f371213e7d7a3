//! The code bits.

use core::fmt;

/// What a packet says by single bits (MOB-12), without those that tell its kind and version.
///
/// The paper names RC and RCR (section 3.4) and leaves the rest open.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Code(u16);

impl Code {
    /// The sender has no more data; takes one sequence number.
    pub const FIN: Self = Self(0x0001);
    /// Opens a connection; takes one sequence number.
    pub const SYN: Self = Self(0x0002);
    /// The connection ends at once, or will not be opened.
    pub const RST: Self = Self(0x0004);
    /// The data ends what was written; without a connection it asks for an answer.
    pub const PSH: Self = Self(0x0008);
    /// The acknowledgement field means something.
    pub const ACK: Self = Self(0x0010);
    /// A retransmission request: the bytes from the acknowledgement up to the negative
    /// acknowledgement are missing (MOB-15, MOB-23).
    pub const RRQ: Self = Self(0x0020);
    /// The sender's retransmission cycle (MOB-28).
    pub const RC: Self = Self(0x0040);
    /// The retransmission cycle of the last packet received (MOB-29).
    pub const RCR: Self = Self(0x0080);
    /// Concerns a port on which the mobile accepts connections (MOB-8).
    pub const LISTEN: Self = Self(0x0100);
    /// Nobody has the connection that the packet named.
    pub const UNKNOWN: Self = Self(0x0200);
    /// The opening arrived, and the fixed host has not answered yet (MOB-7).
    pub const PENDING: Self = Self(0x0400);

    /// What data packets cannot say.
    pub(super) const CONTROL_ONLY: Self = Self(Self::SYN.0 | Self::LISTEN.0 | Self::PENDING.0);

    const ALL: u16 = 0x07ff;

    /// No bit.
    pub const fn empty() -> Self {
        Self(0)
    }

    /// The code bits among the first 16 bits of a packet. The reserved bit is ignored.
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits & Self::ALL)
    }

    /// The bits as they are in a packet.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// With `other`, if `set`.
    #[must_use]
    pub const fn with_if(self, other: Self, set: bool) -> Self {
        if set { self.with(other) } else { self }
    }

    /// These without `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// All of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Any of `other` is set.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names =
            ["FIN", "SYN", "RST", "PSH", "ACK", "RRQ", "RC", "RCR", "LISTEN", "UNKNOWN", "PENDING"];
        let mut set = names.iter().enumerate().filter(|(bit, _)| self.0 & (1 << bit) != 0);
        match set.next() {
            Some((_, first)) => f.write_str(first)?,
            None => return f.write_str("-"),
        }
        set.try_for_each(|(_, name)| write!(f, "|{name}"))
    }
}
