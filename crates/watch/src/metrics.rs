//! What monitoring systems read: a process's report in the text format of OpenMetrics.
//!
//! Each metric is one line of a table: its name, kind, unit and help, and how it is read from a
//! report. What a process does not know is left out rather than shown as zero. Every label has a
//! bound on its values, so that no process can flood a monitoring system with series.

mod associations;
mod process;
mod programs;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use lasthop_control::Report;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use self::associations::Current;
pub use self::process::Process;
use self::programs::Programs;
use self::table::METRICS;

/// What kind of text [`Exporter::render`] makes.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A metric that a process can show.
#[derive(Debug)]
struct Metric {
    /// Its name without unit and suffix.
    name: &'static str,
    /// Its base unit, which is the end of its name.
    unit: Option<&'static str>,
    kind: MetricType,
    help: &'static str,
    read: fn(&View<'_>, &mut Samples),
}

/// Renders reports of one process, one after the other. It remembers what connections had carried,
/// so that the bytes of a program do not shrink when its connections end.
#[derive(Default, Debug)]
pub struct Exporter {
    programs: Programs,
}

impl Exporter {
    /// The metrics of a process; `process` is the system's data of it, if it is this one.
    pub fn render(&mut self, report: &Report, process: Option<&Process>) -> String {
        self.programs.handle_report(report);
        let current = associations::current(report);
        let view = View { report, process, current: &current, programs: &self.programs };
        let families = METRICS.iter().filter_map(|metric| Family::read(metric, &view)).collect();
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Families(families)));
        let mut text = String::new();
        // A string takes everything; and what is incomplete has no end, which is an error to who
        // reads it.
        let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
        text
    }
}

/// Where metrics are read from.
struct View<'a> {
    report: &'a Report,
    process: Option<&'a Process>,
    current: &'a [Current<'a>],
    programs: &'a Programs,
}

/// The labels of a sample.
type Labels = Vec<(&'static str, String)>;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Value {
    Whole(u64),
    Real(f64),
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Whole(value.into())
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

/// The values of one metric, each set of labels once: a process that tells of something twice must
/// not make the whole text invalid.
#[derive(Default, Debug)]
struct Samples(BTreeMap<Labels, Value>);

impl Samples {
    /// Adds a value, unless it is unknown.
    fn add(&mut self, labels: Labels, value: Option<impl Into<Value>>) {
        match value.map(Into::into) {
            None => {}
            Some(Value::Real(x)) if !x.is_finite() => {}
            Some(value) => {
                self.0.entry(labels).or_insert(value);
            }
        }
    }

    /// The value of a metric that has no labels.
    fn only(&mut self, value: Option<impl Into<Value>>) {
        self.add(Labels::new(), value);
    }

    /// Which of `states` it is: 1 for that one and 0 for the others.
    fn states(&mut self, labels: &Labels, states: &[&str], state: &str) {
        for known in states {
            let labels = [&labels[..], &[("state", (*known).to_owned())]].concat();
            self.add(labels, Some(*known == state));
        }
    }
}

/// A metric with its values.
#[derive(Debug)]
struct Family {
    metric: &'static Metric,
    samples: Samples,
}

impl Family {
    /// Nothing, if the process does not know it.
    fn read(metric: &'static Metric, view: &View<'_>) -> Option<Self> {
        let mut samples = Samples::default();
        (metric.read)(view, &mut samples);
        (!samples.0.is_empty()).then_some(Self { metric, samples })
    }

    fn encode(&self, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let metric = self.metric;
        let unit = metric.unit.map(|unit| Unit::Other(unit.to_owned()));
        let mut to = to.encode_descriptor(metric.name, metric.help, unit.as_ref(), metric.kind)?;
        for (labels, value) in &self.samples.0 {
            match metric.kind {
                MetricType::Info => to.encode_info(labels)?,
                // An empty set of labels is written without braces.
                _ if labels.is_empty() => put(&mut to, metric.kind, *value)?,
                _ => put(&mut to.encode_family(labels)?, metric.kind, *value)?,
            }
        }
        Ok(())
    }
}

fn put(to: &mut MetricEncoder<'_>, kind: MetricType, value: Value) -> fmt::Result {
    use prometheus_client::encoding::NoLabelSet;
    match (kind, value) {
        (MetricType::Counter, Value::Whole(n)) => to.encode_counter::<NoLabelSet, _, u64>(&n, None),
        (MetricType::Counter, Value::Real(x)) => to.encode_counter::<NoLabelSet, _, u64>(&x, None),
        (_, Value::Whole(n)) => to.encode_gauge(&n),
        (_, Value::Real(x)) => to.encode_gauge(&x),
    }
}

#[derive(Debug)]
struct Families(Vec<Family>);

impl Collector for Families {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|family| family.encode(&mut to))
    }
}
