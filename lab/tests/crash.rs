//! A base dies, and its connections go on at another one.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::thread;
use std::time::{Duration, Instant};

use common::scene::{PATIENCE, Scene};
use lasthop_lab::roam::{Handoff, Mode, Settings};
use lasthop_lab::topology::Family;
use lasthop_lab::traffic::Traffic;
use lasthop_testing::wait_or;

const DEAD_ZONE: Duration = Duration::from_millis(300);
const TRAFFIC: [Traffic; 3] = [Traffic::Download, Traffic::Idle, Traffic::Download];

fn settings(family: Family) -> Settings {
    let handoff = Handoff { mode: Mode::Migrate, takes_over: true, ..Handoff::default() };
    Settings { handoff: Some(handoff), family, acknowledge: true, ..Settings::default() }
}

/// ACK-5, ACK-7, ACK-9: the base is killed with what it had received, and its mobile goes to another: the servers notice a pause.
#[test]
fn connections_go_on_at_another_base_when_theirs_is_killed() {
    for family in Family::ALL {
        let Some(mut scene) = Scene::start(&settings(family), &TRAFFIC) else { return };
        scene.all_move_since(Instant::now());
        let before = scene.capture.take();
        scene.fleet.kill_base(1);
        let arrived = scene.go(2, DEAD_ZONE);
        scene.all_move_since(arrived);
        scene.server_noticed_nothing_since(&before);
        scene.check_bytes();
        // It holds what it has taken over as the first one did, and may die as well.
        thread::sleep(Duration::from_millis(500));
        scene.fleet.kill_base(2);
        let arrived = scene.go(3, DEAD_ZONE);
        scene.all_move_since(arrived);
        scene.server_noticed_nothing_since(&before);
        scene.check_bytes();
    }
}

/// ACK-5: so may a base that has been given them in good order.
#[test]
fn connections_go_on_at_a_third_base_when_the_second_is_killed() {
    let traffic = [Traffic::Download, Traffic::Idle];
    let Some(mut scene) = Scene::start(&settings(Family::V4), &traffic) else { return };
    let before = scene.capture.take();
    let arrived = scene.go(2, DEAD_ZONE);
    scene.all_move_since(arrived);
    thread::sleep(Duration::from_millis(500));
    scene.fleet.kill_base(2);
    let arrived = scene.go(3, DEAD_ZONE);
    scene.all_move_since(arrived);
    scene.server_noticed_nothing_since(&before);
    scene.check_bytes();
}

/// ACK-7, ACK-8: the base lives on without any link, and its mobile goes to another. When the base is reached again it learns whose the
/// connections are, and says no more to the servers.
#[test]
fn connections_go_on_when_their_base_is_cut_off() {
    for family in Family::ALL {
        let Some(mut scene) = Scene::start(&settings(family), &TRAFFIC) else { return };
        scene.all_move_since(Instant::now());
        let before = scene.capture.take();
        scene.roam.cut(1).unwrap();
        let arrived = scene.go(2, DEAD_ZONE);
        scene.all_move_since(arrived);
        scene.server_noticed_nothing_since(&before);
        let handed_over = |scene: &Scene| scene.fleet.base_said(1).contains("session handed over");
        assert!(!handed_over(&scene), "base 1 is not cut off\n{}", scene.said());
        scene.roam.mend(1).unwrap();
        let handed_over = || handed_over(&scene);
        wait_or(PATIENCE, handed_over, || format!("base 1 holds on\n{}", scene.said()));
        scene.all_move_since(Instant::now());
        scene.server_noticed_nothing_since(&before);
        scene.check_bytes();
    }
}
