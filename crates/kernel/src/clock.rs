//! The kernel's monotonic clock as the machines' [`Time`].

use std::time::{Instant, SystemTime};

use lasthop_units::Time;

/// Counts from the moment at which it was made.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock that reads zero at this moment.
    pub fn start() -> Self {
        Self { origin: Instant::now() }
    }

    /// The time since the clock was started.
    pub fn now(&self) -> Time {
        Time::ZERO + self.origin.elapsed()
    }
}

/// The wall clock, in nanoseconds since 1970; zero if it stands before that.
pub fn wall_nanos() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
}
