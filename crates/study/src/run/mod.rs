//! Running a sweep: every point with every seed, on all cores, each run only once.

mod summary;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use lasthop_scenario::{Engine, Ordered, Outputs, PointHash, RunError, ScenarioError, Study};
use lasthop_units::Seed;
use rayon::prelude::*;
use thiserror::Error;

use crate::results::{Record, Results, ResultsError};

pub use crate::shard::{Shard, ShardError};
pub use summary::{MetricSummary, PointSummary, summarise};

/// Why a sweep ended before its time.
#[derive(Debug, Error)]
pub enum SweepError {
    /// A run failed.
    #[error("seed {seed} of {point}: {source}")]
    Run {
        /// The point's parameters.
        point: String,
        /// The run's seed.
        seed: u64,
        /// Why.
        source: RunError,
    },
    /// A scenario could not be drawn.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// A result could not be kept.
    #[error(transparent)]
    Results(#[from] ResultsError),
    /// The threads could not be started.
    #[error("cannot start {jobs} threads: {message}")]
    Threads {
        /// How many.
        jobs: usize,
        /// The system's error.
        message: String,
    },
}

/// How a sweep is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Runs of each point.
    pub runs: u64,
    /// The seed of each point's first run; that of run n is greater by n.
    pub seed: u64,
    /// Which part of the runs is done here.
    pub shard: Shard,
    /// How many at once; all cores if `None`.
    pub jobs: Option<usize>,
    /// The commit of this program, for the records.
    pub commit: String,
}

/// One run to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Job {
    /// Which of the study's points.
    pub point: usize,
    /// Which run of it.
    pub run: u64,
    /// Its seed.
    pub seed: u64,
}

/// The runs of a shard, in the order of points and seeds. All points share their seeds, so that two
/// points differ by what they set and not by luck.
pub fn jobs(study: &Study, options: &Options) -> Vec<Job> {
    let mut seen: HashSet<(PointHash, u64)> = HashSet::new();
    let mut jobs = Vec::new();
    for (point, described) in study.points().iter().enumerate() {
        for run in 0..options.runs {
            let number = (point as u64).wrapping_mul(options.runs).wrapping_add(run);
            let seed = options.seed.wrapping_add(run);
            // Two descriptions of one point are one in every shard.
            if seen.insert((described.hash(), seed)) && options.shard.has(number) {
                jobs.push(Job { point, run, seed });
            }
        }
    }
    jobs
}

/// The results of a shard's runs.
#[derive(Debug, Default)]
pub struct Finished {
    /// By point and seed, those that were there before included.
    pub records: BTreeMap<(PointHash, u64), Record>,
    /// Runs that are still missing, since `stop` came first.
    pub missing: usize,
}

/// Does the runs that `results` lacks. `done` hears of each run that ends, those that need not be
/// done included. Returns early, with what is finished, once `stop` is set.
///
/// # Errors
///
/// The first run that failed; what finished before is kept.
pub fn sweep(
    study: &Study,
    engine: &dyn Engine,
    options: &Options,
    results: Option<&Results>,
    stop: &AtomicBool,
    done: &(dyn Fn(&Record) + Sync),
) -> Result<Finished, SweepError> {
    let jobs = jobs(study, options);
    check(study, engine, &jobs)?;
    let mut finished = Finished::default();
    let mut missing = Vec::new();
    for job in jobs {
        let point = study.points()[job.point].hash();
        match results.and_then(|r| r.get(point, job.seed)) {
            Some(record) => {
                let parameters = Ordered(study.points()[job.point].parameters().to_vec());
                // Another sweep may have counted and described it in its own way.
                let record = Record { run: job.run, parameters, ..record.clone() };
                done(&record);
                finished.records.insert((point, job.seed), record);
            }
            None => missing.push(job),
        }
    }
    let writer = Mutex::new(results.map(|r| r.writer(options.shard)));
    let failed = AtomicBool::new(false);
    let context = Context { study, engine, options, results, stop };
    let one = |job: &Job| -> Result<Option<Record>, SweepError> {
        if failed.load(Ordering::Relaxed) || stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let record = context.run(*job).inspect_err(|_| failed.store(true, Ordering::Relaxed))?;
        if let Some(record) = &record {
            if let Some(writer) = &mut *writer.lock().unwrap_or_else(PoisonError::into_inner) {
                writer.append(record).inspect_err(|_| failed.store(true, Ordering::Relaxed))?;
            }
            done(record);
        }
        Ok(record)
    };
    let threads = options.jobs.unwrap_or(0);
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .map_err(|e| SweepError::Threads { jobs: threads, message: e.to_string() })?;
    let records: Vec<Result<Option<Record>, SweepError>> =
        pool.install(|| missing.par_iter().with_max_len(1).map(one).collect());
    for record in records {
        match record? {
            Some(record) => _ = finished.records.insert((record.point, record.seed), record),
            None => finished.missing += 1,
        }
    }
    Ok(finished)
}

/// Asks the engine about every point before any of them runs.
fn check(study: &Study, engine: &dyn Engine, jobs: &[Job]) -> Result<(), SweepError> {
    let mut last = None;
    for job in jobs {
        if last.replace(job.point) == Some(job.point) {
            continue;
        }
        let point = &study.points()[job.point];
        let scenario = study.scenario(point, Seed::from_u64(job.seed))?;
        engine.check(&scenario).map_err(|source| SweepError::Run {
            point: point.label(),
            seed: job.seed,
            source,
        })?;
    }
    Ok(())
}

struct Context<'a> {
    study: &'a Study,
    engine: &'a dyn Engine,
    options: &'a Options,
    results: Option<&'a Results>,
    stop: &'a AtomicBool,
}

impl Context<'_> {
    /// Does one run; `None` if it was stopped.
    fn run(&self, job: Job) -> Result<Option<Record>, SweepError> {
        let point = &self.study.points()[job.point];
        let seed = Seed::from_u64(job.seed);
        let scenario = self.study.scenario(point, seed)?;
        let outputs =
            Outputs { directory: self.directory(point.hash(), job.seed), stop: self.stop };
        let outcome = match self.engine.run(&scenario, seed, &outputs) {
            Ok(outcome) => outcome,
            Err(RunError::Stopped) => return Ok(None),
            Err(source) => {
                let point = point.label();
                return Err(SweepError::Run { point, seed: job.seed, source });
            }
        };
        let metric = |(name, value): (String, f64)| (name, value.is_finite().then_some(value));
        Ok(Some(Record {
            point: point.hash(),
            run: job.run,
            seed: job.seed,
            commit: self.options.commit.clone(),
            parameters: Ordered(point.parameters().to_vec()),
            drawn: Ordered(self.study.drawn(point, seed)),
            completed: outcome.completed,
            trace: format!("{:016x}", outcome.trace),
            metrics: Ordered(outcome.metrics.into_iter().map(metric).collect()),
        }))
    }

    fn directory(&self, point: PointHash, seed: u64) -> Option<PathBuf> {
        let runs = self.results?.directory().join("runs");
        Some(runs.join(point.to_string()).join(seed.to_string()))
    }
}
