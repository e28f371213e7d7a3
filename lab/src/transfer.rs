//! Transfers on threads of their own, watched from outside.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lasthop_control::choice;
use lasthop_units::Seed;

use crate::arrivals::{Received, Watched};
use crate::client::{Client, Stop};
use crate::error::LabError;
use crate::service::Server;
use crate::wait::{wait_for, wait_until};

/// More bytes than any measurement moves.
pub const ENDLESS: u64 = 1 << 40;
/// A thread of a transfer needs no more.
const STACK: usize = 256 << 10;

choice! {
    /// Which way the data goes.
    #[derive(Default)]
    pub enum Direction: "no direction" {
        /// From the fixed host to the mobile.
        #[default]
        Download = "download",
        /// From the mobile to the fixed host.
        Upload = "upload",
    }
}

impl Direction {
    /// The direction on the radio in which the data crosses it.
    pub fn on_radio(self) -> lasthop_radio::Direction {
        match self {
            Self::Download => lasthop_radio::Direction::Down,
            Self::Upload => lasthop_radio::Direction::Up,
        }
    }
}

/// Work on a thread of its own. It is told to stop, and waited for, when this is dropped.
#[derive(Debug)]
pub(crate) struct Task {
    stop: Stop,
    thread: Option<JoinHandle<Result<(), LabError>>>,
}

impl Task {
    /// Begins it; it ends soon after it is told to stop.
    pub(crate) fn start(
        name: &str,
        run: impl FnOnce(&Stop) -> Result<(), LabError> + Send + 'static,
    ) -> Result<Self, LabError> {
        let stop = Stop::default();
        let told = stop.clone();
        let thread = thread::Builder::new().name(name.to_owned()).stack_size(STACK);
        let thread = thread.spawn(move || run(&told));
        let thread = thread.map_err(|e| LabError::io("starting a thread", e))?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Tells it to stop, without waiting for that.
    pub(crate) fn stop(&self) {
        self.stop.set();
    }

    /// Whether it has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for its end, and for what it ended with; the first time only.
    pub(crate) fn join(&mut self) -> Result<(), LabError> {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Ok(()),
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.stop();
        // Why it ended concerns nobody any more.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A transfer on its way between a server and a client. It is stopped when this is dropped.
#[derive(Debug)]
pub struct Transfer {
    received: Watched,
    seed: Seed,
    patience: Duration,
    task: Task,
}

/// A transfer that has ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// What arrived when.
    pub received: Received,
    /// Whether what arrived is, by SHA-256, what was sent.
    pub is_right: bool,
}

impl Ended {
    /// This was received of the content of `seed`.
    pub(crate) fn new(received: Received, seed: Seed) -> Self {
        Self { is_right: received.is_prefix_of(seed), received }
    }
}

impl Transfer {
    /// Moves the first `bytes` bytes of the server's content on a connection of their own, which is
    /// to stand within `patience`, as the first of them is to come.
    ///
    /// # Errors
    ///
    /// No thread can be had.
    pub fn start(
        server: &Server,
        client: &Client,
        direction: Direction,
        bytes: u64,
        patience: Duration,
    ) -> Result<Self, LabError> {
        static NAMES: AtomicU64 = AtomicU64::new(0);
        let name = NAMES.fetch_add(1, Ordering::Relaxed).to_string();
        let (client, seed) = (client.clone(), server.seed());
        let (received, task) = match direction {
            Direction::Download => {
                let received = Watched::default();
                let into = received.clone();
                let run = move |stop: &Stop| client.download(bytes, &into, stop, patience);
                (received, Task::start("download", run))
            }
            Direction::Upload => {
                let received = server.arrivals(&name);
                let run = move |stop: &Stop| client.upload(&name, bytes, seed, stop, patience);
                (received, Task::start("upload", run))
            }
        };
        Ok(Self { received, seed, patience, task: task? })
    }

    /// A transfer that a thread of its own runs until it is stopped, and notes what arrives of the content of `seed`.
    ///
    /// # Errors
    ///
    /// No thread can be had.
    pub(crate) fn by(
        seed: Seed,
        patience: Duration,
        run: impl FnOnce(&Watched, &Stop) -> Result<(), LabError> + Send + 'static,
    ) -> Result<Self, LabError> {
        let received = Watched::default();
        let into = received.clone();
        let task = Task::start("transfer", move |stop: &Stop| run(&into, stop))?;
        Ok(Self { received, seed, patience, task })
    }

    /// What has arrived.
    pub fn received(&self) -> &Watched {
        &self.received
    }

    /// Waits for the first byte.
    ///
    /// # Errors
    ///
    /// The transfer is over before, or it takes too long.
    pub fn first_byte(&self) -> Result<Instant, LabError> {
        self.first_byte_while(|| Ok(()))
    }

    /// The same as long as `check` finds nothing wrong.
    pub(crate) fn first_byte_while(
        &self,
        mut check: impl FnMut() -> Result<(), LabError>,
    ) -> Result<Instant, LabError> {
        wait_for(self.patience, "the first byte", || match self.received.lock().first() {
            Some(first) => Ok(Some(first)),
            None => self.check().and_then(|()| check()).map(|()| None),
        })
    }

    /// Waits until `moment`.
    ///
    /// # Errors
    ///
    /// The transfer is over before.
    pub fn until(&self, moment: Instant) -> Result<(), LabError> {
        self.until_while(moment, || Ok(()))
    }

    /// The same as long as `check` finds nothing wrong.
    pub(crate) fn until_while(
        &self,
        moment: Instant,
        mut check: impl FnMut() -> Result<(), LabError>,
    ) -> Result<(), LabError> {
        wait_until(moment, || self.check().and_then(|()| check()))
    }

    /// Whether it still runs.
    pub(crate) fn check(&self) -> Result<(), LabError> {
        if self.task.is_over() { Err(LabError::Early) } else { Ok(()) }
    }

    /// Waits for it to be whole, and checks every byte.
    ///
    /// # Errors
    ///
    /// It broke.
    pub fn finish(mut self) -> Result<Ended, LabError> {
        self.task.join()?;
        let received = self.received.lock().clone();
        Ok(Ended::new(received, self.seed))
    }

    /// Stops it, and checks every byte.
    ///
    /// # Errors
    ///
    /// It broke.
    pub fn stop(self) -> Result<Ended, LabError> {
        self.task.stop();
        self.finish()
    }

    /// As [`stop`](Self::stop). `measured` is what became of the measurement.
    ///
    /// # Errors
    ///
    /// It broke, which says more than that the measurement did.
    pub fn end<T, E: From<LabError>>(self, measured: Result<T, E>) -> Result<(T, Ended), E> {
        let ended = self.stop()?;
        Ok((measured?, ended))
    }
}
