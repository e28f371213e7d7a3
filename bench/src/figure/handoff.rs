//! How long connections stand still when the mobile moves to another base.

use std::fmt;

use anyhow::Result;
use lasthop_lab::client::Stop;
use lasthop_lab::journey::{Crossing, Plan, travel};
use lasthop_lab::roam::{Config, Handoff, Mode, Settings};
use lasthop_lab::topology::link;
use lasthop_lab::traffic::Traffic;
use lasthop_radio::RadioConfig;
use lasthop_units::{Duration, Rate};

use super::Setting;
use crate::process;
use crate::report::{Report, Row};

const FIGURE: &str = "handoff";
const PEER: &str = "srp";
/// How long ahead a move is announced.
const WARNING: Duration = Duration::from_millis(300);
const DEAD_ZONE: Duration = Duration::from_millis(500);
/// One way between bases, which are neighbours.
const BASE_DELAY: Duration = Duration::from_millis(2);
const STAY: Duration = Duration::from_millis(1200);
/// Connections that move together, and what for.
const CROWD: usize = 1000;
const CROWD_PATIENCE: Duration = Duration::from_secs(60);
const CROWD_LIMIT: Duration = Duration::from_secs(1);

/// One way of moving.
#[derive(Clone, Copy, Debug)]
struct Cell {
    mode: Mode,
    predicted: bool,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.predicted { "-predicted" } else { "" };
        f.pad(&format!("{}{how}", self.mode))
    }
}

/// Runs all cells.
pub(crate) fn run(setting: &Setting, report: &mut Report) {
    for mode in [Mode::Anchor, Mode::Migrate] {
        for predicted in [false, true] {
            let cell = Cell { mode, predicted };
            setting.attempt_named(report, FIGURE, PEER, true, cell, || pauses(setting, cell));
        }
        let cell = format!("{mode}-{CROWD}");
        setting.attempt_named(report, FIGURE, PEER, true, &cell, || crowd(setting, mode, &cell));
    }
}

fn settings(mode: Mode) -> Settings {
    let handoff = Handoff { mode, ..Handoff::default() };
    Settings { handoff: Some(handoff), ..Settings::default() }
}

/// Many moves under a download and an upload.
fn pauses(setting: &Setting, cell: Cell) -> Result<Row> {
    let plan = Plan {
        topology: Config {
            base_delay: BASE_DELAY,
            seed: setting.seed.child(FIGURE),
            ..Config::default()
        },
        settings: settings(cell.mode),
        traffic: vec![Traffic::Download, Traffic::Upload],
        handoffs: setting.choose(6, 50),
        dead_zone: DEAD_ZONE,
        stay: STAY,
        warning: cell.predicted.then_some(WARNING),
        ..Plan::default()
    };
    let crossings = travel(&plan, process::lasthop()?, &Stop::default(), &mut |_| {})?;
    let (hop, base) = (plan.topology.hop_round_trip(), plan.topology.base_round_trip());
    let bound = if cell.predicted { hop * 3 / 2 } else { hop * 3 + base };
    let mut pauses: Vec<Duration> = crossings.iter().filter_map(Crossing::added_pause).collect();
    pauses.sort_unstable();
    let at = |share: f64| {
        let index = (share * pauses.len().saturating_sub(1) as f64).round() as usize;
        pauses.get(index).map(|pause| pause.as_secs_f64())
    };
    let mut downloads: Vec<Duration> = crossings.iter().filter_map(download).collect();
    downloads.sort_unstable();
    let download_s = downloads.get(downloads.len() / 2).map(|pause| pause.as_secs_f64());
    let good = crossings.iter().filter(|crossing| crossing.is_good()).count();
    let within = pauses.iter().filter(|pause| **pause <= bound).count();
    Ok(Row::new(FIGURE, PEER, cell)
        .value("moves", crossings.len())
        .value("unnoticed", good)
        .number("median_s", at(0.5))
        .number("p90_s", at(0.9))
        .number("most_s", at(1.0))
        .number("median_rtts", at(0.5).map(|median| median / hop.as_secs_f64()))
        .number("download_median_s", download_s)
        .number("bound_s", bound.as_secs_f64())
        .value("within", within)
        .claim("all unnoticed", good == plan.handoffs as usize)
        .claim("all within the bound", within == plan.handoffs as usize))
}

/// The pause as the mobile sees it: an upload's ends at the server, half a hop and the wire later.
fn download(crossing: &Crossing) -> Option<Duration> {
    crossing.pauses.iter().find(|(name, _)| *name == "download")?.1
}

/// A thousand connections at once, on a path of 1 Gbit/s between the bases.
fn crowd(setting: &Setting, mode: Mode, cell: &str) -> Result<Row> {
    let plan = Plan {
        topology: Config {
            radio: RadioConfig::both(link(Rate::from_mbps(50), Duration::from_millis(10), 200)),
            base_rate: Some(Rate::from_mbps(1000)),
            base_delay: Duration::ZERO,
            seed: setting.seed.child(FIGURE),
            ..Config::default()
        },
        settings: settings(mode),
        handoffs: setting.choose(1, 3),
        patience: CROWD_PATIENCE,
        ..Plan::crowd(CROWD)
    };
    let moves = travel(&plan, process::lasthop()?, &Stop::default(), &mut |_| {})?;
    let most = moves.iter().map(|moved| moved.took).max().unwrap_or_default();
    let whole = moves.iter().all(|moved| moved.is_good() && moved.connections == CROWD);
    Ok(Row::new(FIGURE, PEER, cell)
        .value("connections", CROWD)
        .value("moves", moves.len())
        .number("took_s", most.as_secs_f64())
        .claim("all move", whole && moves.len() == plan.handoffs as usize)
        .claim("within 1 s", most <= CROWD_LIMIT))
}
