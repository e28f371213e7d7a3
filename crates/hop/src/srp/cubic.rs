//! CUBIC's window over time (RFC 9438), for living beside those who use it.
//!
//! [`Cubic::bold`] is half as bold again: it comes late to the contest, after it has made room, and
//! windows take a dozen losses to converge.

use core::time::Duration;

use lasthop_units::Time;

/// RFC 9438 §4.1: the curve's scale, in segments per second cubed.
const C: f64 = 0.4;
/// RFC 9438 §4.6: what is left of the window after congestion.
const BETA: f64 = 0.7;

/// A congestion window in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cubic {
    window: f64,
    window_max: f64,
    epoch: Time,
    /// The window that Reno would have (§4.3), which CUBIC never stays below.
    reno: f64,
    last: Time,
    segment: f64,
    beta: f64,
    /// What Reno's window grows by in a round trip, in segments (§4.3).
    reno_step: f64,
}

impl Default for Cubic {
    fn default() -> Self {
        Self::start(Time::ZERO, 0.0, 1)
    }
}

impl Cubic {
    /// A window of `window` bytes of `segment` bytes each, at the plateau of its curve.
    pub(super) fn start(now: Time, window: f64, segment: usize) -> Self {
        let segment = segment.max(1) as f64;
        let reno_step = 3.0 * (1.0 - BETA) / (1.0 + BETA);
        Self {
            window,
            window_max: window,
            epoch: now,
            reno: window,
            last: now,
            segment,
            beta: BETA,
            reno_step,
        }
    }

    /// As [`start`](Self::start), for a latecomer.
    pub(super) fn bold(now: Time, window: f64, segment: usize) -> Self {
        Self { beta: 0.8, reno_step: 1.0, ..Self::start(now, window, segment) }
    }

    /// From here on segments are so many times as large: a window of so many times the size does the same.
    pub(super) fn scale_segment(&mut self, factor: f64) {
        self.segment *= factor;
    }

    pub(super) fn window(&self) -> f64 {
        self.window
    }

    /// §4.6 and §4.7: the queue overflowed.
    pub(super) fn on_congestion(&mut self, now: Time) {
        let fast = if self.window < self.window_max { (1.0 + self.beta) / 2.0 } else { 1.0 };
        self.window_max = self.window * fast;
        self.window = (self.window * self.beta).max(2.0 * self.segment);
        self.reno = self.window;
        self.epoch = now;
        self.last = now;
    }

    /// §4.2 to §4.5: time passed while the window was in use.
    pub(super) fn on_progress(&mut self, now: Time, srtt: Duration) {
        let drop = self.window_max * (1.0 - self.beta) / self.segment;
        let k = libm::cbrt(drop / C);
        let t = (now.since(self.epoch) + srtt).as_secs_f64() - k;
        let target = C * t * t * t * self.segment + self.window_max;
        let round_trips = now.since(self.last).as_secs_f64() / srtt.as_secs_f64().max(1e-4);
        self.last = now;
        self.reno += self.reno_step * round_trips * self.segment;
        let grown = self.window + (target - self.window).max(0.0) * round_trips.min(1.0);
        self.window = grown.min(1.5 * self.window).max(self.reno.min(self.window * 1.5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_returns_to_its_old_size_after_k_seconds() {
        let segment = 1448;
        let mut c = Cubic::start(Time::ZERO, 100.0 * 1448.0, segment);
        c.on_congestion(Time::ZERO);
        assert!((c.window() / 1448.0 - 70.0).abs() < 0.01);
        let srtt = Duration::from_millis(100);
        // K = cbrt(100 * 0.3 / 0.4) = 4.22 s.
        let mut now = Time::ZERO;
        while now < Time::from_millis(4220) {
            now += Duration::from_millis(10);
            c.on_progress(now, srtt);
        }
        let window = c.window() / 1448.0;
        assert!((95.0..=103.0).contains(&window), "{window}");
    }

    #[test]
    fn half_a_flow_has_half_of_its_window() {
        let mut windows = [1.0, 0.5].map(|part| {
            let mut c = Cubic::bold(Time::ZERO, part * 100.0 * 1448.0, 1448);
            c.scale_segment(part);
            c
        });
        let srtt = Duration::from_millis(100);
        for ms in (0..20_000).step_by(10) {
            for c in &mut windows {
                if ms % 5_000 == 0 {
                    c.on_congestion(Time::from_millis(ms));
                }
                c.on_progress(Time::from_millis(ms), srtt);
            }
        }
        let [whole, half] = windows.map(|c| c.window());
        assert!((whole - 2.0 * half).abs() < 1.0, "{whole} {half}");
    }
}
