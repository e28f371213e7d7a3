//! SRP's timers: what each waits for, and when it expires.

use lasthop_units::{Rate, Time};

use super::Srp;
use super::close_state::CloseState;
use crate::transport::CloseReason;

/// What a timer is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Timer {
    /// What may be sent waits for its turn at the paced rate.
    Pacing,
    /// An acknowledgement that was put off must leave ("ack delay", RFC 9000 section 13.2.1).
    AckDelay,
    /// A datagram that may only have been overtaken counts as lost: the reordering timer of RFC 8985,
    /// section 6.2.
    LossDetection,
    /// Nothing was acknowledged: a probe is due ("probe timeout", RFC 9002 section 6.2), and more while
    /// the silence lasts (SRP-9). With a fixed window, the paper's retransmission timer.
    Probe,
    /// A packet has waited long enough for those before it in its flow.
    Packets,
    /// Nothing was sent for long that is to be acknowledged, nor at a base received: a ping is due.
    KeepAlive,
}

impl Timer {
    const ALL: [Self; 6] = [
        Self::Pacing,
        Self::AckDelay,
        Self::LossDetection,
        Self::Probe,
        Self::Packets,
        Self::KeepAlive,
    ];
}

impl Srp {
    /// When a timer expires, if what it waits for is there.
    fn expires(&self, timer: Timer) -> Option<Time> {
        match timer {
            Timer::Pacing
                if self.sends_only_probes()
                    || self.recovery.log().inflight() >= self.inflight_limit() =>
            {
                None
            }
            Timer::Pacing if self.has_new() => Some(self.pacer.wake(self.air_time())),
            Timer::Pacing => {
                let turn = self.pacer.wake(self.air_time());
                let copy = self.has_copies().then_some(turn);
                let double = self.doubles.next();
                copy.into_iter().chain(double.map(|at| at.max(turn))).min()
            }
            Timer::Packets => self.packets.as_ref().and_then(|lane| lane.next_timeout()),
            Timer::AckDelay => self.received.due(),
            Timer::LossDetection => self.recovery.loss_timer(),
            Timer::Probe => self.probe_deadline(),
            Timer::KeepAlive => {
                Some(self.probes.keep_alive_at(self.streams.role(), self.config.keepalive))
            }
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) must be called, if nothing happens before.
    pub fn next_timeout(&self) -> Option<Time> {
        if self.close_state.closed().is_some() {
            return None;
        }
        Timer::ALL.into_iter().filter_map(|timer| self.expires(timer)).min()
    }

    /// Lets timers that are due act; follow with [`poll`](Self::poll), which sends what the others
    /// waited for.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.recovery.loss_timer().is_some_and(|t| t <= now) {
            self.find_losses(now, None);
        }
        if let Some(lane) = self.packets.as_mut().filter(|lane| lane.next_timeout() <= Some(now)) {
            lane.handle_timeout(now);
        }
        if self.probe_deadline().is_some_and(|t| t <= now) {
            let (falls_silent, age) = self.probes.on_deadline(now);
            if falls_silent {
                self.stats.silences += 1;
                self.rate.on_interruption();
            }
            if age >= self.config.silence_limit {
                self.close_state = CloseState::Closed(CloseReason::Silence);
            }
        }
    }

    /// When to probe next, if nothing comes back until then.
    fn probe_deadline(&self) -> Option<Time> {
        let oldest = self.recovery.log().oldest()?.at;
        let known = self.rate.delivery_rate() != Rate::ZERO;
        let air = || known.then(|| self.air_time());
        let least = self.rate.rtt_min_measured();
        Some(self.probes.deadline(oldest, self.recovery.round_trip(), least, air))
    }
}
