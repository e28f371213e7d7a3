//! Scheduling: a radio that waits for the processor makes packets late.
#![allow(unsafe_code)]

use std::io;

/// The lowest real-time priority is above everything that has none.
const PRIORITY: libc::c_int = 1;

/// Lets the calling thread run as soon as it is woken, before all ordinary threads. Children and
/// threads that it starts do not inherit that.
///
/// # Errors
///
/// This needs root or `CAP_SYS_NICE`.
pub fn prefer_this_thread() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: PRIORITY };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the kernel reads the structure; zero means the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
