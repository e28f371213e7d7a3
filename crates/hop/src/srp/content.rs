//! What datagrams carry that must be sent again if they are lost.

use smallvec::SmallVec;

use crate::lane::{PacketPart, Parts};
use crate::path_id::PathId;
use crate::policy::Policy;

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
    Client { stream: u64 },
    Policy { stream: u64 },
    Release { stream: u64, offset: u64 },
    PathStatus { path: PathId },
    Packet(PacketPart),
}

/// All of that in one datagram.
pub(super) type Contents = SmallVec<[Content; 1]>;

impl Parts for Contents {
    fn push(&mut self, part: PacketPart) {
        self.push(Content::Packet(part));
    }

    fn is_empty(&self) -> bool {
        SmallVec::is_empty(self)
    }
}

/// What a path is to carry of what waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Load {
    /// Anything, and first what was lost.
    All,
    /// What is new of streams: what was lost is left to a path that brings it sooner.
    New,
}

/// The same of each policy of which it is to carry something.
pub(super) type Loads = SmallVec<[(Policy, Load); 1]>;
