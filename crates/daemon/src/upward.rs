//! How far a fixed host has what was written to its connection: so far the mobile need not keep it (ACK-10).

use std::os::fd::{AsFd, OwnedFd};

use lasthop_kernel::sockopt::{self, SocketState};
use lasthop_units::{Duration, Time};

/// How soon the kernel is asked again, from a wired path's usual round trip on; twice that each time that nothing has come.
const LOOK_FIRST: Duration = Duration::from_millis(10);
const LOOK_LAST: Duration = Duration::from_millis(640);

/// A connection that is over both ways is left to the kernel when the fixed host has acknowledged nothing for so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Which directions of a connection are over for its relay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    /// The mobile's end was passed on to the kernel.
    pub(crate) written: bool,
    /// The fixed host's was passed on to the mobile.
    pub(crate) read: bool,
}

/// What of one connection the kernel is known to have yet to hear of, and when to look again.
#[derive(Debug)]
pub(crate) struct Upward {
    waiting: u32,
    /// When that last became less, or more was written.
    changed: Time,
    pause: Duration,
    next: Option<Time>,
}

impl Upward {
    pub(crate) fn new(now: Time) -> Self {
        Self { waiting: 0, changed: now, pause: LOOK_FIRST, next: None }
    }

    /// The relay is to be looked at now, if it is due.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        self.next = self.next.filter(|at| now < *at);
    }

    /// When there may be more to know.
    pub(crate) fn next(&self) -> Option<Time> {
        self.next
    }

    /// How many of the bytes that were written the fixed host lacks, and whether it has their end.
    pub(crate) fn look(&mut self, now: Time, fd: &OwnedFd, ends: Ends) -> (u64, bool) {
        // The end counts as one byte.
        let waiting = sockopt::unacknowledged(fd.as_fd()).unwrap_or_default();
        if waiting != self.waiting {
            (self.waiting, self.changed, self.pause) = (waiting, now, LOOK_FIRST);
        }
        self.next = None;
        if waiting == 0 || (ends.written && ends.read && self.is_hopeless(now, fd)) {
            return (0, ends.written);
        }
        self.next = Some(now + self.pause);
        if self.changed < now {
            self.pause = (self.pause * 2).min(LOOK_LAST);
        }
        ((waiting - u32::from(ends.written)).into(), false)
    }

    /// The rest of a connection that is over both ways comes to nobody, or is the kernel's to bring.
    fn is_hopeless(&self, now: Time, fd: &OwnedFd) -> bool {
        let is_closed = |info: sockopt::Info| info.state == SocketState::Other(SocketState::CLOSED);
        now >= self.changed + PATIENCE || sockopt::info(fd.as_fd()).is_ok_and(is_closed)
    }
}
