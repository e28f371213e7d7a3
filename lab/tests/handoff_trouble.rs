//! Handoffs in which something is wrong: bases that die, that are not trusted, that are not there.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use common::program;
use common::scene::{PATIENCE, Scene, by_hook, topology};
use lasthop_lab::arrivals::Watched;
use lasthop_lab::client::Stop;
use lasthop_lab::roam::{Config, Handoff, Mode, Roam, Settings, base_address};
use lasthop_lab::topology::Family;
use lasthop_lab::traffic::{Flow, Traffic};
use lasthop_testing::wait_or;
use lasthop_units::Rate;

const DEAD_ZONE: Duration = Duration::from_millis(300);
const MODES: [Mode; 2] = [Mode::Anchor, Mode::Migrate];

fn settings(handoff: Handoff) -> Settings {
    Settings { handoff: Some(handoff), ..Settings::default() }
}

fn by(mode: Mode) -> Settings {
    settings(Handoff { mode, ..Handoff::default() })
}

/// Downloads something through whichever base the mobile is at.
fn a_new_connection_works(scene: &Scene) {
    let (mut received, mut failure) = (Watched::default(), None);
    let done = || {
        received = Watched::default();
        let limit = Duration::from_secs(15);
        failure = scene.client(80).download(50_000, &received, &Stop::default(), limit).err();
        failure.is_none()
    };
    wait_or(PATIENCE, done, || format!("no download\n{}", scene.said()));
    assert!(failure.is_none());
    assert_eq!(received.lock().total().get(), 50_000);
    assert!(received.lock().is_prefix_of(scene.servers.seed));
}

/// Migrated connections need the base that they left no more.
#[test]
fn the_old_base_may_die_once_its_connections_have_moved() {
    let Some(mut scene) = Scene::start(&by(Mode::Migrate), &Traffic::ALL) else { return };
    let before = scene.capture.take();
    let arrived = scene.go(2, DEAD_ZONE);
    scene.all_move_since(arrived);
    scene.fleet.kill_base(1);
    // Twice: the first bytes may have been on their way when it died.
    for _ in 0..2 {
        scene.all_move_since(Instant::now());
    }
    scene.server_noticed_nothing_since(&before);
    let arrived = scene.go(3, DEAD_ZONE);
    scene.all_move_since(arrived);
    scene.server_noticed_nothing_since(&before);
    scene.check_bytes();
}

/// Whatever moment the old base dies at: a connection goes on, or it is reset; no byte is wrong,
/// and none ends as if it were whole.
#[test]
fn a_base_that_dies_during_a_handoff_costs_connections_but_no_bytes() {
    for mode in MODES {
        // Who waits for a dead base waits long: all wait at once.
        thread::scope(|scope| {
            for after in [0, 20, 35, 60].map(Duration::from_millis) {
                scope.spawn(move || dies_during_a_handoff(mode, after));
            }
        });
    }
}

fn dies_during_a_handoff(mode: Mode, after: Duration) {
    let Some(mut scene) = Scene::start(&by(mode), &Traffic::ALL) else { return };
    let arrived = scene.go(2, DEAD_ZONE);
    thread::sleep(after.saturating_sub(arrived.elapsed()));
    scene.fleet.kill_base(1);
    let killed = Instant::now();
    each_moves_or_is_reset(&mut scene, killed);
    scene.check_bytes();
    the_server_has_what_moves_and_nothing_else(&mut scene);
    scene.flows.clear();
    a_new_connection_works(&scene);
}

fn each_moves_or_is_reset(scene: &mut Scene, since: Instant) {
    // A mobile learns that nobody knows of a connection when the new base gives up asking.
    let deadline = Instant::now() + 2 * PATIENCE;
    let mut waiting: Vec<usize> = (0..scene.flows.len()).collect();
    while !waiting.is_empty() {
        let flows = &mut scene.flows;
        waiting.retain(|i| {
            let flow: &mut Flow = &mut flows[*i];
            if let Some(why) = flow.failure() {
                assert!(why.contains("reset") || why.contains("Broken pipe"), "{why}");
                return false;
            }
            !flow.has_moved_since(since + Duration::from_millis(500))
        });
        if Instant::now() >= deadline {
            let stuck: Vec<Traffic> = waiting.iter().map(|i| scene.flows[*i].kind()).collect();
            panic!("neither moves nor is over: {stuck:?}\n{}", scene.said());
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// What had left the kernel of a base that died is in none. Whoever has the mobile then tells its
/// fixed hosts.
#[test]
fn connections_that_die_with_a_base_do_not_stay_half_open_at_the_server() {
    let (Some(program), config) = (program(), topology()) else { return };
    // So slow that no state is at the new base before the old one is dead.
    let Some(roam) = common::roam(&Config { base_rate: Some(Rate::from_mbps(2)), ..config }) else {
        return;
    };
    let settings = Settings { log: Some("debug".into()), ..by(Mode::Migrate) };
    let mut scene = Scene::on(roam, &settings, &program, &Traffic::ALL);
    scene.go(2, DEAD_ZONE);
    scene.says(|scene| scene.fleet.base_said(1).contains("session frozen"));
    scene.fleet.kill_base(1);
    each_moves_or_is_reset(&mut scene, Instant::now());
    scene.check_bytes();
    assert!(scene.flows.iter_mut().all(|flow| flow.failure().is_some()), "{}", scene.said());
    the_server_has_what_moves_and_nothing_else(&mut scene);
    scene.flows.clear();
    a_new_connection_works(&scene);
}

/// Waits until the server has the connections that go on at the mobile, and no others: it has sent
/// something to them, or asked whether they are there, and heard that they are not.
fn the_server_has_what_moves_and_nothing_else(scene: &mut Scene) {
    let deadline = Instant::now() + 4 * PATIENCE;
    loop {
        let ss = |args: &[&str]| scene.roam.server.command("ss").args(args).output().unwrap();
        let output = ss(&["-Htan", "exclude", "listening", "exclude", "time-wait"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let held = String::from_utf8(output.stdout).unwrap();
        let over = scene.flows.iter_mut().filter_map(Flow::failure).count();
        let alive = scene.flows.len() - over;
        if held.lines().count() <= alive {
            return;
        }
        let said = scene.said();
        assert!(Instant::now() < deadline, "{alive} go on, and the server has\n{held}{said}");
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn after_a_base_was_killed_and_started_again_the_next_connection_works() {
    for mode in MODES {
        let Some(mut scene) = Scene::start(&by(mode), &[]) else { return };
        a_new_connection_works(&scene);
        scene.fleet.kill_base(1);
        scene.fleet.start_base(1).unwrap();
        a_new_connection_works(&scene);
        // And it can be left as ever.
        scene.open(Traffic::Download);
        let arrived = scene.go(2, DEAD_ZONE);
        scene.all_move_since(arrived);
        scene.check_bytes();
    }
}

/// A base that the holder does not know as one gets nothing, and the holder says so; the
/// connections wait where they are.
#[test]
fn a_base_without_authorisation_gets_nothing() {
    for mode in MODES {
        let handoff = Handoff { mode, strangers: vec![2], ..Handoff::default() };
        let Some(mut scene) = Scene::start(&settings(handoff), &[Traffic::Download]) else {
            return;
        };
        let before = scene.capture.take();
        scene.go(2, DEAD_ZONE);
        thread::sleep(Duration::from_secs(1));
        let arrived = scene.go(1, DEAD_ZONE);
        scene.all_move_since(arrived);
        scene.check_bytes();
        scene.server_noticed_nothing_since(&before);
    }
}

#[test]
fn a_candidate_that_does_not_exist_is_refused_by_name_and_nothing_else_happens() {
    let Some(mut scene) = Scene::start(&by(Mode::Anchor), &Traffic::ALL) else { return };
    let before = scene.capture.take();
    for command in
        [&["handoff", "--to", "b9"][..], &["link", "imminent", "--to", "b9", "--in", "300ms"]]
    {
        let said = scene.fleet.ask(command).unwrap_err().to_string();
        assert!(said.contains("b9") && said.contains("b1") && said.contains("b3"), "{said}");
    }
    let asked = Instant::now();
    scene.all_move_since(asked);
    scene.server_noticed_nothing_since(&before);
    scene.check_bytes();
}

fn with_hook(fails_at: Option<IpAddr>) -> Option<Scene> {
    let settings = |roam: &Roam| {
        let routing = by_hook(roam, fails_at);
        settings(Handoff { mode: Mode::Migrate, routing, ..Handoff::default() })
    };
    Scene::start_with(settings, &Traffic::ALL)
}

#[test]
fn an_operators_command_may_do_the_routing() {
    let Some(mut scene) = with_hook(None) else { return };
    let before = scene.capture.take();
    for to in [2, 3, 1] {
        let arrived = scene.go(to, DEAD_ZONE);
        scene.all_move_since(arrived);
        scene.server_noticed_nothing_since(&before);
    }
    scene.check_bytes();
}

/// The way to the mobile's address does not follow it: that is said, and the connections are not
/// harmed by it.
#[test]
fn a_hook_that_fails_is_told_and_harms_nobody() {
    let Some(mut scene) = with_hook(Some(base_address(Family::V4, 2))) else { return };
    let before = scene.capture.take();
    scene.go(2, DEAD_ZONE);
    scene.says(|scene| {
        let said = scene.fleet.base_said(2);
        said.contains("no way") && said.contains("hook")
    });
    let arrived = scene.go(3, DEAD_ZONE);
    scene.all_move_since(arrived);
    scene.server_noticed_nothing_since(&before);
    scene.check_bytes();
}

/// The mobile is asked to move although it is in no dead zone, and back.
#[test]
fn a_move_by_command_needs_no_dead_zone() {
    for mode in MODES {
        let Some(mut scene) = Scene::start(&by(mode), &Traffic::ALL) else { return };
        let before = scene.capture.take();
        for to in ["b2", "b3", "b1"] {
            scene.fleet.ask(&["handoff", "--to", to]).unwrap();
            let asked = Instant::now();
            scene.all_move_since(asked);
            scene.server_noticed_nothing_since(&before);
        }
        scene.check_bytes();
    }
}

/// MHP-23: the mobile goes on before the last move is done.
#[test]
fn moves_that_overtake_each_other_lose_nothing() {
    for mode in MODES {
        let Some(mut scene) = Scene::start(&by(mode), &Traffic::ALL) else { return };
        let before = scene.capture.take();
        for (to, stay) in [(2, 10), (3, 40), (1, 25), (2, 60), (1, 5), (3, 80), (2, 30)] {
            scene.go(to, Duration::from_millis(30));
            thread::sleep(Duration::from_millis(stay));
        }
        let arrived = scene.go(3, DEAD_ZONE);
        scene.all_move_since(arrived);
        scene.server_noticed_nothing_since(&before);
        scene.check_bytes();
    }
}
