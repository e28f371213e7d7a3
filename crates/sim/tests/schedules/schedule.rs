//! Random schedules: faults of the radio, address changes, a hostile stranger, and applications
//! that open, write, dawdle, half-close and give up, all from one number; then the faults stop,
//! and everything must come to its end.

use core::any::Any;
use core::fmt;
use std::panic::{self, AssertUnwindSafe};

use lasthop_radio::RadioConfig;
use lasthop_testing::Replay;
use lasthop_units::Time;

use crate::check::{Check, Violation};
use crate::crossing::Stranger;
use crate::flaw::Flaw;
use crate::packets::PacketPlan;
use crate::plan::ConnectionPlan;
use crate::run::execute;

/// What there is beside connections.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    /// Nothing.
    Streams,
    /// Flows of packets.
    Packets,
    /// Flows of packets, and a second link of every mobile's.
    Bond,
}

/// A second link of every mobile's, by a radio of its own.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Beside {
    /// The radio until the schedule's `calm_at`.
    pub(crate) faulty: RadioConfig,
    /// The radio from then on.
    pub(crate) calm: RadioConfig,
    /// When mobiles have it.
    pub(crate) from: Time,
    /// Changes of mobiles' addresses by it.
    pub(crate) moves: Vec<Move>,
    /// When the two addresses of a mobile's change places.
    pub(crate) swaps: Vec<Move>,
    /// Mobiles are told when the radio falls silent and returns.
    pub(crate) link_events: bool,
    /// It passes less from some moment on.
    pub(crate) shrink: Option<Shrink>,
}

/// All that happens to one base and its mobiles.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Schedule {
    /// The number from which everything follows.
    pub(crate) seed: u64,
    /// How many mobiles share the radio.
    pub(crate) mobiles: usize,
    /// Headers are as long as IPv6's.
    pub(crate) ipv6: bool,
    /// The radio until `calm_at`.
    pub(crate) faulty: RadioConfig,
    /// The radio from then on.
    pub(crate) calm: RadioConfig,
    /// When the faults stop and applications stop dawdling.
    pub(crate) calm_at: Time,
    /// Address changes of mobiles, in order of time.
    pub(crate) moves: Vec<Move>,
    /// Mobiles are told when the radio falls silent and returns.
    pub(crate) link_events: bool,
    /// What a stranger does until `calm_at`.
    pub(crate) stranger: Stranger,
    /// What the applications do.
    pub(crate) connections: Vec<ConnectionPlan>,
    /// What there is beside connections.
    pub(crate) kind: Kind,
    /// What goes as packets, not as streams.
    pub(crate) packets: Vec<PacketPlan>,
    /// The radio passes less from some moment before `calm_at` on.
    pub(crate) shrink: Option<Shrink>,
    /// A second link.
    pub(crate) beside: Option<Beside>,
}

/// A path whose MTU gets smaller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shrink {
    /// When.
    pub(crate) at: Time,
    /// The longest IP packet that passes from then on, in bytes.
    pub(crate) mtu: u32,
}

/// A mobile's address changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Move {
    /// When.
    pub(crate) at: Time,
    /// Which mobile's.
    pub(crate) mobile: usize,
}

/// What a run that kept every promise was like.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Report {
    /// Stands for all that happened.
    pub(crate) hash: u64,
    /// Packets sent.
    pub(crate) packets: u64,
    /// Application bytes that arrived and were checked.
    pub(crate) bytes: u64,
    /// Packets that arrived and were checked.
    pub(crate) packets_received: u64,
    /// Connections that came to their end.
    pub(crate) connections: u64,
    /// When the last of them did.
    pub(crate) end: Time,
    /// The most that one association said it buffered at one end.
    pub(crate) buffered_max: u64,
}

/// A run that broke a promise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Failure {
    /// The schedule's number.
    pub(crate) seed: u64,
    /// Of which kind it is.
    pub(crate) kind: Kind,
    /// What was broken.
    pub(crate) violation: Violation,
}

impl Failure {
    /// The schedule that fails.
    pub(crate) fn schedule(&self) -> Schedule {
        Schedule::random(self.kind, self.seed)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let test = match self.kind {
            Kind::Streams => "replay_streams",
            Kind::Packets => "replay_packets",
            Kind::Bond => "replay_bond",
        };
        let rest = format!("-p lasthop-sim --test schedules {test}");
        let replay = Replay::new(self.seed, &rest).line();
        write!(f, "schedule {}: {}\nreplay: {replay}", self.seed, self.violation)
    }
}

/// Runs the schedule number `seed` of a kind and checks every promise: what it was like, or the first that was broken.
pub(crate) fn run(flaw: Flaw, kind: Kind, seed: u64) -> Result<Report, Failure> {
    attempt(flaw, &Schedule::random(kind, seed), false)
}

/// Runs `schedule` and checks every promise; `verbose` prints every packet to standard error.
pub(crate) fn attempt(flaw: Flaw, schedule: &Schedule, verbose: bool) -> Result<Report, Failure> {
    let Schedule { seed, kind, .. } = *schedule;
    let fail = |violation| Failure { seed, kind, violation };
    match panic::catch_unwind(AssertUnwindSafe(|| execute(flaw, schedule, verbose))) {
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
