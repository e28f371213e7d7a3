//! 100 kB on a new connection: a far link beside a near one must not delay them.

use std::time::Instant;

use anyhow::{Result, bail};
use lasthop_lab::transfer::Direction;
use lasthop_units::Duration;

use super::{FIGURE, Link, Scheme, TOGETHER, beside_the_better_link, near_and_far};
use crate::figure::Setting;
use crate::report::{Report, Row};

const SIZE: u64 = 100_000;
const CELLS: [(&str, [Link; 2]); 2] =
    [("100-kB-loss-0", near_and_far(0.0)), ("100-kB-loss-5", near_and_far(0.05))];
/// The time claimed, over the better link's.
const MOST: f64 = 1.05;
/// From the start of a scheme on, until all links are in use.
const SETTLE: Duration = Duration::from_secs(2);

/// Runs all cells.
pub(super) fn run(setting: &Setting, report: &mut Report) {
    beside_the_better_link(setting, report, CELLS, &TOGETHER, |scheme, name, links, of_best| {
        let ours = scheme == Scheme::Bond;
        let mut times = measure(setting, scheme, name, links)?;
        times.sort_unstable();
        let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
        let ratio = of_best(median);
        Ok(Row::new(FIGURE, scheme.peer(), name)
            .value("scheme", scheme.name())
            .number("time_s", median.as_secs_f64())
            .number("worst_s", worst.as_secs_f64())
            .number("of_best", ratio)
            .claim_if(
                ours && ratio.is_some(),
                format!("at most {MOST} times the better link's time"),
                ratio.is_some_and(|ratio| ratio <= MOST),
            ))
    });
}

/// How long each of some downloads took, one after the other.
fn measure(
    setting: &Setting,
    scheme: Scheme,
    cell: &str,
    links: [Link; 2],
) -> Result<Vec<Duration>> {
    let mut bond = scheme.start(setting, cell, links, &[])?;
    bond.run(SETTLE)?;
    let mut times = Vec::new();
    for _ in 0..setting.choose(11, 51) {
        let opened = Instant::now();
        let ended = bond.transfer(Direction::Download, SIZE)?.finish()?;
        if !ended.is_right || ended.received.total().get() != SIZE {
            bail!("wrong bytes arrived");
        }
        let last = ended.received.arrivals().last().map_or(opened, |arrival| arrival.at);
        times.push(last - opened);
    }
    Ok(times)
}
