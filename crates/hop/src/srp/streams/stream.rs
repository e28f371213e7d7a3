//! One stream.

use super::recv::RecvHalf;
use super::send::SendHalf;
use super::turns::TurnState;

/// The priority of a stream that was given none.
const USUAL: u32 = 1;

/// Both halves of a stream and where it waits.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) send: SendHalf,
    pub(super) recv: RecvHalf,
    /// Reset from this side: no more events but `Closed`.
    pub(super) reset_locally: bool,
    /// Over both ways; the event waits to be polled.
    pub(super) closed: bool,
    pub(super) priority: u32,
    pub(super) turn_state: TurnState,
}

impl Stream {
    pub(super) fn new(send_limit: u64, span: u64, window: u64, window_max: u64) -> Self {
        Self {
            send: SendHalf::new(send_limit, span),
            recv: RecvHalf::new(window, window_max),
            reset_locally: false,
            closed: false,
            priority: USUAL,
            turn_state: TurnState::new(),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.send.is_done() && self.recv.is_done()
    }
}
