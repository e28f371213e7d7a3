//! Wall time, CPU time, and one core to stay on.

use std::time::{Duration, Instant};

use rustix::thread::CpuSet;
use rustix::time::{ClockId, clock_gettime};

/// Whose CPU time counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Whose {
    /// The calling thread's.
    Thread,
    /// All of the process's threads'.
    Process,
}

/// What a piece of work took.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Took {
    /// Nanoseconds that passed.
    pub(crate) wall: f64,
    /// Nanoseconds of CPU time, in the program and in the kernel for it.
    pub(crate) cpu: f64,
}

fn cpu(whose: Whose) -> Duration {
    let time = clock_gettime(match whose {
        Whose::Thread => ClockId::ThreadCPUTime,
        Whose::Process => ClockId::ProcessCPUTime,
    });
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Does some work and says what it took.
pub(crate) fn time<T>(whose: Whose, work: impl FnOnce() -> T) -> (Took, T) {
    let (before, start) = (cpu(whose), Instant::now());
    let result = work();
    let wall = start.elapsed();
    let used = cpu(whose).saturating_sub(before);
    (Took { wall: wall.as_nanos() as f64, cpu: used.as_nanos() as f64 }, result)
}

/// Keeps the calling thread, and those that it starts, on the core that it is on; whether that
/// worked.
pub(crate) fn pin() -> bool {
    let mut set = CpuSet::new();
    set.set(rustix::thread::sched_getcpu());
    rustix::thread::sched_setaffinity(None, &set).is_ok()
}
