//! Whether loss is the hop's own, or what a short queue or a policer drops of too much.
//!
//! Neither shows a queue. Loss that is more than was found to be the hop's own is put on trial: for some
//! datagrams no more is sent than arrives. If as many are lost as before it is the hop's own; if not, what
//! arrived is all that the hop can do.

use core::mem::replace;
use core::time::Duration;

use lasthop_units::Time;

use super::losses::Losses;
use super::{EMPTY, RATE_FLOOR, RateControl};
use crate::srp::interval::Measurement;
use crate::srp::sample::Sample;

/// So much more loss than is known to be the hop's own is worth a trial.
const SUSPECT: f64 = 0.03;
/// The same where the queue seems to have room.
const SUSPECT_ROOM: f64 = 0.35;
/// Datagrams that a trial of more loss takes at least and at most, and one of loss that was tried before.
const DATAGRAMS_MIN: f64 = 16.0;
const DATAGRAMS_MAX: f64 = 600.0;
const DATAGRAMS_AGAIN: f64 = 64.0;
/// Nor does one last longer.
const LENGTH_MAX: Duration = Duration::from_secs(3);
/// From one trial to the next, and how far that grows while loss proves to be the hop's own.
const PAUSE_MIN: Duration = Duration::from_millis(300);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// How long the rate does not grow after the hop has shown all that it can do.
const HOLD: Duration = Duration::from_secs(1);
/// What leaves together is halved so often at most, and is never less: no timer is finer.
const HALVED_MAX: u32 = 7;
const FINEST: Duration = Duration::from_micros(50);
/// What was found to be the hop's own is forgotten over so long when less is lost.
const MEMORY: Duration = Duration::from_secs(5);

/// A trial of the loss at hand.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// The rate and the loss before.
    rate: f64,
    loss: f64,
    /// What of it is taken to be the hop's own; nothing, if all is tried again.
    own: Option<f64>,
    /// What had become of all datagrams when the first at the lower rate had arrived, once they have.
    counts: Option<(u64, u64)>,
    began: Time,
}

impl Trial {
    /// What of `settled` datagrams is lost at the lower rate, and whether that is as before, once it is clear.
    fn verdict(
        &self,
        now: Time,
        (settled, lost): (f64, f64),
        losses: &Losses,
    ) -> Option<(f64, bool)> {
        let loss = lost / settled.max(1.0);
        let (spread, fates) = (|loss: f64| losses.spread(loss, settled), losses.fates(settled));
        let long = fates >= DATAGRAMS_MAX || now.since(self.began) >= LENGTH_MAX;
        match self.own {
            Some(own) => {
                let middle = (self.loss + own) / 2.0;
                // A verdict against the hop's own loss costs more if it is wrong.
                let less = loss < middle - 2.0 * spread(middle);
                let as_before = loss > middle + spread(middle) || long;
                let clear = less || as_before;
                (long || (fates >= DATAGRAMS_MIN && clear)).then_some((loss, !less))
            }
            None => {
                let noise = (2.0 * spread(self.loss)).max(SUSPECT / 2.0);
                (long || fates >= DATAGRAMS_AGAIN).then_some((loss, loss > self.loss - noise))
            }
        }
    }
}

/// What is known of the hop's own loss.
#[derive(Debug)]
pub(super) struct Trials {
    trial: Option<Trial>,
    /// Loss that a trial found to be the hop's own.
    own: f64,
    /// When the last trial ended, and how long from then on to the next.
    last: Time,
    pause: Duration,
    /// The rate does not grow before then.
    hold: Time,
    seen: Time,
    /// What leaves together has been halved so often, last at that time: it may be too much for the queue.
    halved: u32,
    halved_at: Time,
}

impl Trials {
    pub(super) fn new(now: Time) -> Self {
        Self {
            trial: None,
            own: 0.0,
            last: now,
            pause: PAUSE_MIN,
            hold: now,
            seen: now,
            halved: 0,
            halved_at: now,
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.trial.is_some()
    }

    /// What may leave together, of so much where there is room for it; the least during a trial.
    pub(super) fn together(&self, quantum: Duration) -> Duration {
        if self.is_on() { FINEST } else { (quantum / (1 << self.halved)).max(FINEST) }
    }
}

impl RateControl {
    /// Whether growth is to wait, since more may be lost than is the hop's own; now and then that is put on trial.
    pub(super) fn suspect_loss(&mut self, now: Time, s: &Sample, m: &Measurement) -> bool {
        if self.trials.is_on() {
            return true;
        }
        let seen = now.since(replace(&mut self.trials.seen, now)).as_secs_f64();
        let trials = &mut self.trials;
        if self.losses.share < trials.own {
            trials.own += (self.losses.share - trials.own) * (seen / MEMORY.as_secs_f64()).min(1.0);
        }
        if trials.halved > 0 && now.since(trials.halved_at) >= PAUSE_MAX {
            (trials.halved, trials.halved_at) = (trials.halved - 1, now);
        }
        // A queue that was much longer before hardly drops anything now.
        let room = self.queue_peak > 2 * EMPTY && m.queue_max < self.queue_peak.mul_f64(0.6);
        let margin = if room { SUSPECT_ROOM } else { SUSPECT };
        let Losses { share, over, .. } = self.losses;
        let spread = |datagrams: f64| self.losses.spread(share, datagrams);
        let noise = 2.5 * spread(over) + 1.0 / over.max(1.0);
        let suspect = share > trials.own + margin.max(noise);
        // It must be known before it is compared.
        let (noise, one) = (spread(m.datagrams), 0.5 / m.datagrams.max(1.0));
        let rises = m.loss > share + 3.0 * noise + one;
        let since = now.since(trials.last);
        let again = !room && share > margin && since >= PAUSE_MAX.max(40 * self.rtt_min());
        if !rises && ((suspect && since >= self.trials.pause) || again) {
            let own = suspect.then_some(self.trials.own);
            let arrives = (1.0 - share.max(m.loss - noise)) / (1.0 - own.unwrap_or(0.0)).max(0.1);
            self.trials.trial =
                Some(Trial { rate: self.rate, loss: share, own, counts: None, began: now });
            self.set_rate(0.95 * arrives * self.rate, s);
        }
        self.trials.is_on() || suspect || now < self.trials.hold
    }

    /// Goes on with a trial, if there is one.
    pub(super) fn judge_trial(&mut self, now: Time, s: &Sample) {
        let Some(trial) = &mut self.trials.trial else { return };
        let Some(since) = trial.counts else {
            trial.counts = (s.latest >= self.changed_at).then_some(s.counts);
            return;
        };
        let lost = s.counts.1.saturating_sub(since.1) as f64;
        let settled = s.counts.0.saturating_sub(since.0) as f64 + lost;
        let Some((loss, as_before)) = trial.verdict(now, (settled, lost), &self.losses) else {
            return;
        };
        let before = *trial;
        let rtt = self.rtt_min();
        let pause = PAUSE_MIN.max(8 * rtt);
        let trials = &mut self.trials;
        (trials.trial, trials.last) = (None, now);
        if as_before {
            trials.own = before.loss.max(loss);
            trials.pause = (2 * trials.pause).clamp(pause, PAUSE_MAX.max(pause));
            self.set_rate(before.rate, s);
        } else {
            trials.own = trials.own.min(loss);
            trials.pause = pause;
            trials.hold = now + HOLD.max(4 * rtt);
            (trials.halved, trials.halved_at) = ((trials.halved + 2).min(HALVED_MAX), now);
            self.losses.set(loss, settled);
            let arrived = before.rate * (1.0 - before.loss);
            self.capacity = (arrived / (1.0 - loss).max(0.1)).max(RATE_FLOOR);
            self.unopposed = 0;
            self.set_rate(0.97 * self.capacity, s);
        }
    }

    /// The trial ends without a verdict: the hop has shown something else meanwhile. The rate before.
    pub(super) fn end_trial(&mut self) -> Option<f64> {
        self.trials.trial.take().map(|trial| trial.rate)
    }
}
