//! How two transfers at once share a radio while a user changes their priorities.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Instant;

use lasthop_control as control;
use lasthop_units::{Duration, Rate, Seed};

use crate::arrivals::Watched;
use crate::cell::Direction;
use crate::client::{Client, Stop};
use crate::error::LabError;
use crate::folder::Folder;
use crate::http::Server;
use crate::scheme::{Carrier, Hop};
use crate::topology::{Family, Lab, Topology};

/// More than any measurement moves.
const ENDLESS: u64 = 1 << 40;
const TICK: Duration = Duration::from_millis(20);
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

/// Watches two transfers while `set` changes their priorities step by step. The first row is of the
/// time before anything was said.
///
/// # Errors
///
/// No byte comes, or `set` fails.
pub fn watch(
    flows: [&Watched; 2],
    steps: &[[u32; 2]],
    times: Times,
    mut set: impl FnMut([u32; 2]) -> Result<(), LabError>,
) -> Result<Vec<Shared>, LabError> {
    let deadline = Instant::now() + PATIENCE;
    while flows.iter().any(|flow| flow.lock().first().is_none()) {
        if Instant::now() >= deadline {
            return Err(LabError::TooLong("the first byte".into()));
        }
        thread::sleep(TICK);
    }
    thread::sleep(times.settle);
    let mut rows = vec![measure_step(flows, None, times.measured)];
    for step in steps {
        set(*step)?;
        let changed = Instant::now();
        thread::sleep(times.follow);
        let anew = |row: &Shared| {
            let patience = |p: Patience| row.error() >= p.error && changed.elapsed() < p.lasting;
            times.patience.is_some_and(patience)
        };
        let mut row = measure_step(flows, Some(*step), times.measured);
        while anew(&row) {
            row = measure_step(flows, Some(*step), times.measured);
        }
        rows.push(row);
    }
    Ok(rows)
}

fn measure_step(flows: [&Watched; 2], priorities: Option<[u32; 2]>, span: Duration) -> Shared {
    let from = Instant::now();
    thread::sleep(span);
    let to = Instant::now();
    let rates = flows.map(|flow| Rate::of(flow.lock().between(from, to), to - from));
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
    let output = command.output().map_err(|e| LabError::io("running lasthop priority", e))?;
    if output.status.success() {
        return Ok(());
    }
    Err(LabError::Ended {
        command: "lasthop priority set".to_owned(),
        status: output.status.to_string(),
        message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

/// A lab with a hop and two endless transfers, whose priorities can be changed.
pub struct Scene {
    /// Where the mobile listens to commands.
    pub socket: PathBuf,
    program: PathBuf,
    carrier: Carrier,
    server: Server,
    lab: Lab,
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
        let server = Server::start(&lab.fixed, lab.server_address(Family::V4), seed)?;
        let carrier = Carrier::start_hop(&hop, &lab, Family::V4, program, PATIENCE)?;
        Ok(Self { socket, program: program.to_owned(), carrier, server, lab, _folder: folder })
    }

    /// The lab.
    pub fn lab(&self) -> &Lab {
        &self.lab
    }

    /// The server at the fixed host.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// How clients reach the mobile.
    pub fn carrier(&mut self) -> &mut Carrier {
        &mut self.carrier
    }

    /// The numbers of the mobile's connections, the oldest first.
    ///
    /// # Errors
    ///
    /// The mobile does not answer.
    pub fn keys(&self) -> Result<Vec<u64>, LabError> {
        let report =
            control::query(&self.socket).map_err(|e| LabError::io("asking the mobile", e))?;
        let mut keys: Vec<u64> = report.connections.iter().map(|c| c.key).collect();
        keys.sort_unstable();
        Ok(keys)
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
        seed: Seed,
    ) -> Result<(Vec<Shared>, bool), LabError> {
        let content = seed.child("content");
        let client = Client::new(&self.lab.mobile, self.carrier.via(), self.server.address());
        let flows = match direction {
            Direction::Download => [Watched::default(), Watched::default()],
            Direction::Upload => ["first", "second"].map(|name| self.server.upload(name)),
        };
        let stop = Stop::default();
        let rows = thread::scope(|scope| {
            let transfer = |name: &'static str, flow: Watched| {
                let (client, stop) = (client.clone(), stop.clone());
                scope.spawn(move || match direction {
                    Direction::Download => client.download(ENDLESS, &flow, &stop, PATIENCE),
                    Direction::Upload => client.upload(name, ENDLESS, content, &stop, PATIENCE),
                })
            };
            // One after the other, so that it is known which connection is whose.
            let first = transfer("first", flows[0].clone());
            let key = self.only_key(&flows[0]);
            let second = transfer("second", flows[1].clone());
            let rows = key.and_then(|key| self.watch(&flows, key, steps, times));
            stop.set();
            for transfer in [first, second] {
                match transfer.join() {
                    Ok(result) => result?,
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            rows
        })?;
        self.carrier.check()?;
        let right = flows.iter().all(|flow| flow.lock().is_prefix_of(content));
        Ok((rows, right))
    }

    fn watch(
        &self,
        flows: &[Watched; 2],
        first: u64,
        steps: &[[u32; 2]],
        times: Times,
    ) -> Result<Vec<Shared>, LabError> {
        watch([&flows[0], &flows[1]], steps, times, |step| {
            let keys = self.keys()?;
            let other = keys.iter().find(|key| **key != first).copied();
            let Some(other) = other.filter(|_| keys.len() == 2) else {
                return Err(LabError::Answer { who: "the mobile", what: format!("{keys:?}") });
            };
            for (key, priority) in [first, other].into_iter().zip(step) {
                set_priority(&self.program, &self.socket, &key.to_string(), priority)?;
            }
            Ok(())
        })
    }

    /// The only connection that there is, once `flow` has begun.
    fn only_key(&self, flow: &Watched) -> Result<u64, LabError> {
        let deadline = Instant::now() + PATIENCE;
        while flow.lock().first().is_none() {
            if Instant::now() >= deadline {
                return Err(LabError::TooLong("the first byte".into()));
            }
            thread::sleep(TICK);
        }
        match self.keys()?.as_slice() {
            [key] => Ok(*key),
            other => Err(LabError::Answer { who: "the mobile", what: format!("{other:?}") }),
        }
    }
}
