//! What is intercepted, and the numbers that it takes.

use crate::network::Network;

/// What routing and packet rules are told apart by. Nothing else on the host may use these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Numbers {
    /// The bit of a packet's mark that says that it stays here (and of a socket's, that it is
    /// lasthop's own).
    pub mark: u32,
    /// The routing table that keeps packets here.
    pub table: u32,
    /// The first of [`PRIORITIES`](Self::PRIORITIES) priorities of routing rules.
    pub priority: u32,
}

impl Numbers {
    /// How many priorities are used, from the first on.
    pub const PRIORITIES: u32 = 6;

    /// A mobile's, when nobody says.
    pub const MOBILE: Self = Self { mark: 0x0100_0000, table: 1080, priority: 1080 };

    /// A base's, when nobody says: others than a mobile's, which may run on the same host.
    pub const BASE: Self = Self { mark: 0x0200_0000, table: 1090, priority: 1090 };
}

/// What a mobile intercepts.
#[derive(Clone, PartialEq, Debug)]
pub struct TransparentConfig {
    /// This host's own TCP.
    pub host: bool,
    /// The TCP that comes in by these interfaces.
    pub interfaces: Vec<String>,
    /// Networks that are reached as without lasthop.
    pub exclude: Vec<Network>,
    /// Networks whose hosts the base is asked to let leave from their own address.
    pub keep_source: Vec<Network>,
    /// What its rules are told apart by.
    pub numbers: Numbers,
}

impl Default for TransparentConfig {
    /// This host's own TCP, with a mobile's numbers.
    fn default() -> Self {
        Self {
            host: true,
            interfaces: Vec::new(),
            exclude: Vec::new(),
            keep_source: Vec::new(),
            numbers: Numbers::MOBILE,
        }
    }
}
