//! Which cores the processes of the path have.

use anyhow::Result;
use rustix::thread::{CpuSet, Pid, sched_setaffinity};

/// The core of the process that forwards, and those of who sends and who receives.
pub(super) const FORWARDS: usize = 1;
pub(super) const SENDS: usize = 0;
pub(super) const RECEIVES: usize = 2;

/// Has a thread or process run on this core alone; on any where there are fewer.
pub(super) fn pin(who: Option<Pid>, core: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(existing(core));
    Ok(sched_setaffinity(who, &set)?)
}

/// The core of this number, or another where there are fewer.
pub(super) fn existing(core: usize) -> usize {
    core % std::thread::available_parallelism().map_or(1, usize::from)
}
