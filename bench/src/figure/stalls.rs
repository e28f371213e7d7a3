//! What a noisy machine costs: a process that is stopped for milliseconds again and again, at either end.

use lasthop_units::{Duration, Rate};

use super::Setting;
use super::download::{Download, End};
use crate::peer::Peer;
use crate::report::Report;

const FIGURE: &str = "stalls";
/// Rates, and by how much of the limit the share may fall.
const CELLS: [(Rate, f64); 2] = [(Rate::from_mbps(20), 0.02), (Rate::from_mbps(100), 0.04)];

/// Runs all cells.
pub(crate) fn run(setting: &Setting, report: &mut Report) {
    let span = Duration::from_secs(setting.choose(10, 30));
    for (rate, most) in CELLS {
        for peer in [Peer::Srp, Peer::Quic] {
            let mut calm = None;
            for (stalled, name) in
                [(None, "none"), (Some(End::Base), "base"), (Some(End::Mobile), "mobile")]
            {
                let cell = format!("{rate}, {name}");
                setting.attempt(report, FIGURE, &peer, &cell, || {
                    let download = Download::over(setting, &peer, rate, span, stalled)?;
                    let share = download.share();
                    let fell = *calm.get_or_insert(share) - share;
                    Ok(download
                        .row(FIGURE, &peer, &cell)
                        .value("stalled", name)
                        .number("fell_by", fell)
                        .claim_if(peer.is_ours(), format!("falls by at most {most}"), fell <= most))
                });
            }
        }
    }
}
