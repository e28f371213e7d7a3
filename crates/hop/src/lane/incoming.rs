//! Packets that come: joined, put in order, and handed on once each.

mod contexts;
mod drain;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use lasthop_stream::RangeSet;
use lasthop_units::{Time, Timers};
use lasthop_wire::frame::{PACKET_MAX, PacketFrame, PacketHeader};
use lasthop_wire::header_context::HeaderContext;

use self::contexts::Contexts;
use self::drain::Drain;
use super::{Contradiction, FLOWS, Pool};
use crate::packets::PacketStats;
use crate::seal::ReplayWindow;

/// Bytes that may wait for others, or to be taken, in all.
const BYTES_MAX: usize = 8 << 20;
/// What is kept beside a packet's bytes.
const PACKET_COST: usize = 128;
/// Flows whose last packet is remembered although it may be too old to matter.
const FLOWS_KEPT: usize = 32;
/// Packets of which parts are missing, at most.
const PARTIAL_MAX: usize = 256;
/// Nobody waits longer, whatever the peer says, nor parts for the rest of their packet.
const PATIENCE_MAX: Duration = Duration::from_secs(5);

/// What a packet of this length costs to keep.
fn cost(length: usize) -> usize {
    length + PACKET_COST
}

/// A packet that has come.
#[derive(Debug)]
struct Arrived {
    data: Vec<u8>,
    ce: bool,
    flow: u16,
    number: u64,
    /// The number of the one that is to be delivered first; 0 if there is none.
    after: u64,
    /// It waits until then.
    due: Time,
}

/// A packet of which parts are missing.
#[derive(Debug)]
struct Partial {
    data: Vec<u8>,
    got: RangeSet,
    /// What is missing is not waited for any longer.
    due: Time,
}

/// Packets that came.
#[derive(Debug)]
pub(super) struct Incoming {
    seen: Box<ReplayWindow>,
    /// The last number that was delivered of each flow, where that still matters.
    delivered: BTreeMap<u16, u64>,
    /// Those that wait for others of their flow.
    held: BTreeMap<(u16, u64), Arrived>,
    timers: Timers<(u16, u64)>,
    /// Flows of which more need not wait than may be delivered at once.
    drains: BTreeMap<u16, Drain>,
    partial: BTreeMap<u64, Partial>,
    contexts: Contexts,
    ready: VecDeque<(Vec<u8>, bool)>,
    bytes: usize,
}

impl Incoming {
    pub(super) fn new() -> Self {
        Self {
            seen: Box::new(ReplayWindow::new()),
            delivered: BTreeMap::new(),
            held: BTreeMap::new(),
            timers: Timers::new(),
            drains: BTreeMap::new(),
            partial: BTreeMap::new(),
            contexts: Contexts::default(),
            ready: VecDeque::new(),
            bytes: 0,
        }
    }

    /// Bytes that wait.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// When [`handle_timeout`](Self::handle_timeout) must be called.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        let partial = self.partial.first_key_value().map(|(_, partial)| partial.due);
        let drains = self.drains.values().map(Drain::next);
        self.timers.next().into_iter().chain(partial).chain(drains).min()
    }

    /// The next packet to be taken, and whether it is to be marked.
    pub(super) fn front(&self) -> Option<(&[u8], bool)> {
        self.ready.front().map(|(data, ce)| (data.as_slice(), *ce))
    }

    /// It was taken.
    pub(super) fn pop(&mut self, pool: &mut Pool) {
        if let Some((data, _)) = self.ready.pop_front() {
            self.drop(data, pool);
        }
    }

    fn drop(&mut self, data: Vec<u8>, pool: &mut Pool) {
        self.bytes -= cost(data.len());
        pool.give(data);
    }

    /// Takes in a packet or a part, if there is room for so many bytes more.
    pub(super) fn handle(
        &mut self,
        now: Time,
        frame: &PacketFrame<'_>,
        room: usize,
        (pool, stats): (&mut Pool, &mut PacketStats),
    ) -> Result<(), Contradiction> {
        let flow = u16::try_from(frame.flow).ok().filter(|flow| usize::from(*flow) < FLOWS);
        let flow = flow.ok_or(Contradiction)?;
        if !self.seen.check(frame.number) {
            stats.duplicates += 1;
            return Ok(());
        }
        let context = match frame.header {
            PacketHeader::Whole => None,
            PacketHeader::Kept => {
                self.contexts.keep(flow, frame);
                None
            }
            PacketHeader::LeftOut(distance) => {
                let context = self.contexts.get(flow, frame.number - distance);
                if context.is_none() {
                    stats.dropped_received += 1;
                    return Ok(());
                }
                context
            }
        };
        let length = frame.total() as usize + context.as_ref().map_or(0, HeaderContext::left_out);
        if length > PACKET_MAX {
            return Err(Contradiction);
        }
        let known = self.partial.contains_key(&frame.number);
        while !known && self.bytes + cost(length) > BYTES_MAX && self.drop_partial(pool, stats) {}
        if !known && (self.bytes + cost(length) > BYTES_MAX || cost(length) > room) {
            stats.dropped_received += 1;
            return Ok(());
        }
        let Some(mut data) = self.joined(now, frame, length, (pool, stats))? else { return Ok(()) };
        if let Some(context) = context
            && context.complete(&mut data).is_none()
        {
            self.drop(data, pool);
            return Err(Contradiction);
        }
        // It is not known yet, or it would have been turned away above.
        let _ = self.seen.accept(frame.number);
        let patience = Duration::from_millis(frame.patience_ms).min(PATIENCE_MAX);
        let after = if frame.after == 0 { 0 } else { frame.number - frame.after };
        let (ce, number) = (frame.ce, frame.number);
        let arrived = Arrived { data, ce, flow, number, after, due: now + patience };
        if patience.is_zero() {
            self.deliver(arrived, stats);
            return Ok(());
        }
        let last = self.delivered.get(&flow).copied().unwrap_or(0);
        if number <= last {
            stats.late += 1;
            self.drop(arrived.data, pool);
            return Ok(());
        }
        if after <= last && self.first_held(flow).is_none() {
            self.deliver_in_order(arrived, stats);
            return Ok(());
        }
        if let Some(drain) = self.drains.get_mut(&flow) {
            drain.on_arrival(arrived.data.len());
        }
        self.timers.replace((flow, number), None, Some(arrived.due));
        self.held.insert((flow, number), arrived);
        // The sender has given up what those before this one wait for, or they would be named as what it waits for.
        self.release(now, flow, if after <= last { number } else { 0 }, stats);
        Ok(())
    }

    /// The whole packet of this length, if nothing is missing of it any more but what was left out of its headers.
    fn joined(
        &mut self,
        now: Time,
        frame: &PacketFrame<'_>,
        length: usize,
        (pool, stats): (&mut Pool, &mut PacketStats),
    ) -> Result<Option<Vec<u8>>, Contradiction> {
        let left_out = length - frame.total() as usize;
        let Some((offset, _)) = frame.part else {
            if let Some(partial) = self.partial.remove(&frame.number) {
                self.drop(partial.data, pool);
            }
            let mut data = pool.take();
            data.resize(left_out, 0);
            data.extend_from_slice(frame.data);
            self.bytes += cost(length);
            return Ok(Some(data));
        };
        let bytes = &mut self.bytes;
        let partial = self.partial.entry(frame.number).or_insert_with(|| {
            let mut data = pool.take();
            data.resize(length, 0);
            *bytes += cost(length);
            let mut got = RangeSet::default();
            got.insert(0..left_out as u64);
            Partial { data, got, due: now + PATIENCE_MAX }
        });
        let offset = left_out + offset as usize;
        if partial.data.len() != length {
            return Err(Contradiction);
        }
        let place = partial.data.get_mut(offset..offset + frame.data.len()).ok_or(Contradiction)?;
        place.copy_from_slice(frame.data);
        partial.got.insert(offset as u64..(offset + frame.data.len()) as u64);
        if partial.got.first() == Some(0..length as u64) {
            return Ok(self.partial.remove(&frame.number).map(|partial| partial.data));
        }
        // What is missing of the oldest comes too late most likely.
        if self.partial.len() > PARTIAL_MAX {
            self.drop_partial(pool, stats);
        }
        Ok(None)
    }

    /// Drops the oldest packet of which parts are missing, if there is one.
    fn drop_partial(&mut self, pool: &mut Pool, stats: &mut PacketStats) -> bool {
        let Some((_, oldest)) = self.partial.pop_first() else { return false };
        stats.dropped_received += 1;
        self.drop(oldest.data, pool);
        true
    }

    fn deliver(&mut self, arrived: Arrived, stats: &mut PacketStats) {
        stats.received += 1;
        stats.bytes_received += arrived.data.len() as u64;
        self.ready.push_back((arrived.data, arrived.ce));
    }

    fn deliver_in_order(&mut self, arrived: Arrived, stats: &mut PacketStats) {
        if self.delivered.len() > FLOWS_KEPT && !self.delivered.contains_key(&arrived.flow) {
            // What is older would be turned away as known.
            let oldest = self.oldest();
            self.delivered.retain(|_, last| *last >= oldest);
        }
        self.delivered.insert(arrived.flow, arrived.number);
        self.deliver(arrived, stats);
    }

    /// No lower number is taken any more.
    fn oldest(&self) -> u64 {
        self.seen.highest().map_or(0, |highest| highest.saturating_sub(ReplayWindow::WIDTH))
    }

    /// A flow of which more may be delivered.
    fn drain_due(&self, now: Time) -> Option<u16> {
        self.drains.iter().find(|(_, drain)| drain.next() <= now).map(|(flow, _)| *flow)
    }

    /// The first of a flow that waits.
    fn first_held(&self, flow: u16) -> Option<&Arrived> {
        self.held.range((flow, 0)..=(flow, u64::MAX)).next().map(|(_, held)| held)
    }

    fn take_held(&mut self, key: (u16, u64)) -> Option<Arrived> {
        let arrived = self.held.remove(&key)?;
        self.timers.replace(key, Some(arrived.due), None);
        Some(arrived)
    }

    /// Delivers those of a flow, in order, that wait for nothing any more, or have a number up to `to`: as much of it as
    /// may be delivered at once, and the rest soon.
    fn release(&mut self, now: Time, flow: u16, to: u64, stats: &mut PacketStats) {
        let mut drain = self.drains.remove(&flow).unwrap_or_else(|| Drain::new(now));
        drain.go_on(now, to);
        loop {
            let last = self.delivered.get(&flow).copied().unwrap_or(0);
            let first = self.first_held(flow);
            let first = first.filter(|held| drain.covers(held.number) || held.after <= last);
            let Some(number) = first.map(|held| held.number) else { return };
            if drain.is_spent() {
                self.drains.insert(flow, drain);
                return;
            }
            if let Some(arrived) = self.take_held((flow, number)) {
                drain.spend(arrived.data.len());
                self.deliver_in_order(arrived, stats);
            }
        }
    }

    /// What has waited long enough is delivered, without those that it waited for.
    pub(super) fn handle_timeout(&mut self, now: Time, pool: &mut Pool, stats: &mut PacketStats) {
        while let Some((flow, number)) = self.timers.pop_due(now) {
            self.release(now, flow, number, stats);
        }
        while let Some(flow) = self.drain_due(now) {
            self.release(now, flow, 0, stats);
        }
        // The missing parts of a packet may be too old for the sender, or would be turned away.
        let oldest = self.oldest();
        let over = |(number, partial): (&u64, &Partial)| *number < oldest || partial.due <= now;
        while self.partial.first_key_value().is_some_and(over) {
            self.drop_partial(pool, stats);
        }
    }
}
