//! Uploads that go on before the new base has reported what it expects.
//!
//! Acknowledgements of the previous base may still come over the new network. One of bytes that were
//! sent after the session was suspended shows how much of each connection that base has received, and
//! so what the new base will expect.

use lasthop_session::ConnId;

use super::{Core, MobileRole};
use crate::hop::Hop;

/// The hop to the base where the session was before.
#[derive(Clone, Copy, Debug)]
pub(super) struct PreviousHop {
    part: u32,
    /// Its count of received datagrams when it was last checked.
    received: u64,
}

impl PreviousHop {
    pub(super) fn new(part: u32) -> Self {
        Self { part, received: 0 }
    }
}

impl MobileRole {
    /// Sends on over the new hop from where the previous base's acknowledgements end.
    pub(super) fn send_early_uploads(&mut self, core: &mut Core) {
        let Some(previous) = &mut self.previous_hop else { return };
        let Some(received) = core.hop.get(previous.part).map(|hop| hop.received_count()) else {
            self.previous_hop = None;
            return;
        };
        if std::mem::replace(&mut previous.received, received) == received {
            return;
        }
        let waiting = core.peek(self.at).map(|session| session.waiting()).unwrap_or_default();
        if waiting.is_empty() {
            self.previous_hop = None;
            return;
        }
        let Some(streams) = core.hop.streams(previous.part) else { return };
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
