//! A base dies, and its connections go on at another one.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::time::{Duration, Instant};

use common::scene::Scene;
use lasthop_lab::roam::{Handoff, Mode, Settings};
use lasthop_lab::topology::Family;
use lasthop_lab::traffic::Traffic;

const DEAD_ZONE: Duration = Duration::from_millis(300);

fn settings(family: Family) -> Settings {
    let handoff = Handoff { mode: Mode::Migrate, takes_over: true, ..Handoff::default() };
    Settings { handoff: Some(handoff), family, acknowledge: true, ..Settings::default() }
}

/// The base is killed with what it had received, and its mobile goes to another: the servers notice a pause.
#[test]
fn connections_go_on_at_another_base_when_theirs_is_killed() {
    for family in Family::ALL {
        let traffic = [Traffic::Download, Traffic::Idle, Traffic::Download];
        let Some(mut scene) = Scene::start(&settings(family), &traffic) else { return };
        scene.all_move_since(Instant::now());
        let before = scene.capture.take();
        scene.fleet.kill_base(1);
        let arrived = scene.go(2, DEAD_ZONE);
        scene.all_move_since(arrived);
        scene.server_noticed_nothing_since(&before);
        scene.check_bytes();
    }
}
