//! What a run leaves behind besides its metrics: captures, series and rates over time.

use std::cell::RefCell;
use std::fs::File;
use std::io::Write;
use std::rc::Rc;

use lasthop_scenario::{Capture, Measure, Outputs, RunError, Scenario};
use lasthop_sim::capture::{Capture as Recorded, CaptureError};
use lasthop_sim::measure::{Recorder, Sampling, Subject, Variable, write_series_csv};
use lasthop_sim::net::TapPoint;
use lasthop_units::{Duration, Time};

use super::network::Running;
use super::watch::Watch;

/// The most rows of one run's series.
const MOST_ROWS: usize = 10_000_000;

/// A capture that the network writes to.
type Shared = Rc<RefCell<Recorded<File>>>;

/// What is recorded of a run.
pub(super) struct Recording {
    capture: Option<Shared>,
    series: Option<Series>,
    /// The rates over time are to be kept.
    rates: bool,
}

struct Series {
    recorder: Recorder,
    flows: Vec<Subject>,
    links: Vec<[Subject; 2]>,
}

impl Recording {
    /// Begins to record what the scenario asks for, if there is a place for it.
    pub(super) fn new(
        scenario: &Scenario,
        running: &mut Running<'_>,
        outputs: &Outputs<'_>,
    ) -> Result<Self, RunError> {
        let kept = outputs.directory.is_some();
        let measure = &scenario.measure;
        Ok(Self {
            capture: capture(scenario, running, outputs)?,
            series: measure.series.filter(|_| kept).map(|every| Series::new(scenario, every)),
            rates: measure.bins.is_some() && kept,
        })
    }

    /// When the network must stop next for something to be read.
    pub(super) fn next(&self) -> Time {
        let series = self.series.as_ref().and_then(|s| s.recorder.next_timeout());
        series.unwrap_or(Time::NEVER)
    }

    /// Reads what is due.
    pub(super) fn sample(&mut self, now: Time, running: &mut Running<'_>) {
        if let Some(series) = &mut self.series
            && series.recorder.next_timeout().is_some_and(|at| at <= now)
        {
            series.sample(now, running);
        }
    }

    /// Writes the rates over time (MET-9).
    pub(super) fn rates(
        &self,
        now: Time,
        running: &Running<'_>,
        watch: &Watch,
        outputs: &Outputs<'_>,
    ) -> Result<(), RunError> {
        if !self.rates {
            return Ok(());
        }
        let Some(mut file) = outputs.create("rates.csv")? else { return Ok(()) };
        let mut text = "start_s,flow,goodput_bps\n".to_string();
        for (flow, series) in watch.rates().iter().enumerate() {
            for (start, rate) in series.bins(Time::ZERO, now) {
                let start = start.since(Time::ZERO).as_secs_f64();
                text.push_str(&format!("{start},{},{}\n", running.name(flow), rate.as_bps()));
            }
        }
        file.write_all(text.as_bytes()).map_err(|e| RunError::Failed(e.to_string()))
    }

    /// Writes the other files. The network must be gone, since it holds the capture too.
    pub(super) fn finish(self, outputs: &Outputs<'_>) -> Result<(), RunError> {
        let failed = |e: &dyn std::fmt::Display| RunError::Failed(e.to_string());
        if let Some(capture) = self.capture.and_then(Rc::into_inner) {
            capture.into_inner().finish().map_err(|e| failed(&e))?;
        }
        if let Some(series) = self.series
            && let Some(file) = outputs.create("series.csv")?
        {
            write_series_csv(&series.recorder, file).map_err(|e| failed(&e))?;
        }
        Ok(())
    }
}

fn capture(
    scenario: &Scenario,
    running: &mut Running<'_>,
    outputs: &Outputs<'_>,
) -> Result<Option<Shared>, RunError> {
    let Measure { captures, .. } = &scenario.measure;
    if captures.is_empty() {
        return Ok(None);
    }
    let Some(file) = outputs.create("capture.pcapng")? else { return Ok(None) };
    let failed = |e: CaptureError| RunError::Failed(e.to_string());
    let mut capture = Recorded::new(file, None).map_err(failed)?;
    let mut points = Vec::new();
    for point in captures {
        match *point {
            Capture::Node(node) => {
                let name = &scenario.node(node).name;
                points.push((TapPoint::Node(running.node(node)), name.clone()));
            }
            Capture::Link(link) => {
                let name = &scenario.link(link).name;
                let [there, back] = running.link(link);
                points.push((TapPoint::LinkOut(there), format!("{name}.forward")));
                points.push((TapPoint::LinkOut(back), format!("{name}.backward")));
            }
        }
    }
    for (point, name) in &points {
        capture.watch(*point, name, name).map_err(failed)?;
    }
    let capture = Rc::new(RefCell::new(capture));
    for (point, _) in points {
        running.tap(point, capture.clone());
    }
    Ok(Some(capture))
}

impl Series {
    fn new(scenario: &Scenario, every: Duration) -> Self {
        let sampling = Sampling { interval: Some(every), changes: false };
        let mut recorder = Recorder::new(sampling, MOST_ROWS);
        let flows = scenario.flows.iter().map(|f| recorder.add_subject(&f.name)).collect();
        let mut both = |name: &str| {
            ["forward", "backward"].map(|way| recorder.add_subject(format!("{name}.{way}")))
        };
        let links = scenario.links.iter().map(|l| both(&l.name)).collect();
        Self { recorder, flows, links }
    }

    fn sample(&mut self, now: Time, running: &mut Running<'_>) {
        for (flow, subject) in self.flows.iter().enumerate() {
            if let Some(probe) = running.probe(flow) {
                self.recorder.set_probe(now, *subject, &probe);
            } else if let Some(flight) = running.on_hop(flow) {
                self.recorder.set(now, *subject, Variable::Flight, flight.get() as f64);
            }
            let [written, received] = running.progress(flow);
            self.recorder.set(now, *subject, Variable::Written, written.get() as f64);
            self.recorder.set(now, *subject, Variable::Received, received.get() as f64);
        }
        for (link, subjects) in self.links.iter().enumerate() {
            for (subject, waiting) in subjects.iter().zip(running.queues(link)) {
                self.recorder.set_queue(now, *subject, waiting);
            }
        }
        self.recorder.handle_timeout(now);
    }
}
