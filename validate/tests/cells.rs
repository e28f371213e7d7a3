//! Our Reno beside ns-2's, cell by cell, from the written reference: no ns-2 is needed.

#![allow(clippy::expect_used, reason = "a test that cannot go on should say where")]

use std::sync::LazyLock;

use lasthop_study::analysis::obtcp::{Hop, Hops, LossProbability, Model};
use lasthop_units::Duration;
use lasthop_validate::ours;
use lasthop_validate::reference::{Cell, cells};
use lasthop_validate::run::Effort;
use lasthop_validate::scenario::Sender;
use lasthop_validate::verdict::Compared;
use rayon::prelude::*;

/// Runs of a cell at most: none needs as many.
const MOST: u32 = 900;

/// Our own snoop, whose timer does not grow with what recovery takes: two tests look at its cells.
static USUAL: LazyLock<Vec<(Cell, Compared)>> =
    LazyLock::new(|| all(|c| c.table == "snoop" && c.row.starts_with("usual")));

/// The cells that are `wanted`, each with ours beside it.
fn all(wanted: impl Fn(&Cell) -> bool) -> Vec<(Cell, Compared)> {
    let cells = cells().expect("the reference").into_iter().filter(wanted);
    let cells: Vec<Cell> = cells.collect();
    let compare = |cell: Cell| {
        let compared = compare(&cell);
        (cell, compared)
    };
    cells.into_par_iter().map(compare).collect()
}

fn all_agree(wanted: impl Fn(&Cell) -> bool) {
    agree(&all(wanted));
}

fn agree(cells: &[(Cell, Compared)]) {
    assert!(!cells.is_empty());
    let compared = cells.iter().map(|(_, compared)| compared);
    let out: Vec<_> = compared.filter(|c| !c.agrees()).map(|c| c.line(0)).collect();
    assert!(out.is_empty(), "differ from ns-2:\n{}", out.join("\n"));
}

/// Ours is known so well that a cell neither agrees nor differs by chance.
fn compare(cell: &Cell) -> Compared {
    let effort = Effort::against(&cell.ns2, MOST);
    let ours = effort.measure(cell.unit, |seed| ours::run(&cell.scenario, seed));
    let ours = ours.expect("a network that runs").expect("runs");
    assert!(ours.runs < MOST, "{} is not known well enough", cell.name());
    Compared::new(cell, ours, None)
}

/// RENO-2, RENO-3, RENO-5, RENO-6, ERR-6: uniform losses from 0.01 to 30 %.
#[test]
fn reno_over_uniform_losses_goes_as_in_ns2() {
    all_agree(|c| c.table == "fig17" && c.row == "Reno");
}

/// ERR-8: acknowledgements are lost as well.
#[test]
fn reno_that_loses_acknowledgements_too_goes_as_in_ns2() {
    all_agree(|c| c.table == "fig17" && c.row == "Reno, losses both ways" && c.at.1 <= 0.2);
}

/// RENO-2..6: the round trip's share.
#[test]
fn reno_over_longer_round_trips_goes_as_in_ns2() {
    all_agree(|c| c.table == "fig14");
}

/// LNK-4: bursts in packets.
#[test]
fn reno_over_bursts_goes_as_in_ns2() {
    all_agree(|c| c.table == "burst" && c.row == "Reno");
}

/// ERR-1..3: fades in clock time, with a fine and with BSD's clock (RENO-5).
#[test]
fn reno_over_fades_goes_as_in_ns2() {
    all_agree(|c| {
        c.table == "fade"
            && ["Reno", "Reno, RTO 1.0/0.5"].contains(&c.row.as_str())
            && [0.0, 0.005, 0.01, 0.03, 0.05].contains(&c.at.1)
    });
}

/// RENO-5, RENO-6, LNK-12: the ladder of timeouts over an outage. Left out is the 5 s outage with a
/// 500 ms tick, where the sender sleeps across cycles or does not, so that no mean is soon known.
#[test]
fn reno_over_outages_goes_as_in_ns2() {
    all_agree(|c| {
        let wild = c.row.contains("RTO 1.0/0.5") && c.at.1 == 5.0;
        c.table == "outage" && c.sender == Sender::Reno && !wild
    });
}

/// LNK-12: outages whose lengths vary.
#[test]
fn reno_over_outages_of_all_lengths_goes_as_in_ns2() {
    all_agree(|c| c.table == "outage-jitter" && c.row == "Reno, RTO 0.2/0.01, RTT 50");
}

/// RENO-3: the other senders, where losses are few and where they are many.
#[test]
fn the_other_senders_go_as_in_ns2() {
    all_agree(|c| {
        c.table == "fig17"
            && ["NewReno", "Sack"].contains(&c.row.as_str())
            && [0.001, 0.01, 0.05].contains(&c.at.1)
    });
}

/// SNP-4, SNP-6, SNP-7: our snoop with ns-2's threshold and timer.
#[test]
fn snoop_set_as_ns2s_goes_as_in_ns2() {
    all_agree(|c| {
        c.table == "snoop"
            && c.row.starts_with("alike")
            && c.at.1 <= 0.25
            && !c.row.ends_with("pinned")
    });
}

/// SNP-1 to SNP-6: our own snoop, whose timer does not grow with what recovery takes.
#[test]
fn our_snoop_goes_as_ns2s_where_losses_are_few_and_as_one_with_a_pinned_timer_where_not() {
    agree(&USUAL);
}

/// Equation (16) of the obTCP paper is of a snoop that waits for nothing but the link.
#[test]
fn no_snoop_is_better_than_its_model() {
    assert!(USUAL.len() > 5);
    for (cell, compared) in USUAL.iter() {
        let link = |delay, loss| {
            let loss = LossProbability::new(loss).expect("a probability");
            Hop { delay: Duration::from_millis(delay), loss }
        };
        let hops = Hops::new(link(20, cell.at.1), link(20, 0.0001));
        let model = Model::new(Duration::from_millis(50), hops, 16).expect("a model");
        let most = 1.05 * model.snoop_throughput().per_second();
        let ours = compared.ours.goodput;
        assert!(ours.mean < most, "{}: {ours:?}, the model gives {most} less 5 %", cell.name());
    }
}

/// LNK-15: a cell is the same number every time.
#[test]
fn a_run_follows_from_its_seed() {
    let cells = cells().unwrap();
    let cell = cells.iter().find(|c| c.name() == "fade/Reno/share=0.02").unwrap();
    let [a, b, c] = [1, 1, 2].map(|seed| ours::run(&cell.scenario, seed).unwrap());
    assert_eq!(a, b);
    assert_ne!(a, c);
}
