//! A base dies under its connections while the mobile goes to another, and what becomes of each.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use lasthop_control::choice;
use lasthop_kernel::netns::Netns;
use lasthop_radio::RadioConfig;
use lasthop_units::{Rate, Seed};

use crate::capture::{Capture, FourTuple, Seen};
use crate::client::Stop;
use crate::error::LabError;
use crate::http;
use crate::journey::allow_descriptors;
use crate::process;
use crate::roam::{Config, Fleet, Handoff, Mode, Roam, Settings};
use crate::topology::link;
use crate::traffic::{Flow, Servers, Traffic};
use crate::transfer::ENDLESS;

const HTTP: u16 = 80;
const TALK: u16 = 81;
/// The base that dies, and that to which the mobile goes.
const DEAD: usize = 1;
const NEXT: usize = 2;
/// How often an idle connection says a line: one is on its way when the mobile arrives.
const LINE_EVERY: Duration = Duration::from_millis(250);
/// Connections that are opened in one go: more would meet the limit of those that wait.
const BATCH: usize = 50;
/// How often everything is looked at.
const TICK: Duration = Duration::from_millis(10);
/// The kinds of connections, a third of each.
pub const KINDS: [Traffic; 3] = [Traffic::Download, Traffic::Upload, Traffic::Idle];

choice! {
    /// How a base dies.
    pub enum Way: "no way to die" {
        /// Its process is killed; its kernel lives on.
        Kill = "kill",
        /// It loses all links; its process lives on.
        Cut = "cut",
    }
}

/// Which base dies how, and under what.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How the base dies.
    pub way: Way,
    /// Hosts and links.
    pub topology: Config,
    /// Bases and mobile.
    pub settings: Settings,
    /// How many connections there are.
    pub connections: usize,
    /// From the moment at which the mobile leaves, which is when the base dies, until it is at the other base.
    pub dead_zone: Duration,
    /// How long everything runs before the base dies, and connections are watched after they have gone on.
    pub stay: Duration,
    /// How long anything may take.
    pub patience: Duration,
}

impl Plan {
    /// A base that dies in this way under so many connections, with radios wide enough for them.
    pub fn new(way: Way, connections: usize) -> Self {
        let radio = link(Rate::from_mbps(50), Duration::from_millis(20), 250);
        let handoff = Handoff { mode: Mode::Migrate, takes_over: true, ..Handoff::default() };
        Self {
            way,
            topology: Config { radio: RadioConfig::both(radio), ..Config::default() },
            settings: Settings { handoff: Some(handoff), acknowledge: true, ..Settings::default() },
            connections,
            dead_zone: Duration::from_millis(300),
            stay: Duration::from_secs(2),
            patience: Duration::from_secs(20),
        }
    }

    /// How many connections there are of a kind: a third, and of the first ones what is left.
    pub fn of_kind(&self, kind: Traffic) -> usize {
        let rank = KINDS.iter().position(|k| *k == kind).unwrap_or(KINDS.len());
        (self.connections + KINDS.len() - 1).saturating_sub(rank) / KINDS.len()
    }
}

/// What became of the connections of a kind.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// Of those that go on with the right bytes, from the mobile's arrival at the other base on, shortest first.
    pub resumed: Vec<Duration>,
    /// Those that broke.
    pub reset: usize,
    /// Those that brought other bytes than were sent.
    pub wrong: usize,
    /// Those that neither went on nor broke, for as long as anybody waited.
    pub stuck: usize,
}

impl Tally {
    /// How many go on with the right bytes.
    pub fn whole(&self) -> usize {
        self.resumed.len()
    }

    /// How many there were.
    pub fn connections(&self) -> usize {
        self.whole() + self.reset + self.wrong + self.stuck
    }

    /// When half of those that go on did.
    pub fn half(&self) -> Option<Duration> {
        self.resumed.get(self.resumed.len() / 2).copied()
    }

    /// When the last of those that go on did.
    pub fn last(&self) -> Option<Duration> {
        self.resumed.last().copied()
    }

    fn add(&mut self, fate: Fate) {
        match fate {
            Fate::Whole(wait) => {
                self.resumed.push(wait);
                self.resumed.sort_unstable();
            }
            Fate::Reset => self.reset += 1,
            Fate::Wrong => self.wrong += 1,
            Fate::Stuck => self.stuck += 1,
        }
    }

    fn with(mut self, other: &Self) -> Self {
        self.resumed.extend(&other.resumed);
        self.resumed.sort_unstable();
        self.reset += other.reset;
        self.wrong += other.wrong;
        self.stuck += other.stuck;
        self
    }
}

/// What became of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// It went on so long after the mobile's arrival.
    Whole(Duration),
    Reset,
    Wrong,
    Stuck,
}

/// What came of a base's death.
#[derive(Clone, Debug)]
pub struct Aftermath {
    /// Of each of [`KINDS`].
    pub tallies: [Tally; 3],
    /// What crossed the server's wire from the death on.
    pub seen: Seen,
    /// Whether every packet there belonged to the connections that were there before.
    pub same_four_tuple: bool,
    /// Bytes that the server's kernel had acknowledged when the mobile arrived, of the download where that is most, beyond
    /// what the mobile's application had.
    pub acked_beyond_mobile: u64,
    /// Why connections broke, each reason once, and how many.
    pub broken: BTreeMap<String, usize>,
}

impl Aftermath {
    /// All connections together.
    pub fn tally(&self) -> Tally {
        self.tallies.iter().fold(Tally::default(), Tally::with)
    }

    /// Whether all went on, and the server noticed nothing.
    pub fn is_good(&self) -> bool {
        let tally = self.tally();
        tally.whole() == tally.connections()
            && !self.seen.any_reset()
            && self.seen.openings.is_empty()
            && self.same_four_tuple
            && self.acked_beyond_mobile == 0
    }
}

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Connections are opened, or run at the first base.
    Before,
    /// The base is dead, and the mobile nowhere.
    Dead,
    /// The mobile is at the other base.
    After,
}

/// How things stand at a moment.
#[derive(Clone, Debug)]
pub struct Sight {
    /// How far it is.
    pub phase: Phase,
    /// Since the beginning of the phase.
    pub elapsed: Duration,
    /// Connections that were opened.
    pub open: usize,
    /// Connections that have had something in this phase.
    pub moved: usize,
    /// Connections that broke.
    pub broken: usize,
    /// What all together move.
    pub rate: Rate,
}

/// Carries out `plan` with the `lasthop` command at `program`.
///
/// # Errors
///
/// The hosts could not be built, a process could not be started or ended, the connections could not be made, or `stop` was
/// set.
pub fn die(
    plan: &Plan,
    program: &Path,
    stop: &Stop,
    tell: &mut dyn FnMut(&Sight),
) -> Result<Aftermath, LabError> {
    allow_descriptors();
    let mut witness = Witness::start(plan, program, stop, tell)?;
    witness.stay()?;
    witness.wait_for_bytes(Instant::now())?;
    if let Some(what) = witness.failure() {
        return Err(LabError::Answer { who: "a connection", what });
    }
    witness.capture_all();
    witness.kill()?;
    witness.wait_for_bytes(witness.since)?;
    witness.judge()
}

struct Witness<'a> {
    plan: &'a Plan,
    stop: &'a Stop,
    tell: &'a mut dyn FnMut(&Sight),
    told: Instant,
    phase: Phase,
    since: Instant,
    /// The connections that the server knew before.
    known: BTreeSet<FourTuple>,
    /// By which the server knows each download, in the order of `flows`.
    downloads: Vec<SocketAddr>,
    acked_beyond_mobile: u64,
    // In the order in which they have to end.
    flows: Vec<Flow>,
    capture: Capture,
    fleet: Fleet,
    servers: Servers,
    roam: Roam,
}

impl<'a> Witness<'a> {
    /// Everything stands, and every connection has brought its first bytes.
    fn start(
        plan: &'a Plan,
        program: &Path,
        stop: &'a Stop,
        tell: &'a mut dyn FnMut(&Sight),
    ) -> Result<Self, LabError> {
        let roam = Roam::start(&plan.topology)?;
        let address = |port| roam.server_address(plan.settings.family, port);
        let seed: Seed = plan.topology.seed.child("content");
        let servers = Servers::start(&roam.server, address(HTTP), address(TALK), seed)?;
        let servers = Servers { line_every: LINE_EVERY, ..servers };
        let fleet = Fleet::start(&roam, &plan.settings, program, plan.patience)?;
        let capture = roam.capture()?;
        let now = Instant::now();
        let mut witness = Self {
            plan,
            stop,
            tell,
            told: now,
            phase: Phase::Before,
            since: now,
            known: BTreeSet::new(),
            downloads: Vec::new(),
            acked_beyond_mobile: 0,
            flows: Vec::new(),
            capture,
            fleet,
            servers,
            roam,
        };
        for _ in 0..plan.of_kind(Traffic::Download) {
            // One at a time: who opens is who it is.
            witness.capture_all();
            witness.open(Traffic::Download, 1)?;
            let mut openings = witness.capture_all().openings.into_keys();
            let (Some(one), None) = (openings.next(), openings.next()) else {
                let what = "none or several openings for one".to_owned();
                return Err(LabError::Answer { who: "a download", what });
            };
            witness.downloads.push(one.client);
        }
        for kind in [Traffic::Upload, Traffic::Idle] {
            let mut left = plan.of_kind(kind);
            while left > 0 {
                witness.open(kind, left.min(BATCH))?;
                left -= left.min(BATCH);
            }
        }
        Ok(witness)
    }

    /// Opens so many connections, and waits until each has brought something.
    fn open(&mut self, kind: Traffic, count: usize) -> Result<(), LabError> {
        let now = Instant::now();
        let first = self.flows.len();
        for number in first..first + count {
            let (mobile, via) = (&self.roam.mobile, self.fleet.via());
            let name = format!("{kind}{number}");
            self.flows.push(self.servers.flow(kind, &name, mobile, via, self.plan.patience)?);
        }
        while !self.flows[first..].iter().all(|flow| flow.has_moved_since(now)) {
            if let Some(what) = self.failure() {
                return Err(LabError::Answer { who: "a connection", what });
            }
            if now.elapsed() > self.plan.patience {
                return Err(LabError::TooLong(format!("the first byte of the {kind}")));
            }
            self.look()?;
            thread::sleep(TICK);
        }
        Ok(())
    }

    /// What the server saw since the last time; whoever is alive is known from here on.
    fn capture_all(&mut self) -> Seen {
        let seen = self.capture.take();
        self.known.extend(&seen.alive);
        seen
    }

    /// The base dies, and the mobile goes to the other one.
    fn kill(&mut self) -> Result<(), LabError> {
        match self.plan.way {
            Way::Kill => self.fleet.kill_base(DEAD),
            Way::Cut => self.roam.cut(DEAD)?,
        }
        let left = self.roam.leave()?;
        self.enter(Phase::Dead, left);
        while self.since.elapsed() < self.plan.dead_zone {
            self.look()?;
            thread::sleep(TICK.min(self.plan.dead_zone.saturating_sub(self.since.elapsed())));
        }
        // Nothing is on its way any more, on either side.
        self.acked_beyond_mobile = self.beyond_mobile()?;
        let arrived = self.roam.arrive(NEXT)?;
        self.enter(Phase::After, arrived);
        Ok(())
    }

    /// The most that the server's kernel knows to be acknowledged of a download beyond what the mobile has.
    fn beyond_mobile(&self) -> Result<u64, LabError> {
        let acked = acknowledged(&self.roam.server)?;
        let head = http::head("200 OK", ENDLESS).len() as u64;
        let beyond = |(client, flow): (&SocketAddr, &Flow)| {
            Some(acked.get(client)?.saturating_sub(head + flow.total()))
        };
        Ok(self.downloads.iter().zip(&self.flows).filter_map(beyond).max().unwrap_or_default())
    }

    fn enter(&mut self, phase: Phase, now: Instant) {
        (self.phase, self.since, self.told) = (phase, now, now);
    }

    /// Waits until every connection that is not broken has had something from `moment` on, or it has taken too long.
    fn wait_for_bytes(&mut self, moment: Instant) -> Result<(), LabError> {
        let begin = Instant::now();
        let is_done = |flow: &mut Flow| flow.has_moved_since(moment) || flow.failure().is_some();
        while !self.flows.iter_mut().all(is_done) && begin.elapsed() < self.plan.patience {
            self.look()?;
            thread::sleep(TICK);
        }
        Ok(())
    }

    /// What became of everything, after some more time has passed.
    fn judge(&mut self) -> Result<Aftermath, LabError> {
        let arrived = self.since;
        let waits: Vec<Option<Duration>> =
            self.flows.iter().map(|flow| flow.waits(arrived).first().and_then(|w| w.1)).collect();
        self.stay()?;
        // What a dead base's kernel still had brought no more than that.
        let again = Instant::now();
        self.wait_for_bytes(again)?;
        let seen = self.capture.take();
        let same_four_tuple = !seen.alive.is_empty() && seen.alive.is_subset(&self.known);
        let (mut tallies, mut broken) = (<[Tally; 3]>::default(), BTreeMap::new());
        for (flow, wait) in self.flows.iter_mut().zip(waits) {
            let wait = wait.filter(|_| flow.has_moved_since(again));
            let fate = match (flow.is_wrong(), flow.failure(), wait) {
                (true, ..) => Fate::Wrong,
                (false, Some(_), _) => Fate::Reset,
                (false, None, Some(wait)) => Fate::Whole(wait),
                (false, None, None) => Fate::Stuck,
            };
            if let Some(why) = flow.failure() {
                *broken.entry(why.to_owned()).or_default() += 1;
            }
            for (tally, _) in tallies.iter_mut().zip(KINDS).filter(|(_, kind)| *kind == flow.kind())
            {
                tally.add(fate);
            }
        }
        let acked_beyond_mobile = self.acked_beyond_mobile;
        Ok(Aftermath { tallies, seen, same_four_tuple, acked_beyond_mobile, broken })
    }

    fn failure(&mut self) -> Option<String> {
        self.flows.iter_mut().find_map(|flow| flow.failure().map(str::to_owned))
    }

    fn stay(&mut self) -> Result<(), LabError> {
        let begin = Instant::now();
        while begin.elapsed() < self.plan.stay {
            self.look()?;
            thread::sleep(TICK);
        }
        Ok(())
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
        self.told = now + TICK * 10;
        let sight = Sight {
            phase: self.phase,
            elapsed: now.saturating_duration_since(self.since),
            open: self.flows.len(),
            moved: self.flows.iter().filter(|flow| flow.has_moved_since(self.since)).count(),
            broken: self.flows.iter_mut().filter_map(Flow::failure).count(),
            rate: Rate::from_bps(self.flows.iter().map(|flow| flow.rate(now).as_bps()).sum()),
        };
        (self.tell)(&sight);
        Ok(())
    }
}

impl Drop for Witness<'_> {
    fn drop(&mut self) {
        // All at once: each takes a moment to notice.
        self.flows.iter().for_each(Flow::stop);
    }
}

/// What a server's kernel knows to be acknowledged, in bytes, by who is at the other end.
///
/// # Errors
///
/// `ss` could not be run.
pub fn acknowledged(server: &Netns) -> Result<BTreeMap<SocketAddr, u64>, LabError> {
    let mut ss = server.command("ss");
    ss.args(["-HtinO", "state", "established"]);
    Ok(process::run(ss)?.lines().filter_map(acknowledged_of).collect())
}

/// Of a line of `ss`: queues, both ends, and what the kernel knows.
fn acknowledged_of(line: &str) -> Option<(SocketAddr, u64)> {
    let mut words = line.split_whitespace();
    let client = words.nth(3)?.parse().ok()?;
    let acked = words.find_map(|word| word.strip_prefix("bytes_acked:"));
    Some((client, acked.map_or(Some(0), |n| n.parse().ok())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_of_the_connections_is_of_each_kind() {
        for (connections, wanted) in
            [(1, [1, 0, 0]), (2, [1, 1, 0]), (3, [1, 1, 1]), (100, [34, 33, 33])]
        {
            let plan = Plan::new(Way::Kill, connections);
            assert_eq!(KINDS.map(|kind| plan.of_kind(kind)), wanted);
        }
    }

    #[test]
    fn what_is_acknowledged_is_read_from_ss() {
        let line =
            "0 95568 10.0.1.2:80 10.0.9.100:44398 cubic rto:244 bytes_sent:9 bytes_acked:74001 x";
        assert_eq!(acknowledged_of(line), Some(("10.0.9.100:44398".parse().unwrap(), 74_001)));
        let none_yet = "0 0 [fd00:1::2]:80 [fd00:9::100]:4 cubic rto:244";
        assert_eq!(acknowledged_of(none_yet), Some(("[fd00:9::100]:4".parse().unwrap(), 0)));
        assert_eq!(acknowledged_of("no line"), None);
    }
}
