//! What paths cost, and what the peer has to be told of that.

use lasthop_wire::frame::{Frame, Writer};

use super::content::{Content, Contents};
use crate::path_id::{PATHS_MAX, PathId, PathSet};
use crate::policy::PathStatus;

/// The statuses of all paths that there may be: what is said of one may come before the path.
#[derive(Debug, Default)]
pub(super) struct Statuses {
    of: [PathStatus; PATHS_MAX],
    /// Those that the peer is to be told.
    due: PathSet,
}

impl Statuses {
    /// The same for an association that follows, whose peer knows none.
    pub(super) fn restarted(&self) -> Self {
        let all = (0..PATHS_MAX as u8).map(PathId);
        let mut due = PathSet::default();
        all.filter(|path| self.of(*path) != PathStatus::FREE).for_each(|path| due.insert(path));
        Self { of: self.of, due }
    }

    /// A path's.
    pub(super) fn of(&self, path: PathId) -> PathStatus {
        self.of.get(usize::from(path.0)).copied().unwrap_or_default()
    }

    /// A path has another status. False if it has that already, or there is no path of this name.
    pub(super) fn change(&mut self, path: PathId, status: PathStatus) -> bool {
        let of = self.of.get_mut(usize::from(path.0)).filter(|of| **of != status);
        of.map(|of| *of = status).is_some()
    }

    /// The peer is to be told a path's status, for the first time or again.
    pub(super) fn queue(&mut self, path: PathId) {
        self.due.insert(path);
    }

    /// The peer is to be told something.
    pub(super) fn are_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Writes what the peer is to be told, as far as there is room.
    pub(super) fn write(&mut self, w: &mut Writer<'_>, contents: &mut Contents) {
        for path in self.due.iter() {
            let PathStatus { cost, below } = self.of(path);
            let frame = Frame::PathStatus { path: path.0.into(), cost, below_bps: below.as_bps() };
            if !w.put(&frame) {
                return;
            }
            self.due.remove(path);
            contents.push(Content::PathStatus { path });
        }
    }
}
