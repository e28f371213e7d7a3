//! Recovery from losses that duplicate acknowledgements tell (RFC 5681, 6582, 6675).

use core::ops::Range;

use lasthop_units::Time;
use lasthop_wire::tcp::Segment;

use super::{Connection, Phase, Repairing};
use crate::response::{AckFacts, Repair, Response};

/// Duplicates that tell of a loss.
pub(super) const THRESHOLD: u32 = 3;

impl Connection {
    /// Notes the peer's selective acknowledgements; true if they say something new.
    pub(super) fn record_sacks(&mut self, seg: &Segment) -> bool {
        let mut news = false;
        for &(start, end) in seg.options.sack.as_slice() {
            let position = |seq: lasthop_wire::tcp::Seq| {
                self.una.checked_add_signed(i64::from(seq.ahead_of(self.seq_at(self.una))))
            };
            let (Some(start), Some(end)) = (position(start), position(end)) else { continue };
            if start > self.una && end <= self.max {
                news |= self.board.record(start..end);
            }
        }
        news
    }

    pub(super) fn on_duplicate(&mut self, now: Time, seg: &Segment) {
        self.note_signs(seg);
        self.dupacks += 1;
        self.stats.dupacks_received += 1;
        match self.phase {
            Phase::Recovery { repair: Repairing::Sack, .. } => self.update_board(),
            Phase::Recovery { .. } => self.inflation += self.windows.mss.cast_signed(),
            Phase::Open | Phase::Loss => {
                if self.indicates_loss() {
                    self.begin_recovery(now);
                }
            }
        }
    }

    /// RENO-3: the third duplicate, unless it may stem from segments that were sent again already
    /// (RFC 6582 section 4.1). A scoreboard tells those apart once all that was out is acknowledged
    /// (RFC 6675 section 5.1).
    fn indicates_loss(&mut self) -> bool {
        let by_board = self.sack && !self.board.is_empty();
        if self.una < self.recover || (self.una == self.recover && !by_board) {
            return false;
        }
        if by_board {
            self.update_board();
            if self.board.first_is_lost(self.una) {
                return true;
            }
        }
        self.dupacks == THRESHOLD
    }

    fn update_board(&mut self) {
        self.board.update(self.una, self.max, self.windows.mss);
    }

    pub(super) fn begin_recovery(&mut self, now: Time) {
        let spared = self.spares_loss();
        self.signs.spared = spared;
        if spared {
            self.stats.spared_losses += 1;
        } else {
            let facts = self.facts(now, 0, self.una);
            self.control.on_loss(&mut self.windows, &facts);
            self.ecn.on_cut(self.max);
        }
        self.stats.fast_retransmits += 1;
        self.recover = self.max;
        self.timing = None;
        let repair = match self.control.repair() {
            // Who keeps the window has no slow start to send everything again with.
            Repair::GoBack if spared => Repairing::Once,
            Repair::GoBack => {
                self.nxt = self.una;
                self.phase = Phase::Loss;
                self.restart_rtx(now);
                return;
            }
            Repair::Once => Repairing::Once,
            Repair::Sack if self.sack => Repairing::Sack,
            Repair::Partial | Repair::Sack => Repairing::Partial,
        };
        self.inflation = 0;
        if repair == Repairing::Sack {
            self.board.begin(self.una);
            self.update_board();
        } else {
            self.inflation = i64::from(THRESHOLD) * self.windows.mss.cast_signed();
        }
        self.phase = Phase::Recovery { repair, partial_acks: 0 };
        self.retransmit_first = true;
        self.restart_rtx(now);
    }

    /// New data was acknowledged during recovery; true if the timer is to start anew.
    pub(super) fn recovery_ack(&mut self, now: Time, before: &AckFacts) -> bool {
        let Phase::Recovery { repair, partial_acks } = self.phase else { return true };
        if repair == Repairing::Once || self.una >= self.recover {
            let facts = AckFacts { acked: before.acked, ..self.facts(now, 0, self.una) };
            self.inflation = 0;
            self.retransmit_first = false;
            self.phase = Phase::Open;
            if !self.signs.spared {
                self.control.on_recovered(&mut self.windows, &facts);
            }
            return true;
        }
        self.phase = Phase::Recovery { repair, partial_acks: partial_acks.saturating_add(1) };
        self.control.on_partial_ack(&mut self.windows, before);
        if repair == Repairing::Sack {
            self.update_board();
            return true;
        }
        // Deflate by what was acknowledged, add back one segment (RFC 6582 section 3.2 step 3).
        let mss = self.windows.mss;
        let back = if before.acked >= mss { mss } else { 0 };
        self.inflation += back.cast_signed() - before.acked.cast_signed();
        self.retransmit_first = true;
        // Only the first partial acknowledgement restarts the timer: a window with many losses ends
        // in a timeout sooner than it mends at one segment each round trip (RFC 6582 section 4).
        partial_acks == 0
    }

    /// What the scoreboard says to send next, and whether it is sent again: what is lost, else new
    /// data, else any hole below what the peer holds (RFC 6675 section 4, NextSeg 1 to 3).
    pub(super) fn next_by_board(&self) -> Option<(Range<u64>, bool)> {
        let mss = u64::from(self.mss);
        if self.board.pipe() + mss > self.windows.cwnd {
            return None;
        }
        let cut = |r: Range<u64>| r.start..r.end.min(r.start + mss).min(self.written);
        let whole = |r: &Range<u64>| r.start < r.end;
        if let Some(hole) = self.board.next_hole(false).map(cut).filter(whole) {
            return Some((hole, true));
        }
        let edge = self.snd_edge.min(self.written);
        let new = self.nxt..edge.min(self.nxt + mss);
        if new.end.saturating_sub(new.start) == mss || (whole(&new) && new.end == self.written) {
            return Some((new, false));
        }
        self.board.next_hole(true).map(cut).filter(whole).map(|hole| (hole, true))
    }
}
