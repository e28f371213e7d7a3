//! Bases are restarted one after the other, and the connections of their mobile go on.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::time::{Duration, Instant};

use common::scene::{PATIENCE, Scene, topology};
use lasthop_lab::roam::{BASES, Config, Handoff, Mode, Settings};
use lasthop_lab::topology::{Family, link};
use lasthop_lab::traffic::Traffic;
use lasthop_radio::RadioConfig;
use lasthop_testing::wait_or;
use lasthop_units::Rate;

/// How often every base is restarted; `LASTHOP_ROUNDS` says otherwise.
const ROUNDS: usize = 2;
/// Connections of each kind.
const OF_EACH: usize = 10;
/// Shorter than a base waits for mobiles that do not leave.
const SOON: Duration = Duration::from_secs(20);

fn rounds() -> usize {
    std::env::var("LASTHOP_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(ROUNDS)
}

fn handoff() -> Handoff {
    Handoff { mode: Mode::Migrate, ..Handoff::default() }
}

/// A mobile that names one base, with three in reach, and so many connections of each kind.
fn scene(settings: &Settings, of_each: usize) -> Option<Scene> {
    let program = common::program()?;
    let radio = link(Rate::from_mbps(20), Duration::from_millis(10), 100);
    let roam = common::roam(&Config { radio: RadioConfig::both(radio), ..topology() })?;
    let kinds = [Traffic::Download, Traffic::Upload, Traffic::Idle];
    let traffic: Vec<_> = (0..of_each).flat_map(|_| kinds).collect();
    Some(Scene::on(roam, settings, &program, &traffic))
}

fn settings() -> Settings {
    Settings { handoff: Some(handoff()), learns: true, ..Settings::default() }
}

fn knows_all(scene: &Scene) {
    let knows = || {
        let status = scene.fleet.ask(&["status"]).unwrap_or_default();
        status.matches("learned").count() >= BASES - 1
    };
    wait_or(PATIENCE, knows, || format!("bases are not learned\n{}", scene.said()));
}

/// EMP-1, EMP-2: whichever base is told to end, its mobile leaves it, and it ends by itself; the servers notice nothing.
#[test]
fn every_base_is_restarted_and_no_connection_ends() {
    let Some(mut scene) = scene(&settings(), OF_EACH) else { return };
    knows_all(&scene);
    let before = scene.capture.take();
    for round in 0..rounds() {
        for number in 1..=BASES {
            let asked = Instant::now();
            scene.fleet.end_base(number, SOON).unwrap_or_else(|error| {
                panic!("round {round}, base {number}: {error}\n{}", scene.said())
            });
            println!("round {round}: base {number} ended after {:?}", asked.elapsed());
            scene.fleet.start_base(number).unwrap();
            let up = |scene: &Scene| scene.fleet.base_said(number).contains("serving mobiles");
            wait_or(PATIENCE, || up(&scene), || scene.said());
            scene.all_move_since(asked);
            scene.all_move_since(Instant::now());
            scene.server_noticed_nothing_since(&before);
        }
    }
    scene.check_bytes();
    for flow in &mut scene.flows {
        assert_eq!(flow.failure(), None);
    }
}

/// EMP-3: a base that is drained is empty after a while, goes on serving, and is come back to when that is undone and the others
/// are drained.
#[test]
fn a_base_is_drained_and_its_mobile_comes_back_when_others_are() {
    for family in Family::ALL {
        let settings = Settings { family, ..settings() };
        let Some(mut scene) = scene(&settings, 1) else { return };
        knows_all(&scene);
        let before = scene.capture.take();
        let ask = |scene: &Scene, base: usize, words: &[&str]| {
            scene.fleet.ask_base(base, words).unwrap_or_else(|e| panic!("{e}\n{}", scene.said()))
        };
        let is_left = |scene: &Scene, base: usize| {
            let status = || ask(scene, base, &["status", "--json"]);
            let empty =
                || status().contains("\"draining\":true,") && status().contains("\"mobiles\":0,");
            wait_or(PATIENCE, empty, || format!("{}\n{}", status(), scene.said()));
        };
        assert!(scene.fleet.ask_base(1, &["status", "--ready"]).is_ok());
        ask(&scene, 1, &["base", "drain"]);
        is_left(&scene, 1);
        assert!(scene.fleet.ask_base(1, &["status", "--ready"]).is_err());
        let moved = Instant::now();
        scene.all_move_since(moved);
        ask(&scene, 1, &["base", "drain", "--undo"]);
        for base in [2, 3] {
            ask(&scene, base, &["base", "drain"]);
        }
        for base in [2, 3] {
            is_left(&scene, base);
        }
        scene.all_move_since(Instant::now());
        let status = ask(&scene, 1, &["status", "--json"]);
        assert!(status.contains("\"mobiles\":1,"), "{status}");
        scene.server_noticed_nothing_since(&before);
        scene.check_bytes();
        // Nobody else is left to go to: it stays, and goes on.
        ask(&scene, 1, &["base", "drain"]);
        scene.says(|scene| scene.fleet.mobile_said().contains("no other answers: staying"));
        scene.all_move_since(Instant::now());
        scene.server_noticed_nothing_since(&before);
        scene.check_bytes();
        // It is waited for, but not by who is asked twice.
        scene.fleet.ask_base_to_end(1);
        let waits = || scene.fleet.ask_base(1, &["base", "drain"]).is_err();
        wait_or(PATIENCE, waits, || scene.said());
        scene.all_move_since(Instant::now());
        scene.fleet.end_base(1, SOON).unwrap_or_else(|e| panic!("{e}\n{}", scene.said()));
    }
}
