//! What runs a scenario.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use lasthop_units::Seed;
use thiserror::Error;

use super::Scenario;

/// Runs scenarios. The same scenario and seed give the same outcome, on any machine.
pub trait Engine: Sync {
    /// Whether this engine can run a scenario at all; asked before anything runs.
    ///
    /// # Errors
    ///
    /// What is missing.
    fn check(&self, scenario: &Scenario) -> Result<(), RunError> {
        let _ = scenario;
        Ok(())
    }

    /// Runs a scenario to its end.
    ///
    /// # Errors
    ///
    /// Why it could not come to its end. A flow that does not complete in time is an outcome.
    fn run(
        &self,
        scenario: &Scenario,
        seed: Seed,
        outputs: &Outputs<'_>,
    ) -> Result<Outcome, RunError>;
}

/// What a run gave.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Outcome {
    /// Every flow that has an end came to it (MET-13).
    pub completed: bool,
    /// The hash of all that happened.
    pub trace: u64,
    /// What was measured, by name and unit: `download.goodput_bps`. A value that is not finite is
    /// one that this run could not measure.
    pub metrics: Vec<(String, f64)>,
}

/// Where a run's captures and series go, and whether it shall end early.
#[derive(Clone, Debug)]
pub struct Outputs<'a> {
    /// The run's own directory, which does not exist before something is put there; `None` keeps
    /// nothing.
    pub directory: Option<PathBuf>,
    /// Set when the user has seen enough.
    pub stop: &'a AtomicBool,
}

impl Outputs<'_> {
    /// Whether the run shall end now, with [`RunError::Stopped`].
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Makes a file of the run's own, for one of its captures or series.
    ///
    /// # Errors
    ///
    /// The directory or the file cannot be made.
    pub fn create(&self, name: &str) -> Result<Option<fs::File>, RunError> {
        let Some(directory) = &self.directory else { return Ok(None) };
        let path = directory.join(name);
        let file = fs::create_dir_all(directory).and_then(|()| fs::File::create(&path));
        file.map(Some).map_err(|source| RunError::Output { path, source })
    }
}

/// Why a run did not come to its end.
#[derive(Debug, Error)]
pub enum RunError {
    /// The engine cannot do what the scenario asks for.
    #[error("{0}")]
    Unsupported(String),
    /// The simulation failed.
    #[error("{0}")]
    Failed(String),
    /// The user had seen enough.
    #[error("stopped")]
    Stopped,
    /// A capture or series cannot be written.
    #[error("{}: {source}", path.display())]
    Output {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}
