//! A wake-up from another thread, for a loop that waits for descriptors.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::EventfdFlags;
use rustix::io::retry_on_intr;

/// Is readable from [`ring`](Self::ring) until [`drain`](Self::drain).
#[derive(Debug)]
pub struct Wake(OwnedFd);

impl Wake {
    /// One that has not rung.
    ///
    /// # Errors
    ///
    /// No descriptors are left.
    pub fn new() -> io::Result<Self> {
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        Ok(Self(rustix::event::eventfd(0, flags)?))
    }

    /// Wakes the loop; from any thread.
    pub fn ring(&self) {
        // It can only fail when the counter is full, and then the loop is awake.
        let _ = retry_on_intr(|| rustix::io::write(&self.0, &1u64.to_ne_bytes()));
    }

    /// Forgets the wake-ups so far. What is looked at after it is not missed.
    pub fn drain(&self) {
        let _ = retry_on_intr(|| rustix::io::read(&self.0, &mut [0; 8]));
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::reactor::{Interest, Reactor};

    #[test]
    fn a_loop_is_woken_however_often_it_rang_and_then_sleeps() {
        let wake = Wake::new().unwrap();
        let mut reactor = Reactor::new().unwrap();
        reactor.add(&wake, Interest::Read, ()).unwrap();
        let mut ready = Vec::new();
        for rings in [1, 3] {
            (0..rings).for_each(|_| wake.ring());
            reactor.wait(Some(Duration::from_secs(60)), &mut ready).unwrap();
            assert_eq!(ready.len(), 1);
            wake.drain();
            reactor.wait(Some(Duration::ZERO), &mut ready).unwrap();
            assert!(ready.is_empty());
        }
    }
}
