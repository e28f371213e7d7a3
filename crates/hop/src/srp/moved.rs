//! Taking streams out, to go on over another hop.

use super::Srp;
use super::stream::Stream;
use crate::streams::{Movable, RecvState, StreamId, StreamState};

impl Stream {
    fn can_move(&self) -> bool {
        let given_up = self.dropped || self.send.reset.is_some();
        !given_up && !self.retired && !matches!(self.recv.state(), RecvState::Reset(_))
    }
}

impl Movable for Srp {
    /// SRP-13: the state in sequence moves; what was received beyond a hole is sent anew.
    fn detach(&mut self, id: StreamId) -> Option<StreamState> {
        self.streams.get(&id.0).filter(|stream| stream.can_move())?;
        let stream = self.streams.remove(&id.0)?;
        if self.is_local(id.0) {
            self.local_open -= 1;
        }
        self.send_buffered -= stream.send.buffered();
        self.credit.consumed += stream.recv.unconsumed();
        self.renew_credit(false);
        let (send_start, send) = stream.send.kept();
        let (received, unread) = stream.recv.in_order();
        Some(StreamState {
            send_start,
            send,
            send_ended: !stream.send.is_open(),
            received,
            unread,
            recv_ended: stream.recv.ends_at(received),
        })
    }
}
