//! Uploads that go on before the new base has said what it expects.
//!
//! The base that was left may still be heard, over the new network. Its acknowledgement of whatever was
//! sent after the connections had left tells how much of each it had got, and with it what the new base
//! will expect.

use lasthop_session::ConnId;

use super::{Core, MobileRole};
use crate::hop::Hop;

/// The hop that the connections have left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left {
    part: u32,
    /// How much had come from its base when it was last looked at.
    heard: u64,
}

impl Left {
    pub(super) fn new(part: u32) -> Self {
        Self { part, heard: 0 }
    }
}

impl MobileRole {
    /// Carries on what the base before is known to have got, if that one was heard.
    pub(super) fn send_early(&mut self, core: &mut Core) {
        let Some(left) = &mut self.before else { return };
        let Some(heard) = core.hop.get(left.part).map(|hop| hop.heard()) else {
            self.before = None;
            return;
        };
        if std::mem::replace(&mut left.heard, heard) == heard {
            return;
        }
        let waiting = core.peek(self.at).map(|session| session.waiting()).unwrap_or_default();
        if waiting.is_empty() {
            self.before = None;
            return;
        }
        let Some(streams) = core.hop.streams(left.part) else { return };
        let arrived = waiting.into_iter().filter_map(|(id, at)| Some((id, streams.arrived(at)?)));
        let arrived: Vec<(ConnId, u64)> = arrived.collect();
        let now = core.now;
        if let Some((session, mut streams)) = core.session(self.at) {
            for (id, offset) in arrived {
                session.handle_arrived(now, &mut streams, id, offset);
            }
        }
    }
}
