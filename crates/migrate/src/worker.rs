//! What is asked of the helper, by a thread of its own.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lasthop_kernel::inbox::{Inbox, Outbox, inbox};
use lasthop_kernel::wake::Wake;
use rustix::event::{PollFd, PollFlags, Timespec};

use super::Admin;
use super::error::MigrateError;

/// How soon a helper that has gone is looked for again, and how much later each time at most.
const SOON: Duration = Duration::from_millis(200);
const LATE: Duration = Duration::from_secs(1);

type Job<D> = Box<dyn FnOnce(&mut Admin) -> Option<D> + Send>;

enum Message<D> {
    /// What is to be done, and who is told what it gives.
    Job(Job<D>, Outbox<D>),
    End,
}

/// Asks the helper one thing after the other on a thread of its own, so that who wants something of it
/// never waits. A helper that has gone is found again, and both is logged once. The descriptor is
/// readable when something is [done](Self::poll), and when the helper has gone or come back.
#[derive(Debug)]
pub struct Worker<D> {
    handle: Handle<D>,
    done: Inbox<D>,
    /// Only the first of those that share it has it.
    thread: Option<JoinHandle<()>>,
}

/// The way to a [`Worker`]: what it does for one handle and for another is in the order in which it was
/// asked.
pub struct Handle<D> {
    messages: Sender<Message<D>>,
    answers: Outbox<D>,
    shared: Arc<Shared<D>>,
}

struct Shared<D> {
    /// The helper is away.
    gone: AtomicBool,
    /// Jobs that are not begun.
    waiting: AtomicUsize,
    /// Wakes the thread.
    asked: Wake,
    /// All that are told that the helper has gone or come back.
    told: Mutex<Vec<Outbox<D>>>,
}

impl<D> Clone for Handle<D> {
    fn clone(&self) -> Self {
        Self {
            messages: self.messages.clone(),
            answers: self.answers.clone(),
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<D> fmt::Debug for Handle<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("gone", &self.shared.gone).finish_non_exhaustive()
    }
}

impl<D: Send + 'static> Worker<D> {
    /// Starts the thread, which has `admin` to itself from here on.
    ///
    /// # Errors
    ///
    /// The kernel has no descriptor or thread left.
    pub fn start(admin: Admin) -> Result<Self, MigrateError> {
        let fail = MigrateError::kernel("start a thread for the helper");
        let shared = Arc::new(Shared {
            gone: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            asked: Wake::new().map_err(fail)?,
            told: Mutex::new(Vec::new()),
        });
        let (messages, asked) = mpsc::channel();
        let (answers, done) = inbox().map_err(fail)?;
        let handle = Handle { messages, answers, shared };
        let theirs = handle.be_told();
        let work = move || work(admin, &asked, &theirs);
        let thread = thread::Builder::new().name("helper".into()).spawn(work).map_err(fail)?;
        Ok(Self { handle, done, thread: Some(thread) })
    }

    /// Another way to the same thread, for another loop, which is told what was done for it. It does nothing any more
    /// once this one is dropped.
    ///
    /// # Errors
    ///
    /// The kernel has no descriptor left.
    pub fn beside(&self) -> Result<Self, MigrateError> {
        let doing = "wait for the helper";
        let (answers, done) = inbox().map_err(MigrateError::kernel(doing))?;
        let handle = Handle { answers, ..self.handle.clone() };
        handle.be_told();
        Ok(Self { handle, done, thread: None })
    }

    /// The way to it.
    pub fn handle(&self) -> &Handle<D> {
        &self.handle
    }

    /// What is done next, if something is.
    pub fn poll(&self) -> Option<D> {
        self.done.poll()
    }

    /// Forgets the wake-ups so far; call before [`poll`](Self::poll).
    pub fn drain(&self) {
        self.done.drain();
    }
}

impl<D: Send + 'static> Handle<D> {
    /// Its loop is told that the helper has gone or come back.
    fn be_told(&self) -> Arc<Shared<D>> {
        let mut told = self.shared.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.push(self.answers.clone());
        Arc::clone(&self.shared)
    }

    /// Has something done, after all that was asked before. What it gives is [told](Worker::poll).
    pub fn submit(&self, job: impl FnOnce(&mut Admin) -> Option<D> + Send + 'static) {
        self.shared.waiting.fetch_add(1, Ordering::Relaxed);
        // One that has ended does nothing more.
        let _ = self.messages.send(Message::Job(Box::new(job), self.answers.clone()));
        self.shared.asked.ring();
    }

    /// Has something done that takes long and needs no helper, by a thread of its own called `name`. What it gives is
    /// [told](Worker::poll).
    ///
    /// # Errors
    ///
    /// The kernel has no thread left.
    pub fn run_beside(
        &self,
        name: &str,
        job: impl FnOnce() -> D + Send + 'static,
    ) -> io::Result<()> {
        let answers = self.answers.clone();
        let work = move || answers.send(job());
        thread::Builder::new().name(name.into()).spawn(work).map(drop)
    }

    /// Has something done and waits for it: for a start, when nothing else is to be done yet.
    ///
    /// # Errors
    ///
    /// What `job` fails with; or the worker has ended.
    pub fn wait_for<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Admin) -> Result<T, MigrateError> + Send + 'static,
    ) -> Result<T, MigrateError> {
        let (answer, answered) = mpsc::sync_channel(1);
        self.submit(move |admin| {
            let _ = answer.send(job(admin));
            None
        });
        let ended = || MigrateError::Gone {
            doing: "do anything",
            source: io::ErrorKind::BrokenPipe.into(),
        };
        answered.recv().unwrap_or_else(|_| Err(ended()))
    }

    /// Whether the helper has gone, as far as is known.
    pub fn is_gone(&self) -> bool {
        self.shared.gone.load(Ordering::Acquire)
    }

    /// How much waits to be done.
    pub fn waiting(&self) -> usize {
        self.shared.waiting.load(Ordering::Relaxed)
    }
}

impl<D> AsFd for Worker<D> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.done.as_fd()
    }
}

/// What was asked before is done, and the helper told goodbye.
impl<D> Drop for Worker<D> {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        let _ = self.handle.messages.send(Message::End);
        self.handle.shared.asked.ring();
        let _ = thread.join();
    }
}

fn work<D>(mut admin: Admin, asked: &Receiver<Message<D>>, shared: &Shared<D>) {
    let mut away = None;
    loop {
        match asked.try_recv() {
            Ok(Message::Job(job, answers)) => {
                shared.waiting.fetch_sub(1, Ordering::Relaxed);
                if let Some(done) = job(&mut admin) {
                    answers.send(done);
                }
            }
            Ok(Message::End) | Err(TryRecvError::Disconnected) => return,
            Err(TryRecvError::Empty) => wait(shared, &mut admin, away.as_ref()),
        }
        if let Some(gone) = maintain(&mut admin, &mut away) {
            shared.gone.store(gone, Ordering::Release);
            let told = shared.told.lock().unwrap_or_else(PoisonError::into_inner);
            told.iter().for_each(Outbox::ring);
        }
    }
}

/// A helper that has gone.
struct Away {
    /// When it is looked for again.
    next: Instant,
    pause: Duration,
    /// The last error that was logged for one that is there and fails.
    said: Option<String>,
}

/// Waits until something is asked, the helper has gone, or one that has is looked for again.
fn wait<D>(shared: &Shared<D>, admin: &mut Admin, away: Option<&Away>) {
    let timeout = away.map(|away| away.next.saturating_duration_since(Instant::now()));
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    let mut polled = vec![PollFd::new(&shared.asked, PollFlags::IN)];
    if away.is_none() {
        polled.push(PollFd::new(&*admin, PollFlags::IN));
    }
    // Whatever else ends it is one more look.
    let _ = rustix::event::poll(&mut polled, timeout.as_ref());
    shared.asked.drain();
    if away.is_none() {
        admin.check_helper();
    }
}

/// Reconnects to a helper that has gone: whether it is gone, where that has changed. Loss and return are logged once
/// each.
fn maintain(admin: &mut Admin, away: &mut Option<Away>) -> Option<bool> {
    let Some(lost) = away else {
        if admin.is_gone() {
            tracing::warn!(
                "the helper is gone: until it is back connections leave from this base's own \
                 address, and those that move wait for it"
            );
            *away = Some(Away { next: Instant::now(), pause: SOON, said: None });
            return Some(true);
        }
        return None;
    };
    if Instant::now() < lost.next {
        return None;
    }
    match admin.recover() {
        Ok(()) => {
            tracing::info!("the helper is back: connections leave from their mobiles' addresses");
            *away = None;
            Some(false)
        }
        Err(error) => {
            let error = Some(error).filter(|e| !e.is_gone()).map(|e| e.to_string());
            if let Some(error) = error.filter(|error| lost.said.as_ref() != Some(error)) {
                tracing::warn!(error, "helper failed");
                lost.said = Some(error);
            }
            lost.next = Instant::now() + lost.pause;
            lost.pause = (lost.pause * 2).min(LATE);
            None
        }
    }
}
