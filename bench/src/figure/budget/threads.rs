//! What threads pay the kernel for being there.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Instant;

use anyhow::{Result, anyhow};
use lasthop_units::Duration;
use rustix::time::{ClockId, clock_gettime};

/// How often something is done before the clock is looked at.
const ROUND: u32 = 1000;

/// CPU time of the calling thread so far.
pub(super) fn own_cpu() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

/// Nanoseconds of this thread's CPU that one call of `act` takes.
pub(super) fn nanos_of(span: Duration, mut act: impl FnMut()) -> f64 {
    let (began, before, mut times) = (Instant::now(), own_cpu(), 0u64);
    while began.elapsed() < span {
        (0..ROUND).for_each(|_| act());
        times += u64::from(ROUND);
    }
    (own_cpu() - before).as_nanos() as f64 / times as f64
}

/// The least that can be asked of the kernel.
pub(super) fn system_call(span: Duration) -> Result<f64> {
    Ok(nanos_of(span, || {
        std::hint::black_box(rustix::process::getppid());
    }))
}

/// One thread wakes another by a byte and sleeps until it is woken in turn: the CPU time of one for one wake-up and one
/// sleep.
pub(super) fn wake_up(span: Duration) -> Result<f64> {
    let (mut near, mut far) = UnixStream::pair()?;
    let thread =
        thread::spawn(
            move || {
                while far.read_exact(&mut [0]).is_ok() && far.write_all(&[0]).is_ok() {}
            },
        );
    let mut ended = Ok(());
    let nanos = nanos_of(span, || {
        if ended.is_ok() {
            ended = near.write_all(&[0]).and_then(|()| near.read_exact(&mut [0]));
        }
    });
    drop(near);
    thread.join().map_err(|_| anyhow!("a thread panicked"))?;
    Ok(ended.map(|()| nanos)?)
}
