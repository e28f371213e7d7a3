//! Packets go on while the mobile moves from base to base.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use common::scene::{PATIENCE, Scene, by_hook, by_routes};
use lasthop_kernel::netns::Netns;
use lasthop_lab::client::Stop;
use lasthop_lab::quic::{self, Congestion};
use lasthop_lab::roam::{Handoff, Mode, Roam, Routing, Settings};
use lasthop_lab::topology::Family;
use lasthop_lab::traffic::Traffic;
use lasthop_testing::wait_or;
use lasthop_units::Seed;

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

/// When the mobile left a base, and when all its connections had followed it to the next: where ends wait for a processor
/// that is some time after it has arrived there.
struct Away(Vec<(Instant, Instant)>);

impl Away {
    /// From the first base to the others and back, with a stay at each.
    fn in_three_moves(scene: &mut Scene) -> Self {
        let mut away = Vec::new();
        for base in [2, 3, 1] {
            thread::sleep(STAY);
            let left = Instant::now();
            let arrived = scene.go(base, DEAD_ZONE);
            scene.all_move_since(arrived);
            away.push((left, Instant::now()));
        }
        thread::sleep(STAY);
        Self(away)
    }

    /// How long after the mobile last left a base that was, in seconds.
    fn since_move(&self, at: Instant) -> f64 {
        let mut left = self.0.iter().rev().map(|(left, _)| *left);
        left.find(|left| *left <= at).map_or(f64::NAN, |left| (at - left).as_secs_f64())
    }

    /// Whether what was sent then may be lost, or late.
    fn excuses(&self, at: Instant) -> bool {
        self.0.iter().any(|(left, settled)| *left - MOVE / 2 <= at && at <= *settled + MOVE)
    }
}

/// A socket at the mobile, for packets to that address.
fn at_mobile(scene: &Scene, to: SocketAddr) -> UdpSocket {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    scene.roam.mobile.enter(|| UdpSocket::bind(any).unwrap()).unwrap()
}

/// Those that came behind later ones.
fn late_among(numbers: &[u64]) -> Vec<u64> {
    let mut highest = 0;
    let is_late = |n: &&u64| {
        highest = highest.max(**n);
        **n < highest
    };
    numbers.iter().filter(is_late).copied().collect()
}

/// A ping and a tunnel by UDP lose nothing but in dead zones, beside a download, whose bytes are right.
fn packets_survive_three_moves(family: Family) {
    let settings = Settings { family, packets: true, ..Settings::default() };
    let Some(mut scene) = Scene::start(&settings, &[Traffic::Download]) else { return };
    let to = scene.roam.server_address(family, 7);
    echo(&scene.roam.server, to);
    let socket = at_mobile(&scene, to);
    let mut ping = scene.roam.mobile.command("ping");
    ping.args(["-i", "0.05", "-w", "30", "-c", "150"]).arg(to.ip().to_string());
    let ping = thread::spawn(move || ping.output().unwrap());
    let stop = Stop::default();
    let ends = stop.clone();
    let traffic = thread::spawn(move || tunnel(&socket, to, &ends));
    let away = Away::in_three_moves(&mut scene);
    stop.set();
    let (sent, back) = traffic.join().unwrap();
    let last = *sent.keys().last().unwrap();
    let is_excused = |at| away.excuses(at);
    let lost = sent.iter().filter(|(n, _)| **n + 20 < last && !back.contains(n));
    let (excused, lost): (Vec<_>, Vec<_>) = lost.partition(|(_, at)| is_excused(**at));
    assert!(lost.is_empty(), "lost while the mobile was there: {:?}\n{}", lost.len(), scene.said());
    let most = 3 * ((DEAD_ZONE + MOVE).as_millis() / EVERY.as_millis()) as usize;
    assert!(excused.len() <= most, "{} of {most} round the moves", excused.len());
    // What an old base passes on may come behind what comes by the new one, and only in a move.
    let late = late_among(&back);
    assert!(late.iter().all(|n| is_excused(sent[n])), "out of order: {late:?}");
    assert_eq!(back.iter().collect::<BTreeSet<_>>().len(), back.len(), "none twice");
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

/// What a stream from the fixed host has brought: the numbers in the order in which they came.
struct Streamed {
    sent: BTreeMap<u64, Instant>,
    came: Vec<u64>,
}

/// A fixed host streams to the address from which it has heard the mobile once, while that goes from base to base and says nothing
/// any more.
fn stream_across_moves(scene: &mut Scene, family: Family) -> (Streamed, Away) {
    let at = scene.roam.server_address(family, 9);
    let server = scene.roam.server.enter(|| UdpSocket::bind(at).unwrap()).unwrap();
    let mobile = at_mobile(scene, at);
    server.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    mobile.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let (stop, mut buffer) = (Stop::default(), [0; 2048]);
    let heard = (0..100).find_map(|_| {
        mobile.send_to(b"from here", at).unwrap();
        server.recv_from(&mut buffer).ok()
    });
    let (_, to) = heard.expect("the fixed host hears the mobile");
    let ends = stop.clone();
    let sender = thread::spawn(move || {
        let mut sent = BTreeMap::new();
        while !ends.is_set() {
            let mut datagram = [7; 600];
            datagram[..8].copy_from_slice(&(sent.len() as u64).to_be_bytes());
            // A router may say that the mobile is nowhere.
            let _ = server.send_to(&datagram, to);
            sent.insert(sent.len() as u64, Instant::now());
            thread::sleep(EVERY / 2);
        }
        sent
    });
    let ends = stop.clone();
    let receiver = thread::spawn(move || {
        let (mut came, mut buffer) = (Vec::new(), [0; 2048]);
        while !ends.is_set() {
            if let Ok(length) = mobile.recv(&mut buffer) {
                assert_eq!(length, 600);
                assert!(buffer[8..length].iter().all(|byte| *byte == 7));
                came.push(u64::from_be_bytes(buffer[..8].try_into().unwrap()));
            }
        }
        came
    });
    let away = Away::in_three_moves(scene);
    stop.set();
    (Streamed { sent: sender.join().unwrap(), came: receiver.join().unwrap() }, away)
}

/// Whatever base gets them, packets come to the base where the mobile is, and none twice.
fn a_stream_follows(family: Family, mode: Mode, routing: impl FnOnce(&Roam) -> Routing) {
    let settings = |roam: &Roam| {
        let handoff = Handoff { mode, routing: routing(roam), ..Handoff::default() };
        Settings { family, packets: true, handoff: Some(handoff), ..Settings::default() }
    };
    let Some(mut scene) = Scene::start_with(settings, &[Traffic::Download]) else { return };
    let (Streamed { sent, came }, away) = stream_across_moves(&mut scene, family);
    let last = sent.len() as u64;
    let is_excused = |at| away.excuses(at);
    let all: BTreeSet<u64> = came.iter().copied().collect();
    assert_eq!(all.len(), came.len(), "none twice");
    let lost = sent.iter().filter(|(n, _)| **n + 40 < last && !all.contains(n));
    let (excused, lost): (Vec<_>, Vec<_>) = lost.partition(|(_, at)| is_excused(**at));
    let when: Vec<(u64, f64)> = lost.iter().map(|(n, at)| (**n, away.since_move(**at))).collect();
    assert!(when.is_empty(), "lost while the mobile was there: {when:.2?}\n{}", scene.said());
    let moves: Duration = away.0.iter().map(|(left, settled)| *settled - *left + MOVE / 4).sum();
    let most = (moves.as_millis() / (EVERY / 2).as_millis()) as usize;
    assert!(excused.len() <= most, "{} of {most} round the moves\n{}", excused.len(), scene.said());
    // What an old base passes on may come behind what comes by the new one, and only in a move.
    let late = late_among(&came);
    assert!(late.iter().all(|n| is_excused(sent[n])), "out of order: {late:?}");
    if mode == Mode::Anchor {
        // All goes by the first base, until the mobile is back at it and the rest comes from where it was.
        let back = away.0[2].0 - MOVE / 2;
        assert!(late.iter().all(|n| sent[n] >= back), "out of order: {late:?}");
    }
    scene.check_bytes();
}

/// Each base is another network to the server: a mobile that is masqueraded has another address there.
fn a_download_by_quic_goes_on(mode: Mode) {
    let handoff = Handoff { mode, ..Handoff::default() };
    let settings = Settings { packets: true, handoff: Some(handoff), ..Settings::default() };
    let Some(mut scene) = Scene::start(&settings, &[Traffic::Download]) else { return };
    let at = scene.roam.server_address(Family::V4, 443);
    let (hosts, seed) = ((&scene.roam.server, at, &scene.roam.mobile), Seed::from_u64(19));
    let transfer = quic::download(hosts, Congestion::Cubic, seed, PATIENCE).unwrap();
    transfer.first_byte().unwrap();
    let brings = |since: Instant| transfer.received().lock().first_from(since).is_some();
    for base in [2, 3, 1] {
        thread::sleep(STAY);
        let arrived = scene.go(base, DEAD_ZONE);
        // What comes later than this comes by the new base.
        let since = arrived + MOVE;
        let said = || format!("QUIC stands still at base {base}\n{}", scene.said());
        wait_or(PATIENCE, || brings(since), said);
        scene.all_move_since(since);
    }
    assert!(transfer.stop().unwrap().is_right, "wrong bytes");
    scene.check_bytes();
}

#[test]
fn a_download_by_quic_survives_three_moves_with_another_address_at_each_base() {
    a_download_by_quic_goes_on(Mode::Anchor);
}

#[test]
fn a_download_by_quic_survives_three_moves_with_the_mobiles_own_address() {
    a_download_by_quic_goes_on(Mode::Migrate);
}

/// MHP-22, of packets: the base by which a flow began passes on what comes for it.
#[test]
fn a_stream_to_a_base_that_the_mobile_has_left_comes_by_ipv4() {
    a_stream_follows(Family::V4, Mode::Anchor, |_| Routing::default());
}

#[test]
fn a_stream_to_a_base_that_the_mobile_has_left_comes_by_ipv6() {
    a_stream_follows(Family::V6, Mode::Anchor, |_| Routing::default());
}

#[test]
fn a_stream_follows_the_mobiles_own_address_by_ipv4() {
    a_stream_follows(Family::V4, Mode::Migrate, |_| Routing::Announce);
}

#[test]
fn a_stream_follows_the_mobiles_own_address_by_ipv6() {
    a_stream_follows(Family::V6, Mode::Migrate, |_| Routing::Announce);
}

#[test]
fn a_stream_follows_routes_to_the_mobiles_own_address_by_ipv4() {
    a_stream_follows(Family::V4, Mode::Migrate, by_routes);
}

#[test]
fn a_stream_follows_routes_to_the_mobiles_own_address_by_ipv6() {
    a_stream_follows(Family::V6, Mode::Migrate, by_routes);
}

#[test]
fn a_stream_follows_an_operators_command_to_the_mobiles_own_address_by_ipv4() {
    a_stream_follows(Family::V4, Mode::Migrate, |roam| by_hook(roam, None));
}

#[test]
fn a_stream_follows_an_operators_command_to_the_mobiles_own_address_by_ipv6() {
    a_stream_follows(Family::V6, Mode::Migrate, |roam| by_hook(roam, None));
}

#[test]
fn packets_survive_three_moves_by_ipv4() {
    packets_survive_three_moves(Family::V4);
}

#[test]
fn packets_survive_three_moves_by_ipv6() {
    packets_survive_three_moves(Family::V6);
}
