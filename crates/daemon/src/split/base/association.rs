//! What a base keeps of one association: its keys, its streams, and the connection on which it began.

use std::net::SocketAddr;

use lasthop_hop::seal::{PublicKey, ReplayWindow};
use lasthop_units::Time;

use crate::split::cipher::SharedKeys;
use crate::split::control::Control;
use crate::split::lost;
use crate::split::stream::Stream;
use crate::split::streams::{Departure, SplitTcp};

/// One association.
pub(super) struct Association {
    pub(super) peer: PublicKey,
    pub(super) address: SocketAddr,
    pub(super) keys: SharedKeys,
    /// Streams that were accepted.
    pub(super) seen: ReplayWindow,
    pub(super) streams: SplitTcp,
    /// Something sealed with the keys has opened, so the init was no replay.
    pub(super) confirmed: bool,
    pub(super) control: Option<Control>,
    pub(super) since: Time,
    pub(super) active: bool,
}

impl Association {
    /// Moves what can be moved on every stream where something may; what leaves is handed to `leave`.
    pub(super) fn pump(&mut self, now: Time, mut leave: impl FnMut(Stream, Departure)) {
        while let Some((stream, how)) = self.streams.next_leaving() {
            leave(stream, how);
        }
        self.streams.begin_round();
        while let Some(id) = self.streams.next_in_round() {
            self.call(id);
            self.streams.pump(now, id);
        }
        if let Some(control) = &mut self.control {
            // A connection that is over says so by its own event.
            let _ = control.flush();
        }
    }

    /// Asks the mobile for a connection for a stream of the base's own, once.
    fn call(&mut self, id: u64) {
        let stream = self.streams.get_mut(id);
        let Some(stream) = stream.filter(|s| !s.started() && !s.asked) else { return };
        stream.asked = true;
        let asked = self.control.as_mut().is_some_and(|control| control.send(&id.to_be_bytes()));
        if !asked {
            stream.break_off(lost());
        }
    }
}
