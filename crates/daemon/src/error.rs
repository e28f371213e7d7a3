//! Why a base or a mobile does not start, or stops.

use std::error::Error as StdError;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use lasthop_control::ControlError;
use lasthop_kernel::transparent::TransparentError;
use thiserror::Error;

use crate::carrier::ether::EtherError;
use crate::keyfile::KeyFileError;

/// An error, and what it came from.
pub(crate) fn in_full(error: &dyn StdError) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", in_full(source)),
        None => error.to_string(),
    }
}

/// Why a base or a mobile does not start, or stops.
#[derive(Debug, Error)]
pub enum RunError {
    /// An address cannot be listened on.
    #[error("cannot listen on {addr}: {source}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// The kernel's error.
        source: io::Error,
    },
    /// An interface cannot carry the hop.
    #[error(transparent)]
    Ether(#[from] EtherError),
    /// What was configured does not fit what was found.
    #[error("{0}")]
    Misfit(String),
    /// Nothing is intercepted.
    #[error(transparent)]
    Transparent(#[from] TransparentError),
    /// The control socket cannot be served.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The key file cannot be used.
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// What links with caps have carried cannot be kept.
    #[error("{path}: what links have carried cannot be kept there: {why} (`state` names the directory)", path = path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// The kernel refused what the loop cannot do without.
    #[error("the kernel refused: {0}")]
    Kernel(io::Error),
}
