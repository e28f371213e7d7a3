//! Linked increases: the windows of a multipath connection's subflows grow together (RFC 6356).

use super::{AckFacts, Reno, Repair, Response, Windows};

/// What a subflow's window grows by, of all subflows (RFC 6356 section 3).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Coupling {
    /// How aggressive all subflows are together: as one TCP would be on the best of their paths.
    pub alpha: f64,
    /// The congestion windows of all subflows, in bytes.
    pub total: u64,
}

impl Coupling {
    /// Of subflows with these congestion windows, in bytes, and round trips, in seconds (RFC 6356 section 3,
    /// equation 2); `None` without any.
    pub fn of(subflows: impl Iterator<Item = (u64, f64)>) -> Option<Self> {
        let (mut total, mut best, mut sum) = (0u64, 0.0f64, 0.0f64);
        for (cwnd, rtt) in subflows.filter(|(_, rtt)| *rtt > 0.0) {
            total = total.saturating_add(cwnd);
            best = best.max(cwnd as f64 / (rtt * rtt));
            sum += cwnd as f64 / rtt;
        }
        (sum > 0.0).then(|| Self { alpha: total as f64 * best / (sum * sum), total })
    }
}

/// The linked-increases algorithm: slow start and decrease as of any TCP with selective acknowledgements, and
/// in congestion avoidance no more than the lesser of a share of what one TCP would grow by and what this
/// subflow would alone. Without a coupling the latter.
#[derive(Clone, Copy, Default, Debug)]
pub struct Lia {
    pub(crate) coupling: Option<Coupling>,
    /// What was grown by and is less than a byte.
    fraction: f64,
}

impl Response for Lia {
    fn repair(&self) -> Repair {
        Repair::Sack
    }

    fn on_ack(&mut self, w: &mut Windows, f: &AckFacts) {
        if !f.limited {
            return;
        }
        if w.slow_start() {
            return w.increase_reno(f.acked);
        }
        let grown = (f.acked * w.mss) as f64;
        let alone = grown / w.cwnd.max(1) as f64;
        let linked = self.coupling.map(|all| all.alpha * grown / all.total.max(1) as f64);
        let step = alone.min(linked.unwrap_or(alone)) + self.fraction;
        let whole = step as u64;
        self.fraction = step - whole as f64;
        w.set_cwnd(w.cwnd + whole);
    }

    fn on_loss(&mut self, w: &mut Windows, f: &AckFacts) {
        Reno(Repair::Sack).on_loss(w, f);
    }

    fn on_recovered(&mut self, w: &mut Windows, f: &AckFacts) {
        Reno(Repair::Sack).on_recovered(w, f);
    }
}

#[cfg(test)]
mod tests {
    use lasthop_units::{Duration, Time};

    use super::*;
    use crate::response::LossBase;

    const MSS: u64 = 1000;

    fn grown(cwnd: u64, coupling: Option<Coupling>) -> u64 {
        let base = LossBase::Flight;
        let mut w = Windows { cwnd, ssthresh: 0, max: u64::MAX / 2, initial: MSS, mss: MSS, base };
        let mut lia = Lia { coupling, ..Lia::default() };
        // As many bytes as fill the window: one round trip.
        for _ in 0..cwnd / MSS {
            let facts = AckFacts {
                now: Time::ZERO,
                acked: MSS,
                flight: cwnd,
                window: cwnd,
                limited: true,
                srtt: Duration::from_millis(100),
                repeated: false,
            };
            lia.on_ack(&mut w, &facts);
        }
        w.cwnd - cwnd
    }

    /// RFC 6356 section 3: alone it is a TCP, two like paths grow as one TCP would, and one that is much slower
    /// than another takes next to nothing from it.
    #[test]
    fn subflows_grow_together_as_one_tcp() {
        let near = |found: u64, wanted: f64| (found as f64 / wanted - 1.0).abs() < 0.1;
        assert!(near(grown(20_000, None), 1000.0));
        let alone = Coupling::of([(20_000, 0.1)].into_iter());
        assert!(near(grown(20_000, alone), 1000.0), "{alone:?}");
        let alike = Coupling::of([(20_000, 0.1), (20_000, 0.1)].into_iter());
        assert!(near(2 * grown(20_000, alike), 500.0), "{alike:?}");
        // Per round trip of its own; the short one has ten while the long one has one.
        let unlike = Coupling::of([(20_000, 0.1), (20_000, 1.0)].into_iter());
        assert!(near(grown(20_000, unlike), 826.0), "{unlike:?}");
        assert_eq!(Coupling::of([(20_000, 0.0)].into_iter()), None);
    }
}
