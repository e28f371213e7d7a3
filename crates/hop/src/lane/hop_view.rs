//! What packets go by.

use core::time::Duration;

use super::codel::Bounds;
use crate::packets::PacketClass;

/// A round trip is taken for no shorter: acknowledgements and probes take time too.
const ROUND_TRIP_MIN: Duration = Duration::from_millis(20);
/// No packet is waited for longer.
const PATIENCE_MAX: Duration = Duration::from_secs(4);

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
    pub(super) fn bounds(&self, class: &PacketClass) -> Bounds {
        Bounds {
            target: class.target.max(self.air * 3 / 2),
            interval: Duration::from_millis(100).max(2 * self.srtt),
        }
    }

    pub(super) fn patience(&self, class: &PacketClass) -> Duration {
        let trips = class.patience.clamp(0.0, 1000.0);
        if trips == 0.0 {
            return Duration::ZERO;
        }
        // What may only have been overtaken is waited for before it is sent again.
        (self.srtt.max(ROUND_TRIP_MIN).mul_f64(trips) + self.reordering).min(PATIENCE_MAX)
    }
}
