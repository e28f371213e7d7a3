use super::{AckFacts, LossBase, Repair, Response, Windows};

/// Reno's window (RENO-3), and those that differ from it by how they repair: 4.3BSD-Tahoe, which goes
/// back and begins again with slow start; NewReno (RFC 6582); and recovery by selective
/// acknowledgements, where cwnd = ssthresh all through and the scoreboard's pipe says what may be sent
/// (RFC 6675 section 5).
#[derive(Clone, Copy, Debug)]
pub struct Reno(pub Repair);

impl Response for Reno {
    fn repair(&self) -> Repair {
        self.0
    }

    fn on_loss(&mut self, w: &mut Windows, f: &AckFacts) {
        if self.0 == Repair::GoBack {
            w.halve(f);
            w.cwnd = w.mss;
        } else {
            w.enter_recovery(f);
        }
    }

    /// NewReno: min(ssthresh, max(flight, MSS) + MSS), which makes no burst (RFC 6582 section 3.2).
    fn on_recovered(&mut self, w: &mut Windows, f: &AckFacts) {
        if self.0 != Repair::GoBack {
            w.leave_recovery(f);
        }
        if self.0 == Repair::Partial && w.base == LossBase::Flight {
            w.set_cwnd(w.cwnd.min(f.flight.max(w.mss) + w.mss));
        }
    }
}
