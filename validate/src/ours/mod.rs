//! The scenarios in our simulated network.

mod place;
mod topology;

use lasthop_radio::ConfigError;
use lasthop_sim::net::Halt;
use lasthop_tcp::Stats;
use lasthop_units::{Seed, Time};
use thiserror::Error;

use crate::run::Outcome;
use crate::scenario::Scenario;
use topology::Built;

/// A run that came to no end.
#[derive(Debug, Error)]
pub enum RunError {
    /// A link's parameters describe no link.
    #[error(transparent)]
    Link(#[from] ConfigError),
    /// The network gave up.
    #[error(transparent)]
    Halt(#[from] Halt),
}

/// Runs a scenario once. The same seed gives the same outcome.
///
/// # Errors
///
/// The scenario describes no network.
pub fn run(scenario: &Scenario, seed: u32) -> Result<Outcome, RunError> {
    let Built { mut network, sender } = topology::build(scenario, Seed::from_u64(u64::from(seed)))?;
    network.run_until(Time::ZERO + scenario.time)?;
    let stats = network.node(sender).flow().copied().unwrap_or_default();
    Ok(outcome(scenario, &stats))
}

fn outcome(scenario: &Scenario, stats: &Stats) -> Outcome {
    Outcome {
        bps: stats.bytes_acked as f64 * 8.0 / scenario.time.as_secs_f64(),
        acked: stats.bytes_acked / u64::from(scenario.flow.payload).max(1),
        timeouts: stats.timeouts,
        retransmits: stats.retransmits,
    }
}
