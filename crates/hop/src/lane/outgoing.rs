//! Packets on their way out: queued, sent, and sent again while they are worth it.

mod flows;
mod headers;
mod slot;
mod take_back;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use lasthop_units::Time;
use lasthop_wire::frame::{Frame, PacketFrame, Writer};

use self::headers::Headers;
use self::slot::Slot;
use super::buckets::Buckets;
use super::codel::{Codel, Verdict};
use super::hop_view::HopView;
use super::part::{PacketPart, Parts};
use super::turns::{Turn, Turns};
use super::{FLOWS, Pool};
use crate::clients::{CLIENTS, Clients};
use crate::packet_class::PacketClass;
use crate::packets::{OutgoingPacket, PacketStats};
use crate::policy::{PerPolicy, Policy};

/// Packets in all, whatever their size.
const PACKETS_MAX: usize = 16 * 1024;
/// Bytes in all.
const BYTES_MAX: usize = 16 << 20;
/// What is full drops so many at most of the longest queue at once (RFC 8290 section 4.1.3).
const DROPPED_AT_ONCE: usize = 64;
/// Less room than this is not worth a part.
const PART_MIN: usize = 64;
/// The longest part: what the length field of a frame holds in two bytes.
const PART_MAX: usize = (1 << 14) - 1;

/// What was lost so often is sent twice at once from then on: those behind it have waited for long.
const LOSSES: u8 = 2;

/// Why something that was written is worth being sent once more soon.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Again {
    /// It is of a sparse flow.
    Sparse,
    /// It was lost again and again.
    Lost,
    /// It is to go by two paths.
    Redundant,
}

/// A queue of packets that are delivered in order.
#[derive(Debug, Default)]
struct Flow {
    bucket: u16,
    /// Which paths may carry it, and its host among those of this policy.
    policy: Policy,
    client: usize,
    /// What its packets are worth: as much as the one that is worth most, since they come in order.
    class: PacketClass,
    /// As its last packet has it.
    priority: u32,
    queue: VecDeque<u32>,
    codel: Codel,
    turn: Turn,
    /// The number of the last packet sent that may still be delivered.
    last: u64,
    /// Packets that are queued or on their way.
    packets: usize,
}

/// A host with its flows of one policy.
#[derive(Debug, Default)]
struct Client {
    bucket: u16,
    turns: Turns,
    /// Its packets that are queued, and the priorities of their flows together.
    queued: usize,
    backlogged: u64,
    /// Its flows.
    flows: usize,
}

/// What waits of one policy.
#[derive(Debug, Default)]
struct Waiting {
    clients: Vec<Client>,
    client_buckets: Buckets<CLIENTS>,
    /// Lost, and worth sending again.
    repeats: VecDeque<PacketPart>,
    /// The packet that is being cut, or did not fit into the last datagram.
    current: Option<u32>,
    queued: usize,
}

impl Waiting {
    fn has_data(&self) -> bool {
        self.queued > 0 || self.current.is_some() || !self.repeats.is_empty()
    }
}

/// Packets on their way out.
#[derive(Debug)]
pub(super) struct Outgoing {
    slots: Vec<Slot>,
    free_slots: Vec<u32>,
    flows: Vec<Flow>,
    flow_buckets: Buckets<FLOWS>,
    waiting: PerPolicy<Waiting>,
    headers: Headers,
    next_number: u64,
    /// Written, and worth being sent once more soon.
    again: Vec<(Again, PacketPart)>,
    bytes: usize,
}

impl Outgoing {
    pub(super) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free_slots: Vec::new(),
            flows: Vec::new(),
            flow_buckets: Buckets::default(),
            waiting: PerPolicy::default(),
            headers: Headers::default(),
            next_number: 1,
            again: Vec::new(),
            bytes: 0,
        }
    }

    /// Bytes that are queued or on their way.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Flows that have some.
    pub(super) fn flows(&self) -> usize {
        self.flow_buckets.len()
    }

    /// Packets of a policy wait that were not sent yet, or were lost.
    pub(super) fn has_data(&self, policy: Policy) -> bool {
        self.waiting.get(policy).is_some_and(Waiting::has_data)
    }

    /// Policies that packets have or had.
    pub(super) fn policies(&self) -> impl Iterator<Item = Policy> {
        self.waiting.iter().map(|(policy, _)| policy)
    }

    /// Hosts that have packets of a policy to send.
    pub(super) fn clients(&self, policy: Policy) -> impl Iterator<Item = u16> {
        let begun = self.begun(policy);
        let waiting = self.waiting.get(policy).into_iter();
        let all = waiting.flat_map(|waiting| waiting.clients.iter().enumerate());
        let some = all.filter(move |(at, client)| client.queued > 0 || begun == Some(*at));
        some.map(|(_, client)| client.bucket)
    }

    /// The priorities together of a host's flows of a policy that have packets to send.
    pub(super) fn waiting(&self, policy: Policy, client: u16) -> u64 {
        let Some(waiting) = self.waiting.get(policy) else { return 0 };
        let Some(at) = waiting.client_buckets.get(client) else { return 0 };
        waiting.clients[at].backlogged.max(u64::from(self.begun(policy) == Some(at)))
    }

    /// The host whose packet of a policy is being cut, or did not fit into the last datagram.
    fn begun(&self, policy: Policy) -> Option<usize> {
        let slot = &self.slots[self.waiting.get(policy)?.current? as usize];
        Some(self.flows[usize::from(slot.flow)].client)
    }

    /// What was written and is worth being sent once more soon, and which paths may carry it.
    pub(super) fn poll_again(&mut self) -> Option<(Again, Policy, PacketPart)> {
        let (again, part) = self.again.pop()?;
        Some((again, self.policy_of(part), part))
    }

    /// Which paths may carry a part.
    fn policy_of(&self, part: PacketPart) -> Policy {
        let slot = self.slots.get(part.slot as usize);
        let flow = slot.and_then(|slot| self.flows.get(usize::from(slot.flow)));
        flow.map_or(Policy::Speed, |flow| flow.policy)
    }

    /// Whether a part that was sent may still be of use.
    pub(super) fn is_worth(&self, now: Time, part: PacketPart) -> bool {
        self.slot_of(part).is_some_and(|slot| slot.is_worth(now))
    }

    /// A host whose next flow of a policy sends less than its share, and may go before all others.
    fn sparse(&self, policy: Policy, clients: &Clients) -> Option<usize> {
        self.waiting.get(policy)?.clients.iter().position(|client| {
            let flow = client.turns.front().filter(|_| client.queued > 0);
            let flow = flow.and_then(|key| self.flows.get(usize::from(key)));
            flow.is_some_and(|flow| flow.turn.is_new() && !flow.queue.is_empty())
                && clients.may_go_first(client.bucket)
        })
    }

    /// Queues a packet that is not empty.
    pub(super) fn push(
        &mut self,
        now: Time,
        packet: &OutgoingPacket<'_>,
        pool: &mut Pool,
        stats: &mut PacketStats,
    ) {
        let flow = self.flow_of(packet);
        let index = self.free_slots.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        let of = &mut self.flows[usize::from(flow)];
        if packet.class.patience > of.class.patience {
            of.class = packet.class;
        }
        // What is sent once has no place in the order.
        let class = if packet.class.patience > 0.0 { of.class } else { packet.class };
        let slot = &mut self.slots[index as usize];
        let mut data = pool.take();
        data.extend_from_slice(packet.data);
        slot.data = data;
        (slot.flow, slot.class, slot.queued_at) = (flow, class, now);
        (slot.ecn_capable, slot.ce, slot.number, slot.cut) = (packet.ecn_capable, false, 0, 0);
        (slot.under_way, slot.losses) = (0, 0);
        self.bytes += packet.data.len();
        let waiting = self.waiting.of(of.policy);
        waiting.queued += 1;
        let host = &mut waiting.clients[of.client];
        host.backlogged -= if of.queue.is_empty() { 0 } else { u64::from(of.priority) };
        of.priority = packet.class.priority.max(1);
        host.backlogged += u64::from(of.priority);
        host.queued += 1;
        host.turns.join(flow, &mut of.turn);
        of.packets += 1;
        of.queue.push_back(index);
        if self.bytes > BYTES_MAX || self.slots.len() - self.free_slots.len() > PACKETS_MAX {
            stats.dropped_memory += self.shorten(pool);
        }
    }

    /// Drops the first packets of the longest queue: how many.
    pub(super) fn shorten(&mut self, pool: &mut Pool) -> u64 {
        let longest = (0..self.flows.len()).max_by_key(|n| self.flows[*n].queue.len());
        let Some(longest) = longest else { return 0 };
        let count = self.flows[longest].queue.len().div_ceil(2).min(DROPPED_AT_ONCE);
        for _ in 0..count {
            self.drop_first(longest as u16, pool);
        }
        count as u64
    }

    /// Takes a flow's first packet out of its queue.
    fn pop(&mut self, flow: u16) -> Option<u32> {
        let of = self.flows.get_mut(usize::from(flow))?;
        let index = of.queue.pop_front()?;
        let (policy, client) = (of.policy, of.client);
        let left = if of.queue.is_empty() { of.priority } else { 0 };
        let waiting = self.waiting.of(policy);
        waiting.queued -= 1;
        let host = &mut waiting.clients[client];
        host.queued -= 1;
        host.backlogged -= u64::from(left);
        if host.queued == 0 {
            // Its flows have nothing, and leave.
            while self.next_flow(policy, client).is_some() {}
        }
        Some(index)
    }

    fn drop_first(&mut self, flow: u16, pool: &mut Pool) {
        if let Some(index) = self.pop(flow) {
            self.forget(index, pool);
        }
    }

    /// Writes those packets of a policy into a datagram that go before all else: what was lost, and what sparse flows have.
    pub(super) fn write_first(
        &mut self,
        now: Time,
        hop: &HopView,
        (policy, clients): (Policy, &mut Clients),
        w: &mut Writer<'_>,
        contents: &mut impl Parts,
        (pool, stats): (&mut Pool, &mut PacketStats),
    ) {
        while let Some(part) = self.waiting.get_mut(policy).and_then(|of| of.repeats.pop_front()) {
            let Some(slot) = self.slot_of(part) else { continue };
            if now >= slot.deadline {
                self.give_up(part.slot, pool, stats);
                continue;
            }
            let Some(written) = self.put(now, part, hop, clients, w, contents) else {
                return self.waiting.of(policy).repeats.push_front(part);
            };
            stats.repeated += 1;
            let slot = &self.slots[part.slot as usize];
            if usize::from(written) == slot.sent().len() {
                if slot.ordered && slot.losses >= LOSSES {
                    self.again.push((Again::Lost, part));
                } else if slot.sparse && self.has_company(hop) {
                    self.again.push((Again::Sparse, part));
                }
            }
            if let Some(rest) = part.after(written) {
                return self.waiting.of(policy).repeats.push_front(rest);
            }
        }
        while let Some(client) = self.begun(policy).or_else(|| self.sparse(policy, clients)) {
            let before = w.len();
            let bucket = self.waiting.of(policy).clients[client].bucket;
            let of = (policy, bucket, &mut *clients);
            self.write_next(now, hop, of, w, contents, (pool, stats));
            if w.len() == before {
                return;
            }
        }
    }

    /// Writes a host's next packet of a policy into a datagram, as much of it as there is room for, or first what is left
    /// of the one that was cut.
    pub(super) fn write_next(
        &mut self,
        now: Time,
        hop: &HopView,
        (policy, client, clients): (Policy, u16, &mut Clients),
        w: &mut Writer<'_>,
        contents: &mut impl Parts,
        (pool, stats): (&mut Pool, &mut PacketStats),
    ) {
        loop {
            let Some(waiting) = self.waiting.get(policy) else { return };
            if waiting.current.is_none() {
                let Some(at) = waiting.client_buckets.get(client) else { return };
                let next = self.next(now, hop, (policy, at), pool, stats);
                self.waiting.of(policy).current = next;
            }
            let Some(index) = self.waiting.of(policy).current else { return };
            let slot = &self.slots[index as usize];
            // What has begun to leave may still wait for its turn too long, in a silence for instance.
            if now > slot.deadline.max(slot.queued_at + slot.class.lifetime) {
                self.give_up(index, pool, stats);
                continue;
            }
            let (number, cut, length) = (slot.number, slot.cut as u16, slot.sent().len());
            let part = PacketPart { slot: index, number, offset: cut, len: length as u16 - cut };
            let Some(written) = self.put(now, part, hop, clients, w, contents) else { return };
            let slot = &mut self.slots[index as usize];
            slot.cut += usize::from(written);
            if slot.cut == length {
                self.waiting.of(policy).current = None;
            }
            return;
        }
    }

    /// Takes a host's next packet out of its queue that is still worth sending, and gives it a number.
    fn next(
        &mut self,
        now: Time,
        hop: &HopView,
        (policy, client): (Policy, usize),
        pool: &mut Pool,
        stats: &mut PacketStats,
    ) -> Option<u32> {
        loop {
            let flow = self.next_flow(policy, client)?;
            let sparse = self.flows[usize::from(flow)].turn.is_new();
            let index = self.pop(flow)?;
            let (slot, of) = (&mut self.slots[index as usize], &mut self.flows[usize::from(flow)]);
            let waited = now.since(slot.queued_at);
            let verdict = of.codel.judge(now, waited, of.queue.is_empty(), hop.bounds(&slot.class));
            let drop = match verdict {
                Verdict::Pass => false,
                Verdict::Signal => !slot.ecn_capable,
                Verdict::Drop => true,
            };
            if drop || waited > slot.class.lifetime {
                let old = waited > slot.class.lifetime;
                *(if old { &mut stats.dropped_old } else { &mut stats.dropped_queue }) += 1;
                self.forget(index, pool);
                continue;
            }
            slot.ce = verdict == Verdict::Signal;
            stats.marked += u64::from(slot.ce);
            of.turn.spend(slot.data.len());
            let number = self.next_number;
            self.next_number += 1;
            let patience = hop.patience(&slot.class);
            (slot.number, slot.deadline) = (number, now + patience);
            // What comes without patience is not waited for, and does not wait.
            (slot.ordered, slot.after) = (!patience.is_zero(), 0);
            if slot.ordered {
                slot.after = core::mem::replace(&mut of.last, number);
            }
            stats.sent += 1;
            stats.bytes_sent += slot.data.len() as u64;
            self.headers.leave_out(of.bucket, slot);
            let whole =
                PacketPart { slot: index, number, offset: 0, len: slot.sent().len() as u16 };
            slot.sparse = sparse && slot.class.doubled;
            if policy == Policy::Redundant {
                self.again.push((Again::Redundant, whole));
            } else if slot.sparse && self.has_company(hop) {
                self.again.push((Again::Sparse, whole));
            }
            return Some(index);
        }
    }

    /// Whether something else is to be sent. Where there is nothing, copies of whole datagrams do better.
    fn has_company(&self, hop: &HopView) -> bool {
        hop.busy || self.waiting.values().any(|of| of.queued > 0)
    }

    fn slot_of(&self, part: PacketPart) -> Option<&Slot> {
        self.slots.get(part.slot as usize).filter(|slot| slot.number == part.number)
    }

    /// Writes a part, or as much of it as there is room for if that is worth it: how many bytes.
    fn put(
        &mut self,
        now: Time,
        part: PacketPart,
        hop: &HopView,
        clients: &mut Clients,
        w: &mut Writer<'_>,
        contents: &mut impl Parts,
    ) -> Option<u16> {
        let (slot, before) = (&self.slots[part.slot as usize], w.len());
        let total = slot.sent().len();
        let offset = usize::from(part.offset);
        let mut frame = self.frame(now, slot, part);
        // One byte is left for the frame that asks for an answer at once.
        let mut room = w.room().checked_sub(frame.overhead() + 1)?.min(PART_MAX);
        if usize::from(part.len) > room {
            frame.part = Some((offset as u64, total as u64));
            room = w.room().checked_sub(frame.overhead() + 1)?.min(PART_MAX);
            // One that would fit into a datagram of its own is better not cut.
            let fits_elsewhere = usize::from(part.len) + frame.overhead() < hop.full;
            if room < PART_MIN || (fits_elsewhere && !contents.is_empty()) {
                return None;
            }
        }
        let len = room.min(usize::from(part.len));
        frame.data = slot.sent().get(offset..offset + len)?;
        if !w.put(&Frame::Packet(frame)) {
            return None;
        }
        let written = PacketPart { len: len as u16, ..part };
        contents.push(written);
        let (flow, priority) = (slot.flow, self.flows[usize::from(slot.flow)].priority);
        let client = self.client_of(flow);
        let priorities = client.backlogged.max(priority.into());
        clients.charge_packets(client.bucket, w.len() - before, priorities);
        if len == total {
            self.slots[part.slot as usize].under_way += 1;
        }
        Some(len as u16)
    }

    /// Writes a part that was sent once more, if it may still be of use and there is room for it.
    pub(super) fn repeat(
        &mut self,
        now: Time,
        part: PacketPart,
        w: &mut Writer<'_>,
        contents: &mut impl Parts,
    ) -> bool {
        let Some(slot) = self.slot_of(part).filter(|slot| slot.is_worth(now)) else { return false };
        let (whole, mut frame) =
            (usize::from(part.len) == slot.sent().len(), self.frame(now, slot, part));
        frame.data = &slot.sent()[usize::from(part.offset)..][..usize::from(part.len)];
        if frame.overhead() + frame.data.len() >= w.room() || !w.put(&Frame::Packet(frame)) {
            return false;
        }
        contents.push(part);
        self.slots[part.slot as usize].under_way += u8::from(whole);
        true
    }

    /// The frame of a part, but for its bytes.
    fn frame(&self, now: Time, slot: &Slot, part: PacketPart) -> PacketFrame<'static> {
        let total = slot.sent().len();
        // What was sent before it is sent again until its own time is over, and no longer: so it waits at the receiver
        // for what is left of that, whenever this transmission arrives.
        let left = slot.deadline.since(now).as_millis() as u64 + 1;
        PacketFrame {
            number: slot.number,
            flow: u64::from(self.flows[usize::from(slot.flow)].bucket),
            after: slot.number - if slot.after == 0 { slot.number } else { slot.after },
            patience_ms: if slot.ordered { left } else { 0 },
            ce: slot.ce,
            header: slot.header(),
            part: (usize::from(part.len) < total).then_some((u64::from(part.offset), total as u64)),
            data: &[],
        }
    }

    /// A part has arrived.
    pub(super) fn on_acked(&mut self, part: PacketPart, pool: &mut Pool) {
        let Some(slot) = self.slots.get_mut(part.slot as usize) else { return };
        if slot.number != part.number {
            return;
        }
        if part.offset == 0 && slot.context == slot.number {
            self.headers.on_arrival(self.flows[usize::from(slot.flow)].bucket, slot.number);
        }
        let total = slot.sent().len() as u64;
        if u64::from(part.len) == total {
            return self.forget(part.slot, pool);
        }
        slot.arrived.insert(part.range());
        if slot.arrived.first() == Some(0..total) {
            self.forget(part.slot, pool);
        }
    }

    /// A part is lost.
    pub(super) fn on_lost(
        &mut self,
        now: Time,
        part: PacketPart,
        pool: &mut Pool,
        stats: &mut PacketStats,
    ) {
        let Some(slot) = self.slots.get_mut(part.slot as usize) else { return };
        if slot.number != part.number {
            return;
        }
        if usize::from(part.len) == slot.sent().len() {
            slot.under_way = slot.under_way.saturating_sub(1);
            if slot.under_way > 0 {
                return;
            }
        }
        if now < slot.deadline {
            slot.losses = slot.losses.saturating_add(1);
            let policy = self.policy_of(part);
            return self.waiting.of(policy).repeats.push_back(part);
        }
        self.give_up(part.slot, pool, stats);
    }

    /// A packet, or a part, is not sent any more. What follows it in its flow need not wait for it.
    fn give_up(&mut self, index: u32, pool: &mut Pool, stats: &mut PacketStats) {
        stats.given_up += 1;
        let Slot { flow, number, after, .. } = self.slots[index as usize];
        let of = &mut self.flows[usize::from(flow)];
        if of.last == number {
            of.last = after;
        }
        self.forget(index, pool);
    }

    /// A packet is over, whatever became of it.
    fn forget(&mut self, index: u32, pool: &mut Pool) {
        let slot = &mut self.slots[index as usize];
        // It may be over in the middle.
        let waiting = self.waiting.of(self.flows[usize::from(slot.flow)].policy);
        waiting.current = waiting.current.filter(|current| *current != index);
        self.headers.forget(self.flows[usize::from(slot.flow)].bucket, slot);
        let data = core::mem::take(&mut slot.data);
        self.bytes -= data.len();
        pool.give(data);
        slot.number = 0;
        slot.arrived.clear();
        let flow = slot.flow;
        self.free_slots.push(index);
        self.flows[usize::from(flow)].packets -= 1;
        self.release(flow);
    }
}
