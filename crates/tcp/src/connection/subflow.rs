//! A connection as a subflow of a multipath connection.

use super::{Connection, Phase, Repairing};
use crate::response::Coupling;

impl Connection {
    /// A full segment that is written now leaves now.
    pub(crate) fn has_room(&self) -> bool {
        if !self.is_established() || self.fin || self.nxt < self.written || self.mobile.held {
            return false;
        }
        let mss = self.windows.mss;
        match self.phase {
            Phase::Recovery { repair: Repairing::Sack, .. } => {
                self.board.pipe() + mss <= self.windows.cwnd
            }
            _ => self.nxt + mss <= self.usable_edge(),
        }
    }

    /// Its timer has expired, and nothing has come since that shows that the path carries again.
    pub(crate) fn has_failed(&self) -> bool {
        self.phase == Phase::Loss
    }

    /// Something that was sent is not acknowledged.
    pub(crate) fn is_outstanding(&self) -> bool {
        self.una < self.max
    }

    /// The first offset in our stream that is not acknowledged.
    pub(crate) fn first_unacknowledged(&self) -> u64 {
        self.una.max(1) - 1
    }

    /// The congestion window, in bytes, without what a recovery adds to it.
    pub(crate) fn cwnd(&self) -> u64 {
        self.windows.cwnd
    }

    /// What the window grows by, of all subflows; nothing changes unless the response is linked.
    pub(crate) fn set_coupling(&mut self, coupling: Option<Coupling>) {
        self.control.set_coupling(coupling);
    }
}
