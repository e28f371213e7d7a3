//! A download by QUIC, which nobody splits: its packets on the hop's datagram lane, and by themselves.

use anyhow::Result;
use lasthop_lab::cell::{self, Carried, Measured, Plan};
use lasthop_lab::client::Stop;
use lasthop_lab::condition::Condition;
use lasthop_lab::quic::Congestion;
use lasthop_lab::scheme::Scheme;
use lasthop_units::Duration;

use super::Setting;
use crate::process;
use crate::report::{Report, Row};

const FIGURE: &str = "quic";
/// Of the limit, claimed where the hop loses packets.
const SHARE: f64 = 0.9;
/// The mean wait at the radio's queue, claimed everywhere.
const QUEUE: Duration = Duration::from_millis(50);

/// Runs all cells.
pub(crate) fn run(setting: &Setting, report: &mut Report) {
    for congestion in [Congestion::Cubic, Congestion::Bbr] {
        for loss in [0, 5, 10, 20] {
            let cell = format!("{congestion}-loss-{loss}");
            for helped in [false, true] {
                let name = if helped { "srp" } else { "none" };
                setting.attempt_named(report, FIGURE, name, helped, &cell, || {
                    measure(setting, congestion, loss, helped, &cell)
                });
            }
        }
    }
}

fn measure(
    setting: &Setting,
    congestion: Congestion,
    loss: u8,
    helped: bool,
    name: &str,
) -> Result<Row> {
    let plan = Plan {
        topology: setting.seeded(Condition::Loss(loss).topology(), name),
        scheme: if helped { Scheme::Srp } else { Scheme::Kernel("cubic".to_owned()) },
        traffic: Carried::Quic(congestion),
        // At the start slow start overshoots, and what waits for its repetition is counted once it is complete.
        settle: Duration::from_secs(10),
        // BBR floods whatever it crosses, and what it must repeat may be lost three times: what the application has
        // read goes on in leaps.
        measured: Duration::from_secs(setting.choose(40, 60)),
        ..Plan::default()
    };
    let measured = cell::measure(&plan, process::lasthop()?, &Stop::default())?;
    let Measured { goodput, share_of_limit: share, radio, sha256_ok, .. } = measured;
    let wait = radio.mean_wait();
    Ok(Row::new(FIGURE, if helped { "srp" } else { "none" }, name)
        .number("goodput_bps", goodput.as_bps() as f64)
        .number("share_of_limit", share)
        .number("mean_queue_ms", wait.as_secs_f64() * 1e3)
        .every_byte("sha256_ok", sha256_ok)
        .claim_if(helped && loss > 0, "0.9 of the limit", share.is_some_and(|s| s >= SHARE))
        .claim_if(helped, "a queue of 50 ms at most", wait <= QUEUE))
}
