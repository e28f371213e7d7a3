//! The compose file of `packaging/compose`: what it brings up is a fleet that serves a mobile, and whose bases can be
//! restarted one after the other.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;
mod services;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::Duration;

use lasthop_lab::arrivals::Watched;
use lasthop_lab::client::{Client, Stop, Via};
use lasthop_lab::process::{self, Daemon};
use lasthop_lab::transfer::ENDLESS;
use lasthop_lab::{LabError, http};
use lasthop_testing::wait_or;
use lasthop_units::Seed;
use serde_json::Value;

use services::{GATEWAY, Hosts};

const PATIENCE: Duration = Duration::from_secs(60);
const BASES: [&str; 3] = ["b1", "b2", "b3"];
const SEED: Seed = Seed::from_u64(7);

/// What `lasthop` prints in a namespace.
fn lasthop(hosts: &Hosts, program: &Path, words: &[&str]) -> Result<String, LabError> {
    let mut command = hosts.wire.command(program);
    command.args(words);
    process::run(command)
}

fn objects(text: &str) -> Vec<Value> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// EMP-1: a fleet of containers comes up by itself, and loses no connection when each of its bases is restarted.
#[test]
fn a_fleet_comes_up_and_is_restarted_base_by_base_under_a_download() {
    let Some(program) = common::program() else { return };
    if rustix::process::geteuid().as_raw() != 0 {
        return lasthop_testing::skip("needs root, for namespaces and addresses of its own");
    }
    let folder = tempfile::tempdir().unwrap();
    let compose = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/compose/compose.yaml");
    let mut hosts = Hosts::new(&compose, program.parent().unwrap(), folder.path());
    let _etcd = hosts.start("etcd").expect("etcd-server");
    let fleet = hosts.volume("fleet").join("fleet.toml").display().to_string();
    // It is started again until etcd is there, as its `restart` says.
    while hosts.try_run("init").is_err() {
        thread::sleep(Duration::from_millis(200));
    }
    let mut bases: Vec<Daemon> = BASES.iter().map(|base| hosts.start(base).unwrap()).collect();
    let listed = |hosts: &Hosts| {
        objects(
            &lasthop(hosts, &program, &["fleet", "list", "--json", "--fleet", &fleet])
                .unwrap_or_default(),
        )
    };
    let are_up = |hosts: &Hosts| {
        let up =
            |one: &&Value| one["kind"] == "base" && one["alive"] == true && one["ready"] == true;
        listed(hosts).iter().filter(up).count() == BASES.len()
    };
    let said = |bases: &[Daemon]| bases.iter().map(Daemon::said).collect::<Vec<_>>().join("\n");
    wait_or(PATIENCE, || are_up(&hosts), || format!("{:?}\n{}", listed(&hosts), said(&bases)));

    let address = "172.30.0.107";
    let add = ["fleet", "add-mobile", "train7", "--address", address, "--fleet", &fleet];
    let folder_of_mobile = folder.path().join("mobile");
    fs::create_dir(&folder_of_mobile).unwrap();
    let mut command = hosts.wire.command(&program);
    command.args(add).current_dir(&folder_of_mobile);
    process::run(command).unwrap();
    let host = hosts.attach("mobile", "172.30.0.50".parse().unwrap());
    let mut command = hosts.wire.command("tc");
    let limit = "qdisc add dev mobile root tbf rate 20mbit burst 64k latency 50ms";
    command.args(limit.split(' '));
    process::run(command).unwrap();
    let mut command = host.command(&program);
    command.args(["mobile", "--config", "train7.toml", "--control", "mobile.sock"]);
    command.current_dir(&folder_of_mobile);
    let mobile = Daemon::spawn(command).unwrap();

    let is_up = || mobile.said().contains("association up");
    wait_or(PATIENCE, is_up, || format!("{}\n{}", mobile.said(), said(&bases)));

    let server = http::start(&hosts.wire, SocketAddr::new(GATEWAY, 8000), SEED).unwrap();
    let proxy: SocketAddr = "127.0.0.1:1080".parse().unwrap();
    let client = Client::new(&host, Via::Socks5(proxy), server.address());
    let (received, stop) = (Watched::default(), Stop::default());
    let download = {
        let (received, stop) = (received.clone(), stop.clone());
        thread::spawn(move || client.download(ENDLESS, &received, &stop, PATIENCE))
    };
    let total = || received.lock().total().get();
    wait_or(PATIENCE, || total() > 0, || format!("{}\n{}", mobile.said(), said(&bases)));
    for base in 0..BASES.len() {
        let before = total();
        bases[base].ask_to_end();
        wait_or(PATIENCE, || bases[base].ended().unwrap().is_some(), || said(&[]));
        bases[base] = hosts.start(BASES[base]).unwrap();
        wait_or(PATIENCE, || are_up(&hosts), || said(&bases));
        wait_or(PATIENCE, || total() > before, || format!("{}\n{}", mobile.said(), said(&bases)));
    }
    // What watches it sees all three.
    let _prometheus = hosts.start("prometheus").expect("prometheus");
    let seen = || {
        let mut command = hosts.wire.command("curl");
        command.args(["-s", "--max-time", "2", "http://172.30.0.20:9090/api/v1/query?query=up"]);
        let answer = process::run(command).unwrap_or_default();
        let answer: Value = serde_json::from_str(&answer).unwrap_or_default();
        let up = |series: &&Value| series["value"][1] == "1";
        answer["data"]["result"].as_array().map_or(0, |all| all.iter().filter(up).count())
    };
    wait_or(PATIENCE, || seen() == BASES.len(), || format!("{} bases are seen", seen()));
    stop.set();
    download.join().unwrap().unwrap();
    let received = received.lock();
    assert!(received.is_prefix_of(SEED), "other bytes than were sent");
}
