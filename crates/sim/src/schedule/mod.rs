//! Random schedules: faults of the radio, address changes, a hostile stranger, and applications
//! that open, write, dawdle, half-close and give up, all from one number; then the faults stop,
//! and everything must come to its end.
//!
//! ```
//! use lasthop_sim::naive::Naive;
//! use lasthop_sim::schedule;
//!
//! let report = schedule::run(&Naive::default(), 7).map_err(|failure| failure.to_string())?;
//! assert_eq!(report.hash, schedule::run(&Naive::default(), 7)?.hash);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod app;
mod check;
mod plan;
mod random;
mod run;
mod side;
mod simplify;

use core::any::Any;
use core::fmt;
use std::panic::{self, AssertUnwindSafe};

use lasthop_radio::RadioConfig;
use lasthop_units::Time;
use thiserror::Error;

pub use check::{Check, Violation};
pub use plan::{ConnectionPlan, Naming, SidePlan};
pub use side::Account;
pub use simplify::{Feature, simplify};

use crate::{Stranger, Transport};

/// All that happens to one pair of machines.
#[derive(Clone, PartialEq, Debug)]
pub struct Schedule {
    /// The number from which everything follows.
    pub seed: u64,
    /// How many mobiles share the radio.
    pub mobiles: usize,
    /// Bytes that the network puts before each datagram.
    pub overhead: u64,
    /// The radio until `calm_at`.
    pub faulty: RadioConfig,
    /// The radio from then on.
    pub calm: RadioConfig,
    /// When the faults stop and applications stop dawdling.
    pub calm_at: Time,
    /// Address changes of mobiles, in order of time.
    pub moves: Vec<Move>,
    /// Both ends are told when the radio falls silent and returns.
    pub link_events: bool,
    /// What a stranger does until `calm_at`.
    pub stranger: Stranger,
    /// What the applications do.
    pub connections: Vec<ConnectionPlan>,
}

/// A mobile's address changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move {
    /// When.
    pub at: Time,
    /// Which mobile's.
    pub mobile: usize,
}

/// What a run that kept every promise was like.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Report {
    /// The hash of all that happened.
    pub hash: u64,
    /// Datagrams sent.
    pub datagrams: u64,
    /// Application bytes that arrived and were checked.
    pub bytes: u64,
    /// Connections that came to their end.
    pub connections: u64,
    /// When the last of them did.
    pub end: Time,
    /// The most that one association said it buffered at one end.
    pub buffered_max: u64,
}

/// A run that broke a promise.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub struct Failure {
    /// The schedule's number.
    pub seed: u64,
    /// The transport's name.
    pub transport: &'static str,
    /// What was broken.
    pub violation: Violation,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seed, transport) = (self.seed, self.transport);
        writeln!(f, "{transport}, schedule {seed}: {}", self.violation)?;
        write!(
            f,
            "replay: LASTHOP_TRANSPORT={transport} LASTHOP_SEED={seed} \
             cargo test -p lasthop-sim replay -- --nocapture"
        )
    }
}

/// Runs the schedule number `seed` and checks every promise.
///
/// # Errors
///
/// The first promise that was broken; a panic of a machine is one.
pub fn run<T: Transport>(transport: &T, seed: u64) -> Result<Report, Failure> {
    attempt(transport, &Schedule::random(seed), false)
}

/// Runs `schedule` and checks every promise; `verbose` prints every datagram to standard error.
///
/// # Errors
///
/// The first promise that was broken; a panic of a machine is one.
pub fn attempt<T: Transport>(
    transport: &T,
    schedule: &Schedule,
    verbose: bool,
) -> Result<Report, Failure> {
    let (seed, transport_name) = (schedule.seed, T::NAME);
    let fail = |violation| Failure { seed, transport: transport_name, violation };
    let carried_out = || run::execute(transport, schedule, verbose);
    match panic::catch_unwind(AssertUnwindSafe(carried_out)) {
        Ok(result) => result.map_err(fail),
        // A panic in a machine is a broken promise like any other, and needs its seed as much.
        Err(cause) => {
            let found = format!("a machine panicked: {}", message(cause.as_ref()));
            Err(fail(Violation { check: Check::Sane, at: Time::ZERO, connection: None, found }))
        }
    }
}

fn message(cause: &(dyn Any + Send)) -> &str {
    let text = cause.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| cause.downcast_ref::<&str>().copied()).unwrap_or("no message")
}
