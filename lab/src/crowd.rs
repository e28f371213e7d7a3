//! Many connections of one mobile that move together.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::client::Stop;
use crate::error::LabError;
use crate::roam::{BASES, Config, Fleet, Roam, Settings};
use crate::traffic::{Flow, Servers, Traffic};

const TICK: Duration = Duration::from_millis(10);
/// Connections that are opened in one go: more would meet the limit of those that wait.
const BATCH: usize = 50;
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
    pub moves: usize,
    /// How long anything may take.
    pub patience: Duration,
}

/// What came of one move.
#[derive(Clone, Debug)]
pub struct Moved {
    /// Connections that went on.
    pub connections: usize,
    /// Those that did not, or brought something wrong, and why.
    pub broken: Vec<String>,
    /// From the moment at which the new radio was there until the last of them went on.
    pub took: Duration,
    /// Whether a reset or an opening crossed the server's wire.
    pub noticed: bool,
    /// What the processes said last.
    pub said: String,
}

/// Carries out `plan` with the `lasthop` command at `program`.
///
/// # Errors
///
/// The hosts could not be built, a process or a connection could not be started, or `stop` was set.
pub fn travel(plan: &Plan, program: &Path, stop: &Stop) -> Result<Vec<Moved>, LabError> {
    allow_descriptors();
    let mut roam = Roam::start(&plan.topology)?;
    let address = |port| roam.server_address(plan.settings.family, port);
    let seed = plan.topology.seed.child("content");
    let servers = Servers::start(&roam.server, address(80), address(81), seed)?;
    let mut fleet = Fleet::start(&roam, &plan.settings, program, plan.patience)?;
    let capture = roam.capture()?;
    let mut flows = Vec::new();
    let kinds = [Traffic::Download, Traffic::Upload].into_iter();
    let kinds: Vec<_> = kinds.chain(std::iter::repeat_n(Traffic::Idle, plan.connections)).collect();
    for batch in kinds.chunks(BATCH) {
        let now = Instant::now();
        for kind in batch {
            let name = format!("{kind}{}", flows.len());
            let flow = servers.flow(*kind, &name, &roam.mobile, fleet.via(), plan.patience)?;
            flows.push(flow);
        }
        let broken = wait(&mut flows, now, plan.patience, stop)?;
        if let Some(what) = broken.into_iter().next() {
            return Err(LabError::Answer { who: "a connection", what });
        }
    }
    capture.take();
    let mut moves = Vec::new();
    for number in 1..=plan.moves {
        roam.leave()?;
        thread::sleep(DEAD_ZONE);
        let arrived = roam.arrive(number % BASES + 1)?;
        let mut broken = wait(&mut flows, arrived, plan.patience, stop)?;
        fleet.check()?;
        let wrong =
            |flow: &mut Flow| (!flow.sha256_ok()).then(|| format!("{}: wrong bytes", flow.kind()));
        broken.extend(flows.iter_mut().filter_map(wrong));
        let waits = flows.iter().flat_map(|flow| flow.waits(arrived));
        let seen = capture.take();
        moves.push(Moved {
            connections: flows.iter().filter(|flow| flow.has_moved_since(arrived)).count(),
            took: waits.filter_map(|(_, wait)| wait).max().unwrap_or_default(),
            noticed: seen.any_reset() || !seen.openings.is_empty(),
            said: fleet.said(),
            broken,
        });
    }
    // All at once: each takes a moment to notice.
    flows.iter().for_each(Flow::stop);
    Ok(moves)
}

/// Waits until all have had something since `moment`, or broke; tells of those that did.
fn wait(
    flows: &mut [Flow],
    moment: Instant,
    patience: Duration,
    stop: &Stop,
) -> Result<Vec<String>, LabError> {
    let mut waiting: Vec<usize> = (0..flows.len()).collect();
    let deadline = Instant::now() + patience;
    loop {
        if stop.is_set() {
            return Err(LabError::Stopped);
        }
        waiting.retain(|i| {
            let flow = &mut flows[*i];
            flow.failure().is_none() && !flow.has_moved_since(moment)
        });
        if waiting.is_empty() || Instant::now() >= deadline {
            break;
        }
        thread::sleep(TICK);
    }
    let stuck = waiting.iter().map(|i| format!("{}: nothing moves any more", flows[*i].kind()));
    let stuck: Vec<String> = stuck.collect();
    Ok(flows.iter_mut().filter_map(Flow::failure).map(str::to_owned).chain(stuck).collect())
}

/// Both ends of all connections are this process's.
fn allow_descriptors() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Where it may not, it shows when they are opened.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}
