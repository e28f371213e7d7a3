//! What is sent, and when (RFC 9293 sections 3.7 and 3.8).

use lasthop_units::Time;
use lasthop_wire::tcp::{Flags, Options, SackBlocks, Segment, Timestamps};

use super::recovery::THRESHOLD;
use super::{AckRequest, AckWindow, Connection, Outgoing, Phase, Repairing, State};
use crate::response::Response;

impl Connection {
    /// The next segment to send, if any. Call until there is none.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Outgoing> {
        if self.reset_due {
            return Some(self.transmit_reset());
        }
        if self.nxt == 0 && matches!(self.state, State::SynSent | State::SynReceived) {
            return Some(self.transmit_syn(now));
        }
        if self.ack.requested > 0 {
            return Some(self.transmit_requested(now));
        }
        if self.ack.duplicates > 0 {
            self.ack.duplicates -= 1;
            self.stats.dupacks_sent += 1;
            return Some(self.transmit_ack(now));
        }
        if self.una < self.end()
            && self.sends()
            && let Some(out) = self.transmit_data(now)
        {
            return Some(out);
        }
        if self.ack.now {
            return Some(self.transmit_ack(now));
        }
        None
    }

    #[inline]
    fn sends(&self) -> bool {
        !matches!(
            self.state,
            State::Closed | State::SynSent | State::SynReceived | State::FinWait2 | State::TimeWait
        )
    }

    fn transmit_data(&mut self, now: Time) -> Option<Outgoing> {
        if self.mobile.held {
            return self.transmit_held(now);
        }
        if self.retransmit_first {
            self.retransmit_first = false;
            let len = u64::from(self.mss).min(self.written - self.una.min(self.written));
            return Some(self.transmit_again(now, self.una, len));
        }
        if self.probe_due {
            self.probe_due = false;
            self.stats.window_probes_sent += 1;
            return Some(self.transmit_untimed(now));
        }
        if let Phase::Recovery { repair: Repairing::Sack, .. } = self.phase {
            return self.transmit_by_board(now);
        }
        if self.nxt >= self.end() {
            return None;
        }
        if self.una == self.max && self.config.restart_after_idle {
            self.restart_if_idle(now);
        }
        if self.phase == Phase::Loss && !self.board.is_empty() {
            self.skip_held();
        }
        let Some(len) = self.next_len() else {
            self.persist_if_stuck(now);
            return None;
        };
        Some(self.transmit_at_nxt(now, len))
    }

    /// The window that may be filled from SND.UNA on.
    #[inline]
    pub(super) fn usable_edge(&self) -> u64 {
        let mut cwnd = self.windows.cwnd.saturating_add_signed(self.inflation);
        cwnd = cwnd.max(self.windows.mss);
        let few = self.dupacks < THRESHOLD && !matches!(self.phase, Phase::Recovery { .. });
        if self.config.limited_transmit && few {
            cwnd += u64::from(self.dupacks) * self.windows.mss;
        }
        // RENO-11: the lesser of the two windows.
        (self.una + cwnd).min(self.snd_edge)
    }

    /// How much payload the segment at SND.NXT is to carry, if it is to be sent: a full segment, or
    /// the last of what there is if Nagle does not hold it back, or half the peer's window
    /// (RFC 9293 sections 3.7.4 and 3.8.6.2.1).
    #[inline]
    fn next_len(&self) -> Option<u64> {
        let left = self.written.saturating_sub(self.nxt);
        let full = u64::from(self.mss);
        let room = self.usable_edge().saturating_sub(self.nxt);
        let len = full.min(left).min(room);
        if len == full {
            return Some(len);
        }
        if len == left {
            // A FIN takes no window of its own when nothing else is left.
            let may = self.fin || !self.config.nagle || self.nxt == self.una || self.nxt < self.max;
            return (may && (len > 0 || self.fin)).then_some(len);
        }
        let opens_repair = self.nxt == self.una && self.nxt < self.max;
        let fills = len > 0 && (len * 2 >= self.max_wnd || opens_repair);
        fills.then_some(len)
    }

    /// Steps over what the peer holds while sending again after a timeout.
    fn skip_held(&mut self) {
        if self.nxt < self.max
            && let Some(hole) = self.board.first_missing(self.nxt..self.max)
        {
            self.nxt = hole.start;
        }
    }

    fn restart_if_idle(&mut self, now: Time) {
        if self.nxt > 1 && now.since(self.last_sent) > self.rtt.rto() {
            self.control.on_restart(&mut self.windows);
        }
    }

    fn transmit_at_nxt(&mut self, now: Time, len: u64) -> Outgoing {
        let at = self.nxt;
        let fin = self.fin && at + len == self.written;
        let end = at + len + u64::from(fin);
        self.nxt = end;
        let new = at >= self.max && len > 0;
        let mut out = self.transmit_range(now, at, len, fin);
        if new && self.ecn.on {
            out.ecn_capable = true;
            out.segment.flags = out.segment.flags.with(self.ecn.on_new_data());
        }
        out
    }

    /// Sends what was sent before, leaving SND.NXT where it is.
    fn transmit_again(&mut self, now: Time, at: u64, len: u64) -> Outgoing {
        let fin = self.fin && at + len == self.written && self.max > self.written;
        if let Phase::Recovery { repair: Repairing::Sack, .. } = self.phase {
            self.board.on_sent(&(at..at + len), true);
        }
        self.transmit_range(now, at, len, fin)
    }

    fn transmit_by_board(&mut self, now: Time) -> Option<Outgoing> {
        if self.nxt == self.written && self.fin && self.max == self.written {
            return Some(self.transmit_at_nxt(now, 0));
        }
        let (range, again) = self.next_by_board()?;
        let len = range.end - range.start;
        if again {
            return Some(self.transmit_again(now, range.start, len));
        }
        self.board.on_sent(&range, false);
        Some(self.transmit_at_nxt(now, len))
    }

    /// One byte into the closed window, or into what is left of it as much as fits (RENO-8). Another
    /// timer than that for retransmission waits for the answer.
    pub(super) fn transmit_untimed(&mut self, now: Time) -> Outgoing {
        let room = self.snd_edge.saturating_sub(self.una).max(1);
        let len = room.min(u64::from(self.mss)).min(self.written.saturating_sub(self.una));
        let fin = self.fin && self.una + len == self.written;
        let keep = self.rtx_timer;
        let out = self.transmit_range(now, self.una, len, fin);
        self.rtx_timer = keep;
        self.timing = None;
        out
    }

    /// Sends positions from `at` on and keeps the books.
    #[inline]
    fn transmit_range(&mut self, now: Time, at: u64, len: u64, fin: bool) -> Outgoing {
        let end = at + len + u64::from(fin);
        let bytes = u32::try_from(len).unwrap_or(self.mss);
        if at < self.max {
            self.stats.retransmits += 1;
            self.stats.bytes_retransmitted += len;
            // Karn: what follows a retransmission could be taken for its answer.
            if self.timing.is_some_and(|(timed, _)| timed > at) {
                self.timing = None;
            }
        } else if self.timing.is_none() {
            self.timing = Some((end, now));
        }
        self.max = self.max.max(end);
        self.last_sent = now;
        self.stats.data_segments_sent += u64::from(len > 0);
        self.stats.bytes_sent += len;
        if self.rtx_timer == Time::NEVER {
            self.rtx_timer = self.rtt.deadline(now);
        }
        let mut flags = Flags::ACK;
        if end >= self.written {
            flags = flags.with(Flags::PSH);
        }
        if fin {
            flags = flags.with(Flags::FIN);
        }
        let segment = self.segment(now, at, flags, bytes);
        Outgoing::plain(segment, at - 1)
    }

    fn transmit_syn(&mut self, now: Time) -> Outgoing {
        let first = self.max == 0;
        self.nxt = 1;
        self.max = self.max.max(1);
        self.timing = first.then_some((1, now));
        self.last_sent = now;
        if self.rtx_timer == Time::NEVER {
            self.rtx_timer = self.rtt.deadline(now);
        }
        self.stats.retransmits += u64::from(!first);
        let answer = self.state == State::SynReceived;
        let flags = if answer { Flags::SYN.with(Flags::ACK) } else { Flags::SYN };
        let mut segment = self.segment(now, 0, flags, 0);
        let timestamps = if answer || !self.config.timestamps {
            segment.options.timestamps
        } else {
            Some(Timestamps { value: self.clock(now), echo: 0 })
        };
        segment.options = Options { timestamps, ..self.syn_options() };
        segment.flags = segment.flags.with(self.ecn.syn_flags(self.config.ecn, answer));
        Outgoing::plain(segment, 0)
    }

    #[inline]
    fn transmit_ack(&mut self, now: Time) -> Outgoing {
        self.stats.acks_sent += 1;
        let segment = self.segment(now, self.ack_position(), Flags::ACK, 0);
        Outgoing::plain(segment, 0)
    }

    /// A bare acknowledgement's sequence number: SND.NXT, unless it was pulled back, since a peer
    /// takes no window from what looks old.
    fn ack_position(&self) -> u64 {
        self.max
    }

    fn transmit_requested(&mut self, now: Time) -> Outgoing {
        let request = self.ack.requests[0];
        self.ack.requests.copy_within(1.., 0);
        self.ack.requested -= 1;
        let told = self.recv.edge;
        let mut out = self.transmit_ack(now);
        let AckRequest { withhold, window } = request;
        if withhold > 0 {
            let back = u64::from(withhold).min(self.recv.nxt - 1);
            out.segment.ack = self.recv.seq_at(self.recv.nxt - back);
        }
        match window {
            AckWindow::Real => {}
            AckWindow::Unchanged => {
                let field = told.saturating_sub(self.recv.nxt.max(1)) >> self.recv.shift;
                out.segment.window = u16::try_from(field).unwrap_or(u16::MAX);
                // What was not stated is still owed.
                self.recv.edge = told;
            }
            AckWindow::Zero => out.segment.window = 0,
        }
        out
    }

    /// A header at `position`, with all that is owed to the peer; clears what it settles.
    #[inline]
    fn segment(&mut self, now: Time, position: u64, flags: Flags, len: u32) -> Segment {
        let syn = flags.contains(Flags::SYN);
        let shift = if syn { 0 } else { self.recv.shift };
        let mut segment = Segment {
            src_port: self.ports.local,
            dst_port: self.ports.remote,
            seq: self.seq_at(position),
            flags,
            window: self.recv.advertise(shift),
            len,
            ..Segment::default()
        };
        self.stats.segments_sent += 1;
        if !flags.contains(Flags::ACK) {
            return segment;
        }
        if !syn {
            segment.flags = flags.with(self.ecn.ack_flags());
        }
        segment.ack = self.recv.seq_at(match self.ack.withhold_from {
            None => self.recv.nxt,
            Some(floor) => floor.max(self.recv.nxt.saturating_sub(2)),
        });
        if self.stamps.on {
            let value = self.clock(now);
            segment.options.timestamps = Some(Timestamps { value, echo: self.stamps.recent });
            // Bytes that are withheld count as covered: what let the acknowledgement out is what
            // it echoes.
            self.stamps.last_ack = self.recv.nxt;
        }
        if self.sack && !self.recv.ahead.is_empty() && !syn {
            segment.options.sack = self.recv.blocks(self.block_room(len));
        }
        self.ack.now = false;
        self.ack.waiting = 0;
        self.ack.timer = Time::NEVER;
        segment
    }

    /// How many SACK blocks fit: three beside timestamps, fewer beside payload.
    fn block_room(&self, len: u32) -> usize {
        let most = if self.stamps.on { SackBlocks::MAX - 1 } else { SackBlocks::MAX };
        if len == 0 {
            return most;
        }
        let free = self.mss.saturating_sub(len).saturating_sub(4);
        most.min(free as usize / 8)
    }

    /// The clock that timestamps show: milliseconds (RFC 7323 section 5.4).
    pub(super) fn clock(&self, now: Time) -> u32 {
        // The clock wraps by design.
        ((now.as_nanos() / 1_000_000) as u32).wrapping_add(self.stamps.offset)
    }
}
