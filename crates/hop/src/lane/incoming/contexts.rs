//! Headers that later packets of a flow have in common (RFC 5795's static context).

use alloc::collections::BTreeMap;

use lasthop_wire::frame::{PacketFrame, PacketHeader};
use lasthop_wire::header_context::HeaderContext;

use crate::seal::ReplayWindow;

/// Flows whose contexts are kept although they may be too old to be needed.
const FLOWS_KEPT: usize = 64;
/// No packet that is still taken needs one that came with a packet so many numbers before the latest.
const NEEDED_MAX: u64 = PacketHeader::DISTANCE_MAX + ReplayWindow::WIDTH;

/// The last two contexts of each flow, and the packets that brought them.
#[derive(Debug, Default)]
pub(super) struct Contexts(BTreeMap<u16, [Option<(u64, HeaderContext)>; 2]>);

impl Contexts {
    /// Keeps the context of a packet of which this is the beginning, if it has one.
    pub(super) fn keep(&mut self, flow: u16, frame: &PacketFrame<'_>) {
        let (number, total) = (frame.number, frame.total() as usize);
        if frame.part.is_some_and(|(offset, _)| offset > 0) {
            return;
        }
        let Some(context) = HeaderContext::of(frame.data, total) else { return };
        if self.0.len() > FLOWS_KEPT && !self.0.contains_key(&flow) {
            let may_be_needed = |(n, _): &(u64, _)| n + NEEDED_MAX >= number;
            self.0.retain(|_, kept| kept.iter().flatten().any(may_be_needed));
        }
        let [newer, older] = self.0.entry(flow).or_default();
        let age = |kept: &Option<(u64, _)>| kept.as_ref().map_or(0, |(n, _)| *n);
        if number > age(newer) {
            *older = newer.replace((number, context));
        } else if number < age(newer) && number > age(older) {
            *older = Some((number, context));
        }
    }

    /// The one that a packet of this number brought.
    pub(super) fn get(&self, flow: u16, number: u64) -> Option<HeaderContext> {
        let kept = self.0.get(&flow)?.iter().flatten();
        kept.into_iter().find(|(n, _)| *n == number).map(|(_, context)| *context)
    }
}
