//! What agents in the path say to each other and to hosts: one message in each UDP datagram, or in
//! each Ethernet frame [beside] the traffic.

pub mod beside;
mod bytes;

pub use bytes::{EmitError, ParseError};

use core::net::SocketAddr;

use crate::tcp::SeqRanges;
use crate::unsplit::Request;

/// The UDP port of agents, and of hosts that listen to them, at both ends of a datagram.
pub const PORT: u16 = 4435;

/// A TCP connection between a fixed and a mobile host, whoever opened it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Connection {
    /// The fixed host's end.
    pub fixed: SocketAddr,
    /// The mobile host's end.
    pub mobile: SocketAddr,
}

/// Ranges of sequence numbers, as many as a message can name.
pub type Ranges = SeqRanges<32>;

/// A message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// From the mobile router to the base: these bytes have not come (OBM-1).
    Snack {
        /// Of which connection.
        connection: Connection,
        /// Which bytes.
        missing: Ranges,
    },
    /// From the base to the mobile router: these bytes are not to be had here, so let their
    /// duplicate acknowledgements pass (OBB-4).
    Congestion {
        /// Of which connection.
        connection: Connection,
        /// Which bytes.
        lost: Ranges,
    },
    /// From the base to the source: the hop is bad at present (EBS-1).
    BadState {
        /// Of which connection.
        connection: Connection,
    },
    /// From the far end of the hop to the near one: which frames have come (DDA-1).
    LinkAck {
        /// The latest frame that has come.
        latest: u32,
        /// Bit n: the frame `latest - n` has come.
        come: u64,
    },
    /// From one half of an unsplit hop to the other: what has come of a connection, where no packet
    /// of its own could say so (ALT-6).
    Request {
        /// The connection, as the half that this goes to calls it.
        cid: u16,
        /// RCR: the retransmission cycle that was received last.
        reply: bool,
        /// What is missing.
        request: Request,
    },
    /// From one half of an unsplit hop to the other: a packet came with a CID of nobody's (ALT-7).
    UnknownCid {
        /// The CID.
        cid: u16,
    },
}
