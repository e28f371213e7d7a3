//! How fast to send: the hop's delivery rate and its least delay, measured and paced to.
//!
//! The receiver stamps arrivals, so both are measured at the far end of the hop: the delivery rate
//! from the spacing of arrivals, the queue from how much later than ever before a datagram arrives.
//! Neither is disturbed by lost acknowledgements or by traffic the other way.
//!
//! Loss is no signal, unless less of it comes where less is sent. While the queue is short the rate
//! creeps up, by steps that grow as long as nothing pushes back; when the queue stands, the rate falls
//! to what the hop was measured to deliver, less what drains the queue within about two round trips. A
//! flow with a larger share answers to a shorter queue than one with a smaller share, so that shares
//! converge.
//!
//! A queue that stands although this flow makes room belongs to somebody who fills queues, such as
//! a CUBIC sender. Against such a neighbour a window that follows CUBIC's own curve (RFC 9438)
//! keeps a fair share, until the queue is seen empty again.

mod losses;
mod startup;
mod trial;

use core::time::Duration;

use lasthop_units::{Rate, Time};

use self::losses::Losses;
use self::trial::Trials;
use super::cubic::Cubic;
use super::filter::WindowedMin;
use super::interval::{INTERVAL_DATAGRAMS, Interval, Measurement};
use super::sample::Sample;
use super::shared::Share;
use super::trains::Trains;

/// A standing queue shorter than this is noise: clocks, schedulers and interrupt moderation.
const QUEUE_FLOOR: Duration = Duration::from_millis(3);
/// A queue up to this is none.
const EMPTY: Duration = Duration::from_millis(1);
/// How much a flow may keep standing in the queue, in full datagrams. The same for every flow, so
/// that who has the larger share is the first to yield.
const QUEUE_DATAGRAMS: f64 = 6.0;
/// How long the least delay is used without being seen again.
const BASE_WINDOW: Duration = Duration::from_secs(10);
/// After so long beside a supposed neighbour it is made sure that there is one.
const FIRST_DRAIN_TEST: Duration = Duration::from_secs(3);
/// Longest wait, in seconds, for measurements of a slow hop before a standing queue is a neighbour's.
const PATIENCE_MAX: f64 = 1.2;
/// After about so many acknowledgements of smaller datagrams it is forgotten how large others were.
const LARGE_ACKS: usize = 512;
/// Shortest interval.
const INTERVAL_MIN: Duration = Duration::from_millis(4);
/// Never slower than this, whatever was measured: a hop that carries TCP carries this.
const RATE_FLOOR: f64 = 16_000.0;
/// Bounds of what may leave together, in time at the rate.
const QUANTUM_MIN: Duration = Duration::from_millis(1);
const QUANTUM_MAX: Duration = Duration::from_millis(4);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// Doubling until the queue answers.
    Startup,
    /// Round the capacity, by queue.
    Steady,
    /// Against a neighbour who fills the queue.
    Compete,
}

/// Measures the hop and sets how fast and how much to send.
#[derive(Debug)]
pub(super) struct RateControl {
    /// Datagrams in the first round trip.
    initial: u32,
    mode: Mode,
    /// What the path was worth to an association before, in bits per second, and its least round trip.
    saved: Option<(f64, Duration)>,
    /// The rate follows from that, and is to be validated.
    jumped: bool,
    /// Pacing rate, bits per second.
    rate: f64,
    /// Our share of what the hop delivers, as last measured while it had a queue.
    capacity: f64,
    /// Loss that sending slower would not avoid.
    losses: Losses,
    trials: Trials,
    /// The size of the largest datagrams of late, at least two thirds of a full one.
    large: usize,
    base_delay_us: WindowedMin<i64>,
    rtt_min_us: WindowedMin<u64>,
    /// The least round trip of the path before.
    rtt_min_before: Option<u64>,
    interval: Option<Interval>,
    /// As `interval`, but begun anew whenever sending paused.
    unbroken: Option<Interval>,
    /// Growth is judged by datagrams from this number on: those sent since the rate last changed.
    changed_at: u64,
    /// Steps of growth since something last pushed back.
    unopposed: u32,
    trains: Trains,
    /// Rounds in startup at what trains show of the hop.
    full: u32,
    /// Rounds in a row in which the hop did not follow, and the most that it did in one of them.
    plateau: u32,
    plateau_best: f64,
    draining: bool,
    /// Since when, and from how much, the queue has not fallen although we make room.
    standing: Option<(Time, Duration)>,
    queue_peak: Duration,
    /// Looks in a row in which the queue seemed to overflow.
    overflows: u32,
    queue: Duration,
    cubic: Cubic,
    last_empty: Time,
    drain_test_until: Option<Time>,
    last_cut: Time,
    /// Our share while the queue was short, the best of the last few seconds.
    unhindered: f64,
    left_compete: Time,
    /// Which part of a flow this path is.
    share: Share,
}

impl RateControl {
    pub(super) fn new(now: Time, initial: u32) -> Self {
        Self {
            initial,
            mode: Mode::Startup,
            saved: None,
            jumped: false,
            rate: 0.0,
            capacity: 0.0,
            losses: Losses::new(),
            large: 0,
            trials: Trials::new(now),
            base_delay_us: WindowedMin::new(BASE_WINDOW),
            rtt_min_us: WindowedMin::new(BASE_WINDOW),
            rtt_min_before: None,
            interval: None,
            unbroken: None,
            changed_at: 0,
            unopposed: 0,
            trains: Trains::default(),
            full: 0,
            plateau: 0,
            plateau_best: 0.0,
            draining: false,
            standing: None,
            queue_peak: Duration::ZERO,
            overflows: 0,
            queue: Duration::ZERO,
            cubic: Cubic::default(),
            last_empty: now,
            drain_test_until: None,
            last_cut: now,
            unhindered: 0.0,
            left_compete: Time::ZERO,
            share: Share::ALONE,
        }
    }

    /// Which part of a flow this path is from now on.
    pub(super) fn set_share(&mut self, share: Share) {
        self.cubic.scale_segment(share.part() / self.share.part());
        self.share = share;
    }

    /// The rate at which datagrams leave.
    pub(super) fn pacing_rate(&self) -> Rate {
        Rate::from_bps(self.rate as u64)
    }

    /// How much may leave together, in time at the rate. It queues at the hop for as long, which is little
    /// beside the round trip.
    pub(super) fn quantum(&self) -> Duration {
        let quantum = match self.mode {
            Mode::Startup if !self.is_close() => self.train().max(QUANTUM_MIN),
            Mode::Compete => QUANTUM_MIN,
            Mode::Startup | Mode::Steady => (self.rtt_min() / 16).clamp(QUANTUM_MIN, QUANTUM_MAX),
        };
        self.trials.together(quantum)
    }

    /// Bytes that may be on their way at once.
    pub(super) fn inflight_limit(&self, datagram: usize) -> u64 {
        if self.mode == Mode::Compete {
            // Half of what our share needs to fill the hop leaves nothing of ours in the queue.
            let drained = 0.5 * self.capacity / 8.0 * self.rtt_min().as_secs_f64();
            let window =
                if self.drain_test_until.is_some() { drained } else { self.cubic.window() };
            return window.max(2.0 * datagram as f64) as u64;
        }
        let initial = u64::from(self.initial) * datagram as u64;
        if !self.is_measured() && self.trains.rate().is_none() {
            // The round trip of a small datagram does not depend on a slow hop's rate.
            return initial.max(self.jump_bytes());
        }
        let round_trip = self.rtt_min() + self.queue_high() + Duration::from_millis(5);
        // In startup the rate may be far from what the hop was seen to follow.
        let ahead = self.mode == Mode::Startup && self.plateau > 0;
        let rate = if ahead { self.capacity } else { self.rate.max(self.capacity) };
        let bytes = rate / 8.0 * round_trip.as_secs_f64();
        (2.0 * bytes) as u64 + initial
    }

    /// The hop's rate was measured: what may be sent follows from it.
    pub(super) fn is_measured(&self) -> bool {
        self.capacity > 0.0
    }

    /// The window is the means of control at present, and not only a bound: against a neighbour, and where the first
    /// window is less than what leaves together.
    pub(super) fn is_window_driven(&self) -> bool {
        self.mode == Mode::Compete || (!self.is_measured() && self.rtt_min() < QUANTUM_MIN)
    }

    /// Share of datagrams lost to something else than a full queue, from 0 to 1.
    pub(super) fn loss(&self) -> f64 {
        self.losses.share
    }

    /// What the hop was last measured to deliver to this flow.
    pub(super) fn delivery_rate(&self) -> Rate {
        Rate::from_bps(self.capacity as u64)
    }

    /// How fast the hop works off what is there; in startup that is more than it was given.
    pub(super) fn service_rate(&self) -> Rate {
        let train = self.trains.rate().filter(|_| self.mode == Mode::Startup);
        Rate::from_bps(train.unwrap_or(self.capacity) as u64)
    }

    /// The queue on the way to the receiver, as last seen.
    pub(super) fn queue(&self) -> Duration {
        self.queue
    }

    /// The least round trip of late.
    pub(super) fn rtt_min(&self) -> Duration {
        self.rtt_min_us.get().map_or(Duration::from_millis(100), Duration::from_micros)
    }

    /// The least round trip of late, if one was measured on this path.
    pub(super) fn rtt_min_here(&self) -> Option<Duration> {
        self.rtt_min_us.get().map(Duration::from_micros)
    }

    /// The least round trip of late, of the path before if none was measured on this one.
    pub(super) fn rtt_min_measured(&self) -> Option<Duration> {
        self.rtt_min_us.get().or(self.rtt_min_before).map(Duration::from_micros)
    }

    /// Takes in a round-trip time, without which no rate can be set, before the datagram `next` is sent.
    pub(super) fn on_round_trip(&mut self, now: Time, rtt: Duration, datagram: usize, next: u64) {
        self.rtt_min_us.insert(now, (rtt.as_micros() as u64).max(1));
        if self.rate == 0.0 {
            self.set_first_rate(datagram, next);
        }
    }

    /// Takes in an acknowledgement that raised the highest number acknowledged.
    pub(super) fn on_ack(&mut self, now: Time, s: Sample) {
        if s.after_idle {
            self.unbroken = None;
            if let Some(interval) = &mut self.interval {
                interval.paused = true;
            }
        }
        // Small datagrams are on the air for a shorter time: beside large ones they would make an
        // empty hop look queued. Who has much to send leaves less than half of a datagram empty.
        self.large = (self.large - self.large / LARGE_ACKS).max(s.size).max(2 * s.datagram / 3);
        if 4 * s.size < 3 * self.large {
            if !self.losses.pending {
                self.losses.update(&s, !self.trials.is_on());
            }
            return;
        }
        self.losses.pending = true;
        self.judge_trial(now, &s);
        if s.after_idle && self.draining && self.is_short(s.delay_alone_us()) {
            // What stood in the queue has gone while nothing was sent.
            self.end_draining(&s);
        }
        let startup = self.mode == Mode::Startup;
        if startup {
            self.trains.on_ack(&s);
        }
        // Once trains have shown the rate, a part of a round trip tells whether the hop follows.
        let part = if startup && self.trains.rate().is_some() { 8 } else { 2 };
        let wanted = (self.rtt_min() / part).max(INTERVAL_MIN);
        let unbroken = Interval::add_sample(&mut self.unbroken, &s, wanted);
        let any = Interval::add_sample(&mut self.interval, &s, wanted);
        match (unbroken, any) {
            (Some(interval), _) => {
                self.interval = self.unbroken;
                let m = self.measure(now, &interval, &s);
                self.adjust(now, &s, &m);
            }
            (None, Some(interval)) if interval.paused => {
                let m = self.measure(now, &interval, &s);
                self.adjust_after_pause(now, &s, &m);
            }
            _ => {}
        }
    }

    fn measure(&mut self, now: Time, interval: &Interval, s: &Sample) -> Measurement {
        self.base_delay_us.insert(now, interval.delay_base_us());
        let base = self.base_delay_us.get().unwrap_or(interval.delay_base_us());
        let m = Measurement::new(interval, s, base);
        self.queue = m.queue_min;
        let short = m.queue_max <= self.queue_high() * 2
            && self.mode != Mode::Compete
            && !self.trials.is_on();
        self.losses.update(s, short);
        self.losses.void = false;
        self.queue_peak = self.queue_peak.mul_f64(0.998).max(m.queue_max);
        if m.queue_min <= self.queue_low() {
            self.last_empty = now;
        }
        m
    }

    /// Where sending paused meanwhile, less than the hop can do was seen of it; but a queue is a
    /// queue.
    fn adjust_after_pause(&mut self, now: Time, s: &Sample, m: &Measurement) {
        let high = self.queue_high();
        if self.mode == Mode::Startup && self.is_measured() {
            // Nor did it do more before, while little was sent.
            self.capacity = self.capacity.max(m.delivered);
        }
        if m.queue_min > high && self.mode != Mode::Compete {
            self.mode = Mode::Steady;
            let measured = self.estimate_capacity(m, high);
            self.reduce_rate(now, s, m, measured.max(self.capacity.min(self.rate)));
        } else if self.draining && m.queue_min <= self.queue_low() {
            self.end_draining(s);
        } else if self.mode == Mode::Startup
            && m.start_latest >= self.changed_at
            && let Some(train) = self.trains.rate()
        {
            self.approach(train, s);
        } else if self.mode == Mode::Steady && m.start_latest >= self.changed_at {
            self.suspect_loss(now, s, m);
        }
    }

    /// The queue is short again: back to just below what the hop was measured to do.
    fn end_draining(&mut self, s: &Sample) {
        self.draining = false;
        self.unopposed = 0;
        self.set_rate(self.rate.max(0.985 * self.capacity), s);
    }

    /// A datagram with this delay met hardly any queue.
    fn is_short(&self, delay_us: i64) -> bool {
        let base = self.base_delay_us.get().unwrap_or(delay_us);
        Duration::from_micros((delay_us - base).max(0) as u64) <= self.queue_low()
    }

    /// The queue above which this flow yields.
    fn queue_high(&self) -> Duration {
        let datagram_bits = 1500.0 * 8.0;
        let one = datagram_bits / self.share.flow(self.rate.max(self.capacity)).max(RATE_FLOOR);
        let low = QUEUE_FLOOR.max(Duration::from_secs_f64((0.75 * one).min(0.5)));
        let high = low.max(self.rtt_min() / 4);
        Duration::from_secs_f64((QUEUE_DATAGRAMS * one).min(1.0)).clamp(low, high)
    }

    fn queue_low(&self) -> Duration {
        self.queue_high() / 3
    }

    fn adjust(&mut self, now: Time, s: &Sample, m: &Measurement) {
        let high = self.queue_high();
        let measured = self.estimate_capacity(m, high);
        match self.mode {
            Mode::Startup => self.startup(now, s, m, measured, high),
            Mode::Steady => self.steady(now, s, m, measured, high),
            Mode::Compete => self.compete(now, s, m, measured, high),
        }
    }

    /// What the hop can do for us, from one interval. Datagrams lost on the air took their time there;
    /// those that a full queue dropped did not: by such an interval the hop can do no more than was known.
    fn estimate_capacity(&mut self, m: &Measurement, high: Duration) -> f64 {
        self.overflows = if self.is_overflow(m, high) { self.overflows + 1 } else { 0 };
        let arrived = m.delivered / (1.0 - self.losses.share).max(0.1);
        let served = match self.overflows {
            0 => return m.served,
            // One such interval may be a fade that met a busy moment.
            1 => m.served,
            _ => arrived.max(0.5 * m.served),
        };
        served.min(self.capacity.max(arrived))
    }

    /// More is lost than the hop loses by itself, while the queue is as long as it gets.
    fn is_overflow(&self, m: &Measurement, high: Duration) -> bool {
        let Losses { share, .. } = self.losses;
        let spread = libm::sqrt((share * (1.0 - share) + 0.01) / self.losses.fates(m.datagrams));
        m.loss > self.losses.share + 3.0 * spread
            && m.queue_min >= self.queue_peak / 2
            && m.queue_max >= self.queue_peak.mul_f64(0.75)
            && m.queue_max > high
    }

    fn steady(&mut self, now: Time, s: &Sample, m: &Measurement, measured: f64, high: Duration) {
        if m.queue_min > high {
            self.reduce_rate(now, s, m, measured);
            self.detect_neighbour(now, s, m);
            return;
        }
        // While something waits, the hop shows all it can do: more than we send, or else we send as
        // much as it was known to do. A queue that stands still while we send less is not ours, or
        // not there.
        let shows_all = measured > 1.02 * self.rate || self.rate > 0.97 * self.capacity;
        if m.queue_min > EMPTY.max(self.queue_low()) && shows_all {
            self.capacity = measured;
        }
        if m.queue_min <= self.queue_low() {
            self.standing = None;
            self.unhindered = self.capacity.max(0.995 * self.unhindered);
        } else {
            self.detect_neighbour(now, s, m);
        }
        if self.draining {
            if m.queue_min <= self.queue_low() {
                self.end_draining(s);
            } else {
                let rate = self.capacity * self.drain_factor(m.queue_min);
                self.set_rate(self.rate.max(rate), s);
            }
            return;
        }
        if m.start_latest < self.changed_at {
            return;
        }
        if self.suspect_loss(now, s, m) {
            self.unopposed = 0;
            return;
        }
        // What grows must be seen to arrive: where a policer or a slow receiver eats the surplus
        // there is no queue to show it.
        let arrived = m.delivered / (1.0 - self.losses.share).max(0.1);
        if arrived < 0.85 * self.rate {
            let best = self.add_plateau(measured.max(arrived));
            if self.plateau >= 4 {
                self.plateau = 0;
                self.unopposed = 0;
                self.set_rate(self.rate.min(1.02 * best), s);
            }
            return;
        }
        self.plateau = 0;
        let flow = self.share.flow(self.rate);
        let first = (0.02 * libm::sqrt(flow * 20e6)).clamp(0.003 * flow, 0.025 * flow);
        let first = first * self.share.part() * self.share.skew;
        let step = first * libm::pow(1.7, f64::from(self.unopposed.saturating_sub(1)));
        self.unopposed = (self.unopposed + 1).min(64);
        self.set_rate(self.rate + step.min(0.6 * self.rate), s);
    }

    /// Once more the hop did not follow, and did so much: the most in such rounds in a row. In any one of them an end may
    /// have waited for its processor.
    fn add_plateau(&mut self, measured: f64) -> f64 {
        let before = if self.plateau > 0 { self.plateau_best } else { 0.0 };
        self.plateau += 1;
        self.plateau_best = before.max(measured);
        self.plateau_best
    }

    /// Falls to what was measured, less what drains the queue in about two round trips.
    fn reduce_rate(&mut self, now: Time, s: &Sample, m: &Measurement, measured: f64) {
        self.end_trial();
        self.capacity = measured;
        self.set_rate(measured * self.drain_factor(m.queue_min), s);
        self.draining = true;
        self.jumped = false;
        self.unopposed = 0;
        self.plateau = 0;
        self.last_cut = now;
    }

    /// What share of the capacity drains a queue in about two round trips.
    fn drain_factor(&self, queue: Duration) -> f64 {
        let excess = queue.saturating_sub(self.queue_low()).as_secs_f64();
        (1.0 - excess / self.drain_span().as_secs_f64()).clamp(0.25, 0.98)
    }

    /// How long a queue is given to drain: no shorter than what it takes to see the effect.
    fn drain_span(&self) -> Duration {
        let intervals = 2.0 * INTERVAL_DATAGRAMS as f64 * 12_000.0 / self.capacity.max(RATE_FLOOR);
        let span = (2 * self.rtt_min()).max(Duration::from_millis(30));
        span.max(Duration::from_secs_f64(intervals))
    }

    /// A queue that does not fall although we make room is somebody else's.
    fn detect_neighbour(&mut self, now: Time, s: &Sample, m: &Measurement) {
        if !self.draining {
            return;
        }
        let (since, most) = self.standing.unwrap_or((now, m.queue_min));
        let most = most.max(m.queue_min);
        self.standing = Some((since, most));
        let intervals = 24.0 * INTERVAL_DATAGRAMS as f64 * 12_000.0 / self.capacity.max(RATE_FLOOR);
        let patience = (10 * self.rtt_min())
            .max(Duration::from_millis(500))
            .max(Duration::from_secs_f64(intervals.min(PATIENCE_MAX)))
            .max(3 * self.drain_span())
            + 2 * most;
        if m.queue_min < most.mul_f64(0.6) && most > 2 * self.queue_high() {
            self.standing = Some((now, m.queue_min));
            return;
        }
        if now.since(since) < patience {
            return;
        }
        self.standing = None;
        self.draining = false;
        self.mode = Mode::Compete;
        // Half of what was ours before the neighbour came is a fair start.
        let share = self.capacity.max(0.5 * self.unhindered);
        let mut window = (share / 8.0 * s.srtt.as_secs_f64()).max(s.inflight as f64);
        if now.since(self.left_compete) < BASE_WINDOW {
            window = window.max(self.cubic.window());
        }
        self.cubic = Cubic::bold(now, window, s.datagram);
        self.cubic.scale_segment(self.share.part());
        // Soon make sure that the queue is not of our own making after all.
        self.last_empty = now - (BASE_WINDOW - FIRST_DRAIN_TEST);
    }

    fn compete(&mut self, now: Time, s: &Sample, m: &Measurement, measured: f64, high: Duration) {
        self.capacity = measured;
        if m.queue_min <= (high / 6).max(Duration::from_millis(1)) {
            self.mode = Mode::Steady;
            self.left_compete = now;
            self.drain_test_until = None;
            self.unopposed = 0;
            self.set_rate(0.95 * self.capacity, s);
            return;
        }
        match self.drain_test_until {
            Some(end) if now >= end => {
                self.drain_test_until = None;
                self.last_empty = now;
            }
            None if now.since(self.last_empty) >= BASE_WINDOW => {
                let long = (2 * s.srtt).max(Duration::from_millis(200));
                self.drain_test_until = Some(now + long);
            }
            _ => {}
        }
        let spread = self.losses.spread(self.losses.share, m.datagrams);
        let full = m.queue_max >= self.queue_peak.mul_f64(0.7) && m.queue_max > high;
        let congested = full && m.loss > self.losses.share + 3.0 * spread + 0.5 / m.datagrams;
        // The queue goes on overflowing until neighbours with a longer round trip have answered too.
        if congested && now.since(self.last_cut) >= 3 * s.srtt {
            self.last_cut = now;
            self.cubic.on_congestion(now);
        } else {
            self.cubic.on_progress(now, s.srtt);
        }
        let rate = 1.1 * self.cubic.window() * 8.0 / s.srtt.as_secs_f64().max(1e-4);
        self.set_rate(rate, s);
    }

    fn set_rate(&mut self, rate: f64, s: &Sample) {
        self.rate = rate.clamp(RATE_FLOOR, 100e9);
        self.changed_at = s.next_number;
    }

    /// The hop has fallen silent or changed its address: what was being measured is void, what was
    /// known of its rate is the best guess still.
    pub(super) fn on_interruption(&mut self) {
        self.halve_jump();
        self.losses.void = true;
        self.rate = self.end_trial().unwrap_or(self.rate);
        self.interval = None;
        self.unbroken = None;
        self.standing = None;
        self.draining = false;
        self.unopposed = 0;
        self.plateau = 0;
        if self.capacity > 0.0 {
            self.rate = self.rate.min(self.capacity);
        }
    }

    /// The path is another one: its least delay must be measured anew.
    pub(super) fn on_new_path(&mut self) {
        self.on_interruption();
        self.saved = None;
        self.base_delay_us.clear();
        self.trains.clear();
        self.rtt_min_before = self.rtt_min_us.get().or(self.rtt_min_before);
        self.rtt_min_us.clear();
        self.mode = if self.mode == Mode::Compete { Mode::Steady } else { self.mode };
    }
}
