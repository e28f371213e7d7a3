//! What the runs of a point say together.

use lasthop_scenario::{PointHash, Study};

use crate::stats::{Estimate, Sample};

use super::Finished;

/// One point over its runs.
#[derive(Clone, PartialEq, Debug)]
pub struct PointSummary {
    /// Which point.
    pub point: PointHash,
    /// What the sweep sets there.
    pub parameters: Vec<(String, String)>,
    /// Runs that are finished.
    pub runs: u64,
    /// Those in which a flow did not complete (MET-13).
    pub incomplete: u64,
    /// Each metric, in the order of the first run.
    pub metrics: Vec<MetricSummary>,
}

/// One metric over the runs of a point.
#[derive(Clone, PartialEq, Debug)]
pub struct MetricSummary {
    /// Its name.
    pub name: String,
    /// Mean and 95 % interval over the runs that have it; `None` if there are none (MET-1).
    pub estimate: Option<Estimate>,
    /// Runs that could not measure it; never averaged away (MET-13).
    pub failures: u32,
}

/// The summary of each point that has a finished run, in the order of the sweep.
pub fn summarise(study: &Study, finished: &Finished) -> Vec<PointSummary> {
    let mut summaries: Vec<PointSummary> = Vec::new();
    for point in study.points() {
        if summaries.iter().any(|s| s.point == point.hash()) {
            continue;
        }
        let range = (point.hash(), 0)..=(point.hash(), u64::MAX);
        let mut samples: Vec<(String, Sample)> = Vec::new();
        let (mut runs, mut incomplete) = (0, 0);
        for (_, record) in finished.records.range(range) {
            runs += 1;
            incomplete += u64::from(!record.completed);
            for (name, value) in &record.metrics.0 {
                let at = samples.iter().position(|(n, _)| n == name).unwrap_or_else(|| {
                    samples.push((name.clone(), Sample::default()));
                    samples.len() - 1
                });
                match value {
                    Some(value) => samples[at].1.push(*value),
                    None => samples[at].1.fail(),
                }
            }
        }
        if runs == 0 {
            continue;
        }
        let metric = |(name, sample): (String, Sample)| MetricSummary {
            name,
            estimate: sample.estimate(),
            failures: sample.failures(),
        };
        summaries.push(PointSummary {
            point: point.hash(),
            parameters: point.parameters().to_vec(),
            runs,
            incomplete,
            metrics: samples.into_iter().map(metric).collect(),
        });
    }
    summaries
}
