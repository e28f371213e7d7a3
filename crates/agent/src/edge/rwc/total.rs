//! What senders have been granted together.

use lasthop_wire::tcp::{Segment, Seq};

use super::window::{WindowState, segment_size};
use crate::edge::flow::Flow;

/// Keeps the sum of what is granted within a total while shares change (RWC-4): a window is not
/// widened before data has used up what others have too much of (RWC-9). Otherwise every change would
/// bring the hop what it takes from one flow and what it gives to another, both at once, and where its
/// queue is short the one that was to gain would lose most.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Granted {
    /// In bytes; the sum may be anything if there is none.
    most: Option<u64>,
    /// Of the flows that take part.
    sum: u64,
    /// Packets that a flow may have at any time.
    least: u64,
}

impl Granted {
    /// As long as these flows take part.
    pub(super) fn among<'a>(
        most: u64,
        least: u64,
        flows: impl Iterator<Item = &'a Flow<WindowState>>,
    ) -> Self {
        let sum = flows.map(|flow| flow.seen.mobile.last.map_or(0, |l| flow.state.granted(l.ack)));
        Self { most: Some(most), sum: sum.sum(), least }
    }

    /// The window field that a flow's sender is to see; `before` is what the mobile had acknowledged
    /// until this segment came.
    pub(super) fn window(
        &mut self,
        flow: &mut Flow<WindowState>,
        segment: &Segment,
        before: Seq,
        shift: u8,
    ) -> u16 {
        let Some(most) = self.most.filter(|_| flow.state.takes_part) else {
            return flow.state.window(segment, shift, u64::MAX);
        };
        let others = self.sum.saturating_sub(flow.state.granted(before));
        let least = self.least.saturating_mul(segment_size(&flow.seen));
        let window = flow.state.window(segment, shift, most.saturating_sub(others).max(least));
        let latest = flow.seen.mobile.last.map_or(segment.ack, |last| last.ack);
        self.sum = others.saturating_add(flow.state.granted(latest));
        window
    }
}
