//! The services of a compose file, as processes without containers: each in a network namespace with its address, its
//! volumes in a folder, and the programs of this build and this host in place of images.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::Command;

use lasthop_kernel::netns::Netns;
use lasthop_lab::LabError;
use lasthop_lab::process::{self, Daemon};
use serde::Deserialize;

/// Where the image has what `packaging/container` has.
const SCRIPTS: &str = "/usr/lib/lasthop";
/// The wired interface of every service.
const WIRED: &str = "eth0";
/// The host's address on the network of the services.
pub(crate) const GATEWAY: IpAddr = IpAddr::V4(Ipv4Addr::new(172, 30, 0, 1));

#[derive(Deserialize)]
pub(crate) struct Compose {
    services: BTreeMap<String, Service>,
    volumes: BTreeMap<String, Empty>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Empty {}

#[derive(Clone, Deserialize)]
struct Service {
    image: String,
    #[serde(default)]
    entrypoint: Vec<String>,
    #[serde(default)]
    command: Vec<String>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    #[serde(default)]
    volumes: Vec<String>,
    #[serde(default)]
    sysctls: BTreeMap<String, String>,
    networks: BTreeMap<String, Attached>,
}

#[derive(Clone, Deserialize)]
struct Attached {
    ipv4_address: IpAddr,
}

/// The hosts of a compose file on one wire.
pub(crate) struct Hosts {
    compose: Compose,
    source: PathBuf,
    programs: PathBuf,
    folder: PathBuf,
    /// The wire, with an address of its own.
    pub(crate) wire: Netns,
    hosts: BTreeMap<String, Netns>,
}

impl Hosts {
    /// Of the compose file `source`, with the programs in a folder, and volumes in another.
    pub(crate) fn new(source: &Path, programs: &Path, folder: &Path) -> Self {
        let compose: Compose = serde_json::from_str(&json(source)).expect("a compose file");
        let wire = Netns::anonymous().expect("a namespace");
        wire.ip("link set lo up\nlink add wire type bridge stp_state 0 mcast_snooping 0\n")
            .expect("a bridge");
        wire.interface_up("wire", &[(GATEWAY, 24)]).expect("the bridge's address");
        // As by default on hosts of containers, where a bridge is: who says unasked that an address is his is believed.
        wire.sysctl("ipv4.conf.wire.arp_accept", "1").expect("a sysctl");
        let (source, programs, folder) =
            (source.to_owned(), programs.to_owned(), folder.to_owned());
        Self { compose, source, programs, folder, wire, hosts: BTreeMap::new() }
    }

    /// One more host on the wire.
    pub(crate) fn attach(&self, name: &str, address: IpAddr) -> Netns {
        let host = Netns::anonymous().expect("a namespace");
        host.ip("link set lo up\n").expect("the loopback");
        host.veth(WIRED, &self.wire, name).expect("a wire");
        self.wire.ip(&format!("link set {name} master wire up\n")).expect("a port");
        host.interface_up(WIRED, &[(address, 24)]).expect("an address");
        host.route(None, GATEWAY).expect("a route");
        host
    }

    /// Where a volume is, or a file beside the compose file.
    pub(crate) fn volume(&self, name: &str) -> PathBuf {
        if name.contains('/') {
            return self.source.parent().expect("its folder").join(name);
        }
        assert!(self.compose.volumes.contains_key(name), "no volume {name}");
        let folder = self.folder.join(name);
        fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    /// A service's command, where its image has one of its own or says it; none if this host has no such program.
    fn command(&mut self, name: &str) -> Option<Command> {
        let service = self.compose.services[name].clone();
        let mut words = service.entrypoint;
        if words.is_empty() {
            words.push(service.image.rsplit('/').next().expect("a name").to_owned());
        }
        words.extend(service.command);
        let mut mounts = vec![(SCRIPTS.to_owned(), container())];
        for volume in &service.volumes {
            let mut parts = volume.split(':');
            let (from, to) = (parts.next().expect("a source"), parts.next().expect("a target"));
            mounts.push((to.to_owned(), self.volume(from)));
        }
        let here = |text: &str| {
            let text = text.replace("$$", "$");
            mounts.iter().fold(text, |text, (from, to)| moved(&text, from, to))
        };
        let words: Vec<String> = words.iter().map(|word| here(word)).collect();
        let path =
            format!("{}:{}", self.programs.display(), std::env::var("PATH").unwrap_or_default());
        let program = std::env::split_paths(&path).map(|folder| folder.join(&words[0]));
        let program =
            program.chain([PathBuf::from(&words[0])]).find(|program| program.is_file())?;
        let address = service.networks["wired"].ipv4_address;
        if !self.hosts.contains_key(name) {
            let host = self.attach(name, address);
            for (key, value) in &service.sysctls {
                let key = key.strip_prefix("net.").expect("one of the network's");
                host.sysctl(key, value).expect("a sysctl");
            }
            self.hosts.insert(name.to_owned(), host);
        }
        let mut command = self.hosts[name].command(program);
        command.args(&words[1..]).env("PATH", path);
        command.envs(service.environment.iter().map(|(key, value)| (key, here(value))));
        Some(command)
    }

    /// Starts a service. None if this host has no such program.
    pub(crate) fn start(&mut self, name: &str) -> Option<Daemon> {
        self.command(name).map(|command| Daemon::spawn(command).expect("a process"))
    }

    /// Runs a service to its end.
    pub(crate) fn try_run(&mut self, name: &str) -> Result<String, LabError> {
        process::run(self.command(name).expect("a program"))
    }
}

/// A YAML file as JSON.
fn json(yaml: &Path) -> String {
    let script = "import json, sys, yaml; json.dump(yaml.safe_load(open(sys.argv[1])), sys.stdout)";
    let mut python = Command::new("python3");
    python.args(["-c", script]).arg(yaml);
    process::run(python).expect("a file in YAML, and python3-yaml")
}

/// What the image has beside packages.
fn container() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/container")
}

/// A text in which a path of a container is where that is here.
fn moved(text: &str, from: &str, to: &Path) -> String {
    let is_of_path = |c: char| c.is_alphanumeric() || "._-".contains(c);
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(from) {
        let (before, behind) = (&rest[..at], &rest[at + from.len()..]);
        let begins = !before.ends_with(|c| is_of_path(c) || c == '/');
        let ends = !behind.starts_with(is_of_path);
        out.push_str(before);
        match begins && ends {
            true => out.push_str(&to.display().to_string()),
            false => out.push_str(from),
        }
        rest = behind;
    }
    out + rest
}
