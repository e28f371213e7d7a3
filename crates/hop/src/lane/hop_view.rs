//! What packets go by.

use core::time::Duration;

use super::codel::Bounds;
use crate::packet_class::PacketClass;

/// One of so many packets may take longer than what is taken for the longest.
const RARE: f64 = 1000.0;
/// No packet is waited for longer.
const PATIENCE_MAX: Duration = Duration::from_secs(4);

/// What a sender that listens to nothing may keep waiting: as long as in a router's plain queue.
const UNHEEDED: Duration = Duration::from_millis(100);

/// What the hop is like at the moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HopView {
    /// The round trip.
    pub(crate) srtt: Duration,
    /// How late datagrams may overtake each other before a gap counts as a loss.
    pub(crate) reordering: Duration,
    /// How long a full datagram takes.
    pub(crate) air: Duration,
    /// The share of datagrams that is lost.
    pub(crate) loss: f64,
    /// Room for frames in a full datagram.
    pub(crate) full: usize,
    /// Streams have something to send: no air time is free.
    pub(crate) busy: bool,
}

impl HopView {
    /// What CoDel goes by. Its interval is about the longest round trip of a flow (RFC 8289 section 4.3), which is longer
    /// by all that packets wait for those before them at the receiver. Meanwhile their sender hears nothing, and sends
    /// nothing: for about half of that the queue must last.
    pub(super) fn bounds(&self, class: &PacketClass) -> Bounds {
        let ordering = self.srtt.mul_f64(self.repeats().min(class.patience).clamp(0.0, 1000.0));
        let target = class.target.max(self.air * 3 / 2) + ordering / 2;
        Bounds {
            target,
            interval: Duration::from_millis(100).max(2 * self.srtt) + 2 * ordering,
            unheeded: UNHEEDED.max(target),
        }
    }

    /// How often all but one of [`RARE`] packets are sent again at most.
    fn repeats(&self) -> f64 {
        let loss = self.loss.clamp(0.0, 0.9);
        if loss > 0.0 { libm::log(RARE) / -libm::log(loss) } else { 0.0 }
    }

    pub(super) fn patience(&self, class: &PacketClass) -> Duration {
        let trips = class.patience.clamp(0.0, 1000.0);
        if trips == 0.0 {
            return Duration::ZERO;
        }
        // What may only have been overtaken is waited for before it is sent again.
        (self.srtt.mul_f64(trips).max(class.patience_min) + self.reordering).min(PATIENCE_MAX)
    }
}
