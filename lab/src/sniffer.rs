//! A thread that reads every frame of some interfaces.

use std::os::fd::AsFd;
use std::thread::{self, JoinHandle};

use lasthop_kernel::offload::HEADER_LENGTH;
use lasthop_kernel::packet_socket::PacketSocket;
use lasthop_kernel::stop::Stop;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvFlags, recv};

use crate::error::LabError;

const LONGEST: usize = 70_000;

/// Reads frames until it is dropped. It sleeps while there are none: a thread that wakes every
/// millisecond can keep the kernel's own threads off a busy processor for many seconds.
#[derive(Debug)]
pub(crate) struct Sniffer {
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Sniffer {
    /// Calls `note` with each frame, and with the place of its socket among `sockets`.
    pub(crate) fn start(
        name: &str,
        sockets: Vec<PacketSocket>,
        mut note: impl FnMut(usize, &[u8]) + Send + 'static,
    ) -> Result<Self, LabError> {
        let stop = Stop::new().map_err(|e| LabError::io("making a handle to stop a thread", e))?;
        let theirs = stop.clone();
        let read = move || {
            let mut frame = vec![0; LONGEST];
            while theirs.take() == 0 {
                for (i, socket) in sockets.iter().enumerate() {
                    while let Ok((n, _)) = recv(socket, &mut frame[..], RecvFlags::DONTWAIT) {
                        note(i, frame.get(HEADER_LENGTH..n).unwrap_or_default());
                    }
                }
                let sources = sockets.iter().map(AsFd::as_fd).chain([theirs.as_fd()]);
                let mut polled: Vec<PollFd<'_>> =
                    sources.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
                // Whatever else ends it is one more look.
                let _ = poll(&mut polled, None);
            }
        };
        let thread = thread::Builder::new()
            .name(name.into())
            .spawn(read)
            .map_err(|e| LabError::io("starting a thread", e))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Sniffer {
    fn drop(&mut self) {
        self.stop.request();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
