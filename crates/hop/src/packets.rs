//! Packets of the datagram lane, and what became of them.

use crate::packet_class::PacketClass;

/// A packet to be sent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct OutgoingPacket<'a> {
    /// Names the host that it is of: hosts share the hop before flows do.
    pub client: u64,
    /// Names its flow, a hash of the 5-tuple for instance; packets of a flow are delivered in order.
    pub flow: u64,
    /// Where it waits long it is marked, not dropped (RFC 3168 section 5).
    pub ecn_capable: bool,
    /// How it is to be treated.
    pub class: PacketClass,
    /// Its bytes, 1 to [`PACKET_MAX`](lasthop_wire::frame::PACKET_MAX).
    pub data: &'a [u8],
}

/// Why a packet is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PacketError {
    /// No packet is empty, or longer than the peer takes.
    #[error("the packet has {0} bytes; the peer takes 1 to {1}")]
    BadLength(usize, usize),
    /// There is no memory for it.
    #[error("no memory is left for packets")]
    NoMemory,
}

/// What became of packets, at one end.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PacketStats {
    /// Packets sent for the first time, and their bytes.
    pub sent: u64,
    /// See `sent`.
    pub bytes_sent: u64,
    /// Sent again because they were lost, or parts of them.
    pub repeated: u64,
    /// Sent twice at once.
    pub doubled: u64,
    /// Dropped before they were sent: their flow's queue was too long for too long (RFC 8289).
    pub dropped_queue: u64,
    /// Dropped before they were sent, for lack of memory.
    pub dropped_memory: u64,
    /// Dropped before they were sent: they were too old.
    pub dropped_old: u64,
    /// Marked rather than dropped.
    pub marked: u64,
    /// Lost on the hop or sent in part at most, and too old to be sent again or further.
    pub given_up: u64,
    /// Delivered, and their bytes.
    pub received: u64,
    /// See `received`.
    pub bytes_received: u64,
    /// Came twice.
    pub duplicates: u64,
    /// Came when those behind them in their flow had been delivered.
    pub late: u64,
    /// Came and were dropped: nobody took them, or parts never came.
    pub dropped_received: u64,
    /// Flows that have packets queued or on their way at the moment.
    pub flows: u64,
    /// Bytes queued, on their way, or waiting for others, at the moment.
    pub bytes_held: u64,
}
