//! Why a connection does not move.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use thiserror::Error;

use super::form::ImageError;

/// Why a connection does not move, or its packets do not follow.
#[derive(Debug, Error)]
pub enum MigrateError {
    /// The helper could not be started.
    #[error("cannot start the helper `{} helper`: {source}", program.display())]
    Spawn {
        /// The program.
        program: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// No helper serves the path.
    #[error(
        "no helper answers at {}: {source}; start one with \
         `lasthop helper --socket {} --address ADDRESS`",
        path.display(), path.display()
    )]
    NoHelper {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The helper did not answer, or not sensibly. It is not asked again before it is found anew.
    #[error("the helper was asked to {doing} and is gone: {source}")]
    Gone {
        /// What it was to do.
        doing: &'static str,
        /// What happened.
        source: io::Error,
    },
    /// The helper did not do it.
    #[error("the helper was asked to {doing}: {said}")]
    Refused {
        /// What it was to do.
        doing: &'static str,
        /// Why not, in its words.
        said: String,
    },
    /// The kernel does not give connections away, or not to us.
    #[error(
        "connections cannot move from here to another base: {tried}; what works without is \
         `mode = \"anchor\"`, where the base that a connection was made from relays it"
    )]
    NotHere {
        /// What was tried, and what happened.
        tried: String,
    },
    /// Acknowledgements cannot be held.
    #[error("acknowledgements cannot be held at what the mobile has: {tried}")]
    NotHeld {
        /// What was tried, and what happened.
        tried: String,
    },
    /// The kernel refused a step.
    #[error("cannot {doing}: {source}")]
    Kernel {
        /// The step.
        doing: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// It is still being made.
    #[error("a connection that is still being made cannot move")]
    NotYet,
    /// Both ends are sent and acknowledged, or it was reset: nothing will be sent any more, and
    /// what is left can be read where it is.
    #[error("the connection is over; what is left of it is what can be read")]
    Over,
    /// The connection is in no state to move.
    #[error("the connection cannot move: {0}")]
    State(&'static str),
    /// The bytes are no image.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// What the route must say is not configured.
    #[error("the route of {address} cannot follow its mobile: {why}")]
    Route {
        /// The mobile's address.
        address: IpAddr,
        /// What is missing.
        why: String,
    },
    /// The configuration asks for something and does not say all of it.
    #[error("{0}")]
    Configuration(String),
    /// The operator's command failed.
    #[error("`{command}` failed ({status}){}", said(stderr))]
    Hook {
        /// The command with its arguments.
        command: String,
        /// How it ended.
        status: String,
        /// The end of its output.
        stderr: String,
    },
}

impl MigrateError {
    /// Whether the helper did not answer: another may, or the same again.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Gone { .. } | Self::NoHelper { .. })
    }

    pub(super) fn kernel(doing: &'static str) -> impl Fn(io::Error) -> Self + Copy {
        move |source| Self::Kernel { doing, source }
    }
}

fn said(stderr: &str) -> String {
    if stderr.is_empty() { String::new() } else { format!(": {stderr}") }
}
