//! How much of what a losing radio can carry is carried.

use std::fmt;
use std::time::Instant;

use anyhow::Result;
use lasthop_lab::condition::Condition;
use lasthop_lab::transfer::{Direction, Ended, Transfer};
use lasthop_radio::QueueLimit;
use lasthop_units::{Duration, Rate};

use super::{DELAY, QUEUE, RATE, Setting, with_radio};
use crate::peer::{Below, Peer};
use crate::report::{Report, Row};
use crate::stage::{Stage, limit};

const FIGURE: &str = "loss";
/// The share of the limit that is claimed.
const SHARE: f64 = 0.96;
/// What the kernel's CUBIC fills of a radio that loses nothing, or the stage itself is at fault.
const FILLED: f64 = 0.5;
/// The share of what is offered that the radio's queue may drop.
const DROPPED: f64 = 0.03;
/// A queue that is too short to be seen, in packets, and what is claimed where it is all there is.
const SHORT_QUEUE: u32 = 10;
const SHORT_SHARE: f64 = 0.85;
const SHORT_DROPPED: f64 = 0.05;

/// Transfers at once where there are many: 512 KiB of Mobile TCP's windows, beside 100 kB that are
/// on the radio's round trip and 150 kB that its queue holds.
const CROWD: usize = 32;

/// A radio, a direction, and how many use it.
#[derive(Clone, Copy, Debug)]
struct Cell {
    condition: Condition,
    rate: Rate,
    delay: Duration,
    direction: Direction,
    /// Transfers at once.
    transfers: usize,
    /// Packets that the radio's queue holds.
    queue: u32,
}

/// `loss-5`, and what is not as usual: `loss-5-2M`, `loss-0-300ms-up`, `loss-0-of-32`, `loss-0-queue-10`.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut name = self.condition.to_string();
        if self.rate != RATE {
            name += &format!("-{}M", self.rate.as_bps() / 1_000_000);
        }
        if self.delay != DELAY {
            name += &format!("-{}ms", self.delay.as_millis());
        }
        if self.direction == Direction::Upload {
            name += "-up";
        }
        if self.transfers != 1 {
            name += &format!("-of-{}", self.transfers);
        }
        if self.queue != QUEUE {
            name += &format!("-queue-{}", self.queue);
        }
        f.pad(&name)
    }
}

impl Cell {
    fn plain(condition: Condition) -> Self {
        let direction = Direction::Download;
        Cell { condition, rate: RATE, delay: DELAY, direction, transfers: 1, queue: QUEUE }
    }

    /// What share of the limit is claimed, and what share may be dropped at the queue.
    fn claimed(&self) -> (f64, f64) {
        if self.queue == QUEUE { (SHARE, DROPPED) } else { (SHORT_SHARE, SHORT_DROPPED) }
    }

    /// Time for start-up, which on a long path takes more round trips' time.
    fn settle(&self) -> Duration {
        Duration::from_secs(3) + 20 * self.delay
    }

    /// All peers on the usual radio; on others, ours and those that come closest.
    fn peers(&self) -> Vec<Peer> {
        if self.rate != RATE || self.delay != DELAY {
            return vec![Peer::Srp, Peer::Quic, Peer::QuicTold(self.rate)];
        }
        if self.queue != QUEUE {
            return vec![Peer::Srp, Peer::Kernel("cubic"), Peer::Kernel("bbr"), Peer::Quic];
        }
        if self.transfers != 1 {
            let mobile_tcp = [Below::Udp, Below::Frames].map(Peer::MobileTcp);
            return [&[Peer::Srp][..], &mobile_tcp, &[Peer::SplitTcp("bbr")]].concat();
        }
        vec![
            Peer::Srp,
            Peer::MobileTcp(Below::Udp),
            Peer::SplitTcp("bbr"),
            Peer::Kernel("cubic"),
            Peer::Kernel("bbr"),
            Peer::Proxy("bbr"),
            Peer::Quic,
            Peer::QuicTold(self.rate),
        ]
    }
}

/// Runs all cells.
pub(crate) fn run(setting: &Setting, report: &mut Report) {
    for cell in cells(setting.quick) {
        for peer in cell.peers() {
            setting.attempt(report, FIGURE, &peer, cell, || measure(setting, &peer, cell));
        }
    }
}

fn cells(quick: bool) -> Vec<Cell> {
    use Condition::{Fades, Loss};
    if quick {
        let upload = Cell { direction: Direction::Upload, ..Cell::plain(Loss(10)) };
        let mut cells = [Loss(0), Loss(5), Loss(20), Fades(10)].map(Cell::plain).to_vec();
        cells.push(upload);
        cells.extend(crowded());
        cells.extend(short());
        return cells;
    }
    let usual = [Loss(0), Loss(5), Loss(10), Loss(20), Loss(30), Fades(5), Fades(10)];
    let mut cells = usual.map(Cell::plain).to_vec();
    for condition in [Loss(0), Loss(5), Loss(20)] {
        let plain = Cell::plain(condition);
        cells.extend([2, 100].map(|mbps| Cell { rate: Rate::from_mbps(mbps), ..plain }));
        cells.extend([5, 300].map(|ms| Cell { delay: Duration::from_millis(ms), ..plain }));
    }
    let uploads: Vec<_> =
        cells.iter().map(|cell| Cell { direction: Direction::Upload, ..*cell }).collect();
    cells.extend(uploads);
    cells.extend(crowded());
    cells.extend(short());
    cells
}

/// A queue that does not show what it drops.
fn short() -> [Cell; 2] {
    [0, 5].map(|loss| Cell { queue: SHORT_QUEUE, ..Cell::plain(Condition::Loss(loss)) })
}

/// Many at once, whose windows together exceed what the radio and its queue hold: what becomes of a
/// hop without congestion control, and of one whose sum is bounded.
fn crowded() -> [Cell; 2] {
    [0, 5].map(|loss| Cell { transfers: CROWD, ..Cell::plain(Condition::Loss(loss)) })
}

fn measure(setting: &Setting, peer: &Peer, cell: Cell) -> Result<Row> {
    let mut topology = with_radio(cell.condition.topology(), cell.rate, cell.delay);
    for direction in [&mut topology.radio.up, &mut topology.radio.down] {
        direction.queue = QueueLimit::Packets(cell.queue);
    }
    topology.medium = peer.medium();
    let stage = Stage::build(&setting.seeded(topology, cell))?;
    let mut running = stage.start(peer, 0)?;
    let flows: Vec<Transfer> = (0..cell.transfers)
        .map(|_| stage.endless(running.client(), cell.direction))
        .collect::<Result<_>>()?;
    let span = Duration::from_secs(setting.choose(6, 12));
    let measured = span_of(&stage, &flows[0], cell.settle(), span);
    running.check()?;
    let radio = stage.radio(cell.direction);
    let ((from, to), ended) = end_all(flows, measured)?;
    let bytes = ended.iter().map(|one| one.received.between(from, to)).sum();
    let right = ended.iter().all(|one| one.is_right);
    let goodput = Rate::of(bytes, to - from);
    let most = limit(cell.rate, radio.loss());
    let share = goodput.as_bps() as f64 / most.as_bps() as f64;
    let wait = mean_wait(radio.queue.wait, radio.queue.served);
    let (ours, (least, most_dropped)) = (peer.is_ours(), cell.claimed());
    let clean = Cell::plain(Condition::Loss(0));
    let fillable = *peer == Peer::Kernel("cubic") && cell.to_string() == clean.to_string();
    Ok(Row::new(FIGURE, peer, cell)
        .number("goodput_mbps", goodput.as_bps() as f64 / 1e6)
        .number("share_of_limit", share)
        .number("loss", radio.loss())
        .number("queue_drops", radio.queue_drop_share())
        .number("queue_ms", wait.as_secs_f64() * 1e3)
        .every_byte("sha256_ok", right)
        .claim_if(ours, format!("share >= {least}"), share >= least)
        .claim_if(fillable, format!("share >= {FILLED}"), share >= FILLED)
        .claim_if(
            ours,
            format!("queue drops <= {most_dropped}"),
            radio.queue_drop_share() <= most_dropped,
        )
        .claim_if(ours, "mean queue < half the round trip", wait < cell.delay))
}

/// Ends all transfers, and checks every byte of each.
fn end_all<T>(flows: Vec<Transfer>, measured: Result<T>) -> Result<(T, Vec<Ended>)> {
    // Every one is stopped, whatever became of the others.
    let all: Vec<_> = flows.into_iter().map(Transfer::stop).collect();
    let all = all.into_iter().collect::<Result<_, _>>()?;
    Ok((measured?, all))
}

/// Waits through start-up and the measured span, which the radio's statistics then cover.
pub(super) fn span_of(
    stage: &Stage,
    flow: &Transfer,
    settle: Duration,
    span: Duration,
) -> Result<(Instant, Instant)> {
    let first = flow.first_byte()?;
    flow.until(first + settle)?;
    stage.lab.radio.control.reset_stats();
    let from = Instant::now();
    flow.until(from + span)?;
    Ok((from, Instant::now()))
}

fn mean_wait(sum: Duration, packets: u64) -> Duration {
    u32::try_from(packets).ok().and_then(|n| sum.checked_div(n)).unwrap_or_default()
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

    #[test]
    fn the_issue_s_conditions_rates_and_delays_are_all_there_both_ways() {
        let names: Vec<_> = cells(false).iter().map(ToString::to_string).collect();
        for name in ["loss-30", "fades-5-up", "loss-20-2M", "loss-5-100M-up", "loss-0-300ms"] {
            assert!(names.iter().any(|n| n == name), "{name} in {names:?}");
        }
    }

    #[test]
    fn the_mean_wait_of_nothing_is_nothing() {
        assert_eq!(mean_wait(Duration::from_secs(1), 0), Duration::ZERO);
        assert_eq!(mean_wait(Duration::from_secs(1), 4), Duration::from_millis(250));
    }
}
