//! How evenly buffers reach an application.

use lasthop_units::{Bytes, Duration, Time};

/// MET-3: the receiving application's wait for its next in-order buffer of a fixed size, from the
/// completion of one to the completion of the next, with a read always pending.
#[derive(Clone, PartialEq, Debug)]
pub struct BufferMeter {
    size: u64,
    /// Bytes of the buffer that is filling.
    filled: u64,
    last: Option<Time>,
    waits: u64,
    sum: u128,
    squares: u128,
    longest: Duration,
}

impl BufferMeter {
    /// For buffers of `size`; a size of zero counts as one byte.
    pub fn new(size: Bytes) -> Self {
        Self {
            size: size.get().max(1),
            filled: 0,
            last: None,
            waits: 0,
            sum: 0,
            squares: 0,
            longest: Duration::ZERO,
        }
    }

    /// `n` more bytes, in order, have reached the application.
    pub fn received(&mut self, now: Time, n: Bytes) {
        let filled = self.filled.saturating_add(n.get());
        let completed = filled / self.size;
        self.filled = filled % self.size;
        if completed == 0 {
            return;
        }
        if let Some(last) = self.last.replace(now) {
            self.add(now.since(last));
        }
        // Those that one arrival completes together wait for nothing.
        self.waits += completed - 1;
    }

    /// What came after `before`, an earlier state of this meter. The longest wait stays that of all.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            waits: self.waits.saturating_sub(before.waits),
            sum: self.sum.saturating_sub(before.sum),
            squares: self.squares.saturating_sub(before.squares),
            ..self.clone()
        }
    }

    fn add(&mut self, wait: Duration) {
        let nanos = wait.as_nanos();
        self.waits += 1;
        self.sum += nanos;
        self.squares = self.squares.saturating_add(nanos * nanos);
        self.longest = self.longest.max(wait);
    }

    /// How many waits there were: one fewer than buffers.
    pub fn waits(&self) -> u64 {
        self.waits
    }

    /// The mean wait, the inter-buffer delay; `None` before the second buffer.
    pub fn mean(&self) -> Option<Duration> {
        let nanos = self.sum.checked_div(u128::from(self.waits))?;
        Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    /// The jitter: the waits' standard deviation; `None` before the third buffer.
    pub fn jitter(&self) -> Option<Duration> {
        if self.waits < 2 {
            return None;
        }
        let (n, sum) = (self.waits as f64, self.sum as f64);
        let variance = (self.squares as f64 - sum * sum / n).max(0.0) / (n - 1.0);
        Some(Duration::from_nanos(variance.sqrt() as u64))
    }

    /// The longest wait.
    pub fn longest(&self) -> Duration {
        self.longest
    }
}

/// For buffers of 1460 B, what an Ethernet frame carries of TCP's: the papers name no size.
impl Default for BufferMeter {
    fn default() -> Self {
        Self::new(Bytes::new(1460))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Bytes = Bytes::new(1460);

    /// MET-3
    #[test]
    fn a_wait_lasts_from_completion_to_completion() {
        let mut meter = BufferMeter::new(SIZE);
        // What comes before the first completion is the opening's, not the stream's.
        meter.received(Time::from_millis(500), Bytes::new(1000));
        meter.received(Time::from_millis(900), Bytes::new(460));
        assert_eq!((meter.waits(), meter.mean()), (0, None));
        meter.received(Time::from_millis(905), Bytes::new(1459));
        meter.received(Time::from_millis(910), Bytes::new(1));
        meter.received(Time::from_millis(940), SIZE);
        assert_eq!(meter.waits(), 2);
        assert_eq!(meter.mean(), Some(Duration::from_millis(20)));
        // 10 and 30 ms: a standard deviation of 10 ms times the root of two.
        let jitter = meter.jitter().unwrap().as_secs_f64();
        assert!((jitter - 0.014_142_135).abs() < 1e-8, "{jitter}");
        assert_eq!(meter.longest(), Duration::from_millis(30));
    }

    /// MET-3
    #[test]
    fn buffers_that_come_together_after_a_gap_wait_once() {
        let mut meter = BufferMeter::new(SIZE);
        meter.received(Time::from_millis(1), SIZE);
        meter.received(Time::from_millis(101), Bytes::new(1460 * 4));
        assert_eq!((meter.waits(), meter.mean()), (4, Some(Duration::from_millis(25))));
    }

    /// MET-3
    #[test]
    fn what_came_before_may_be_left_out() {
        let mut meter = BufferMeter::default();
        meter.received(Time::from_millis(1), SIZE);
        meter.received(Time::from_millis(901), SIZE);
        let before = meter.clone();
        for ms in [911, 941] {
            meter.received(Time::from_millis(ms), SIZE);
        }
        let since = meter.since(&before);
        assert_eq!((since.waits(), since.mean()), (2, Some(Duration::from_millis(20))));
        assert!(since.jitter() < meter.jitter());
    }

    /// MET-3
    #[test]
    fn an_even_stream_has_no_jitter() {
        let mut meter = BufferMeter::new(SIZE);
        for n in 0..1000 {
            meter.received(Time::from_micros(17_697 * n), SIZE);
        }
        assert_eq!(meter.mean(), Some(Duration::from_micros(17_697)));
        assert!(meter.jitter().unwrap() < Duration::from_nanos(1000));
    }
}
