use super::{AckFacts, Repair, Response, Windows};

/// Fast retransmit followed by slow start: 4.3BSD-Tahoe, without fast recovery.
#[derive(Clone, Copy, Default, Debug)]
pub struct Tahoe;

impl Response for Tahoe {
    fn repair(&self) -> Repair {
        Repair::GoBack
    }

    fn on_loss(&mut self, w: &mut Windows, f: &AckFacts) {
        w.halve(f);
        w.cwnd = w.mss;
    }

    fn on_recovered(&mut self, _w: &mut Windows, _f: &AckFacts) {}
}
