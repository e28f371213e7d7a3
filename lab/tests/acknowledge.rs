//! Fixed hosts are acknowledged what the mobile has.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::thread;
use std::time::{Duration, Instant};

use common::scene::Scene;
use lasthop_lab::roam::{Handoff, Mode, Settings};
use lasthop_lab::topology::Family;
use lasthop_lab::traffic::Traffic;

/// What a response has before its body, at most.
const HEAD: u64 = 1000;
/// What the base holds back of what the mobile has while more is on its way, and what is on the hop when it falls silent.
const BACK: u64 = 64 * 1024 + 200_000;

/// What the server's kernel knows to be acknowledged, of the connection of which that is most.
fn acknowledged(scene: &Scene) -> u64 {
    let known = lasthop_lab::crash::acknowledged(&scene.roam.server).unwrap();
    known.into_values().max().expect("a connection")
}

/// ACK-1: while the hop is silent, as before and after, the server knows nothing to be acknowledged that the mobile's
/// application does not have, and that the mobile's lasthop would have handed to it by then.
#[test]
fn a_fixed_host_is_acknowledged_what_the_mobile_has() {
    for family in Family::ALL {
        let handoff = Handoff { mode: Mode::Migrate, ..Handoff::default() };
        let settings =
            Settings { handoff: Some(handoff), family, acknowledge: true, ..Settings::default() };
        let traffic = [Traffic::Download, Traffic::Upload];
        let Some(mut scene) = Scene::start(&settings, &traffic) else { return };
        for _ in 0..2 {
            scene.all_move_since(Instant::now());
            thread::sleep(Duration::from_secs(1));
            scene.roam.leave().unwrap();
            thread::sleep(Duration::from_secs(2));
            let (known, had) = (acknowledged(&scene), scene.flows[0].total());
            assert!(known <= had + HEAD, "{known} acknowledged, {had} had\n{}", scene.said());
            assert!(known + BACK >= had, "{known} acknowledged, {had} had\n{}", scene.said());
            let back = scene.roam.arrive(1).unwrap();
            scene.all_move_since(back);
        }
        scene.check_bytes();
    }
}
