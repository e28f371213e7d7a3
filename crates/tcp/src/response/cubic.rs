use lasthop_units::Time;

use super::{Facts, OnTimeout, Repair, Response, Windows};

/// The multiplicative decrease (RFC 9438 section 4.6).
const BETA: f64 = 0.7;
/// Segments per cubed second (RFC 9438 section 5.1).
const C: f64 = 0.4;
/// What makes the Reno-friendly window as fast as Reno with this decrease (RFC 9438 section 4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// CUBIC (RFC 9438) with fast convergence. Windows here are in segments.
#[derive(Clone, Copy, Default, Debug)]
pub struct Cubic {
    /// The window before the last decrease, or what fast convergence made of it.
    w_max: f64,
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
    fn decrease(&mut self, w: &mut Windows, f: &Facts) {
        let cwnd = w.cwnd as f64 / w.mss as f64;
        // Fast convergence: a flow that had to give up below its last peak leaves room for others.
        self.w_max = if cwnd < self.w_max { cwnd * (1.0 + BETA) / 2.0 } else { cwnd };
        self.epoch = None;
        w.ssthresh = ((f.flight as f64 * BETA) as u64).max(2 * w.mss);
    }

    fn avoid_congestion(&mut self, w: &mut Windows, f: &Facts) {
        let mss = w.mss as f64;
        let cwnd = w.cwnd as f64 / mss;
        let w_max = self.w_max;
        let epoch = self.epoch.get_or_insert_with(|| Epoch::begin(w_max, cwnd, f.now));
        let t = f.now.since(epoch.start).as_secs_f64();
        let acked = f.acked as f64 / mss;
        // Above the old peak Reno itself grows by one segment each round trip.
        let alpha = if epoch.reno >= w_max { 1.0 } else { ALPHA };
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

    fn on_ack(&mut self, w: &mut Windows, f: &Facts) {
        if !f.limited {
            // Time that the application let pass is no reason to grow (RFC 9438 section 5.8).
            self.epoch = None;
        } else if w.slow_start() {
            w.set_cwnd(w.cwnd + f.acked.min(2 * w.mss));
        } else {
            self.avoid_congestion(w, f);
        }
    }

    fn on_loss(&mut self, w: &mut Windows, f: &Facts) {
        self.decrease(w, f);
        w.set_cwnd(w.ssthresh);
    }

    fn on_recovered(&mut self, w: &mut Windows, _f: &Facts) {
        w.set_cwnd(w.ssthresh);
    }

    fn on_timeout(&mut self, w: &mut Windows, f: &Facts) -> OnTimeout {
        if !f.repeated {
            self.decrease(w, f);
        }
        self.epoch = None;
        w.cwnd = w.mss;
        OnTimeout::Retransmit
    }
}
