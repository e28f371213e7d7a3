//! Connections go on while the mobile moves from base to base, and the server notices nothing.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use common::program;
use common::scene::{PATIENCE, Scene, topology};
use lasthop_lab::arrivals::{Received, Watched};
use lasthop_lab::client::{Stop, Via};
use lasthop_lab::content::Content;
use lasthop_lab::journey::{Plan, Tale, travel};
use lasthop_lab::roam::{Handoff, Mode, Settings, own_address};
use lasthop_lab::talk::{self, Amounts};
use lasthop_lab::topology::Family;
use lasthop_lab::traffic::Traffic;
use lasthop_testing::{wait_or, wait_until};

const DEAD_ZONE: Duration = Duration::from_millis(300);

fn settings(mode: Mode, hop: &str) -> Settings {
    let handoff = Handoff { mode, ..Handoff::default() };
    Settings { hop: hop.to_owned(), handoff: Some(handoff), ..Settings::default() }
}

/// Three moves under a download, an upload, both at once on one connection, and an idle one.
fn nobody_notices_three_moves(settings: Settings, warning: Option<Duration>) {
    let Some(program) = program() else { return };
    if common::roam(&topology()).is_none() {
        return;
    }
    let plan = Plan {
        topology: topology(),
        settings,
        traffic: Traffic::ALL.to_vec(),
        dead_zone: DEAD_ZONE,
        stay: Duration::from_millis(700),
        warning,
        patience: PATIENCE,
        ..Plan::default()
    };
    let crossings = travel(&plan, &program, &Stop::default(), &mut |_: Tale<'_>| {}).unwrap();
    for crossing in &crossings {
        assert!(crossing.is_good(), "{crossing:?}");
        assert!(crossing.dead_zone >= DEAD_ZONE);
        assert_eq!(crossing.predicted, warning.is_some());
    }
    assert_eq!(crossings.len(), 3);
}

/// MHP-15, MHP-16, MHP-17, MHP-18, MHP-19: no byte is wrong, and the server sees no reset and no opening.
#[test]
fn nobody_notices_moves_with_anchored_srp() {
    nobody_notices_three_moves(settings(Mode::Anchor, "srp"), None);
}

/// The same, and the wired connections change kernels with their four-tuples.
#[test]
fn nobody_notices_moves_with_migrating_srp() {
    nobody_notices_three_moves(settings(Mode::Migrate, "srp"), None);
}

/// MOB-37: handoffs are the hop's business no more than the connections are.
#[test]
fn nobody_notices_moves_with_anchored_mobile_tcp() {
    nobody_notices_three_moves(settings(Mode::Anchor, "mobile-tcp"), None);
}

/// ITCP-3, ITCP-4: the same where kernel TCP crosses the hop.
#[test]
fn nobody_notices_moves_with_anchored_split_tcp() {
    nobody_notices_three_moves(settings(Mode::Anchor, "split-tcp"), None);
}

#[test]
fn nobody_notices_moves_with_migrating_mobile_tcp() {
    nobody_notices_three_moves(settings(Mode::Migrate, "mobile-tcp"), None);
}

#[test]
fn nobody_notices_moves_with_migrating_split_tcp() {
    nobody_notices_three_moves(settings(Mode::Migrate, "split-tcp"), None);
}

#[test]
fn nobody_notices_moves_by_ipv6() {
    for mode in [Mode::Anchor, Mode::Migrate] {
        let settings = Settings { family: Family::V6, ..settings(mode, "srp") };
        nobody_notices_three_moves(settings, None);
    }
}

/// MOB-39: the state is sent ahead.
#[test]
fn nobody_notices_moves_that_were_announced() {
    for mode in [Mode::Anchor, Mode::Migrate] {
        nobody_notices_three_moves(settings(mode, "srp"), Some(Duration::from_millis(200)));
    }
}

/// MOB-43: the mobile comes where nobody expected it.
#[test]
fn a_wrong_announcement_does_no_harm() {
    for mode in [Mode::Anchor, Mode::Migrate] {
        let Some(mut scene) = Scene::start(&settings(mode, "srp"), &Traffic::ALL) else { return };
        let before = scene.capture.take();
        scene.fleet.ask(&["link", "imminent", "--to", "b3", "--in", "200ms"]).unwrap();
        thread::sleep(Duration::from_millis(200));
        let arrived = scene.go(2, DEAD_ZONE);
        scene.all_move_since(arrived);
        scene.server_noticed_nothing_since(&before);
        scene.check_bytes();
    }
}

/// In migrate mode the server knows the mobile by its own address, at whichever base it is.
#[test]
fn the_server_sees_the_mobiles_own_address() {
    let Some(scene) = Scene::start(&settings(Mode::Migrate, "srp"), &[Traffic::Idle]) else {
        return;
    };
    let seen = scene.capture.take();
    assert!(seen.alive.iter().all(|who| who.client.ip() == own_address(Family::V4)), "{seen:?}");
}

/// One direction is over long before the other.
fn half_closed_connections_move(mode: Mode, amounts: Amounts) {
    let Some(mut scene) = Scene::start(&settings(mode, "srp"), &[]) else { return };
    let (client, seed) = (scene.client(81), scene.servers.seed);
    let (received, stop) = (Watched::default(), Stop::default());
    let heard = scene.servers.talk.arrivals("half");
    let done = thread::scope(|scope| {
        let talk = || talk::both(&client, "half", amounts, seed, &received, &stop, PATIENCE);
        let task = scope.spawn(talk);
        // Each time a little of the longer direction has come and most of it has not.
        let moved = || received.lock().total().get() + heard.lock().total().get();
        for (n, to) in (1..).zip([2, 3, 1]) {
            let some = LITTLE + n * MUCH / 10;
            let few = || format!("{} bytes of {some}\n{}", moved(), scene.said());
            wait_or(PATIENCE, || moved() > some, few);
            assert!(moved() < LITTLE + MUCH, "it was over before the mobile moved to {to}");
            scene.go(to, DEAD_ZONE);
        }
        let never = || {
            stop.set();
            format!("it never ended\n{}", scene.said())
        };
        wait_or(PATIENCE, || task.is_finished(), never);
        task.join().unwrap()
    });
    done.unwrap();
    let all = || heard.lock().total().get() >= amounts.up;
    wait_or(PATIENCE, all, || format!("{:?}\n{}", heard.lock().total(), scene.said()));
    assert_eq!(received.lock().total().get(), amounts.down);
    assert!(received.lock().is_prefix_of(talk::server_seed(seed)));
    assert_eq!(heard.lock().total().get(), amounts.up);
    assert!(heard.lock().is_prefix_of(talk::client_seed(seed)));
    assert!(!scene.capture.take().any_reset());
}

const LITTLE: u64 = 20_000;
const MUCH: u64 = 4_000_000;

#[test]
fn a_connection_that_the_client_has_half_closed_moves() {
    for mode in [Mode::Anchor, Mode::Migrate] {
        half_closed_connections_move(mode, Amounts { up: LITTLE, down: MUCH });
    }
}

#[test]
fn a_connection_that_the_server_has_half_closed_moves() {
    for mode in [Mode::Anchor, Mode::Migrate] {
        half_closed_connections_move(mode, Amounts { up: MUCH, down: LITTLE });
    }
}

#[test]
fn curl_fetches_a_file_across_three_moves() {
    if !lasthop_testing::is_installed("curl") {
        return;
    }
    for mode in [Mode::Anchor, Mode::Migrate] {
        let Some(mut scene) = Scene::start(&settings(mode, "srp"), &[]) else { return };
        let Via::Socks5(proxy) = scene.fleet.via() else { return };
        let url = format!("http://{}/bytes/{MUCH}", scene.roam.server_address(Family::V4, 80));
        let mut curl = scene.roam.mobile.command("curl");
        curl.args(["--silent", "--show-error", "--fail", "--max-time", "60"]);
        curl.args(["--socks5", &proxy.to_string(), &url]);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        curl.arg("--output").arg(&file);
        let output = thread::scope(|scope| {
            let fetched = scope.spawn(move || curl.output().unwrap());
            // Each time a little has come and most of it has not.
            for (n, to) in (1..).zip([2, 3, 1]) {
                wait_until("some of the file", PATIENCE, || {
                    let there = fs::metadata(&file).map_or(0, |file| file.len());
                    there > n * MUCH / 10 || fetched.is_finished()
                });
                assert!(!fetched.is_finished(), "it was over before the mobile moved to {to}");
                scene.go(to, DEAD_ZONE);
            }
            fetched.join().unwrap()
        });
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{complaint}\n{}", scene.said());
        let mut received = Received::default();
        received.take(Instant::now(), &fs::read(&file).unwrap());
        assert_eq!(received.total().get(), MUCH);
        assert!(received.is_prefix_of(scene.servers.seed));
        assert!(!scene.capture.take().any_reset());
    }
}

/// What is asked for anew after a move goes by the new base.
#[test]
fn connections_opened_after_a_move_work_and_old_ones_too() {
    for mode in [Mode::Anchor, Mode::Migrate] {
        let traffic = [Traffic::Download];
        let Some(mut scene) = Scene::start(&settings(mode, "srp"), &traffic) else { return };
        for to in [2, 3] {
            let arrived = scene.go(to, DEAD_ZONE);
            scene.open(Traffic::Both);
            scene.all_move_since(arrived);
        }
        scene.check_bytes();
        let content = &mut Content::new(scene.servers.seed);
        let mut expected = vec![0; 10_000];
        content.fill(&mut expected);
        let received = Watched::default();
        scene.client(80).download(10_000, &received, &Stop::default(), PATIENCE).unwrap();
        assert_eq!(received.lock().total().get(), 10_000);
        assert!(received.lock().is_prefix_of(scene.servers.seed));
    }
}
