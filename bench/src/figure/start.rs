//! How soon a first transfer has a radio's full rate, and what its queue drops until then; and the first of a
//! new association where the mobile remembers the hop, after its base was started anew.

use std::fmt;
use std::time::Instant;

use anyhow::{Context, Result};
use lasthop_lab::condition::Condition;
use lasthop_lab::transfer::{Direction, Transfer};
use lasthop_radio::LinkStats;
use lasthop_units::{Duration, Rate};

use super::attack::until_up;
use super::{Setting, with_radio};
use crate::peer::site::{Capacity, Site};
use crate::peer::{Peer, Running};
use crate::report::{Report, Row};
use crate::stage::{Stage, limit};

const FIGURE: &str = "start";
/// The share of the limit that is a full rate.
const SHARE: f64 = 0.9;
/// Shortest span over which goodput is taken; a round trip, where that is longer.
const SPAN: Duration = Duration::from_millis(250);
/// Drops are counted for so long after the full rate was reached.
const AFTER: Duration = Duration::from_secs(1);
/// Claimed: the full rate within so many round trips and a second, and the share that the queue drops.
const ROUND_TRIPS: u32 = 8;
const ROUND_TRIPS_REMEMBERED: u32 = 3;
const AND: Duration = Duration::from_secs(1);
const DROPPED: f64 = 0.02;
/// Statistics are looked at so often.
const SAMPLE: Duration = Duration::from_millis(50);

/// A radio.
#[derive(Clone, Copy, Debug)]
struct Cell {
    rate: Rate,
    /// One way.
    delay: Duration,
    /// Percent.
    loss: u8,
    /// There was an association before.
    remembered: bool,
}

/// `10M-300ms-loss-5-remembered`
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mbps, ms) = (self.rate.as_bps() / 1_000_000, self.delay.as_millis());
        let remembered = if self.remembered { "-remembered" } else { "" };
        f.pad(&format!("{mbps}M-{ms}ms-{}{remembered}", Condition::Loss(self.loss)))
    }
}

impl Cell {
    fn new(mbps: u64, ms: u64, loss: u8) -> Self {
        let (rate, delay) = (Rate::from_mbps(mbps), Duration::from_millis(ms));
        Cell { rate, delay, loss, remembered: false }
    }

    fn remembered(self) -> Self {
        Cell { remembered: true, ..self }
    }

    fn round_trip(&self) -> Duration {
        2 * self.delay
    }

    /// How soon the full rate is claimed.
    fn soon(&self) -> Duration {
        let round_trips = if self.remembered { ROUND_TRIPS_REMEMBERED } else { ROUND_TRIPS };
        round_trips * self.round_trip() + AND
    }
}

/// Runs all cells.
pub(crate) fn run(setting: &Setting, report: &mut Report) {
    for cell in cells(setting.quick) {
        for peer in [Peer::Srp, Peer::SplitTcp("cubic"), Peer::Quic] {
            setting.attempt(report, FIGURE, &peer, cell, || measure(setting, &peer, cell));
        }
    }
}

fn cells(quick: bool) -> Vec<Cell> {
    if quick {
        let slow = Cell::new(10, 300, 5);
        let mut cells = vec![Cell::new(10, 300, 0), slow, slow.remembered()];
        cells.extend(
            [1, 10, 100].into_iter().flat_map(|mbps| [5, 20].map(|ms| Cell::new(mbps, ms, 0))),
        );
        return cells;
    }
    let mut cells = Vec::new();
    for mbps in [1, 10, 100] {
        for ms in [5, 20, 100, 300] {
            let known = [0, 5, 20].map(|loss| Cell::new(mbps, ms, loss));
            cells.extend(known);
            if mbps > 1 && ms > 5 {
                cells.extend(known.map(Cell::remembered));
            }
        }
    }
    cells
}

fn measure(setting: &Setting, peer: &Peer, cell: Cell) -> Result<Row> {
    let topology = with_radio(Condition::Loss(cell.loss).topology(), cell.rate, cell.delay);
    let stage = Stage::build(&setting.seeded(topology, cell))?;
    // Mobiles are ended before their base.
    let (_site, mut running) = if cell.remembered {
        let (site, mobile) = remembered(setting, &stage, peer, cell)?;
        (Some(site), mobile)
    } else {
        (None, stage.start(peer, 0)?)
    };
    stage.lab.radio.control.reset_stats();
    let flow = stage.endless(running.client(), Direction::Download)?;
    let seen = watch(&stage, &flow, 2 * cell.soon());
    running.check()?;
    let (Seen { first, looks }, ended) = flow.end(seen)?;

    let span = SPAN.max(cell.round_trip());
    let full = limit(cell.rate, f64::from(cell.loss) / 100.0).scale(SHARE);
    let reached = ended.received.first_stretch(first, span, full).map(|from| from + span - first);
    let counted = reached.map_or(Duration::MAX, |at| at + AFTER);
    let look = looks.iter().find(|look| look.0 >= counted).or(looks.last());
    let dropped = look.map_or(0.0, |look| look.1.queue_drop_share());
    let seconds = reached.map(|at| at.as_secs_f64());
    let ours = peer.is_ours();
    let soon = reached.is_some_and(|at| at <= cell.soon());
    Ok(Row::new(FIGURE, peer, cell)
        .value("scheme", peer.scheme())
        .number("seconds_to_90", seconds)
        .number("round_trips_to_90", seconds.map(|s| s / cell.round_trip().as_secs_f64()))
        .number("queue_drop_share", dropped)
        .every_byte("sha256_ok", ended.is_right)
        .claim_if(ours, format!("within {:?}", cell.soon()), soon)
        .claim_if(ours, format!("queue drops <= {DROPPED}"), dropped <= DROPPED))
}

/// A base that was started anew after a transfer, and the mobile of before, which is up again.
fn remembered(
    setting: &Setting,
    stage: &Stage,
    peer: &Peer,
    cell: Cell,
) -> Result<(Site, Running)> {
    let room = Capacity { mobiles: 1, connections: 16, workers: 1 };
    let mut site = Site::open(peer, &stage.hosts()?, room, setting.seed.child("keys"))?;
    let mobile = site.join(0)?;
    up(&mobile)?;
    let flow = stage.endless(mobile.client(), Direction::Download)?;
    flow.until(flow.first_byte()? + 2 * cell.soon())?;
    flow.stop()?;
    site.restart()?;
    up(&mobile)?;
    Ok((site, mobile))
}

fn up(mobile: &Running) -> Result<()> {
    until_up(mobile, Instant::now()).map(drop).context("the mobile was not up in time")
}

/// What was seen of a start.
struct Seen {
    first: Instant,
    /// What the radio had done, by the time since the first data.
    looks: Vec<(Duration, LinkStats)>,
}

fn watch(stage: &Stage, flow: &Transfer, longest: Duration) -> Result<Seen> {
    let first = flow.first_byte()?;
    let mut looks = Vec::new();
    let mut at = Duration::ZERO;
    while at <= longest + AFTER {
        flow.until(first + at)?;
        looks.push((first.elapsed(), stage.radio(Direction::Download)));
        at += SAMPLE;
    }
    Ok(Seen { first, looks })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_has_a_name_of_its_own() {
        for quick in [true, false] {
            let mut names: Vec<_> = cells(quick).iter().map(ToString::to_string).collect();
            let all = names.len();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), all);
        }
    }
}
