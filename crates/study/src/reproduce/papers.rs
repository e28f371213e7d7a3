use std::num::NonZeroUsize;

use thiserror::Error;

use super::cell::{Label, Only, OnlyError};
use super::compare::{Comparison, Criterion};
use super::ll_trigger_2017;
use super::mhp_srp_1994;
use super::obtcp_2010;
use super::run::Progress;
use super::rwc_atcp_2003;
use crate::published::PublishedError;
use crate::report::Report;
use crate::scenario::ScenarioError;

/// The papers whose schemes lasthop has or is to have.
pub const PAPERS: [Paper; 5] = [
    Paper {
        id: "mhp-srp-1994",
        authors: "Yavatkar, Bhagawat",
        year: 1994,
        title: "Improving End-to-End Performance of TCP over Mobile Internetworks",
        study: Some(mhp_srp_1994::STUDY),
    },
    Paper {
        id: "mobile-tcp-2001",
        authors: "Haas, Warkhedi",
        year: 2001,
        title: "The design and performance of Mobile TCP for wireless networks",
        study: None,
    },
    Paper {
        id: "rwc-atcp-2003",
        authors: "Raisinghani, Singh, Iyer",
        year: 2003,
        title: "Improving TCP Performance over Mobile Wireless Environments using Cross Layer Feedback",
        study: Some(rwc_atcp_2003::STUDY),
    },
    Paper {
        id: "obtcp-2010",
        authors: "Sardar, Saha, Hassan",
        year: 2010,
        title: "A New Protocol to improve TCP Performance in Network Mobility",
        study: Some(obtcp_2010::STUDY),
    },
    Paper {
        id: "ll-trigger-2017",
        authors: "Mohammad, Potrus",
        year: 2017,
        title: "A Method for Compensation of TCP Throughput Degrading During Movement of Mobile Node",
        study: Some(ll_trigger_2017::STUDY),
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
    /// How its experiments are reproduced; none where they are not.
    pub study: Option<Study>,
}

/// How a paper's experiments are reproduced.
#[derive(Clone, Copy, Debug)]
pub struct Study {
    /// How many runs each cell gets if nobody says.
    pub runs: u32,
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
    /// The version that runs, with its commit where that is known; for the report.
    pub version: String,
}

impl Request {
    /// The command line that gives the same values again. It leaves out what changes none.
    pub fn command(&self, paper: &str) -> String {
        let only: String = self.only.iter().map(|only| format!(" --only '{only}'")).collect();
        format!("lasthop reproduce {paper} --runs {} --seed {}{only}", self.runs, self.seed)
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
    /// The paper is known, but none of its experiments is set up.
    #[error("{id} is not reproduced yet; these are: {reproduced}")]
    NotYet {
        /// What was asked for.
        id: &'static str,
        /// The papers that are reproduced.
        reproduced: String,
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

/// The paper called `id` and how it is reproduced.
///
/// # Errors
/// If there is no such paper, or it is not reproduced; the error lists those that are.
pub fn find(id: &str) -> Result<(&'static Paper, Study), ReproduceError> {
    let ids = |papers: &mut dyn Iterator<Item = &Paper>| {
        papers.map(|paper| paper.id).collect::<Vec<_>>().join(", ")
    };
    let Some(paper) = PAPERS.iter().find(|paper| paper.id == id) else {
        let known = ids(&mut PAPERS.iter());
        return Err(ReproduceError::Unknown { id: id.to_owned(), known });
    };
    let Some(study) = paper.study else {
        let reproduced = ids(&mut PAPERS.iter().filter(|paper| paper.study.is_some()));
        return Err(ReproduceError::NotYet { id: paper.id, reproduced });
    };
    Ok((paper, study))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paper_that_is_not_there_is_refused_with_those_that_are() {
        let refusal = find("mhp-1994").unwrap_err().to_string();
        assert!(refusal.contains("`mhp-1994`") && refusal.contains("mhp-srp-1994"), "{refusal}");
        assert!(refusal.contains("`league` and `all`"), "{refusal}");
        let later = find("mobile-tcp-2001").unwrap_err().to_string();
        assert!(later.contains("mobile-tcp-2001 is not reproduced yet"), "{later}");
        assert_eq!(find("mhp-srp-1994").unwrap().0.year, 1994);
    }
}
