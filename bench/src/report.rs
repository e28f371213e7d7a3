//! Rows of figures: a table for people, or one JSON object a line.

use std::io::Write;

use lasthop_units::one_line;
use serde_json::{Map, Value, json};

/// One measured cell.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    figure: &'static str,
    peer: String,
    cell: String,
    values: Vec<(&'static str, Value)>,
    claims: Vec<(String, bool)>,
    note: Option<String>,
}

impl Row {
    /// An empty row of `figure` for a peer under a condition.
    pub(crate) fn new(figure: &'static str, peer: impl ToString, cell: impl ToString) -> Self {
        Row {
            figure,
            peer: peer.to_string(),
            cell: cell.to_string(),
            values: Vec::new(),
            claims: Vec::new(),
            note: None,
        }
    }

    /// The row of what could not be measured at all, which is a missed claim if it `matters`.
    pub(crate) fn failed(
        figure: &'static str,
        peer: impl ToString,
        cell: impl ToString,
        error: &anyhow::Error,
        matters: bool,
    ) -> Self {
        let row = Self::new(figure, peer, cell).note(one_line(error.as_ref()));
        row.claim_if(matters, "measured at all", false)
    }

    /// Adds whether every byte was right, which is claimed of everybody, under this name.
    pub(crate) fn every_byte(self, name: &'static str, right: bool) -> Self {
        self.value(name, right).claim("every byte right", right)
    }

    /// Adds a number, rounded to what it is worth; a missing one is `null`.
    pub(crate) fn number(mut self, name: &'static str, value: impl Into<Option<f64>>) -> Self {
        let value = value.into().filter(|v| v.is_finite());
        self.values.push((name, json!(value.map(significant))));
        self
    }

    /// Adds anything else.
    pub(crate) fn value(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.values.push((name, value.into()));
        self
    }

    /// Adds a claim, and whether it was met.
    pub(crate) fn claim(mut self, claim: impl Into<String>, met: bool) -> Self {
        self.claims.push((claim.into(), met));
        self
    }

    /// Adds a claim that only holds for some rows.
    pub(crate) fn claim_if(self, applies: bool, claim: impl Into<String>, met: bool) -> Self {
        if applies { self.claim(claim, met) } else { self }
    }

    /// Says why there is nothing to see.
    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    /// Claims that were not met.
    pub(crate) fn missed(&self) -> impl Iterator<Item = &str> {
        self.claims.iter().filter(|(_, met)| !met).map(|(claim, _)| claim.as_str())
    }

    fn json(&self) -> Value {
        let mut object = Map::new();
        object.insert("figure".into(), json!(self.figure));
        object.insert("peer".into(), json!(self.peer));
        object.insert("cell".into(), json!(self.cell));
        for (name, value) in &self.values {
            object.insert((*name).into(), value.clone());
        }
        if !self.claims.is_empty() {
            object.insert("met".into(), json!(self.claims.iter().all(|(_, met)| *met)));
            object.insert("missed".into(), self.missed().collect());
        }
        if let Some(note) = &self.note {
            object.insert("note".into(), json!(note));
        }
        Value::Object(object)
    }

    fn verdict(&self) -> String {
        if let Some(note) = &self.note {
            return note.clone();
        }
        match (self.claims.is_empty(), self.missed().collect::<Vec<_>>()) {
            (true, _) => String::new(),
            (false, missed) if missed.is_empty() => "ok".into(),
            (false, missed) => format!("MISSED {}", missed.join(", ")),
        }
    }
}

/// Where rows go.
#[derive(Debug)]
pub(crate) struct Report {
    json: bool,
    heading: Vec<&'static str>,
    missed: usize,
}

impl Report {
    /// A report on standard output.
    pub(crate) fn new(json: bool) -> Self {
        Report { json, heading: Vec::new(), missed: 0 }
    }

    /// Shows a row as soon as there is one.
    pub(crate) fn row(&mut self, row: &Row) {
        self.missed += row.missed().count();
        let text = if self.json { row.json().to_string() } else { self.line(row) };
        let mut out = std::io::stdout().lock();
        // Nobody is left to tell if standard output is gone.
        let _ = writeln!(out, "{text}").and_then(|()| out.flush());
    }

    /// How many claims were missed so far.
    pub(crate) fn missed(&self) -> usize {
        self.missed
    }

    fn line(&mut self, row: &Row) -> String {
        let names: Vec<_> = row.values.iter().map(|(name, _)| *name).collect();
        let mut text = String::new();
        if names != self.heading && !names.is_empty() {
            let head: String = names.iter().map(|name| format!(" {name:>14}")).collect();
            text = format!("\n{:<8} {:<17} {:<14}{head}\n", row.figure, "peer", "cell");
            self.heading = names;
        }
        let values: String = row.values.iter().map(|(_, v)| format!(" {:>14}", shown(v))).collect();
        let line = format!(
            "{:<8} {:<17} {:<14}{values}  {}",
            row.figure,
            row.peer,
            row.cell,
            row.verdict()
        );
        text + line.trim_end()
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Four digits, which is more than any of these figures is worth.
fn significant(value: f64) -> f64 {
    if value == 0.0 {
        return 0.0;
    }
    let digits = 3 - value.abs().log10().floor() as i32;
    let scale = 10_f64.powi(digits);
    if digits >= 0 { (value * scale).round() / scale } else { value.round() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        Row::new("loss", "srp", "loss-5")
            .number("share", 0.970_12)
            .number("rate", None)
            .value("sha256_ok", true)
    }

    #[test]
    fn a_row_is_one_json_object() {
        let text = row().claim("share >= 0.96", true).json().to_string();
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["peer"], "srp");
        assert_eq!(read["share"], 0.9701);
        assert_eq!(read["rate"], Value::Null);
        assert_eq!(read["met"], true);
        assert!(!text.contains('\n'));
    }

    #[test]
    fn a_missed_claim_is_counted_and_named() {
        let mut report = Report::new(false);
        let row = row().claim("share >= 0.99", false);
        assert!(report.line(&row).ends_with("MISSED share >= 0.99"));
        report.row(&row);
        assert_eq!(report.missed(), 1);
    }

    #[test]
    fn a_heading_is_printed_once_for_rows_alike() {
        let mut report = Report::new(false);
        assert!(report.line(&row()).contains("sha256_ok"));
        assert!(!report.line(&row()).contains("sha256_ok"));
    }

    #[test]
    fn numbers_keep_four_digits() {
        assert_eq!(significant(1234.56), 1235.0);
        assert_eq!(significant(123_456.0), 123_456.0);
        assert_eq!(significant(0.001_234_56), 0.001_235);
        assert_eq!(significant(0.0), 0.0);
    }
}
