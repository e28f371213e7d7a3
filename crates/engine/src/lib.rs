//! The simulator as an [`Engine`]: a scenario becomes a network, runs, and is measured.

mod addresses;
mod agents;
mod apps;
mod build;
pub mod counters;
mod course;
mod datagram_work;
mod datagrams;
mod edge;
pub mod emodel;
mod ends;
mod helped;
mod limits;
mod machine;
mod metrics;
mod mobility;
mod moves;
mod mtu;
mod network;
mod observed;
mod outcome;
mod record;
pub mod tcp;
mod transfer;
mod watch;
mod ways;

use lasthop_scenario::{End, Engine, Outcome, Outputs, RunError, Scenario};
use lasthop_units::{Duration, Seed, Time};

pub use observed::Observed;

use network::Running;
use record::Recording;
use watch::Watch;

/// How often a run looks whether it shall end.
const SLICE: Duration = Duration::from_secs(1);

/// Runs scenarios in the simulated running.
#[derive(Clone, Copy, Default, Debug)]
pub struct Simulator;

impl Engine for Simulator {
    fn check(&self, scenario: &Scenario) -> Result<(), RunError> {
        helped::helped(scenario).map(drop)
    }

    fn run(
        &self,
        scenario: &Scenario,
        seed: Seed,
        outputs: &Outputs<'_>,
    ) -> Result<Outcome, RunError> {
        self.check(scenario)?;
        let mut running = Running::new(scenario, seed)?;
        running.plan(seed)?;
        let mut watch = Watch::new(scenario);
        let mut recording = Recording::new(scenario, &mut running, outputs)?;
        let latest = Time::ZERO + scenario.end.latest();
        let (mut now, mut slice) = (Time::ZERO, Time::ZERO);
        while now < latest {
            if outputs.stopped() {
                return Err(RunError::Stopped);
            }
            slice = if slice <= now { now + SLICE } else { slice };
            now = latest.min(slice).min(recording.next()).min(watch.next());
            running.run_until(now)?;
            watch.sample(now, &running);
            recording.sample(now, &mut running);
            // Only at a slice's end, so that recording does not change when a run ends.
            if now == slice && matches!(scenario.end, End::Complete(_)) && running.over() {
                break;
            }
        }
        let outcome = running.outcome(now, &watch);
        recording.rates(now, &running, &watch, outputs)?;
        drop(running);
        recording.finish(outputs)?;
        Ok(outcome)
    }
}
