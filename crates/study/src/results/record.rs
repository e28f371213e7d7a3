//! One finished run.

use lasthop_scenario::{Ordered, PointHash};
use serde::{Deserialize, Serialize};

/// What a run was and what it gave.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// Which point.
    pub point: PointHash,
    /// Which of the point's runs, counted from 0.
    pub run: u64,
    /// The run's seed: with the point, what identifies it.
    pub seed: u64,
    /// The commit that ran it.
    pub commit: String,
    /// What the sweep set.
    pub parameters: Ordered<String>,
    /// What the run drew: the paths of random values, and the values.
    #[serde(default, skip_serializing_if = "Ordered::is_empty")]
    pub drawn: Ordered<String>,
    /// Every flow that has an end came to it (MET-13).
    pub completed: bool,
    /// The hash of all that happened.
    pub trace: String,
    /// What was measured. `None` is what this run could not measure, such as the time of a transfer
    /// that did not complete.
    pub metrics: Ordered<Option<f64>>,
}

impl Record {
    /// The record as one line of JSON, without its end.
    pub fn line(&self) -> String {
        // Only maps with keys that are not texts fail, and there are none.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether both tell of the same outcome.
    pub fn agrees(&self, other: &Self) -> bool {
        self.trace == other.trace
            && self.completed == other.completed
            && self.metrics == other.metrics
    }
}
