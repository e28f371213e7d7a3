//! Acknowledgements that arrive: what is new, what is a duplicate, what the window is.

use lasthop_units::Time;
use lasthop_wire::tcp::{Flags, Segment};

use super::{Connection, Event, Phase, State};
use crate::config::ShrunkWindow;
use crate::response::Response;

impl Connection {
    /// Takes the acknowledgement and the window of `seg`, which begins `ahead` of RCV.NXT. False if
    /// the whole segment is to be dropped.
    pub(super) fn handle_ack(&mut self, now: Time, seg: &Segment, ahead: i64) -> bool {
        let delta = i64::from(seg.ack.ahead_of(self.seq_at(self.una)));
        let outstanding = (self.max - self.una).cast_signed();
        if delta > outstanding || -delta > self.max_wnd.cast_signed() + 1 {
            // It acknowledges what was never sent, or is too old to be true (RFC 5961 section 5).
            self.stats.unacceptable_segments += 1;
            self.challenge(now);
            return false;
        }
        self.probes = 0;
        let before = self.una;
        let news = self.sack && self.record_sacks(seg);
        // The window of a SYN is never scaled (RFC 7323 section 2.2).
        let shift = if seg.flags.contains(Flags::SYN) { 0 } else { self.snd_shift };
        let stated = u64::from(seg.window) << shift;
        if delta >= 0 && self.echoes(seg) {
            self.on_echo(now, before + delta.unsigned_abs());
        }
        if delta > 0 {
            self.on_new_ack(now, before + delta.unsigned_abs(), seg);
        } else if delta == 0 && self.is_duplicate(seg, stated, news) {
            self.on_duplicate(now, seg);
        }
        if delta >= 0 {
            self.update_window(now, ahead, stated);
        }
        self.state != State::Closed
    }

    /// RENO-4: same number, same window, no data, data outstanding. With a scoreboard what counts
    /// is that something more has arrived (RFC 6675 section 2).
    fn is_duplicate(&self, seg: &Segment, stated: u64, news: bool) -> bool {
        self.una < self.max
            && seg.len == 0
            && !seg.flags.intersects(Flags::SYN.with(Flags::FIN))
            && self.persist_timer == Time::NEVER
            && (news || (stated == self.snd_wnd && !self.sacks(seg)))
    }

    /// The segment says what the peer holds above the gap.
    fn sacks(&self, seg: &Segment) -> bool {
        self.sack && !seg.options.sack.is_empty()
    }

    fn on_new_ack(&mut self, now: Time, una: u64, seg: &Segment) {
        let before = self.una;
        let acked = una.min(self.written) - before.min(self.written);
        let persisting = self.persist_timer != Time::NEVER;
        // Taken before SND.UNA moves: what was in flight is what the window was tested against.
        let mut facts = self.facts(now, acked, before);
        // An acknowledgement that tells of congestion is no reason to grow (RFC 3168 section 6.1.2).
        facts.limited &= !self.echoes(seg);
        self.una = una;
        self.nxt = self.nxt.max(una);
        self.board.advance(una);
        self.stats.bytes_acked += acked;
        self.sample_from_ack(now, seg);
        self.rtt.on_new_ack();
        self.expiries = 0;
        let mut restart = true;
        if acked > 0 && !persisting {
            restart = self.respond_to_ack(now, &facts);
        }
        self.dupacks = 0;
        if self.una == self.max {
            self.rtx_timer = Time::NEVER;
        } else if restart {
            self.restart_rtx(now);
        }
        if self.fin && self.una > self.written {
            self.on_fin_acked(now);
        }
    }

    /// A timed segment's acknowledgement is a sample; where none is timed because of retransmissions
    /// the echo of our clock is one too (RFC 7323 section 4.1).
    fn sample_from_ack(&mut self, now: Time, seg: &Segment) {
        let echo = seg.options.timestamps.filter(|_| self.stamps.on).map(|t| t.echo);
        if let (Some(at), Some(echo)) = (self.stamps.timeout_at, echo) {
            self.stamps.timeout_at = None;
            if echo.wrapping_sub(at).cast_signed() < 0 {
                self.stats.spurious_timeouts += 1;
            }
        }
        match (self.timing, echo) {
            (Some((end, sent)), _) if self.una >= end => {
                self.timing = None;
                self.take_sample(sent, now);
            }
            (None, Some(echo)) if echo != 0 => {
                let age = self.clock(now).wrapping_sub(echo);
                if age < 0x8000_0000 {
                    let sent = now - lasthop_units::Duration::from_millis(u64::from(age));
                    // A round trip that a pause is part of says nothing of the path.
                    if sent >= self.mobile.resumed {
                        self.take_sample(sent, now);
                    }
                }
            }
            _ => {}
        }
    }

    pub(super) fn take_sample(&mut self, sent: Time, now: Time) {
        self.rtt.sample(sent, now);
        self.stats.rtt_samples += 1;
    }

    fn update_window(&mut self, now: Time, ahead: i64, stated: u64) {
        let Some(at) = self.recv.nxt.checked_add_signed(ahead) else { return };
        if at < self.wl1 || (at == self.wl1 && self.una < self.wl2) {
            return;
        }
        self.wl1 = at;
        self.wl2 = self.una;
        let closed = stated == 0 && self.snd_wnd > 0;
        self.snd_wnd = stated;
        self.snd_edge = self.una + stated;
        self.max_wnd = self.max_wnd.max(stated);
        if stated > 0 {
            self.on_window_open();
        } else if closed || self.max > self.una {
            self.on_window_closed(now, closed);
        }
    }

    /// RENO-10: probing ends, and sending goes on from SND.NXT, which stands at SND.UNA.
    fn on_window_open(&mut self) {
        self.persist_timer = Time::NEVER;
        self.persist_shift = 0;
        self.probe_due = false;
    }

    /// RENO-8 and RENO-9. A FIN that is out needs no window. What a timeout gave up and has not sent
    /// again yet counts as out, for the timer runs for it.
    fn on_window_closed(&mut self, now: Time, closed: bool) {
        let data_out = self.una < self.max.min(self.written);
        if closed && self.una < self.written {
            self.stats.zero_windows += 1;
        }
        if !data_out || self.config.shrunk_window == ShrunkWindow::KeepTimer {
            return;
        }
        if self.persist_timer != Time::NEVER {
            return;
        }
        self.rtx_timer = Time::NEVER;
        self.nxt = self.una;
        self.timing = None;
        self.retransmit_first = false;
        self.dupacks = 0;
        self.inflation = 0;
        self.phase = Phase::Open;
        self.board.clear();
        self.start_persist(now);
    }

    fn on_fin_acked(&mut self, now: Time) {
        match self.state {
            State::FinWait1 => self.state = State::FinWait2,
            State::Closing => self.enter_time_wait(now),
            State::LastAck => {
                self.emit(Event::Finished);
                self.close();
                return;
            }
            _ => return,
        }
        self.emit(Event::Finished);
    }

    fn respond_to_ack(&mut self, now: Time, facts: &crate::response::AckFacts) -> bool {
        match self.phase {
            Phase::Recovery { .. } => self.recovery_ack(now, facts),
            Phase::Loss => {
                if self.una >= self.recover {
                    self.phase = Phase::Open;
                }
                self.control.on_ack(&mut self.windows, facts);
                true
            }
            Phase::Open => {
                self.control.on_ack(&mut self.windows, facts);
                true
            }
        }
    }
}
