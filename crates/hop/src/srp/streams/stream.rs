//! One stream.

use super::recv::RecvHalf;
use super::send::SendHalf;
use super::turns::{TurnState, USUAL};
use crate::streams::RecvState;

/// What is released by and by is told when it is so much more.
const RELEASE_STEP: u64 = 32 * 1024;

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
    /// The peer keeps what it has sent until it is released.
    pub(super) release: Option<Release>,
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
            release: None,
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
        self.send.is_done() && self.recv.is_done() && !self.owes_release()
    }

    /// The peer keeps the stream until it is told that its end is released.
    fn owes_release(&self) -> bool {
        let ended = self.recv.state() == RecvState::Finished && self.send.reset.is_none();
        ended && self.release.is_some_and(|release| !release.end_known)
    }
}

/// How far what the peer has sent is released (SRP-48), its end as one byte more.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Release {
    /// So far it may be.
    due: u64,
    /// So far the peer was told, if it was told that it is to keep anything.
    told: Option<u64>,
    /// With that the end was told.
    end: bool,
    /// The peer knows it.
    end_known: bool,
}

impl Release {
    /// The peer may let go of what comes before an offset, and of the end with it. Where it is to be told, what.
    pub(super) fn raise(&mut self, offset: u64, all: bool, end: bool) -> Option<u64> {
        self.due = self.due.max(offset);
        let ahead = self.told.map(|told| self.due - told);
        if ahead.is_some_and(|ahead| ahead < RELEASE_STEP && !(ahead > 0 && all)) {
            return None;
        }
        (self.told, self.end) = (Some(self.due), end);
        self.told
    }

    /// The peer knows what it was told.
    pub(super) fn on_acked(&mut self, offset: u64) {
        self.end_known |= self.end && self.is_latest(offset);
    }

    /// Nothing was told since that makes it moot.
    pub(super) fn is_latest(&self, offset: u64) -> bool {
        self.told == Some(offset)
    }
}
