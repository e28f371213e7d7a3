//! Requests from outside to what runs in a loop: to stop, or to read its configuration again.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Stops what runs with it: the first request lets open connections end for a moment, the second
/// does not wait for anything. It may also be asked to read its configuration again. Clones are the same
/// handle.
#[derive(Clone, Debug)]
pub struct Stop {
    stops: Requests,
    reloads: Requests,
}

/// Requests of one kind, each a byte.
#[derive(Clone, Debug)]
struct Requests(Arc<(UnixStream, UnixStream)>);

impl Requests {
    fn new() -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        read.set_nonblocking(true)?;
        write.set_nonblocking(true)?;
        Ok(Self(Arc::new((read, write))))
    }

    fn add(&self) {
        // It can only fail when many requests wait already.
        let _ = (&self.0.1).write(&[1]);
    }

    fn take(&self) -> usize {
        loop {
            match (&self.0.0).read(&mut [0; 16]) {
                // It is told of once.
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                taken => return taken.unwrap_or(0),
            }
        }
    }
}

impl Stop {
    /// A handle on which nothing was requested.
    ///
    /// # Errors
    ///
    /// No descriptors are left.
    pub fn new() -> io::Result<Self> {
        Ok(Self { stops: Requests::new()?, reloads: Requests::new()? })
    }

    /// Requests the stop; from any thread, and more than once.
    pub fn request(&self) {
        self.stops.add();
    }

    /// Requests that the configuration is read again; from any thread.
    pub fn request_reload(&self) {
        self.reloads.add();
    }

    /// Each byte written to this descriptor is a request to stop, so that a signal handler can make one.
    ///
    /// # Errors
    ///
    /// No descriptors are left.
    pub fn writer(&self) -> io::Result<UnixStream> {
        self.stops.0.1.try_clone()
    }

    /// The same for requests to read the configuration again.
    ///
    /// # Errors
    ///
    /// No descriptors are left.
    pub fn reload_writer(&self) -> io::Result<UnixStream> {
        self.reloads.0.1.try_clone()
    }

    /// Requests to stop since the last call.
    pub fn take(&self) -> usize {
        self.stops.take()
    }

    /// Whether it was requested since the last call that the configuration is read again.
    pub fn take_reload(&self) -> bool {
        self.reloads.take() > 0
    }

    /// Is readable when there are requests to read the configuration again.
    pub fn reloads(&self) -> BorrowedFd<'_> {
        self.reloads.0.0.as_fd()
    }
}

impl AsFd for Stop {
    /// Is readable when there are requests to stop.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stops.0.0.as_fd()
    }
}
