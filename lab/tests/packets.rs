//! What is not TCP: a mobile's packets go through a TUN device, across a radio that loses, and leave at the base's.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::Output;
use std::thread;
use std::time::Duration;

use common::tun::{BASE, OWN, Scene};
use lasthop_kernel::netns::Netns;
use lasthop_lab::cell::{Carried, Plan, measure};
use lasthop_lab::client::Stop;
use lasthop_lab::process::Daemon;
use lasthop_lab::quic::Congestion;
use lasthop_lab::topology::Topology;
use lasthop_lab::voice;
use lasthop_radio::Errors;
use serde_json::Value;

/// The base's addresses on the wire.
const WIRED: [&str; 2] = ["10.0.1.1", "fd00:1::1"];
const ECHO: u16 = 7;

/// fixed host, which echoes -- base -- radio, which loses this share -- mobile
fn scene(loss: f64) -> Option<Scene> {
    let scene = Scene::new(loss)?;
    echo(&scene.lab.fixed);
    Some(scene)
}

fn text(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// Answers each datagram with whom it saw, and the datagram behind that.
fn echo(netns: &Netns) {
    let socket = netns.enter(|| UdpSocket::bind(("::", ECHO)).unwrap()).unwrap();
    thread::spawn(move || {
        let mut datagram = vec![0; 65_536];
        while let Ok((n, peer)) = socket.recv_from(&mut datagram) {
            let mut answer = format!("{} ", peer.ip().to_canonical()).into_bytes();
            answer.extend_from_slice(&datagram[..n]);
            let _ = socket.send_to(&answer, peer);
        }
    });
}

/// What share of datagrams of a length came back, and whom the server saw.
fn echoed(netns: &Netns, to: SocketAddr, count: usize, length: usize) -> (f64, String) {
    let from = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = netns.enter(|| UdpSocket::bind(from).unwrap()).unwrap();
    let (mut seen, mut back) = (String::new(), 0);
    let mut answer = vec![0; 65_536];
    for n in 0..count {
        let datagram: Vec<u8> = (0..length).map(|at| (at * 7 + n) as u8).collect();
        socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        socket.send_to(&datagram, to).unwrap();
        while let Ok((got, _)) = socket.recv_from(&mut answer) {
            let space = answer.iter().position(|byte| *byte == b' ').unwrap();
            seen = String::from_utf8(answer[..space].to_vec()).unwrap();
            if answer[space + 1..got] == datagram[..] {
                back += 1;
                break;
            }
        }
    }
    (back as f64 / count as f64, seen)
}

/// Of a radio that loses a tenth each way little is seen: by ping, by datagrams of all sizes, of both families.
#[test]
fn what_is_not_tcp_crosses_a_radio_that_loses() {
    let Some(scene) = scene(0.1) else { return };
    let mut base = scene.base("address", "", "");
    let mut mobile = scene.mobile("");
    for (n, own) in OWN.iter().enumerate() {
        let fixed = scene.fixed(n);
        let ping = scene.at_mobile("ping", &format!("-c 200 -i 0.01 -W 2 {fixed}"));
        let said = text(&ping);
        let lost: f64 = said
            .split(", ")
            .find_map(|part| part.split_once("% packet loss"))
            .map(|(share, _)| share.parse().unwrap())
            .unwrap_or_else(|| panic!("{said}"));
        // Without lasthop it is 19 %.
        assert!(lost <= 8.0, "{said}");
        let to = SocketAddr::new(fixed, ECHO);
        for length in [1, 100, 1200, 1400, 5000] {
            let (share, seen) = echoed(&scene.lab.mobile, to, 25, length);
            assert!(share >= 0.9, "{share} of {length} bytes to {to}");
            assert_eq!(seen, *own, "the server sees the mobile itself");
        }
    }
    let (up, down) = (scene.tun("mobile"), scene.tun("base"));
    assert!(up.from_kernel > 200 && down.to_kernel > 200, "{up:?} {down:?}");
    base.check().unwrap();
    mobile.check().unwrap();
    mobile.stop();
    base.stop();
    for netns in [&scene.lab.mobile, &scene.lab.base] {
        for args in ["rule", "-6 rule", "route show table all", "-6 route show table all"] {
            let left = text(&netns.command("ip").args(args.split(' ')).output().unwrap());
            assert!(!left.contains("1070") && !left.contains("lasthop0"), "{args}: {left}");
        }
    }
}

/// The programs that people use find out what they always do: names, routers, the rate, the path's MTU.
#[test]
fn programs_find_what_they_find_without() {
    let Some(scene) = scene(0.02) else { return };
    let _base = scene.base("address", "", "workers = 2");
    let _mobile = scene.mobile("");
    let fixed = scene.fixed(0);
    // The base is a router on the way, and says so.
    let route = text(&scene.at_mobile("traceroute", &format!("-n -q 2 -w 3 -m 4 {fixed}")));
    assert!(route.contains(BASE[0]) && route.contains(&fixed.to_string()), "{route}");
    // A server of names that knows one.
    let names = scene.lab.fixed.enter(|| UdpSocket::bind((fixed, 53)).unwrap()).unwrap();
    thread::spawn(move || {
        let mut query = [0; 512];
        while let Ok((n, peer)) = names.recv_from(&mut query) {
            // The header says that it is an answer with one record; the query's OPT record is left out.
            let end = 12 + query[12..n].iter().position(|byte| *byte == 0).unwrap() + 5;
            let mut answer = query[..end].to_vec();
            answer[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 77]);
            let _ = names.send_to(&answer, peer);
        }
    });
    let answer = text(&scene.at_mobile("dig", &format!("@{fixed} +short +tries=3 name.example A")));
    assert_eq!(answer.trim(), "192.0.2.77");
    // Half of what the radio carries arrives, nearly all of it.
    let mut server = scene.lab.fixed.command("iperf3");
    server.args(["-s", "-1", "-p", "5201"]);
    let _server = Daemon::spawn(server).unwrap();
    thread::sleep(Duration::from_millis(300));
    let args = format!("-c {fixed} -p 5201 -u -b 8M -l 1200 -t 3 --json");
    let run = scene.at_mobile("iperf3", &args);
    let report: Value = serde_json::from_slice(&run.stdout).unwrap_or_default();
    let lost = report["end"]["sum"]["lost_percent"].as_f64();
    assert!(lost.is_some_and(|lost| lost < 1.0), "{lost:?}: {}", text(&run));
    // What is too long for the device is answered as a router does.
    let big = |ip: &str| {
        let ping = scene
            .lab
            .fixed
            .command("ping")
            .args(["-c", "2", "-M", "do", "-s", "1400", ip])
            .output();
        text(&ping.unwrap())
    };
    let said = big(OWN[0]);
    assert!(said.contains("mtu = 1400") || said.contains("mtu=1400"), "{said}");
}

/// What is measured across a radio that loses a twentieth, by srp.
fn across(traffic: Carried) -> Option<(Plan, PathBuf)> {
    let program = common::program()?;
    // Whether the test may have one at all.
    common::lab(&Topology::default())?;
    let plan = Plan {
        topology: Topology::losing(Errors::Uniform(0.05)),
        traffic,
        measured: Duration::from_secs(3),
        ..Plan::default()
    };
    Some((plan, program))
}

/// A server and a client of QUIC that know nothing of lasthop: every byte is right.
#[test]
fn a_download_by_quic_crosses_a_radio_that_loses() {
    for congestion in [Congestion::Cubic, Congestion::Bbr] {
        let Some((plan, program)) = across(Carried::Quic(congestion)) else { return };
        let measured = measure(&plan, &program, &Stop::default()).unwrap();
        assert!(measured.sha256_ok && measured.total.get() > 500_000, "{:?}", measured.total);
    }
}

/// A call beside a download is heard.
#[test]
fn a_call_beside_a_download_is_heard() {
    let Some((plan, program)) = across(Carried::Tcp) else { return };
    let call = voice::call(&plan, &program, &Stop::default()).unwrap();
    assert!(call.sent > 100 && call.residual_loss() < 0.03, "{}", call.residual_loss());
}

/// A base that masquerades lets packets leave from its own address; answers find their way.
#[test]
fn a_base_that_masquerades_speaks_for_its_mobile() {
    let Some(scene) = scene(0.0) else { return };
    let _base = scene.base("tun", "masquerade = true", "");
    let _mobile = scene.mobile("tcp = true");
    for (n, wired) in WIRED.iter().enumerate() {
        let to = SocketAddr::new(scene.fixed(n), ECHO);
        let (share, seen) = echoed(&scene.lab.mobile, to, 5, 300);
        assert!(share >= 0.8, "{share}");
        assert_eq!(seen, *wired, "the server sees the base");
    }
    let ping = scene.at_mobile("ping", &format!("-c 3 -i 0.1 {}", scene.fixed(0)));
    assert!(text(&ping).contains(" 0% packet loss"), "{}", text(&ping));
}

/// Nobody reaches what the base's rules deny, nor speaks for another, nor comes into the base itself.
#[test]
fn packets_keep_to_the_rules_of_the_base() {
    let Some(scene) = scene(0.0) else { return };
    let denied = scene.fixed(0);
    let _base = scene.base("address", "", &format!("[targets]\ndeny = [\"{denied}\"]"));
    let _mobile = scene.mobile("");
    let said = text(&scene.at_mobile("ping", &format!("-c 2 -W 2 {denied}")));
    assert!(said.contains("Packet filtered"), "{said}");
    assert!(scene.refused("base", "target") >= 2);
    // The other family is not denied, and the base itself never reached.
    let said = text(&scene.at_mobile("ping", &format!("-c 2 -W 2 {}", scene.fixed(1))));
    assert!(said.contains(" 0% packet loss"), "{said}");
    let said = text(&scene.at_mobile("ping", &format!("-c 2 -W 2 {}", WIRED[1])));
    assert!(said.contains("100% packet loss"), "{said}");
    // Packets from an address that is another's.
    scene.lab.mobile.ip("addr add 10.9.0.99/32 dev lasthop0\n").unwrap();
    scene.lab.mobile.ip("rule add from 10.9.0.99 lookup 1070 pref 900\n").unwrap();
    let ping = format!("-c 2 -W 1 -I 10.9.0.99 {}", Ipv4Near(scene.fixed(0)));
    let said = text(&scene.at_mobile("ping", &ping));
    assert!(said.contains("100% packet loss"), "{said}");
    assert!(scene.refused("base", "spoofed") >= 2, "{:?}", scene.pair.status("base"));
}

/// The address after one of IPv4.
struct Ipv4Near(IpAddr);

impl std::fmt::Display for Ipv4Near {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let IpAddr::V4(ip) = self.0 else { return Err(std::fmt::Error) };
        std::net::Ipv4Addr::from_bits(ip.to_bits() + 1).fmt(f)
    }
}
