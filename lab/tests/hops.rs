//! Hops by raw Ethernet frames and by UDP, in both directions, from both ends, on real kernels.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use lasthop_lab::arrivals::Watched;
use lasthop_lab::client::{Client, Stop, Via};
use lasthop_lab::content::{digest_of_prefix, hex};
use lasthop_lab::http;
use lasthop_lab::scheme::{Carrier, Hop};
use lasthop_lab::service::Server;
use lasthop_lab::tap::Kind;
use lasthop_lab::topology::{BASE_MAC, Family, Lab, MOBILE_MAC, Medium, Topology};
use lasthop_radio::{Direction, Errors, Loss};
use lasthop_testing::wait_until;
use lasthop_units::Seed;

const PATIENCE: Duration = Duration::from_secs(60);
const SIZE: u64 = 600_000;
/// What curl exits with after its `--max-time`.
const CURL_TIMED_OUT: i32 = 28;
const SEED: Seed = Seed::from_u64(7);

/// Mobile TCP's own frames, and those of hop datagrams.
const BARE: Kind = Kind::Other(0x88b5);
const SIZED: Kind = Kind::Other(0x88b6);

fn ethernet(name: &str, bare: bool) -> Hop {
    Hop { ethernet: true, bare, ..Hop::new(name) }
}

fn topology(medium: Medium, loss: f64) -> Topology {
    let quiet =
        if loss > 0.0 { Topology::losing(Errors::Uniform(loss)) } else { Topology::default() };
    Topology { medium, ..quiet }
}

/// A lab with a hop in it and a server at the fixed host.
struct Scene {
    server: Server,
    carrier: Carrier,
    program: PathBuf,
    lab: Lab,
}

impl Scene {
    fn new(hop: &Hop, loss: f64) -> Option<Self> {
        let medium = if hop.ethernet { Medium::Ethernet } else { Medium::Ip };
        Self::across(hop, &topology(medium, loss), &common::program()?)
    }

    fn across(hop: &Hop, topology: &Topology, program: &Path) -> Option<Self> {
        let family = Family::V4;
        let lab = common::lab(topology)?;
        let server = http::start(&lab.fixed, lab.server_address(family), SEED).unwrap();
        let carrier = Carrier::start_hop(hop, &lab, family, program, PATIENCE).unwrap();
        Some(Self { server, carrier, program: program.to_owned(), lab })
    }

    fn client(&self) -> Client {
        Client::new(&self.lab.mobile, self.carrier.via(), self.server.address())
    }

    /// A download whose every byte is checked.
    fn download(&mut self) {
        let received = Watched::default();
        let result = self.client().download(SIZE, &received, &Stop::default(), PATIENCE);
        self.carrier.check().unwrap();
        result.unwrap();
        let received = received.lock();
        assert_eq!(received.total().get(), SIZE);
        assert_eq!(hex(&received.digest()), hex(&digest_of_prefix(SEED, SIZE)));
    }

    /// An upload whose every byte is checked.
    fn upload(&mut self) {
        let received = self.server.arrivals("up");
        let result = self.client().upload("up", SIZE, SEED, &Stop::default(), PATIENCE);
        self.carrier.check().unwrap();
        result.unwrap();
        let received = received.lock();
        assert_eq!(received.total().get(), SIZE);
        assert_eq!(hex(&received.digest()), hex(&digest_of_prefix(SEED, SIZE)));
    }

    /// A command at the fixed host: what it exited with, and what it printed.
    fn at_fixed(&self, program: &str, args: &[&str]) -> (Option<i32>, Vec<u8>) {
        let output = self.lab.fixed.command(program).args(args).output().unwrap();
        (output.status.code(), output.stdout)
    }
}

/// Both ways, and what was on the hop meanwhile beside neighbours asking for each other.
fn crosses(hop: &Hop, loss: f64) -> Option<BTreeMap<Kind, u64>> {
    let mut scene = Scene::new(hop, loss)?;
    let tap = scene.lab.radio.tap().unwrap();
    scene.download();
    scene.upload();
    let mut kinds = tap.map(|tap| tap.kinds()).unwrap_or_default();
    kinds.retain(|kind, _| !matches!(kind, Kind::Arp | Kind::Neighbours));
    Some(kinds)
}

fn crosses_in_frames_of(kind: Kind, hop: &Hop, loss: f64) {
    let Some(kinds) = crosses(hop, loss) else { return };
    // Two transfers in packets of 1460 bytes at most.
    assert!(kinds.get(&kind).is_some_and(|n| *n > 2 * SIZE / 1500), "{kinds:?}");
    assert_eq!(kinds.len(), 1, "{kinds:?}");
}

/// MOB-1: no IP on the data path; a bare hop's frames are Mobile TCP's and nothing else.
#[test]
fn bare_mobile_tcp_crosses_raw_ethernet_without_an_ip_packet() {
    crosses_in_frames_of(BARE, &ethernet("mobile-tcp", true), 0.0);
}

#[test]
fn sealed_mobile_tcp_crosses_raw_ethernet_without_an_ip_packet() {
    crosses_in_frames_of(SIZED, &ethernet("mobile-tcp", false), 0.0);
}

#[test]
fn bare_mobile_tcp_crosses_ethernet_that_loses_one_frame_in_twenty() {
    crosses_in_frames_of(BARE, &ethernet("mobile-tcp", true), 0.05);
}

#[test]
fn sealed_mobile_tcp_crosses_ethernet_that_loses_one_frame_in_twenty() {
    crosses_in_frames_of(SIZED, &ethernet("mobile-tcp", false), 0.05);
}

#[test]
fn bare_mobile_tcp_crosses_ethernet_that_loses_one_frame_in_five() {
    crosses_in_frames_of(BARE, &ethernet("mobile-tcp", true), 0.2);
}

#[test]
fn sealed_mobile_tcp_crosses_ethernet_that_loses_one_frame_in_five() {
    crosses_in_frames_of(SIZED, &ethernet("mobile-tcp", false), 0.2);
}

/// MOB-14, LNK-10: a damaged frame of the paper's own is dropped without a word.
#[test]
fn bare_frames_that_arrive_damaged_never_change_a_byte() {
    let Some(program) = common::program() else { return };
    let mut topology = topology(Medium::Ethernet, 0.0);
    for link in [&mut topology.radio.up, &mut topology.radio.down] {
        link.losses.push(Loss::corrupt(Errors::Uniform(0.05)));
    }
    let hop = ethernet("mobile-tcp", true);
    let Some(mut scene) = Scene::across(&hop, &topology, &program) else { return };
    scene.download();
    scene.upload();
    let damaged = scene.lab.radio.stats(Direction::Down).corrupted.packets;
    assert!(damaged > 0);
}

#[test]
fn sealed_mobile_tcp_crosses_udp_whatever_it_loses() {
    for loss in [0.0, 0.05, 0.2] {
        crosses(&Hop::new("mobile-tcp"), loss);
    }
}

#[test]
fn bare_mobile_tcp_crosses_udp_whatever_it_loses() {
    for loss in [0.0, 0.05, 0.2] {
        crosses(&Hop { bare: true, ..Hop::new("mobile-tcp") }, loss);
    }
}

#[test]
fn srp_crosses_raw_ethernet_without_an_ip_packet() {
    crosses_in_frames_of(SIZED, &ethernet("srp", false), 0.05);
}

/// The fixed host reaches a server on the mobile; a port that nobody serves is
/// refused, and so is everybody once the mobile is gone.
fn publishes(mut hop: Hop) {
    if !lasthop_testing::is_installed("curl") {
        return;
    }
    let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    hop.base = words(&["--publish", "[::]:8080 -> 80", "--publish", "[::]:8081 -> 81"]);
    hop.mobile = words(&["--publish", "80 -> 127.0.0.1:8000", "--publish", "82->[::1]:1"]);
    let Some(mut scene) = Scene::new(&hop, 0.05) else { return };
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 8000));
    let server = http::start(&scene.lab.mobile, local, SEED).unwrap();
    // The mobile is known to be here once something of its own has crossed.
    scene.download();
    for address in ["10.0.1.1", "[fd00:1::1]"] {
        let url = format!("http://{address}:8080/bytes/{SIZE}");
        let (code, body) = scene.at_fixed("curl", &["--silent", "--max-time", "30", &url]);
        assert!(code == Some(0) && body.len() as u64 == SIZE, "{} bytes", body.len());
        let mut received = lasthop_lab::arrivals::Received::default();
        received.take(Instant::now(), &body);
        assert!(received.is_prefix_of(SEED));
    }
    // An upload is half-closed by its sender's length only; what arrived is known at the server.
    let through = SocketAddr::from(([10, 0, 1, 1], 8080));
    let client = Client::new(&scene.lab.fixed, Via::Direct, through);
    client.upload("in", SIZE, SEED, &Stop::default(), PATIENCE).unwrap();
    assert!(server.arrivals("in").lock().is_prefix_of(SEED));

    let closed = ["--silent", "--max-time", "30", "http://10.0.1.1:8081/"];
    let (code, _) = scene.at_fixed("curl", &closed);
    assert!(code != Some(0) && code != Some(CURL_TIMED_OUT), "it was not refused: {code:?}");

    scene.carrier.stop_mobile();
    let refused = || {
        let to = through;
        scene.lab.fixed.enter(|| std::net::TcpStream::connect_timeout(&to, PATIENCE)).unwrap()
    };
    wait_until("the door of a mobile that has gone is shut", PATIENCE, || refused().is_err());
}

/// MOB-8, MOB-9.
#[test]
fn a_server_on_the_mobile_is_reached_by_mobile_tcp() {
    publishes(Hop::new("mobile-tcp"));
}

/// MOB-8, MOB-9.
#[test]
fn a_server_on_the_mobile_is_reached_by_bare_frames() {
    publishes(ethernet("mobile-tcp", true));
}

#[test]
fn a_server_on_the_mobile_is_reached_by_split_tcp() {
    publishes(Hop::new("split-tcp"));
}

#[test]
fn a_server_on_the_mobile_is_reached_by_srp() {
    publishes(Hop::new("srp"));
}

/// A base that was killed and started again serves the mobile as before, without being asked to.
fn survives_a_base_that_is_killed(hop: &Hop) {
    let Some(mut scene) = Scene::new(hop, 0.0) else { return };
    scene.download();
    scene.carrier.restart_base().unwrap();
    wait_until("the base is found again", PATIENCE, || scene.client().connect(PATIENCE).is_ok());
    scene.download();
    scene.upload();
}

#[test]
fn srp_on_raw_ethernet_survives_a_base_that_is_killed() {
    survives_a_base_that_is_killed(&ethernet("srp", false));
}

#[test]
fn mobile_tcp_survives_a_base_that_is_killed() {
    survives_a_base_that_is_killed(&Hop::new("mobile-tcp"));
}

#[test]
fn bare_mobile_tcp_on_raw_ethernet_survives_a_base_that_is_killed() {
    survives_a_base_that_is_killed(&ethernet("mobile-tcp", true));
}

#[test]
fn a_base_whose_address_nobody_told_is_found_and_found_again() {
    for (name, bare) in [("srp", false), ("mobile-tcp", false), ("mobile-tcp", true)] {
        survives_a_base_that_is_killed(&Hop { find: true, ..ethernet(name, bare) });
    }
}

#[test]
fn status_shows_the_association_and_its_counters_at_both_ends() {
    let folder = std::env::temp_dir().join(format!("lasthop-hops-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let socket = |role: &str| folder.join(role).to_str().unwrap().to_owned();
    let mut hop = ethernet("mobile-tcp", true);
    hop.base = vec!["--control".to_owned(), socket("base")];
    hop.mobile = vec!["--control".to_owned(), socket("mobile")];
    if let Some(mut scene) = Scene::new(&hop, 0.05) {
        scene.download();
        let look = |role: &str| {
            let path = socket(role);
            let output = Command::new(&scene.program)
                .args(["status", "--json", "--control", &path])
                .output()
                .unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        for (role, peer) in [("base", MOBILE_MAC), ("mobile", BASE_MAC)] {
            let said = look(role);
            let association =
                said.lines().find(|l| l.contains("\"kind\":\"association\"")).unwrap();
            assert!(association.contains(&format!("ether:radio0/{peer}")), "{association}");
            assert!(association.contains("\"state\":\"up\""), "{association}");
            assert!(said.contains("\"hop\":\"mobile-tcp\""), "{said}");
            for counter in ["packets_sent", "packets_received", "bytes_retransmitted", "srtt_ms"] {
                assert!(association.contains(&format!("\"{counter}\":")), "{association}");
            }
        }
        assert!(!look("mobile").contains("\"bytes_received\":0,"));
    }
    fs::remove_dir_all(&folder).unwrap();
}
