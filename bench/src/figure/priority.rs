//! Two downloads, or uploads, whose priorities a user changes while they run.

use anyhow::{Context, Result};
use lasthop_lab::agent::path::{Behind, Settings};
use lasthop_lab::agent::sender::Sender;
use lasthop_lab::agent::sharing;
use lasthop_lab::scheme::Hop;
use lasthop_lab::sharing::{Scene, Shared, Times};
use lasthop_lab::topology::Topology;
use lasthop_lab::transfer::Direction;
use lasthop_units::Duration;

use super::{RATE, Setting};
use crate::peer::{Below, Peer};
use crate::process;
use crate::report::{Report, Row};
use crate::stage::limit;

const FIGURE: &str = "priority";
/// What the row of the agent is called.
const UNSPLIT: &str = "rwc-agent";
const STEPS: [[u32; 2]; 3] = [[1, 1], [2, 1], [1, 3]];
/// What is claimed of each share and of the sum.
const SHARE: f64 = 0.1;
const SUM: f64 = 0.05;

/// Runs all hops, SRP both ways: each a row for the time before anything was said, and one for each step.
pub(crate) fn run(setting: &Setting, report: &mut Report) {
    for (peer, hop) in [
        (Peer::Srp, Hop::new("srp")),
        (Peer::SplitTcp("cubic"), Hop::split_tcp("cubic")),
        (Peer::MobileTcp(Below::Udp), Hop::new("mobile-tcp")),
    ] {
        let name = peer.to_string();
        if !setting.wants(&name) {
            continue;
        }
        tell(&name, "", measure(setting, &hop, Direction::Download), report);
        if peer == Peer::Srp {
            tell(&name, "-up", measure(setting, &hop, Direction::Upload), report);
        }
    }
    if setting.wants(UNSPLIT) {
        tell(UNSPLIT, "", measure_unsplit(setting), report);
    }
}

/// `way` is what the cells' names end with.
fn tell(name: &str, way: &str, measured: Result<(Vec<Shared>, bool)>, report: &mut Report) {
    match measured {
        Ok((rows, right)) => {
            for row in &rows {
                report.row(&shown(name, way, row, &rows[0], right));
            }
        }
        Err(error) => {
            report.row(&Row::failed(FIGURE, name, format!("all{way}"), &error, true));
        }
    }
}

fn times(setting: &Setting) -> Times {
    Times { measured: Duration::from_secs(setting.choose(4, 10)), ..Times::default() }
}

fn measure(setting: &Setting, hop: &Hop, direction: Direction) -> Result<(Vec<Shared>, bool)> {
    let topology = setting.seeded(Topology::default(), FIGURE);
    let mut scene = Scene::start(hop, &topology, process::lasthop()?)?;
    scene.run(direction, &STEPS, times(setting)).context("two transfers")
}

/// The same radio and wire, kernel CUBIC from end to end, and an agent in front of the mobile.
fn measure_unsplit(setting: &Setting) -> Result<(Vec<Shared>, bool)> {
    let topology = setting.seeded(Topology::default(), FIGURE);
    let settings = Settings {
        wire: Some(topology.wired.clone()),
        radio: Some(topology.radio.clone()),
        behind: Behind::Edge,
        sender: Sender::CUBIC,
        seed: topology.seed,
        ..Settings::default()
    };
    sharing::measure(&settings, &["rwc"], &STEPS, times(setting), process::lasthop()?)
        .context("two downloads")
}

fn shown(name: &str, way: &str, row: &Shared, before: &Shared, right: bool) -> Row {
    let cell = row.priorities.map_or("unsaid".to_owned(), |[a, b]| format!("{a}-{b}")) + way;
    let sum = row.sum().as_bps() as f64;
    let kept = sum / before.sum().as_bps() as f64;
    let said = row.priorities.is_some();
    Row::new(FIGURE, name, cell)
        .number("share", row.share())
        .number("due", row.due())
        .number("sum_share", sum / limit(RATE, 0.0).as_bps() as f64)
        .number("sum_kept", kept)
        .every_byte("sha256_ok", right)
        .claim_if(said, "shares within 10 % after 2 s", row.error() <= SHARE)
        .claim_if(said, "sum within 5 %", (kept - 1.0).abs() <= SUM)
}
