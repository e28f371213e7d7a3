//! Names to addresses without stopping the loop: a few threads ask the system's resolver.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use lasthop_kernel::inbox::{Inbox, Outbox, inbox};
use lasthop_session::Refusal;

/// Threads that ask at most, started as they are needed; a name server that does not answer holds one for
/// several seconds.
const THREADS: usize = 64;
/// Questions of one client that are under way at once.
const EACH: usize = 4;
/// Questions of one client that may wait. A full queue refuses the client's next.
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

/// Questions of many clients, which have their turns one after another. A client has few under way, so
/// that the slow name servers of some hold up nobody else.
#[derive(Debug)]
struct Queue<C, T> {
    waiting: BTreeMap<C, VecDeque<Question<T>>>,
    /// Clients with questions that wait.
    turns: VecDeque<C>,
    /// How many questions of each are under way.
    busy: BTreeMap<C, usize>,
    /// Threads that there are, and that wait for a question.
    threads: usize,
    idle: usize,
    closed: bool,
}

impl<C: Copy + Ord, T> Queue<C, T> {
    fn new() -> Self {
        Self {
            waiting: BTreeMap::new(),
            turns: VecDeque::new(),
            busy: BTreeMap::new(),
            threads: 0,
            idle: 0,
            closed: false,
        }
    }

    /// Appends a question; whether there is room for it.
    fn push(&mut self, client: C, question: Question<T>) -> bool {
        let waiting = self.waiting.entry(client).or_default();
        if waiting.len() >= QUEUE_MAX {
            return false;
        }
        if waiting.is_empty() {
            self.turns.push_back(client);
        }
        waiting.push_back(question);
        true
    }

    /// The next question that may be asked. Those who may not have another have some under way, so that
    /// few are looked at in vain.
    fn take(&mut self) -> Option<(C, Question<T>)> {
        let may = |client: &C| self.busy.get(client).is_none_or(|busy| *busy < EACH);
        let place = self.turns.iter().position(may)?;
        let client = self.turns.remove(place)?;
        let waiting = self.waiting.get_mut(&client)?;
        let question = waiting.pop_front()?;
        if waiting.is_empty() {
            self.waiting.remove(&client);
        } else {
            self.turns.push_back(client);
        }
        *self.busy.entry(client).or_default() += 1;
        Some((client, question))
    }

    /// A question of this client was answered.
    fn finish(&mut self, client: C) {
        if let Some(busy) = self.busy.get_mut(&client) {
            *busy -= 1;
            if *busy == 0 {
                self.busy.remove(&client);
            }
        }
    }
}

#[derive(Debug)]
struct Shared<C, T> {
    queue: Mutex<Queue<C, T>>,
    ready: Condvar,
}

impl<C: Copy + Ord, T> Shared<C, T> {
    /// The next question, once the one before is `done`.
    fn next(&self, done: Option<C>) -> Option<(C, Question<T>)> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = done {
            queue.finish(client);
        }
        loop {
            if queue.closed {
                return None;
            }
            if let Some(taken) = queue.take() {
                return Some(taken);
            }
            queue.idle += 1;
            queue = self.ready.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
        }
    }
}

/// Asks the system's resolver on threads of its own. Its descriptor is readable when answers wait.
#[derive(Debug)]
pub(crate) struct Resolver<C, T> {
    shared: Arc<Shared<C, T>>,
    outbox: Outbox<Resolution<T>>,
    answers: Inbox<Resolution<T>>,
}

impl<C: Copy + Ord + Send + 'static, T: Send + 'static> Resolver<C, T> {
    /// A resolver whose threads begin with the questions.
    pub(crate) fn start() -> io::Result<Self> {
        let (outbox, answers) = inbox()?;
        let shared = Arc::new(Shared { queue: Mutex::new(Queue::new()), ready: Condvar::new() });
        Ok(Self { shared, outbox, answers })
    }

    /// Asks for the addresses of `name` on behalf of `client`; an IP address in text form needs no name
    /// server.
    ///
    /// # Errors
    ///
    /// Too many questions of the client wait already, or there is no thread to ask.
    pub(crate) fn request(&self, client: C, tag: T, name: &str, port: u16) -> io::Result<()> {
        let question = Question { tag, name: name.to_owned(), port };
        let mut queue = self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
        // One that cannot be started is missed only if there is none.
        if queue.idle == 0 && queue.threads < THREADS {
            match self.add_thread(queue.threads) {
                Ok(()) => queue.threads += 1,
                Err(e) if queue.threads == 0 => return Err(e),
                Err(_) => {}
            }
        }
        if !queue.push(client, question) {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, "too many names wait"));
        }
        drop(queue);
        self.shared.ready.notify_one();
        Ok(())
    }

    fn add_thread(&self, n: usize) -> io::Result<()> {
        let (shared, outbox) = (Arc::clone(&self.shared), self.outbox.clone());
        let thread = thread::Builder::new().name(format!("resolver-{n}"));
        thread.spawn(move || work(&shared, &outbox)).map(drop)
    }

    /// The next answer, if one is here.
    pub(crate) fn poll(&self) -> Option<Resolution<T>> {
        self.answers.poll()
    }

    /// Clears the wake-ups so far; call before [`poll`](Self::poll).
    pub(crate) fn drain(&self) {
        self.answers.drain();
    }
}

impl<C, T> AsFd for Resolver<C, T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.answers.as_fd()
    }
}

impl<C, T> Drop for Resolver<C, T> {
    fn drop(&mut self) {
        self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.shared.ready.notify_all();
    }
}

fn work<C: Copy + Ord, T>(shared: &Shared<C, T>, answers: &Outbox<Resolution<T>>) {
    let mut done = None;
    while let Some((client, Question { tag, name, port })) = shared.next(done) {
        done = Some(client);
        let addresses = resolve(&name, port);
        if !answers.send(Resolution { tag, addresses }) {
            return;
        }
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

    fn answer<T: Send + 'static>(resolver: &Resolver<u8, T>) -> Resolution<T> {
        let mut reactor = Reactor::new().unwrap();
        reactor.add(resolver, Interest::Read, ()).unwrap();
        let mut ready = Vec::new();
        loop {
            if let Some(answer) = resolver.poll() {
                return answer;
            }
            reactor.wait(Some(Duration::from_secs(30)), &mut ready).unwrap();
            assert!(!ready.is_empty(), "no answer came");
            resolver.drain();
        }
    }

    fn question(tag: usize) -> Question<usize> {
        Question { tag, name: String::new(), port: 0 }
    }

    fn take_all(queue: &mut Queue<char, usize>) -> Vec<(char, usize)> {
        std::iter::from_fn(|| queue.take()).map(|(client, q)| (client, q.tag)).collect()
    }

    /// SEC-18: whoever asks much has turns as the others do, and few of its questions under way.
    #[test]
    fn one_client_does_not_occupy_the_resolver() {
        let mut queue = Queue::new();
        for tag in 0..1000 {
            assert_eq!(queue.push('a', question(tag)), tag < QUEUE_MAX);
        }
        assert_eq!(take_all(&mut queue), [('a', 0), ('a', 1), ('a', 2), ('a', 3)]);
        // Those who ask later are asked for at once, and in turn.
        for (client, tag) in [('b', 1), ('b', 2), ('c', 3)] {
            assert!(queue.push(client, question(tag)));
        }
        assert_eq!(take_all(&mut queue), [('b', 1), ('c', 3), ('b', 2)]);
        queue.finish('b');
        assert!(queue.take().is_none());
        queue.finish('a');
        assert!(queue.push('c', question(4)));
        assert_eq!(take_all(&mut queue), [('a', 4), ('c', 4)]);
        for client in ['a', 'a', 'a', 'a', 'b', 'c', 'c'] {
            queue.finish(client);
        }
        assert!(queue.busy.is_empty());
    }

    /// SEC-18: a client's questions are answered while another's keep all threads that it may have.
    #[test]
    fn questions_behind_a_flood_are_answered() {
        let resolver = Resolver::start().unwrap();
        let flood = (0..QUEUE_MAX).take_while(|n| resolver.request(1, *n, "192.0.2.1", 80).is_ok());
        assert!(flood.count() > 200);
        resolver.request(2, usize::MAX, "192.0.2.2", 80).unwrap();
        while answer(&resolver).tag != usize::MAX {}
        assert!(resolver.shared.queue.lock().unwrap().threads <= THREADS);
    }

    #[test]
    fn an_address_in_text_form_resolves_to_itself() {
        let resolver = Resolver::start().unwrap();
        resolver.request(0, 7, "192.0.2.1", 80).unwrap();
        let a = answer(&resolver);
        assert_eq!((a.tag, a.addresses.unwrap()), (7, vec!["192.0.2.1:80".parse().unwrap()]));
    }

    #[test]
    fn a_name_that_cannot_exist_is_an_error() {
        let resolver = Resolver::start().unwrap();
        resolver.request(0, (), "no such name", 80).unwrap();
        assert!(answer(&resolver).addresses.is_err());
    }
}
