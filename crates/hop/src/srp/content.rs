//! What datagrams carry that must be sent again if they are lost.

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
}

/// All of that in one datagram.
pub(super) type Contents = SmallVec<[Content; 1]>;
