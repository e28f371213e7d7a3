//! What goes by both links at once, beside what goes by one at a time: a stream of small writes that keeps a pace, and
//! datagrams of the mobile that are sent once.

use std::io::Write as _;

use anyhow::{Context, Result};
use lasthop_lab::bond::Load;
use lasthop_lab::talk::Pace;
use lasthop_lab::topology::{Family, Topology};
use lasthop_lab::voice::Call;
use lasthop_radio::Direction;
use lasthop_units::Duration;

use super::paced::PACE;
use super::{FIGURE, Link, Scheme, Uniform, beside_the_better_link, near_and_far};
use crate::figure::Setting;
use crate::report::{Report, Row};

/// What either link loses.
const LOSS: f64 = 0.05;
const EQUAL: &str = "redundant-equal-loss-5";
const CELLS: [(&str, [Link; 2]); 2] =
    [(EQUAL, [Link(20, 20, Uniform(LOSS)); 2]), ("redundant-slow-loss-5", near_and_far(LOSS))];
/// The stream's delay claimed, over the better link's, where links are alike: what takes two repairs there takes one.
const SOONER: f64 = 0.9;
/// As often as the stream writes.
const DATAGRAMS: Pace = Pace { length: 100, ..PACE };
/// The residual loss claimed, over what is left where both links lose a datagram: of 25 in 10,000 chance makes less of it.
const MOST: f64 = 2.0;
/// What 99 of 100 datagrams may take beyond their way by the slower link: processors are busy.
const BEYOND: Duration = Duration::from_millis(10);
/// Until all links are in use.
const SETTLE: Duration = Duration::from_secs(3);

/// Runs all cells.
pub(super) fn run(setting: &Setting, report: &mut Report) {
    let schemes = [Scheme::Bond, Scheme::Redundant];
    beside_the_better_link(setting, report, CELLS, &schemes, |scheme, name, links, of_best| {
        let Seen { mut delays, datagrams, second } = measure(setting, scheme, name, links)?;
        delays.sort_unstable();
        let last = delays.len().checked_sub(1).context("nothing arrived")?;
        let at = |percent: usize| delays[(delays.len() * percent / 100).min(last)];
        let ratio = of_best(at(99));
        let lost = datagrams.residual_loss();
        let datagram = datagrams.delay(990).context("no datagram arrived")?;
        let (ours, bound) = (scheme == Scheme::Redundant, one_way(links) + BEYOND);
        Ok(Row::new(FIGURE, scheme.peer(), name)
            .value("scheme", scheme.name())
            .number("delay_p50_s", at(50).as_secs_f64())
            .number("delay_p99_s", at(99).as_secs_f64())
            .number("delay_max_s", at(100).as_secs_f64())
            .number("of_best", ratio)
            .number("datagram_p99_s", datagram.as_secs_f64())
            .number("residual_loss", lost)
            .number("second_share", second)
            .claim_if(
                ours && ratio.is_some() && name == EQUAL,
                format!("p99 at most {SOONER} times the better link's"),
                ratio.is_some_and(|ratio| ratio <= SOONER),
            )
            .claim_if(
                ours,
                format!("{MOST} times the loss of both at most"),
                lost <= MOST * LOSS * LOSS,
            )
            .claim_if(
                ours,
                format!("datagrams' p99 at most {} ms", bound.as_millis()),
                datagram <= bound,
            ))
    });
}

/// What was seen.
struct Seen {
    /// How long each write took to be there in its order.
    delays: Vec<Duration>,
    /// What became of the datagrams.
    datagrams: Call,
    /// The second link's share of the bytes that both brought while these were sent.
    second: f64,
}

fn measure(setting: &Setting, scheme: Scheme, cell: &str, links: [Link; 2]) -> Result<Seen> {
    let mut config = tempfile::NamedTempFile::with_suffix(".toml")?;
    config.write_all(b"[[packets]]\nclass = \"once\"\n")?;
    let path = config.path().to_str().context("a name that is no text")?;
    let policy = if scheme == Scheme::Redundant { "redundant" } else { "speed" };
    let mobile = ["--config", path, "--policy", policy].map(str::to_owned).to_vec();
    // Without a call there is no way for packets.
    let load = Load { transfers: Vec::new(), family: Family::V4, call: true };
    let mut bond = scheme.start_with(setting, cell, links, &load, mobile)?;
    bond.run(SETTLE)?;
    let lasting = Duration::from_secs(setting.choose(20, 60));
    let delays = bond.paced(PACE, SETTLE, lasting)?;
    // The mobile itself knows what these are worth; its base is told only of flows that the mobile sends, too.
    let radios = [&bond.lab.radio, &bond.lab.beside[0]];
    let brought = || radios.map(|air| air.stats(Direction::Up).delivered.bytes as f64);
    let before = brought();
    let datagrams = bond.datagrams(DATAGRAMS, SETTLE, lasting)?;
    let [first, second] = std::array::from_fn(|n| brought()[n] - before[n]);
    Ok(Seen { delays, datagrams, second: second / (first + second).max(1.0) })
}

/// From host to host by the slower link.
fn one_way(links: [Link; 2]) -> Duration {
    let slower = links.map(|Link(_, ms, _)| ms).into_iter().max().unwrap_or_default();
    Topology::default().wired.down.delay + Duration::from_millis(slower)
}
