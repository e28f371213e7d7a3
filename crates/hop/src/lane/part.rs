//! Parts of packets, and the datagrams that they are in.

use core::ops::Range;

/// A part of a packet of the datagram lane, or all of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PacketPart {
    /// Where the lane keeps the packet, as long as it has this number.
    pub(crate) slot: u32,
    pub(crate) number: u64,
    pub(crate) offset: u16,
    pub(crate) len: u16,
}

impl PacketPart {
    /// The bytes of the packet.
    pub(crate) fn range(&self) -> Range<u64> {
        u64::from(self.offset)..u64::from(self.offset) + u64::from(self.len)
    }

    /// What is left of it behind so many bytes.
    pub(crate) fn after(self, bytes: u16) -> Option<Self> {
        let rest = Self { offset: self.offset + bytes, len: self.len - bytes, ..self };
        (rest.len > 0).then_some(rest)
    }
}

/// What is in a datagram so far, whatever else that may be.
pub(crate) trait Parts {
    /// A part of a packet is.
    fn push(&mut self, part: PacketPart);

    /// Nothing is.
    fn is_empty(&self) -> bool;
}
