//! What datagrams carry that must be sent again if they are lost.

use core::ops::Range;

use smallvec::SmallVec;

/// A piece of a stream to put into a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    pub(super) offset: u64,
    pub(super) len: usize,
    pub(super) fin: bool,
}

/// Something in a datagram that must be sent again if the datagram is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Content {
    Data { stream: u64, piece: Piece },
    Reset { stream: u64 },
    StreamCredit { stream: u64 },
    Credit,
    StreamBlocked { stream: u64 },
    Blocked,
    Priority { stream: u64 },
    Packet(PacketPart),
}

/// A part of a packet of the datagram lane, or all of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PacketPart {
    /// Where the lane keeps the packet, as long as it has this number.
    pub(super) slot: u32,
    pub(super) number: u64,
    pub(super) offset: u16,
    pub(super) len: u16,
}

impl PacketPart {
    /// The bytes of the packet.
    pub(super) fn range(&self) -> Range<u64> {
        u64::from(self.offset)..u64::from(self.offset) + u64::from(self.len)
    }

    /// What is left of it behind so many bytes.
    pub(super) fn after(self, bytes: u16) -> Option<Self> {
        let rest = Self { offset: self.offset + bytes, len: self.len - bytes, ..self };
        (rest.len > 0).then_some(rest)
    }
}

/// All of that in one datagram.
pub(super) type Contents = SmallVec<[Content; 1]>;
