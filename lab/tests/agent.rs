//! Agents in the path of kernels that know nothing of them: every scheme carries whatever the radio
//! does, and a bridge whose agent is gone is a bridge.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use common::helped::{PATIENCE, Scene, goes_on, moves};
use lasthop_lab::agent::path::{Behind, Settings};
use lasthop_lab::agent::placement;
use lasthop_lab::agent::sender::Sender;
use lasthop_lab::arrivals::Watched;
use lasthop_lab::client::{Client, Stop, Via};
use lasthop_lab::http;
use lasthop_lab::topology::{Family, link};
use lasthop_lab::traffic::Traffic;
use lasthop_radio::{Errors, LinkConfig, Loss, RadioConfig};
use lasthop_testing::wait_until;
use lasthop_units::{Rate, Seed};

const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// Short delays, so that much happens soon.
fn near(loss: f64) -> RadioConfig {
    let losses = if loss > 0.0 { vec![Loss::lose(Errors::Uniform(loss))] } else { Vec::new() };
    let hop = link(Rate::from_mbps(10), Duration::from_millis(5), 100);
    RadioConfig::both(LinkConfig { losses, ..hop })
}

/// A short path with this radio and a plain cable to the server.
fn short(loss: f64) -> Settings {
    Settings { wire: None, radio: Some(near(loss)), ..Settings::default() }
}

/// A download, an upload and a conversation by both families, each right to the last byte.
fn carries(scheme: &str, sender: Sender, program: &Path) {
    let behind =
        if scheme == "obtcp" { Behind::Router(Box::new(near(0.02))) } else { Behind::Edge };
    let settings = Settings { behind, sender, ..short(0.02) };
    let Some(mut scene) = Scene::start(&settings) else { return };
    scene.help(program, scheme);
    let kinds = [Traffic::Download, Traffic::Upload, Traffic::Both];
    let all = kinds.into_iter().flat_map(|kind| FAMILIES.map(|family| (kind, family)));
    let mut flows: Vec<_> = all.map(|(kind, family)| scene.flow(kind, family)).collect();
    for flow in &mut flows {
        moves(flow, 150_000);
        assert!(flow.sha256_ok(), "{scheme}, {sender}: {}", flow.kind());
    }
    for taken in scene.taken() {
        assert!(taken.iter().all(|packets| *packets > 200), "{scheme} takes no part: {taken:?}");
    }
}

#[test]
fn every_scheme_carries_both_ways_by_both_families_over_a_lossy_radio() {
    let Some(program) = common::program() else { return };
    let senders = [Sender::RENO, Sender::CUBIC];
    let cells: Vec<_> = placement::schemes().into_iter().zip(senders.into_iter().cycle()).collect();
    // Two at a time: most of the time goes by in waiting.
    let left = Mutex::new(cells);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let next = left.lock().unwrap().pop();
                    let Some((scheme, sender)) = next else { return };
                    carries(scheme.name(), sender, &program);
                }
            });
        }
    });
}

/// A path with an agent that has taken part in a download.
fn helped(scheme: &str) -> Option<(Scene, lasthop_lab::traffic::Flow)> {
    let program = common::program()?;
    let settings = Settings { behind: Behind::Edge, ..short(0.0) };
    let mut scene = Scene::start(&settings)?;
    scene.help(&program, scheme);
    let flow = scene.flow(Traffic::Download, Family::V4);
    takes_part(&scene);
    Some((scene, flow))
}

/// Every agent takes packets from both sides from here on.
fn takes_part(scene: &Scene) {
    let before = scene.taken();
    wait_until("an agent's part", PATIENCE, || {
        let pairs = scene.taken().into_iter().zip(&before);
        pairs.flat_map(|(now, then)| now.into_iter().zip(*then)).all(|(now, then)| now > then)
    });
}

#[test]
fn when_an_agent_is_killed_connections_go_on_and_the_next_one_takes_them_over() {
    for scheme in ["snoop", "delayed-dupacks", "freeze"] {
        let Some((mut scene, mut flow)) = helped(scheme) else { return };
        for round in 0..2 {
            for helper in &mut scene.helpers {
                helper.daemon.kill();
            }
            // More than was on its way.
            moves(&mut flow, 500_000);
            let mut new = scene.flow(Traffic::Both, Family::V6);
            for helper in &mut scene.helpers {
                helper.restart(PATIENCE).unwrap();
            }
            takes_part(&scene);
            moves(&mut flow, 500_000);
            moves(&mut new, 100_000);
            assert!(flow.sha256_ok() && new.sha256_ok(), "{scheme}, {round}");
        }
    }
}

#[test]
fn when_an_agent_is_stopped_connections_go_on() {
    let Some((mut scene, mut flow)) = helped("m-tcp") else { return };
    assert!(scene.helpers.iter_mut().all(|helper| helper.daemon.stop()));
    moves(&mut flow, 500_000);
    assert!(flow.sha256_ok());
    let rules = scene.path.base.command("nft").args(["list", "ruleset"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&rules.stdout).trim(), "", "it left rules behind");
}

#[test]
fn an_interface_may_vanish_and_come_back_under_a_connection() {
    let Some(program) = common::program() else { return };
    let settings = short(0.0);
    let Some(mut scene) = Scene::start(&settings) else { return };
    scene.help(&program, "snoop");
    let mut flow = scene.flow(Traffic::Download, Family::V4);
    takes_part(&scene);
    scene.path.remove_wire().unwrap();
    let helper = &mut scene.helpers[0];
    helper.wait_until(PATIENCE, |report| !report.fixed.up).unwrap();
    scene.path.replace_wire(&settings).unwrap();
    helper.wait_until(PATIENCE, |report| report.fixed.up).unwrap();
    moves(&mut flow, 500_000);
    takes_part(&scene);
    goes_on(&mut flow);
    assert!(flow.sha256_ok());
}

#[test]
fn connections_to_the_bridge_itself_are_its_own() {
    let Some(program) = common::program() else { return };
    let Some(mut scene) = Scene::start(&short(0.0)) else { return };
    scene.help(&program, "snoop");
    let seed = Seed::from_u64(5);
    for family in FAMILIES {
        let address = (scene.path.base_address(family), 22).into();
        let server = http::start(&scene.path.base, address, seed).unwrap();
        for host in [&scene.path.fixed, &scene.path.mobile] {
            let (received, stop) = (Watched::default(), Stop::default());
            let client = Client::new(host, Via::Direct, server.address());
            client.download(300_000, &received, &stop, PATIENCE).unwrap();
            assert!(received.lock().is_prefix_of(seed));
        }
    }
    let report = scene.helpers[0].report().unwrap();
    let sent = [report.fixed.packets_sent, report.mobile.packets_sent];
    assert_eq!(sent, [0, 0], "it handed on what was the bridge's own");
}

#[test]
fn an_agent_tells_what_it_has_carried_of_late() {
    let Some(program) = common::program() else { return };
    let Some(mut scene) = Scene::start(&short(0.0)) else { return };
    scene.help(&program, "snoop");
    let mut flow = scene.flow(Traffic::Download, FAMILIES[0]);
    moves(&mut flow, 500_000);
    // The second in which they were carried has to be over.
    wait_until("what was carried is remembered", PATIENCE, || {
        let report = lasthop_control::query_with_past(&scene.helpers[0].control()).unwrap();
        let to_mobile = report.past.unwrap().to_hop_bps;
        to_mobile.iter().sum::<u64>() / 8 >= 500_000
    });
}

/// Packets as large as the kernel makes them, and frames of 9000 bytes, over cables only.
#[test]
fn large_packets_are_cut_and_carried_both_ways() {
    let Some(program) = common::program() else { return };
    for (mtu, scheme) in [(1500, "snoop"), (9000, "snoop"), (1500, "rwc"), (9000, "m-tcp")] {
        let (behind, sender) = (Behind::Edge, Sender { ecn: true, ..Sender::CUBIC });
        let cables = Settings { wire: None, radio: None, ..Settings::default() };
        let settings = Settings { mtu, behind, sender, ..cables };
        let Some(mut scene) = Scene::start(&settings) else { return };
        scene.help(&program, scheme);
        for family in FAMILIES {
            for kind in [Traffic::Download, Traffic::Upload, Traffic::Both] {
                let mut flow = scene.flow(kind, family);
                moves(&mut flow, 4_000_000);
                assert!(flow.sha256_ok(), "{scheme}, {mtu}, {kind}, {family:?}");
            }
        }
    }
}

/// Segments that a port merges (GRO) are cut again.
#[test]
fn merged_segments_are_cut_again() {
    let Some(program) = common::program().filter(|_| lasthop_testing::is_installed("ethtool"))
    else {
        return;
    };
    let Some(mut scene) = Scene::start(&Settings { wire: Some(near(0.0)), ..short(0.02) }) else {
        return;
    };
    for port in ["fixed0", "mobile0"] {
        let merge = scene.path.base.command("ethtool").args(["-K", port, "gro", "on"]).output();
        assert!(merge.unwrap().status.success());
    }
    scene.help(&program, "snoop");
    for family in FAMILIES {
        let mut flow = scene.flow(Traffic::Both, family);
        moves(&mut flow, 500_000);
        assert!(flow.sha256_ok());
    }
    assert!(scene.taken().concat().iter().all(|packets| *packets > 100));
}
