//! Names to addresses without stopping the loop: a few threads ask the system's resolver.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use lasthop_kernel::wake::Wake;
use lasthop_session::Refusal;

/// Threads that ask; a name server that does not answer holds one for several seconds.
const THREADS: usize = 4;
/// Questions that may wait. A full queue refuses the next.
const QUEUE_MAX: usize = 256;
/// Addresses taken from one answer.
const ADDRESSES_MAX: usize = 16;

/// A resolved name.
#[derive(Debug)]
pub(crate) struct Resolution<T> {
    /// What the query was for.
    pub(crate) tag: T,
    /// The addresses in the resolver's order of preference (RFC 6724), or why there are none.
    pub(crate) addresses: io::Result<Vec<SocketAddr>>,
}

#[derive(Debug)]
struct Question<T> {
    tag: T,
    name: String,
    port: u16,
}

#[derive(Debug)]
struct Queue<T> {
    waiting: VecDeque<Question<T>>,
    closed: bool,
}

#[derive(Debug)]
struct Shared<T> {
    queue: Mutex<Queue<T>>,
    ready: Condvar,
    wake: Wake,
}

impl<T> Shared<T> {
    fn next(&self) -> Option<Question<T>> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if queue.closed {
                return None;
            }
            if let Some(question) = queue.waiting.pop_front() {
                return Some(question);
            }
            queue = self.ready.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Asks the system's resolver on threads of its own. Its descriptor is readable when answers wait.
#[derive(Debug)]
pub(crate) struct Resolver<T> {
    shared: Arc<Shared<T>>,
    answers: Receiver<Resolution<T>>,
}

impl<T: Send + 'static> Resolver<T> {
    /// Starts the threads.
    pub(crate) fn start() -> io::Result<Self> {
        let wake = Wake::new()?;
        let queue = Mutex::new(Queue { waiting: VecDeque::new(), closed: false });
        let shared = Arc::new(Shared { queue, ready: Condvar::new(), wake });
        let (sender, answers) = mpsc::channel();
        for n in 0..THREADS {
            let (shared, sender) = (Arc::clone(&shared), sender.clone());
            thread::Builder::new()
                .name(format!("resolver-{n}"))
                .spawn(move || work(&shared, &sender))?;
        }
        Ok(Self { shared, answers })
    }

    /// Asks for the addresses of `name`; an IP address in text form needs no name server.
    ///
    /// # Errors
    ///
    /// Too many questions wait already.
    pub(crate) fn request(&self, tag: T, name: &str, port: u16) -> io::Result<()> {
        let mut queue = self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.waiting.len() >= QUEUE_MAX {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, "too many names wait"));
        }
        queue.waiting.push_back(Question { tag, name: name.to_owned(), port });
        drop(queue);
        self.shared.ready.notify_one();
        Ok(())
    }

    /// The next answer, if one is here.
    pub(crate) fn poll(&self) -> Option<Resolution<T>> {
        self.answers.try_recv().ok()
    }

    /// Clears the wake-ups so far; call before [`poll`](Self::poll).
    pub(crate) fn drain(&self) {
        self.shared.wake.drain();
    }
}

impl<T> AsFd for Resolver<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.wake.as_fd()
    }
}

impl<T> Drop for Resolver<T> {
    fn drop(&mut self) {
        self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.shared.ready.notify_all();
    }
}

fn work<T>(shared: &Shared<T>, answers: &Sender<Resolution<T>>) {
    while let Some(Question { tag, name, port }) = shared.next() {
        let addresses = resolve(&name, port);
        if answers.send(Resolution { tag, addresses }).is_err() {
            return;
        }
        shared.wake.ring();
    }
}

/// The refusal for a name that did not resolve.
pub(crate) fn refusal(error: &io::Error) -> Refusal {
    // The standard library keeps the resolver's verdict (getaddrinfo(3), gai_strerror(3)) in the
    // text only. These are EAI_AGAIN and EAI_FAIL of glibc and of musl.
    const LATER: [&str; 4] =
        ["Temporary failure", "Non-recoverable failure", "Try again", "Non-recoverable error"];
    let text = error.to_string();
    if LATER.iter().any(|said| text.contains(said)) {
        Refusal::ResolverFailed
    } else {
        Refusal::NameNotFound
    }
}

fn resolve(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for addr in (name, port).to_socket_addrs()? {
        if addresses.len() < ADDRESSES_MAX && !addresses.contains(&addr) {
            addresses.push(addr);
        }
    }
    if addresses.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lasthop_kernel::reactor::{Interest, Reactor};

    use super::*;

    fn answer<T: Send + 'static>(resolver: &Resolver<T>) -> Resolution<T> {
        let mut reactor = Reactor::new().unwrap();
        reactor.add(resolver, Interest::Read, ()).unwrap();
        let mut ready = Vec::new();
        loop {
            reactor.wait(Some(Duration::from_secs(30)), &mut ready).unwrap();
            assert!(!ready.is_empty(), "no answer came");
            resolver.drain();
            if let Some(answer) = resolver.poll() {
                return answer;
            }
        }
    }

    #[test]
    fn an_address_in_text_form_resolves_to_itself() {
        let resolver = Resolver::start().unwrap();
        resolver.request(7, "192.0.2.1", 80).unwrap();
        let a = answer(&resolver);
        assert_eq!((a.tag, a.addresses.unwrap()), (7, vec!["192.0.2.1:80".parse().unwrap()]));
    }

    #[test]
    fn a_name_that_cannot_exist_is_an_error() {
        let resolver = Resolver::start().unwrap();
        resolver.request((), "no such name", 80).unwrap();
        assert!(answer(&resolver).addresses.is_err());
    }
}
