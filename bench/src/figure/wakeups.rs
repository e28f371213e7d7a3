//! What carrying a download costs the two ends where it is wake-ups that cost: at the rates of radios, on a
//! small router.

use lasthop_units::{Duration, Rate};

use super::Setting;
use super::download::Download;
use crate::peer::Peer;
use crate::report::Report;

const FIGURE: &str = "wakeups";
const RATES: [Rate; 3] = [Rate::from_mbps(2), Rate::from_mbps(20), Rate::from_mbps(100)];
const PEERS: [Peer; 3] = [Peer::Srp, Peer::SplitTcp("cubic"), Peer::Quic];

/// Runs all cells; SRP first, which the others are compared with.
pub(crate) fn run(setting: &Setting, report: &mut Report) {
    let span = Duration::from_secs(setting.choose(8, 20));
    for rate in RATES {
        let mut of_srp = None;
        for peer in &PEERS {
            setting.attempt(report, FIGURE, peer, rate, || {
                let download = Download::over(setting, peer, rate, span, None)?;
                let [base, mobile] = download.cpu_per_gb();
                let cost = base + mobile;
                if *peer == Peer::Srp {
                    of_srp = Some(cost);
                }
                Ok(download
                    .row(FIGURE, peer, rate)
                    .number("base_s_per_gb", base)
                    .number("mobile_s_per_gb", mobile)
                    .number("cpu_s_per_gb", cost)
                    .number("beside_srp", of_srp.map(|srp| cost / srp))
                    .number("syscalls_per_datagram", download.syscalls_per_datagram()))
            });
        }
    }
}
