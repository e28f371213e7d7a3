//! The discipline of the 1994 paper: a window of a fixed number of segments, and a timer.
//!
//! The paper says how SRP repairs (SRP-3, SRP-4) and leaves open what bounds it. Here the receiver's
//! bitmap does: a sender has at most so many segments beyond the last one in sequence (SRP-2,
//! SRP-6), sends them without pacing, and asks again by a timer of its own where no
//! acknowledgement comes (SRP-9). One thing differs from numbered segments: a repetition has a
//! number of its own here, so that one reported missing is known to be lost, and no round trip must
//! pass lest it is sent twice (SRP-7).

use core::time::Duration;

use lasthop_wire::frame::Writer;

use super::recovery::RoundTrip;
use crate::config::{Discipline, Window};

impl Discipline {
    /// The window and timer, if an end goes by those.
    pub(super) fn windowed(&self) -> Option<&Window> {
        match self {
            Self::Paced => None,
            Self::Windowed(window) => Some(window),
        }
    }

    /// How far beyond the last byte in sequence a stream may be sent: the window's segments, each
    /// as full as a datagram with `room` bytes of frames can be.
    pub(super) fn span(&self, room: usize) -> u64 {
        let Some(window) = self.windowed() else { return u64::MAX };
        let segment = room.saturating_sub(Writer::stream_overhead(0, 0) + 1);
        u64::from(window.segments) * segment as u64
    }
}

impl Window {
    /// How long to wait for an answer, after `expiries` that brought none: round trip and four
    /// deviations, doubled for each, up to the cap (SRP-9).
    pub(super) fn timeout(&self, round_trip: &RoundTrip, expiries: u32) -> Duration {
        let once = round_trip.rto().unwrap_or(self.rto_initial).max(self.rto_min);
        let backed_off = once.saturating_mul(1 << expiries.min(16)).min(self.rto_max.max(once));
        let tick = self.granularity.as_nanos().max(1);
        let ticks = backed_off.as_nanos().div_ceil(tick);
        Duration::from_nanos(u64::try_from(ticks * tick).unwrap_or(u64::MAX))
    }
}
