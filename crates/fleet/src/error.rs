//! Why something could not be done.

use std::io;
use std::path::{Path, PathBuf};

use lasthop_control::config::ConfigError;
use lasthop_daemon::keyfile::KeyFileError;
use thiserror::Error;

use crate::records::{Name, RecordError};
use crate::store::StoreError;
use crate::token::TokenError;

/// Why something could not be done.
#[derive(Debug, Error)]
pub enum FleetError {
    /// etcd.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// `fleet.toml`.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A key's file.
    #[error(transparent)]
    KeyFile(#[from] KeyFileError),
    /// A token.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// What is asked for cannot be written down.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Settings that contradict each other.
    #[error("{0}")]
    Settings(&'static str),
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The operating system has no entropy.
    #[error("cannot make a key: {0}")]
    Entropy(#[source] io::Error),
    /// A file is there that may be in use.
    #[error("{} exists; it is not overwritten", .0.display())]
    Exists(PathBuf),
    /// No base of this machine has joined.
    #[error("no base of this machine is in the fleet: lasthop fleet join TOKEN --name NAME ...")]
    NoBase,
    /// etcd has no such fleet.
    #[error("etcd has no fleet {0}: lasthop fleet init makes one")]
    NoFleet(Name),
    /// There is such a fleet already.
    #[error("etcd has a fleet {0} already")]
    FleetExists(Name),
    /// A token was used, is too old, or was never made.
    #[error("the token is used up, or was not used in time: lasthop fleet token makes another")]
    TokenSpent,
    /// Somebody else has this already.
    #[error("{0}")]
    Taken(String),
    /// Nobody is called so, or has this key.
    #[error("no base and no mobile of the fleet is `{0}`: lasthop fleet list shows them")]
    Unknown(String),
    /// The key is revoked.
    #[error("the key {0} is revoked, and a key that was is never taken again")]
    Revoked(String),
    /// Others changed the fleet each time.
    #[error("others change the fleet at the same time: try again")]
    Contended,
    /// Nobody tells how many mobiles a base has.
    #[error(
        "the agent of {0} does not tell how many mobiles it holds: lasthop fleet agent has to run there"
    )]
    NoAgent(Name),
    /// The base still has mobiles.
    #[error("{base} still holds {mobiles} mobiles after {seconds} s; it stays marked as draining")]
    NotDrained {
        /// The base.
        base: Name,
        /// How many.
        mobiles: u64,
        /// How long it was waited.
        seconds: u64,
    },
}

impl FleetError {
    pub(crate) fn write(path: &Path, source: io::Error) -> Self {
        Self::Write { path: path.to_owned(), source }
    }
}
