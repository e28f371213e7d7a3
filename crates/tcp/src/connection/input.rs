//! Segments that arrive on a connection whose SYNs are both known (RFC 9293 section 3.10.7.4).

use lasthop_units::{Duration, Time};
use lasthop_wire::tcp::{Flags, Segment};

use super::{Arrival, Connection, Event, State};
use crate::receive::SegmentFate;

/// After so long without a segment the peer's clock may have wrapped (RFC 7323 section 5.5).
const STAMPS_OUTDATED: Duration = Duration::from_secs(24 * 24 * 3600);

impl Connection {
    /// Takes a segment of this connection; which part of its payload is new and in the window.
    pub fn handle_segment(&mut self, now: Time, seg: &Segment) -> Arrival {
        self.handle_segment_marked(now, seg, false)
    }

    /// As [`handle_segment`](Self::handle_segment), of a segment whose IP header says that it met
    /// congestion on its way if it is `marked`: CE (RFC 3168 section 5).
    pub fn handle_segment_marked(&mut self, now: Time, seg: &Segment, marked: bool) -> Arrival {
        self.stats.segments_received += 1;
        self.stats.data_segments_received += u64::from(seg.len > 0);
        let before = self.recv.nxt;
        self.mobile.heard = false;
        let arrival = match self.state {
            State::Closed => Arrival::NONE,
            State::SynSent => self.in_syn_sent(now, seg),
            _ => self.in_synchronized(now, seg, marked),
        };
        if self.mobile.on && self.mobile.heard {
            self.report_segment(now, seg, before);
        }
        arrival
    }

    #[inline]
    fn in_synchronized(&mut self, now: Time, seg: &Segment, marked: bool) -> Arrival {
        let ahead = self.recv.ahead_of_next(seg.seq);
        if seg.flags.intersects(Flags::RST.with(Flags::SYN)) && !self.survives(now, seg, ahead) {
            return Arrival::NONE;
        }
        if self.stamps.on && !self.stamps_are_fresh(now, seg) {
            return Arrival::NONE;
        }
        let room = i64::try_from(self.recv.promised - self.recv.nxt).unwrap_or(i64::MAX);
        // A segment at the very edge of a closed window is a probe: refused, but its
        // acknowledgement counts.
        if ahead > room || (ahead == room && seg.len > 0 && ahead > 0) {
            return self.refuse(now, seg);
        }
        // What was overtaken on the way may still acknowledge, but a peer sends nothing that ends
        // more than a window below what it has sent (RFC 9293 section 3.10.7.4, RFC 5961 section 5).
        if ahead < 0 && self.recv.is_outdated(ahead + i64::from(seg.seq_len())) {
            return self.refuse(now, seg);
        }
        if !seg.flags.contains(Flags::ACK) {
            return Arrival::NONE;
        }
        if self.state == State::SynReceived && !self.completes_opening(now, seg) {
            return Arrival::NONE;
        }
        if !self.handle_ack(now, seg, ahead) {
            return Arrival::NONE;
        }
        self.mobile.heard = true;
        if self.stamps.on {
            self.note_stamp(now, seg, ahead);
        }
        // What a SYN carries is left for its sender to repeat.
        if (seg.len == 0 && !seg.flags.contains(Flags::FIN)) || seg.flags.contains(Flags::SYN) {
            // A keep-alive sits one byte below what comes next and gets an answer (RFC 9293 section
            // 3.8.4). Older ones were overtaken on the way; answers to them could go back and forth.
            if ahead == -1 && !seg.flags.contains(Flags::SYN) {
                self.ack.now = true;
            }
            return Arrival::NONE;
        }
        self.take_payload(now, seg, ahead, marked)
    }

    /// Data is answered always, for its sender waits; the answer to a bare acknowledgement could
    /// call forth another of its kind.
    fn refuse(&mut self, now: Time, seg: &Segment) -> Arrival {
        self.stats.unacceptable_segments += 1;
        if seg.seq_len() > 0 {
            self.ack.now = true;
        } else {
            self.challenge(now);
        }
        Arrival::NONE
    }

    /// A challenge acknowledgement, unless too many went out lately (RFC 5961 section 7).
    pub(super) fn challenge(&mut self, now: Time) {
        if self.challenges.take(now) {
            self.stats.challenge_acks_sent += 1;
            self.ack.now = true;
        }
    }

    /// Judges a segment with RST or SYN (RFC 5961 sections 3 and 4); true if the rest of it counts.
    fn survives(&mut self, now: Time, seg: &Segment, ahead: i64) -> bool {
        if seg.flags.contains(Flags::RST) {
            let room = i64::try_from(self.recv.promised - self.recv.nxt).unwrap_or(i64::MAX);
            if self.state == State::TimeWait {
                // Both streams are over: there is nothing left to be cut (RFC 1337).
            } else if ahead == 0 {
                self.terminate(Event::Reset);
            } else if ahead > 0 && ahead < room {
                self.challenge(now);
            }
            return false;
        }
        // Our answer to the SYN was lost, or both sides opened at once.
        if self.state == State::SynReceived && ahead == -1 {
            if seg.flags.contains(Flags::ACK) {
                self.ack.now = true;
            } else {
                self.nxt = 0;
            }
            return true;
        }
        self.challenge(now);
        false
    }

    /// PAWS (RFC 7323 section 5.3).
    fn stamps_are_fresh(&mut self, now: Time, seg: &Segment) -> bool {
        let Some(stamps) = seg.options.timestamps else {
            // A peer that agreed to timestamps sends them; others guess (RFC 7323 section 3.2).
            self.stats.unacceptable_segments += 1;
            return false;
        };
        let newer = stamps.value.wrapping_sub(self.stamps.recent).cast_signed();
        if newer < 0 && now.since(self.stamps.recent_at) < STAMPS_OUTDATED {
            self.stats.paws_rejected += 1;
            self.ack.now = true;
            return false;
        }
        true
    }

    /// TS.Recent (RFC 7323 section 4.3): the earliest segment that no acknowledgement has covered
    /// sets the echo, so that the peer's sample has the delay of an acknowledgement in it. What
    /// arrives above a gap sets none.
    fn note_stamp(&mut self, now: Time, seg: &Segment, ahead: i64) {
        let Some(stamps) = seg.options.timestamps else { return };
        if self.recv.nxt.saturating_add_signed(ahead) <= self.stamps.last_ack {
            self.stamps.recent = stamps.value;
            self.stamps.recent_at = now;
        }
    }

    /// In SYN-RECEIVED the acknowledgement of our SYN is what is awaited.
    fn completes_opening(&mut self, now: Time, seg: &Segment) -> bool {
        let ahead = seg.ack.ahead_of(self.seq_at(1));
        if ahead < 0 || i64::from(ahead) > (self.max.max(1) - 1).cast_signed() || self.max == 0 {
            self.stats.unacceptable_segments += 1;
            self.reset_with(seg.ack);
            return false;
        }
        self.on_syn_acked(now);
        true
    }

    fn take_payload(&mut self, now: Time, seg: &Segment, ahead: i64, marked: bool) -> Arrival {
        if !self.receives() {
            // The peer's stream is over: it did not get our acknowledgement of its FIN.
            self.on_repeated_end(now);
            return Arrival::NONE;
        }
        let mut arrival = Arrival::NONE;
        let end = self.recv.nxt.checked_add_signed(ahead + i64::from(seg.len));
        if seg.len > 0 {
            let taken = self.recv.take(ahead, seg.len);
            arrival = Arrival { offset: taken.start - 1, skip: taken.skip, len: taken.len };
            self.stats.bytes_received += u64::from(taken.len);
            if self.ecn.on && taken.len > 0 {
                self.note_mark(seg, &taken, marked);
            }
            self.plan_ack(now, taken.fate);
            if taken.fate == SegmentFate::Refused {
                return Arrival::NONE;
            }
        }
        if seg.flags.contains(Flags::FIN) {
            end.into_iter().for_each(|position| self.recv.on_fin(position));
            self.ack.now = true;
        }
        if self.recv.fin.is_some() && self.recv.pass_fin() {
            self.on_peer_finished(now);
        }
        arrival
    }

    /// RENO-7: at once on a gap or a gap's fill, else as the configuration allows.
    #[inline]
    fn plan_ack(&mut self, now: Time, fate: SegmentFate) {
        match fate {
            SegmentFate::InOrder { fills: false } => self.delay_ack(now),
            SegmentFate::InOrder { fills: true } => {
                self.discard_duplicates();
                self.ack.now = true;
            }
            SegmentFate::AboveGap => {
                self.stats.out_of_order_segments += 1;
                self.queue_duplicate_ack(now);
            }
            SegmentFate::Duplicate => {
                self.stats.duplicate_segments_received += 1;
                self.ack.now = true;
            }
            SegmentFate::Refused => {
                self.stats.unacceptable_segments += 1;
                self.ack.now = true;
            }
        }
    }

    #[inline]
    fn delay_ack(&mut self, now: Time) {
        let Some(delay) = &self.config.delayed_ack else {
            self.ack.now = true;
            return;
        };
        self.ack.waiting += 1;
        if self.ack.waiting >= delay.every {
            self.ack.now = true;
        } else if self.ack.timer == Time::NEVER {
            let due = now + delay.timeout;
            let step = u64::try_from(delay.timeout.as_nanos()).unwrap_or(u64::MAX).max(1);
            self.ack.timer =
                if delay.on_ticks { Time::from_nanos(due.as_nanos() / step * step) } else { due };
        }
    }
}
