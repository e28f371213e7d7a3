//! How long 100 kB take on a new connection.

use std::time::Instant;

use anyhow::{Result, bail};
use lasthop_lab::condition::Condition;
use lasthop_lab::transfer::Direction;
use lasthop_units::Duration;

use super::Setting;
use crate::peer::Peer;
use crate::report::{Report, Row};
use crate::stage::Stage;

const FIGURE: &str = "small";
const SIZE: u64 = 100_000;
/// Loss in percent, and the medians claimed in seconds: faithful, early.
const CELLS: [(u8, f64, f64); 3] = [(0, 0.32, 0.28), (10, 0.38, 0.34), (20, 0.48, 0.42)];
/// The worst of 50 at 20 %, connected faithfully, in seconds.
const WORST: f64 = 0.8;
/// Nobody waits longer for a cell.
const LONGEST: Duration = Duration::from_secs(240);

/// Runs all cells.
pub(crate) fn run(setting: &Setting, report: &mut Report) {
    let peers = [
        Peer::Srp,
        Peer::SrpEarly,
        Peer::Kernel("cubic"),
        Peer::Kernel("bbr"),
        Peer::Proxy("bbr"),
        Peer::Quic,
    ];
    for (loss, faithful, early) in CELLS {
        let cell = Condition::Loss(loss);
        for peer in &peers {
            let median = if *peer == Peer::SrpEarly { early } else { faithful };
            setting.attempt(report, FIGURE, peer, cell, || measure(setting, peer, cell, median));
        }
    }
}

fn measure(setting: &Setting, peer: &Peer, cell: Condition, claimed: f64) -> Result<Row> {
    let stage = Stage::build(&setting.seeded(cell.topology(), cell))?;
    let mut running = stage.start(peer, 0)?;
    let began = Instant::now();
    let mut times = Vec::new();
    for _ in 0..setting.choose(15, 50) {
        let opened = Instant::now();
        let ended = stage.transfer(running.client(), Direction::Download, SIZE)?.finish()?;
        let last = ended.received.arrivals().last().map_or(opened, |a| a.at);
        times.push(last.duration_since(opened).as_secs_f64());
        if !ended.is_right || ended.received.total().get() != SIZE {
            bail!("wrong bytes arrived");
        }
        if began.elapsed() > LONGEST {
            break;
        }
    }
    running.check()?;
    times.sort_by(f64::total_cmp);
    let median = times.get(times.len() / 2).copied().unwrap_or(f64::INFINITY);
    let worst = times.last().copied().unwrap_or(f64::INFINITY);
    let worst_counts = *peer == Peer::Srp && cell == Condition::Loss(20);
    Ok(Row::new(FIGURE, peer, cell)
        .number("median_s", median)
        .number("worst_s", worst)
        .value("samples", times.len())
        .claim_if(peer.is_ours(), format!("median <= {claimed} s"), median <= claimed)
        .claim_if(worst_counts, format!("worst <= {WORST} s"), worst <= WORST))
}
