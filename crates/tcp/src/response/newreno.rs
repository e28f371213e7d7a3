use super::{AckFacts, LossBase, Repair, Response, Windows};

/// Fast recovery that lasts until all that was out at its beginning is acknowledged (RFC 6582).
#[derive(Clone, Copy, Default, Debug)]
pub struct NewReno;

impl Response for NewReno {
    fn repair(&self) -> Repair {
        Repair::Partial
    }

    fn on_loss(&mut self, w: &mut Windows, f: &AckFacts) {
        w.enter_recovery(f);
    }

    /// min(ssthresh, max(flight, MSS) + MSS), which makes no burst (RFC 6582 section 3.2).
    fn on_recovered(&mut self, w: &mut Windows, f: &AckFacts) {
        w.leave_recovery(f);
        if w.base == LossBase::Flight {
            w.set_cwnd(w.cwnd.min(f.flight.max(w.mss) + w.mss));
        }
    }
}
