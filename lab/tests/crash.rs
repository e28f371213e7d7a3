//! A base dies, and its connections go on at another one.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::thread;
use std::time::{Duration, Instant};

use common::scene::{PATIENCE, Scene, topology};
use lasthop_kernel::netns::Netns;
use lasthop_lab::process;
use lasthop_lab::roam::{Config, Handoff, Mode, Settings};
use lasthop_lab::topology::{Family, link};
use lasthop_lab::traffic::Traffic;
use lasthop_testing::wait_or;
use lasthop_units::Rate;

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

/// What a base's kernel has to send to servers and nobody has acknowledged, in bytes.
fn queued(base: &Netns) -> u64 {
    let mut ss = base.command("ss");
    ss.args(["-Htn", "state", "established", "dport", "=", ":80"]);
    let said = process::run(ss).unwrap();
    said.lines().filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum()
}

/// ACK-10: bytes wait in a base's kernel for a slow wire when it is killed; then in that of the next, which has them from the one
/// before, or from the mobile.
#[test]
fn what_waited_at_a_dead_base_comes_from_the_mobile() {
    let Some(program) = common::program() else { return };
    let wired = link(Rate::from_mbps(2), Duration::from_millis(5), 100);
    let Some(roam) = common::roam(&Config { wired, ..topology() }) else { return };
    let traffic = [Traffic::Upload, Traffic::Idle];
    let mut scene = Scene::on(roam, &settings(Family::V4), &program, &traffic);
    let before = scene.capture.take();
    let waits = |scene: &Scene, base: usize| {
        let queued = || queued(&scene.roam.bases[base - 1]);
        wait_or(PATIENCE, || queued() > 100_000, || format!("{} bytes", queued()));
    };
    let dies = |scene: &mut Scene, base: usize, next: usize| {
        waits(scene, base);
        scene.fleet.kill_base(base);
        let arrived = scene.go(next, DEAD_ZONE);
        scene.all_move_since(arrived);
        scene.server_noticed_nothing_since(&before);
        scene.check_bytes();
    };
    dies(&mut scene, 1, 2);
    waits(&scene, 2);
    let arrived = scene.go(3, DEAD_ZONE);
    scene.all_move_since(arrived);
    dies(&mut scene, 3, 2);
}
