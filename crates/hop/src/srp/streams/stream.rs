//! One stream.

use super::recv::RecvHalf;
use super::send::SendHalf;
use super::turns::{TurnState, USUAL};

/// What a stream's buffers have.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Counted {
    pub(super) send: u64,
    pub(super) recv: u64,
    /// Ranges that arrived beyond a hole.
    pub(super) fragments: u64,
    /// Bytes that may come, or have, before the application takes any.
    pub(super) promised: u64,
}

/// Both halves of a stream and where it waits.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) send: SendHalf,
    pub(super) recv: RecvHalf,
    /// Reset from this side: no more events but `Closed`.
    pub(super) reset_locally: bool,
    /// Over both ways; the event waits to be polled.
    pub(super) closed: bool,
    /// What the peer acknowledges is reported.
    pub(super) reports: bool,
    /// It has acknowledged more, and that event waits to be polled.
    pub(super) reported: bool,
    pub(super) priority: u32,
    /// The name of the host that it is of; 0 if none was given.
    pub(super) client: u32,
    pub(super) turn_state: TurnState,
    /// What is counted of its buffers.
    pub(super) counted: Counted,
    /// It is among those whose receiving buffer is larger than it needs to be.
    pub(super) slack_listed: bool,
}

impl Stream {
    pub(super) fn new(send_limit: u64, span: u64, window: u64, window_max: u64) -> Self {
        Self {
            send: SendHalf::new(send_limit, span),
            recv: RecvHalf::new(window, window_max),
            reset_locally: false,
            closed: false,
            reports: false,
            reported: false,
            priority: USUAL,
            client: 0,
            turn_state: TurnState::new(),
            counted: Counted::default(),
            slack_listed: false,
        }
    }

    /// What its buffers have now.
    pub(super) fn count(&self) -> Counted {
        Counted {
            send: self.send.memory() as u64,
            recv: self.recv.memory() as u64,
            fragments: self.recv.fragments() as u64,
            promised: self.recv.promised(),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.send.is_done() && self.recv.is_done()
    }
}
