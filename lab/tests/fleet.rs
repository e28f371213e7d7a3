//! A fleet that grows and shrinks while its bases run: etcd, agents, bases and a mobile, each a process of its own.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use common::scene::{PATIENCE, topology};
use lasthop_control::{self as control, Report};
use lasthop_daemon::keyfile::{self, Existing};
use lasthop_kernel::netns::Netns;
use lasthop_lab::capture::Capture;
use lasthop_lab::client::Via;
use lasthop_lab::process::{self, Daemon};
use lasthop_lab::roam::{Roam, WIRED, base_address, hop_address, own_address, peer_address};
use lasthop_lab::topology::Family;
use lasthop_lab::traffic::{Flow, Servers, Traffic};
use lasthop_testing::wait_or;
use lasthop_units::Seed;
use tempfile::TempDir;

const FAMILY: Family = Family::V4;
const PROXY: &str = "127.0.0.1:1080";
const TRAFFIC: [Traffic; 3] = [Traffic::Download, Traffic::Upload, Traffic::Idle];

/// Two ports that nobody has at the moment, and that the kernel gives to nobody who does not ask.
fn ports() -> [u16; 2] {
    let first = 10_000 + (std::process::id() % 1000) as u16 * 10;
    let mut free =
        (first..first + 10).filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    [free.next().unwrap(), free.next().unwrap()]
}

/// A fleet in etcd, and what runs of it. Ends in this order.
struct World {
    flows: Vec<Flow>,
    capture: Capture,
    mobile: Option<Daemon>,
    agents: Vec<Daemon>,
    bases: Vec<Option<Daemon>>,
    etcd: Daemon,
    servers: Servers,
    roam: Roam,
    lasthop: PathBuf,
    fleet: PathBuf,
    folder: TempDir,
}

impl World {
    /// A fleet of nobody.
    fn start() -> Option<Self> {
        let lasthop = common::program()?;
        let fleet = lasthop.with_file_name("lasthop-fleet");
        if !fleet.is_file() {
            lasthop_testing::skip(
                "no lasthop-fleet beside this test (cargo build -p lasthop-fleet)",
            );
            return None;
        }
        if !lasthop_testing::is_installed("etcd") {
            return None;
        }
        let roam = common::roam(&topology())?;
        let folder = tempfile::tempdir().unwrap();
        let address = |port| roam.server_address(FAMILY, port);
        let seed = Seed::from_u64(23);
        let servers = Servers::start(&roam.server, address(80), address(81), seed).unwrap();
        let capture = roam.capture().unwrap();
        let [clients, peers] = ports().map(|port| format!("http://127.0.0.1:{port}"));
        let mut etcd = Command::new("etcd");
        etcd.args(["--name", "m0", "--log-level", "error", "--data-dir"])
            .arg(folder.path().join("etcd"))
            .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
            .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &format!("m0={peers}")]);
        let world = Self {
            flows: Vec::new(),
            capture,
            mobile: None,
            agents: Vec::new(),
            bases: Vec::new(),
            etcd: Daemon::spawn(etcd).unwrap(),
            servers,
            roam,
            lasthop,
            fleet,
            folder,
        };
        let operator = world.dir("operator");
        let init = ["init", "trains", "--endpoints", &clients, "--folder", &operator];
        let made = || world.try_fleet(&init).is_ok();
        wait_or(PATIENCE, made, || format!("no etcd\n{}", world.etcd.said()));
        Some(world)
    }

    fn dir(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn try_fleet(&self, args: &[&str]) -> Result<String, lasthop_lab::LabError> {
        let mut command = Command::new(&self.fleet);
        command.args(args);
        process::run(command)
    }

    /// What the operator asks of the fleet.
    fn operate(&self, args: &[&str]) -> String {
        let file = self.dir("operator/fleet.toml");
        self.try_fleet(&[args, &["--fleet", &file]].concat())
            .unwrap_or_else(|error| panic!("{args:?}: {error}\n{}", self.said()))
    }

    /// The key of a base that is yet to join.
    fn key_of_base(&self, number: usize) -> String {
        let keys = keyfile::generate().unwrap();
        let folder = self.folder.path().join(format!("b{number}"));
        fs::create_dir_all(&folder).unwrap();
        keyfile::store(&folder.join("base.key"), &keys, Existing::Keep).unwrap();
        keys.public().to_string()
    }

    /// The next base joins, and starts.
    fn join(&mut self) {
        let number = self.bases.len() + 1;
        let (token, folder) = (self.operate(&["token"]), self.dir(&format!("b{number}")));
        let name = format!("b{number}");
        let [peer, hop] = [peer_address(FAMILY, number), hop_address(FAMILY, number)];
        let via = base_address(FAMILY, number).to_string();
        let [peer, hop] = [peer, hop].map(|address| address.to_string());
        let join = ["join", token.trim(), "--name", &name, "--peer", &peer, "--hop", &hop];
        let more = ["--via", &via, "--folder", &folder];
        self.try_fleet(&[&join[..], &more].concat()).unwrap();
        let text = format!(
            "key = \"{folder}/base.key\"\nlisten = [\"{hop}\"]\nfleet = \"{folder}/members.toml\"\n\
             control = \"{folder}/base.sock\"\nworkers = 2\n\
             [handoff]\nmode = \"migrate\"\nlisten = [\"{peer}\"]\nroute = \"announce\"\n\
             interface = \"{WIRED}\"\n"
        );
        let file = self.folder.path().join(format!("b{number}/base.toml"));
        fs::write(&file, text).unwrap();
        self.bases.push(None);
        self.start_base(number);
        let mut agent = Command::new(&self.fleet);
        let of_agent = format!("{folder}/fleet.toml");
        agent.args(["agent", "--fleet", &of_agent, "--control"]).arg(self.control(number));
        self.agents.push(Daemon::spawn(agent).unwrap());
    }

    fn start_base(&mut self, number: usize) {
        let file = self.folder.path().join(format!("b{number}/base.toml"));
        self.bases[number - 1] = Some(self.spawn(self.roam.base(number), "base", &file));
        let serves = || self.report(number).is_some();
        wait_or(PATIENCE, serves, || format!("base {number} does not serve\n{}", self.said()));
    }

    fn spawn(&self, host: &Netns, role: &str, file: &Path) -> Daemon {
        let mut command = host.command(&self.lasthop);
        command.arg(role).arg("--config").arg(file).env("NO_COLOR", "1");
        Daemon::spawn(command).unwrap()
    }

    fn control(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("b{number}/base.sock"))
    }

    fn report(&self, number: usize) -> Option<Report> {
        control::query(&self.control(number)).ok()
    }

    fn awaits(&self, what: &str, done: impl Fn(&Self) -> bool) {
        wait_or(PATIENCE, || done(self), || format!("{what}: not so\n{}", self.said()));
    }

    /// The mobile starts, which knows these bases.
    fn start_mobile(&mut self, bases: &[String]) {
        let folder = self.folder.path().display().to_string();
        let mut text = format!(
            "key = \"{folder}/train7.key\"\nproxy = [\"{PROXY}\"]\ncontrol = \"{folder}/mobile.sock\"\n"
        );
        for (number, key) in (1..).zip(bases) {
            let address = hop_address(FAMILY, number);
            text += &format!(
                "[[bases]]\nname = \"b{number}\"\naddress = \"{address}\"\nkey = \"{key}\"\n\
                 interface = \"radio{number}\"\n"
            );
        }
        let file = self.folder.path().join("mobile.toml");
        fs::write(&file, text).unwrap();
        self.mobile = Some(self.spawn(&self.roam.mobile, "mobile", &file));
    }

    fn open(&mut self) {
        for (n, kind) in TRAFFIC.iter().enumerate() {
            let (via, name) = (Via::Socks5(PROXY.parse().unwrap()), format!("{kind}-{n}"));
            let flow = self.servers.flow(*kind, &name, &self.roam.mobile, via, PATIENCE);
            self.flows.push(flow.unwrap());
        }
    }

    /// Every connection brings something from now on, and none broke.
    fn all_move(&mut self) {
        let (moment, deadline) = (Instant::now(), Instant::now() + PATIENCE);
        while !self.flows.iter().all(|flow| flow.has_moved_since(moment)) {
            let failures =
                self.flows.iter_mut().filter_map(|flow| flow.failure().map(str::to_owned));
            let broken: Vec<String> = failures.collect();
            assert!(broken.is_empty(), "{broken:?}\n{}", self.said());
            assert!(Instant::now() < deadline, "nothing moves any more\n{}", self.said());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn check_bytes(&mut self) {
        for flow in &mut self.flows {
            assert!(flow.sha256_ok(), "{}: wrong bytes", flow.kind());
        }
    }

    /// The server has seen no reset, and nobody who was not there.
    fn server_noticed_nothing(&self) {
        let seen = self.capture.take();
        assert!(!seen.any_reset() && seen.openings.is_empty(), "{seen:?}\n{}", self.said());
    }

    /// The mobile's connections go to a base.
    fn go(&mut self, to: usize) {
        self.roam.leave().unwrap();
        std::thread::sleep(Duration::from_millis(300));
        self.roam.arrive(to).unwrap();
        self.all_move();
        let connections =
            |world: &Self| world.report(to).map_or(0, |report| report.connections.len());
        self.awaits("connections are there", |world| connections(world) == TRAFFIC.len());
        self.all_move();
        self.server_noticed_nothing();
        self.check_bytes();
    }

    fn said(&self) -> String {
        let mut said = format!("etcd:\n{}\n", self.etcd.said());
        for (n, agent) in (1..).zip(&self.agents) {
            said += &format!("agent {n}:\n{}\n", agent.said());
        }
        for (n, base) in (1..).zip(&self.bases) {
            said +=
                &format!("base {n}:\n{}\n", base.as_ref().map(Daemon::said).unwrap_or_default());
        }
        said + &format!("mobile:\n{}\n", self.mobile.as_ref().map(Daemon::said).unwrap_or_default())
    }
}

/// FLT-1, FLT-5, SEC-5: a base that runs alone learns of a mobile with an address of its own, of a second base and of new keys of tickets;
/// the mobile hands over there and comes back when it is killed; and is out when it is revoked. No base is restarted for it.
#[test]
fn a_fleet_grows_and_shrinks_and_no_base_is_restarted_for_it() {
    let Some(mut world) = World::start() else { return };
    let keys = [1, 2].map(|number| world.key_of_base(number));
    world.join();
    assert!(world.report(1).unwrap().peers.is_empty());

    let own = own_address(FAMILY);
    let folder = world.folder.path().display().to_string();
    let address = own.to_string();
    let add = ["add-mobile", "train7", "--address", &address, "--acknowledge", "mobile"];
    world.operate(&[&add[..], &["--folder", &folder]].concat());
    world.start_mobile(&keys);
    world.awaits("the mobile is served", |world| {
        let up = |report: Report| report.associations.iter().any(|a| a.state == "up");
        world.report(1).is_some_and(up)
    });
    world.open();
    world.all_move();
    let seen = world.capture.take();
    assert_eq!(seen.openings.len(), TRAFFIC.len(), "{seen:?}");
    assert!(seen.openings.keys().all(|flow| flow.client.ip() == own), "{seen:?}");

    world.join();
    let knows = |world: &World, base: usize| {
        world.report(base).is_some_and(|of| of.peers.len() == 1 && of.peers.iter().all(|p| p.up))
    };
    for base in [1, 2] {
        world.awaits("the bases know each other", |world| knows(world, base));
    }
    world.go(2);

    // What was made with the keys before is of no use any more.
    world.operate(&["rotate", "--forget"]);
    for base in [1, 2] {
        let read = |world: &World| {
            let folder = world.folder.path().join(format!("b{base}"));
            let named = fs::read_to_string(folder.join("members.toml")).unwrap();
            let said = world.bases[base - 1].as_ref().unwrap().said();
            named.contains("tickets-2.key") && said.contains("keys=1 added, 1 removed")
        };
        world.awaits("the new key is read", read);
    }
    world.all_move();
    world.bases[1].as_mut().unwrap().kill();
    world.go(1);

    world.operate(&["revoke", "train7", "--why", "stolen"]);
    world.awaits("its connections end", |world| {
        let report = world.report(1).unwrap();
        report.connections.is_empty() && report.associations.is_empty()
    });
    let deadline = Instant::now() + PATIENCE;
    let mut resets = 0;
    while resets < TRAFFIC.len() {
        assert!(Instant::now() < deadline, "the servers are not told\n{}", world.said());
        resets += world.capture.take().resets_in.len();
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(world.bases[0].as_mut().unwrap().check().is_ok());
}
