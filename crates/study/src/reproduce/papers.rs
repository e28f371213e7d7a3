use std::num::NonZeroUsize;

use thiserror::Error;

use super::cell::{Label, Only, OnlyError};
use super::compare::{Comparison, Criterion};
use super::ll_trigger_2017;
use super::mhp_srp_1994;
use super::mobile_tcp_2001::{self, Processing};
use super::obtcp_2010;
use super::run::Progress;
use super::rwc_atcp_2003;
use crate::published::PublishedError;
use crate::report::Report;
use crate::scenario::ScenarioError;

/// The papers whose schemes lasthop has.
pub const PAPERS: [Paper; 5] = [
    Paper {
        id: "mhp-srp-1994",
        authors: "Yavatkar, Bhagawat",
        year: 1994,
        title: "Improving End-to-End Performance of TCP over Mobile Internetworks",
        study: mhp_srp_1994::STUDY,
    },
    Paper {
        id: "mobile-tcp-2001",
        authors: "Haas, Warkhedi",
        year: 2001,
        title: "The design and performance of Mobile TCP for wireless networks",
        study: mobile_tcp_2001::STUDY,
    },
    Paper {
        id: "rwc-atcp-2003",
        authors: "Raisinghani, Singh, Iyer",
        year: 2003,
        title: "Improving TCP Performance over Mobile Wireless Environments using Cross Layer Feedback",
        study: rwc_atcp_2003::STUDY,
    },
    Paper {
        id: "obtcp-2010",
        authors: "Sardar, Saha, Hassan",
        year: 2010,
        title: "A New Protocol to improve TCP Performance in Network Mobility",
        study: obtcp_2010::STUDY,
    },
    Paper {
        id: "ll-trigger-2017",
        authors: "Mohammad, Potrus",
        year: 2017,
        title: "A Method for Compensation of TCP Throughput Degrading During Movement of Mobile Node",
        study: ll_trigger_2017::STUDY,
    },
];

/// A published paper.
#[derive(Clone, Copy, Debug)]
pub struct Paper {
    /// The name that `lasthop reproduce` takes.
    pub id: &'static str,
    /// Its authors' family names.
    pub authors: &'static str,
    /// When it appeared.
    pub year: u16,
    /// Its title.
    pub title: &'static str,
    /// How its experiments are reproduced.
    pub study: Study,
}

/// What every paper's module has: its name, what it publishes, and how it is reproduced. The module
/// has `RUNS`, `cells::all` and `reproduce_with`; `$runner` runs its cells. `full` stands where the
/// paper's experiments are longer than ours usually are.
macro_rules! paper {
    ($id:literal, $runner:expr) => {
        $crate::reproduce::papers::paper!(@ $id, $runner, false);
    };
    ($id:literal, $runner:expr, full) => {
        $crate::reproduce::papers::paper!(@ $id, $runner, true);
    };
    (@ $id:literal, $runner:expr, $longer:literal) => {
        /// The name that `lasthop reproduce` takes.
        pub const ID: &str = $id;

        /// How the paper is reproduced.
        pub(super) const STUDY: $crate::reproduce::Study = $crate::reproduce::Study {
            runs: RUNS,
            longer: $longer,
            labels: || Ok(cells::all(&published()?)?.into_iter().map(|cell| cell.label).collect()),
            reproduce: |request, progress| reproduce_with(&$runner, request, progress),
        };

        /// What the paper publishes.
        ///
        /// # Errors
        /// None, as long as the file in the repository is as its tests saw it.
        pub fn published() -> Result<Published, ReproduceError> {
            const TEXT: &str = include_str!(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/../../papers/",
                $id,
                "/published.toml"
            ));
            Ok(Published::parse(TEXT)?)
        }
    };
}
pub(super) use paper;

/// How a paper's experiments are reproduced.
#[derive(Clone, Copy, Debug)]
pub struct Study {
    /// How many runs each cell gets if nobody says.
    pub runs: u32,
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
    /// What is held beside the paper cannot be read.
    #[error("{0}")]
    Beside(String),
    /// The threads for the runs cannot be had.
    #[error("cannot start the threads for the runs: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
}

/// The paper called `id`.
///
/// # Errors
/// If there is no such paper; the error lists those that there are.
pub fn find(id: &str) -> Result<&'static Paper, ReproduceError> {
    PAPERS.iter().find(|paper| paper.id == id).ok_or_else(|| {
        let known: Vec<&str> = PAPERS.iter().map(|paper| paper.id).collect();
        ReproduceError::Unknown { id: id.to_owned(), known: known.join(", ") }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paper_that_is_not_there_is_refused_with_those_that_are() {
        let refusal = find("mhp-1994").unwrap_err().to_string();
        assert!(refusal.contains("`mhp-1994`") && refusal.contains("mhp-srp-1994"), "{refusal}");
        assert!(refusal.contains("`league` and `all`"), "{refusal}");
        assert_eq!(find("mobile-tcp-2001").unwrap().year, 2001);
    }
}
