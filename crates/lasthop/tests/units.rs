//! The services as their units start them, with the capabilities that the units leave them and no
//! other.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::fs::{self, File};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use lasthop_control::{self as control, Report};
use lasthop_kernel::netns::{Netns, NetnsError};

const PATIENCE: Duration = Duration::from_secs(60);
const LASTHOP: &str = env!("CARGO_BIN_EXE_lasthop");
const UNITS: [(&str, &str); 4] = [
    ("base", include_str!("../../../packaging/systemd/lasthop-base.service")),
    ("mobile", include_str!("../../../packaging/systemd/lasthop-mobile.service")),
    ("agent", include_str!("../../../packaging/systemd/lasthop-agent@.service")),
    ("helper", include_str!("../../../packaging/systemd/lasthop-helper.service")),
];
/// The capabilities that units name, and their numbers (capabilities(7)).
const CAPABILITIES: [(&str, u32); 2] = [("CAP_NET_ADMIN", 12), ("CAP_NET_RAW", 13)];

fn unit(role: &str) -> &'static str {
    UNITS.iter().find(|(name, _)| *name == role).unwrap().1
}

/// What a unit says of `key`.
fn said<'a>(unit: &'a str, key: &str) -> &'a str {
    unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('=')).unwrap()
}

/// A network namespace and a folder in place of /etc and /run.
struct Sandbox {
    netns: Netns,
    folder: PathBuf,
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Sandbox {
    /// None where there are no namespaces, or one of `programs` is missing.
    fn new(name: &str, programs: &[&str]) -> Option<Self> {
        for program in [&["setpriv"], programs].concat() {
            if !lasthop_testing::is_installed(program) {
                return None;
            }
        }
        let netns = lasthop_testing::or_skip(Netns::anonymous(), NetnsError::is_unavailable)?;
        netns.ip("link set lo up").unwrap();
        let folder = std::env::temp_dir().join(format!("lasthop-{name}-{}", std::process::id()));
        fs::create_dir_all(folder.join("run/lasthop")).unwrap();
        fs::create_dir_all(folder.join("etc/lasthop")).unwrap();
        Some(Self { netns, folder })
    }

    fn etc(&self, name: &str) -> PathBuf {
        self.folder.join("etc/lasthop").join(name)
    }

    fn socket(&self, role: &str) -> PathBuf {
        self.folder.join(format!("run/lasthop/{role}.sock"))
    }

    /// Makes a key; its public half.
    fn key(&self, role: &str) -> String {
        let key = self.etc(&format!("{role}.key"));
        let out = Command::new(LASTHOP).arg("keygen").arg("--out").arg(key).output().unwrap();
        assert!(out.status.success());
        String::from_utf8(out.stdout).unwrap().trim().to_owned()
    }

    /// Starts a service as its unit says.
    fn start(&self, role: &'static str) -> Service {
        let unit = unit(role);
        let bounds = said(unit, "CapabilityBoundingSet");
        assert_eq!(said(unit, "AmbientCapabilities"), bounds, "{role}");
        let allowed: String = bounds
            .split(' ')
            .filter_map(|cap| cap.strip_prefix("CAP_"))
            .fold("-all".to_owned(), |list, cap| format!("{list},+{}", cap.to_lowercase()));
        let (etc, run) = (self.folder.join("etc"), self.folder.join("run"));
        let line = said(unit, "ExecStart")
            .replace("/usr/bin/lasthop", LASTHOP)
            .replace("/etc", etc.to_str().unwrap())
            .replace("/run", run.to_str().unwrap())
            .replace("%i", "test")
            .replace("$LASTHOP_HELPER", "--address 10.9.0.7");
        let log = self.folder.join(format!("{role}.log"));
        // Root has what the bounding set leaves it.
        let child = self
            .netns
            .command("setpriv")
            .arg(format!("--bounding-set={allowed}"))
            .arg("--inh-caps=-all")
            .arg("--no-new-privs")
            .args(line.split(' '))
            .env("XDG_RUNTIME_DIR", run)
            .env_remove("LASTHOP_LOG")
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Service { role, child, log, allowed: mask(bounds) }
    }
}

/// The set of capabilities as the kernel writes it.
fn mask(names: &str) -> u64 {
    let number = |name: &str| CAPABILITIES.iter().find(|(known, _)| *known == name).unwrap().1;
    names.split(' ').filter(|name| !name.is_empty()).fold(0, |set, name| set | 1 << number(name))
}

struct Service {
    role: &'static str,
    child: Child,
    log: PathBuf,
    allowed: u64,
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Service {
    /// Waits until `done` says what it waits for.
    fn until<T>(&mut self, done: impl Fn() -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(found) = done() {
                return found;
            }
            let ended = self.child.try_wait().unwrap();
            if ended.is_some() || start.elapsed() > PATIENCE {
                let log = fs::read_to_string(&self.log).unwrap();
                panic!("the {} is not ready ({ended:?}):\n{log}", self.role);
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// It has what its unit allows and no more.
    fn check_capabilities(&self) {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        for set in ["CapEff:", "CapPrm:", "CapBnd:"] {
            let value = status.lines().find_map(|line| line.strip_prefix(set)).unwrap().trim();
            assert_eq!(
                u64::from_str_radix(value, 16).unwrap(),
                self.allowed,
                "{} {set}",
                self.role
            );
        }
    }

    /// Ends it as the system does.
    fn stop(mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let child = &mut self.child;
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let Some(status) = child.try_wait().unwrap() {
                assert!(status.success(), "the {} ends with {status}", self.role);
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        panic!("the {} does not end", self.role);
    }
}

fn associated(path: &Path) -> Option<Report> {
    let report = control::query(path).ok()?;
    report.associations.iter().any(|association| association.state == "up").then_some(report)
}

#[test]
fn base_and_mobile_associate_without_any_capability() {
    let Some(world) = Sandbox::new("units-ends", &[]) else { return };
    let (base_key, mobile_key) = (world.key("base"), world.key("mobile"));
    let (base, mobile) = (world.etc("base.key"), world.etc("mobile.key"));
    fs::write(
        world.etc("base.toml"),
        format!("key = {base:?}\nallow = [{mobile_key:?}]\nlisten = [\"127.0.0.1:4433\"]\n"),
    )
    .unwrap();
    fs::write(
        world.etc("mobile.toml"),
        format!("key = {mobile:?}\nbase = \"127.0.0.1:4433\"\nbase_key = {base_key:?}\n"),
    )
    .unwrap();
    let mut services = ["base", "mobile"].map(|role| world.start(role));
    for service in &mut services {
        let socket = world.socket(service.role);
        service.until(|| associated(&socket));
    }
    let reload = said(unit("base"), "ExecReload").replace("/usr/bin/lasthop", LASTHOP);
    let mut words = reload.split(' ');
    let reload = world
        .netns
        .command(words.next().unwrap())
        .args(words)
        .env("XDG_RUNTIME_DIR", world.folder.join("run"))
        .output()
        .unwrap();
    assert!(reload.stdout.starts_with(b"mobiles: 0 added"), "{reload:?}");
    for service in services {
        assert_eq!(service.allowed, 0);
        service.check_capabilities();
        service.stop();
    }
}

#[test]
fn the_agent_needs_no_more_than_its_two_capabilities() {
    let Some(world) = Sandbox::new("units-agent", &["nft"]) else { return };
    let Some(other) = Sandbox::new("units-agent-other", &[]) else { return };
    for name in ["fixed0", "mobile0"] {
        world.netns.veth(name, &other.netns, name).unwrap();
        world.netns.ip(&format!("link set {name} up")).unwrap();
        other.netns.ip(&format!("link set {name} up")).unwrap();
    }
    let config = "schemes = [\"snoop\"]\nfixed_if = \"fixed0\"\nmobile_if = \"mobile0\"\n\
                  bridge = \"br0\"\n";
    fs::write(world.etc("agent-test.toml"), config).unwrap();
    let mut agent = world.start("agent");
    let socket = world.socket("agent");
    let report = agent.until(|| control::query(&socket).ok());
    assert_eq!(report.agent.unwrap().schemes, ["snoop"]);
    let rules = || world.netns.command("nft").args(["list", "tables", "bridge"]).output().unwrap();
    agent.until(|| (!rules().stdout.is_empty()).then_some(()));
    agent.check_capabilities();
    agent.stop();
    assert!(rules().stdout.is_empty(), "packet rules are left: {:?}", rules());
    assert!(world.netns.interfaces().unwrap().contains(&"br0".to_owned()), "the bridge stays");
}

#[test]
fn the_helper_needs_no_more_than_its_two_capabilities() {
    let Some(world) = Sandbox::new("units-helper", &["nft"]) else { return };
    let base = world.etc("base.key");
    let (_, mobile_key) = (world.key("base"), world.key("mobile"));
    let mut helper = world.start("helper");
    let socket = world.socket("helper");
    helper.until(|| fs::metadata(&socket).ok().filter(|m| m.file_type().is_socket()));
    helper.check_capabilities();
    let other = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=";
    let config = format!(
        "key = {base:?}\nallow = [{mobile_key:?}]\nlisten = [\"127.0.0.1:4433\"]\n\
         [handoff]\nmode = \"migrate\"\nlisten = [\"127.0.0.1:4434\"]\nhelper = {socket:?}\n\
         [[peers]]\nkey = \"{other}\"\naddress = \"127.0.0.1:4435\"\n\
         [[mobiles]]\nkey = {mobile_key:?}\naddress = [\"10.9.0.7\"]\n"
    );
    fs::write(world.etc("base.toml"), config).unwrap();
    let mut base = world.start("base");
    let asked = world.socket("base");
    base.until(|| control::query(&asked).ok());
    let said = fs::read_to_string(&base.log).unwrap();
    assert!(!said.contains("WARN") && !said.contains("ERROR"), "the base is not content:\n{said}");
    base.stop();
    helper.stop();
}
