//! Whether connections divide their windows by priorities.

/// The priority of a connection of which nobody has said anything.
pub(super) const USUAL: u32 = 1;

/// Whether connections divide their windows, and what there is to divide anew.
#[derive(Debug, Default)]
pub(super) struct Division {
    /// Some connection was given a priority.
    pub(super) on: bool,
    /// Something has changed; the connection that it was, if it is there.
    pub(super) unsettled: Option<Option<u16>>,
}

impl Division {
    /// A connection begins, or one is over.
    pub(super) fn note(&mut self, cid: Option<u16>) {
        if self.on {
            self.unsettled = Some(cid);
        }
    }
}
