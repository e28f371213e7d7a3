//! Speed and CPU where nothing is in the way: three hosts joined by plain virtual cables.

use anyhow::Result;
use lasthop_units::{Duration, Rate};

use super::Setting;
use crate::cables::cabled;
use crate::peer::{Below, Peer};
use crate::pump::Load;
use crate::report::{Report, Row};

const FIGURE: &str = "clean";
/// What is claimed of the sealed hops with 1 and with 64 connections, on two cores.
const RATE: Rate = Rate::from_mbps(1500);
/// And of SRP, with one and with more.
const RATES_OF_SRP: [Rate; 2] = [Rate::from_mbps(5280), Rate::from_mbps(4640)];
/// CPU seconds of both ends together for each GB.
const CPU: f64 = 5.0;
const CPU_OF_SRP: f64 = 2.0;
const GB: f64 = 1e9;

/// Runs all cells.
pub(crate) fn run(setting: &Setting, report: &mut Report) {
    let told = Rate::from_mbps(5000);
    let peers = [
        Peer::Srp,
        Peer::MobileTcp(Below::Frames),
        Peer::MobileTcp(Below::SealedFrames),
        Peer::MobileTcp(Below::Udp),
        Peer::SplitTcp("cubic"),
        Peer::Kernel("cubic"),
        Peer::Proxy("cubic"),
        Peer::Quic,
        Peer::QuicTold(told),
    ];
    for connections in [1, 64] {
        let cell = format!("{connections}-connections");
        for peer in &peers {
            setting.attempt(report, FIGURE, peer, &cell, || {
                measure(setting, peer, connections, &cell)
            });
        }
    }
}

/// CPU is that of the peer's processes at both ends in the span that is measured, over the bytes that arrived in it;
/// source, sink and the kernel's work outside of those processes are not in it.
fn measure(setting: &Setting, peer: &Peer, connections: usize, cell: &str) -> Result<Row> {
    let span = Duration::from_secs(setting.choose(4, 10));
    let load = Load::carry(&cabled()?, peer, connections, span)?;
    let Load { rate, right, cpu, bytes } = load;
    let cpu = cpu.iter().sum::<Duration>().as_secs_f64() / (bytes as f64 / GB);
    let ours = peer.is_ours();
    let (at_least, at_most) = match peer {
        Peer::Srp => (RATES_OF_SRP[usize::from(connections > 1)], CPU_OF_SRP),
        _ => (RATE, CPU),
    };
    Ok(Row::new(FIGURE, peer, cell)
        .number("gbit_s", rate.as_bps() as f64 / 1e9)
        .number("cpu_s_per_gb", cpu)
        .every_byte("bytes_ok", right)
        .claim_if(ours, format!("at least {at_least}"), rate >= at_least)
        .claim_if(ours, format!("at most {at_most} CPU seconds per GB"), cpu <= at_most))
}
