//! Foretelling a disconnection from the strength of the signal.
//!
//! Freeze-TCP and its kin must be warned before the link is lost: about a round trip ahead, for a
//! warning that is too early wastes time, and one that is too late loses data (FRZ-1, FRZ-5,
//! LLT-3). No paper says how a link layer knows (LNK-14 has the signal only); this is one way. It
//! looks at the *level* of the signal and at its *slope*, and warns when the line through both
//! falls below the level at which the link is lost within a *horizon*.
//!
//! # How level and slope are found
//!
//! The slope is the median of the slopes between every two samples of the last [`window`], each
//! weighted by the time between the two (Theil and Sen's estimator with Jaeckel's weights). The
//! level is the median of the same samples, each moved along the slope to the present, weighted by
//! its age with the time constant [`smoothing`]. Medians, because what receivers report has deep
//! and short outliers (Rayleigh fading, a lost beacon) that would throw a least-squares line or an
//! average; along the slope, because a plain moving average of a falling signal is late by its time
//! constant, which is as long as the whole horizon. The price is small: with Gaussian noise the
//! slope is nearly as sure as a least-squares line's, and the level as an average of two thirds of
//! the samples. A level that jumps, as from turning a corner, crosses the threshold unforeseen and
//! is reported with a lead of zero.
//!
//! [`window`]: SignalConfig::window
//! [`smoothing`]: SignalConfig::smoothing

#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use lasthop_units::{Duration, LinkEvent, Time};
use thiserror::Error;

/// Samples that are kept; those that come faster than a window has room for share a place.
const SAMPLES_MAX: usize = 32;
/// Pairs of them.
const PAIRS_MAX: usize = SAMPLES_MAX * (SAMPLES_MAX - 1) / 2;
/// A warning is taken back only if the threshold is so many horizons away.
const RETREAT: u32 = 2;
/// How long after the foretold time receivers of a warning give it up if nothing happened (LLT-9).
const BOUND: Duration = Duration::from_secs(1);

/// The strength of a signal in dBm: decibels over a milliwatt.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
pub struct Dbm(f64);

impl Dbm {
    /// The weakest that is accepted.
    pub const MIN: Self = Self(-200.0);
    /// The strongest that is accepted.
    pub const MAX: Self = Self(100.0);

    /// A strength; `None` if it is none that a receiver can have measured.
    pub fn new(dbm: f64) -> Option<Self> {
        (Self::MIN.0..=Self::MAX.0).contains(&dbm).then_some(Self(dbm))
    }

    /// In dBm.
    pub const fn get(self) -> f64 {
        self.0
    }
}

/// How a [`SignalPredictor`] judges. The sources are silent about every one of these.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SignalConfig {
    /// The level at which the link is lost. By default -82 dBm, which IEEE 802.11 asks of every
    /// receiver at its lowest rate in 20 MHz; mobile networks have other scales (LTE's RSRP is lost
    /// at about -120).
    pub threshold: Dbm,
    /// How long before the threshold is crossed the warning comes: the time that its receivers
    /// need. By default 500 ms, a long round trip and what is in flight (LLT-3, FRZ-5).
    pub horizon: Duration,
    /// The time constant with which samples lose their weight for the level. By default 400 ms.
    pub smoothing: Duration,
    /// How far back the slope is looked for. Longer is steadier, shorter notices a sudden fade
    /// sooner. By default 1.5 s. It is stretched until it holds `samples_min` samples.
    pub window: Duration,
    /// How far above the threshold, in dB, the level must rise for a warning to be taken back, and
    /// how far below the level of a warning that came to nothing it must fall for another. By
    /// default 4 dB.
    pub hysteresis_db: f64,
    /// With fewer samples nothing is said, nor before they span half of the window. By default 5;
    /// from 3 to 32.
    pub samples_min: usize,
    /// After so long without a sample the signal is unknown, which is no warning. By default 3 s.
    pub silence: Duration,
}

impl Default for SignalConfig {
    fn default() -> Self {
        Self {
            threshold: Dbm(-82.0),
            horizon: Duration::from_millis(500),
            smoothing: Duration::from_millis(400),
            window: Duration::from_millis(1500),
            hysteresis_db: 4.0,
            samples_min: 5,
            silence: Duration::from_secs(3),
        }
    }
}

/// Why a [`SignalConfig`] cannot be meant.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
pub enum SignalError {
    /// A time must not be zero.
    #[error("the signal's {0} is zero; it has to be a time")]
    Zero(&'static str),
    /// The hysteresis is negative or no number.
    #[error("the signal's hysteresis is {0} dB; it has to be 0 or more")]
    Hysteresis(f64),
    /// The least number of samples is out of range.
    #[error("a slope from {0} samples is none, or more than are kept; say 3 to 32")]
    Samples(usize),
}

impl SignalConfig {
    fn check(&self) -> Result<(), SignalError> {
        let times =
            [("smoothing", self.smoothing), ("window", self.window), ("silence", self.silence)];
        if let Some((name, _)) = times.iter().find(|(_, time)| time.is_zero()) {
            return Err(SignalError::Zero(name));
        }
        if !(0.0..f64::INFINITY).contains(&self.hysteresis_db) {
            return Err(SignalError::Hysteresis(self.hysteresis_db));
        }
        if !(3..=SAMPLES_MAX).contains(&self.samples_min) {
            return Err(SignalError::Samples(self.samples_min));
        }
        Ok(())
    }
}

/// Samples that came close to each other, as one.
#[derive(Clone, Copy, Debug)]
struct Sample {
    first: Time,
    /// Seconds after `first`, summed.
    offsets: f64,
    dbm: f64,
    n: f64,
}

impl Sample {
    fn add(&mut self, now: Time, dbm: f64) {
        self.offsets += now.since(self.first).as_secs_f64();
        self.dbm += dbm;
        self.n += 1.0;
    }

    fn dbm(&self) -> f64 {
        self.dbm / self.n
    }

    /// Seconds from this sample until `now`.
    fn age(&self, now: Time) -> f64 {
        now.since(self.first).as_secs_f64() - self.offsets / self.n
    }
}

/// The line through the samples.
#[derive(Clone, Copy, Debug)]
struct Line {
    /// dBm, at the moment for which it was drawn.
    level: f64,
    /// dB each second.
    slope: f64,
}

impl Line {
    /// Seconds until it falls below `threshold`, if it falls at all.
    fn crosses(self, threshold: f64) -> Option<f64> {
        if self.level <= threshold {
            return Some(0.0);
        }
        (self.slope < 0.0).then(|| (self.level - threshold) / -self.slope)
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Stand {
    /// Too little is known.
    Unknown,
    /// The link is good for longer than the horizon.
    Good,
    /// It is about to be lost.
    Bad {
        /// The level when that was found, dBm.
        at: f64,
        /// When the warning will have come to nothing if the link carries still.
        until: Time,
        /// A warning was given. A link that was weak from the start works in spite of it.
        told: bool,
    },
}

/// Warns before a link is lost, from samples of its signal's strength (LLT-2).
///
/// A machine for one link: samples come in by [`handle_sample`](Self::handle_sample);
/// [`LinkEvent::Imminent`] comes out when the link is about to be lost, and [`LinkEvent::Up`] when
/// a warning is taken back (LLT-9 has receivers give a false one up by themselves, too). It never
/// says that the link *is* lost, which others know better. One approach to the threshold is reported
/// once; if nothing comes of it and the level falls by another
/// [`hysteresis_db`](SignalConfig::hysteresis_db), it is reported again.
#[derive(Debug)]
pub struct SignalPredictor {
    config: SignalConfig,
    samples: VecDeque<Sample>,
    latest: Time,
    stand: Stand,
    line: Option<Line>,
    /// When the line will have come within the horizon, even if no sample comes before.
    due: Option<Time>,
    event: Option<LinkEvent>,
    /// Values and their weights, to find medians in.
    scratch: Vec<(f64, f64)>,
}

impl SignalPredictor {
    /// A predictor that knows nothing of its link yet.
    ///
    /// # Errors
    ///
    /// A setting that cannot be meant.
    pub fn new(config: SignalConfig) -> Result<Self, SignalError> {
        config.check()?;
        Ok(Self {
            config,
            samples: VecDeque::with_capacity(SAMPLES_MAX),
            latest: Time::ZERO,
            stand: Stand::Unknown,
            line: None,
            due: None,
            event: None,
            scratch: Vec::with_capacity(PAIRS_MAX),
        })
    }

    /// The signal has this strength now.
    pub fn handle_sample(&mut self, now: Time, level: Dbm) {
        if self.is_silent(now) {
            self.reset();
        }
        let now = now.max(self.latest);
        self.latest = now;
        let spacing = self.config.window / SAMPLES_MAX as u32;
        match self.samples.back_mut() {
            Some(last) if now.since(last.first) < spacing => last.add(now, level.0),
            _ => self.push(now, level.0),
        }
        self.evaluate(now);
    }

    /// The link was made anew, or leads to another station: what was known is of the past, and a
    /// warning has had its effect.
    pub fn handle_attached(&mut self) {
        let told = matches!(self.stand, Stand::Bad { told: true, .. });
        self.reset();
        self.event = told.then_some(LinkEvent::Up);
    }

    /// The link is lost: what was known is of the past, and who needs to know of the loss does.
    pub fn handle_detached(&mut self) {
        self.reset();
        self.event = None;
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do: the line comes within the
    /// horizon between two samples, or there are no samples any more.
    pub fn next_timeout(&self) -> Option<Time> {
        let silent = (!self.samples.is_empty()).then(|| self.latest + self.config.silence);
        [silent, self.due].into_iter().flatten().min()
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.is_silent(now) {
            self.reset();
        } else if self.due.is_some_and(|due| due <= now) {
            self.evaluate(now);
        }
    }

    /// What there is to say of the link.
    pub fn poll_event(&mut self) -> Option<LinkEvent> {
        self.event.take()
    }

    /// The level as it was last found, in dBm; `None` while it is unknown.
    pub fn level_dbm(&self) -> Option<f64> {
        self.line.map(|line| line.level)
    }

    /// The slope as it was last found, in dB each second; `None` while it is unknown.
    pub fn slope_db_per_s(&self) -> Option<f64> {
        self.line.map(|line| line.slope)
    }

    fn is_silent(&self, now: Time) -> bool {
        !self.samples.is_empty() && now.since(self.latest) >= self.config.silence
    }

    fn reset(&mut self) {
        self.samples.clear();
        (self.stand, self.line, self.due) = (Stand::Unknown, None, None);
    }

    fn push(&mut self, now: Time, dbm: f64) {
        let old = |sample: &Sample| now.since(sample.first) > self.config.window;
        // The one that is about to be added counts.
        while self.samples.len() >= SAMPLES_MAX
            || (self.samples.len() >= self.config.samples_min
                && self.samples.front().is_some_and(old))
        {
            self.samples.pop_front();
        }
        self.samples.push_back(Sample { first: now, offsets: 0.0, dbm, n: 1.0 });
    }

    fn evaluate(&mut self, now: Time) {
        self.due = None;
        self.line = self.draw(now);
        let Some(line) = self.line else { return };
        let threshold = self.config.threshold.0;
        let crossing = line.crosses(threshold);
        let horizon = self.config.horizon.as_secs_f64();
        match self.stand {
            Stand::Unknown if line.level <= threshold => {
                self.stand = Stand::Bad { at: line.level, until: now, told: false };
            }
            Stand::Unknown | Stand::Good => match crossing {
                Some(lead) if lead <= horizon => self.warn(now, line, lead),
                Some(lead) => self.wait(now, lead - horizon),
                None => self.stand = Stand::Good,
            },
            Stand::Bad { at, until, told } => {
                let risen = line.level >= threshold + self.config.hysteresis_db;
                let away = crossing.is_none_or(|lead| lead > horizon * f64::from(RETREAT));
                let fallen = line.level <= at - self.config.hysteresis_db;
                if risen && away {
                    self.stand = Stand::Good;
                    self.event = told.then_some(LinkEvent::Up);
                } else if let Some(lead) = crossing
                    && lead <= horizon
                    && fallen
                    && until <= now
                {
                    self.warn(now, line, lead);
                }
            }
        }
    }

    fn warn(&mut self, now: Time, line: Line, lead: f64) {
        // It lies between zero and the horizon.
        let lead = Duration::try_from_secs_f64(lead).unwrap_or(self.config.horizon);
        let until = now + lead + BOUND;
        self.stand = Stand::Bad { at: line.level, until, told: true };
        self.event = Some(LinkEvent::Imminent { lead });
    }

    fn wait(&mut self, now: Time, seconds: f64) {
        self.stand = Stand::Good;
        // Too far ahead for a time is too far ahead for anything.
        self.due = Duration::try_from_secs_f64(seconds)
            .ok()
            .map(|time| now + time.max(Duration::from_nanos(1)))
            .filter(|due| *due < self.latest + self.config.silence);
    }

    /// The line through the samples, at `now`.
    fn draw(&mut self, now: Time) -> Option<Line> {
        let span = now.since(self.samples.front()?.first);
        if self.samples.len() < self.config.samples_min || span < self.config.window / 2 {
            return None;
        }
        self.scratch.clear();
        for (i, later) in self.samples.iter().enumerate() {
            for earlier in self.samples.iter().take(i) {
                let dt = earlier.age(now) - later.age(now);
                if dt > 0.0 {
                    self.scratch.push(((later.dbm() - earlier.dbm()) / dt, dt));
                }
            }
        }
        let slope = weighted_median(&mut self.scratch)?;
        let constant = self.config.smoothing.as_secs_f64();
        self.scratch.clear();
        // Ages count from the newest sample, so that not all weights vanish in a long silence.
        let newest = self.samples.back()?.age(now);
        self.scratch.extend(self.samples.iter().map(|sample| {
            let age = sample.age(now);
            (sample.dbm() + slope * age, libm::exp((newest - age) / constant))
        }));
        let level = weighted_median(&mut self.scratch)?;
        Some(Line { level, slope })
    }
}

/// The value below and above which lies half of the weight; `None` if there is no weight.
fn weighted_median(values: &mut [(f64, f64)]) -> Option<f64> {
    values.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let half = values.iter().map(|(_, weight)| weight).sum::<f64>() / 2.0;
    let mut below = 0.0;
    let mut found = None;
    for &(value, weight) in values.iter() {
        // With half of it exactly on either side the middle between the two is meant.
        if let Some(lower) = found {
            return Some(f64::midpoint(lower, value));
        }
        below += weight;
        if below > half {
            return Some(value);
        }
        if below == half && weight > 0.0 {
            found = Some(value);
        }
    }
    found
}
