//! Packets go on while the mobile moves from base to base.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use common::scene::Scene;
use lasthop_kernel::netns::Netns;
use lasthop_lab::client::Stop;
use lasthop_lab::roam::Settings;
use lasthop_lab::topology::Family;
use lasthop_lab::traffic::Traffic;

const DEAD_ZONE: Duration = Duration::from_millis(300);
const EVERY: Duration = Duration::from_millis(20);
const STAY: Duration = Duration::from_secs(2);
/// What a move may cost beside the dead zone: the new base's handshake, and what was under way in the old one.
const MOVE: Duration = Duration::from_millis(700);

/// Sends back what comes, to wherever it comes from: as the far end of a tunnel does whose near end roams.
fn echo(netns: &Netns, to: SocketAddr) {
    let socket = netns.enter(|| UdpSocket::bind(to).unwrap()).unwrap();
    thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..length], from);
        }
    });
}

/// Numbered datagrams from one socket until it is told to stop; which came back, and when they had been sent.
fn tunnel(socket: &UdpSocket, to: SocketAddr, stop: &Stop) -> (BTreeMap<u64, Instant>, Vec<u64>) {
    let (mut sent, mut back) = (BTreeMap::new(), Vec::new());
    let (mut buffer, mut next) = ([0; 2048], Instant::now());
    socket.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
    while !stop.is_set() {
        if Instant::now() >= next {
            let number = sent.len() as u64;
            let mut datagram = vec![7; 600];
            datagram[..8].copy_from_slice(&number.to_be_bytes());
            // While the mobile is nowhere the kernel may say so.
            let _ = socket.send_to(&datagram, to);
            sent.insert(number, Instant::now());
            next += EVERY;
        }
        if let Ok(length) = socket.recv(&mut buffer) {
            assert_eq!(length, 600);
            back.push(u64::from_be_bytes(buffer[..8].try_into().unwrap()));
        }
    }
    (sent, back)
}

/// A ping and a tunnel by UDP lose nothing but in dead zones, beside a download, whose bytes are right.
fn packets_survive_three_moves(family: Family) {
    let settings = Settings { family, packets: true, ..Settings::default() };
    let Some(mut scene) = Scene::start(&settings, &[Traffic::Download]) else { return };
    let to = scene.roam.server_address(family, 7);
    echo(&scene.roam.server, to);
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = scene.roam.mobile.enter(|| UdpSocket::bind(any).unwrap()).unwrap();
    let mut ping = scene.roam.mobile.command("ping");
    ping.args(["-i", "0.05", "-w", "30", "-c", "150"]).arg(to.ip().to_string());
    let ping = thread::spawn(move || ping.output().unwrap());
    let stop = Stop::default();
    let ends = stop.clone();
    let traffic = thread::spawn(move || tunnel(&socket, to, &ends));
    let mut away = Vec::new();
    for base in [2, 3, 1] {
        thread::sleep(STAY);
        let left = Instant::now();
        let arrived = scene.go(base, DEAD_ZONE);
        away.push((left, arrived));
        scene.all_move_since(arrived);
    }
    thread::sleep(STAY);
    stop.set();
    let (sent, back) = traffic.join().unwrap();
    let last = *sent.keys().last().unwrap();
    let is_excused = |at: Instant| {
        away.iter().any(|(left, arrived)| *left - MOVE / 2 <= at && at <= *arrived + MOVE)
    };
    let lost = sent.iter().filter(|(n, _)| **n + 20 < last && !back.contains(n));
    let (excused, lost): (Vec<_>, Vec<_>) = lost.partition(|(_, at)| is_excused(**at));
    assert!(lost.is_empty(), "lost while the mobile was there: {:?}\n{}", lost.len(), scene.said());
    let most = 3 * ((DEAD_ZONE + MOVE).as_millis() / EVERY.as_millis()) as usize;
    assert!(excused.len() <= most, "{} of {most} round the moves", excused.len());
    assert!(back.is_sorted_by(|a, b| a < b), "in order and once");
    let said = ping.join().unwrap();
    let said = String::from_utf8_lossy(&said.stdout);
    let received: usize = said
        .split(", ")
        .find_map(|part| part.strip_suffix(" received"))
        .and_then(|number| number.parse().ok())
        .unwrap_or(0);
    assert!(received >= 90, "{said}\n{}", scene.said());
    scene.check_bytes();
}

#[test]
fn packets_survive_three_moves_by_ipv4() {
    packets_survive_three_moves(Family::V4);
}

#[test]
fn packets_survive_three_moves_by_ipv6() {
    packets_survive_three_moves(Family::V6);
}
