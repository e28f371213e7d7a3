use super::{AckFacts, Repair, Response, Windows};

/// Reno's window with recovery by selective acknowledgements: cwnd = ssthresh all through, and the
/// scoreboard's pipe says what may be sent (RFC 6675 section 5).
#[derive(Clone, Copy, Default, Debug)]
pub struct Sack;

impl Response for Sack {
    fn repair(&self) -> Repair {
        Repair::Sack
    }

    fn on_loss(&mut self, w: &mut Windows, f: &AckFacts) {
        w.enter_recovery(f);
    }

    fn on_recovered(&mut self, w: &mut Windows, f: &AckFacts) {
        w.leave_recovery(f);
    }
}
