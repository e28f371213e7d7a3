//! A request to stop for what runs in a loop.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Stops what runs with it: the first request lets open connections end for a moment, the second
/// does not wait for anything. Clones are the same handle.
#[derive(Clone, Debug)]
pub struct Stop {
    pair: Arc<(UnixStream, UnixStream)>,
}

impl Stop {
    /// A handle on which nothing was requested.
    ///
    /// # Errors
    ///
    /// No descriptors are left.
    pub fn new() -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        read.set_nonblocking(true)?;
        write.set_nonblocking(true)?;
        Ok(Self { pair: Arc::new((read, write)) })
    }

    /// Requests the stop; from any thread, and more than once.
    pub fn request(&self) {
        // It can only fail when many requests wait already.
        let _ = (&self.pair.1).write(&[1]);
    }

    /// Each byte written to this descriptor is a request, so that a signal handler can make one.
    ///
    /// # Errors
    ///
    /// No descriptors are left.
    pub fn writer(&self) -> io::Result<UnixStream> {
        self.pair.1.try_clone()
    }

    /// Requests since the last call.
    pub fn take(&self) -> usize {
        (&self.pair.0).read(&mut [0; 16]).unwrap_or(0)
    }
}

impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pair.0.as_fd()
    }
}
