//! SRP's timers: what each waits for, and when it expires.

use lasthop_units::Time;

use super::Srp;
use super::close_state::CloseState;
use super::path::Path;
use crate::transport::{CloseReason, Transport as _};

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
    /// Nothing was sent for long that is to be acknowledged, nor at a base received: a ping is due.
    KeepAlive,
}

impl Timer {
    const ALL: [Self; 5] =
        [Self::Pacing, Self::AckDelay, Self::LossDetection, Self::Probe, Self::KeepAlive];
}

impl Srp {
    /// When a path's timer expires, if what it waits for is there.
    fn expires(&self, timer: Timer, p: usize) -> Option<Time> {
        let path = &self.paths[p];
        match timer {
            Timer::Pacing if path.sends_only_probes() || path.is_full() => None,
            Timer::Pacing if !self.loads(p).is_empty() => Some(path.pacer.wake(path.air_time())),
            Timer::Pacing => {
                let turn = path.pacer.wake(path.air_time());
                let copy = (path.has_copies() || self.has_twice(p)).then_some(turn);
                let double = self.doubles.next().filter(|double| self.takes_double(p, double));
                copy.into_iter().chain(double.map(|double| double.at.max(turn))).min()
            }
            Timer::AckDelay => path.received.due(),
            Timer::LossDetection => path.recovery.loss_timer(),
            Timer::Probe => path.probe_deadline(),
            Timer::KeepAlive => {
                Some(path.probes.keep_alive_at(self.streams.role(), self.config.keepalive))
            }
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) must be called, if nothing happens before.
    pub fn next_timeout(&self) -> Option<Time> {
        if self.close_state.closed().is_some() {
            return None;
        }
        let of_path = |p: usize| {
            let held = self.paths[p].held_until;
            let timers = Timer::ALL.into_iter().filter(move |_| held.is_none());
            timers.filter_map(move |timer| self.expires(timer, p)).chain(held)
        };
        // A packet has waited long enough for those before it in its flow.
        (0..self.paths.len()).flat_map(of_path).chain(self.next_delivery()).min()
    }

    /// Lets timers that are due act; follow with [`poll`](Self::poll), which sends what the others
    /// waited for.
    pub fn handle_timeout(&mut self, now: Time) {
        if let Some(lane) = self.packets.as_mut().filter(|lane| lane.next_timeout() <= Some(now)) {
            lane.handle_timeout(now);
        }
        for p in 0..self.paths.len() {
            if self.paths[p].recovery.loss_timer().is_some_and(|t| t <= now) {
                self.find_losses(now, p, None);
            }
            if self.paths[p].probe_deadline().is_some_and(|t| t <= now) {
                self.on_probe_deadline(now, p);
            }
        }
    }

    /// Nothing was acknowledged in time on a path.
    fn on_probe_deadline(&mut self, now: Time, p: usize) {
        let path = &mut self.paths[p];
        let (falls_silent, age) = path.probes.on_deadline(now);
        if falls_silent {
            self.stats.silences += 1;
            path.rate.on_interruption();
            self.leave_silent(now, p);
        }
        let answers = self.paths.iter().any(Path::answers);
        if age >= self.config.silence_limit && !answers {
            self.close_state = CloseState::Closed(CloseReason::Silence);
        }
    }
}
