use lasthop_units::Time;

use super::{AckFacts, Repair, Response, Windows};

/// The multiplicative decrease (RFC 9438 section 4.6).
const BETA: f64 = 0.7;
/// Segments per cubed second (RFC 9438 section 5.1).
const C: f64 = 0.4;
/// What makes the Reno-friendly window as fast as Reno with this decrease (RFC 9438 section 4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// CUBIC (RFC 9438) with fast convergence. Windows here are in segments.
#[derive(Clone, Copy, Default, Debug)]
pub struct Cubic {
    /// Where the cubic has its plateau: the window before the last decrease, or what fast
    /// convergence made of it. Zero after a timeout, when growth has no plateau to go back to.
    w_max: f64,
    /// The window before the last decrease.
    prior: f64,
    /// Since when the window grows, and its size then; unset until the first increase.
    epoch: Option<Epoch>,
}

#[derive(Clone, Copy, Debug)]
struct Epoch {
    start: Time,
    /// Seconds from the start until the plateau.
    k: f64,
    /// The window that the cubic has its plateau at.
    origin: f64,
    /// The window that Reno would have.
    reno: f64,
}

impl Epoch {
    fn begin(w_max: f64, cwnd: f64, now: Time) -> Self {
        let (k, origin) =
            if w_max > cwnd { (libm::cbrt((w_max - cwnd) / C), w_max) } else { (0.0, cwnd) };
        Self { start: now, k, origin, reno: cwnd }
    }
}

impl Cubic {
    fn decrease(&mut self, w: &mut Windows, f: &AckFacts) {
        let cwnd = w.cwnd as f64 / w.mss as f64;
        // Fast convergence: a flow that had to give up below its last peak leaves room for others.
        self.w_max = if cwnd < self.w_max { cwnd * (1.0 + BETA) / 2.0 } else { cwnd };
        self.prior = cwnd;
        self.epoch = None;
        w.ssthresh = ((f.flight as f64 * BETA) as u64).max(2 * w.mss);
    }

    fn avoid_congestion(&mut self, w: &mut Windows, f: &AckFacts) {
        let mss = w.mss as f64;
        let cwnd = w.cwnd as f64 / mss;
        let w_max = self.w_max;
        let epoch = self.epoch.get_or_insert_with(|| Epoch::begin(w_max, cwnd, f.now));
        let t = f.now.since(epoch.start).as_secs_f64();
        let acked = f.acked as f64 / mss;
        // Beyond the window that the last decrease met, Reno's own step is fair.
        let alpha = if epoch.reno >= self.prior { 1.0 } else { ALPHA };
        epoch.reno += alpha * acked / cwnd;
        let at = |t: f64| {
            let d = t - epoch.k;
            C * d * d * d + epoch.origin
        };
        let grown = if at(t) < epoch.reno {
            epoch.reno
        } else {
            let target = at(t + f.srtt.as_secs_f64()).clamp(cwnd, 1.5 * cwnd);
            cwnd + (target - cwnd) * acked / cwnd
        };
        w.set_cwnd((grown.max(cwnd) * mss) as u64);
    }
}

impl Response for Cubic {
    fn repair(&self) -> Repair {
        Repair::Sack
    }

    fn on_ack(&mut self, w: &mut Windows, f: &AckFacts) {
        if !f.limited {
            // Time that the application let pass is no reason to grow (RFC 9438 section 5.8).
            self.epoch = None;
        } else if w.slow_start() {
            w.set_cwnd(w.cwnd + f.acked.min(2 * w.mss));
        } else {
            self.avoid_congestion(w, f);
        }
    }

    fn on_loss(&mut self, w: &mut Windows, f: &AckFacts) {
        self.decrease(w, f);
        w.set_cwnd(w.ssthresh);
    }

    fn on_echo(&mut self, w: &mut Windows, f: &AckFacts) {
        self.on_loss(w, f);
    }

    fn on_recovered(&mut self, w: &mut Windows, _f: &AckFacts) {
        w.set_cwnd(w.ssthresh);
    }

    fn on_timeout(&mut self, w: &mut Windows, f: &AckFacts) {
        if !f.repeated {
            self.decrease(w, f);
        }
        // The first congestion avoidance after a timeout starts where slow start ends (RFC 9438
        // section 4.8).
        self.w_max = 0.0;
        self.epoch = None;
        w.cwnd = w.mss;
    }

    fn on_resume(&mut self) {
        self.epoch = None;
    }

    fn on_restart(&mut self, w: &mut Windows) {
        // Idle time is no time of the cubic's.
        self.epoch = None;
        w.cwnd = w.cwnd.min(w.initial);
    }
}

#[cfg(test)]
mod tests {
    use lasthop_units::Duration;

    use super::super::LossBase;
    use super::*;

    const MSS: u64 = 1000;
    const RTT: Duration = Duration::from_millis(100);

    fn windows(cwnd: u64) -> Windows {
        Windows {
            cwnd: cwnd * MSS,
            ssthresh: MSS,
            max: u64::MAX,
            initial: 10 * MSS,
            mss: MSS,
            base: LossBase::Flight,
        }
    }

    fn facts(now: Time, w: &Windows) -> AckFacts {
        AckFacts {
            now,
            acked: MSS,
            flight: w.cwnd,
            window: w.cwnd,
            limited: true,
            srtt: RTT,
            repeated: false,
        }
    }

    /// Acknowledges one window after the other from `now` on.
    fn grow(cubic: &mut Cubic, w: &mut Windows, mut now: Time, round_trips: u32) -> Time {
        for _ in 0..round_trips {
            now += RTT;
            for _ in 0..w.cwnd / MSS {
                let facts = facts(now, w);
                cubic.on_ack(w, &facts);
            }
        }
        now
    }

    /// RFC 9438 section 4.2: after K = cbrt(0.3 W_max / C) seconds the window is back at W_max.
    #[test]
    fn the_window_is_back_at_its_peak_after_k_seconds() {
        let (mut cubic, mut w) = (Cubic::default(), windows(1000));
        cubic.on_loss(&mut w, &facts(Time::ZERO, &windows(1000)));
        assert_eq!(w.cwnd, 700 * MSS);
        let k = libm::cbrt(0.3 * 1000.0 / C);
        let now = grow(&mut cubic, &mut w, Time::ZERO, (0.9 * k * 10.0) as u32);
        assert!((990 * MSS..=1000 * MSS).contains(&w.cwnd), "{}", w.cwnd);
        grow(&mut cubic, &mut w, now, (k * 10.0) as u32);
        assert!(w.cwnd > 1100 * MSS, "{}", w.cwnd);
    }

    /// RFC 9438 section 4.8: after a timeout K is zero and the plateau is where slow start ended.
    #[test]
    fn growth_after_a_timeout_does_not_aim_at_the_old_peak() {
        let (mut cubic, mut w) = (Cubic::default(), windows(1000));
        cubic.on_timeout(&mut w, &facts(Time::ZERO, &windows(1000)));
        assert_eq!((w.cwnd, w.ssthresh), (MSS, 700 * MSS));
        w.cwnd = w.ssthresh;
        grow(&mut cubic, &mut w, Time::ZERO, 20);
        // Two seconds make 3 segments of the cubic's and 11 of Reno's; a plateau at 1000 would make
        // it some 150.
        assert!(w.cwnd < 720 * MSS, "{}", w.cwnd);
    }

    /// RFC 9438 section 4.3: it is the window before the decrease, not fast convergence's plateau
    /// below it, at which the Reno-friendly window begins to grow as fast as Reno's.
    #[test]
    fn the_reno_friendly_window_speeds_up_at_the_last_peak_only() {
        let (mut cubic, mut w) = (Cubic::default(), windows(20));
        cubic.on_loss(&mut w, &facts(Time::ZERO, &windows(20)));
        w.cwnd = 19 * MSS;
        cubic.on_loss(&mut w, &facts(Time::ZERO, &windows(19)));
        assert!((cubic.w_max - 19.0 * 0.85).abs() < 1e-9);
        w.cwnd = 17 * MSS;
        let facts = facts(Time::ZERO, &w);
        cubic.on_ack(&mut w, &facts);
        let reno = cubic.epoch.map_or(0.0, |epoch| epoch.reno);
        assert!((reno - (17.0 + ALPHA / 17.0)).abs() < 1e-9, "{reno}");
    }

    /// RFC 9438 section 5.8: what is idle does not grow.
    #[test]
    fn an_idle_minute_lets_the_window_grow_no_faster() {
        let (mut cubic, mut w) = (Cubic::default(), windows(100));
        cubic.on_loss(&mut w, &facts(Time::ZERO, &windows(100)));
        let now = grow(&mut cubic, &mut w, Time::ZERO, 5) + Duration::from_secs(60);
        cubic.on_restart(&mut w);
        assert_eq!(w.cwnd, 10 * MSS);
        // Slow start back to ssthresh, then one round trip.
        w.cwnd = w.ssthresh;
        grow(&mut cubic, &mut w, now, 1);
        assert!(w.cwnd < 80 * MSS, "{}", w.cwnd);
    }
}
