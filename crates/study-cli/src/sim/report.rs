//! What `lasthop sim` prints.

use std::collections::HashSet;
use std::fmt::Write;

use lasthop_scenario::{Point, Study};
use lasthop_study::results::Record;
use lasthop_study::run::{Finished, MetricSummary, PointSummary};
use serde_json::{Map, Value, json};

/// The points of a sweep: hash and parameters.
pub(super) fn points(study: &Study) -> String {
    let line = |point: &Point| format!("{} {}\n", point.hash(), point.label());
    study.points().iter().map(line).collect()
}

/// One object for each point.
pub(super) fn json(points: &[PointSummary]) -> String {
    points.iter().map(|point| format!("{}\n", object(point))).collect()
}

fn object(point: &PointSummary) -> Value {
    let parameters: Map<String, Value> =
        point.parameters.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
    let metrics: Map<String, Value> =
        point.metrics.iter().map(|metric| (metric.name.clone(), estimate(metric))).collect();
    json!({
        "point": point.point,
        "parameters": parameters,
        "runs": point.runs,
        "incomplete": point.incomplete,
        "metrics": metrics,
    })
}

fn estimate(metric: &MetricSummary) -> Value {
    let interval = metric.estimate.and_then(|e| e.interval());
    json!({
        "mean": metric.estimate.map(|e| e.mean),
        "lo": interval.map(|i| i.lo),
        "hi": interval.map(|i| i.hi),
        "runs": metric.estimate.map_or(0, |e| e.n),
        "failures": metric.failures,
    })
}

/// One object for each run, in the order of points and seeds.
pub(super) fn runs(study: &Study, finished: &Finished) -> String {
    let mut text = String::new();
    for record in in_order(study, finished) {
        text.push_str(&record.line());
        text.push('\n');
    }
    text
}

/// The trace hash of each run.
pub(super) fn traces(study: &Study, finished: &Finished) -> String {
    let mut text = String::new();
    for record in in_order(study, finished) {
        // Writing to a string cannot fail.
        _ = writeln!(text, "{} {} {}", record.trace, record.point, record.seed);
    }
    text
}

fn in_order<'a>(study: &'a Study, finished: &'a Finished) -> impl Iterator<Item = &'a Record> {
    let mut seen = HashSet::new();
    let hashes = study.points().iter().map(Point::hash).filter(move |hash| seen.insert(*hash));
    hashes.flat_map(|hash| finished.records.range((hash, 0)..=(hash, u64::MAX)).map(|(_, r)| r))
}

/// A table for people: each point with its metrics below it.
pub(super) fn table(points: &[PointSummary]) -> String {
    let width = points.iter().flat_map(|p| &p.metrics).map(|m| m.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for point in points {
        let label: Vec<String> =
            point.parameters.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let label = if label.is_empty() { "-".to_string() } else { label.join(" ") };
        let incomplete = match point.incomplete {
            0 => String::new(),
            n => format!(", {n} incomplete"),
        };
        _ = writeln!(text, "{label}  ({} runs{incomplete})", point.runs);
        for metric in &point.metrics {
            let name = &metric.name;
            _ = writeln!(text, "  {name:<width$}  {}", value(metric));
        }
    }
    text
}

fn value(metric: &MetricSummary) -> String {
    let mut text = match metric.estimate {
        None => format!("{:>12}", "-"),
        Some(estimate) => match estimate.interval() {
            None => format!("{:>12}", number(estimate.mean)),
            Some(i) => {
                format!("{:>12}  [{}, {}]", number(estimate.mean), number(i.lo), number(i.hi))
            }
        },
    };
    if metric.failures > 0 {
        _ = write!(text, "  {} without", metric.failures);
    }
    text
}

/// Four significant digits, and all of those before the point.
fn number(x: f64) -> String {
    let digits = if x == 0.0 { 0 } else { x.abs().log10().floor() as i32 };
    let places = usize::try_from(3 - digits).unwrap_or(0).min(9);
    format!("{x:.places$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_digits_that_count() {
        let texts = [0.0, 21.7, 86_315.4, 0.000_123_45, -3.25].map(number);
        assert_eq!(texts, ["0.000", "21.70", "86315", "0.0001234", "-3.250"].map(str::to_string));
    }
}
