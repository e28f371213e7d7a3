//! The helper of a base goes and comes back.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use common::scene::{PATIENCE, Scene};
use lasthop_lab::arrivals::Watched;
use lasthop_lab::client::Stop;
use lasthop_lab::roam::{Handoff, Mode, Settings, base_address, own_address};
use lasthop_lab::topology::Family;
use lasthop_lab::traffic::Traffic;

const DEAD_ZONE: Duration = Duration::from_millis(300);
const GONE: &str = "the helper is gone";
const BACK: &str = "the helper is back";

fn scene(helpers: bool, traffic: &[Traffic]) -> Option<Scene> {
    let handoff = Handoff { mode: Mode::Migrate, helpers, ..Handoff::default() };
    Scene::start(&Settings { handoff: Some(handoff), ..Settings::default() }, traffic)
}

/// Downloads a little over a new connection: from which address the server has seen it come.
fn a_new_connection(scene: &Scene) -> IpAddr {
    scene.capture.take();
    let (received, stop) = (Watched::default(), Stop::default());
    let fetched = scene.client(80).download(50_000, &received, &stop, PATIENCE);
    fetched.unwrap_or_else(|e| panic!("{e}\n{}", scene.said()));
    assert!(received.lock().is_prefix_of(scene.servers.seed));
    let mut from = BTreeSet::new();
    scene.says(|scene| {
        from.extend(scene.capture.take().openings.keys().map(|who| who.client.ip()));
        !from.is_empty()
    });
    assert_eq!(from.len(), 1, "{from:?}");
    from.pop_first().unwrap()
}

fn how_often(said: &str, what: &str) -> usize {
    said.matches(what).count()
}

/// Until it is back connections leave from the base's own address, and that is said once. Those that
/// stand go on, and move afterwards.
#[test]
fn a_helper_that_was_killed_is_found_again_and_does_again_what_is_to_stand() {
    let Some(mut scene) = scene(true, &[Traffic::Download, Traffic::Upload]) else { return };
    assert_eq!(a_new_connection(&scene), own_address(Family::V4));
    for times in 1..=2 {
        scene.fleet.kill_helper(1);
        scene.says(|scene| how_often(&scene.fleet.base_said(1), GONE) == times);
        let own = base_address(Family::V4, 1);
        assert_eq!([(); 3].map(|()| a_new_connection(&scene)), [own; 3]);
        scene.all_move_since(Instant::now());
        assert_eq!(how_often(&scene.fleet.base_said(1), GONE), times, "{}", scene.said());
        scene.fleet.start_helper(1, PATIENCE).unwrap();
        scene.says(|scene| how_often(&scene.fleet.base_said(1), BACK) == times);
        scene.all_move_since(Instant::now());
        assert_eq!(a_new_connection(&scene), own_address(Family::V4));
    }
    scene.capture.take();
    let arrived = scene.go(2, DEAD_ZONE);
    scene.all_move_since(arrived);
    assert!(scene.capture.take().openings.is_empty());
    scene.check_bytes();
}

/// SEC-33: a helper that does not answer holds up nothing but what needs it, and is given up after a
/// while.
#[test]
fn bytes_flow_past_a_helper_that_is_stopped() {
    const BYTES: u64 = 2_000_000;
    let Some(mut scene) = scene(true, &[Traffic::Download]) else { return };
    scene.fleet.pause_helper(1, true);
    let client = scene.client(80);
    let opening = thread::spawn(move || {
        let (received, stop) = (Watched::default(), Stop::default());
        client.download(50_000, &received, &stop, PATIENCE).map_err(|e| e.to_string())
    });
    // The base asks the helper for this one's socket.
    let enough = scene.flows[0].total() + BYTES;
    let deadline = Instant::now() + Duration::from_secs(20);
    while scene.flows[0].total() < enough {
        assert!(Instant::now() < deadline, "the base waits for its helper\n{}", scene.said());
        thread::sleep(Duration::from_millis(5));
    }
    opening.join().unwrap().unwrap();
    scene.says(|scene| how_often(&scene.fleet.base_said(1), GONE) == 1);
    assert_eq!(a_new_connection(&scene), base_address(Family::V4, 1));
    scene.fleet.pause_helper(1, false);
    scene.says(|scene| how_often(&scene.fleet.base_said(1), BACK) == 1);
    assert_eq!(a_new_connection(&scene), own_address(Family::V4));
    scene.all_move_since(Instant::now());
    scene.check_bytes();
}

/// One that ends in good order takes its rules along, without which nothing comes to connections of
/// the mobile's address: they wait.
#[test]
fn connections_that_stand_go_on_once_a_helper_that_was_stopped_is_there_again() {
    let Some(mut scene) = scene(true, &Traffic::ALL) else { return };
    let before = scene.capture.take();
    scene.fleet.stop_helper(1);
    scene.says(|scene| scene.fleet.base_said(1).contains(GONE));
    thread::sleep(Duration::from_millis(500));
    scene.fleet.start_helper(1, PATIENCE).unwrap();
    let started = Instant::now();
    scene.all_move_since(started);
    scene.server_noticed_nothing_since(&before);
    scene.check_bytes();
}

/// Neither can connections leave their kernel without the helper nor come into one.
#[test]
fn a_move_waits_for_the_helper_of_either_base() {
    for without in [1, 2] {
        let Some(mut scene) = scene(true, &[Traffic::Download, Traffic::Upload]) else { return };
        let before = scene.capture.take();
        scene.fleet.kill_helper(without);
        scene.says(|scene| scene.fleet.base_said(without).contains(GONE));
        let arrived = scene.go(2, DEAD_ZONE);
        thread::sleep(Duration::from_millis(300));
        scene.fleet.start_helper(without, PATIENCE).unwrap();
        scene.all_move_since(arrived);
        scene.server_noticed_nothing_since(&before);
        scene.check_bytes();
    }
}

/// A base that has the privilege starts its helper itself, and again.
#[test]
fn a_helper_of_the_bases_own_that_was_killed_is_started_again() {
    let Some(mut scene) = scene(false, &[Traffic::Download]) else { return };
    scene.fleet.kill_own_helper(1);
    scene.says(|scene| scene.fleet.base_said(1).contains(BACK));
    assert_eq!(how_often(&scene.fleet.base_said(1), GONE), 1);
    assert_eq!(a_new_connection(&scene), own_address(Family::V4));
    let arrived = scene.go(2, DEAD_ZONE);
    scene.all_move_since(arrived);
    scene.check_bytes();
}
