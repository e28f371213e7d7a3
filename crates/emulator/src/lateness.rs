//! How late packets leave.

use std::time::Duration;

/// Up to here, lateness is counted in microseconds; above, in milliseconds.
const FINE: usize = 4_096;
const COARSE: usize = 1_000;

/// How late packets left, compared with the radio's time.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Lateness {
    /// Packets counted.
    pub packets: u64,
    /// The mean.
    pub mean: Duration,
    /// 99 of 100 packets were not later than this, to the microsecond below 4 ms and to the
    /// millisecond above.
    pub p99: Duration,
    /// The latest.
    pub max: Duration,
}

/// Counts lateness in buckets.
#[derive(Debug)]
pub(crate) struct LatenessMeter {
    buckets: Vec<u64>,
    packets: u64,
    total: Duration,
    max: Duration,
}

impl LatenessMeter {
    pub(crate) fn new() -> Self {
        let buckets = vec![0; FINE + COARSE];
        Self { buckets, packets: 0, total: Duration::ZERO, max: Duration::ZERO }
    }

    pub(crate) fn add(&mut self, late: Duration) {
        let us = late.as_micros() as usize;
        let bucket = if us < FINE { us } else { (FINE + us / 1_000).min(FINE + COARSE - 1) };
        if let Some(count) = self.buckets.get_mut(bucket) {
            *count += 1;
        }
        self.packets += 1;
        self.total += late;
        self.max = self.max.max(late);
    }

    pub(crate) fn reset(&mut self) {
        self.buckets.fill(0);
        (self.packets, self.total, self.max) = (0, Duration::ZERO, Duration::ZERO);
    }

    pub(crate) fn result(&self) -> Lateness {
        let mean = self.total.as_nanos() / u128::from(self.packets.max(1));
        Lateness {
            packets: self.packets,
            mean: Duration::from_nanos(mean as u64),
            p99: self.quantile(0.99),
            max: self.max,
        }
    }

    fn quantile(&self, q: f64) -> Duration {
        let wanted = (self.packets as f64 * q).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in (0_u64..).zip(&self.buckets) {
            seen += count;
            if seen >= wanted && seen > 0 {
                let fine = FINE as u64;
                let upper = if bucket < fine {
                    Duration::from_micros(bucket + 1)
                } else {
                    Duration::from_millis(bucket - fine + 1)
                };
                return upper.min(self.max);
            }
        }
        self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_p99_and_max_are_those_of_the_samples() {
        let mut meter = LatenessMeter::new();
        assert_eq!(meter.result(), Lateness::default());
        for us in 1..=1000 {
            meter.add(Duration::from_micros(us));
        }
        let result = meter.result();
        assert_eq!(result.packets, 1000);
        assert_eq!(result.mean, Duration::from_nanos(500_500));
        assert_eq!(result.p99, Duration::from_micros(991));
        assert_eq!(result.max, Duration::from_millis(1));
        meter.add(Duration::from_secs(100));
        assert_eq!(meter.result().max, Duration::from_secs(100));
        meter.reset();
        assert_eq!(meter.result(), Lateness::default());
    }
}
