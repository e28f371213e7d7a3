//! How the kernels of the two hosts send.

use std::fmt;
use std::net::IpAddr;

use lasthop_kernel::netns::Netns;

use crate::error::LabError;
use crate::topology::has_congestion_control;

/// The headers of a packet without options.
const HEADERS: u32 = 40;

/// A kernel's TCP. What is not said is as the kernel has it; it remembers nothing of earlier
/// connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sender {
    /// Its congestion control.
    pub congestion: &'static str,
    /// With selective acknowledgements (RFC 2018).
    pub sack: bool,
    /// With time stamps (RFC 7323).
    pub timestamps: bool,
    /// It asks for explicit congestion notification (RFC 3168); otherwise it has none.
    pub ecn: bool,
    /// The most that a receiver lets the other end send, in full packets; as it likes without.
    pub window: Option<u32>,
}

impl Sender {
    /// What the papers sent with: Reno without SACK and time stamps. The kernel recovers from several
    /// losses of one window as RFC 6582 has it.
    pub const RENO: Self =
        Self { congestion: "reno", sack: false, timestamps: false, ecn: false, window: None };
    /// As [`RENO`](Self::RENO), with the papers' window of 32 packets.
    pub const RENO_32: Self = Self { window: Some(32), ..Self::RENO };
    /// What most servers send with.
    pub const CUBIC: Self =
        Self { congestion: "cubic", sack: true, timestamps: true, ecn: false, window: None };

    /// Makes `host` send so on all new connections. `routes` are its networks on `interface`, each
    /// with its own address there.
    ///
    /// # Errors
    ///
    /// The kernel has no such congestion control, or a setting is refused.
    pub(super) fn configure(
        self,
        host: &Netns,
        interface: &str,
        routes: &[(IpAddr, IpAddr)],
        mtu: u32,
    ) -> Result<(), LabError> {
        let Self { congestion, sack, timestamps, ecn, window } = self;
        if !has_congestion_control(host, congestion)? {
            return Err(LabError::NoCongestionControl(congestion.to_owned()));
        }
        let said = |yes: bool| if yes { "1" } else { "0" };
        for (key, value) in [
            ("ipv4.tcp_sack", said(sack)),
            ("ipv4.tcp_timestamps", said(timestamps)),
            ("ipv4.tcp_ecn", said(ecn)),
            ("ipv4.tcp_no_metrics_save", "1"),
            // A receiver that tunes its buffer forgets the widest window of its route.
            ("ipv4.tcp_moderate_rcvbuf", said(window.is_none())),
        ] {
            host.sysctl(key, value)?;
        }
        // On routes, since a namespace may not make just any algorithm its default.
        let mut metrics = format!("congctl {congestion}");
        if let Some(packets) = window {
            metrics += &format!(" window {}", bytes(packets, mtu));
        }
        for (net, own) in routes {
            let route = match net {
                IpAddr::V4(_) => {
                    format!("{net}/24 dev {interface} proto kernel scope link src {own}")
                }
                IpAddr::V6(_) => format!("{net}/64 dev {interface} proto kernel metric 256"),
            };
            host.ip(&format!("route change {route} {metrics}\n"))?;
        }
        Ok(())
    }
}

/// A window of so many full packets, without their headers.
pub(super) fn bytes(packets: u32, mtu: u32) -> u32 {
    packets.saturating_mul(mtu.saturating_sub(HEADERS))
}

/// A short name: `reno`, `reno-32`, `cubic`.
impl fmt::Display for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.window {
            None => f.pad(self.congestion),
            Some(packets) => f.pad(&format!("{}-{packets}", self.congestion)),
        }
    }
}
