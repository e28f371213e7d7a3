//! A reproduction as text: tables for people, one object a line for programs.

use std::fmt::Write;

use serde::Serialize;

use super::compare::{Compared, Comparison, Criterion, Order};
use crate::stats::Estimate;

/// One cell as `--json` prints it. Values are null where nothing is published or measured.
#[derive(Serialize)]
struct Line<'a> {
    table: &'a str,
    row: &'a str,
    column: &'a str,
    scheme: &'a str,
    unit: &'a str,
    published: Option<f64>,
    published_lo: Option<f64>,
    published_hi: Option<f64>,
    ours: Option<f64>,
    ours_lo: Option<f64>,
    ours_hi: Option<f64>,
    /// All runs, failed ones included.
    runs: u32,
    failures: u32,
    mark: &'static str,
    /// Whether the order among the schemes in the same row and column is right.
    order: Option<&'static str>,
    /// Whether all ratios to them are close.
    ratio: Option<bool>,
}

/// Each cell as one JSON object a line.
///
/// # Errors
/// None that this data can cause; serialising is fallible by its type.
pub fn json_lines(comparison: &Comparison) -> Result<String, serde_json::Error> {
    let mut out = String::new();
    for compared in &comparison.cells {
        out.push_str(&serde_json::to_string(&line(compared))?);
        out.push('\n');
    }
    Ok(out)
}

fn line(compared: &Compared) -> Line<'_> {
    let cell = &compared.cell;
    let ends = |e: Option<Estimate>| e.and_then(|e| e.interval()).map(|i| (i.lo, i.hi)).unzip();
    let ours = cell.ours.estimate();
    let (published_lo, published_hi) = ends(cell.published);
    let (ours_lo, ours_hi) = ends(ours);
    Line {
        table: &cell.label.table,
        row: &cell.label.row,
        column: &cell.label.column,
        scheme: &cell.label.scheme,
        unit: cell.unit,
        published: cell.published.map(|e| e.mean),
        published_lo,
        published_hi,
        ours: ours.map(|e| e.mean),
        ours_lo,
        ours_hi,
        runs: cell.ours.runs(),
        failures: cell.ours.failures(),
        mark: compared.mark.name(),
        order: compared.order.map(order_name),
        ratio: compared.ratio,
    }
}

/// The word for an order.
pub fn order_name(order: Order) -> &'static str {
    match order {
        Order::Right => "right",
        Order::Undecided => "undecided",
        Order::Wrong => "wrong",
    }
}

/// How many digits after the point a value is told with: an index needs more than a time.
pub fn digits(value: f64) -> usize {
    if value.abs() < 2.0 { 3 } else { 1 }
}

/// A mean with its interval, such as `21.7 [19.3, 24.1]`, or a dash.
pub fn estimate(estimate: Option<Estimate>) -> String {
    match estimate {
        None => "-".to_owned(),
        Some(e) => {
            let n = digits(e.mean);
            match e.interval() {
                None => format!("{:.n$}", e.mean),
                Some(i) => format!("{:.n$} [{:.n$}, {:.n$}]", e.mean, i.lo, i.hi),
            }
        }
    }
}

/// All cells as tables, one for each table of the experiment.
pub fn tables(comparison: &Comparison) -> String {
    let fields = |compared: &Compared| {
        let cell = &compared.cell;
        [
            cell.label.row.clone(),
            cell.label.column.clone(),
            cell.label.scheme.clone(),
            estimate(cell.published),
            estimate(cell.ours.estimate()),
            cell.ours.runs().to_string(),
            cell.ours.failures().to_string(),
            compared.mark.name().to_owned(),
        ]
    };
    let rows: Vec<_> = comparison.cells.iter().map(|c| (c, fields(c))).collect();
    // Columns are as wide as in the widest of all tables, so that tables line up.
    let mut widths = HEAD.map(str::len);
    for (_, row) in &rows {
        for (width, field) in widths.iter_mut().zip(row) {
            *width = field.chars().count().max(*width);
        }
    }
    let mut out = String::new();
    let mut table = "";
    for (compared, row) in &rows {
        let cell = &compared.cell;
        if cell.label.table != table {
            let space = if table.is_empty() { "" } else { "\n" };
            table = &cell.label.table;
            let _ = writeln!(out, "{space}{table}, in {}", cell.unit);
            line_up(&mut out, HEAD, widths);
        }
        line_up(&mut out, row.each_ref().map(String::as_str), widths);
    }
    out
}

const HEAD: [&str; 8] = ["row", "column", "scheme", "published", "ours", "runs", "failed", "mark"];

/// One line of a table: counts to the right, all else to the left.
fn line_up(out: &mut String, fields: [&str; 8], widths: [usize; 8]) {
    let mut text = String::new();
    for ((field, width), name) in fields.into_iter().zip(widths).zip(HEAD) {
        let _ = match name {
            "runs" | "failed" => write!(text, "{field:>width$}  "),
            _ => write!(text, "{field:<width$}  "),
        };
    }
    let _ = writeln!(out, "{}", text.trim_end());
}

/// What had to be right, one line each.
pub fn criteria(criteria: &[Criterion]) -> String {
    let widest = |words: &dyn Fn(&Criterion) -> String| {
        criteria.iter().map(|c| words(c).chars().count()).max().unwrap_or(0)
    };
    let (names, counts) = (widest(&|c| c.name.clone()), widest(&count));
    let mut out = String::new();
    for c in criteria {
        let line = format!("{:<names$}  {:<counts$}  {}", c.name, count(c), needed(c));
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

/// One criterion as `--json` prints it.
#[derive(Serialize)]
struct CriterionLine<'a> {
    paper: &'a str,
    criterion: &'a str,
    met: usize,
    of: usize,
    whole: usize,
    needed: Option<usize>,
    /// Whether it is met, where anything is needed and enough was run.
    verdict: Option<bool>,
}

/// Each criterion of a paper as one JSON object a line.
///
/// # Errors
/// None that this data can cause; serialising is fallible by its type.
pub fn criteria_lines(paper: &str, criteria: &[Criterion]) -> Result<String, serde_json::Error> {
    let mut out = String::new();
    for c in criteria {
        let line = CriterionLine {
            paper,
            criterion: &c.name,
            met: c.met,
            of: c.of,
            whole: c.whole,
            needed: c.needed,
            verdict: c.verdict(),
        };
        out.push_str(&serde_json::to_string(&line)?);
        out.push('\n');
    }
    Ok(out)
}

/// The count of a criterion, such as `31 of 33`.
pub fn count(criterion: &Criterion) -> String {
    format!("{} of {}", criterion.met, criterion.of)
}

/// What a criterion needs and whether it is met, in words; empty where nothing is needed.
pub fn needed(criterion: &Criterion) -> String {
    let Some(needed) = criterion.needed else {
        return String::new();
    };
    let verdict = match criterion.verdict() {
        Some(true) => "met",
        Some(false) => "not met",
        None => "too few cells were run to say",
    };
    format!("at least {needed} of {}: {verdict}", criterion.whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::{Label, Measured};
    use crate::stats::{Interval, Sample};

    fn comparison(published: Option<Estimate>) -> Comparison {
        let mut ours: Sample = [21.0, 23.0].into_iter().collect();
        if published.is_none() {
            ours.fail();
        }
        let label = Label {
            table: "table1".to_owned(),
            row: "0 s".to_owned(),
            column: "5 %".to_owned(),
            scheme: "tcp".to_owned(),
        };
        Comparison::new(vec![Measured {
            label,
            unit: "s",
            published,
            compared: true,
            ours,
            reasons: Vec::new(),
        }])
    }

    #[test]
    fn a_cell_is_one_json_object_with_null_where_nothing_is_published() {
        let printed = Estimate::of_printed(21.7, Interval { lo: 19.3, hi: 24.1 }, 40);
        let value = |published| -> serde_json::Value {
            let text = json_lines(&comparison(published)).unwrap();
            assert_eq!(text.matches('\n').count(), 1);
            serde_json::from_str(&text).unwrap()
        };
        let with = value(Some(printed));
        assert_eq!(with["published"], 21.7);
        assert_eq!((&with["ours"], &with["runs"]), (&22.0.into(), &2.into()));
        assert_eq!(
            (with["table"].as_str(), with["mark"].as_str()),
            (Some("table1"), Some("within"))
        );
        let without = value(None);
        assert!(without["published"].is_null() && without["published_hi"].is_null());
        assert_eq!((&without["runs"], &without["failures"]), (&3.into(), &1.into()));
        assert_eq!(without["mark"], "unpublished");
    }

    #[test]
    fn tables_and_criteria_are_readable() {
        let mut comparison = comparison(None);
        let mut other = comparison.cells[0].clone();
        other.cell.label.table = "table2".to_owned();
        other.cell.label.scheme = "congestion-coherence".to_owned();
        comparison.cells.push(other);
        let text = tables(&comparison);
        assert!(text.contains("0 s  5 %") && text.contains("22.0 ["), "{text}");
        let marks: Vec<_> = text.lines().filter_map(|l| l.find("unpublished")).collect();
        assert!(marks.len() == 2 && marks[0] == marks[1], "{text}");
        let criterion = Criterion::count("order", [true, false], 2, Some(2));
        assert!(criteria(&[criterion]).ends_with("1 of 2  at least 2 of 2: not met\n"));
    }
}
