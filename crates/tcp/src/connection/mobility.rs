//! The mobility scheme at work: its inputs and what it has the connection do.

use lasthop_units::{LinkEvent, Time};
use lasthop_wire::tcp::Segment;

use super::{AckRequest, AckWindow, Connection, Outgoing, Phase, State};
use crate::config::Config;
use crate::mobility::{
    Acks, Action, ArrivedSegment, ConnectionView, Mobility, MobilityState, OnTimeout, Resend,
    TimerChange, Withhold,
};
use crate::response::Response;

/// The scheme and what it has brought about.
#[derive(Clone, Debug)]
pub(crate) struct Mobile {
    scheme: MobilityState,
    /// There is a scheme.
    pub(super) on: bool,
    /// The segment that is being taken in is the peer's, by its numbers.
    pub(super) heard: bool,
    /// Nothing of our stream is sent, but for a try now and then.
    pub(super) held: bool,
    /// When sending went on last.
    pub(super) resumed: Time,
    /// A try is due, and when the next one will be.
    try_due: bool,
    try_at: Time,
    /// When the scheme or a try wants the connection's attention.
    pub(super) timer: Time,
}

impl Mobile {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            scheme: MobilityState::new(config.mobility),
            on: config.mobility != Mobility::None,
            heard: false,
            held: false,
            resumed: Time::ZERO,
            try_due: false,
            try_at: Time::NEVER,
            timer: Time::NEVER,
        }
    }

    fn set_timer(&mut self) {
        self.timer = self.try_at.min(self.scheme.deadline());
    }

    /// The connection is over.
    pub(super) fn stop(&mut self) {
        self.try_at = Time::NEVER;
        self.timer = Time::NEVER;
    }
}

impl Connection {
    /// The hop's state changed: the scheme in [`Config::mobility`] decides what follows.
    pub fn handle_link_event(&mut self, now: Time, event: LinkEvent) {
        if self.mobile.on && self.state != State::Closed {
            let view = self.view(now);
            let action = self.mobile.scheme.on_link_event(&view, event);
            self.apply(now, &action);
        }
    }

    /// The scheme sees a segment of the peer's after it was taken in; `before` is RCV.NXT before it.
    pub(super) fn report_segment(&mut self, now: Time, seg: &Segment, before: u64) {
        if !self.is_established() {
            return;
        }
        let view = self.view(now);
        let action = self.mobile.scheme.on_segment(&view, ArrivedSegment { len: seg.len, before });
        self.apply(now, &action);
    }

    pub(super) fn on_mobility_timer(&mut self, now: Time) {
        if self.mobile.try_at <= now {
            self.mobile.try_at = Time::NEVER;
            self.mobile.try_due = true;
        }
        if self.mobile.scheme.deadline() <= now {
            let view = self.view(now);
            let action = self.mobile.scheme.on_timer(&view);
            self.apply(now, &action);
        }
        self.mobile.set_timer();
    }

    /// What the scheme makes of an expired retransmission timer.
    pub(super) fn mobility_timeout(&mut self, now: Time) -> OnTimeout {
        if !self.mobile.on || self.una == 0 {
            return OnTimeout::Ordinary;
        }
        let view = self.view(now);
        let decision = self.mobile.scheme.on_timeout(&view, self.mobile.held);
        if let OnTimeout::Collapse(ssthresh) = decision {
            if let Phase::Recovery { .. } = self.phase {
                self.phase = Phase::Open;
            }
            self.inflation = 0;
            self.control.on_resume();
            self.windows.ssthresh = ssthresh.max(2 * self.windows.mss);
            self.windows.set_cwnd(self.windows.mss);
        }
        decision
    }

    /// While nothing is to be sent: a try if it is due, so that a sender that is never notified of the
    /// link's return finds out.
    pub(super) fn transmit_held(&mut self, now: Time) -> Option<Outgoing> {
        if self.mobile.try_due {
            self.mobile.try_due = false;
            return Some(self.transmit_untimed(now));
        }
        if self.mobile.try_at == Time::NEVER
            && let Some(patience) = self.config.mobility.patience()
        {
            self.mobile.try_at = now + patience;
            self.mobile.set_timer();
        }
        None
    }

    fn view(&self, now: Time) -> ConnectionView {
        ConnectionView {
            now,
            una: self.una,
            max: self.max,
            cwnd: self.windows.cwnd,
            room: self.usable_edge().saturating_sub(self.nxt) >= self.windows.mss,
            received: self.recv.nxt,
            gap: !self.recv.ahead.is_empty(),
            ended: self.recv.ended(),
            shut: self.recv.is_shut(),
        }
    }

    fn apply(&mut self, now: Time, action: &Action) {
        if let Some(shut) = action.shut {
            self.recv.shut(shut);
        }
        match action.withhold {
            None => {}
            Some(Withhold::No) => self.ack.withhold_from = None,
            Some(Withhold::From(floor)) => self.ack.withhold_from = Some(floor),
        }
        match action.timer {
            TimerChange::Keep => {}
            TimerChange::Cancel if self.una == 0 => {}
            TimerChange::Cancel => self.rtx_timer = Time::NEVER,
            TimerChange::Restart => self.restart_rtx(now),
        }
        if let Some(hold) = action.hold {
            self.hold(now, hold);
        }
        match action.resend {
            Resend::Nothing => {}
            Resend::All => self.resend(now),
            Resend::AsLost => self.resend_as_lost(now),
        }
        self.acknowledge(action.acks);
        self.mobile.set_timer();
    }

    fn hold(&mut self, now: Time, hold: bool) {
        let goes_on = self.mobile.held && !hold;
        self.mobile.held = hold;
        self.timing = self.timing.filter(|_| !hold);
        if !goes_on {
            return;
        }
        self.mobile.resumed = now;
        self.mobile.try_due = false;
        self.mobile.try_at = Time::NEVER;
        self.control.on_resume();
        if self.rtx_timer == Time::NEVER {
            self.restart_rtx(now);
        }
    }

    /// Sends again from SND.UNA on; into a closed window goes a probe.
    fn resend(&mut self, now: Time) {
        if self.una == 0 || self.una == self.max {
            return;
        }
        if self.persist_timer != Time::NEVER {
            self.probe_due = true;
            return;
        }
        self.go_back();
        self.restart_rtx(now);
    }

    /// As if the third duplicate had come (3DA-5). What is being sent again already is not taken for
    /// a second loss.
    fn resend_as_lost(&mut self, now: Time) {
        if self.una == 0 || self.una == self.max || self.persist_timer != Time::NEVER {
            return;
        }
        match self.phase {
            Phase::Loss => self.resend(now),
            Phase::Recovery { .. } => self.retransmit_first = true,
            Phase::Open => {
                self.begin_recovery(now);
                // No segment is known to have left the network.
                self.inflation = 0;
            }
        }
    }

    fn acknowledge(&mut self, acks: Acks) {
        match acks {
            Acks::None => {}
            Acks::Soon => self.ack.now = true,
            Acks::Copies(copies, window) => {
                (0..copies).for_each(|_| {
                    self.request_ack(AckRequest { withhold: 0, window });
                });
            }
            Acks::ZeroThenFull { withhold } => {
                let window = AckWindow::Zero;
                // One without the other would leave the window shut or tell nothing.
                if self.room_for_requests() >= 2 {
                    self.request_ack(AckRequest { withhold, window });
                    self.request_ack(AckRequest::default());
                }
            }
        }
    }
}
