use std::io;

use lasthop_kernel::netns::NetnsError;
use lasthop_kernel::packet_socket::PacketSocketError;
use lasthop_kernel::tun::TunError;
use thiserror::Error;

/// Why something in the lab failed.
#[derive(Debug, Error)]
pub enum LabError {
    /// A namespace could not be made or changed.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// The system refused something.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// The far end answered, but not with what was asked for.
    #[error("{who} answered {what}")]
    Answer {
        /// Who: the proxy or the server.
        who: &'static str,
        /// What it said.
        what: String,
    },
    /// A child process ended before its time.
    #[error("`{command}` ended early ({status}): {message}")]
    Ended {
        /// What was run.
        command: String,
        /// How it ended.
        status: String,
        /// The last that it wrote to its standard error.
        message: String,
    },
    /// The transfer was over before it was measured.
    #[error("the transfer ended before it was measured")]
    Early,
    /// The caller asked to stop.
    #[error("stopped")]
    Stopped,
    /// A link's description is wrong.
    #[error("a link of the lab: {0}")]
    Link(#[from] lasthop_radio::ConfigError),
    /// A TUN interface could not be had.
    #[error(transparent)]
    Tun(#[from] TunError),
    /// An Ethernet interface could not be had.
    #[error(transparent)]
    Frames(#[from] PacketSocketError),
    /// Something did not happen in time.
    #[error("{0} took too long")]
    TooLong(String),
    /// The kernel has no such congestion control.
    #[error("this kernel has no congestion control named {0}")]
    NoCongestionControl(String),
    /// The kernel has no multipath TCP.
    #[error("this kernel has no multipath TCP")]
    NoMultipath,
}

impl LabError {
    /// Whether the machine lets this process have no namespaces, or no interfaces in them.
    pub fn is_permission(&self) -> bool {
        use io::ErrorKind::{NotFound, PermissionDenied};
        match self {
            Self::Netns(NetnsError::NotPermitted(_)) => true,
            Self::Netns(NetnsError::Io { source, .. }) => source.kind() == PermissionDenied,
            // Containers often have no /dev/net/tun at all.
            Self::Tun(TunError::Io { source, .. }) => {
                matches!(source.kind(), NotFound | PermissionDenied)
            }
            Self::Frames(PacketSocketError::NotPermitted(_)) => true,
            _ => false,
        }
    }

    pub(crate) fn io(what: impl Into<String>, source: io::Error) -> Self {
        Self::Io { what: what.into(), source }
    }
}
