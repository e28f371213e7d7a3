//! Timers: retransmission, persist, delayed acknowledgement, TIME-WAIT.

use lasthop_units::{Duration, Time};

use super::{Connection, Event, Phase, State};
use crate::config::ShrunkWindow;
use crate::mobility::OnTimeout;
use crate::response::Response;

/// Doublings of the time between probes that are counted.
const MAX_PERSIST_SHIFT: u32 = 16;

impl Connection {
    /// When [`handle_timeout`](Self::handle_timeout) is to be called, if ever.
    #[inline]
    pub fn next_timeout(&self) -> Option<Time> {
        let first = self.rtx_timer.min(self.persist_timer).min(self.ack.timer);
        let first = first.min(self.time_wait_timer).min(self.held.timer());
        let first = first.min(self.mobile.timer);
        (first != Time::NEVER).then_some(first)
    }

    /// Time has passed: timers whose time has come expire.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.ack.timer <= now {
            self.ack.timer = Time::NEVER;
            self.ack.now = true;
        }
        if self.held.timer() <= now {
            self.release_duplicates();
        }
        if self.time_wait_timer <= now {
            self.close();
        }
        if self.persist_timer <= now {
            self.on_persist_timer(now);
        }
        if self.rtx_timer <= now {
            self.on_rtx_timer(now);
        }
        if self.mobile.timer <= now {
            self.on_mobility_timer(now);
        }
    }

    /// Starts the retransmission timer anew if anything is outstanding.
    pub(super) fn restart_rtx(&mut self, now: Time) {
        let wanted = self.una < self.max && self.persist_timer == Time::NEVER;
        self.rtx_timer = if wanted { self.rtt.deadline(now) } else { Time::NEVER };
    }

    /// The hop before the peer is bad and data is being sent again there: the retransmission timer
    /// starts anew, so that it does not expire meanwhile; estimate and window stay (EBS-2).
    pub fn handle_bad_state(&mut self, now: Time) {
        if self.rtx_timer != Time::NEVER {
            self.stats.bad_states += 1;
            self.restart_rtx(now);
        }
    }

    /// RENO-6: every expiry counts, the window collapses, and sending goes back to SND.UNA.
    fn on_rtx_timer(&mut self, now: Time) {
        self.rtx_timer = Time::NEVER;
        if self.una == self.max {
            return;
        }
        self.stats.timeouts += 1;
        let decision = self.mobility_timeout(now);
        if matches!(decision, OnTimeout::Hold | OnTimeout::Collapse(_)) {
            return;
        }
        self.expiries += 1;
        if self.config.rto.give_up_after.is_some_and(|limit| self.expiries > limit) {
            self.stats.syn_timeouts += u64::from(self.una == 0);
            self.abort_timed_out();
            return;
        }
        self.timing = None;
        if self.una == 0 {
            self.stats.syn_timeouts += 1;
            self.syn_lost = true;
            self.nxt = 0;
        } else {
            self.on_loss_of_all(now, decision);
        }
        self.rtt.back_off();
        self.rtx_timer = self.rtt.deadline(now);
    }

    /// What is out is taken for lost.
    fn on_loss_of_all(&mut self, now: Time, decision: OnTimeout) {
        if let Phase::Recovery { .. } = self.phase {
            // What inflation let out is not the window that was too large.
            self.phase = Phase::Open;
        }
        self.inflation = 0;
        if decision == OnTimeout::Ordinary {
            let facts = self.facts(now, 0, self.una);
            self.control.on_timeout(&mut self.windows, &facts);
            self.ecn.on_cut(self.max);
        }
        self.go_back();
        if self.stamps.on {
            self.stamps.timeout_at = Some(self.clock(now));
        }
    }

    /// Sending goes back to SND.UNA. Duplicates that this calls forth tell of no loss.
    pub(super) fn go_back(&mut self) {
        self.phase = Phase::Loss;
        self.recover = self.max;
        self.inflation = 0;
        self.dupacks = 0;
        self.timing = None;
        self.nxt = self.una;
        // The peer may have discarded what it reported as held (RFC 2018 section 8).
        self.board.clear();
        let closed = self.snd_edge <= self.una;
        self.retransmit_first = closed && self.config.shrunk_window == ShrunkWindow::KeepTimer;
    }

    fn abort_timed_out(&mut self) {
        if self.is_established() {
            self.reset_due = true;
        }
        self.terminate(Event::GaveUp);
    }

    pub(super) fn start_persist(&mut self, now: Time) {
        let bounds = self.config.persist;
        let shift = self.persist_shift.min(MAX_PERSIST_SHIFT);
        let wait = self.rtt.base().saturating_mul(1 << shift);
        self.persist_timer = now + wait.clamp(bounds.min, bounds.max.max(bounds.min));
    }

    /// Data waits, nothing is outstanding and the window lets nothing out.
    pub(super) fn persist_if_stuck(&mut self, now: Time) {
        let waits = self.una < self.written && self.una == self.nxt;
        if waits && self.rtx_timer == Time::NEVER && self.persist_timer == Time::NEVER {
            self.start_persist(now);
        }
    }

    /// A peer that answers probes may keep its window closed for ever; one that is silent is given
    /// up as it would be after retransmissions (RFC 9293 section 3.8.6.1).
    fn on_persist_timer(&mut self, now: Time) {
        if self.mobile.held {
            // A probe would be lost for sure: one goes out when sending goes on.
            self.probe_due = true;
            self.start_persist(now);
            return;
        }
        let limit = self.config.rto.give_up_after.filter(|_| self.config.persist.gives_up);
        if limit.is_some_and(|limit| self.probes >= limit) {
            self.abort_timed_out();
            return;
        }
        self.probes = self.probes.saturating_add(1);
        self.persist_shift = (self.persist_shift + 1).min(MAX_PERSIST_SHIFT);
        self.probe_due = true;
        self.start_persist(now);
    }

    pub(super) fn enter_time_wait(&mut self, now: Time) {
        self.state = State::TimeWait;
        self.rtx_timer = Time::NEVER;
        self.persist_timer = Time::NEVER;
        self.time_wait_timer = now + self.config.time_wait;
    }

    /// How long the retransmission timer has left, if it runs.
    pub fn retransmission_due_in(&self, now: Time) -> Option<Duration> {
        (self.rtx_timer != Time::NEVER).then(|| self.rtx_timer.since(now))
    }
}
