//! How long local recovery takes.

use std::collections::VecDeque;

use lasthop_units::{Duration, Time};

/// The two wireless links of [S V]: from base to mobile router, and from there to mobile host.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HopPath {
    /// One-way delay from base to mobile router (d1).
    pub d1: Duration,
    /// One-way delay from mobile router to mobile host (d2).
    pub d2: Duration,
    /// Loss probability from base to mobile router (p1).
    pub p1: f64,
    /// Loss probability from mobile router to mobile host (p2).
    pub p2: f64,
}

impl HopPath {
    /// MET-10: the mean recovery time of snoop, which sees both links as one [S eqs 3 to 5].
    /// `None` if a loss probability is not from zero to below one, or nearly one.
    pub fn snoop(&self) -> Option<Duration> {
        let p = 1.0 - (1.0 - self.p1) * (1.0 - self.p2);
        times(self.d1.saturating_add(self.d2), round_trips(p)?)
    }

    /// MET-10: the mean recovery time of obTCP, which repairs each link by itself [S eq 6].
    /// `None` if a loss probability is not from zero to below one, or nearly one.
    pub fn obtcp(&self) -> Option<Duration> {
        let first = times(self.d1, round_trips(self.p1)?)?;
        Some(first.saturating_add(times(self.d2, round_trips(self.p2)?)?))
    }

    /// MET-10: by how much obTCP recovers sooner than snoop [S eq 7]. `None` if a loss probability
    /// is not from zero to below one.
    pub fn gain(&self) -> Option<Duration> {
        Some(self.snoop()?.saturating_sub(self.obtcp()?))
    }
}

/// Twice the mean number of transmissions [S eq 4], as the delay is one way.
fn round_trips(p: f64) -> Option<f64> {
    (0.0..1.0).contains(&p).then(|| 2.0 / (1.0 - p))
}

fn times(delay: Duration, factor: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(delay.as_secs_f64() * factor).ok()
}

/// MET-10: the measured recovery time: from a packet's first transmission by an agent until the
/// acknowledgement that covers it reaches the agent, over as many transmissions as it takes. So
/// the equations' mean has the first transmission in it too.
#[derive(Clone, Debug, Default)]
pub struct RecoveryMeter {
    /// In order of the stream.
    outstanding: VecDeque<Outstanding>,
    all: Mean,
    repeated: Mean,
    missed: u64,
}

#[derive(Clone, Debug)]
struct Outstanding {
    end: u64,
    sent: Time,
    transmissions: u32,
}

#[derive(Clone, Debug, Default)]
struct Mean {
    count: u64,
    sum: Duration,
}

impl Mean {
    fn add(&mut self, value: Duration) {
        self.count += 1;
        self.sum = self.sum.saturating_add(value);
    }

    fn get(&self) -> Option<Duration> {
        let nanos = self.sum.as_nanos().checked_div(u128::from(self.count))?;
        Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }
}

impl RecoveryMeter {
    /// The most packets followed at once; others are [missed](Self::missed).
    pub const MOST: usize = 1 << 16;

    /// A packet whose last byte is before `end` in its stream was transmitted, for the first time
    /// or again.
    pub fn transmitted(&mut self, now: Time, end: u64) {
        let at = self.outstanding.partition_point(|packet| packet.end < end);
        if let Some(packet) = self.outstanding.get_mut(at).filter(|packet| packet.end == end) {
            packet.transmissions = packet.transmissions.saturating_add(1);
        } else if self.outstanding.len() < Self::MOST {
            self.outstanding.insert(at, Outstanding { end, sent: now, transmissions: 1 });
        } else {
            self.missed += 1;
        }
    }

    /// An acknowledgement of everything before `upto` arrived.
    pub fn acknowledged(&mut self, now: Time, upto: u64) {
        while self.outstanding.front().is_some_and(|packet| packet.end <= upto) {
            let Some(packet) = self.outstanding.pop_front() else { return };
            let time = now.since(packet.sent);
            self.all.add(time);
            if packet.transmissions > 1 {
                self.repeated.add(time);
            }
        }
    }

    /// The mean over all packets, the one that the equations speak of.
    pub fn mean(&self) -> Option<Duration> {
        self.all.get()
    }

    /// The mean over packets that took more than one transmission.
    pub fn mean_of_repeated(&self) -> Option<Duration> {
        self.repeated.get()
    }

    /// Packets acknowledged, and of these those that took more than one transmission.
    pub fn packets(&self) -> (u64, u64) {
        (self.all.count, self.repeated.count)
    }

    /// Packets that were not followed because too many were outstanding.
    pub fn missed(&self) -> u64 {
        self.missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(d1: u64, d2: u64, p1: f64, p2: f64) -> HopPath {
        HopPath { d1: Duration::from_millis(d1), d2: Duration::from_millis(d2), p1, p2 }
    }

    fn close(a: Duration, seconds: f64) -> bool {
        (a.as_secs_f64() - seconds).abs() < 1e-8
    }

    /// MET-10: the difference of equations 5 and 6 is equation 7.
    #[test]
    fn the_gain_is_the_published_closed_form() {
        let path = path(10, 35, 0.2, 0.05);
        let expected = 2.0 * (0.010 * 0.05 + 0.035 * 0.2) / (0.8 * 0.95);
        assert!(close(path.gain().unwrap(), expected));
        assert!(close(path.snoop().unwrap(), 2.0 * 0.045 / (0.8 * 0.95)));
    }

    /// MET-10: without loss there is nothing to gain.
    #[test]
    fn without_loss_both_take_a_round_trip() {
        let path = path(10, 20, 0.0, 0.0);
        assert_eq!(path.snoop(), Some(Duration::from_millis(60)));
        assert_eq!(path.obtcp(), Some(Duration::from_millis(60)));
        assert_eq!(path.gain(), Some(Duration::ZERO));
    }

    #[test]
    fn certain_loss_has_no_recovery_time() {
        for p in [1.0, -0.1, f64::NAN] {
            assert_eq!(path(1, 1, p, 0.0).obtcp(), None);
            assert_eq!(path(1, 1, 0.0, p).gain(), None);
        }
        let almost = 1.0 - f64::EPSILON;
        assert_eq!(path(u64::MAX, u64::MAX, almost, almost).snoop(), None);
    }

    /// MET-10
    #[test]
    fn recovery_lasts_from_the_first_transmission_to_the_acknowledgement() {
        let ms = Time::from_millis;
        let mut meter = RecoveryMeter::default();
        meter.transmitted(ms(0), 1000);
        meter.transmitted(ms(1), 2000);
        meter.transmitted(ms(5), 1000);
        meter.acknowledged(ms(4), 999);
        assert_eq!(meter.mean(), None);
        meter.acknowledged(ms(11), 2000);
        assert_eq!(meter.packets(), (2, 1));
        assert_eq!(meter.mean_of_repeated(), Some(Duration::from_millis(11)));
        assert_eq!(meter.mean(), Some(Duration::from_micros(10_500)));
    }

    #[test]
    fn what_is_never_acknowledged_takes_bounded_memory() {
        let mut meter = RecoveryMeter::default();
        for n in 0..RecoveryMeter::MOST as u64 + 5 {
            meter.transmitted(Time::ZERO, n);
        }
        assert_eq!((meter.outstanding.len(), meter.missed()), (RecoveryMeter::MOST, 5));
    }
}
