//! What acknowledgements show of the hop in a stretch of time that is long enough to measure it.

use core::time::Duration;

use super::sample::Sample;

/// Datagrams that must be settled, acknowledged or lost, before an interval is a measurement.
pub(super) const INTERVAL_DATAGRAMS: u64 = 8;

/// What is gathered from one measurement of the hop to the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interval {
    start_arrival_us: u64,
    start_latest: u64,
    delivered: u64,
    lost: u64,
    /// The least and the greatest delay but for what datagrams waited for those that left with them.
    delay_min_us: i64,
    delay_max_us: i64,
    /// The two least delays.
    least_us: [i64; 2],
    /// Sending paused meanwhile.
    pub(super) paused: bool,
}

/// What an interval showed of the hop.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measurement {
    /// Bits per second that the hop worked off, later losses included.
    pub(super) served: f64,
    /// Bits per second that arrived.
    pub(super) delivered: f64,
    /// Share of bytes lost.
    pub(super) loss: f64,
    /// Datagrams settled, about.
    pub(super) datagrams: f64,
    pub(super) queue_min: Duration,
    pub(super) queue_max: Duration,
    pub(super) start_latest: u64,
}

impl Interval {
    /// Takes a sample into the interval at hand. If that is long enough it is returned, and the next
    /// begins.
    pub(super) fn add_sample(
        slot: &mut Option<Self>,
        s: &Sample,
        wanted: Duration,
    ) -> Option<Self> {
        let Some(interval) = slot else {
            *slot = Some(Self::start(s));
            return None;
        };
        interval.add_delay(s);
        let took = interval.took(s);
        let settled = interval.settled(s);
        let enough = settled >= INTERVAL_DATAGRAMS * s.datagram as u64;
        if took < wanted || (!enough && took < 8 * wanted) || settled == 0 {
            return None;
        }
        slot.replace(Self::start(s))
    }

    /// The least delay, of which nothing is taken off that it may not have waited. Not the very least: a
    /// single early stamp, by a clock read too soon, would count for as long as the least delay does.
    pub(super) fn delay_base_us(&self) -> i64 {
        self.least_us[1]
    }

    fn took(&self, s: &Sample) -> Duration {
        Duration::from_micros(s.arrival_us.saturating_sub(self.start_arrival_us))
    }

    /// Bytes acknowledged or lost since the start. Losses may be taken back meanwhile.
    fn settled(&self, s: &Sample) -> u64 {
        (s.delivered - self.delivered) + s.lost.saturating_sub(self.lost)
    }

    fn start(s: &Sample) -> Self {
        let delay_us = s.delay_alone_us();
        Self {
            start_arrival_us: s.arrival_us,
            start_latest: s.latest,
            delivered: s.delivered,
            lost: s.lost,
            delay_min_us: delay_us,
            delay_max_us: delay_us,
            least_us: [s.delay_us(), i64::MAX],
            paused: false,
        }
    }

    fn add_delay(&mut self, s: &Sample) {
        let delay_us = s.delay_us();
        let [least, second] = self.least_us;
        self.least_us = [least.min(delay_us), second.min(least.max(delay_us))];
        let delay_us = s.delay_alone_us();
        self.delay_min_us = self.delay_min_us.min(delay_us);
        self.delay_max_us = self.delay_max_us.max(delay_us);
    }
}

impl Measurement {
    pub(super) fn new(interval: &Interval, s: &Sample, base_us: i64) -> Self {
        let (took, settled) = (interval.took(s), interval.settled(s));
        let queue = |delay_us: i64| Duration::from_micros((delay_us - base_us).max(0) as u64);
        let delivered = s.delivered - interval.delivered;
        let seconds = took.as_secs_f64();
        Self {
            served: settled as f64 * 8.0 / seconds,
            delivered: delivered as f64 * 8.0 / seconds,
            loss: (settled - delivered) as f64 / settled as f64,
            datagrams: settled as f64 / s.datagram as f64,
            queue_min: queue(interval.delay_min_us),
            queue_max: queue(interval.delay_max_us),
            start_latest: interval.start_latest,
        }
    }
}
