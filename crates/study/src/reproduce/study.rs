//! How a paper's experiments are reproduced: what is asked for, and what comes of it.

use std::num::NonZeroUsize;

use lasthop_scenario::ScenarioError;
use lasthop_units::Seed;
use serde::de::DeserializeOwned;
use thiserror::Error;

use super::cell::{Cell, Label, Only, OnlyError};
use super::compare::{Comparison, Criterion};
use super::processing::Processing;
use super::prose::ProseError;
use super::run::{CellRunner, Progress, run_cells};
use crate::published::PublishedError;
use crate::report::Report;

/// What every paper's module has: its name, what it publishes, the words of its report, and how it is
/// reproduced. The module has `RUNS`, `OVER`, `cells::all` and `reproduce_in`; `$runner`, a `$runs`, runs
/// its cells. `full` stands where the paper's experiments are longer than ours usually are.
macro_rules! paper {
    ($id:literal, $runs:ty, $runner:expr) => {
        $crate::reproduce::study::paper!(@ $id, $runs, $runner, false);
    };
    ($id:literal, $runs:ty, $runner:expr, full) => {
        $crate::reproduce::study::paper!(@ $id, $runs, $runner, true);
    };
    (@ $id:literal, $runs:ty, $runner:expr, $longer:literal) => {
        /// The name that `lasthop reproduce` takes.
        pub const ID: &str = $id;

        /// How the paper is reproduced.
        pub(super) const STUDY: $crate::reproduce::study::Study = $crate::reproduce::study::Study {
            runs: RUNS,
            over: OVER,
            longer: $longer,
            labels: || Ok(cells::all(&published()?)?.into_iter().map(|cell| cell.label).collect()),
            reproduce: |request, progress| reproduce_with(&$runner, request, progress),
        };

        /// What the paper publishes.
        ///
        /// # Errors
        /// None, as long as the file in the repository is as its tests saw it.
        pub fn published() -> Result<Published, ReproduceError> {
            Ok(Published::parse($crate::reproduce::study::beside!($id, "/published.toml"))?)
        }

        /// The words of the report.
        fn prose() -> Result<Prose, ReproduceError> {
            Ok(Prose::parse($crate::reproduce::study::beside!($id, "/report.toml"))?)
        }

        /// Runs the chosen cells with `runner` and compares them with the paper's.
        ///
        /// # Errors
        /// If a choice of cells makes no sense, or the threads cannot be had.
        pub fn reproduce_with(
            runner: &$runs,
            request: &Request,
            progress: &dyn Progress,
        ) -> Result<Reproduction, ReproduceError> {
            reproduce_in(&prose()?, runner, request, progress)
        }
    };
}
pub(super) use paper;

/// The text of a file in a folder of `papers`.
macro_rules! beside {
    ($($path:literal),+) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../papers/", $($path),+))
    };
}
pub(super) use beside;

/// Reads a file from a folder of `papers`.
///
/// # Errors
/// It is not what was expected, which tests would have shown.
pub(super) fn read_beside<T: DeserializeOwned>(
    name: &str,
    text: &str,
) -> Result<T, ReproduceError> {
    toml::from_str(text).map_err(|e| ReproduceError::Beside(format!("{name}: {e}")))
}

/// How a paper's experiments are reproduced.
#[derive(Clone, Copy, Debug)]
pub struct Study {
    /// How many runs each cell gets if nobody says.
    pub runs: u32,
    /// The scheme that gains are told over, where the paper tells of any.
    pub over: Option<&'static str>,
    /// The paper's own experiments are longer than those that are run unless [`Request::full`] is
    /// set.
    pub longer: bool,
    /// The labels of all cells, in order.
    pub labels: fn() -> Result<Vec<Label>, ReproduceError>,
    /// Runs the experiments and compares.
    pub reproduce: fn(&Request, &dyn Progress) -> Result<Reproduction, ReproduceError>,
}

/// What is to be reproduced, and how.
#[derive(Clone, Debug)]
pub struct Request {
    /// How many runs each cell gets.
    pub runs: u32,
    /// The seed that all runs' seeds follow from.
    pub seed: u64,
    /// How many threads run them; all cores if none.
    pub jobs: Option<NonZeroUsize>,
    /// Which cells; all of them if empty.
    pub only: Vec<Only>,
    /// Experiments are as long as the paper's, where ours are shorter otherwise.
    pub full: bool,
    /// Processing costs, where somebody measured them; for mobile-tcp-2001.
    pub processing: Option<Processing>,
    /// The version that runs, with its commit where that is known; for the report.
    pub version: String,
}

impl Request {
    /// The command line that gives the same values again. It leaves out what changes none.
    pub fn command(&self, paper: &str) -> String {
        let only: String = self.only.iter().map(|only| format!(" --only '{only}'")).collect();
        let full = if self.full { " --full" } else { "" };
        format!("lasthop reproduce {paper} --runs {} --seed {}{full}{only}", self.runs, self.seed)
    }
}

/// A paper's experiments after their runs.
#[derive(Clone, Debug)]
pub struct Reproduction {
    /// Each cell beside the published one.
    pub comparison: Comparison,
    /// What had to be right, and how much of it is.
    pub criteria: Vec<Criterion>,
    /// All of it as a report.
    pub report: Report,
}

/// Why nothing was reproduced.
#[derive(Debug, Error)]
pub enum ReproduceError {
    /// There is no such paper.
    #[error("`{id}` is no paper; there are {known}, and `league` and `all`")]
    Unknown {
        /// What was asked for.
        id: String,
        /// The papers there are.
        known: String,
    },
    /// A choice of cells makes no sense.
    #[error(transparent)]
    Only(#[from] OnlyError),
    /// The published values cannot be read.
    #[error(transparent)]
    Published(#[from] PublishedError),
    /// The published values lack a table that the experiment compares with.
    #[error("published values: there is no table `{0}`")]
    NoTable(&'static str),
    /// A scenario of the experiment cannot be read.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The words of a report are not those that it needs.
    #[error(transparent)]
    Prose(#[from] ProseError),
    /// What is held beside the paper cannot be read.
    #[error("{0}")]
    Beside(String),
    /// The threads for the runs cannot be had.
    #[error("cannot start the threads for the runs: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
}

/// Runs cells as a request says, on a pool of threads of its own, and compares them with the paper's.
///
/// # Errors
/// If the threads cannot be had.
pub(super) fn compared<C: Sync>(
    cells: &[Cell<C>],
    runner: &dyn CellRunner<C>,
    request: &Request,
    progress: &dyn Progress,
) -> Result<Comparison, ReproduceError> {
    let run = || run_cells(cells, runner, request.runs, Seed::from_u64(request.seed), progress);
    Ok(Comparison::new(pool(request)?.install(run)))
}

/// The threads that a request allows.
///
/// # Errors
/// If they cannot be had.
pub(super) fn pool(request: &Request) -> Result<rayon::ThreadPool, ReproduceError> {
    let threads = request.jobs.map_or(0, usize::from);
    Ok(rayon::ThreadPoolBuilder::new().num_threads(threads).build()?)
}
