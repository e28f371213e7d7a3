//! Waiting for what takes its time.

use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use lasthop_kernel::netns::Netns;

use crate::error::LabError;

/// How often it is looked.
const TICK: Duration = Duration::from_millis(20);

/// Looks again and again until there is something.
///
/// # Errors
///
/// [`LabError::TooLong`] names `what` when `patience` is over; and whatever looking ends with.
pub fn wait_for<T>(
    patience: Duration,
    what: impl Into<String>,
    mut look: impl FnMut() -> Result<Option<T>, LabError>,
) -> Result<T, LabError> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if Instant::now() >= deadline {
            return Err(LabError::TooLong(what.into()));
        }
        thread::sleep(TICK);
    }
}

/// Waits until `host` can connect to `at`, as long as `check` finds nothing wrong.
///
/// # Errors
///
/// As [`wait_for`].
pub fn wait_for_listener(
    host: &Netns,
    at: SocketAddr,
    patience: Duration,
    what: &str,
    mut check: impl FnMut() -> Result<(), LabError>,
) -> Result<(), LabError> {
    wait_for(patience, what, || {
        let listens = host.enter(|| TcpStream::connect(at).is_ok())?;
        check().map(|()| listens.then_some(()))
    })
}

/// Sleeps until `moment`, as long as `check` finds nothing wrong.
///
/// # Errors
///
/// What `check` found.
pub fn wait_until(
    moment: Instant,
    mut check: impl FnMut() -> Result<(), LabError>,
) -> Result<(), LabError> {
    loop {
        let left = moment.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        check()?;
        thread::sleep(left.min(TICK));
    }
}
