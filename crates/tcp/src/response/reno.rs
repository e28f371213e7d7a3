use super::{AckFacts, Repair, Response, Windows};

/// Fast retransmit and fast recovery, which the first new acknowledgement ends (RENO-3).
#[derive(Clone, Copy, Default, Debug)]
pub struct Reno;

impl Response for Reno {
    fn repair(&self) -> Repair {
        Repair::Once
    }

    fn on_loss(&mut self, w: &mut Windows, f: &AckFacts) {
        w.enter_recovery(f);
    }

    fn on_recovered(&mut self, w: &mut Windows, f: &AckFacts) {
        w.leave_recovery(f);
    }
}
