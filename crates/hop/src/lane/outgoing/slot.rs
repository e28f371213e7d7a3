//! A packet that is queued or on its way.

use alloc::vec::Vec;

use lasthop_stream::RangeSet;
use lasthop_units::Time;
use lasthop_wire::frame::PacketHeader;

use crate::packet_class::PacketClass;
use crate::policy::Policy;

/// A packet.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) data: Vec<u8>,
    pub(super) flow: u16,
    pub(super) class: PacketClass,
    pub(super) ecn_capable: bool,
    pub(super) ce: bool,
    pub(super) queued_at: Time,
    /// Its number in the lane once it was sent; 0 before.
    pub(super) number: u64,
    pub(super) after: u64,
    /// When it is not worth sending again.
    pub(super) deadline: Time,
    /// Those behind it in its flow wait for it.
    pub(super) ordered: bool,
    /// It had a first turn, and may be sent once more each time.
    pub(super) sparse: bool,
    /// The number of the packet that brings the context of its headers, which may be itself; 0 if there is none.
    pub(super) context: u64,
    /// Bytes at its beginning that are not sent, since the context has them.
    pub(super) left_out: usize,
    /// What was sent of it for the first time.
    pub(super) cut: usize,
    /// What has arrived, of one that was cut.
    pub(super) arrived: RangeSet,
    /// Transmissions of the whole that may still arrive, and how often all were lost.
    pub(super) under_way: u8,
    pub(super) losses: u8,
}

impl Slot {
    /// Whether one transmission more may be of use: while it is worth sending again, and a second one of what is redundant
    /// though it is never sent again.
    pub(super) fn is_worth(&self, now: Time) -> bool {
        let second = self.class.policy == Policy::Redundant && !self.ordered && self.under_way < 2;
        now < self.deadline || (second && now < self.queued_at + self.class.lifetime)
    }

    /// What of it is sent.
    pub(super) fn sent(&self) -> &[u8] {
        self.data.get(self.left_out..).unwrap_or_default()
    }

    /// What that has of its headers.
    pub(super) fn header(&self) -> PacketHeader {
        match self.context {
            0 => PacketHeader::Whole,
            context if context == self.number => PacketHeader::Kept,
            context => PacketHeader::LeftOut(self.number - context),
        }
    }
}
