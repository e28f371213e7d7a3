use lasthop_units::Seed;
use rayon::prelude::*;
use thiserror::Error;

use super::cell::{Cell, Label, once_each};
use crate::stats::{Estimate, Sample};

/// What runs a cell; a simulation, or a stand-in of one in tests.
pub trait CellRunner<C>: Sync {
    /// Runs `cell` once and returns what it measured, in the cell's unit. Everything random comes
    /// from `seed`; `run` only says which of the cell's runs this is.
    ///
    /// # Errors
    /// If the run did not come to its end, or the cell cannot be run at all.
    fn run(&self, cell: &Cell<C>, run: u32, seed: Seed) -> Result<f64, Failure>;

    /// The course of the run that [`CellRunner::run`] measures with the same arguments, for a
    /// figure; none where it is not recorded.
    fn course(&self, cell: &Cell<C>, run: u32, seed: Seed) -> Option<Course> {
        let _ = (cell, run, seed);
        None
    }
}

/// The course of one run.
#[derive(Clone, Debug, Default)]
pub struct Course {
    /// The sender's congestion window (SRP's: its window), in seconds and bytes.
    pub cwnd: Vec<(f64, f64)>,
    /// The highest byte that was sent, in seconds and bytes.
    pub sent: Vec<(f64, f64)>,
    /// The bytes that the receiving application has, in seconds and bytes.
    pub delivered: Vec<(f64, f64)>,
    /// The handoff pauses, from and to, in seconds.
    pub pauses: Vec<(f64, f64)>,
}

/// Why a run gave no value.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Failure {
    /// The run was still incomplete when its simulated time was over, or its connection broke.
    #[error("incomplete: {0}")]
    Incomplete(String),
    /// The cell cannot be run; no other run of it is going to fare better.
    #[error("cannot be run: {0}")]
    Unavailable(String),
}

/// Hears how far the runs have come, from any thread.
pub trait Progress: Sync {
    /// So many runs are to be done.
    fn begin(&self, runs: u64);
    /// One of them is done.
    fn done(&self);
}

/// Tells nobody.
impl Progress for () {
    fn begin(&self, _: u64) {}
    fn done(&self) {}
}

/// A cell after its runs.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Where it stands.
    pub label: Label,
    /// The unit of its values.
    pub unit: &'static str,
    /// What the paper prints there.
    pub published: Option<Estimate>,
    /// Whether it is compared with other schemes in the same row and column.
    pub compared: bool,
    /// What our runs gave.
    pub ours: Sample,
    /// The reasons of runs without a value, each once, in the order of the runs.
    pub reasons: Vec<String>,
}

impl Measured {
    /// What all runs together gave; none if one of them failed.
    pub fn whole(&self) -> Option<Estimate> {
        self.ours.estimate().filter(|_| self.ours.failures() == 0)
    }
}

/// Runs each cell `runs` times, on the threads of the current rayon pool.
///
/// A run's seed follows from `seed`, the cell's labels and the number of the run alone: a choice of
/// cells, another order or number of threads change no value, and more runs begin with the same ones.
/// Cells are independent of each other, as the intervals of ratios assume.
pub fn run_cells<C: Sync>(
    cells: &[Cell<C>],
    runner: &dyn CellRunner<C>,
    runs: u32,
    seed: Seed,
    progress: &dyn Progress,
) -> Vec<Measured> {
    progress.begin(cells.len() as u64 * u64::from(runs));
    cells
        .par_iter()
        .map(|cell| {
            let results = (0..runs)
                .into_par_iter()
                .map(|run| {
                    let result = runner.run(cell, run, seed_of(seed, &cell.label, run));
                    progress.done();
                    result
                })
                .collect();
            measured(cell, results)
        })
        .collect()
}

/// The seed of one run of the cell at `label`.
pub fn seed_of(seed: Seed, label: &Label, run: u32) -> Seed {
    seed.child(&format!("{label}/{run}"))
}

fn measured<C>(cell: &Cell<C>, results: Vec<Result<f64, Failure>>) -> Measured {
    let (ours, reasons) = gathered(results);
    Measured {
        label: cell.label.clone(),
        unit: cell.unit,
        published: cell.published,
        compared: cell.compared,
        ours,
        reasons,
    }
}

/// What runs gave, and the reasons of those without a value, each once.
pub(super) fn gathered(
    results: impl IntoIterator<Item = Result<f64, Failure>>,
) -> (Sample, Vec<String>) {
    let (mut ours, mut reasons) = (Sample::default(), Vec::new());
    for result in results {
        match result {
            Ok(value) => ours.push(value),
            Err(failure) => {
                ours.fail();
                reasons.push(failure.to_string());
            }
        }
    }
    (ours, once_each(reasons))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    struct Dice;

    impl CellRunner<f64> for Dice {
        fn run(&self, cell: &Cell<f64>, run: u32, seed: Seed) -> Result<f64, Failure> {
            match run {
                2 => Err(Failure::Incomplete("time is over".to_owned())),
                _ => Ok(cell.case + seed.stream("dice").uniform()),
            }
        }
    }

    #[derive(Default)]
    struct Count(AtomicU64, AtomicU64);

    impl Progress for Count {
        fn begin(&self, runs: u64) {
            self.0.store(runs, Ordering::Relaxed);
        }
        fn done(&self) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn cells() -> Vec<Cell<f64>> {
        let cell = |i| Cell::ours(["table1", "0 s", &format!("{i} %"), "tcp"], "s", f64::from(i));
        (0..5).map(cell).collect()
    }

    #[test]
    fn threads_choices_and_more_runs_change_no_value() {
        let run = |cells: &[Cell<f64>], threads: usize, runs: u32| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| run_cells(cells, &Dice, runs, Seed::from_u64(1), &()))
        };
        let cells = cells();
        let one = run(&cells, 1, 6);
        let four = run(&cells, 4, 6);
        let alone = run(&cells[3..4], 2, 9);
        assert!(one.iter().zip(&four).all(|(a, b)| a.ours == b.ours && a.label == b.label));
        assert_eq!(one[3].ours.values(), &alone[0].ours.values()[..5]);
        assert_ne!(one[0].ours.values()[0] + 1.0, one[1].ours.values()[0]);
    }

    /// MET-13: a run that did not end is counted, and its reason kept.
    #[test]
    fn incomplete_runs_are_counted_with_their_reason() {
        let count = Count::default();
        let measured = run_cells(&cells(), &Dice, 4, Seed::from_u64(1), &count);
        assert_eq!((measured[0].ours.runs(), measured[0].ours.failures()), (4, 1));
        assert_eq!(measured[0].reasons, ["incomplete: time is over"]);
        assert_eq!(count.0.into_inner(), 20);
        assert_eq!(count.1.into_inner(), 20);
    }
}
