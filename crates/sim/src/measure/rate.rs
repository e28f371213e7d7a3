//! A traffic rate over time.

use lasthop_units::{Bytes, Duration, Rate, Time};

/// MET-9: bytes counted in bins of equal length, one second unless said otherwise, from time zero.
#[derive(Clone, Debug)]
pub struct RateSeries {
    bin: Duration,
    counts: Vec<u64>,
}

impl RateSeries {
    /// The bin that the papers leave unsaid.
    pub const DEFAULT_BIN: Duration = Duration::from_secs(1);
    /// The most bins; what comes later is not counted. At one second that is 48 days.
    pub const MOST_BINS: usize = 1 << 22;

    /// An empty series; a bin of zero counts as one nanosecond.
    pub fn new(bin: Duration) -> Self {
        Self { bin: bin.max(Duration::from_nanos(1)), counts: Vec::new() }
    }

    /// Counts bytes.
    pub fn add(&mut self, now: Time, bytes: Bytes) {
        let index = self.index(now);
        if index >= Self::MOST_BINS {
            return;
        }
        if index >= self.counts.len() {
            self.counts.resize(index + 1, 0);
        }
        self.counts[index] = self.counts[index].saturating_add(bytes.get());
    }

    /// The length of a bin.
    pub fn bin(&self) -> Duration {
        self.bin
    }

    /// When the bin that holds `at` begins.
    pub fn bin_start(&self, at: Time) -> Time {
        self.start(self.index(at))
    }

    /// The bins that lie wholly between `from` and `until`, with the beginning and the rate of
    /// each. Silence up to `until` has bins too.
    pub fn bins(&self, from: Time, until: Time) -> impl Iterator<Item = (Time, Rate)> + '_ {
        let first = self.index(from) + usize::from(self.bin_start(from) < from);
        let end = self.index(until).min(Self::MOST_BINS);
        (first..end.max(first)).map(|index| {
            let bytes = self.counts.get(index).copied().unwrap_or(0);
            (self.start(index), Rate::of(Bytes::new(bytes), self.bin))
        })
    }

    /// The highest rate of a whole bin between `from` and `until`.
    pub fn top(&self, from: Time, until: Time) -> Option<Rate> {
        self.bins(from, until).map(|(_, rate)| rate).max()
    }

    /// The lowest rate of a whole bin between `from` and `until`.
    pub fn lowest(&self, from: Time, until: Time) -> Option<Rate> {
        self.bins(from, until).map(|(_, rate)| rate).min()
    }

    fn index(&self, at: Time) -> usize {
        let index = u128::from(at.as_nanos()) / self.bin.as_nanos();
        usize::try_from(index).unwrap_or(usize::MAX)
    }

    fn start(&self, index: usize) -> Time {
        let nanos = (index as u128).saturating_mul(self.bin.as_nanos());
        Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl Default for RateSeries {
    fn default() -> Self {
        Self::new(Self::DEFAULT_BIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MET-9
    #[test]
    fn bytes_fall_into_the_bin_of_their_time() {
        let mut series = RateSeries::default();
        for (ms, bytes) in [(0, 100), (999, 25), (1000, 250), (3500, 500)] {
            series.add(Time::from_millis(ms), Bytes::new(bytes));
        }
        let rates: Vec<_> = series
            .bins(Time::ZERO, Time::from_secs(5))
            .map(|(at, rate)| (at.as_nanos() / 1_000_000_000, rate.as_bps()))
            .collect();
        assert_eq!(rates, [(0, 1000), (1, 2000), (2, 0), (3, 4000), (4, 0)]);
        assert_eq!(series.top(Time::ZERO, Time::from_secs(3)), Some(Rate::from_bps(2000)));
        assert_eq!(series.lowest(Time::ZERO, Time::from_secs(2)), Some(Rate::from_bps(1000)));
    }

    /// MET-9: half a bin has half the bytes; its rate would mean nothing.
    #[test]
    fn only_whole_bins_have_a_rate() {
        let mut series = RateSeries::default();
        series.add(Time::from_millis(100), Bytes::new(1));
        let (from, until) = (Time::from_millis(300), Time::from_millis(2900));
        let begins: Vec<_> = series.bins(from, until).map(|(at, _)| at).collect();
        assert_eq!(begins, [Time::from_secs(1)]);
        assert_eq!(series.top(from, Time::from_millis(1900)), None);
        assert_eq!(series.bins(until, from).count(), 0);
    }

    #[test]
    fn a_time_far_away_takes_no_memory() {
        let mut series = RateSeries::new(Duration::from_nanos(1));
        series.add(Time::NEVER, Bytes::new(1));
        assert_eq!(series.counts.len(), 0);
        assert_eq!(series.bins(Time::NEVER, Time::NEVER).count(), 0);
    }
}
