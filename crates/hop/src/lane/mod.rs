//! The datagram lane: packets beside streams, in the same datagrams and at the same pace.
//!
//! A packet is sent again when it is lost, as long as it is worth it; what was sent of its flow behind it waits for it
//! at the receiver as long as that, and no packet is delivered twice. Flow queues with CoDel stand before the pacer
//! (RFC 8290), per host and then per flow.

mod buckets;
mod codel;
mod hop_view;
mod incoming;
mod outgoing;
mod part;
mod turns;

use alloc::boxed::Box;
use alloc::vec::Vec;

use lasthop_units::{Bytes, Time};
use lasthop_wire::frame::{PACKET_MAX, PacketFrame, Writer};

pub(crate) use self::hop_view::HopView;
use self::incoming::Incoming;
pub(crate) use self::outgoing::Again;
use self::outgoing::Outgoing;
pub(crate) use self::part::{PacketPart, Parts};
use crate::clients::Clients;
use crate::memory::{Lease, Memory};
use crate::packets::{OutgoingPacket, PacketError, PacketStats};
use crate::policy::Policy;

/// Flows that are told apart, in each direction. Those whose names fall together are one.
const FLOWS: usize = 1024;
/// Bytes of buffers that are kept to be used again: more than what is on its way at a Gbit/s and 5 ms.
const POOL_MAX: usize = 1 << 20;
/// A lane's memory is counted in steps of so many bytes, since all of a process's associations share the counters.
const MEMORY_STEP: usize = 4096;

/// A peer that contradicts itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contradiction;

/// Buffers of packets, used again and again.
#[derive(Debug, Default)]
struct Pool {
    buffers: Vec<Vec<u8>>,
    /// What they cost.
    bytes: usize,
}

/// What a buffer costs to keep.
fn kept(buffer: &Vec<u8>) -> usize {
    buffer.capacity() + size_of_val(buffer)
}

impl Pool {
    /// An empty buffer.
    fn take(&mut self) -> Vec<u8> {
        let Some(buffer) = self.buffers.pop() else { return Vec::new() };
        self.bytes -= kept(&buffer);
        buffer
    }

    fn give(&mut self, mut buffer: Vec<u8>) {
        if self.bytes + kept(&buffer) <= POOL_MAX {
            buffer.clear();
            self.bytes += kept(&buffer);
            self.buffers.push(buffer);
        }
    }
}

/// One end of an association's datagram lane.
#[derive(Debug)]
pub struct PacketLane {
    outgoing: Outgoing,
    incoming: Incoming,
    pool: Pool,
    lease: Lease,
    stats: PacketStats,
    /// The longest packet that the peer takes.
    longest: usize,
}

impl PacketLane {
    pub(crate) fn new(longest: Bytes, memory: &Memory) -> Self {
        Self {
            outgoing: Outgoing::new(),
            incoming: Incoming::new(),
            pool: Pool::default(),
            lease: memory.lease(),
            stats: PacketStats::default(),
            longest: longest.as_usize().min(PACKET_MAX),
        }
    }

    /// An empty one, for the association that follows.
    pub(crate) fn restarted(&self, memory: &Memory) -> Box<Self> {
        let stats = self.stats;
        Box::new(Self { stats, ..Self::new(Bytes::ZERO, memory) })
    }

    /// The peer takes packets of at most this length.
    pub(crate) fn set_longest(&mut self, longest: Bytes) {
        self.longest = longest.as_usize().min(PACKET_MAX);
    }

    /// The longest packet that the peer takes.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Queues a packet. Poll the association for datagrams afterwards.
    ///
    /// # Errors
    ///
    /// It is empty or too long, or there is no memory for it; that is counted too.
    pub fn send(&mut self, now: Time, packet: &OutgoingPacket<'_>) -> Result<(), PacketError> {
        let length = packet.data.len();
        if length == 0 || length > self.longest {
            return Err(PacketError::BadLength(length, self.longest));
        }
        if !self.lease.has_room_for(length as u64) {
            // A queue gives way to what is newer.
            self.stats.dropped_memory += self.outgoing.shorten(&mut self.pool);
            self.settle();
            if !self.lease.has_room_for(length as u64) {
                self.stats.dropped_memory += 1;
                return Err(PacketError::NoMemory);
            }
        }
        self.outgoing.push(now, packet, &mut self.pool, &mut self.stats);
        self.settle();
        Ok(())
    }

    /// The packet that has come next, and whether it met congestion: where it is marked as capable of ECN, it is to be
    /// marked so (RFC 3168 section 5).
    pub fn front(&self) -> Option<(&[u8], bool)> {
        self.incoming.front()
    }

    /// That packet was taken.
    pub fn pop(&mut self) {
        self.incoming.pop(&mut self.pool);
        self.settle();
    }

    /// Takes back what is still worth sending and has not arrived for certain: what was not sent yet, and what was lost. For
    /// whoever has a better way to the peer, or to where it has gone. What is on its way may arrive, and is left to that.
    pub fn take_back(&mut self, now: Time) -> Vec<Vec<u8>> {
        let taken = self.outgoing.take_back(now, &mut self.pool, &mut self.stats);
        self.settle();
        taken
    }

    /// What became of packets.
    pub fn stats(&self) -> PacketStats {
        PacketStats {
            flows: self.outgoing.flows() as u64,
            bytes_held: (self.outgoing.bytes() + self.incoming.bytes()) as u64,
            ..self.stats
        }
    }

    /// The lane's memory has changed.
    fn settle(&mut self) {
        let bytes = self.outgoing.bytes() + self.incoming.bytes();
        self.lease.set_need(bytes.next_multiple_of(MEMORY_STEP) as u64);
    }

    pub(crate) fn has_data(&self) -> bool {
        self.policies().any(|policy| self.has_data_of(policy))
    }

    /// The same of packets of a policy.
    pub(crate) fn has_data_of(&self, policy: Policy) -> bool {
        self.outgoing.has_data(policy)
    }

    /// Policies that packets have or had.
    pub(crate) fn policies(&self) -> impl Iterator<Item = Policy> {
        self.outgoing.policies()
    }

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        self.incoming.next_timeout()
    }

    pub(crate) fn handle_timeout(&mut self, now: Time) {
        self.incoming.handle_timeout(now, &mut self.pool, &mut self.stats);
    }

    pub(crate) fn handle(
        &mut self,
        now: Time,
        frame: &PacketFrame<'_>,
    ) -> Result<(), Contradiction> {
        let room = self.lease.most().saturating_sub(self.lease.need());
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        let result = self.incoming.handle(now, frame, room, (&mut self.pool, &mut self.stats));
        self.settle();
        result
    }

    /// Hosts that have packets of a policy to send.
    pub(crate) fn clients(&self, policy: Policy) -> impl Iterator<Item = u16> {
        self.outgoing.clients(policy)
    }

    /// The priorities together of a host's flows of a policy that have packets to send.
    pub(crate) fn waiting(&self, policy: Policy, client: u16) -> u64 {
        self.outgoing.waiting(policy, client)
    }

    /// Writes those packets of a policy into a datagram that go before all else: what was lost, and what sparse flows have.
    pub(crate) fn write_first(
        &mut self,
        now: Time,
        hop: &HopView,
        of: (Policy, &mut Clients),
        w: &mut Writer<'_>,
        contents: &mut impl Parts,
    ) {
        let rest = (&mut self.pool, &mut self.stats);
        self.outgoing.write_first(now, hop, of, w, contents, rest);
        self.settle();
    }

    /// Writes a host's next packet of a policy into a datagram, as much of it as there is room for, or first what is left
    /// of the one that was cut.
    pub(crate) fn write_next(
        &mut self,
        now: Time,
        hop: &HopView,
        (policy, client): (Policy, u16),
        clients: &mut Clients,
        w: &mut Writer<'_>,
        contents: &mut impl Parts,
    ) {
        let rest = (&mut self.pool, &mut self.stats);
        self.outgoing.write_next(now, hop, (policy, client, clients), w, contents, rest);
        self.settle();
    }

    /// What was written and is worth being sent once more soon, and which paths may carry it.
    pub(crate) fn poll_again(&mut self) -> Option<(Again, Policy, PacketPart)> {
        self.outgoing.poll_again()
    }

    /// Whether a part that was sent before may still be of use.
    pub(crate) fn is_worth(&self, now: Time, part: PacketPart) -> bool {
        self.outgoing.is_worth(now, part)
    }

    /// Writes a part once more that was sent before and may still be of use. Whether there is room for it.
    pub(crate) fn repeat(
        &mut self,
        now: Time,
        part: PacketPart,
        w: &mut Writer<'_>,
        contents: &mut impl Parts,
    ) -> bool {
        self.outgoing.repeat(now, part, w, contents)
    }

    /// That was because it had been lost, or because it may be.
    pub(crate) fn count_repeat(&mut self, was_doubled: bool) {
        *(if was_doubled { &mut self.stats.doubled } else { &mut self.stats.repeated }) += 1;
    }

    pub(crate) fn on_acked(&mut self, part: PacketPart) {
        self.outgoing.on_acked(part, &mut self.pool);
        self.settle();
    }

    pub(crate) fn on_lost(&mut self, now: Time, part: PacketPart) {
        self.outgoing.on_lost(now, part, &mut self.pool, &mut self.stats);
        self.settle();
    }
}
