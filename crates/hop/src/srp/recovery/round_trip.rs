//! The round trip, and timers by it.

use core::time::Duration;

/// Smoothed round-trip time and its deviation (RFC 6298 §2).
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::srp) struct RoundTrip {
    srtt: Option<Duration>,
    rttvar: Duration,
}

impl RoundTrip {
    pub(in crate::srp) fn sample(&mut self, rtt: Duration) {
        match self.srtt {
            None => {
                self.srtt = Some(rtt);
                self.rttvar = rtt / 2;
            }
            Some(srtt) => {
                self.rttvar = (self.rttvar * 3 + srtt.abs_diff(rtt)) / 4;
                self.srtt = Some((srtt * 7 + rtt) / 8);
            }
        }
    }

    /// Smoothed round-trip time, once there was a sample.
    pub(in crate::srp) fn srtt(&self) -> Option<Duration> {
        self.srtt
    }

    /// Round trip and four deviations (RFC 6298 §2.3), once there was a sample.
    pub(in crate::srp) fn rto(&self) -> Option<Duration> {
        self.srtt.map(|srtt| srtt + 4 * self.rttvar)
    }

    /// The same after a rest in which the queue of our own has drained: a round trip takes `least` then.
    pub(in crate::srp) fn after_rest(self, least: Option<Duration>) -> Self {
        let srtt = self.srtt.map(|srtt| least.map_or(srtt, |least| srtt.min(least)));
        Self { srtt, ..self }
    }

    /// How long to wait for an answer before asking again (SRP-9). A quarter of the round trip is
    /// allowed for a queue that grows, and the receiver's delay is known.
    pub(in crate::srp) fn probe_timeout(&self) -> Duration {
        match self.srtt {
            None => Duration::from_millis(150),
            Some(srtt) => {
                let slack = (2 * self.rttvar).max(srtt / 4).min(srtt);
                srtt + slack + Duration::from_millis(8)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SRP-9: the timer follows the hop's round trip and deviation, finely.
    #[test]
    fn the_probe_timeout_follows_the_round_trip() {
        let mut r = RoundTrip::default();
        for _ in 0..50 {
            r.sample(Duration::from_millis(40));
        }
        assert_eq!(r.srtt(), Some(Duration::from_millis(40)));
        assert_eq!(r.probe_timeout(), Duration::from_millis(58));
    }
}
