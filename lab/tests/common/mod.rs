//! What the lab's tests share.

#[allow(dead_code, reason = "not every test has agents")]
pub(crate) mod helped;
#[allow(dead_code, reason = "not every test writes configurations")]
pub(crate) mod pair;
#[allow(dead_code, reason = "not every test roams")]
pub(crate) mod scene;
#[allow(dead_code, reason = "not every test has packets")]
pub(crate) mod tun;

use std::path::PathBuf;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

use lasthop_lab::agent::path::{Path, Settings};
use lasthop_lab::roam::{Config, Roam};
use lasthop_lab::topology::{Lab, Topology};
use lasthop_lab::{LabError, lasthop_program};

/// What could be had, or none where the machine lets the test have no namespaces or interfaces.
#[allow(dead_code, reason = "not every test starts something of its own")]
pub(crate) fn permitted<T>(result: Result<T, LabError>) -> Option<T> {
    lasthop_testing::or_skip(result, LabError::is_permission)
}

/// Lets this thread run before all ordinary ones, as the links' threads do. It starts processes, and
/// while a process is copied for that (fork(2)) no thread of it can touch memory for the first time:
/// on a busy machine every link would stand still until this thread has a processor again.
#[allow(dead_code, reason = "not every test starts something of its own")]
pub(crate) fn prefer_this_thread() {
    let _ = lasthop_kernel::realtime::prefer_this_thread();
}

/// Held by a thread from its first roaming lab until it ends: there are no more of them at once than
/// processors. Each has seven emulated links that must be on time, and bases that give each other up
/// when they are not.
struct Turn;

static TURNS: Mutex<usize> = Mutex::new(0);
static FREED: Condvar = Condvar::new();

thread_local! {
    static TURN: Turn = Turn::wait();
}

impl Turn {
    fn wait() -> Self {
        let most = thread::available_parallelism().map_or(2, usize::from).max(2);
        let taken = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
        let free = FREED.wait_while(taken, |taken| *taken >= most);
        *free.unwrap_or_else(PoisonError::into_inner) += 1;
        Self
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *TURNS.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        FREED.notify_one();
    }
}

/// The command, or none where it was not built.
#[allow(dead_code, reason = "not every test runs it")]
pub(crate) fn program() -> Option<PathBuf> {
    let program = lasthop_program();
    if program.is_none() {
        lasthop_testing::skip("no lasthop beside this test (cargo build -p lasthop)");
    }
    program
}

/// A lab, or none where the test may not have one.
#[allow(dead_code, reason = "not every test has a still mobile")]
pub(crate) fn lab(topology: &Topology) -> Option<Lab> {
    prefer_this_thread();
    permitted(Lab::start(topology))
}

/// A roaming lab, or none where the test may not have one.
#[allow(dead_code, reason = "not every test roams")]
pub(crate) fn roam(config: &Config) -> Option<Roam> {
    prefer_this_thread();
    TURN.with(|_| ());
    permitted(Roam::start(config))
}

/// A path of bridges, or none where the test may not have one.
#[allow(dead_code, reason = "not every test has agents")]
pub(crate) fn path(settings: &Settings) -> Option<Path> {
    prefer_this_thread();
    permitted(Path::start(settings))
}
