//! How soon a transfer goes on after the radio was silent.

use anyhow::Result;
use lasthop_lab::cell::{Measured, Plan, Silence};
use lasthop_lab::condition::Condition;
use lasthop_units::Duration;

use super::{RATE, Setting};
use crate::peer::Peer;
use crate::report::{Report, Row};
use crate::stage::Stage;

const FIGURE: &str = "silence";
/// From the radio's return to the first new byte.
const FIRST: Duration = Duration::from_millis(120);
/// From the radio's return to full rate.
const FULL: Duration = Duration::from_secs(1);
/// A silence this long is only to be survived.
const LONG_MS: u32 = 60_000;

/// Runs all cells.
pub(crate) fn run(setting: &Setting, report: &mut Report) {
    let peers = [
        Peer::Srp,
        Peer::Kernel("cubic"),
        Peer::Kernel("bbr"),
        Peer::Proxy("bbr"),
        Peer::Quic,
        Peer::QuicTold(RATE),
    ];
    for (ms, loss) in cells(setting.quick) {
        let cell = Condition::Silence { ms, loss };
        let name = format!("{cell}-loss-{loss}");
        for peer in &peers {
            setting
                .attempt(report, FIGURE, peer, &name, || measure(setting, peer, cell, ms, &name));
        }
    }
}

fn cells(quick: bool) -> Vec<(u32, u8)> {
    if quick {
        return vec![(1000, 5), (2800, 0)];
    }
    let mut cells: Vec<_> =
        [1000, 2800, 5000].into_iter().flat_map(|ms| [(ms, 0), (ms, 5)]).collect();
    cells.push((LONG_MS, 0));
    cells
}

fn measure(setting: &Setting, peer: &Peer, cell: Condition, ms: u32, name: &str) -> Result<Row> {
    let topology = setting.seeded(cell.topology(), name);
    let stage = Stage::build(&topology)?;
    let mut running = stage.start(peer, 0)?;
    let lasting = Duration::from_millis(ms.into());
    let plan = Plan {
        topology,
        settle: Duration::from_secs(4),
        measured: Duration::from_secs(setting.choose(6, 12)).max(lasting / 4),
        silence: Some(Silence { after: Duration::ZERO, lasting }),
        ..Plan::default()
    };
    let measured = stage.measure(&plan, &running);
    running.check()?;
    let Measured { recovery: first, full_rate: full, sha256_ok, .. } = measured?;
    let timed = peer.is_ours() && ms < LONG_MS;
    Ok(Row::new(FIGURE, peer, name)
        .number("first_byte_s", first.map(|d| d.as_secs_f64()))
        .number("full_rate_s", full.map(|d| d.as_secs_f64()))
        .value("survived", first.is_some())
        .every_byte("sha256_ok", sha256_ok)
        .claim_if(peer.is_ours(), "survived", first.is_some())
        .claim_if(timed, "first byte within 0.12 s", first.is_some_and(|d| d <= FIRST))
        .claim_if(timed, "full rate within 1 s", full.is_some_and(|d| d <= FULL)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_silence_is_met_with_and_without_loss_and_a_minute_is_survived() {
        let cells = cells(false);
        for ms in [1000, 2800, 5000] {
            assert!(cells.contains(&(ms, 0)) && cells.contains(&(ms, 5)));
        }
        assert!(cells.contains(&(60_000, 0)));
    }
}
