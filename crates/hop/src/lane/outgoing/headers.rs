//! Headers that are not sent, since the receiver has them from an earlier packet (RFC 5795's static context).

use alloc::collections::BTreeMap;

use lasthop_wire::frame::PacketHeader;
use lasthop_wire::header_context::HeaderContext;

use super::slot::Slot;

/// Flows with a context, at most.
const FLOWS_MAX: usize = 64;
/// After so many numbers without use, a context gives way to one of the same flow, and to one of another flow.
const UNUSED: u64 = 8;
const IDLE: u64 = 256;

/// What the packets of a flow have in common.
#[derive(Debug)]
struct Context {
    headers: HeaderContext,
    /// The packet that brings it, 0 if that is over and did not arrive for certain, and whether it has arrived.
    number: u64,
    arrived: bool,
    /// The last packet that has these headers.
    used_at: u64,
    /// Packets that may still arrive and need it, or the one before it. The receiver keeps two.
    users: u32,
    former_users: u32,
}

impl Context {
    fn new(headers: HeaderContext, number: u64, former_users: u32) -> Self {
        Self { headers, number, arrived: false, used_at: number, users: 0, former_users }
    }
}

/// The contexts of all flows, by their buckets.
#[derive(Debug, Default)]
pub(super) struct Headers(BTreeMap<u16, Context>);

impl Headers {
    /// Leaves out what the receiver has of the headers of a packet that has just been given its number, or lets it keep them.
    pub(super) fn leave_out(&mut self, bucket: u16, slot: &mut Slot) {
        let number = slot.number;
        let Some(headers) = HeaderContext::of(&slot.data, slot.data.len()) else { return };
        if let Some(context) = self.0.get_mut(&bucket) {
            let same = context.headers == headers;
            if same && context.number > 0 && number - context.number <= PacketHeader::DISTANCE_MAX {
                context.used_at = number;
                if context.arrived {
                    context.users += 1;
                    headers.shorten(&mut slot.data);
                    (slot.context, slot.left_out) = (context.number, headers.left_out());
                }
                return;
            }
            // Two kinds of headers that alternate are not worth a change each time.
            let in_use = !same && number - context.used_at < UNUSED;
            if context.former_users > 0 || in_use {
                return;
            }
            *context = Context::new(headers, number, context.users);
        } else {
            if self.0.len() >= FLOWS_MAX {
                let idle = |c: &Context| c.used_at + IDLE < number && c.users + c.former_users == 0;
                let Some(idle) = self.0.iter().find(|(_, c)| idle(c)) else { return };
                let idle = *idle.0;
                self.0.remove(&idle);
            }
            self.0.insert(bucket, Context::new(headers, number, 0));
        }
        slot.context = number;
    }

    /// The first bytes of a packet have arrived whose headers the receiver keeps.
    pub(super) fn on_arrival(&mut self, bucket: u16, number: u64) {
        if let Some(context) = self.0.get_mut(&bucket).filter(|context| context.number == number) {
            context.arrived = true;
        }
    }

    /// A packet is over, whatever became of it.
    pub(super) fn forget(&mut self, bucket: u16, slot: &mut Slot) {
        let number = core::mem::take(&mut slot.context);
        let needed = core::mem::take(&mut slot.left_out) > 0;
        let Some(context) = self.0.get_mut(&bucket).filter(|_| number > 0) else { return };
        match (needed, context.number == number) {
            (true, true) => context.users -= 1,
            (true, false) => context.former_users -= 1,
            (false, true) if !context.arrived => context.number = 0,
            (false, _) => {}
        }
    }
}
