//! A mobile moves from base to base, and what its connections and the server notice of it.

use std::collections::BTreeSet;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use lasthop_units::{Rate, Seed};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::capture::{Capture, FourTuple, Seen};
use crate::client::Stop;
use crate::error::LabError;
use crate::roam::{BASES, Config, Fleet, Roam, Settings};
use crate::traffic::{Flow, Servers, Traffic};

const HTTP: u16 = 80;
const TALK: u16 = 81;
/// Connections that are opened in one go: more would meet the limit of those that wait.
const BATCH: usize = 50;
/// How often everything is looked at.
const TICK: Duration = Duration::from_millis(20);

/// The steps of a move that the processes tell, with `--log debug`, and in which words.
pub const STAGES: [(&str, &str); 4] = [
    ("old base has frozen the session", "session frozen"),
    ("new base may use its state", "session state received"),
    ("new base has the mobile", "association up"),
    ("mobile knows", "handoff done"),
];

/// Where the mobile goes, how, and what runs meanwhile.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Hosts and links.
    pub topology: Config,
    /// Bases and mobile.
    pub settings: Settings,
    /// One connection of each of these.
    pub traffic: Vec<Traffic>,
    /// How often the mobile moves to the next base: 1 to 2, 2 to 3, 3 to 1 and so on.
    pub handoffs: u32,
    /// For how long no base is reached in between.
    pub dead_zone: Duration,
    /// How long the mobile stays at a base after its connections have gone on.
    pub stay: Duration,
    /// How long before it leaves the mobile is told where it will be; none: it is not told.
    pub warning: Option<Duration>,
    /// How long anything may take.
    pub patience: Duration,
}

impl Plan {
    /// For so many connections that move together: a download, an upload, and idle ones, with a line on its way each
    /// when the mobile arrives, since it is away for longer than they are silent.
    pub fn crowd(connections: usize) -> Self {
        let idle = std::iter::repeat_n(Traffic::Idle, connections.saturating_sub(2));
        Self {
            traffic: [Traffic::Download, Traffic::Upload].into_iter().chain(idle).collect(),
            dead_zone: Duration::from_millis(1500),
            stay: Duration::ZERO,
            ..Self::default()
        }
    }
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            topology: Config::default(),
            settings: Settings::default(),
            traffic: vec![Traffic::Download, Traffic::Upload, Traffic::Idle],
            handoffs: 3,
            dead_zone: Duration::from_secs(1),
            stay: Duration::from_secs(3),
            warning: None,
            patience: Duration::from_secs(20),
        }
    }
}

/// One move from a base to the next.
#[derive(Clone, Debug)]
pub struct Crossing {
    /// Counted from 1 on.
    pub number: u32,
    /// The base left.
    pub from: usize,
    /// The base reached.
    pub to: usize,
    /// How long no base was reached, as it came out.
    pub dead_zone: Duration,
    /// Whether the mobile was warned.
    pub predicted: bool,
    /// From the moment at which the new radio was there to the next byte, for each direction of
    /// each busy connection: at the client, or at the server if it goes there. None: no byte came.
    pub pauses: Vec<(&'static str, Option<Duration>)>,
    /// Connections that went on, idle ones too.
    pub connections: usize,
    /// From that moment on until the last of them did.
    pub took: Duration,
    /// From that moment on, when each step of the move was done, as the processes log it: those that
    /// were, of [`STAGES`].
    pub stages: Vec<(&'static str, Duration)>,
    /// Whether, by SHA-256, every byte so far was right, and every connection still stands.
    pub sha256_ok: bool,
    /// What crossed the server's wire since the last move.
    pub seen: Seen,
    /// Whether every packet belonged to the connections that were there at the beginning.
    pub same_four_tuple: bool,
    /// Connections that broke, and why.
    pub broken: Vec<String>,
    /// What the processes said last.
    pub said: String,
}

impl Crossing {
    /// The longest pause, if all connections went on.
    pub fn added_pause(&self) -> Option<Duration> {
        let longest =
            |longest: Duration, pause: &(_, Option<Duration>)| Some(longest.max(pause.1?));
        self.pauses.iter().try_fold(Duration::ZERO, longest)
    }

    /// Whether it went as it should: everything right, and the server noticed nothing.
    pub fn is_good(&self) -> bool {
        self.sha256_ok
            && self.broken.is_empty()
            && self.added_pause().is_some()
            && !self.seen.any_reset()
            && self.seen.openings.is_empty()
            && self.same_four_tuple
    }
}

/// How things stand at a moment.
#[derive(Clone, Debug)]
pub struct Sight {
    /// Since the connections stood.
    pub elapsed: Duration,
    /// The base that the mobile is at; none in a dead zone.
    pub place: Option<usize>,
    /// Where it will be next.
    pub next: usize,
    /// Whether it has been told so.
    pub warned: bool,
    /// Each connection, its rate of late and its bytes.
    pub flows: Vec<(Traffic, Rate, u64)>,
}

/// What is told while the mobile travels.
#[derive(Debug)]
pub enum Tale<'a> {
    /// Some ten times a second.
    Sight(&'a Sight),
    /// A move is done and looked at.
    Crossed(&'a Crossing),
}

/// Carries out `plan` with the `lasthop` command at `program`, until it is done, a connection is
/// broken or `stop` is set. The last of the moves is then the one at which it broke.
///
/// # Errors
///
/// The hosts could not be built, a process could not be started or ended, the connections could not
/// be made, or `stop` was set.
pub fn travel(
    plan: &Plan,
    program: &Path,
    stop: &Stop,
    tell: &mut dyn FnMut(Tale<'_>),
) -> Result<Vec<Crossing>, LabError> {
    allow_descriptors();
    let mut traveller = Traveller::start(plan, program, stop, tell)?;
    let mut crossings = Vec::new();
    for number in 1..=plan.handoffs {
        let crossing = traveller.cross(number)?;
        (traveller.tell)(Tale::Crossed(&crossing));
        let broken = !crossing.broken.is_empty() || crossing.added_pause().is_none();
        crossings.push(crossing);
        if broken {
            break;
        }
    }
    Ok(crossings)
}

/// Both ends of all connections are this process's.
pub(crate) fn allow_descriptors() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Where it may not, it shows when they are opened.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

struct Traveller<'a> {
    plan: &'a Plan,
    stop: &'a Stop,
    tell: &'a mut dyn FnMut(Tale<'_>),
    began: Instant,
    told: Instant,
    warned: bool,
    /// The connections that the server knows.
    known: BTreeSet<FourTuple>,
    // In the order in which they have to end.
    flows: Vec<Flow>,
    capture: Capture,
    fleet: Fleet,
    servers: Servers,
    roam: Roam,
}

impl<'a> Traveller<'a> {
    /// Everything stands, and every connection has brought its first bytes.
    fn start(
        plan: &'a Plan,
        program: &Path,
        stop: &'a Stop,
        tell: &'a mut dyn FnMut(Tale<'_>),
    ) -> Result<Self, LabError> {
        let roam = Roam::start(&plan.topology)?;
        let family = plan.settings.family;
        let address = |port| roam.server_address(family, port);
        let seed: Seed = plan.topology.seed.child("content");
        let servers = Servers::start(&roam.server, address(HTTP), address(TALK), seed)?;
        let fleet = Fleet::start(&roam, &plan.settings, program, plan.patience)?;
        let capture = roam.capture()?;
        let now = Instant::now();
        let mut traveller = Self {
            plan,
            stop,
            tell,
            began: now,
            told: now,
            warned: false,
            known: BTreeSet::new(),
            flows: Vec::new(),
            capture,
            fleet,
            servers,
            roam,
        };
        plan.traffic.chunks(BATCH).try_for_each(|batch| traveller.open(batch))?;
        traveller.stay(plan.stay)?;
        let seen = traveller.capture.take();
        traveller.known = seen.alive;
        Ok(traveller)
    }

    /// Opens connections, and waits until each has brought something.
    fn open(&mut self, batch: &[Traffic]) -> Result<(), LabError> {
        let now = Instant::now();
        for kind in batch {
            let name = format!("{kind}{}", self.flows.len());
            let (mobile, via) = (&self.roam.mobile, self.fleet.via());
            self.flows.push(self.servers.flow(*kind, &name, mobile, via, self.plan.patience)?);
        }
        match self.wait_for_bytes(now)?.into_iter().next() {
            Some(what) => Err(LabError::Answer { who: "a connection", what }),
            None => Ok(()),
        }
    }

    /// From the base where the mobile is to the next one.
    fn cross(&mut self, number: u32) -> Result<Crossing, LabError> {
        let from = self.roam.place().unwrap_or(1);
        let to = self.next();
        if let Some(warning) = self.plan.warning {
            let begin = Instant::now();
            let time = format!("{}ms", warning.as_millis());
            self.fleet.ask(&["link", "imminent", "--to", &format!("b{to}"), "--in", &time])?;
            self.warned = true;
            self.stay(warning.saturating_sub(begin.elapsed()))?;
        }
        let left = self.roam.leave()?;
        self.stay(self.plan.dead_zone)?;
        let arrived = self.roam.arrive(to)?;
        let stuck = self.wait_for_bytes(arrived)?;
        self.warned = false;
        let busy = self.flows.iter().filter(|flow| flow.kind() != Traffic::Idle);
        let pauses: Vec<_> = busy.flat_map(|flow| flow.waits(arrived)).collect();
        let waits = self.flows.iter().flat_map(|flow| flow.waits(arrived));
        let took = waits.filter_map(|(_, wait)| wait).max().unwrap_or_default();
        let connections = self.flows.iter().filter(|flow| flow.has_moved_since(arrived)).count();
        self.stay(self.plan.stay)?;
        let stages = self.stages(arrived, [from, to]);
        let over = self.broken();
        let broken = if over.is_empty() { stuck } else { over };
        let seen = self.capture.take();
        Ok(Crossing {
            number,
            from,
            to,
            dead_zone: arrived - left,
            predicted: self.plan.warning.is_some(),
            pauses,
            connections,
            took,
            stages,
            sha256_ok: self.flows.iter_mut().all(Flow::sha256_ok) && broken.is_empty(),
            same_four_tuple: !seen.alive.is_empty() && seen.alive.is_subset(&self.known),
            seen,
            said: self.fleet.said(),
            broken,
        })
    }

    fn stages(&self, moment: Instant, [from, to]: [usize; 2]) -> Vec<(&'static str, Duration)> {
        let [frozen, received, up, done] = STAGES.map(|(_, said)| said);
        let at = [
            self.fleet.base_said_at(from, moment, frozen),
            self.fleet.base_said_at(to, moment, received),
            self.fleet.base_said_at(to, moment, up),
            self.fleet.mobile_said_at(moment, done),
        ];
        let done = STAGES.iter().zip(at);
        done.filter_map(|((name, _), at)| Some((*name, at? - moment))).collect()
    }

    /// Waits until every connection has had something from `moment` on, one has broken, or it has
    /// taken too long.
    fn wait_for_bytes(&mut self, moment: Instant) -> Result<Vec<String>, LabError> {
        while moment.elapsed() < self.plan.patience {
            self.look()?;
            let broken = self.broken();
            if !broken.is_empty() || self.flows.iter().all(|flow| flow.has_moved_since(moment)) {
                return Ok(broken);
            }
            thread::sleep(TICK);
        }
        let stuck = self.flows.iter().filter(|flow| !flow.has_moved_since(moment));
        Ok(stuck.map(|flow| format!("{}: nothing moves any more", flow.kind())).collect())
    }

    fn broken(&mut self) -> Vec<String> {
        self.flows.iter_mut().filter_map(Flow::failure).map(str::to_owned).collect()
    }

    fn stay(&mut self, duration: Duration) -> Result<(), LabError> {
        let until = Instant::now() + duration;
        loop {
            self.look()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(TICK));
        }
    }

    /// Whether everything still runs; tells how things stand, now and then.
    fn look(&mut self) -> Result<(), LabError> {
        if self.stop.is_set() {
            return Err(LabError::Stopped);
        }
        self.fleet.check()?;
        let now = Instant::now();
        if now < self.told {
            return Ok(());
        }
        self.told = now + TICK * 5;
        let sight = Sight {
            elapsed: now - self.began,
            place: self.roam.place(),
            next: self.next(),
            warned: self.warned,
            flows: self.flows.iter().map(|f| (f.kind(), f.rate(now), f.total())).collect(),
        };
        (self.tell)(Tale::Sight(&sight));
        Ok(())
    }

    /// The base after the last one that the mobile was at.
    fn next(&self) -> usize {
        self.roam.last_place() % BASES + 1
    }
}

impl Drop for Traveller<'_> {
    fn drop(&mut self) {
        // All at once: each takes a moment to notice.
        self.flows.iter().for_each(Flow::stop);
    }
}
