//! Whether connections divide their windows by priorities.

/// The priority of a connection that was given none.
pub(super) const USUAL: u32 = 1;

/// Whether connections divide their windows, and what there is to divide anew.
#[derive(Debug, Default)]
pub(super) struct Division {
    /// Some connection was given a priority.
    pub(super) on: bool,
    /// Something has changed; the connection that it was, if it is there.
    pub(super) stale: Option<Option<u16>>,
}

impl Division {
    /// Shares are to be divided anew: a connection begins or is over, or its priority has changed.
    pub(super) fn invalidate(&mut self, cid: Option<u16>) {
        if self.on {
            self.stale = Some(cid);
        }
    }
}
