//! Agents leave alone what is not theirs: the frames of hops that cross their bridge.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use common::helped::PATIENCE;
use common::program;
use lasthop_kernel::netns::Netns;
use lasthop_lab::agent::helper::Helper;
use lasthop_lab::agent::path::{Behind, HOST_IF, Path, Settings};
use lasthop_lab::arrivals::Watched;
use lasthop_lab::client::{Client, Stop, Via};
use lasthop_lab::content::{digest_of_prefix, hex};
use lasthop_lab::http;
use lasthop_lab::process::Daemon;
use lasthop_lab::service::Server;
use lasthop_lab::topology::Family;
use lasthop_units::{AgentRole, Seed};

const SIZE: u64 = 300_000;
const SEED: Seed = Seed::from_u64(7);
const PROXY: &str = "127.0.0.1:1080";

/// `lasthop ROLE` on the only interface of a host.
fn daemon(host: &Netns, program: &std::path::Path, role: &str, hop: &str, args: &[&str]) -> Daemon {
    let mut command = host.command(program);
    command.args([role, "--hop", hop, "--seal", "none"]).args(args).env("NO_COLOR", "1");
    Daemon::spawn(command).unwrap()
}

/// A hop of frames of its own between the two hosts of a path, and a server at the fixed host.
struct Scene {
    base: Daemon,
    mobile: Daemon,
    client: Client,
    _server: Server,
}

impl Scene {
    fn new(path: &Path, program: &std::path::Path, hop: &str) -> Self {
        let address = path.server_address(Family::V4);
        let server = http::start(&path.fixed, address, SEED).unwrap();
        let allow = address.ip().to_string();
        let args = ["--carrier", "ethernet", "--interface", HOST_IF, "--allow-target", &allow];
        let base = daemon(&path.fixed, program, "base", hop, &args);
        let to = format!("ether:{HOST_IF}");
        let args = ["--base", &to, "--proxy", PROXY];
        let mut mobile = daemon(&path.mobile, program, "mobile", hop, &args);
        let proxy: SocketAddr = PROXY.parse().unwrap();
        let deadline = Instant::now() + PATIENCE;
        while path.mobile.enter(|| TcpStream::connect(proxy).is_err()).unwrap() {
            mobile.check().unwrap();
            assert!(Instant::now() < deadline, "the mobile does not start");
            thread::sleep(Duration::from_millis(10));
        }
        let client = Client::new(&path.mobile, Via::Socks5(proxy), address);
        Self { base, mobile, client, _server: server }
    }

    /// A download whose every byte is checked, while these agents are at work.
    fn downloads(&mut self, agents: &str) {
        let received = Watched::default();
        let result = self.client.download(SIZE, &received, &Stop::default(), PATIENCE);
        self.base.check().unwrap();
        self.mobile.check().unwrap();
        assert!(result.is_ok(), "with {agents}: {result:?}");
        assert_eq!(hex(&received.lock().digest()), hex(&digest_of_prefix(SEED, SIZE)), "{agents}");
    }
}

fn path() -> Option<Path> {
    let plain = Settings { wire: None, radio: None, behind: Behind::Edge, ..Settings::default() };
    common::path(&plain)
}

#[test]
fn bare_mobile_tcp_crosses_agents_of_every_scheme_and_chains_of_them() {
    let (Some(program), Some(path)) = (program(), path()) else { return };
    let mut scene = Scene::new(&path, &program, "mobile-tcp");
    scene.downloads("no agent");
    let alone = AgentRole::all().into_iter().map(|role| vec![role.to_string()]);
    let chains = ["snoop rwc", "delayed-dupacks freeze --end mobile"];
    let chains = chains.map(|chain| chain.split(' ').map(str::to_owned).collect());
    for schemes in alone.chain(chains) {
        let mut args: Vec<&str> = schemes.iter().map(String::as_str).collect();
        // Some act at either end, and have to be told at which.
        let all = AgentRole::all().into_iter().flat_map(|role| role.scheme.placements());
        let has_two_ends =
            all.into_iter().any(|at| at.args.starts_with(&args) && at.args.contains(&"--end"));
        if has_two_ends {
            args.extend(["--end", "base"]);
        }
        let _agent = Helper::start(&path.base, &program, &args, PATIENCE).unwrap();
        scene.downloads(&schemes.join(" "));
    }
}

#[test]
fn hops_of_frames_cross_two_agents_that_speak_to_each_other() {
    let (Some(program), Some(path)) = (program(), path()) else { return };
    for hop in ["mobile-tcp", "srp"] {
        let start = |bridge: &Netns, end: &str| {
            let args = ["delayed-dupacks", "--end", end];
            Helper::start(bridge, &program, &args, PATIENCE).unwrap()
        };
        let mut base = start(&path.base, "base");
        let mut edge = start(path.behind.as_ref().unwrap(), "mobile");
        for agent in [&mut base, &mut edge] {
            agent.wait_until(PATIENCE, |report| report.peer.is_some_and(|there| there)).unwrap();
        }
        Scene::new(&path, &program, hop).downloads(hop);
    }
}
