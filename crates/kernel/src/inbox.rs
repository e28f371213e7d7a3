//! Messages from other threads, for a loop that waits for descriptors.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};

use crate::wake::Wake;

/// What was sent and not yet received, in order. Its descriptor is readable from the moment when something is sent
/// until it is [drained](Self::drain).
#[derive(Debug)]
pub struct Inbox<T> {
    receiver: Receiver<T>,
    shared: Arc<Shared>,
}

/// Sends to an [`Inbox`]; clones send to the same.
#[derive(Debug)]
pub struct Outbox<T> {
    sender: Sender<T>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    wake: Wake,
    waiting: AtomicUsize,
}

/// Both ends.
///
/// # Errors
///
/// No descriptors are left.
pub fn inbox<T>() -> io::Result<(Outbox<T>, Inbox<T>)> {
    let shared = Arc::new(Shared { wake: Wake::new()?, waiting: AtomicUsize::new(0) });
    let (sender, receiver) = mpsc::channel();
    Ok((Outbox { sender, shared: Arc::clone(&shared) }, Inbox { receiver, shared }))
}

impl<T> Inbox<T> {
    /// The next message, if there is one.
    pub fn poll(&self) -> Option<T> {
        let message = self.receiver.try_recv().ok()?;
        self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
        Some(message)
    }

    /// Forgets the wake-ups so far; call before [`poll`](Self::poll).
    pub fn drain(&self) {
        self.shared.wake.drain();
    }
}

impl<T> AsFd for Inbox<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.wake.as_fd()
    }
}

impl<T> Outbox<T> {
    /// Sends, and wakes who receives; whether there still is somebody.
    pub fn send(&self, message: T) -> bool {
        self.shared.waiting.fetch_add(1, Ordering::Relaxed);
        let sent = self.sender.send(message).is_ok();
        self.ring();
        sent
    }

    /// Wakes who receives, without a message.
    pub fn ring(&self) {
        self.shared.wake.ring();
    }

    /// How much was sent and is not received.
    pub fn waiting(&self) -> usize {
        self.shared.waiting.load(Ordering::Relaxed)
    }
}

impl<T> Clone for Outbox<T> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), shared: Arc::clone(&self.shared) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::reactor::{Interest, Reactor};

    #[test]
    fn what_threads_send_wakes_the_loop_and_is_all_there() {
        let (outbox, inbox) = inbox().unwrap();
        let mut reactor = Reactor::new().unwrap();
        reactor.add(&inbox, Interest::Read, ()).unwrap();
        let threads = [1, 2, 3].map(|n| {
            let outbox = outbox.clone();
            std::thread::spawn(move || (0..100).for_each(|m| assert!(outbox.send(100 * n + m))))
        });
        let (mut received, mut ready) = (Vec::new(), Vec::new());
        while received.len() < 300 {
            reactor.wait(Some(Duration::from_secs(60)), &mut ready).unwrap();
            assert!(!ready.is_empty(), "not woken with {}", received.len());
            inbox.drain();
            received.extend(std::iter::from_fn(|| inbox.poll()));
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        received.sort();
        assert!(received.into_iter().eq(100..400));
        assert_eq!(outbox.waiting(), 0);
        drop(inbox);
        assert!(!outbox.send(0));
    }
}
