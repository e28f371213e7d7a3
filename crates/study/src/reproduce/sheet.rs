//! Scenario files that stand beside a paper: their points as scenarios, and what runs of them give.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lasthop_engine::Simulator;
use lasthop_scenario::{
    End, Engine, Outcome, Outputs, Point, RunError, Scenario, ScenarioError, Study,
};
use lasthop_units::{Duration, Seed};

use super::{Failure, ReproduceError};

/// A scenario file, as the repository has it.
#[derive(Clone, Copy, Debug)]
pub struct Sheet {
    /// Where it is.
    pub path: &'static str,
    /// What is in it.
    pub text: &'static str,
}

/// The scenario file of a name in a folder of `papers`.
macro_rules! sheet {
    ($folder:literal, $name:literal) => {
        $crate::reproduce::sheet::Sheet {
            path: concat!("papers/", $folder, "/", $name),
            text: $crate::reproduce::study::beside!($folder, "/", $name),
        }
    };
}
pub(super) use sheet;

/// What the sweep of a scenario file sets at a point.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings(Vec<(String, String)>);

impl Settings {
    /// The label on this axis; empty where there is none.
    pub fn at(&self, axis: &str) -> &str {
        let found = self.0.iter().find(|(name, _)| name == axis);
        found.map_or("", |(_, label)| label.as_str())
    }
}

/// A point of a sweep: what is set there, and the scenario.
pub type SheetPoint = (Settings, Arc<Scenario>);

/// A point whose file has values that each run draws from its seed.
#[derive(Clone, Debug)]
pub struct Drawn {
    study: Arc<Study>,
    point: usize,
}

impl Drawn {
    /// The scenario of a run with this seed.
    ///
    /// # Errors
    ///
    /// A value that was drawn does not go with the others, though both ends of its range do.
    pub fn scenario(&self, seed: Seed) -> Result<Arc<Scenario>, ScenarioError> {
        self.study.scenario(&self.study.points()[self.point], seed)
    }
}

impl Sheet {
    /// Each point of the sweep with its scenario. Values that a file has drawn at random are those of
    /// seed 0 in every run; what the engine itself draws follows from the run's seed.
    ///
    /// # Errors
    ///
    /// None, as long as the file is as its tests saw it.
    pub fn points(&self) -> Result<Vec<SheetPoint>, ReproduceError> {
        let point = |(settings, drawn): (Settings, Drawn)| {
            Ok((settings, drawn.scenario(Seed::from_u64(0))?))
        };
        self.drawn()?.into_iter().map(point).collect()
    }

    /// Each point of the sweep, whose random values each run draws.
    ///
    /// # Errors
    ///
    /// None, as long as the file is as its tests saw it.
    pub fn drawn(&self) -> Result<Vec<(Settings, Drawn)>, ReproduceError> {
        let study = Arc::new(Study::parse(Path::new(self.path), self.text)?);
        let points = study.points().iter().enumerate();
        let point = |(point, of): (usize, &Point)| {
            (Settings(of.parameters().to_vec()), Drawn { study: Arc::clone(&study), point })
        };
        Ok(points.map(point).collect())
    }

    /// The scenario at the point, of these of the file, where the axes have these labels.
    ///
    /// # Errors
    ///
    /// There is no such point.
    pub fn find<const N: usize>(
        &self,
        points: &[SheetPoint],
        labels: [(&str, &str); N],
    ) -> Result<Arc<Scenario>, ReproduceError> {
        let is_it = |settings: &Settings| labels.iter().all(|(axis, at)| settings.at(axis) == *at);
        let found = points.iter().find(|(settings, _)| is_it(settings));
        found.map(|(_, scenario)| Arc::clone(scenario)).ok_or_else(|| {
            let labels = labels.map(|(_, label)| label).join(", ");
            ReproduceError::Beside(format!("{}: there is no point {labels}", self.path))
        })
    }
}

/// What a cell takes from runs of scenarios.
#[derive(Clone, Debug)]
pub enum Case {
    /// A metric.
    Metric {
        /// What is run.
        scenario: Arc<Scenario>,
        /// The metric's name.
        name: String,
        /// What it is multiplied by for the cell's unit.
        scale: f64,
    },
    /// How much more a metric is in one scenario than in another with the same luck, in per cent.
    Change {
        /// The scenario that it is a change from.
        from: Arc<Scenario>,
        /// And to.
        to: Arc<Scenario>,
        /// The metric's name.
        name: String,
    },
}

impl Case {
    /// A metric of a scenario, times `scale`.
    pub fn metric(scenario: &Arc<Scenario>, name: impl Into<String>, scale: f64) -> Self {
        Self::Metric { scenario: Arc::clone(scenario), name: name.into(), scale }
    }

    /// The value, where `metric` runs a scenario and takes the metric of a name from it.
    ///
    /// # Errors
    ///
    /// As `metric`.
    pub fn value(
        &self,
        metric: impl Fn(&Scenario, &str) -> Result<f64, Failure>,
    ) -> Result<f64, Failure> {
        match self {
            Self::Metric { scenario, name, scale } => Ok(metric(scenario, name)? * scale),
            Self::Change { from, to, name } => {
                let [from, to] = [from, to].map(|scenario| metric(scenario, name));
                Ok(100.0 * (to? / from? - 1.0))
            }
        }
    }
}

/// Has a scenario be over after `length`, for a first look: rates count from its middle on at the
/// latest. One that is over by then stays as it is.
pub fn shorten(scenario: &mut Scenario, length: Duration) {
    if length < scenario.end.latest() {
        scenario.end = End::After(length);
        scenario.measure.from = scenario.measure.from.min(length / 2);
    }
}

/// Runs a scenario once.
///
/// # Errors
///
/// The engine cannot run it, or it broke down.
pub fn outcome(scenario: &Scenario, seed: Seed) -> Result<Outcome, Failure> {
    let stop = AtomicBool::new(false);
    Simulator.run(scenario, seed, &Outputs { directory: None, stop: &stop }).map_err(failure)
}

/// A metric of a run, such as `download.goodput_bps`.
///
/// # Errors
///
/// There is none of that name, or the run could not measure it.
pub fn metric(outcome: &Outcome, name: &str) -> Result<f64, Failure> {
    let found = outcome.metrics.iter().find(|(metric, _)| metric == name);
    match found {
        Some((_, value)) if value.is_finite() => Ok(*value),
        Some(_) => Err(Failure::Incomplete(format!("`{name}` could not be measured"))),
        None => Err(Failure::Unavailable(format!("there is no metric `{name}`"))),
    }
}

/// Runs a scenario once, and reads a file that the run leaves behind, such as `rates.csv`.
///
/// # Errors
///
/// The engine cannot run it, or there is no such file.
pub fn recorded(scenario: &Scenario, seed: Seed, file: &str) -> Result<String, Failure> {
    let failed = |e: std::io::Error| Failure::Unavailable(format!("{file}: {e}"));
    let directory = tempfile::tempdir().map_err(failed)?;
    let stop = AtomicBool::new(false);
    let outputs = Outputs { directory: Some(directory.path().to_owned()), stop: &stop };
    Simulator.run(scenario, seed, &outputs).map_err(failure)?;
    fs::read_to_string(directory.path().join(file)).map_err(failed)
}

/// A variable of a `series.csv`: its seconds and values, in order of time. There must be one flow.
pub fn series(table: &str, variable: &str) -> Vec<(f64, f64)> {
    let value = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        match fields[..] {
            [at, _, of, value] if of == variable => Some((at.parse().ok()?, value.parse().ok()?)),
            _ => None,
        }
    };
    table.lines().filter_map(value).collect()
}

fn failure(error: RunError) -> Failure {
    Failure::Unavailable(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHEET: Sheet = Sheet {
        path: "papers/none/upload.toml",
        text: r#"
duration = "2s"
[node]
server = "fixed-host"
phone = "mobile-host"
[link.radio]
between = ["server", "phone"]
rate = "1Mbit/s"
[flow.upload]
from = "phone"
to = "server"
[measure]
bins = "500ms"
[sweep]
mss = [{ label = "small", tcp.mss = 500 }, { label = "large", tcp.mss = 1000 }]
"#,
    };

    #[test]
    fn points_have_their_labels_and_run() {
        let points = SHEET.points().unwrap();
        let labels: Vec<&str> = points.iter().map(|(settings, _)| settings.at("mss")).collect();
        assert_eq!(labels, ["small", "large"]);
        assert_eq!(points[0].0.at("rate"), "");
        let rate = |n: usize| {
            let outcome = outcome(&points[n].1, Seed::from_u64(1)).unwrap();
            metric(&outcome, "upload.goodput_bps").unwrap()
        };
        let rates = [rate(0), rate(1)];
        assert_ne!(rates[0], rates[1]);
        assert!(rates.iter().all(|rate| (0.2e6..1e6).contains(rate)), "{rates:?}");
    }

    /// LNK-15: what a file leaves to chance is each run's own, and that run's again.
    #[test]
    fn random_values_are_drawn_for_each_run() {
        let text = SHEET.text.to_owned()
            + "link.radio.delay = [\"1ms\", { uniform = [\"2ms\", \"9ms\"] }]\n";
        let sheet = Sheet { text: text.leak(), ..SHEET };
        let points = sheet.drawn().unwrap();
        let delay = |n: usize, seed| {
            points[n].1.scenario(Seed::from_u64(seed)).unwrap().links[0].radio.up.delay
        };
        assert_eq!(points.len(), 4);
        assert_eq!(points[3].0.at("mss"), "large");
        assert_eq!([delay(0, 1), delay(2, 2)], [Duration::from_millis(1); 2]);
        assert_eq!(delay(1, 1), delay(3, 1));
        assert_ne!(delay(1, 1), delay(1, 2));
    }

    #[test]
    fn a_variable_is_taken_from_a_table() {
        let table = "time_s,flow,variable,value\n0.5,download,cwnd_bytes,2000\n0.5,x\n\
                     0.5,download,srtt_s,0.25\n1000.1,download,srtt_s,0.5\n";
        assert_eq!(series(table, "srtt_s"), [(0.5, 0.25), (1000.1, 0.5)]);
        assert_eq!(series(table, "variable"), []);
        assert_eq!(series(table, "rto_s"), []);
    }

    #[test]
    fn a_shorter_run_counts_from_its_middle_on() {
        let mut scenario = Scenario::clone(&SHEET.points().unwrap()[0].1);
        scenario.measure.from = Duration::from_millis(1500);
        let whole = scenario.clone();
        shorten(&mut scenario, Duration::from_secs(2));
        assert_eq!(scenario, whole);
        shorten(&mut scenario, Duration::from_secs(1));
        assert_eq!(scenario.end.latest(), Duration::from_secs(1));
        assert_eq!(scenario.measure.from, Duration::from_millis(500));
    }

    #[test]
    fn what_was_not_measured_is_told() {
        let outcome =
            Outcome { metrics: vec![("upload.time_s".to_owned(), f64::NAN)], ..Outcome::default() };
        let told = |name: &str| metric(&outcome, name).unwrap_err();
        assert!(matches!(told("upload.time_s"), Failure::Incomplete(_)));
        assert!(told("upload.speed").to_string().contains("no metric `upload.speed`"));
    }

    #[test]
    fn a_run_leaves_its_files() {
        let (_, scenario) = &SHEET.points().unwrap()[0];
        let rates = recorded(scenario, Seed::from_u64(1), "rates.csv").unwrap();
        assert_eq!(rates.lines().count(), 5, "{rates}");
        assert!(recorded(scenario, Seed::from_u64(1), "capture.pcapng").is_err());
    }
}
