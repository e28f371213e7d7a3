//! What tells congestion from other losses, at the sending half: echoes of congestion marks (RFC 3168,
//! CC-6) and loss notifications (SNP-10).

use lasthop_units::Time;
use lasthop_wire::tcp::{Flags, Segment};

use super::{Connection, Signs};
use crate::response::Response;

impl Connection {
    /// Both sides agreed on congestion notification (RFC 3168 section 6.1.1). A connection that was
    /// [restored](Self::restore) goes on without: nobody tells what was agreed.
    pub fn ecn(&self) -> bool {
        self.ecn.on
    }

    /// The segment echoes a congestion mark.
    pub(super) fn echoes(&self, seg: &Segment) -> bool {
        self.ecn.on && seg.flags.contains(Flags::ECE) && !seg.flags.contains(Flags::SYN)
    }

    /// An acknowledgement up to `una` echoes a mark: the window is cut, but once in a window of data
    /// (RFC 3168 section 6.1.2). A window of one segment stays: the timer that the RFC would have
    /// spread such segments with is not built.
    pub(super) fn on_echo(&mut self, now: Time, una: u64) {
        if self.ecn.is_answered(una) {
            return;
        }
        let facts = self.facts(now, 0, self.una);
        let before = self.windows.cwnd;
        self.control.on_echo(&mut self.windows, &facts);
        self.windows.set_cwnd(self.windows.cwnd.min(before));
        self.ecn.on_cut(self.max);
        self.stats.echo_cuts += 1;
    }

    /// Notes what a duplicate acknowledgement says of the loss.
    pub(super) fn note_signs(&mut self, seg: &Segment) {
        if self.dupacks == 0 {
            self.signs = Signs { spared: self.signs.spared, ..Signs::default() };
        }
        self.signs.echo |= self.echoes(seg);
        self.signs.eln |= seg.options.eln;
    }

    /// The loss that duplicates tell of is to be repaired without giving up window: it is the
    /// radio's (CC-6, SNP-10), or an echo made us give it up in this window of data already.
    pub(super) fn spares_loss(&self) -> bool {
        let coherent = self.config.coherence.is_some() && self.ecn.on && !self.signs.echo;
        let notified = self.config.eln && self.signs.eln;
        // What a helper scheme takes for lost no duplicate has reported.
        let told = self.dupacks > 0 && (coherent || notified);
        told || self.ecn.was_cut_for(self.una)
    }
}
