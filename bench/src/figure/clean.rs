//! Speed and CPU where nothing is in the way: three hosts joined by plain virtual cables.

use anyhow::Result;
use lasthop_units::{Duration, Rate};

use super::Setting;
use crate::cables::cabled;
use crate::peer::{Below, Peer};
use crate::pump::Load;
use crate::report::{Report, Row};

const FIGURE: &str = "clean";
/// What is claimed with 1 and with 64 connections, sealed.
const RATE: Rate = Rate::from_mbps(1500);
/// CPU seconds of both ends together for each GB.
const CPU: f64 = 5.0;
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

/// CPU is that of the peer's processes at both ends from their start to their end, over all bytes
/// that they carried; source, sink and the kernel's work outside of those processes are not in it.
fn measure(setting: &Setting, peer: &Peer, connections: usize, cell: &str) -> Result<Row> {
    let span = Duration::from_secs(setting.choose(4, 10));
    let load = Load::carry(&cabled()?, peer, connections, span)?;
    let Load { rate, right, .. } = load;
    let cpu = load.all_cpu.as_secs_f64() / (load.all_bytes as f64 / GB);
    let ours = peer.is_ours();
    Ok(Row::new(FIGURE, peer, cell)
        .number("gbit_s", rate.as_bps() as f64 / 1e9)
        .number("cpu_s_per_gb", cpu)
        .every_byte("bytes_ok", right)
        .claim_if(ours, "at least 1.5 Gbit/s", rate >= RATE)
        .claim_if(ours, "at most 5 CPU seconds per GB", cpu <= CPU))
}
