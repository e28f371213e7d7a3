//! What it costs that a fixed host is acknowledged what the mobile has, and not what the base has.

use std::fmt;

use anyhow::Result;
use lasthop_lab::condition::Condition;
use lasthop_lab::scheme::OWN_ADDRESS;
use lasthop_lab::transfer::Direction;
use lasthop_units::{Duration, Rate};

use super::loss::span_of;
use super::{DELAY, RATE, Setting, with_radio};
use crate::peer::Peer;
use crate::report::{Report, Row};
use crate::stage::{Stage, limit};

const FIGURE: &str = "acknowledge";
const GB: f64 = 1e9;
/// What is claimed of the goodput that there is without, and up to which delay of the hop.
const CLAIMED: (f64, Duration) = (0.9, Duration::from_millis(50));

/// A radio, and how the fixed host controls congestion.
#[derive(Clone, Copy, Debug)]
struct Cell {
    loss: u8,
    delay: Duration,
    sender: &'static str,
}

/// `loss-5-20ms-cubic`.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { loss, delay, sender } = self;
        f.pad(&format!("loss-{loss}-{}ms-{sender}", delay.as_millis()))
    }
}

fn cells(quick: bool) -> Vec<Cell> {
    let delays = [Duration::from_millis(5), DELAY, Duration::from_millis(300)];
    let places = delays.into_iter().flat_map(|delay| [0, 5, 20].map(|loss| (loss, delay)));
    let places = places.filter(|(loss, delay)| !quick || *loss == 0 || *delay == DELAY);
    let senders = ["cubic", "bbr"];
    let all = places.flat_map(|(loss, delay)| senders.map(|sender| Cell { loss, delay, sender }));
    all.collect()
}

/// Runs all cells: split and acknowledged by the base, the same by the mobile, and not split.
pub(crate) fn run(setting: &Setting, report: &mut Report) {
    for cell in cells(setting.quick) {
        let mut without = None;
        for peer in [Peer::SrpOwn("base"), Peer::SrpOwn("mobile"), Peer::Kernel(cell.sender)] {
            setting.attempt(report, FIGURE, &peer, cell, || {
                measure(setting, &peer, cell, &mut without)
            });
        }
    }
}

fn measure(setting: &Setting, peer: &Peer, cell: Cell, without: &mut Option<f64>) -> Result<Row> {
    let topology = with_radio(Condition::Loss(cell.loss).topology(), RATE, cell.delay);
    let stage = Stage::build(&setting.seeded(topology, cell))?;
    stage.lab.set_congestion(cell.sender)?;
    let mut running = stage.start(peer, 0)?;
    if peer.is_ours() {
        let base = stage.hosts()?.wired;
        let route = format!("route add {OWN_ADDRESS}/32 via {base} congctl {}\n", cell.sender);
        stage.lab.fixed.ip(&route)?;
    }
    let flow = stage.endless(running.client(), Direction::Download)?;
    let settle = Duration::from_secs(3) + 20 * cell.delay;
    let before = running.cpu()?;
    let span = Duration::from_secs(setting.choose(8, 20));
    let (from, to) = span_of(&stage, &flow, settle, span)?;
    running.check()?;
    let cpu: Duration =
        running.cpu()?.iter().zip(before).map(|(after, before)| *after - before).sum();
    let radio = stage.radio(Direction::Download);
    let ended = flow.stop()?;
    let all = ended.received.total();
    let goodput = Rate::of(ended.received.between(from, to), to - from);
    let goodput = goodput.as_bps() as f64;
    let share = goodput / limit(RATE, radio.loss()).as_bps() as f64;
    let of_base = without.map(|without| goodput / without);
    if *peer == Peer::SrpOwn("base") {
        *without = Some(goodput);
    }
    let held = *peer == Peer::SrpOwn("mobile");
    let row = Row::new(FIGURE, peer, cell)
        .number("goodput_mbps", goodput / 1e6)
        .number("share_of_limit", share)
        .number("of_base", of_base)
        .every_byte("sha256_ok", ended.is_right)
        .claim_if(
            held && of_base.is_some() && cell.delay <= CLAIMED.1,
            format!("{} of what it is without", CLAIMED.0),
            of_base.is_some_and(|ratio| ratio >= CLAIMED.0),
        );
    Ok(if peer.is_ours() {
        row.number("cpu_s_per_gb", cpu.as_secs_f64() / (all.get() as f64 / GB))
    } else {
        row
    })
}
