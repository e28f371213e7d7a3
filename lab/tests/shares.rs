//! Hosts behind a mobile share its radio, whatever each does with it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::net::IpAddr;
use std::process::{Child, Command, Stdio};

use common::tun::Scene;
use lasthop_kernel::netns::Netns;
use lasthop_lab::LabError;
use lasthop_lab::http;
use lasthop_lab::topology::Family;
use lasthop_units::Seed;

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
