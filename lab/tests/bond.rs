//! A mobile that uses several links together.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lasthop_control as control;
use lasthop_lab::arrivals::Received;
use lasthop_lab::bond::{self, Bond, Load, Way, longest_gap};
use lasthop_lab::topology::{Family, RADIO, Topology, link};
use lasthop_lab::transfer::Direction;
use lasthop_radio::{Errors, Loss, RadioConfig};
use lasthop_units::Rate;

/// Scenes that were started.
static STARTED: AtomicUsize = AtomicUsize::new(0);

const PATIENCE: Duration = Duration::from_secs(30);

/// A radio of so many Mbit/s and so many milliseconds one way, which loses this share.
fn radio(mbps: u64, ms: u64, loss: f64) -> RadioConfig {
    let mut link = link(Rate::from_mbps(mbps), Duration::from_millis(ms), 200);
    if loss > 0.0 {
        link.losses.push(Loss::lose(Errors::Uniform(loss)));
    }
    RadioConfig::both(link)
}

/// A mobile with two radios, and what is running there.
struct Scene {
    bond: Bond,
    control: ControlSocket,
}

/// Where the mobile's control socket is. It is gone with this.
struct ControlSocket(PathBuf);

impl ControlSocket {
    fn new() -> Self {
        let (process, n) = (std::process::id(), STARTED.fetch_add(1, Ordering::Relaxed));
        Self(std::env::temp_dir().join(format!("lasthop-bond-{process}-{n}.sock")))
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Scene {
    /// Starts an endless transfer by these links; `None` where the machine cannot have it.
    fn start(
        radios: [RadioConfig; 2],
        links: Vec<String>,
        how: (Direction, Family),
    ) -> Option<Self> {
        Self::start_by("speed", radios, links, how)
    }

    /// The same by this policy.
    fn start_by(
        policy: &str,
        [first, second]: [RadioConfig; 2],
        links: Vec<String>,
        (direction, family): (Direction, Family),
    ) -> Option<Self> {
        let program = common::program()?;
        common::prefer_this_thread();
        let topology = Topology { radio: first, beside: vec![second], ..Topology::default() };
        let control = ControlSocket::new();
        let socket = control.0.to_string_lossy();
        let mobile = ["--control", &socket, "--policy", policy].map(str::to_owned).to_vec();
        let way = Way::Srp(links);
        let load = Load::of(direction, family);
        let bond = Bond::start(topology, &way, &load, &program, (mobile, PATIENCE));
        Some(Self { bond: common::permitted(bond)?, control })
    }

    /// Runs for so long; when that began and ended.
    fn run(&mut self, time: Duration) -> (Instant, Instant) {
        self.bond.run(time).unwrap()
    }

    /// The mobile's links that carried something, and whether each answers.
    fn paths(&self) -> Vec<(String, bool)> {
        let report = control::query(&self.control.0).unwrap();
        let paths = report.associations.into_iter().flat_map(|association| association.paths);
        paths.map(|path| (path.name, path.state == "up" && path.bytes_received > 0)).collect()
    }

    /// What each of the mobile's links has carried, in bytes.
    fn carried(&self) -> Vec<u64> {
        let report = control::query(&self.control.0).unwrap();
        let paths = report.associations.into_iter().flat_map(|association| association.paths);
        paths.map(|path| path.bytes_received + path.bytes_sent).collect()
    }

    /// Checks every byte that came.
    fn end(self) -> Received {
        let ended = self.bond.end().unwrap().remove(0);
        assert!(ended.is_right, "other bytes came than were sent");
        ended.received
    }
}

/// A rate in Mbit/s.
fn goodput(received: &Received, (from, to): (Instant, Instant)) -> f64 {
    Rate::of(received.between(from, to), to - from).as_bps() as f64 / 1e6
}

/// Two links carry together what neither could alone, whatever their delays are and whatever one loses.
fn add_up(radios: [RadioConfig; 2], how: (Direction, Family), least: f64) {
    let Some(mut scene) = Scene::start(radios, bond::interfaces(2), how) else { return };
    scene.run(Duration::from_secs(4));
    let measured = scene.run(Duration::from_secs(6));
    let received = scene.end();
    let got = goodput(&received, measured);
    assert!(got >= least, "{got} of at least {least} Mbit/s");
}

#[test]
fn two_links_add_up() {
    add_up([radio(20, 20, 0.0), radio(20, 20, 0.0)], (Direction::Download, Family::V4), 30.0);
}

#[test]
fn two_links_add_up_for_uploads_by_ipv6() {
    add_up([radio(20, 20, 0.0), radio(10, 60, 0.02)], (Direction::Upload, Family::V6), 22.0);
}

/// One link falls silent without a word, and comes back.
#[test]
fn a_link_that_goes_dark_is_left_and_used_again() {
    let radios = [radio(20, 20, 0.0), radio(10, 20, 0.0)];
    let how = (Direction::Download, Family::V4);
    let Some(mut scene) = Scene::start(radios, bond::interfaces(2), how) else { return };
    scene.run(Duration::from_secs(3));
    scene.bond.lab.radio.control.pause(Duration::from_secs(4));
    let dark = scene.run(Duration::from_secs(4));
    scene.run(Duration::from_secs(2));
    let back = scene.run(Duration::from_secs(3));
    let received = scene.end();
    assert!(
        longest_gap(&received, dark) < Duration::from_secs(1),
        "{:?}",
        longest_gap(&received, dark)
    );
    let (in_dark, after) = (goodput(&received, dark), goodput(&received, back));
    assert!(in_dark > 6.0 && after > 18.0, "{in_dark} and then {after} Mbit/s");
}

/// A link's interface goes down and up again, with another address; one of the links is never there.
#[test]
fn an_interface_goes_and_comes_back_elsewhere() {
    let radios = [radio(20, 20, 0.0), radio(10, 20, 0.0)];
    let mut links = bond::interfaces(2);
    links.push("missing0".to_owned());
    let how = (Direction::Download, Family::V4);
    let Some(mut scene) = Scene::start(radios, links, how) else { return };
    scene.run(Duration::from_secs(3));
    scene.bond.lab.mobile.ip("link set dev radio1 down\n").unwrap();
    let down = scene.run(Duration::from_secs(3));
    let elsewhere = "addr flush dev radio1\naddr add 10.0.3.77/24 dev radio1\nlink set dev radio1 up\n\
                     addr add fd00:3::77/64 dev radio1 nodad\n";
    scene.bond.lab.mobile.ip(elsewhere).unwrap();
    scene.bond.lab.route_beside(1).unwrap();
    scene.run(Duration::from_secs(3));
    let back = scene.run(Duration::from_secs(3));
    let expected = [(RADIO, true), ("radio1", true), ("missing0", false)];
    assert_eq!(scene.paths(), expected.map(|(name, answers)| (name.to_owned(), answers)));
    let received = scene.end();
    assert!(
        longest_gap(&received, down) < Duration::from_secs(1),
        "{:?}",
        longest_gap(&received, down)
    );
    let (alone, after) = (goodput(&received, down), goodput(&received, back));
    assert!(alone > 13.0 && after > alone + 4.0, "{alone} and then {after} Mbit/s");
}

/// What is to go by one link alone goes by no other, both ways, and waits where that one is dark.
#[test]
fn a_link_carries_alone_what_is_to_go_by_it_alone() {
    for direction in [Direction::Download, Direction::Upload] {
        let radios = [radio(20, 20, 0.0), radio(10, 40, 0.01)];
        let how = (direction, Family::V4);
        let links = bond::interfaces(2);
        let Some(mut scene) = Scene::start_by("only radio1", radios, links, how) else { return };
        let alone = scene.run(Duration::from_secs(4));
        let carried = scene.carried();
        let [first, second] = carried[..] else { panic!("{carried:?}") };
        let received = scene.end();
        let rate = goodput(&received, alone);
        assert!(rate > 7.0 && rate < 10.0, "{direction:?}: {rate} Mbit/s");
        assert!(first < second / 20, "{direction:?}: {carried:?}");
    }
}

/// Where links are found by their default routes, one that comes later is used too.
#[test]
fn links_are_found() {
    let radios = [radio(20, 20, 0.0), radio(10, 20, 0.0)];
    let how = (Direction::Download, Family::V4);
    let Some(mut scene) = Scene::start(radios, vec!["auto".to_owned()], how) else { return };
    scene.run(Duration::from_secs(3));
    let both = scene.run(Duration::from_secs(3));
    let elsewhere =
        "link set dev radio1 down\nlink set dev radio1 name late0\nlink set dev late0 up\n";
    scene.bond.lab.mobile.ip(elsewhere).unwrap();
    let alone = scene.run(Duration::from_secs(3));
    let route = "route add default via 10.0.3.1 dev late0 metric 3000\n";
    scene.bond.lab.mobile.ip(route).unwrap();
    scene.run(Duration::from_secs(3));
    let later = scene.run(Duration::from_secs(3));
    let expected = [(RADIO, true), ("radio1", false), ("late0", true)];
    assert_eq!(scene.paths(), expected.map(|(name, answers)| (name.to_owned(), answers)));
    let received = scene.end();
    let got = [both, alone, later].map(|time| goodput(&received, time));
    assert!(got[0] > 22.0 && (13.0..21.0).contains(&got[1]) && got[2] > 22.0, "{got:?} Mbit/s");
}
