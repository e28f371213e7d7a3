//! How two transfers at once share a radio while a user changes their priorities.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Instant;

use lasthop_control as control;
use lasthop_units::{Duration, Rate};

use crate::client::Client;
use crate::error::LabError;
use crate::folder::Folder;
use crate::http;
use crate::process;
use crate::scheme::{Carrier, Hop};
use crate::service::Server;
use crate::topology::{Family, Lab, Topology};
use crate::transfer::{Direction, ENDLESS, Transfer};
use crate::wait::wait_for;

/// How long connecting, and the wait for the first byte, may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long shares may take to come near their due.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Patience {
    /// A larger [`error`](Shared::error) is measured anew,
    pub error: f64,
    /// if no more than this has passed since the change.
    pub lasting: Duration,
}

/// How a change of priorities is measured.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Times {
    /// From the first bytes of both transfers to the first change.
    pub settle: Duration,
    /// From a change to the start of the part that is measured.
    pub follow: Duration,
    /// The part that is measured.
    pub measured: Duration,
    /// Whether and how long another part is measured if shares are not as they should be; the last
    /// one counts.
    pub patience: Option<Patience>,
}

impl Default for Times {
    /// Shares are to have followed after two seconds.
    fn default() -> Self {
        Self {
            settle: Duration::from_secs(3),
            follow: Duration::from_secs(2),
            measured: Duration::from_secs(4),
            patience: None,
        }
    }
}

/// What came of one pair of priorities.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Shared {
    /// The priorities; none: before any were said.
    pub priorities: Option<[u32; 2]>,
    /// What each transfer had.
    pub rates: [Rate; 2],
}

impl Shared {
    /// What both had.
    pub fn sum(&self) -> Rate {
        Rate::from_bps(self.rates.iter().map(|rate| rate.as_bps()).sum())
    }

    /// The first one's share.
    pub fn share(&self) -> f64 {
        self.rates[0].as_bps() as f64 / (self.sum().as_bps() as f64).max(1.0)
    }

    /// What the first one's share is to be.
    pub fn due(&self) -> f64 {
        let [first, second] = self.priorities.unwrap_or([1, 1]).map(f64::from);
        first / (first + second)
    }

    /// The larger of both transfers' relative deviations from their due.
    pub fn error(&self) -> f64 {
        let (share, due) = (self.share(), self.due());
        ((share - due) / due).abs().max(((share - due) / (1.0 - due)).abs())
    }
}

/// Two transfers at once, and what they have by each pair of priorities, which are set on `control` by
/// the command at `program`; true if every byte was right. The first row is of the time before
/// anything was said.
///
/// # Errors
///
/// A transfer broke, or the command failed.
pub(crate) fn measure(
    server: &Server,
    client: &Client,
    direction: Direction,
    control: &Path,
    program: &Path,
    steps: &[[u32; 2]],
    times: Times,
) -> Result<(Vec<Shared>, bool), LabError> {
    let start = || Transfer::start(server, client, direction, ENDLESS, PATIENCE);
    // One after the other, so that it is known which connection is whose.
    let first = start()?;
    let begun = keys(control, 1);
    let second = start()?;
    let flows = [&first, &second];
    let rows = begun.and_then(|_| keys(control, 2)).and_then(|keys| {
        watch(flows, steps, times, |step| {
            let mut pairs = keys.iter().zip(step);
            pairs.try_for_each(|(key, priority)| {
                set_priority(program, control, &key.to_string(), priority)
            })
        })
    });
    let [first, second] = [first, second].map(Transfer::stop);
    let right = first?.is_right & second?.is_right;
    Ok((rows?, right))
}

/// The numbers of a process's connections, the oldest first, once there are so many.
fn keys(control: &Path, count: usize) -> Result<Vec<u64>, LabError> {
    wait_for(PATIENCE, format!("{count} connections"), || {
        let report =
            control::query(control).map_err(|e| LabError::io("asking for connections", e))?;
        // One that asks for nothing only wanted to know whether the process listens.
        let asking = report.connections.iter().filter(|c| !c.target.is_empty());
        let mut keys: Vec<u64> = asking.map(|c| c.key).collect();
        keys.sort_unstable();
        Ok(Some(keys).filter(|keys| keys.len() >= count))
    })
}

/// Watches two transfers while `set` changes their priorities step by step.
fn watch(
    flows: [&Transfer; 2],
    steps: &[[u32; 2]],
    times: Times,
    mut set: impl FnMut([u32; 2]) -> Result<(), LabError>,
) -> Result<Vec<Shared>, LabError> {
    for flow in flows {
        flow.first_byte()?;
    }
    thread::sleep(times.settle);
    let mut rows = vec![measure_step(flows, None, times.measured)];
    for step in steps {
        set(*step)?;
        let changed = Instant::now();
        thread::sleep(times.follow);
        rows.push(loop {
            let row = measure_step(flows, Some(*step), times.measured);
            let anew = |p: Patience| row.error() >= p.error && changed.elapsed() < p.lasting;
            if !times.patience.is_some_and(anew) {
                break row;
            }
        });
    }
    Ok(rows)
}

fn measure_step(flows: [&Transfer; 2], priorities: Option<[u32; 2]>, span: Duration) -> Shared {
    let from = Instant::now();
    thread::sleep(span);
    let to = Instant::now();
    let rates = flows.map(|flow| Rate::of(flow.received().lock().between(from, to), to - from));
    Shared { priorities, rates }
}

/// Gives connections of the process behind `socket` priorities, by the command at `program`.
///
/// # Errors
///
/// The command cannot be run, or what it said.
pub fn set_priority(
    program: &Path,
    socket: &Path,
    of: &str,
    priority: u32,
) -> Result<(), LabError> {
    let mut command = Command::new(program);
    command.args(["priority", "set", of, &priority.to_string(), "--control"]).arg(socket);
    process::run(command).map(drop)
}

/// A lab with a hop and two endless transfers, whose priorities can be changed.
pub struct Scene {
    /// Where the mobile listens to commands.
    pub socket: PathBuf,
    program: PathBuf,
    /// How clients reach the mobile.
    pub carrier: Carrier,
    /// The server at the fixed host.
    pub server: Server,
    /// The lab.
    pub lab: Lab,
    _folder: Folder,
}

impl Scene {
    /// Starts base and mobile with `hop` between them, from the command at `program`.
    ///
    /// # Errors
    ///
    /// The lab could not be built, or base or mobile did not get ready.
    pub fn start(hop: &Hop, topology: &Topology, program: &Path) -> Result<Self, LabError> {
        let folder = Folder::new()?;
        let socket = folder.path("mobile.sock");
        let mut hop = hop.clone();
        hop.mobile.extend(["--control".to_owned(), socket.display().to_string()]);
        let lab = Lab::start(topology)?;
        let seed = topology.seed.child("content");
        let server = http::start(&lab.fixed, lab.server_address(Family::V4), seed)?;
        let carrier = Carrier::start_hop(&hop, &lab, Family::V4, program, PATIENCE)?;
        Ok(Self { socket, program: program.to_owned(), carrier, server, lab, _folder: folder })
    }

    /// Two transfers, and what they have by each pair of priorities; true if every byte was right.
    ///
    /// # Errors
    ///
    /// A transfer broke, or the command failed.
    pub fn run(
        &mut self,
        direction: Direction,
        steps: &[[u32; 2]],
        times: Times,
    ) -> Result<(Vec<Shared>, bool), LabError> {
        let client = Client::new(&self.lab.mobile, self.carrier.via(), self.server.address());
        let (server, control, program) = (&self.server, &self.socket, &self.program);
        let shared = measure(server, &client, direction, control, program, steps, times)?;
        self.carrier.check()?;
        Ok(shared)
    }
}
