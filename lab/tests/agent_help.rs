//! What agents do for kernels that know nothing of them, told by what they and the kernels count: how
//! much faster that makes a transfer is for the benchmarks to say.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::thread;
use std::time::Duration;

use common::program;
use lasthop_lab::agent::cell::{Cell, Figures, Hop, measure};
use lasthop_lab::agent::path::{Behind, Settings};
use lasthop_lab::agent::placement;
use lasthop_lab::agent::script::Gap;
use lasthop_lab::agent::sender::Sender;
use lasthop_lab::client::Stop;
use lasthop_lab::topology::link;
use lasthop_radio::{Errors, LinkConfig, Loss, RadioConfig};
use lasthop_units::{Rate, Seed};

const SEED: Seed = Seed::from_u64(3);

/// All are measured beside each other; none where the test may not have them.
fn all<const N: usize>(cells: &[Cell; N], program: &Path) -> Option<[Figures; N]> {
    let figures = thread::scope(|scope| {
        let run = |cell| scope.spawn(move || measure(cell, SEED, program, &Stop::default()));
        cells.each_ref().map(run).map(|cell| cell.join().unwrap())
    });
    let figures = figures.map(common::permitted);
    assert!(figures.iter().flatten().all(|figures| figures.is_right), "wrong bytes");
    figures.iter().all(Option::is_some).then(|| figures.map(Option::unwrap))
}

fn counter(counters: &BTreeMap<String, u64>, name: &str) -> u64 {
    *counters.get(name).unwrap_or_else(|| panic!("nobody counts {name}: {counters:?}"))
}

/// A download with this scheme over the usual path.
fn cell(scheme: &str, path: Settings, measured: Duration) -> Cell {
    let league = Cell::league("none", path.sender, Hop::Clean, measured).unwrap();
    let agents = placement::of(scheme).unwrap();
    Cell { path, agents, settle: Duration::ZERO, ..league }
}

/// SNP-3: 5 % of the packets are lost on a hop of 20 Mbit/s and 40 ms. Most of them the agent sends
/// again, and the duplicates that ask for them do not reach the sender.
#[test]
fn snoop_repairs_on_the_hop_what_the_sender_repairs_without_it() {
    let Some(program) = program() else { return };
    let hop = link(Rate::from_mbps(20), Duration::from_millis(20), 100);
    let losses = vec![Loss::lose(Errors::Uniform(0.05))];
    let radio = Some(RadioConfig::both(LinkConfig { losses, ..hop }));
    let path = Settings { radio, sender: Sender::RENO, ..Settings::default() };
    let measured = Duration::from_secs(8);
    let cells = ["none", "snoop"].map(|scheme| cell(scheme, path.clone(), measured));
    let Some([none, snoop]) = all(&cells, &program) else { return };
    let of = |name: &str| counter(&snoop.counters[0], &format!("snoop_{name}"));
    let per_packet = |figures: &Figures| {
        figures.retransmitted as f64 / figures.radio.delivered.packets.max(1) as f64
    };
    eprintln!(
        "sent again by the sender, of each packet: {:.4}, with snoop {:.4}: {:?}",
        per_packet(&none),
        per_packet(&snoop),
        snoop.counters
    );
    assert!(of("suppressed") > 0, "{:?}", snoop.counters);
    assert!(of("local_retransmits") > snoop.retransmitted, "{snoop:?}");
    assert!(per_packet(&snoop) < per_packet(&none), "{:?}", snoop.counters);
}

/// OBB-1, OBB-3, OBM-1, OBM-5: both hops lose 5 %. The router asks the base for what the first lost,
/// and sends again of its own what the second lost.
#[test]
fn obtcps_two_agents_repair_a_hop_each() {
    let Some(program) = program() else { return };
    let hops = Hop::TwoHops(0.05);
    let cell = Cell::league("obtcp", Sender::RENO_32, hops, Duration::from_secs(10)).unwrap();
    let Some([obtcp]) = all(&[cell], &program) else { return };
    eprintln!("{:?}", obtcp.counters);
    let [base, router] = &obtcp.counters[..] else { panic!("{:?}", obtcp.counters) };
    for name in ["gaps", "snacks", "recovered", "retransmitted", "suppressed"] {
        assert!(counter(router, &format!("obtcp_router_{name}")) > 0, "{name}: {router:?}");
    }
    assert!(counter(base, "obtcp_base_retransmitted") > 0, "{base:?}");
}

/// A silence of 5 s, told well ahead, so that everything is acknowledged before it however busy the
/// machine is. Without help the sender's timer runs out in it; with windows of zero it does not.
fn a_told_silence_costs_no_timeout(scheme: &str) {
    let Some(program) = program() else { return };
    let (at, lasting) = (Duration::from_secs(4), Duration::from_secs(5));
    let gap = Gap { at, lasting, lead: Some(Duration::from_secs(2)) };
    let hop = link(Rate::from_mbps(20), Duration::from_millis(20), 50);
    let radio = Some(RadioConfig::both(hop));
    let path = Settings { wire: None, radio, behind: Behind::Edge, ..Settings::default() };
    let cells = ["none", scheme].map(|scheme| Cell {
        gaps: vec![gap],
        ..cell(scheme, path.clone(), Duration::from_secs(13))
    });
    let Some([none, told]) = all(&cells, &program) else { return };
    eprintln!("{} timeouts, told {}: {:?}", none.timeouts, told.timeouts, told.counters);
    assert!(none.timeouts > 0, "the silence did not matter");
    assert_eq!(told.timeouts, 0, "{:?}", told.counters);
    for name in ["freezes", "zero_windows", "thaws"] {
        let name = format!("{}_{name}", scheme.replace('-', "_"));
        assert!(counter(&told.counters[0], &name) > 0, "{name}: {:?}", told.counters);
    }
    let first = told.received.first().unwrap();
    let after = told.received.between(first + gap.end(), first + Duration::from_secs(13));
    assert!(after.get() > 0, "nothing came after the silence: {:?}", told.counters);
}

/// FRZ-1, FRZ-2, FRZ-3.
#[test]
fn a_silence_that_freeze_was_told_of_costs_the_sender_no_timeout() {
    a_told_silence_costs_no_timeout("freeze");
}

/// LLT-3, LLT-4: the same for the link-layer trigger.
#[test]
fn a_silence_that_ll_freeze_was_told_of_costs_the_sender_no_timeout() {
    a_told_silence_costs_no_timeout("ll-freeze");
}
