//! Why an agent does not start, or stops.

use std::io;

use thiserror::Error;

use lasthop_control::ControlError;
use lasthop_kernel::netlink::NetlinkError;
use lasthop_kernel::nft::NftError;
use lasthop_kernel::packet_socket::PacketSocketError;

/// Why an agent does not start, or stops.
#[derive(Debug, Error)]
pub enum AgentError {
    /// One of the interfaces cannot be used.
    #[error(transparent)]
    Interface(#[from] PacketSocketError),
    /// The kernel does not tell of its interfaces, or does not change them.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// The bridge cannot be kept from forwarding what the agent forwards.
    #[error("the bridge cannot be told to leave TCP to the agent: {0}")]
    Gate(#[from] NftError),
    /// The two interfaces are not ports of one bridge.
    #[error(
        "`{fixed}` and `{mobile}` are not ports of one bridge, which is what carries packets when the \
         agent does not: give --bridge NAME to have one made, or make them its ports with `ip link set \
         {fixed} master BRIDGE` and `ip link set {mobile} master BRIDGE`"
    )]
    NotBridged {
        /// The one where the fixed hosts are.
        fixed: String,
        /// The one where the mobiles are.
        mobile: String,
    },
    /// An interface is a port of some other bridge.
    #[error("`{interface}` is a port of another bridge than `{bridge}`")]
    OtherBridge {
        /// The interface.
        interface: String,
        /// The bridge that was asked for.
        bridge: String,
    },
    /// The control socket cannot be served.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The kernel refused what the loop cannot do without.
    #[error("the kernel refused: {0}")]
    Kernel(io::Error),
    /// A scheme's parameters make no sense together.
    #[error("{0}")]
    Parameters(String),
}

impl From<io::Error> for AgentError {
    fn from(error: io::Error) -> Self {
        Self::Kernel(error)
    }
}
