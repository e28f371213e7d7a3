//! Packets that leave the lane unsent, for one that is better.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use lasthop_units::Time;
use lasthop_wire::header_context::HeaderContext;

use super::super::Pool;
use super::Outgoing;
use crate::packets::PacketStats;

impl Outgoing {
    /// Packets that have not arrived for certain and are not too old, in the order in which they came; they are no longer here.
    pub(in crate::lane) fn take_back(
        &mut self,
        now: Time,
        pool: &mut Pool,
        stats: &mut PacketStats,
    ) -> Vec<Vec<u8>> {
        let mut taken = Vec::new();
        let mut repeats = VecDeque::new();
        let mut begun = Vec::new();
        for waiting in self.waiting.values_mut() {
            begun.extend(waiting.current.take());
            repeats.append(&mut waiting.repeats);
        }
        for part in repeats {
            if self.slot_of(part).is_some() {
                taken.push(part.slot);
                // Other parts of it are of no more use.
                self.slots[part.slot as usize].number = 0;
            }
        }
        begun.retain(|index| !taken.contains(index));
        taken.append(&mut begun);
        for flow in 0..self.flows.len() {
            while let Some(index) = self.pop(flow as u16) {
                taken.push(index);
            }
        }
        taken.sort_by_key(|index| self.slots[*index as usize].queued_at);
        let mut packets = Vec::with_capacity(taken.len());
        for index in taken {
            let slot = &mut self.slots[index as usize];
            if slot.left_out > 0 {
                HeaderContext::lengthen(&mut slot.data);
            }
            match now.since(slot.queued_at) <= slot.class.lifetime {
                true => packets.push(slot.data.clone()),
                false => stats.dropped_old += 1,
            }
            self.forget(index, pool);
        }
        packets
    }
}
