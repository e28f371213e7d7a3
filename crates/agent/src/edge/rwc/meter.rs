//! How fast the hop is, and how long a round trip takes that waits in no queue.

use lasthop_units::{Bytes, Duration, Rate, Time};
use lasthop_wire::tcp::{Flags, Segment, Seq};

use crate::Side;

/// What is counted together.
pub(super) const BIN: Duration = Duration::from_millis(250);

/// Busy bins that the rate is the greatest of: 5 s.
const BINS: usize = 20;

/// Bins without growth after which the rate is taken to be the hop's.
const STEADY: u32 = 3;

/// Counts what crosses the hop.
#[derive(Clone, Debug, Default)]
pub(super) struct Meter {
    bins: [u64; BINS],
    at: usize,
    current: u64,
    /// What [`most`](Self::most) was when it last grew by a quarter, and bins since then.
    best: u64,
    steady: u32,
}

impl Meter {
    pub(super) fn add(&mut self, bytes: u64) {
        self.current += bytes;
    }

    /// A bin is over. One in which nothing moved tells nothing of the hop.
    pub(super) fn turn(&mut self) {
        let bytes = core::mem::take(&mut self.current);
        if bytes == 0 {
            return;
        }
        self.bins[self.at] = bytes;
        self.at = (self.at + 1) % BINS;
        let most = self.most();
        if most > self.best + self.best / 4 {
            self.best = most;
            self.steady = 0;
        } else {
            self.steady = self.steady.saturating_add(1);
        }
    }

    fn most(&self) -> u64 {
        self.bins.iter().copied().max().unwrap_or(0)
    }

    /// The greatest rate of late; none as long as it still grows.
    pub(super) fn rate(&self) -> Option<Rate> {
        (self.steady >= STEADY).then(|| Rate::of(Bytes::new(self.most()), BIN))
    }
}

/// Bins of a flow's recent past: 1 s.
const RECENT: usize = 4;

/// What crosses the hop of one flow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share {
    bins: [u64; RECENT],
    current: u64,
}

impl Share {
    pub(super) fn add(&mut self, bytes: u64) {
        self.current += bytes;
    }

    pub(super) fn turn(&mut self) {
        self.bins.rotate_right(1);
        self.bins[0] = core::mem::take(&mut self.current);
    }

    /// In the last second.
    pub(super) fn recent(&self) -> u64 {
        self.bins.iter().sum()
    }
}

/// Round trips of one connection: of both its halves, as seen from between.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trips {
    /// When the first SYN passed, and from where; when its answer passed.
    syn: Option<(Side, Time)>,
    answer: Option<Time>,
    /// The shortest, of which what waited in the hop's queue is taken off.
    pub(super) least: Option<Duration>,
    to_mobile: Half,
    to_fixed: Half,
    /// What the mobile's clock showed when, until the fixed host echoes it.
    stamp: Option<(u32, Time)>,
    /// The end of data that has gone to the mobile when, until it is acknowledged.
    data: Option<(Seq, Time)>,
}

/// The round trip between here and one host, smoothed.
#[derive(Clone, Copy, Debug, Default)]
struct Half(Option<Duration>);

impl Half {
    fn sample(&mut self, took: Duration) {
        self.0 = Some(self.0.map_or(took, |smooth| (smooth * 3 + took) / 4));
    }
}

impl Trips {
    /// What is measured at present, with what waits in the hop's queue.
    pub(super) fn present(&self) -> Option<Duration> {
        Some(self.to_mobile.0? + self.to_fixed.0?)
    }

    /// How much longer than the shortest the round trips are at present.
    pub(super) fn queued(&self) -> Option<Duration> {
        Some(self.present()?.saturating_sub(self.least?))
    }

    /// A segment from there ends the handshake.
    pub(super) fn ends(&self, from: Side) -> bool {
        self.answer.is_some() && self.syn.is_some_and(|(opener, _)| opener == from)
    }

    /// The path may have changed: nothing of the past counts.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// A segment passes; `queued` is what waits in the hop's queue at present.
    pub(super) fn observe(&mut self, now: Time, from: Side, segment: &Segment, queued: Duration) {
        if segment.flags.contains(Flags::SYN) {
            self.on_syn(now, from, segment.flags.contains(Flags::ACK));
            return;
        }
        self.on_third(now, from, queued);
        match from {
            Side::Fixed => self.on_fixed(now, segment),
            Side::Mobile => self.on_mobile(now, segment),
        }
        if let Some(present) = self.present() {
            self.least = Some(self.least.map_or(present, |least| least.min(present)));
        }
    }

    fn on_syn(&mut self, now: Time, from: Side, answers: bool) {
        match (answers, self.syn) {
            // One that is sent again measures nothing.
            (false, Some(_)) => *self = Self::default(),
            (false, None) => self.syn = Some((from, now)),
            (true, Some(_)) if self.answer.is_none() => self.answer = Some(now),
            (true, _) => self.answer = None,
        }
    }

    /// The end of the handshake: both halves, each once.
    fn on_third(&mut self, now: Time, from: Side, queued: Duration) {
        if let Some((_, syn)) = self.syn.filter(|_| self.ends(from)) {
            let took = now.since(syn);
            // A queue that is misjudged must not make a round trip of nothing.
            self.least = Some(took.saturating_sub(queued).max(took / 8));
            (self.syn, self.answer) = (None, None);
        }
    }

    fn on_fixed(&mut self, now: Time, segment: &Segment) {
        if let (Some((value, at)), Some(stamps)) = (self.stamp, segment.options.timestamps)
            && stamps.echo.wrapping_sub(value).cast_signed() >= 0
            && segment.len > 0
        {
            self.to_fixed.sample(now.since(at));
            self.stamp = None;
        }
        if segment.len > 0 && self.data.is_none() {
            self.data = Some((segment.end(), now));
        }
    }

    fn on_mobile(&mut self, now: Time, segment: &Segment) {
        if let Some((end, at)) = self.data
            && segment.ack.ahead_of(end) >= 0
        {
            self.to_mobile.sample(now.since(at));
            self.data = None;
        }
        if let (None, Some(stamps)) = (self.stamp, segment.options.timestamps) {
            self.stamp = Some((stamps.value, now));
        }
    }
}
