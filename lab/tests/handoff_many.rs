//! A thousand connections of one mobile move together.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::time::Duration;

use common::program;
use lasthop_lab::client::Stop;
use lasthop_lab::journey::{Plan, travel};
use lasthop_lab::roam::{Config, Handoff, Mode, Settings};
use lasthop_lab::topology::link;
use lasthop_radio::RadioConfig;
use lasthop_units::Rate;

const CONNECTIONS: usize = 1000;

fn all_move(mode: Mode) {
    let Some(program) = program() else { return };
    let radio = link(Rate::from_mbps(50), Duration::from_millis(10), 200);
    let topology = Config {
        radio: RadioConfig::both(radio),
        wired: link(Rate::from_mbps(200), Duration::from_millis(5), 1000),
        base_rate: Some(Rate::from_mbps(1000)),
        base_delay: Duration::ZERO,
        ..Config::default()
    };
    if common::roam(&topology).is_none() {
        return;
    }
    let handoff = Handoff { mode, ..Handoff::default() };
    let settings = Settings { handoff: Some(handoff), ..Settings::default() };
    let patience = Duration::from_secs(60);
    let plan = Plan { topology, settings, handoffs: 2, patience, ..Plan::crowd(CONNECTIONS) };
    let crossings = travel(&plan, &program, &Stop::default(), &mut |_| {}).unwrap();
    assert_eq!(crossings.len(), plan.handoffs as usize);
    for crossing in crossings {
        println!("{mode}: {} connections in {:?}", crossing.connections, crossing.took);
        assert!(crossing.broken.is_empty(), "{:?}\n{}", crossing.broken, crossing.said);
        assert_eq!(crossing.connections, CONNECTIONS);
        assert!(crossing.is_good(), "{crossing:?}");
    }
}

#[test]
fn a_thousand_anchored_connections_move_together() {
    all_move(Mode::Anchor);
}

#[test]
fn a_thousand_migrating_connections_move_together() {
    all_move(Mode::Migrate);
}
