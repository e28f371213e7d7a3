//! A run that somebody looks into.

use lasthop_scenario::{Outcome, RunError, Scenario};
use lasthop_sim::net::host::HostStats;
use lasthop_sim::net::{SharedObserver, TapPoint};
use lasthop_units::{Seed, Time};

use super::Simulator;
use super::network::Running;
use super::watch::Watch;

/// A run that somebody looked into.
#[derive(Clone, Debug)]
pub struct Observed {
    /// What it gave, but for rates over time.
    pub outcome: Outcome,
    /// What each host with its own TCP counted, by its name.
    pub hosts: Vec<(String, HostStats)>,
}

impl Simulator {
    /// Runs a scenario up to its latest end, and shows the observer every packet at the node of this name. Nothing is
    /// recorded.
    ///
    /// # Errors
    ///
    /// As [`Engine::run`](lasthop_scenario::Engine::run), or there is no such node.
    pub fn observed(
        &self,
        scenario: &Scenario,
        seed: Seed,
        node: &str,
        observer: SharedObserver,
    ) -> Result<Observed, RunError> {
        let mut running = Running::new(scenario, seed)?;
        running.plan(seed)?;
        let names = || scenario.nodes.iter().map(|node| &node.name);
        let Some(at) = names().position(|name| name == node) else {
            return Err(RunError::Failed(format!("there is no node `{node}`")));
        };
        running.tap(TapPoint::Node(running.nodes[at]), observer);
        let end = Time::ZERO + scenario.end.latest();
        running.run_until(end)?;
        let outcome = running.outcome(end, &Watch::new(scenario));
        let host = |(name, id): (&String, &_)| {
            Some((name.clone(), *running.network.node(*id).host()?.stats()))
        };
        let hosts = names().zip(&running.nodes).filter_map(host).collect();
        Ok(Observed { outcome, hosts })
    }
}
