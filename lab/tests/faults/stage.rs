//! Base and mobile at work in a lab, each under a tracer.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lasthop_control::{
    self as control, AssociationReport, ConnectionReport, HandoffState, Report, Request,
};
use lasthop_daemon::keyfile::{self, Existing};
use lasthop_kernel::netns::Netns;
use lasthop_lab::arrivals::Watched;
use lasthop_lab::client::{Client, Via};
use lasthop_lab::kept;
use lasthop_lab::process::Daemon;
use lasthop_lab::service::Server;
use lasthop_lab::talk;
use lasthop_lab::topology::{Family, Lab, Topology, link};
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

/// A base or a mobile.
struct Process {
    // In the order in which they have to end.
    tracer: Option<Tracer>,
    daemon: Daemon,
    name: String,
}

/// One or more bases of one host, and a mobile.
pub(crate) struct Stage {
    // In the order in which they have to end. The mobile is the last.
    processes: Vec<Process>,
    server: Server,
    before: [kept::Host; 2],
    pub(crate) lab: Lab,
    folder: tempfile::TempDir,
}

impl Stage {
    /// None where a test may not have it.
    pub(crate) fn start(hop: &str, bases: u16, seed: Seed) -> Option<Self> {
        let program = common::program()?;
        let radio = link(Rate::from_mbps(100), Lasting::from_millis(2), 200);
        let wired = link(Rate::from_mbps(500), Lasting::from_millis(1), 1000);
        let topology = Topology {
            radio: RadioConfig::both(radio),
            wired: RadioConfig::both(wired),
            seed,
            ..Topology::default()
        };
        let lab = common::lab(&topology)?;
        let server = talk::start(&lab.fixed, lab.server_address(Family::V4), seed).unwrap();
        let before = [&lab.base, &lab.mobile].map(picture);
        let folder = tempfile::tempdir().unwrap();
        let mut stage = Self { processes: Vec::new(), server, before, lab, folder };
        let names: Vec<String> = (1..=bases).map(|n| format!("b{n}")).collect();
        let keys: Vec<String> = names.iter().map(|name| stage.make_key(name)).collect();
        let key = stage.make_key("mobile");
        let first = stage.lab.base_address(Family::V4);
        let listen = |n: usize| SocketAddr::new(first.ip(), first.port() + n as u16);
        let backhaul = |n: usize| format!("127.0.0.1:{}", 5000 + n);
        let mut mobile = format!("proxy = [\"{}\"]\n", stage.lab.proxy_address());
        for (n, name) in names.iter().enumerate() {
            mobile += &format!(
                "[[bases]]\nname = {name:?}\naddress = \"{}\"\nkey = {:?}\n",
                listen(n),
                keys[n]
            );
            let mut base = format!("listen = [\"{}\"]\nallow = [{key:?}]\n", listen(n));
            if bases > 1 {
                base += &format!("[handoff]\nmode = \"anchor\"\nlisten = [{:?}]\n", backhaul(n));
            }
            for other in (0..names.len()).filter(|other| *other != n) {
                base += &format!(
                    "[[peers]]\nname = {:?}\nkey = {:?}\naddress = {:?}\n",
                    names[other],
                    keys[other],
                    backhaul(other)
                );
            }
            stage.spawn(&program, "base", name, hop, &base);
        }
        mobile += "[transparent]\nhost = true\n";
        stage.spawn(&program, "mobile", "mobile", hop, &mobile);
        stage.await_up();
        for process in &mut stage.processes {
            process.tracer = Some(Tracer::attach(process.daemon.id(), seed.child(&process.name)));
        }
        Some(stage)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn make_key(&self, name: &str) -> String {
        let keys = keyfile::generate().unwrap();
        keyfile::store(&self.path(name), &keys, Existing::Keep).unwrap();
        keys.public().to_string()
    }

    fn control(&self, name: &str) -> PathBuf {
        self.path(&format!("{name}.sock"))
    }

    fn spawn(&mut self, program: &Path, role: &str, name: &str, hop: &str, config: &str) {
        let (path, key) = (self.path(&format!("{name}.toml")), self.path(name));
        let control = self.control(name);
        let common = format!("hop = {hop:?}\nkey = {key:?}\ncontrol = {control:?}\n");
        fs::write(&path, common + config).unwrap();
        let host = if role == "base" { &self.lab.base } else { &self.lab.mobile };
        let mut command = host.command(program);
        command.arg(role).arg("--config").arg(&path);
        command.env("LASTHOP_LOG", "debug").env("NO_COLOR", "1");
        let daemon = Daemon::spawn(command).unwrap();
        self.processes.push(Process { tracer: None, daemon, name: name.to_owned() });
    }

    fn await_up(&mut self) {
        let start = Instant::now();
        let is_up = |reports: Vec<Report>| {
            reports
                .iter()
                .all(|r| r.role != "mobile" || r.associations.iter().any(|a| a.state == "up"))
        };
        while !self.reports().is_some_and(is_up) {
            self.processes.iter_mut().for_each(|process| process.daemon.check().unwrap());
            assert!(start.elapsed() < PATIENCE, "no association\n{}", self.said());
            std::thread::sleep(TICK);
        }
    }

    fn reports(&self) -> Option<Vec<Report>> {
        let names = self.processes.iter().map(|process| &process.name);
        names.map(|name| control::query(&self.control(name)).ok()).collect()
    }

    /// What a process answers, once, to the question how it is.
    pub(crate) fn asked(&self, n: usize) -> io::Result<Report> {
        control::query(&self.control(&self.processes[n].name)).map_err(io::Error::other)
    }

    /// Moves to base `n` from another, and waits until that is done or has failed. Whether it is done.
    pub(crate) fn go(&self, n: usize) -> bool {
        if self.is_at(n) {
            return false;
        }
        let (at, to) = (self.control("mobile"), self.processes[n].name.clone());
        let reply = control::request(&at, &Request::Handoff { to });
        // Where no base knows the session yet there is nothing to hand over, and no number.
        let Some(number) = reply.ok().and_then(|reply| reply.handoff) else { return false };
        let mut done = false;
        let is_over = || {
            let Some(latest) = control::query(&at).ok().and_then(|report| report.handoff) else {
                return false;
            };
            done = latest.state == HandoffState::Done;
            latest.number >= number && latest.state != HandoffState::UnderWay
        };
        let told = || format!("move {number} is not over\n{}\n{:#?}", self.said(), self.reports());
        wait_or(PATIENCE, is_over, told);
        done
    }

    /// Whether base `n` is the mobile's.
    pub(crate) fn is_at(&self, n: usize) -> bool {
        let mut report = None;
        let told = || {
            report = self.asked(self.processes.len() - 1).ok();
            report.is_some()
        };
        wait_or(PATIENCE, told, || format!("the mobile does not answer\n{}", self.said()));
        let bases = report.into_iter().flat_map(|report| report.bases);
        bases.into_iter().any(|base| base.current && base.name == self.processes[n].name)
    }

    /// Whether the mobile moves: then a connection may be reset.
    pub(crate) fn has_moves(&self) -> bool {
        self.processes.len() > 2
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
        let mobile = self.reports().unwrap().pop().unwrap();
        mobile.associations.into_iter().next().unwrap()
    }

    /// System calls of each process until now.
    pub(crate) fn calls(&self) -> Vec<u64> {
        self.tracers().map(Tracer::calls).collect()
    }

    /// The number of each process.
    pub(crate) fn ids(&self) -> Vec<u32> {
        self.processes.iter().map(|process| process.daemon.id()).collect()
    }

    /// What each process has said.
    pub(crate) fn words(&self) -> Vec<String> {
        self.processes.iter().map(|process| process.daemon.said()).collect()
    }

    /// A client at the mobile, by the proxy or intercepted.
    pub(crate) fn client(&self, intercepted: bool) -> Client {
        let proxy: SocketAddr = self.lab.proxy_address();
        let via = if intercepted { Via::Direct } else { Via::Socks5(proxy) };
        Client::new(&self.lab.mobile, via, self.server.address())
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
        let said = |p: &Process| format!("{} said:\n{}\n", p.name, p.daemon.said());
        self.processes.iter().map(said).fold(self.befell(), |all, one| all + &one)
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
            if now.descriptors == expects.descriptors || start.elapsed() > PATIENCE / 4 {
                return now;
            }
            last = now;
        }
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
            assert_eq!(ended, Some(0), "{}: {}", process.name, process.daemon.said());
        }
        for (host, before) in [&self.lab.base, &self.lab.mobile].into_iter().zip(&self.before) {
            wait_or(
                PATIENCE,
                || picture(host) == *before,
                || format!("this is left, or lost: {:#?}", picture(host).difference(before)),
            );
        }
    }
}

/// Packet rules and routes of a host.
fn picture(host: &Netns) -> kept::Host {
    let mut all = kept::Host::of(host).unwrap();
    // The kernel's own come and go as addresses are found to be nobody else's.
    all.routes.retain(|line| !line.contains(" proto kernel "));
    all
}
