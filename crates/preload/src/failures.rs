//! What became of a non-blocking connection through the mobile, for programs that look at their
//! socket only afterwards: `poll`, then `getsockopt(SO_ERROR)`.
//!
//! A socket is known by its cookie, which the kernel gives to no other one: a descriptor can be
//! duplicated, inherited and reused. A table of fixed size means no allocation and no lock. Where
//! two sockets meet in one slot the later one has it, and the other is told what the kernel has left
//! on it.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::sockopt;

const SLOTS: usize = 1024;
/// An `errno` has twelve bits; the rest of a slot is the cookie's.
const ERRNO_BITS: u32 = 12;

/// Errors that `SO_ERROR` is still to return, by socket.
pub(crate) struct Failures {
    slots: [AtomicU64; SLOTS],
    /// Nothing was ever recorded: no lookup is needed.
    idle: AtomicBool,
}

/// The one table of this process.
pub(crate) static FAILURES: Failures = Failures::new();

impl Failures {
    const fn new() -> Self {
        Failures { slots: [const { AtomicU64::new(0) }; SLOTS], idle: AtomicBool::new(true) }
    }

    /// Records `errno` as the error of `socket`, for the next who asks.
    pub(crate) fn record(&self, socket: BorrowedFd<'_>, errno: Errno) {
        let Ok(cookie) = sockopt::socket_cookie(socket) else { return };
        self.idle.store(false, Ordering::Release);
        let entry = cookie << ERRNO_BITS | u64::from(errno.raw_os_error().cast_unsigned());
        self.slot(cookie).store(entry, Ordering::Release);
    }

    /// Takes the error of `socket` out, if there is one.
    pub(crate) fn take(&self, socket: BorrowedFd<'_>) -> Option<Errno> {
        if self.idle.load(Ordering::Acquire) {
            return None;
        }
        let cookie = sockopt::socket_cookie(socket).ok()?;
        let slot = self.slot(cookie);
        let entry = slot.load(Ordering::Acquire);
        let errno = (entry & ((1 << ERRNO_BITS) - 1)) as i32;
        let is_ours = entry != 0 && entry >> ERRNO_BITS == cookie << ERRNO_BITS >> ERRNO_BITS;
        let taken =
            is_ours && slot.compare_exchange(entry, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        taken.then(|| Errno::from_raw_os_error(errno))
    }

    fn slot(&self, cookie: u64) -> &AtomicU64 {
        // The remainder is less than the length.
        &self.slots[(cookie % SLOTS as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_failure_is_reported_once_and_to_its_own_socket_only() {
        let table = Failures::new();
        let [one, other] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        assert_eq!(table.take(one.as_fd()), None);
        table.record(one.as_fd(), Errno::TIMEDOUT);
        assert_eq!(table.take(other.as_fd()), None);
        let duplicate = one.try_clone().unwrap();
        assert_eq!(table.take(duplicate.as_fd()), Some(Errno::TIMEDOUT));
        assert_eq!(table.take(one.as_fd()), None);
    }

    #[test]
    fn the_later_failure_of_a_socket_is_reported() {
        let table = Failures::new();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        table.record(socket.as_fd(), Errno::TIMEDOUT);
        table.record(socket.as_fd(), Errno::CONNREFUSED);
        assert_eq!(table.take(socket.as_fd()), Some(Errno::CONNREFUSED));
    }
}
