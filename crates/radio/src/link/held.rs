//! Packets in a link, and how they leave it.

use lasthop_units::{Bytes, Time};
use thiserror::Error;

use crate::pacer::Work;

/// A packet that came out of a link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delivery<P> {
    /// The packet.
    pub packet: P,
    /// Its size as it was handed in.
    pub size: Bytes,
    /// When it was handed in.
    pub entered: Time,
    /// When it came out; not after the time of the call.
    pub at: Time,
    /// An error process hit it: its checksum must be wrong (LNK-10).
    pub corrupted: bool,
    /// It is a copy of the packet before it.
    pub duplicate: bool,
}

/// A packet that a link did not take.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused<P> {
    /// The packet, given back.
    pub packet: P,
    /// Why.
    pub reason: Refusal,
}

/// Why a link did not take a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Refusal {
    /// The queue is full.
    #[error("the queue is full")]
    QueueFull,
    /// The packet is longer than the MTU (LNK-2).
    #[error("the packet is longer than the MTU")]
    TooBig,
    /// The radio is silent (LNK-7, LNK-12).
    #[error("the radio is silent")]
    Silent,
    /// The link holds as many packets as its capacity allows.
    #[error("the link's capacity is reached")]
    Capacity,
}

#[derive(Debug)]
pub(crate) struct QueuedPacket<P> {
    pub(crate) packet: P,
    pub(crate) size: Bytes,
    pub(crate) entered: Time,
}

#[derive(Debug)]
pub(crate) struct OnAir<P> {
    pub(crate) held: QueuedPacket<P>,
    pub(crate) started: Time,
    /// What was left to do at `from`, and when that will be done.
    pub(crate) work: Work,
    pub(crate) from: Time,
    pub(crate) due: Time,
}

#[derive(Clone, Debug)]
pub(crate) struct Flying<P> {
    pub(crate) packet: P,
    pub(crate) size: Bytes,
    pub(crate) entered: Time,
    pub(crate) arrives: Time,
    pub(crate) corrupted: bool,
    pub(crate) duplicate: bool,
}
