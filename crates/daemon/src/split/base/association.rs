//! A base's state of one association: its keys, its streams, and the connection on which it began.

use std::net::SocketAddr;

use lasthop_hop::seal::{PublicKey, ReplayWindow};
use lasthop_units::Time;

use crate::split::cipher::SharedKeys;
use crate::split::control::Control;
use crate::split::lost;
use crate::split::stream::Stream;
use crate::split::streams::{Removal, SplitTcp};

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
    /// The mobile has ended it.
    pub(super) lost: bool,
    pub(super) control: Option<Control>,
    pub(super) since: Time,
    pub(super) active: bool,
}

impl Association {
    /// Moves what can be moved on every dirty stream; streams that are removed go to `close`.
    pub(super) fn pump(&mut self, now: Time, mut close: impl FnMut(Stream, Removal)) {
        while let Some((stream, how)) = self.streams.next_removed() {
            close(stream, how);
        }
        self.streams.begin_round();
        while let Some(id) = self.streams.next_in_round() {
            self.request_connection(id);
            self.streams.pump(now, id);
        }
        if let Some(control) = &mut self.control {
            // A connection that is over is reported by its own event.
            let _ = control.flush();
        }
    }

    /// Requests a connection from the mobile for a stream of the base's own, once.
    fn request_connection(&mut self, id: u64) {
        let stream = self.streams.get_mut(id);
        let Some(stream) = stream.filter(|s| !s.started() && !s.requested) else { return };
        stream.requested = true;
        let requested =
            self.control.as_mut().is_some_and(|control| control.send(&id.to_be_bytes()));
        if !requested {
            stream.terminate(lost());
        }
    }
}
