//! How far a fixed host has what was written to its connection: so far the mobile need not keep it (ACK-10).

use std::os::fd::{AsFd, OwnedFd};

use lasthop_kernel::sockopt::{self, SocketState};
use lasthop_units::{Duration, Time};

/// How soon the kernel is asked again, from a wired path's usual round trip on; twice that each time that nothing has come.
const LOOK_FIRST: Duration = Duration::from_millis(10);
const LOOK_LAST: Duration = Duration::from_millis(640);

/// A connection that is over both ways is left to the kernel when the fixed host has acknowledged nothing for so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// How far a connection's relay is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Relayed {
    /// Bytes that were passed on to the kernel.
    pub(crate) written: u64,
    /// The mobile's end was, too.
    pub(crate) written_end: bool,
    /// The fixed host's was passed on to the mobile.
    pub(crate) read_end: bool,
}

/// What of one connection the kernel is known to have yet to hear of, and when to look again.
#[derive(Debug)]
pub(crate) struct Upward {
    /// What was written when it was looked last.
    written: u64,
    waiting: u32,
    /// When that last became less, or more was written.
    changed: Time,
    pause: Duration,
    next: Option<Time>,
}

impl Upward {
    pub(crate) fn new(now: Time) -> Self {
        Self { written: 0, waiting: 0, changed: now, pause: LOOK_FIRST, next: None }
    }

    /// Whether there may be more to know now.
    pub(crate) fn handle_timeout(&mut self, now: Time) -> bool {
        self.next.take_if(|at| *at <= now).is_some()
    }

    /// When there may be more to know.
    pub(crate) fn next(&self) -> Option<Time> {
        self.next
    }

    /// How many of the bytes that were written the fixed host lacks, and whether it has their end; nothing where that is
    /// known. Of a connection that only brings bytes down the kernel is asked nothing.
    pub(crate) fn look(
        &mut self,
        now: Time,
        fd: &OwnedFd,
        relayed: Relayed,
    ) -> Option<(u64, bool)> {
        let Relayed { written, written_end, read_end } = relayed;
        if self.waiting == 0 && self.written == written && !written_end {
            return None;
        }
        self.written = written;
        // The end counts as one byte.
        let waiting = sockopt::unacknowledged(fd.as_fd()).unwrap_or_default();
        if waiting != self.waiting {
            (self.waiting, self.changed, self.pause) = (waiting, now, LOOK_FIRST);
        }
        self.next = None;
        if waiting == 0 || (written_end && read_end && self.is_hopeless(now, fd)) {
            return Some((0, written_end));
        }
        self.next = Some(now + self.pause);
        if self.changed < now {
            self.pause = (self.pause * 2).min(LOOK_LAST);
        }
        Some(((waiting - u32::from(written_end)).into(), false))
    }

    /// The rest of a connection that is over both ways comes to nobody, or is the kernel's to bring.
    fn is_hopeless(&self, now: Time, fd: &OwnedFd) -> bool {
        let is_closed = |info: sockopt::Info| info.state == SocketState::Other(SocketState::CLOSED);
        now >= self.changed + PATIENCE || sockopt::info(fd.as_fd()).is_ok_and(is_closed)
    }
}
