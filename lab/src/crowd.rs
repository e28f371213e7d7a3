//! Many connections of one mobile that move together.

use std::path::Path;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::client::Stop;
use crate::error::LabError;
use crate::journey::{self, Crossing};
use crate::roam::{Config, Settings};
use crate::traffic::Traffic;

/// Longer than an idle connection is silent, so that each has something on its way when the mobile
/// arrives.
const DEAD_ZONE: Duration = Duration::from_millis(1500);

/// What is to move.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Hosts and links.
    pub topology: Config,
    /// Bases and mobile.
    pub settings: Settings,
    /// Idle connections, with a line on its way each, beside a download and an upload.
    pub connections: usize,
    /// How often they move.
    pub moves: u32,
    /// How long anything may take.
    pub patience: Duration,
}

/// Carries out `plan` with the `lasthop` command at `program`, until it is done or a connection is
/// broken.
///
/// # Errors
///
/// The hosts could not be built, a process or a connection could not be started, or `stop` was set.
pub fn travel(plan: &Plan, program: &Path, stop: &Stop) -> Result<Vec<Crossing>, LabError> {
    allow_descriptors();
    let idle = std::iter::repeat_n(Traffic::Idle, plan.connections);
    let plan = journey::Plan {
        topology: plan.topology.clone(),
        settings: plan.settings.clone(),
        traffic: [Traffic::Download, Traffic::Upload].into_iter().chain(idle).collect(),
        handoffs: plan.moves,
        dead_zone: DEAD_ZONE,
        stay: Duration::ZERO,
        warning: None,
        patience: plan.patience,
    };
    journey::travel(&plan, program, stop, &mut |_| {})
}

/// Both ends of all connections are this process's.
fn allow_descriptors() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Where it may not, it shows when they are opened.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}
