//! What agents bring kernels that know nothing of them.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::path::Path;
use std::thread;
use std::time::Duration;

use common::helped::program;
use lasthop_lab::LabError;
use lasthop_lab::agent::cell::{Cell, Figures, Hop, measure};
use lasthop_lab::agent::path::{Behind, Settings};
use lasthop_lab::agent::placement;
use lasthop_lab::agent::script::Gap;
use lasthop_lab::agent::sender::Sender;
use lasthop_lab::client::Stop;
use lasthop_lab::topology::link;
use lasthop_linux::netns::NetnsError;
use lasthop_radio::{Errors, LinkConfig, Loss, RadioConfig};
use lasthop_units::{Rate, Seed};

const SEED: Seed = Seed::from_u64(3);

/// The first of two is measured beside the second; none where the test may not have them.
fn both(cells: [&Cell; 2], seed: Seed, program: &Path) -> Option<[Figures; 2]> {
    let run = |cell: &Cell| measure(cell, seed, program, &Stop::default());
    let figures = thread::scope(|scope| {
        let beside = scope.spawn(|| run(cells[0]));
        let figures = run(cells[1]);
        [beside.join().unwrap(), figures]
    });
    let right = |figures: Result<Figures, LabError>| match figures {
        Ok(figures) => {
            assert!(figures.is_right, "wrong bytes");
            Some(figures)
        }
        Err(LabError::Netns(e @ NetnsError::NotPermitted(_))) => {
            eprintln!("skipped: {e}");
            None
        }
        Err(e) => panic!("{e}"),
    };
    let [first, second] = figures.map(right);
    Some([first?, second?])
}

fn losing(link: LinkConfig, loss: f64) -> RadioConfig {
    RadioConfig::both(LinkConfig { losses: vec![Loss::lose(Errors::Uniform(loss))], ..link })
}

/// A download with this scheme over the usual path, measured after a second.
fn cell(scheme: &str, path: Settings, measured: Duration) -> Cell {
    let league = Cell::league("none", path.sender, Hop::Clean, measured).unwrap();
    let agents = placement::of(scheme).unwrap().to_vec();
    Cell { path, agents, settle: Duration::from_secs(1), ..league }
}

fn mbps(figures: &Figures) -> f64 {
    figures.goodput.as_bps() as f64 / 1e6
}

/// SNP-5: 5 % of the packets are lost on a hop of 20 Mbit/s and 40 ms; the claim is five times, which
/// a quiet machine has to show; a busy one makes the agent late.
#[test]
fn snoop_multiplies_what_reno_gets_from_a_lossy_radio() {
    let Some(program) = program() else { return };
    let hop = link(Rate::from_mbps(20), Duration::from_millis(20), 100);
    let path =
        Settings { radio: Some(losing(hop, 0.05)), sender: Sender::RENO, ..Settings::default() };
    let measured = Duration::from_secs(8);
    let cells = ["none", "snoop"].map(|scheme| cell(scheme, path.clone(), measured));
    let Some([none, snoop]) = both([&cells[0], &cells[1]], SEED, &program) else { return };
    eprintln!("Reno at 5 % loss: {:.2} Mbit/s, with snoop {:.2}", mbps(&none), mbps(&snoop));
    assert!(mbps(&snoop) >= 2.0 * mbps(&none), "{:?}", snoop.counters);
}

/// A queue that the agent does not see, a burst that is lost whole, and a sender whose window has no
/// bound: snoop has little to repair there, and must not be what holds the sender up.
#[test]
fn snoop_does_not_hold_up_a_sender_that_it_cannot_help() {
    let Some(program) = program() else { return };
    let cell = |scheme| {
        let gaps = Hop::Gaps { told: true };
        Cell::league(scheme, Sender::CUBIC, gaps, Duration::from_secs(15)).unwrap()
    };
    let cells = ["none", "snoop"].map(cell);
    let Some([none, snoop]) = both([&cells[0], &cells[1]], SEED, &program) else { return };
    eprintln!("over a gap: {:.2} Mbit/s, with snoop {:.2}", mbps(&none), mbps(&snoop));
    assert!(mbps(&snoop) > 0.75 * mbps(&none), "{:?}", snoop.counters);
}

/// OBB-1, OBM-1: both hops lose 5 %, of which snoop at the base repairs what it can tell. Ten seconds
/// are few losses, so that as many as three may be looked at.
#[test]
fn obtcps_two_agents_beat_snoop_at_the_base_when_the_first_hop_loses() {
    let Some(program) = program() else { return };
    let measured = Duration::from_secs(10);
    let two = |scheme| {
        let hops = Hop::TwoHops(0.05);
        let cell = Cell::league(scheme, Sender::RENO_32, hops, measured).unwrap();
        Cell { settle: Duration::from_secs(1), ..cell }
    };
    let cells = ["snoop", "obtcp"].map(two);
    let beats = |seed| {
        let seed = Seed::from_u64(seed);
        let Some([snoop, obtcp]) = both([&cells[0], &cells[1]], seed, &program) else {
            return true;
        };
        eprintln!(
            "two hops at 5 % loss: snoop {:.2} Mbit/s, obtcp {:.2}, {:?}",
            mbps(&snoop),
            mbps(&obtcp),
            obtcp.counters
        );
        mbps(&obtcp) > 1.1 * mbps(&snoop)
    };
    assert!((3..6).any(beats));
}

/// What a silence cost beyond itself, at the rate before it.
fn cost(figures: &Figures, gap: Gap) -> f64 {
    let received = &figures.received;
    let at = |after| received.first().unwrap() + after;
    let (lead, rest) = (gap.lead.unwrap(), Duration::from_secs(3));
    let before = Duration::from_millis(1500);
    let from = gap.at - lead;
    let bytes = |from, to| received.between(at(from), at(to)).get() as f64;
    let rate = bytes(from - before, from) / before.as_secs_f64();
    (lead + rest).as_secs_f64() - bytes(from, gap.end() + rest) / rate
}

/// A silence of 5 s, told 150 ms ahead, which is a round trip with the queue full, on a hop of 20 Mbit/s
/// and 40 ms. What it costs without help is a matter of luck: a timeout may happen to end just after it.
/// Here it does not: timeouts of at most 300 ms, doubled, end more than a second after it.
fn silence(scheme: &str, program: &Path) -> Option<[f64; 2]> {
    let (at, lasting) = (Duration::from_secs(4), Duration::from_secs(5));
    let gap = Gap { at, lasting, lead: Some(Duration::from_millis(150)) };
    let hop = link(Rate::from_mbps(20), Duration::from_millis(20), 50);
    let radio = Some(RadioConfig::both(hop));
    let path = Settings { wire: None, radio, behind: Behind::Edge, ..Settings::default() };
    let cells = ["none", scheme].map(|scheme| Cell {
        gaps: vec![gap],
        settle: Duration::ZERO,
        ..cell(scheme, path.clone(), Duration::from_secs(13))
    });
    let figures = both([&cells[0], &cells[1]], SEED, program)?;
    let costs = figures.each_ref().map(|figures| cost(figures, gap));
    for (name, (cost, figures)) in ["none", scheme].iter().zip(costs.iter().zip(&figures)) {
        let Figures { timeouts, retransmitted, counters, .. } = figures;
        eprintln!(
            "{name}: 5 s of silence cost {cost:.2} s more; {timeouts} timeouts, {retransmitted} \
             segments sent again, {counters:?}"
        );
    }
    Some(costs)
}

/// Whether a told silence costs little where an untold one costs much. A busy machine may make the
/// agent late, so that it is seen as often as three times.
fn costs_little(scheme: &str, program: &Path) -> bool {
    (0..3).any(|_| match silence(scheme, program) {
        Some([none, told]) => none > 1.2 && told < 1.0,
        None => true,
    })
}

/// FRZ-1, FRZ-3: the claim is 0.3 s, which a quiet machine has to show.
#[test]
fn a_silence_that_freeze_was_told_of_costs_little_beyond_itself() {
    let Some(program) = program() else { return };
    assert!(costs_little("freeze", &program));
}

/// LLT-3: the same for the link-layer trigger.
#[test]
fn a_silence_that_ll_freeze_was_told_of_costs_little_beyond_itself() {
    let Some(program) = program() else { return };
    assert!(costs_little("ll-freeze", &program));
}
