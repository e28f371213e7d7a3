use std::collections::BTreeSet;

use lasthop_engine::Simulator;
use lasthop_radio::Direction;
use lasthop_scenario::{Engine, NodeKind};
use lasthop_units::{Duration, Scheme, Seed};

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

fn cell(condition: Condition, scheme: Scheme, sender: Sender) -> Cell {
    Cell { condition, scheme, sender, duration: MINUTE }
}

/// The mean goodput of a few runs, in bits a second.
fn goodput(condition: Condition, scheme: Scheme, sender: Sender) -> f64 {
    let rates = run(&cell(condition, scheme, sender), &[1, 2, 3, 4]).expect("runs");
    rates.iter().map(|rate| rate.as_bps() as f64).sum::<f64>() / rates.len() as f64
}

#[test]
fn every_cell_has_a_name_of_its_own_and_links_that_there_can_be() {
    let cells = cells(MINUTE);
    let names: BTreeSet<String> = cells.iter().map(Cell::to_string).collect();
    assert_eq!(names.len(), cells.len());
    for cell in &cells {
        for radio in [Some(cell.wire()), Some(cell.radio()), cell.wlan()].into_iter().flatten() {
            assert_eq!((radio.up.validate(), radio.down.validate()), (Ok(()), Ok(())), "{cell}");
        }
        Simulator.check(&scenario(cell)).unwrap_or_else(|e| panic!("{cell}: {e}"));
    }
    assert_eq!(cells[0].scheme, Scheme::None);
}

/// What the simulator builds is what the cell says.
#[test]
fn the_scenario_has_the_links_of_its_cell() {
    for cell in cells(MINUTE) {
        let scenario = scenario(&cell);
        let built: Vec<_> = scenario.links.iter().map(|link| link.radio.clone()).collect();
        let said: Vec<_> =
            [Some(cell.wire()), Some(cell.radio()), cell.wlan()].into_iter().flatten().collect();
        assert_eq!(built, said, "{cell}");
        assert_eq!(cell.condition.has_router(), cell.wlan().is_some());
        // The download goes `down`: from the second end of each link to the first.
        let ends: Vec<_> = scenario.links.iter().map(|link| link.ends.map(|n| n.0)).collect();
        assert!(ends.iter().all(|[to, from]| to == &(from + 1)), "{ends:?}");
        let last = scenario.nodes.last().map(|node| node.kind);
        assert_eq!(last, Some(NodeKind::MobileHost));
    }
}

/// LNK-12: both worlds have the same gaps, which are over when the download is.
#[test]
fn gaps_follow_from_the_seed_and_fit() {
    for duration in [30, 60, 100].map(Duration::from_secs) {
        let gaps = |told, seed| {
            let condition = Condition::Gaps { told };
            let cell = Cell { duration, ..cell(condition, Scheme::None, Sender::Reno) };
            let seed = Seed::from_u64(seed);
            let handoff = scenario(&cell).handoff.expect("gaps");
            let outages = cell.outages(seed);
            assert!(handoff.moves(seed).map(|m| m.at).eq(outages.iter().map(|o| o.at)));
            outages
        };
        let (told, untold) = (gaps(true, 1), gaps(false, 1));
        assert!(told.iter().all(|o| o.lead.is_some()) && untold.iter().all(|o| o.lead.is_none()));
        let times = |outages: &[Outage]| outages.iter().map(|o| o.at).collect::<Vec<_>>();
        assert_eq!(times(&told), times(&untold));
        assert_ne!(times(&told), times(&gaps(true, 2)));
        assert!(told.iter().all(|o| o.at + o.lasting <= duration), "{told:?}");
        assert!(told.len() as u64 >= duration.as_secs() / 10 - 1, "{told:?}");
    }
    assert!(
        cell(Condition::Fades, Scheme::None, Sender::Reno).outages(Seed::from_u64(1)).is_empty()
    );
}

/// Each scheme that acts has agents, and those behind the hop only where there is something.
#[test]
fn every_scheme_has_its_agents() {
    for cell in cells(MINUTE) {
        let agents = cell.agents();
        assert_eq!(agents.is_empty(), cell.scheme == Scheme::None, "{cell}");
        let at_router = cell.scheme.traits().needs_mobile_router;
        assert!(!at_router || cell.condition.has_router(), "{cell}");
        assert!(agents.iter().all(|at| at.args[0].starts_with(cell.scheme.name())), "{cell}");
        let marks = [Direction::Up, Direction::Down].map(|way| match way {
            Direction::Up => cell.radio().up.ecn_mark,
            Direction::Down => cell.radio().down.ecn_mark,
        });
        assert!(marks.iter().all(|mark| mark.is_some() == cell.ecn()), "{cell}");
    }
    let window = Cell::WINDOW.to_string();
    let rwc = cell(Condition::Clean, Scheme::Rwc, Sender::Reno).agents();
    assert!(rwc[0].args.contains(&window.as_str()));
}

#[test]
fn the_same_seeds_give_the_same_rates() {
    let cell = cell(Condition::Fades, Scheme::Snoop, Sender::Cubic);
    let rates = run(&cell, &[1, 2]).expect("runs");
    assert_eq!(run(&cell, &[1, 2]).expect("runs"), rates);
    assert_ne!(rates[0], rates[1]);
}

/// A clean hop is filled by either sender, whatever helps.
#[test]
fn a_clean_hop_is_filled() {
    for sender in [Sender::Reno, Sender::Cubic] {
        let none = goodput(Condition::Clean, Scheme::None, sender);
        assert!(none > 0.93 * 2e6 * 1460.0 / 1500.0, "{sender}: {none}");
    }
}

/// SNP-3: on the big radio snoop gives Reno several times what it has alone.
#[test]
fn snoop_gains_several_times_on_the_big_radio() {
    let [none, snoop] = [Scheme::None, Scheme::Snoop]
        .map(|scheme| goodput(Condition::BigRadio, scheme, Sender::Reno));
    assert!(snoop > 4.0 * none, "{snoop} against {none}");
}

/// OBM-11: two agents beat one where the first hop loses, for a sender as in the paper. Where both
/// lose that is more.
#[test]
fn obtcp_beats_snoop_where_the_first_hop_loses() {
    for (condition, least) in [(Condition::FirstHop, 1.1), (Condition::TwoHops, 1.3)] {
        let [snoop, obtcp] =
            [Scheme::Snoop, Scheme::Obtcp].map(|scheme| goodput(condition, scheme, Sender::Reno));
        assert!(obtcp > least * snoop, "{condition}: {obtcp} against {snoop}");
    }
}

/// A sender with SACK is helped by either: this snoop reads the blocks, which tell it of the second
/// hop's losses too.
#[test]
fn two_hops_carry_several_times_as_much_with_either_agent() {
    let [none, snoop, obtcp] = [Scheme::None, Scheme::Snoop, Scheme::Obtcp]
        .map(|scheme| goodput(Condition::TwoHops, scheme, Sender::Cubic));
    assert!(snoop.min(obtcp) > 3.0 * none, "{snoop} and {obtcp} against {none}");
}
