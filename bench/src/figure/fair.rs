//! How two share one radio.

use std::time::Instant;

use anyhow::Result;
use lasthop_lab::topology::Topology;
use lasthop_lab::transfer::{Direction, Transfer};
use lasthop_units::Duration;

use super::{RATE, Setting, jain};
use crate::peer::Peer;
use crate::report::{Report, Row};
use crate::stage::{Stage, limit};

const FIGURE: &str = "fair";
/// What is claimed of two associations, and of one beside the kernel's cubic.
const ALIKE: f64 = 0.9;
const BESIDE_CUBIC: f64 = 0.8;

/// Runs all pairs.
pub(crate) fn run(setting: &Setting, report: &mut Report) {
    let cubic = Peer::Kernel("cubic");
    let pairs = [
        (Peer::Srp, Peer::Srp, ALIKE),
        (Peer::Srp, cubic.clone(), BESIDE_CUBIC),
        (Peer::Quic, Peer::Quic, ALIKE),
        (Peer::Quic, cubic.clone(), BESIDE_CUBIC),
        (Peer::Kernel("cubic"), cubic, ALIKE),
    ];
    for (one, other, claimed) in pairs {
        let cell = format!("beside-{other}");
        setting.attempt(report, FIGURE, &one, &cell, || {
            measure(setting, &one, &other, claimed, &cell)
        });
    }
}

fn measure(setting: &Setting, one: &Peer, other: &Peer, claimed: f64, cell: &str) -> Result<Row> {
    let stage = Stage::build(&setting.seeded(Topology::default(), cell))?;
    let mut first = stage.start(one, 0)?;
    let mut second = stage.start(other, 1)?;
    let flows = [
        stage.endless(first.client(), Direction::Download)?,
        stage.endless(second.client(), Direction::Download)?,
    ];
    let span = Duration::from_secs(setting.choose(12, 30));
    let measured = both(&flows, span);
    first.check()?;
    second.check()?;
    let [a, b] = flows.map(Transfer::stop);
    let (a, b) = (a?, b?);
    let moved = measured?;
    let index = jain(&moved);
    let right = a.is_right && b.is_right;
    let most = limit(RATE, 0.0).as_bps() as f64 * span.as_secs_f64() / 8.0;
    Ok(Row::new(FIGURE, one, cell)
        .number("jain", index)
        .number("own_share", moved[0] / most)
        .number("other_share", moved[1] / most)
        .every_byte("sha256_ok", right)
        .claim_if(one.is_ours(), format!("Jain >= {claimed}"), index >= claimed))
}

/// Bytes that each moved in `span`, which begins when both have begun and settled.
fn both(flows: &[Transfer; 2], span: Duration) -> Result<[f64; 2]> {
    let later = flows[0].first_byte()?.max(flows[1].first_byte()?);
    flows[0].until(later + Duration::from_secs(3))?;
    let total = |flow: &Transfer| flow.received().lock().total().get();
    let before = flows.each_ref().map(total);
    flows[1].until(Instant::now() + span)?;
    let after = flows.each_ref().map(total);
    Ok([after[0] - before[0], after[1] - before[1]].map(|bytes| bytes as f64))
}
