//! Hosts behind a mobile share its radio, whatever each does with it, and flows of packets by what their programs are worth.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::net::IpAddr;
use std::os::unix::fs::symlink;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use common::tun::Scene;
use lasthop_kernel::netns::Netns;
use lasthop_lab::LabError;
use lasthop_lab::http;
use lasthop_lab::process::Daemon;
use lasthop_lab::topology::{self, Family, Topology};
use lasthop_radio::{Errors, Loss, RadioConfig};
use lasthop_units::{Rate, Seed};
use serde_json::Value;

const ROUTER: [u8; 4] = [10, 1, 0, 1];
const HOST: [u8; 4] = [10, 1, 0, 5];
/// How long they download, in seconds, as curl wants it.
const LASTING: &str = "8";

/// Downloads for a while.
fn download(mut curl: Command, proxy: [&str; 2], url: &str) -> Child {
    curl.args(proxy);
    curl.args(["-s", "-o", "/dev/null", "-w", "%{size_download}", "--max-time", LASTING, url]);
    curl.stdout(Stdio::piped()).spawn().unwrap()
}

fn bytes(downloads: Vec<Child>) -> f64 {
    let said = downloads.into_iter().map(|child| child.wait_with_output().unwrap().stdout);
    said.map(|text| String::from_utf8(text).unwrap().parse::<f64>().unwrap()).sum()
}

/// SRP-35: one that downloads five files at once gets no more than the mobile itself with one.
#[test]
fn a_host_behind_a_mobile_gets_no_more_by_more_connections() {
    let Some(scene) = Scene::new(0.0) else { return };
    let host = common::permitted(Netns::anonymous().map_err(LabError::Netns));
    let Some(host) = host else { return };
    let mobile = &scene.lab.mobile;
    host.veth("eth0", mobile, "lan0").unwrap();
    for (netns, name, ip) in [(&host, "eth0", HOST), (mobile, "lan0", ROUTER)] {
        netns.interface_up(name, &[(IpAddr::from(ip), 24)]).unwrap();
    }
    host.route(None, ROUTER.into()).unwrap();
    mobile.sysctl("ipv4.ip_forward", "1").unwrap();
    let server = scene.lab.server_address(Family::V4);
    let _server = http::start(&scene.lab.fixed, server, Seed::from_u64(1)).unwrap();
    let _base = scene.base("tun", "masquerade = true", "");
    let _mobile = scene.mobile("[transparent]\ninterfaces = [\"lan0\"]");
    let url = format!("http://{server}/bytes/1000000000");
    let five = (0..5).map(|_| download(host.command("curl"), ["--noproxy", "*"], &url)).collect();
    let proxy = ["--socks5-hostname", "127.0.0.1:1080"];
    let one = vec![download(mobile.command("curl"), proxy, &url)];
    let (one, five) = (bytes(one), bytes(five));
    // 20 Mbit/s for 8 s, not all of which curl takes.
    assert!(one + five > 12e6, "{one} and {five}");
    assert!((0.75..1.33).contains(&(one / five)), "{one} beside {five}");
}

/// The lower of two; 0 where there is nothing.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}

/// Downloads by UDP for some seconds at this rate, each by a program of another name from a server at another port: the
/// packets that came in the median second, since they do not all begin at once, and the median second's share of
/// packets that did not come.
fn download_by_udp(scene: &Scene, rate: &str, length: u32, programs: &[&str]) -> Vec<(f64, f64)> {
    let directory = tempfile::tempdir().unwrap();
    let fixed = scene.fixed(0);
    let all: Vec<(Daemon, Child)> = (5301..)
        .zip(programs)
        .map(|(port, name)| {
            let port = port.to_string();
            let mut server = scene.lab.fixed.command("iperf3");
            server.args(["-s", "-1", "-p", &port]);
            let server = Daemon::spawn(server).unwrap();
            thread::sleep(Duration::from_millis(300));
            let program = directory.path().join(name);
            symlink("/usr/bin/iperf3", &program).unwrap();
            let mut client = scene.lab.mobile.command(program);
            client.args(["-c", &fixed.to_string(), "-p", &port, "-R", "-u", "-b", rate]);
            client.args(["-l", &length.to_string(), "-t", "6", "--json"]).stdout(Stdio::piped());
            (server, client.spawn().unwrap())
        })
        .collect();
    let said = all.into_iter().map(|(_server, client)| client.wait_with_output().unwrap().stdout);
    said.map(|json| {
        let report: Value = serde_json::from_slice(&json).unwrap_or_default();
        let intervals = report["intervals"].as_array();
        let of = |key| -> Option<Vec<f64>> {
            intervals?.iter().map(|part| part["sum"][key].as_f64()).collect()
        };
        let (Some(packets), Some(lost)) = (of("packets"), of("lost_packets")) else {
            panic!("{}", String::from_utf8_lossy(&json));
        };
        let seconds = || packets.iter().zip(&lost);
        let came = seconds().map(|(packets, lost)| packets - lost);
        (median(came), median(seconds().map(|(packets, lost)| lost / packets)))
    })
    .collect()
}

/// SRP-33: packets towards a mobile are sorted by what it says of its programs.
#[test]
fn packets_of_programs_are_worth_what_their_mobile_says() {
    // A radio so slow that a busy machine is not what is too little for both, and with a queue that nothing finds full
    // where the emulator was kept waiting.
    let mut radio = topology::link(Rate::from_mbps(6), Duration::from_millis(20), 2000);
    radio.losses.push(Loss::lose(Errors::Uniform(0.1)));
    let topology = Topology { radio: RadioConfig::both(radio), ..Topology::default() };
    let Some(scene) = Scene::with(&topology) else { return };
    let _base = scene.base("tun", "masquerade = true", "");
    let _mobile = scene.mobile(
        "[[priority]]\nprogram = \"favoured\"\npriority = 3\n\
         [[packets]]\nprogram = \"single\"\nclass = \"once\"\n",
    );
    // Without its first packet, which is sent once too, iperf3's server does not begin.
    let mut attempts = (0..5).map(|_| download_by_udp(&scene, "600k", 300, &["single", "usual"]));
    let got = attempts.find(|got| got.iter().all(|(packets, _)| *packets > 0.0)).unwrap();
    assert!((0.06..0.14).contains(&got[0].1) && got[1].1 < 0.01, "{got:?}");
    // They share what is too little for both, unless the machine was too slow to bring even that.
    let mut attempts = (0..3).map(|_| download_by_udp(&scene, "8M", 1000, &["favoured", "usual"]));
    let is_full =
        |got: &Vec<(f64, f64)>| got.iter().map(|(packets, _)| *packets).sum::<f64>() > 500.0;
    let got = attempts.find(is_full).unwrap();
    let ratio = got[0].0 / got[1].0;
    assert!((2.5..3.5).contains(&ratio), "{ratio}: {got:?}");
}
