//! A mobile whose address changes while it stays with its base.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::time::{Duration, Instant};

use common::program;
use common::scene::{PATIENCE, Scene, topology};
use lasthop_control as control;
use lasthop_lab::roam::{Settings, WIRED};
use lasthop_lab::topology::Family;
use lasthop_lab::traffic::Traffic;
use lasthop_testing::wait_until;

fn one_base(hop: &str, family: Family) -> Settings {
    Settings { hop: hop.to_owned(), family, handoff: None, ..Settings::default() }
}

/// Where the base sees the mobile.
fn seen_at(scene: &Scene) -> Vec<String> {
    let report = control::query(&scene.fleet.control_of_base(1)).unwrap();
    report.associations.into_iter().filter_map(|association| association.address).collect()
}

/// The mobile goes through three networks, and from each to the first base.
fn goes_on_from_another_address(hop: &str, family: Family) {
    let settings = one_base(hop, family);
    let Some(mut scene) = Scene::start(&settings, &Traffic::ALL) else { return };
    let before = scene.capture.take();
    let mut places = seen_at(&scene);
    for to in [2, 3, 1] {
        let arrived = scene.go(to, Duration::from_millis(200));
        scene.all_move_since(arrived);
        scene.server_noticed_nothing_since(&before);
        let now = seen_at(&scene);
        assert_ne!(now, places, "the base sees the mobile where it was");
        places = now;
    }
    scene.check_bytes();
}

/// The association follows the mobile's address by the first authentic datagram.
#[test]
fn srp_goes_on_from_another_interface_and_address() {
    goes_on_from_another_address("srp", Family::V4);
}

#[test]
fn srp_goes_on_from_another_ipv6_address() {
    goes_on_from_another_address("srp", Family::V6);
}

#[test]
fn mobile_tcp_goes_on_from_another_interface_and_address() {
    goes_on_from_another_address("mobile-tcp", Family::V4);
}

/// A translator between mobile and base forgets what it knew of them, and takes another port.
fn goes_on_behind_a_forgetful_translator(hop: &str) {
    if !lasthop_testing::is_installed("nft") {
        return;
    }
    let (Some(program), Some(mut roam)) = (program(), common::roam(&topology())) else { return };
    roam.leave().unwrap();
    roam.arrive(2).unwrap();
    let translate = |roam: &lasthop_lab::roam::Roam, ports: &str| {
        let rules = format!(
            "table ip lab\ndelete table ip lab\ntable ip lab {{\n chain out {{\n  type nat hook \
             postrouting priority 100\n  oifname {WIRED} meta l4proto udp masquerade to \
             :{ports}\n }}\n}}\n"
        );
        let nft = roam.base(2).command("nft").arg(&rules).output().unwrap();
        assert!(nft.status.success(), "{}", String::from_utf8_lossy(&nft.stderr));
    };
    translate(&roam, "20000-20999");
    let settings = one_base(hop, Family::V4);
    let mut scene = Scene::on(roam, &settings, &program, &Traffic::ALL);
    let before = scene.capture.take();
    let port = |scene: &Scene| seen_at(scene).iter().any(|at| at.starts_with("10.0.9.12:20"));
    assert!(port(&scene), "{:?}", seen_at(&scene));

    translate(&scene.roam, "30000-30999");
    // With the interface go the translator's connections by it.
    let bounce = format!("link set {WIRED} down\nlink set {WIRED} up\n");
    scene.roam.base(2).ip(&bounce).unwrap();
    let rebound = Instant::now();
    scene.all_move_since(rebound);
    wait_until("the base sees the new port", PATIENCE, || {
        seen_at(&scene).iter().any(|at| at.starts_with("10.0.9.12:30"))
    });
    scene.all_move_since(Instant::now());
    scene.server_noticed_nothing_since(&before);
    scene.check_bytes();
}

/// Also when the mobile does not know that its address has changed.
#[test]
fn srp_goes_on_when_a_translator_rebinds() {
    goes_on_behind_a_forgetful_translator("srp");
}

#[test]
fn mobile_tcp_goes_on_when_a_translator_rebinds() {
    goes_on_behind_a_forgetful_translator("mobile-tcp");
}
