//! Base and mobile at work in a lab, each under a tracer.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use lasthop_control::{self as control, AssociationReport, Report};
use lasthop_daemon::keyfile::{self, Existing};
use lasthop_kernel::netns::Netns;
use lasthop_lab::arrivals::Watched;
use lasthop_lab::client::{Client, Via};
use lasthop_lab::process::{self, Daemon};
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

/// What the two processes have of the kernel.
#[derive(Debug)]
pub(crate) struct Holdings {
    /// Descriptors, by what they lead to.
    pub(crate) descriptors: [BTreeMap<String, usize>; 2],
    pub(crate) threads: [usize; 2],
    /// Bytes of memory in use by both.
    pub(crate) memory: u64,
}

pub(crate) struct Stage {
    // In the order in which they have to end.
    tracers: Option<[Tracer; 2]>,
    daemons: [Daemon; 2],
    server: Server,
    before: [String; 2],
    pub(crate) lab: Lab,
    folder: tempfile::TempDir,
}

impl Stage {
    /// None where a test may not have it.
    pub(crate) fn start(hop: &str, seed: Seed) -> Option<Self> {
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
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let keys = ["base", "mobile"].map(|name| {
            let keys = keyfile::generate().unwrap();
            keyfile::store(&at(name), &keys, Existing::Keep).unwrap();
            keys.public().to_string()
        });
        let (listen, proxy) = (lab.base_address(Family::V4), lab.proxy_address());
        let base = format!("listen = [\"{listen}\"]\nallow = [\"{}\"]\n", keys[1]);
        let mobile =
            format!("base = \"{listen}\"\nbase_key = \"{}\"\nproxy = [\"{proxy}\"]\n", keys[0]);
        let before = [&lab.base, &lab.mobile].map(picture);
        let start = |host: &Netns, role: &str, config: &str, more: &str| {
            let (path, key) = (at(&format!("{role}.toml")), at(role));
            let control = at(&format!("{role}.sock"));
            let config =
                format!("hop = {hop:?}\nkey = {key:?}\ncontrol = {control:?}\n{config}{more}");
            fs::write(&path, config).unwrap();
            let mut command = host.command(&program);
            command
                .arg(role)
                .arg("--config")
                .arg(&path)
                .env("LASTHOP_LOG", "debug")
                .env("NO_COLOR", "1");
            Daemon::spawn(command).unwrap()
        };
        let daemons = [
            start(&lab.base, "base", &base, ""),
            start(&lab.mobile, "mobile", &mobile, "[transparent]\nhost = true\n"),
        ];
        let mut stage = Self { daemons, tracers: None, server, before, lab, folder };
        stage.await_up();
        let trace =
            |n: usize| Tracer::attach(stage.daemons[n].id(), seed.child(["base", "mobile"][n]));
        stage.tracers = Some([trace(0), trace(1)]);
        Some(stage)
    }

    fn await_up(&mut self) {
        let start = Instant::now();
        while !self.reports().is_some_and(|[_, mobile]| {
            mobile.associations.iter().any(|association| association.state == "up")
        }) {
            self.daemons.iter_mut().for_each(|daemon| daemon.check().unwrap());
            assert!(start.elapsed() < PATIENCE, "no association\n{}", self.said());
            std::thread::sleep(TICK);
        }
    }

    fn reports(&self) -> Option<[Report; 2]> {
        let ask =
            |role: &str| control::query(&self.folder.path().join(format!("{role}.sock"))).ok();
        Some([ask("base")?, ask("mobile")?])
    }

    /// What all the contents are made of.
    pub(crate) fn seed(&self) -> Seed {
        self.server.seed()
    }

    /// Calls fail from here on, or no more.
    pub(crate) fn arm(&self, armed: bool) {
        self.tracers.iter().flatten().for_each(|tracer| tracer.arm(armed));
    }

    /// How often what befell which call of base and mobile.
    pub(crate) fn befell(&self) -> String {
        let mut said = String::new();
        for (role, tracer) in ["base", "mobile"].into_iter().zip(self.tracers.iter().flatten()) {
            let counts = tracer.counts();
            let all: u64 = counts.values().sum();
            said += &format!("  {role}: {all} faults:");
            for ((call, fault), count) in &counts {
                said += &format!(" {call} {fault} {count},");
            }
            said += "\n";
        }
        said
    }

    /// The association, as the mobile tells of it.
    pub(crate) fn association(&self) -> AssociationReport {
        let [_, mobile] = self.reports().unwrap();
        mobile.associations.into_iter().next().unwrap()
    }

    /// System calls of the base and of the mobile until now.
    pub(crate) fn calls(&self) -> [u64; 2] {
        self.tracers.as_ref().unwrap().each_ref().map(Tracer::calls)
    }

    /// The process numbers of the base and of the mobile.
    pub(crate) fn ids(&self) -> [u32; 2] {
        self.daemons.each_ref().map(Daemon::id)
    }

    /// What the base and the mobile have said.
    pub(crate) fn words(&self) -> [String; 2] {
        self.daemons.each_ref().map(Daemon::said)
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

    /// Both processes run.
    pub(crate) fn check(&self) {
        let run = self.tracers.iter().flatten().all(Tracer::is_running);
        assert!(run, "it has ended\n{}", self.said());
    }

    pub(crate) fn said(&self) -> String {
        let [base, mobile] = self.daemons.each_ref().map(Daemon::said);
        let befell = self.befell();
        format!("{befell}base said:\n{base}\nmobile said:\n{mobile}")
    }

    /// What the processes hold once no connection is left and that is `expected`, or stays as it is.
    pub(crate) fn holdings(&self, expected: Option<&Holdings>) -> Holdings {
        let idle = || {
            let reports = self.reports();
            reports.is_some_and(|reports| reports.iter().all(|r| r.connections.is_empty()))
        };
        wait_or(PATIENCE, idle, || format!("connections are left\n{}", self.said()));
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

    fn held(&self) -> Holdings {
        let ids = self.daemons.each_ref().map(Daemon::id);
        let memory = |id: u32| {
            let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
            let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
            line.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
        };
        let threads = |id: u32| fs::read_dir(format!("/proc/{id}/task")).unwrap().count();
        Holdings {
            descriptors: ids.map(descriptors),
            threads: ids.map(threads),
            memory: ids.into_iter().map(memory).sum(),
        }
    }

    /// Ends both, cleanly, and looks at what they leave.
    pub(crate) fn end(mut self) {
        let tracers = self.tracers.as_ref().unwrap();
        for tracer in tracers.iter().rev() {
            tracer.terminate();
            wait_or(PATIENCE, || !tracer.is_running(), || format!("it stays\n{}", self.said()));
        }
        for tracer in self.tracers.take().into_iter().flatten() {
            assert_eq!(tracer.ended(), Some(0), "{}", self.said());
        }
        for (host, before) in [&self.lab.base, &self.lab.mobile].into_iter().zip(&self.before) {
            wait_or(
                PATIENCE,
                || picture(host) == *before,
                || format!("this is left:\n{}\nof this:\n{before}", picture(host)),
            );
        }
    }
}

fn descriptors(id: u32) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{id}/fd")).unwrap().flatten() {
        let Ok(to) = fs::read_link(entry.path()) else { continue };
        let to = to.to_string_lossy();
        let kind = to.split_once(":[").map_or(&*to, |(kind, _)| kind);
        *found.entry(kind.to_owned()).or_default() += 1;
    }
    found
}

/// Packet rules and routes of a host.
fn picture(host: &Netns) -> String {
    let mut picture = String::new();
    for words in [
        "nft list ruleset",
        "ip rule",
        "ip -6 rule",
        "ip route show table all",
        "ip -6 route show table all",
    ] {
        let mut words = words.split(' ');
        let mut command = host.command(words.next().unwrap());
        command.args(words);
        // The kernel's own come and go as addresses are found to be nobody else's.
        let text = process::run(command).unwrap();
        let lines = text.lines().filter(|line| !line.contains(" proto kernel "));
        picture.extend(lines.map(|line| format!("{line}\n")));
    }
    picture
}
