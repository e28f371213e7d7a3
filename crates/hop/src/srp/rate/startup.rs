//! From the first datagram to the hop's rate.
//!
//! Datagrams leave in trains, which show the rate before it is used. What a path was worth to an association
//! before is used carefully (draft-ietf-tsvwg-careful-resume): the first round trip goes at half of it, if the
//! round trip is about what it was, and what does not arrive ends that.

use core::mem::take;
use core::time::Duration;

use lasthop_units::{Rate, Time};

use super::{Mode, RATE_FLOOR, RateControl};
use crate::srp::interval::Measurement;
use crate::srp::sample::Sample;

/// Datagrams that leave together.
const TRAIN: u32 = 8;
/// No faster before anything was measured.
const FIRST_MAX: f64 = 1e9;
/// At most so many bytes are on their way because the path was worth much before.
const JUMP_MAX: f64 = 4e6;

impl RateControl {
    /// The rate is about what trains show.
    pub(super) fn is_close(&self) -> bool {
        self.trains.rate().is_some_and(|train| self.rate >= 0.9 * train)
    }

    /// How much leaves together until then.
    pub(super) fn train(&self) -> Duration {
        let one = Duration::from_secs_f64(12_000.0 / self.rate.max(RATE_FLOOR));
        (TRAIN * one).min(self.rtt_min() / 8)
    }

    /// What the path was worth to an association before, told before this one has measured anything.
    pub(in crate::srp) fn resume(&mut self, rate: Rate, rtt: Duration) {
        self.saved = Some((rate.as_bps() as f64, rtt));
    }

    /// The round trip is known, and nothing more: the initial datagrams in one, or half of what the path was
    /// worth before. The datagram `next` is the first at that rate.
    pub(super) fn set_first_rate(&mut self, datagram: usize, next: u64) {
        let rtt = self.rtt_min();
        let initial = f64::from(self.initial) * datagram as f64 * 8.0 / rtt.as_secs_f64();
        // Another round trip is another path's.
        let alike = |saved: Duration| saved <= 2 * rtt && rtt <= 2 * saved;
        let saved = self.saved.filter(|(_, saved)| alike(*saved)).map_or(0.0, |(rate, _)| rate);
        let jump = (0.5 * saved).min(8.0 * JUMP_MAX / rtt.as_secs_f64());
        self.rate = initial.max(jump).clamp(RATE_FLOOR, FIRST_MAX);
        if jump > initial {
            (self.jumped, self.changed_at) = (true, next);
        }
    }

    /// Bytes that may be on their way because of what the path was worth.
    pub(super) fn jump_bytes(&self) -> u64 {
        let bytes = self.rate / 8.0 * self.rtt_min().as_secs_f64();
        if self.jumped { bytes as u64 } else { 0 }
    }

    /// Silence before anything was validated: another beginning, with half of what the path is taken to be worth.
    pub(super) fn halve_jump(&mut self) {
        if take(&mut self.jumped) {
            self.rate = 0.0;
            self.saved = self.saved.map(|(rate, rtt)| (0.5 * rate, rtt));
        }
    }

    pub(super) fn startup(
        &mut self,
        now: Time,
        s: &Sample,
        m: &Measurement,
        measured: f64,
        high: Duration,
    ) {
        if m.queue_min > high {
            self.mode = Mode::Steady;
            self.reduce_rate(now, s, m, measured);
            return;
        }
        if m.start_latest < self.changed_at {
            if !self.jumped {
                self.capacity = self.capacity.max(measured);
            }
            return;
        }
        if take(&mut self.jumped) && m.delivered < 0.7 * self.rate {
            // The path is not worth what it was: on from what has arrived.
            self.capacity = m.delivered;
            self.set_rate(m.delivered, s);
            return;
        }
        self.capacity = self.capacity.max(measured);
        if measured < 0.7 * self.rate {
            let best = self.add_plateau(measured);
            if self.plateau >= 3 {
                self.mode = Mode::Steady;
                self.plateau = 0;
                self.capacity = best;
                self.set_rate(1.05 * best, s);
            }
            return;
        }
        self.plateau = 0;
        let Some(train) = self.trains.rate() else {
            self.set_rate(2.0 * self.rate.min(1.25 * measured.min(2.0 * m.delivered)), s);
            return;
        };
        if self.is_close() {
            self.full += 1;
            if self.full >= 3 {
                self.mode = Mode::Steady;
                self.capacity = train;
            }
        }
        self.approach(train, s);
    }

    /// In startup the rate approaches what trains show of the hop: half of it first, unless that is near.
    pub(super) fn approach(&mut self, train: f64, s: &Sample) {
        let near = 4.0 * self.rate > train;
        self.set_rate(if near { 0.97 * train } else { (8.0 * self.rate).min(0.5 * train) }, s);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has the hop do so much, without a queue.
    fn round(rate: &mut RateControl, measured: f64) {
        let s = Sample {
            latest: 0,
            sent_at: Time::ZERO,
            behind_us: 0,
            size: 1472,
            arrival_us: 0,
            delivered: 0,
            lost: 0,
            counts: (0, 0),
            burst: 1.0,
            after_idle: false,
            next_number: 0,
            srtt: Duration::from_millis(20),
            inflight: 0,
            datagram: 1472,
        };
        let m = Measurement {
            served: measured,
            delivered: measured,
            loss: 0.0,
            datagrams: 8.0,
            queue_min: Duration::ZERO,
            queue_max: Duration::ZERO,
            start_latest: 0,
        };
        rate.adjust(Time::ZERO, &s, &m);
    }

    /// What an end did that had no processor for most of a round is not all that the hop can do.
    #[test]
    fn the_best_of_the_rounds_counts_in_which_the_hop_did_not_follow() {
        let mut rate = RateControl::new(Time::ZERO, 32);
        rate.rate = 15e6;
        [8e6, 10e6, 0.3e6].into_iter().for_each(|measured| round(&mut rate, measured));
        assert_eq!((rate.mode, rate.capacity, rate.rate), (Mode::Steady, 10e6, 10.5e6));
        rate.rate = 15e6;
        [8e6, 10e6, 10e6, 0.3e6].into_iter().for_each(|measured| round(&mut rate, measured));
        assert_eq!(rate.rate, 10.2e6);
        // Those of before count no more.
        (0..4).for_each(|_| round(&mut rate, 0.3e6));
        assert!(rate.rate < 0.4e6, "{}", rate.rate);
    }

    /// Between processes of one host the first window ends before what leaves together: if each end of it were a pause,
    /// nothing would ever be measured, and the rate would stay.
    #[test]
    fn the_first_window_is_no_pause_where_a_round_trip_is_shorter_than_what_leaves_together() {
        for (rtt, driven) in [(Duration::from_micros(7), true), (Duration::from_millis(5), false)] {
            let mut rate = RateControl::new(Time::ZERO, 32);
            assert!(!rate.is_window_driven());
            rate.on_round_trip(Time::ZERO, rtt, 1472, 0);
            assert_eq!(rate.is_window_driven(), driven, "{rtt:?}");
        }
    }
}
