//! A mobile whose links lead to different bases uses all of them, and moves between those bases.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::thread;
use std::time::{Duration, Instant};

use common::scene::{PATIENCE, Scene};
use lasthop_control::{self as control, TransitReport};
use lasthop_lab::roam::{Handoff, Mode, Settings};
use lasthop_lab::topology::Family;
use lasthop_lab::traffic::Traffic;
use lasthop_testing::wait_until;

fn settings(mode: Mode, family: Family) -> Settings {
    let handoff = Handoff { mode, ..Handoff::default() };
    Settings { handoff: Some(handoff), links: true, family, ..Settings::default() }
}

/// What a base passes on for the mobile.
fn passes(scene: &Scene, base: usize) -> Option<TransitReport> {
    let report = control::query(&scene.fleet.control_of_base(base)).unwrap();
    report.associations.into_iter().find_map(|association| association.transit)
}

/// Bytes that a base has passed on and back.
fn passed(scene: &Scene, base: usize) -> [u64; 2] {
    passes(scene, base).map_or([0; 2], |report| [report.bytes_on, report.bytes_back])
}

/// The mobile's second radio comes to the second base, which passes on to the first.
fn join_second(scene: &mut Scene) {
    scene.roam.set_radio(2, true).unwrap();
    wait_until("passing on", PATIENCE, || passed(scene, 2).iter().all(|bytes| *bytes > 10_000));
}

/// What a download brings in so long, in Mbit/s.
fn download_for(scene: &Scene, time: Duration) -> f64 {
    let (before, from) = (scene.flows[0].total(), Instant::now());
    thread::sleep(time);
    (scene.flows[0].total() - before) as f64 * 8.0 / from.elapsed().as_secs_f64() / 1e6
}

/// SRP-45: each radio has 10 Mbit/s and reaches one base. The second one passes on what is for the first, and together they
/// carry more than either could; without the first radio the first base is reached through the second alone.
#[test]
fn a_mobile_between_two_cells_uses_both() {
    for family in Family::ALL {
        let settings = settings(Mode::Anchor, family);
        let Some(mut scene) = Scene::start(&settings, &[Traffic::Download]) else { return };
        join_second(&mut scene);
        let second = Duration::from_secs(1);
        wait_until("more than one radio has", PATIENCE, || download_for(&scene, second) > 13.0);
        let to = passes(&scene, 2).unwrap().to;
        assert!(to.ends_with(":4433"), "{to}");
        scene.roam.set_radio(1, false).unwrap();
        wait_until("what one radio has", PATIENCE, || {
            let carried = download_for(&scene, second);
            carried > 7.0 && carried < 11.0
        });
        assert_eq!(passes(&scene, 1).map(|report| report.to), None);
        scene.check_bytes();
        // The base is where it was: nothing was handed over.
        let report = control::query(&scene.fleet.control()).unwrap();
        assert_eq!(report.handoffs.map(|handoffs| handoffs.here), Some(0));
    }
}

/// MHP-19, SRP-45: the session goes to the other base and back while both radios are up, and each time the base that is left
/// passes on.
#[test]
fn a_mobile_moves_while_two_links_lead_elsewhere() {
    for mode in [Mode::Anchor, Mode::Migrate] {
        let settings = settings(mode, Family::V4);
        let Some(mut scene) = Scene::start(&settings, &Traffic::ALL) else { return };
        let before = scene.capture.take();
        join_second(&mut scene);
        for (to, left) in [(2, 1), (1, 2), (2, 1)] {
            let moved = Instant::now();
            scene.fleet.ask(&["handoff", "--to", &format!("b{to}")]).unwrap();
            scene.all_move_since(moved);
            let passed_before = passed(&scene, left);
            wait_until("the base that is left passes on", PATIENCE, || {
                let now = passed(&scene, left);
                passes(&scene, left).is_some_and(|report| report.to.contains(&format!("0.9.1{to}")))
                    && (0..2).all(|way| now[way] > passed_before[way] + 10_000)
            });
            scene.check_bytes();
        }
        scene.server_noticed_nothing_since(&before);
    }
}

/// A link that has come to another cell is said to lead there. Where none leads to the session's base, it follows.
#[test]
fn the_session_follows_its_last_link() {
    let settings = settings(Mode::Anchor, Family::V4);
    let Some(mut scene) = Scene::start(&settings, &Traffic::ALL) else { return };
    join_second(&mut scene);
    let ask = |scene: &Scene, words: &[&str]| scene.fleet.ask(words);
    let error = ask(&scene, &["link", "base", "--to", "b9", "--interface", "radio1"]).unwrap_err();
    assert!(error.to_string().contains("b9"), "{error}");
    let error = ask(&scene, &["link", "base", "--to", "b2", "--interface", "eth7"]).unwrap_err();
    assert!(error.to_string().contains("eth7"), "{error}");
    // Bases and router know every radio's network, so that the first radio reaches the second base, too.
    for interface in ["radio1", "radio3"] {
        ask(&scene, &["link", "base", "--to", "b2", "--interface", interface]).unwrap();
    }
    let moved = Instant::now();
    scene.all_move_since(moved);
    wait_until("the session follows", PATIENCE, || {
        let bases = control::query(&scene.fleet.control()).unwrap().bases;
        bases.iter().any(|base| base.current && base.name == "b2")
    });
    scene.all_move_since(Instant::now());
    scene.check_bytes();
}
