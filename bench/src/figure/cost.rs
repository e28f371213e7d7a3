//! CPU time per GB on a clean path of 1 Gbit/s, at either end, beside SRP's of the same run.

use std::fmt;

use anyhow::Result;
use lasthop_units::{Duration, Rate};

use super::Setting;
use crate::cables::{cabled, cut, limit};
use crate::peer::{Below, Peer};
use crate::pump::Load;
use crate::report::{Report, Row};

const FIGURE: &str = "cost";
const RATE: Rate = Rate::from_mbps(1000);
const GB: f64 = 1e9;

/// Runs all cells; SRP first, which the others are compared with.
pub(crate) fn run(setting: &Setting, report: &mut Report) {
    let peers = [
        Peer::Srp,
        Peer::MobileTcp(Below::Frames),
        Peer::MobileTcp(Below::SealedFrames),
        Peer::MobileTcp(Below::Udp),
        Peer::SplitTcp("cubic"),
    ];
    for offload in [true, false] {
        for connections in [1, 64] {
            let cell = Cell { connections, offload };
            let mut of_srp = None;
            for peer in &peers {
                setting.attempt(report, FIGURE, peer, cell, || {
                    let cost = measure(setting, peer, cell)?;
                    if *peer == Peer::Srp {
                        of_srp = Some(cost.sum());
                    }
                    Ok(cost.row(peer, cell, of_srp))
                });
            }
        }
    }
}

/// How much there is to carry at once, and across what.
#[derive(Clone, Copy, Debug)]
struct Cell {
    connections: usize,
    /// Large pieces cross the hop uncut, as if both interfaces had segmentation offload.
    offload: bool,
}

/// `64-offload`: connections, and what the hop's interfaces can.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let interface = if self.offload { "offload" } else { "frames" };
        f.pad(&format!("{}-{interface}", self.connections))
    }
}

/// What a peer moved, and the CPU seconds that its two processes took for each GB.
struct Cost {
    rate: Rate,
    base: f64,
    mobile: f64,
    right: bool,
}

impl Cost {
    fn sum(&self) -> f64 {
        self.base + self.mobile
    }

    fn row(&self, peer: &Peer, cell: Cell, of_srp: Option<f64>) -> Row {
        Row::new(FIGURE, peer, cell)
            .number("mbit_s", self.rate.as_bps() as f64 / 1e6)
            .number("base_s_per_gb", self.base)
            .number("mobile_s_per_gb", self.mobile)
            .number("cpu_s_per_gb", self.sum())
            .number("beside_srp", of_srp.map(|srp| self.sum() / srp))
            .every_byte("bytes_ok", self.right)
    }
}

/// The CPU time is that of the measured span alone: opening connections is not in it.
fn measure(setting: &Setting, peer: &Peer, cell: Cell) -> Result<Cost> {
    let hosts = cabled()?;
    limit(&hosts, RATE)?;
    if !cell.offload {
        cut(&hosts)?;
    }
    let span = Duration::from_secs(setting.choose(4, 10));
    let Load { bytes, rate, cpu, right, .. } = Load::carry(&hosts, peer, cell.connections, span)?;
    let [base, mobile] = cpu.map(|cpu| cpu.as_secs_f64() / (bytes as f64 / GB));
    Ok(Cost { rate, base, mobile, right })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_together_are_compared() {
        let cost = Cost { rate: RATE, base: 3.0, mobile: 4.5, right: true };
        let cell = Cell { connections: 64, offload: false };
        let row = format!("{:?}", cost.row(&Peer::SplitTcp("cubic"), cell, Some(5.0)));
        assert!(row.contains("64-frames") && row.contains("1.5"), "{row}");
    }
}
