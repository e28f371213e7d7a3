//! Accepting connections: a share of those that wait in a turn, and again after a pause where the kernel has no
//! descriptor or memory for more.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use lasthop_units::Time;
use rustix::io::Errno;
use rustix::net::SocketFlags;

use crate::log_limit::LogLimit;
use crate::tcp::UNKNOWN;

/// Connections in a turn: a flood of them must not starve those that stand.
const SHARE: usize = 64;
/// How long nobody is accepted after that could not be done.
const PAUSE: Duration = Duration::from_millis(100);

/// What accepting brought.
#[derive(Debug)]
pub enum Accepted<T> {
    /// A connection.
    Connection(T),
    /// Nobody waits.
    Empty,
    /// It cannot be done at the moment: no descriptor or memory is left, or it is not permitted.
    Exhausted(io::Error),
}

impl<T> Accepted<T> {
    /// The same, with what `take` makes of a connection.
    pub fn map<U>(self, take: impl FnOnce(T) -> U) -> Accepted<U> {
        match self {
            Self::Connection(connection) => Accepted::Connection(take(connection)),
            Self::Empty => Accepted::Empty,
            Self::Exhausted(error) => Accepted::Exhausted(error),
        }
    }
}

/// Accepts one connection: its socket, which does not block, and its peer.
pub fn accept(listener: &OwnedFd) -> Accepted<(OwnedFd, SocketAddr)> {
    loop {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        match rustix::net::acceptfrom_with(listener, flags) {
            Ok((fd, peer)) => {
                let peer = peer.and_then(|a| SocketAddr::try_from(a).ok());
                return Accepted::Connection((fd, peer.unwrap_or(UNKNOWN)));
            }
            Err(Errno::AGAIN | Errno::INVAL | Errno::BADF | Errno::NOTSOCK | Errno::OPNOTSUPP) => {
                return Accepted::Empty;
            }
            Err(Errno::INTR) => {}
            // Errors of one connection that died in the queue (accept(2)); each takes its entry with it, so
            // the loop ends.
            Err(
                Errno::CONNABORTED
                | Errno::NETDOWN
                | Errno::PROTO
                | Errno::NOPROTOOPT
                | Errno::HOSTDOWN
                | Errno::NONET
                | Errno::HOSTUNREACH
                | Errno::NETUNREACH,
            ) => {}
            Err(e) => return Accepted::Exhausted(e.into()),
        }
    }
}

/// Accepts one connection after another by `one`, as many as may be in a turn. Returns how the last ended.
pub fn share(one: impl FnMut() -> Accepted<()>) -> Accepted<()> {
    let ended = |accepted: &Accepted<()>| !matches!(accepted, Accepted::Connection(()));
    std::iter::repeat_with(one).take(SHARE).find(ended).unwrap_or(Accepted::Connection(()))
}

/// When listening sockets are accepted from again.
#[derive(Default, Debug)]
pub struct Pauses {
    logged: LogLimit,
}

impl Pauses {
    /// When to go on after a [`share`] that ended with `last`; `None`: once the socket is ready again.
    pub fn next(&mut self, now: Time, last: Accepted<()>) -> Option<Time> {
        match last {
            Accepted::Connection(()) => Some(now),
            Accepted::Empty => None,
            Accepted::Exhausted(error) => {
                if let Some(unlogged) = self.logged.count(now) {
                    tracing::warn!(%error, unlogged, "accept failed: tried again every 100 ms");
                }
                Some(now + PAUSE)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_ends_with_the_turn_or_with_what_waits() {
        let mut waiting = 100;
        let mut one = || {
            if waiting == 0 {
                return Accepted::Empty;
            }
            waiting -= 1;
            Accepted::Connection(())
        };
        let (now, mut pauses) = (Time::ZERO, Pauses::default());
        assert_eq!(pauses.next(now, share(&mut one)), Some(now));
        assert_eq!(pauses.next(now, share(&mut one)), None);
        assert_eq!(waiting, 0);
    }

    #[test]
    fn who_cannot_be_accepted_waits() {
        let last = share(|| Accepted::Exhausted(io::ErrorKind::OutOfMemory.into()));
        assert_eq!(Pauses::default().next(Time::ZERO, last), Some(Time::ZERO + PAUSE));
    }
}
