use lasthop_units::Duration;

use crate::edge::HopEnd;

/// What is divided among windows: A of equation 1, "B R" (RWC-1).
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Total {
    /// So many packets, as the paper has it: set, and never measured. Every flow that has had data
    /// lately takes part, one by itself too.
    Packets(u64),
    /// What the hop carries in a round trip, by measurement: the greatest rate of late times the
    /// longest of the flows' shortest round trips times `factor`. As long as the rate grows, and
    /// while only one flow wants the hop, nobody is narrowed to less than twice that.
    Auto {
        /// More than 1, so that the hop never waits for a window; what it is more stands in the hop's
        /// queue.
        factor: f64,
        /// Packets that the least of the flows has at least: with fewer, each waits for its
        /// acknowledgement.
        least: u64,
    },
}

impl Total {
    /// Half as much again as fills the hop, four packets at least.
    pub const AUTO: Self = Self::Auto { factor: 1.5, least: 4 };
}

/// How a [`ReceiverWindows`](super::ReceiverWindows) works.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct WindowsConfig {
    /// What is divided.
    pub total: Total,
    /// At which end of the hop it stands.
    pub place: HopEnd,
    /// The priority of a connection for which none is set.
    pub priority: u32,
    /// A flow without data for this long takes no part.
    pub quiet: Duration,
    /// Connections that are known at most; the one that was silent longest gives way.
    pub connections: usize,
    /// A connection without packets is removed after this time.
    pub idle: Duration,
}

impl Default for WindowsConfig {
    /// By measurement, at the mobile's end, all alike, flows that had data within a second.
    fn default() -> Self {
        Self {
            total: Total::AUTO,
            place: HopEnd::Mobile,
            priority: 1,
            quiet: Duration::from_secs(1),
            connections: 1024,
            idle: Duration::from_secs(900),
        }
    }
}
