//! Bases and a mobile at work in a lab, each under a tracer.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lasthop_control::{self as control, AssociationReport, ConnectionReport, HandoffState, Report};
use lasthop_kernel::netns::Netns;
use lasthop_lab::arrivals::Watched;
use lasthop_lab::client::{Client, Via};
use lasthop_lab::kept;
use lasthop_lab::roam::{Config, Fleet, Handoff, Mode, Roam, Settings};
use lasthop_lab::service::Server;
use lasthop_lab::talk;
use lasthop_lab::topology::{Family, link};
use lasthop_radio::RadioConfig;
use lasthop_testing::wait_or;
use lasthop_units::{Duration as Lasting, Rate, Seed};

use crate::common;
use crate::tracer::Tracer;

/// Nothing takes longer on any machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// What is being closed is closed within this.
const SETTLES: Duration = Duration::from_millis(300);
const TICK: Duration = Duration::from_millis(20);
const PORT: u16 = 80;
/// By which a helper knows its own routes.
const HELPERS_PROTOCOL: &str = " proto 79";

/// What the processes have of the kernel.
#[derive(Debug)]
pub(crate) struct Holdings {
    /// Descriptors of each, by what they lead to.
    pub(crate) descriptors: Vec<BTreeMap<String, usize>>,
    /// Each descriptor of each, for people.
    pub(crate) each: Vec<Vec<String>>,
    pub(crate) threads: Vec<usize>,
    /// Bytes of memory in use by all.
    pub(crate) memory: u64,
}

/// A base, its helper or a mobile.
struct Process {
    tracer: Option<Tracer>,
    name: String,
    id: u32,
    /// Where it is asked how it is; a helper is not.
    control: Option<PathBuf>,
}

/// A base or three and a mobile, the last of the processes.
pub(crate) struct Stage {
    // In the order in which they have to end.
    processes: Vec<Process>,
    fleet: Fleet,
    server: Server,
    before: Vec<kept::Host>,
    /// The bases, and the mobile behind them.
    hosts: Vec<Netns>,
    roam: Mutex<Roam>,
    moves: bool,
}

impl Stage {
    /// With handoffs between three bases, or with one base. None where a test may not have it.
    pub(crate) fn start(hop: &str, mode: Option<Mode>, seed: Seed) -> Option<Self> {
        let program = common::program()?;
        let radio = link(Rate::from_mbps(100), Lasting::from_millis(2), 200);
        let topology = Config {
            radio: RadioConfig::both(radio),
            wired: link(Rate::from_mbps(500), Lasting::from_millis(1), 1000),
            base_rate: None,
            base_delay: Lasting::ZERO,
            seed,
        };
        let roam = common::roam(&topology)?;
        let address = roam.server_address(Family::V4, PORT);
        let server = talk::start(&roam.server, address, seed).unwrap();
        let hosts: Vec<Netns> = roam.bases.iter().chain([&roam.mobile]).cloned().collect();
        let before = hosts.iter().map(picture).collect();
        let helpers = mode == Some(Mode::Migrate);
        let handoff = mode.map(|mode| Handoff { mode, helpers, ..Handoff::default() });
        let settings = Settings {
            hop: hop.to_owned(),
            transparent: true,
            handoff,
            log: Some("debug".to_owned()),
            ..Settings::default()
        };
        let fleet = Fleet::start(&roam, &settings, &program, PATIENCE).unwrap();
        let moves = mode.is_some();
        let processes = fleet.processes().map(|(name, id)| {
            let control = match name.strip_prefix("base") {
                Some(number) => Some(fleet.control_of_base(number.parse().unwrap())),
                None => (name == "mobile").then(|| fleet.control()),
            };
            Process { tracer: None, name, id, control }
        });
        let processes = processes.collect();
        let roam = Mutex::new(roam);
        let mut stage = Self { processes, fleet, server, before, hosts, roam, moves };
        stage.await_up();
        for process in &mut stage.processes {
            process.tracer = Some(Tracer::attach(process.id, seed.child(&process.name)));
        }
        Some(stage)
    }

    fn roam(&self) -> MutexGuard<'_, Roam> {
        self.roam.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first base's host.
    pub(crate) fn base(&self) -> &Netns {
        &self.hosts[0]
    }

    fn await_up(&mut self) {
        let start = Instant::now();
        let is_up = |reports: Vec<Report>| {
            reports
                .iter()
                .all(|r| r.role != "mobile" || r.associations.iter().any(|a| a.state == "up"))
        };
        while !self.reports().is_some_and(is_up) {
            self.fleet.check().unwrap();
            assert!(start.elapsed() < PATIENCE, "no association\n{}", self.said());
            std::thread::sleep(TICK);
        }
    }

    fn reports(&self) -> Option<Vec<Report>> {
        let controls = self.processes.iter().filter_map(|process| process.control.as_ref());
        controls.map(|control| control::query(control).ok()).collect()
    }

    /// What a process answers, once, to the question how it is.
    pub(crate) fn asked(&self, n: usize) -> io::Result<Report> {
        let Some(control) = &self.processes[n].control else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        control::query(control).map_err(io::Error::other)
    }

    /// What the mobile answers.
    fn mobile(&self) -> Report {
        let mut report = None;
        let told = || {
            report = self.asked(self.processes.len() - 1).ok();
            report.is_some()
        };
        wait_or(PATIENCE, told, || format!("the mobile does not answer\n{}", self.said()));
        report.unwrap()
    }

    /// The mobile moves to base `number`, which is another than its own, and connections go on there or
    /// have failed to. Whether they do.
    pub(crate) fn go(&self, number: usize) -> bool {
        let handoffs = |report: &Report| report.handoff.as_ref().map_or(0, |latest| latest.number);
        let before = handoffs(&self.mobile());
        self.roam().arrive(number).unwrap();
        let mut done = false;
        let is_over = || {
            let report = self.mobile();
            let state = report.handoff.as_ref().map(|latest| latest.state);
            done = handoffs(&report) > before && state == Some(HandoffState::Done);
            let name = format!("b{number}");
            let there = report.bases.iter().any(|base| base.current && base.name == name);
            there && state != Some(HandoffState::UnderWay)
        };
        let told = || format!("no handoff to b{number}\n{}\n{:#?}", self.said(), self.reports());
        wait_or(PATIENCE, is_over, told);
        done
    }

    /// Whether the mobile moves: then a connection may be reset.
    pub(crate) fn has_moves(&self) -> bool {
        self.moves
    }

    fn tracers(&self) -> impl Iterator<Item = &Tracer> {
        self.processes.iter().filter_map(|process| process.tracer.as_ref())
    }

    /// What all the contents are made of.
    pub(crate) fn seed(&self) -> Seed {
        self.server.seed()
    }

    /// Calls fail from here on, or no more.
    pub(crate) fn arm(&self, armed: bool) {
        self.tracers().for_each(|tracer| tracer.arm(armed));
    }

    /// How often what befell which call of base and mobile.
    pub(crate) fn befell(&self) -> String {
        let mut said = String::new();
        for (Process { name, .. }, tracer) in self.processes.iter().zip(self.tracers()) {
            let counts = tracer.counts();
            let all: u64 = counts.values().sum();
            said += &format!("  {name}: {all} faults:");
            for ((call, fault), count) in &counts {
                said += &format!(" {call} {fault} {count},");
            }
            said += "\n";
        }
        said
    }

    /// The association, as the mobile tells of it.
    pub(crate) fn association(&self) -> AssociationReport {
        self.mobile().associations.into_iter().next().unwrap()
    }

    /// System calls of each process until now.
    pub(crate) fn calls(&self) -> Vec<u64> {
        self.tracers().map(Tracer::calls).collect()
    }

    /// The number of each process.
    pub(crate) fn ids(&self) -> Vec<u32> {
        self.processes.iter().map(|process| process.id).collect()
    }

    /// What the mobile has said.
    pub(crate) fn mobile_said(&self) -> String {
        self.fleet.mobile_said()
    }

    /// A client at the mobile, by the proxy or intercepted.
    pub(crate) fn client(&self, intercepted: bool) -> Client {
        let via = if intercepted { Via::Direct } else { self.fleet.via() };
        let mobile = &self.hosts[self.hosts.len() - 1];
        Client::new(mobile, via, self.server.address())
    }

    /// What the server has heard from a client.
    pub(crate) fn heard(&self, name: &str) -> Watched {
        self.server.arrivals(name)
    }

    /// All processes run.
    pub(crate) fn check(&self) {
        let run = self.tracers().all(Tracer::is_running);
        assert!(run, "it has ended\n{}", self.said());
    }

    pub(crate) fn said(&self) -> String {
        let hosts = self.hosts.iter().zip(&self.before);
        let changed =
            hosts.map(|(host, before)| format!("{:#?}\n", picture(host).difference(before)));
        self.befell() + &changed.collect::<String>() + &self.fleet.said()
    }

    /// What the processes hold once no connection is left and that is `expected`, or stays as it is.
    pub(crate) fn holdings(&self, expected: Option<&Holdings>) -> Holdings {
        let idle = || {
            let reports = self.reports();
            reports.is_some_and(|reports| reports.iter().all(|r| r.connections.is_empty()))
        };
        wait_or(PATIENCE, idle, || {
            format!("connections are left\n{}\n{:#?}", self.said(), self.connections())
        });
        let (start, mut last) = (Instant::now(), self.held());
        loop {
            std::thread::sleep(SETTLES);
            let now = self.held();
            let expects = expected.unwrap_or(&last);
            if self.is_as(&now, expects) || start.elapsed() > PATIENCE / 4 {
                return now;
            }
            last = now;
        }
    }

    /// Whether each process has the descriptors of `expected`. A helper may have fewer: what it lost under
    /// faults it opens again when that is needed.
    pub(crate) fn is_as(&self, now: &Holdings, expected: &Holdings) -> bool {
        let mut all = self.processes.iter().zip(&now.descriptors).zip(&expected.descriptors);
        all.all(|((process, now), expected)| match process.control {
            Some(_) => now == expected,
            None => now.iter().all(|(kind, n)| expected.get(kind).is_some_and(|most| n <= most)),
        })
    }

    fn connections(&self) -> Vec<Vec<ConnectionReport>> {
        self.reports().into_iter().flatten().map(|report| report.connections).collect()
    }

    fn held(&self) -> Holdings {
        let ids = self.ids();
        let held: Vec<kept::Process> =
            ids.into_iter().map(|id| kept::Process::of(id).unwrap()).collect();
        let owned = |(kind, count): (&str, usize)| (kind.to_owned(), count);
        Holdings {
            descriptors: held.iter().map(|p| p.kinds().into_iter().map(owned).collect()).collect(),
            threads: held.iter().map(|process| process.threads).collect(),
            memory: held.iter().map(|process| process.resident_kib << 10).sum(),
            each: held.into_iter().map(|process| process.descriptors).collect(),
        }
    }

    /// Ends all, cleanly, and looks at what they leave.
    pub(crate) fn end(mut self) {
        for tracer in self.processes.iter().rev().filter_map(|process| process.tracer.as_ref()) {
            tracer.terminate();
            wait_or(PATIENCE, || !tracer.is_running(), || format!("it stays\n{}", self.said()));
        }
        for process in &mut self.processes {
            let ended = process.tracer.take().and_then(Tracer::ended);
            assert_eq!(ended, Some(0), "{}: {}", process.name, self.fleet.said());
        }
        for (host, before) in self.hosts.iter().zip(&self.before) {
            wait_or(
                PATIENCE,
                || picture(host) == *before,
                || {
                    let difference = picture(host).difference(before);
                    format!("this is left, or lost: {difference:#?}\n{}", self.fleet.said())
                },
            );
        }
    }
}

/// Packet rules and routes of a host.
fn picture(host: &Netns) -> kept::Host {
    let mut all = kept::Host::of(host).unwrap();
    // The kernel's own come and go as addresses are found to be nobody else's. Those of a helper by which the
    // packets of mobiles follow them stay if its base could not say goodbye: connections may live on them.
    let may_stay = |line: &str| line.contains(" via ") && line.contains(HELPERS_PROTOCOL);
    all.routes.retain(|line| !line.contains(" proto kernel ") && !may_stay(line));
    all
}
