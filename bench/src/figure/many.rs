//! Many connections at once through one association.

use std::time::Instant;

use anyhow::{Result, bail};
use lasthop_lab::condition::Condition;
use lasthop_lab::transfer::{Direction, Transfer};
use lasthop_units::one_line;

use super::{RATE, Setting};
use crate::peer::Peer;
use crate::report::{Report, Row};
use crate::stage::{Stage, limit};

const FIGURE: &str = "many";
const CONNECTIONS: usize = 500;
/// What each brings: together four seconds of the radio.
const SIZE: u64 = 20_000;

/// Runs all cells.
pub(crate) fn run(setting: &Setting, report: &mut Report) {
    for cell in [Condition::Loss(0), Condition::Loss(5)] {
        for peer in [Peer::Srp, Peer::Kernel("cubic"), Peer::Kernel("bbr"), Peer::Quic] {
            setting.attempt(report, FIGURE, &peer, cell, || measure(setting, &peer, cell));
        }
    }
}

fn measure(setting: &Setting, peer: &Peer, cell: Condition) -> Result<Row> {
    let stage = Stage::build(&setting.seeded(cell.topology(), cell))?;
    let mut running = stage.start(peer, 0)?;
    let began = Instant::now();
    let flows: Result<Vec<Transfer>> = (0..CONNECTIONS)
        .map(|_| stage.transfer(running.client(), Direction::Download, SIZE))
        .collect();
    let mut whole = 0;
    let mut wrong = None;
    for flow in flows? {
        match check(flow) {
            Ok(()) => whole += 1,
            Err(error) => wrong = wrong.or(Some(one_line(error.as_ref()))),
        }
    }
    let took = began.elapsed();
    running.check()?;
    let most = limit(RATE, stage.radio(Direction::Download).loss());
    let least = (whole as u64 * SIZE * 8) as f64 / most.as_bps() as f64;
    Ok(Row::new(FIGURE, peer, cell)
        .value("connections", CONNECTIONS)
        .value("whole", whole)
        .number("took_s", took.as_secs_f64())
        .number("share_of_limit", least / took.as_secs_f64())
        .value("error", wrong)
        .claim_if(peer.is_ours(), "all whole", whole == CONNECTIONS))
}

fn check(flow: Transfer) -> Result<()> {
    let ended = flow.finish()?;
    if !ended.is_right || ended.received.total().get() != SIZE {
        bail!("wrong bytes arrived");
    }
    Ok(())
}
