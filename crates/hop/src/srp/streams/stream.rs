//! One stream.

use super::recv::RecvHalf;
use super::send::SendHalf;
use super::turns::Place;

/// The priority of a stream of which nobody has said anything.
const USUAL: u32 = 1;

/// Both halves of a stream and where it waits.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) send: SendHalf,
    pub(super) recv: RecvHalf,
    /// Given up from this side: no more events but `Closed`.
    pub(super) dropped: bool,
    /// Over both ways; waits for the session to hear of it.
    pub(super) retired: bool,
    pub(super) priority: u32,
    pub(super) place: Place,
}

impl Stream {
    pub(super) fn new(send_limit: u64, span: u64, window: u64, window_max: u64) -> Self {
        Self {
            send: SendHalf::new(send_limit, span),
            recv: RecvHalf::new(window, window_max),
            dropped: false,
            retired: false,
            priority: USUAL,
            place: Place::new(),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.send.is_done() && self.recv.is_done()
    }
}
