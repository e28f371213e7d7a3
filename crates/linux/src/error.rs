//! Why a base, a mobile or an agent does not start, or stops.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use thiserror::Error;

use crate::agent::AgentError;
use crate::carrier::ether::EtherError;
use crate::keyfile::KeyFileError;
use crate::transparent::TransparentError;

/// Why a base, a mobile or an agent does not start, or stops.
#[derive(Debug, Error)]
pub enum RunError {
    /// An address cannot be listened on.
    #[error("cannot listen on {addr}: {source}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// An interface cannot carry the hop.
    #[error(transparent)]
    Ether(#[from] EtherError),
    /// An agent cannot be in the path.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// What was configured does not fit what was found.
    #[error("{0}")]
    Misfit(String),
    /// Nothing is intercepted.
    #[error(transparent)]
    Transparent(#[from] TransparentError),
    /// The control socket cannot be served.
    #[error("cannot serve the control socket {}: {source}", path.display())]
    Control {
        /// Its path.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The key file cannot be used.
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// The kernel refused what the loop cannot do without.
    #[error("the kernel refused: {0}")]
    Kernel(io::Error),
}
