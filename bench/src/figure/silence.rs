//! How soon a transfer goes on after the radio was silent.

use std::time::Instant;

use anyhow::Result;
use lasthop_lab::cell::Direction;
use lasthop_lab::condition::Condition;
use lasthop_units::Duration;

use super::{RATE, Setting};
use crate::peer::Peer;
use crate::report::{Report, Row};
use crate::stage::{Flow, Stage, limit};

const FIGURE: &str = "silence";
/// From the radio's return to the first new byte.
const FIRST: Duration = Duration::from_millis(120);
/// From the radio's return to full rate.
const FULL: Duration = Duration::from_secs(1);
/// Full means this share of the limit for this long.
const FULL_SHARE: f64 = 0.9;
const FULL_SPAN: Duration = Duration::from_millis(250);
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
    let stage = Stage::build(&setting.seeded(cell.topology(), name))?;
    let mut running = stage.start(peer, 0)?;
    let flow = stage.endless(running.client(), Direction::Download)?;
    let after =
        Duration::from_secs(setting.choose(6, 12)).max(Duration::from_millis(ms.into()) / 4);
    let returned = silence(&stage, &flow, Duration::from_millis(ms.into()), after);
    running.check()?;
    let (returned, ended) = flow.end(returned)?;

    let since = |moment: Option<Instant>| Some(moment?.duration_since(returned));
    let first = since(ended.received.first_from(returned));
    let full_rate = limit(RATE, stage.radio(Direction::Download).loss()).scale(FULL_SHARE);
    let full = since(ended.received.first_stretch(returned, FULL_SPAN, full_rate));
    let timed = peer.is_ours() && ms < LONG_MS;
    Ok(Row::new(FIGURE, peer, name)
        .number("first_byte_s", first.map(|d| d.as_secs_f64()))
        .number("full_rate_s", full.map(|d| d.as_secs_f64()))
        .value("survived", first.is_some())
        .value("sha256_ok", ended.sha256_ok)
        .claim("every byte right", ended.sha256_ok)
        .claim_if(peer.is_ours(), "survived", first.is_some())
        .claim_if(timed, "first byte within 0.12 s", first.is_some_and(|d| d <= FIRST))
        .claim_if(timed, "full rate within 1 s", full.is_some_and(|d| d <= FULL)))
}

/// Lets the transfer settle, silences the radio, and watches for `after` from its return.
fn silence(stage: &Stage, flow: &Flow, lasting: Duration, after: Duration) -> Result<Instant> {
    let first = flow.first_byte()?;
    flow.until(first + Duration::from_secs(4))?;
    stage.lab.radio.reset_stats();
    let returned = Instant::now() + lasting;
    stage.lab.radio.pause(lasting);
    flow.until(returned + after)?;
    Ok(returned)
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
