//! A stream of small writes that keeps a pace: how long each takes to be there in its order.

use anyhow::{Result, bail};
use lasthop_lab::talk::Pace;
use lasthop_lab::topology::Topology;
use lasthop_radio::Direction;
use lasthop_units::Duration;

use super::{FIGURE, Link, Scheme, TOGETHER, beside_the_better_link, near_and_far};
use crate::figure::Setting;
use crate::report::{Report, Row};

const CELLS: [(&str, [Link; 2]); 2] =
    [("paced-loss-0", near_and_far(0.0)), ("paced-loss-5", near_and_far(0.05))];
/// 2 Mbit/s.
pub(super) const PACE: Pace = Pace { every: Duration::from_millis(2), length: 500 };
/// The delay claimed, over the better link's: in 99 of 100 the far link must not be noticed. What is left is chance.
const MOST: f64 = 1.25;

/// Runs all cells.
pub(super) fn run(setting: &Setting, report: &mut Report) {
    beside_the_better_link(setting, report, CELLS, &TOGETHER, |scheme, name, links, of_best| {
        let ours = scheme == Scheme::Bond;
        let Paced { delays, far } = measure(setting, scheme, name, links)?;
        let at = |percent: usize| delays[(delays.len() * percent / 100).min(delays.len() - 1)];
        let p99 = at(99);
        let ratio = of_best(p99);
        Ok(Row::new(FIGURE, scheme.peer(), name)
            .value("scheme", scheme.name())
            .number("delay_p50_s", at(50).as_secs_f64())
            .number("delay_p99_s", p99.as_secs_f64())
            .number("delay_max_s", at(100).as_secs_f64())
            .number("of_best", ratio)
            .number("far_share", far)
            .claim_if(
                ours,
                format!("p99 at most {} ms", bound(links).as_millis()),
                p99 <= bound(links),
            )
            .claim_if(
                ours && ratio.is_some(),
                format!("p99 at most {MOST} times the better link's"),
                ratio.is_some_and(|ratio| ratio <= MOST),
            ))
    });
}

/// What was seen of a stream.
struct Paced {
    /// The shortest first; there are some.
    delays: Vec<Duration>,
    /// The far link's share of the bytes that both brought.
    far: f64,
}

fn measure(setting: &Setting, scheme: Scheme, cell: &str, links: [Link; 2]) -> Result<Paced> {
    let mut bond = scheme.start(setting, cell, links, &[])?;
    bond.run(Duration::from_secs(2))?;
    let lasting = Duration::from_secs(setting.choose(10, 30));
    let mut delays = bond.paced(PACE, Duration::from_secs(3), lasting)?;
    delays.sort_unstable();
    if delays.is_empty() {
        bail!("nothing arrived");
    }
    let carried = [&bond.lab.radio, &bond.lab.beside[0]]
        .map(|air| air.stats(Direction::Down).delivered.bytes as f64);
    Ok(Paced { delays, far: carried[1] / (carried[0] + carried[1]).max(1.0) })
}

/// From the fixed host by the slower link, and a round trip of the faster one's in which a loss is repaired.
fn bound([near, far]: [Link; 2]) -> Duration {
    let ms = |Link(_, ms, _)| Duration::from_millis(ms);
    Topology::default().wired.down.delay + ms(far) + 2 * ms(near)
}
