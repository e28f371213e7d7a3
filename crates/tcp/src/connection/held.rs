//! Which duplicate acknowledgements wait, at the receiving half (DDA-2 to DDA-4, CC-3, CC-5).

use lasthop_units::{Duration, Time};
use lasthop_wire::tcp::Segment;

use super::Connection;
use crate::receive::TakenPayload;

/// Duplicates of a gap that go out at once where the others are delayed (DDA-2).
const AT_ONCE: u32 = 2;

impl Connection {
    /// New data came: its mark, and whether the peer has answered our echo. A copy of what is there
    /// already changes nothing: the original arrived (RFC 3168 section 6.1.5).
    pub(super) fn note_mark(&mut self, seg: &Segment, taken: &TakenPayload, marked: bool) {
        self.ecn.on_data(seg.flags, marked);
        if marked {
            self.stats.marks_received += 1;
            if self.config.coherence.is_some() {
                self.marks.record(taken.start..taken.start + u64::from(taken.len));
            }
        }
    }

    /// A segment came above a gap.
    #[inline]
    pub(super) fn queue_duplicate_ack(&mut self, now: Time) {
        let waits = self.config.delayed_dupacks.is_some() || self.config.coherence.is_some();
        let due = if waits { self.duplicates_due(now) } else { 1 };
        self.ack.duplicates = self.ack.duplicates.saturating_add(due);
    }

    fn duplicates_due(&mut self, now: Time) -> u8 {
        // What came in order and was not acknowledged makes it no duplicate to the peer.
        if core::mem::take(&mut self.ack.waiting) > 0 {
            return 1;
        }
        match (self.config.coherence, self.config.delayed_dupacks) {
            (Some(coherence), _) if self.ecn.on => {
                if self.hole_is_congested(coherence.behind) {
                    let held = self.held.release();
                    return held.saturating_add(self.held.add(now, None));
                }
                self.held.add(now, Some(coherence.hold))
            }
            (_, Some(delay)) => self.held.add(now, self.delays(delay)),
            _ => 1,
        }
    }

    fn delays(&self, delay: Duration) -> Option<Duration> {
        (self.held.run() >= AT_ONCE).then_some(delay)
    }

    /// CC-3: a neighbour of what is missing first carries a mark.
    fn hole_is_congested(&self, behind: u8) -> bool {
        let Some(above) = self.recv.ahead.iter().next() else { return false };
        let behind = u64::from(behind) * u64::from(self.mss);
        self.marks.are_near(self.recv.nxt..above.start, behind)
    }

    /// All that wait go out (DDA-3).
    pub(super) fn release_duplicates(&mut self) {
        let due = self.held.release();
        self.ack.duplicates = self.ack.duplicates.saturating_add(due);
    }

    /// The gap was filled, at least in part: what waited is not worth sending (DDA-3, CC-5).
    pub(super) fn discard_duplicates(&mut self) {
        self.stats.dupacks_discarded += u64::from(self.held.discard());
    }
}
